package provider

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/k3s"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// clusterPaths are the attributes that problems of a cluster stand on.
var clusterPaths = withAddonPaths(map[machine.Field]path.Path{
	machine.FieldName:        path.Root("name"),
	machine.FieldNetwork:     path.Root("network"),
	machine.FieldBridge:      path.Root("bridge"),
	machine.FieldStoragePool: path.Root("control_plane").AtName("storage_pool"),
	machine.FieldClone:       path.Root("control_plane").AtName("clone"),
	machine.FieldVCPUs:       path.Root("control_plane").AtName("vcpus"),
	machine.FieldMemory:      path.Root("control_plane").AtName("memory_gib"),
	machine.FieldDisk:        path.Root("control_plane").AtName("disk_gib"),
	machine.FieldPlacement:   path.Root("control_plane").AtName("placement"),
	machine.FieldHosts:       path.Root("control_plane").AtName("placement").AtName("hosts"),
	machine.FieldUserData:    path.Root("control_plane").AtName("extra_user_data"),
})

// ModifyPlan reviews the plan against the hypervisors, and plans what heals a cluster that has drifted. What is protected is neither
// destroyed nor replaced.
func (r *clusterResource) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	var plan, state clusterModel
	if !req.State.Raw.IsNull() {
		resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	}
	if req.Plan.Raw.IsNull() {
		state.spare(task{"destroy", theCluster, state.Name.ValueString()}, &resp.Diagnostics)
		return
	}
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	switch {
	case resp.Diagnostics.HasError():
	case req.State.Raw.IsNull():
		r.planCreate(ctx, plan, req, resp)
	default:
		subject{state.ID.ValueString(), state.DeletionProtection.ValueBool()}.mark(ctx, resp.Private, &resp.Diagnostics)
		if plan.replaces(state) { // Terraform plans the replacement as a create of its own.
			rebuilt := rebuilds(plan.CNI, state.CNI)
			resp.RequiresReplace.Append(rebuilt...)
			if state.spare(task{"replace", theCluster, state.Name.ValueString()}, &resp.Diagnostics) {
				warnRebuilt(state.Name.ValueString(), rebuilt, &resp.Diagnostics)
			}
			return
		}
		r.planUpdate(ctx, plan, state, resp)
	}
}

// spare fails a task that destroys a cluster which is protected from that, and reports whether it may go on. What counts is the state:
// the protection has to be taken off by an apply of its own.
func (m clusterModel) spare(t task, diags *diag.Diagnostics) bool {
	if m.DeletionProtection.ValueBool() {
		refuseProtected(t, diags)
		return false
	}
	return true
}

func refuseProtected(t task, diags *diag.Diagnostics) {
	t.failAt(diags, path.Root("deletion_protection"), &cluster.Failure{
		Err:    errors.New("it is protected from that: deletion_protection is true"),
		Remedy: "set deletion_protection = false and apply that first, if you want to lose the cluster and its data.",
	})
}

func (r *clusterResource) planCreate(ctx context.Context, plan clusterModel, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	diags := &resp.Diagnostics
	goes := replaced(ctx, req.Private, diags)
	if goes.Protected { // The user asks for a replacement that no attribute is the cause of.
		refuseProtected(task{"replace", theCluster, plan.Name.ValueString()}, diags)
		return
	}
	create := task{"create", theCluster, plan.Name.ValueString()}
	plan.CSI, plan.ImageRegistry = r.backend.planExport(ctx, create, plan.CSI, diags), r.backend.registry(plan.ImageRegistry)
	spec := plan.spec()
	spec.ID = goes.ID
	plan.APIURL = plan.urlOfEndpoint()
	plan.place(ctx, nil, spec.Shape, diags)
	if r.backend.hasTemplate(create, diags) {
		review, _ := r.review(ctx, create, plan, spec, nil, diags)
		report(create, review.Problems, clusterPaths, diags)
		plan.place(ctx, review.Assignment, spec.Shape, diags)
	}
	report(create, r.check(addonsOfSpec(spec)), clusterPaths, diags)
	r.warnUntested(addonsOfSpec(spec), diags)
	r.lookUp(ctx, plan.K3sVersion, diags)
	diags.Append(resp.Plan.Set(ctx, &plan)...)
}

// warnUntested warns of charts that were not tested with the cluster's version of Kubernetes.
func (r *clusterResource) warnUntested(spec cluster.AddonSpec, diags *diag.Diagnostics) {
	if lines := r.untested(spec); len(lines) > 0 {
		diags.AddAttributeWarning(path.Root("k3s_version"), "Add-ons were not tested with this version of Kubernetes", paragraphs(
			strings.Join(lines, "\n"), "What to do: choose a version of k3s that is named, or set chart.version of the add-on to one that its project supports there."))
	}
}

// lookUp warns of a version that the list of releases has not. It asks for the list once in the life of the provider,
// within the bounds of the list's client.
func (r *clusterResource) lookUp(ctx context.Context, version types.String, diags *diag.Diagnostics) {
	v, err := k3s.ParseVersion(version.ValueString())
	if err != nil || r.backend == nil || r.backend.releases == nil {
		return // It is not known yet, or its validator has told what is wrong with it.
	}
	list, err := r.backend.releases.List(ctx)
	if err != nil || !list.Lacks(v) {
		return
	}
	nearest := make([]string, 0, 2)
	for _, n := range list.Nearest(v) {
		nearest = append(nearest, n.String())
	}
	diags.AddAttributeWarning(path.Root("k3s_version"), fmt.Sprintf("The list of k3s releases has no %s", v),
		"The nodes could not download it. The nearest in the list: "+strings.Join(nearest, ", ")+".")
}

func (r *clusterResource) planUpdate(ctx context.Context, plan, state clusterModel, resp *resource.ModifyPlanResponse) {
	name := state.Name.ValueString()
	if known(plan.K3sVersion) && !plan.K3sVersion.Equal(state.K3sVersion) {
		task{"change", "k3s_version of cluster", name}.failAt(&resp.Diagnostics, path.Root("k3s_version"), &cluster.Failure{
			Err:    fmt.Errorf("the cluster was made with %s, and this version of the provider does not change the version of a cluster that exists", state.K3sVersion.ValueString()),
			Remedy: "set k3s_version to " + state.K3sVersion.ValueString() + ", or make a cluster of another name with the new version.",
		})
		return
	}
	diags := &resp.Diagnostics
	update := task{"update", theCluster, name}
	plan.keep(state)
	plan.CSI, plan.ImageRegistry = r.backend.planExport(ctx, update, keptExport(plan.CSI, state.CSI), diags), r.backend.registry(state.ImageRegistry)
	spec, before := plan.assuming(state), state.before(ctx, diags)
	o := outlookFor(ctx, record.ServerPool, state.membersModel, state.controlPlane().NodeCount, plan.controlPlane().NodeCount, rules{}, diags)
	addons := addonDrift(addonsOf(ctx, state.Addons, diags), addonsOfSpec(spec).Addons())
	if plan.same(state) && !o.changes() && len(addons) == 0 {
		r.hasHosts(update, plan, diags)
		diags.Append(resp.Plan.Set(ctx, &plan)...)
		return
	}
	var review cluster.Review
	reviewed := false
	if o.want <= o.was || r.backend.hasTemplate(update, diags) {
		review, reviewed = r.review(ctx, update, plan, spec, &before, diags)
	}
	o.learn(review)
	o.warnDrift("Cluster", name, addons, lostServers(o.nodes), diags)
	o.warnRenewed("Cluster", name, record.Upgrade{}, diags)
	warnPause(name, o, diags)
	report(update, slices.Concat(review.Problems, r.check(addonsOfSpec(spec))), clusterPaths, diags)
	if makes(review, 0) {
		r.backend.hasTemplate(update, diags)
	}
	quiet := !o.changes() && plan.decided() && !disturbs(review) && (reviewed || plan.sameNodes(state))
	if !quiet {
		plan.openNodes(ctx)
	}
	if len(addons) > 0 || len(review.Addons) > 0 || !plan.sameAddons(state) || state.Addons.IsNull() {
		plan.openAddons(ctx)
	}
	if review.Assignment != nil || !quiet {
		plan.place(ctx, review.Assignment, spec.Shape, diags)
	}
	if !plan.keepsURL(state, o, quiet, reviewed) {
		plan.APIURL = plan.urlOfEndpoint()
	}
	diags.Append(resp.Plan.Set(ctx, &plan)...)
}

// warnPause tells that a cluster with one server has no API while that is resized.
func warnPause(name string, o outlook, diags *diag.Diagnostics) {
	if servers := o.with(resized); len(servers) == 1 && len(o.nodes) == 1 {
		diags.AddWarning(fmt.Sprintf("The API of cluster %q will not answer for a while", name), fmt.Sprintf(
			"%s is its only server, and is powered off to be resized. Pods on the agents run on meanwhile.", servers[0]))
	}
}

// review asks the hypervisors whether the plan can be met, as far as it is known, and reports whether there is an answer. Without a
// state of before, the cluster is to be made.
func (r *clusterResource) review(ctx context.Context, t task, plan clusterModel, spec cluster.Spec, before *cluster.State, diags *diag.Diagnostics) (cluster.Review, bool) {
	if !r.hasHosts(t, plan, diags) || !plan.reviewable() {
		return cluster.Review{}, false
	}
	return r.backend.review(ctx, t, diags, func(ctx context.Context) (cluster.Review, error) {
		return r.backend.engine.CheckCluster(ctx, spec, before)
	})
}

func (r *clusterResource) hasHosts(t task, plan clusterModel, diags *diag.Diagnostics) bool {
	return r.backend.hasHosts(t, plan.controlPlane().Placement, clusterPaths[machine.FieldPlacement], diags)
}

// replaces reports whether the plan replaces the cluster of the state.
func (m clusterModel) replaces(state clusterModel) bool {
	return !m.Name.Equal(state.Name) || !m.Network.Equal(state.Network) || !m.Bridge.Equal(state.Bridge) || len(rebuilds(m.CNI, state.CNI)) > 0
}

// keep plans the computed values of the state.
func (m *clusterModel) keep(state clusterModel) {
	m.APIURL, m.Status, m.Conditions, m.Addons, m.membersModel = state.APIURL, state.Status, state.Conditions, state.Addons, state.membersModel
}

// openNodes and openAddons plan new values for what a change of nodes or of add-ons alters.
func (m *clusterModel) openNodes(ctx context.Context) {
	m.Nodes = types.MapUnknown(m.Nodes.ElementType(ctx))
	m.openStatus(ctx)
}

func (m *clusterModel) openAddons(ctx context.Context) {
	m.Addons = types.MapUnknown(m.Addons.ElementType(ctx))
	m.openStatus(ctx)
}

func (m *clusterModel) openStatus(ctx context.Context) {
	m.Status = types.StringUnknown()
	m.Conditions = types.ListUnknown(m.Conditions.ElementType(ctx))
}

// urlOfEndpoint is the URL of the API where an endpoint tells it, and unknown otherwise.
func (m clusterModel) urlOfEndpoint() types.String {
	if url, _, err := k3s.ServerURL(m.Endpoint.ValueString()); err == nil {
		return types.StringValue(url)
	}
	return types.StringUnknown()
}

// keepsURL reports whether the URL of the API is the same after the apply: that of the endpoint, or else of a server that stays. A quiet
// plan leaves all servers as they are; one that was not reviewed may replace servers for all that is known.
func (m clusterModel) keepsURL(state clusterModel, o outlook, quiet, reviewed bool) bool {
	switch {
	case !m.Endpoint.Equal(state.Endpoint):
		return false
	case quiet:
		return true
	case state.APIURL.IsNull():
		return false
	case !state.Endpoint.IsNull():
		return true
	case !reviewed && !m.controlPlane().sameVMs(state.controlPlane()), !reviewed && len(o.with(adjusted)) > 0:
		return false
	}
	var host netip.Addr
	if u, err := url.Parse(state.APIURL.ValueString()); err == nil {
		host, _ = netip.ParseAddr(u.Hostname())
	}
	leaving, stays := 0, false
	for name, n := range o.nodes {
		if o.fates[name].leaves() {
			leaving++
		} else if ip, err := netip.ParseAddr(n.IP); err == nil && ip == host {
			stays = true
		}
	}
	return stays || leaving == 0 && len(o.nodes) > 0
}

// lostServers tells what the loss of servers means for the data of the cluster, "" where none is lost. Those whose making did not come
// to its end never had any.
func lostServers(servers cluster.Nodes) string {
	lost, left := 0, 0
	for _, n := range servers {
		switch n.State {
		case cluster.NodeMissing:
			lost++
		case cluster.NodeCreating:
		default:
			left++
		}
	}
	switch {
	case lost == 0:
		return ""
	case left == 0:
		return "With its last server the data of the cluster is lost."
	case left > lost:
		return "The cluster works on, and its data is safe with the servers that are left: the new one joins them."
	}
	return "" // Without a majority nothing can be brought back; the review tells so.
}
