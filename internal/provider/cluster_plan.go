package provider

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/k3s"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
)

// clusterPaths are the attributes that problems of a cluster stand on.
var clusterPaths = map[machine.Field]path.Path{
	machine.FieldName:        path.Root("name"),
	machine.FieldNetwork:     path.Root("network"),
	machine.FieldBridge:      path.Root("bridge"),
	machine.FieldStoragePool: path.Root("control_plane").AtName("storage_pool"),
	machine.FieldVCPUs:       path.Root("control_plane").AtName("vcpus"),
	machine.FieldMemory:      path.Root("control_plane").AtName("memory_gib"),
	machine.FieldDisk:        path.Root("control_plane").AtName("disk_gib"),
	machine.FieldPlacement:   path.Root("control_plane").AtName("placement"),
	machine.FieldHosts:       path.Root("control_plane").AtName("placement").AtName("hosts"),
}

// ModifyPlan reviews the plan against the hypervisors, and plans what heals a cluster that has drifted.
func (r *clusterResource) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if req.Plan.Raw.IsNull() {
		return
	}
	var plan, state clusterModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	if req.State.Raw.IsNull() {
		if !resp.Diagnostics.HasError() {
			r.planCreate(ctx, plan, req, resp)
		}
		return
	}
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() {
		return
	}
	markReplaced(ctx, resp.Private, state.ID.ValueString(), &resp.Diagnostics)
	if plan.replaces(ctx, state, &resp.Diagnostics) {
		return // Terraform plans the replacement as a create of its own.
	}
	r.planUpdate(ctx, plan, state, resp)
}

func (r *clusterResource) planCreate(ctx context.Context, plan clusterModel, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	create := task{"create", theCluster, plan.Name.ValueString()}
	plan.APIURL = plan.urlOfEndpoint()
	if r.backend.hasTemplate(create, &resp.Diagnostics) {
		r.review(ctx, create, &plan, replaced(ctx, req.Private, &resp.Diagnostics), nil, &resp.Diagnostics)
	}
	r.lookUp(ctx, plan.K3sVersion, &resp.Diagnostics)
	resp.Diagnostics.Append(resp.Plan.Set(ctx, &plan)...)
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
	update := task{"update", theCluster, name}
	was, wanted := state.controlPlane(ctx, &resp.Diagnostics).NodeCount, plan.controlPlane(ctx, &resp.Diagnostics).NodeCount
	o := outlookFor(ctx, state.membersModel, was, wanted, &resp.Diagnostics)
	if len(o.drifted) > 0 {
		warnDrift(fmt.Sprintf("Cluster %q has drifted", name), o.drifted, lostServers(o.nodes), &resp.Diagnostics)
	}
	plan.keep(state)
	if !plan.keepsURL(state, o) {
		plan.APIURL = plan.urlOfEndpoint()
	}
	switch {
	case !o.changes:
		r.hasHosts(ctx, update, plan, &resp.Diagnostics)
	case o.want <= o.was || r.backend.hasTemplate(update, &resp.Diagnostics):
		plan.open(ctx)
		r.review(ctx, update, &plan, plan.ID.ValueString(), o.nodes, &resp.Diagnostics)
	}
	resp.Diagnostics.Append(resp.Plan.Set(ctx, &plan)...)
}

// review asks the hypervisors whether the plan can be met, as far as it is known, and plans where the servers stand then.
// The id is that of the cluster which the plan is about, be it to be replaced.
func (r *clusterResource) review(ctx context.Context, t task, plan *clusterModel, id string, prior cluster.Nodes, diags *diag.Diagnostics) {
	spec, complete := plan.spec(ctx, diags)
	spec.ID = id
	plan.place(ctx, nil, spec.Shape, diags)
	if !r.hasHosts(ctx, t, *plan, diags) || !complete {
		return
	}
	review := r.backend.review(ctx, t, diags, func(ctx context.Context) (cluster.Review, error) {
		return r.backend.engine.CheckCluster(ctx, spec, prior)
	})
	report(t, review.Problems, clusterPaths, diags)
	plan.place(ctx, review.Assignment, spec.Shape, diags)
}

func (r *clusterResource) hasHosts(ctx context.Context, t task, plan clusterModel, diags *diag.Diagnostics) bool {
	return r.backend.hasHosts(t, plan.controlPlane(ctx, diags).Placement, clusterPaths[machine.FieldPlacement], diags)
}

// replaces reports whether the plan replaces the cluster of the state.
func (m clusterModel) replaces(ctx context.Context, state clusterModel, diags *diag.Diagnostics) bool {
	return !m.Name.Equal(state.Name) || !m.Network.Equal(state.Network) || !m.Bridge.Equal(state.Bridge) || m.ControlPlane.IsUnknown() ||
		!m.controlPlane(ctx, diags).equal(state.controlPlane(ctx, diags).shapeModel)
}

// keep plans the computed values of the state.
func (m *clusterModel) keep(state clusterModel) {
	m.APIURL, m.Status, m.Conditions, m.membersModel = state.APIURL, state.Status, state.Conditions, state.membersModel
}

// open plans new values for what a change of nodes alters.
func (m *clusterModel) open(ctx context.Context) {
	m.Status = types.StringUnknown()
	m.Conditions = types.ListUnknown(m.Conditions.ElementType(ctx))
	m.Nodes = types.MapUnknown(m.Nodes.ElementType(ctx))
}

// urlOfEndpoint is the URL of the API where an endpoint tells it, and unknown otherwise.
func (m clusterModel) urlOfEndpoint() types.String {
	if url, _, err := k3s.ServerURL(m.Endpoint.ValueString()); err == nil {
		return types.StringValue(url)
	}
	return types.StringUnknown()
}

// keepsURL reports whether the URL of the API is the same after the apply: that of the endpoint, or else of a server that
// stays.
func (m clusterModel) keepsURL(state clusterModel, o outlook) bool {
	switch {
	case !m.Endpoint.Equal(state.Endpoint):
		return false
	case !o.changes:
		return true
	case state.APIURL.IsNull():
		return false
	case !state.Endpoint.IsNull():
		return true
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

// lostServers tells what the loss of servers means for the data of the cluster, "" where none is lost.
func lostServers(servers cluster.Nodes) string {
	lost := 0
	for _, n := range servers {
		if n.State == cluster.NodeMissing {
			lost++
		}
	}
	left := len(servers) - lost
	switch {
	case lost == 0:
		return ""
	case left == 0:
		return "With its last server the data of the cluster is lost."
	case 2*left > len(servers):
		return "The cluster works on, and its data is safe with the servers that are left: the new one joins them."
	}
	return "" // Without a majority nothing can be brought back; the review tells so.
}
