package provider

import (
	"context"
	"fmt"
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
	machine.FieldDisk:        path.Root("control_plane").AtName("disk_gib"),
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
	if plan.replaces(state) {
		return // Terraform plans the replacement as a create of its own.
	}
	r.planUpdate(ctx, plan, state, resp)
}

func (r *clusterResource) planCreate(ctx context.Context, plan clusterModel, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if id := replaced(ctx, req.Private, &resp.Diagnostics); id != "" {
		plan.ID = types.StringValue(id)
	}
	create := task{"create", theCluster, plan.Name.ValueString()}
	if r.backend.hasTemplate(create, &resp.Diagnostics) {
		r.review(ctx, create, plan, nil, &resp.Diagnostics)
	}
	r.lookUp(ctx, plan.K3sVersion, &resp.Diagnostics)
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
	nodes := nodesOf(ctx, state.Nodes, &resp.Diagnostics)
	drifted := drift(nodes, 1, 1)
	if len(drifted) == 0 {
		plan.keep(state)
	} else {
		warnDrift(fmt.Sprintf("Cluster %q has drifted", name), drifted, &resp.Diagnostics)
		plan.open(ctx, nodes)
		r.review(ctx, task{"update", theCluster, name}, plan, nodes, &resp.Diagnostics)
	}
	for attribute, value := range map[string]any{
		"endpoint": plan.Endpoint, "status": plan.Status, "conditions": plan.Conditions, "nodes": plan.Nodes,
	} {
		resp.Diagnostics.Append(resp.Plan.SetAttribute(ctx, path.Root(attribute), value)...)
	}
}

// review asks the hypervisors whether the plan can be met, as far as it is known.
func (r *clusterResource) review(ctx context.Context, t task, plan clusterModel, prior cluster.Nodes, diags *diag.Diagnostics) {
	if r.backend == nil || !r.backend.known {
		return
	}
	spec, complete := plan.spec(ctx, diags)
	if !complete || diags.HasError() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, cluster.DefaultReadTimeout)
	defer cancel()
	problems, err := r.backend.engine.CheckCluster(ctx, spec, prior)
	if err != nil {
		t.fail(diags, err)
	}
	report(t, problems, clusterPaths, diags)
}

// replaces reports whether the plan replaces the cluster of the state.
func (m clusterModel) replaces(state clusterModel) bool {
	return !m.Name.Equal(state.Name) || !m.Network.Equal(state.Network) || !m.Bridge.Equal(state.Bridge) ||
		!m.ControlPlane.Equal(state.ControlPlane)
}

// keep plans the computed values of the state.
func (m *clusterModel) keep(state clusterModel) {
	m.Endpoint, m.Status, m.Conditions, m.Nodes = state.Endpoint, state.Status, state.Conditions, state.Nodes
}

// open plans new values for what the healing of nodes alters. The endpoint stays, unless its server is made anew.
func (m *clusterModel) open(ctx context.Context, nodes cluster.Nodes) {
	m.Status = types.StringUnknown()
	m.Conditions = types.ListUnknown(m.Conditions.ElementType(ctx))
	m.Nodes = types.MapUnknown(m.Nodes.ElementType(ctx))
	if m.Endpoint.IsNull() || madeAnew(nodes) {
		m.Endpoint = types.StringUnknown()
	}
}
