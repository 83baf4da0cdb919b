package provider

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
)

// poolPaths are the attributes that problems of a pool stand on.
var poolPaths = map[machine.Field]path.Path{
	machine.FieldName:        path.Root("name"),
	machine.FieldStoragePool: path.Root("storage_pool"),
	machine.FieldDisk:        path.Root("disk_gib"),
}

// ModifyPlan reviews the plan against the hypervisors, and plans what heals a pool that has drifted.
func (r *poolResource) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	if req.Plan.Raw.IsNull() {
		return
	}
	var plan, state poolModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	if resp.Diagnostics.HasError() {
		return
	}
	if req.State.Raw.IsNull() {
		resp.Diagnostics.Append(resp.Plan.SetAttribute(ctx, path.Root("id"), poolID(plan.ClusterID, plan.Name))...)
		r.review(ctx, task{"create", thePool, plan.Name.ValueString()}, plan, nil, &resp.Diagnostics)
		return
	}
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() || plan.replaces(state) {
		return // Terraform plans a replacement as a create of its own.
	}
	r.planUpdate(ctx, plan, state, resp)
}

func (r *poolResource) planUpdate(ctx context.Context, plan, state poolModel, resp *resource.ModifyPlanResponse) {
	name := state.Name.ValueString()
	nodes := nodesOf(ctx, state.Nodes, &resp.Diagnostics)
	drifted := drift(nodes, int(state.NodeCount.ValueInt64()))
	if len(drifted) > 0 {
		warnDrift(fmt.Sprintf("Node pool %q has drifted", name), drifted, &resp.Diagnostics)
	}
	planned := state.Nodes
	if len(drifted) > 0 || !plan.NodeCount.Equal(state.NodeCount) {
		planned = types.MapUnknown(state.Nodes.ElementType(ctx))
		r.review(ctx, task{"update", thePool, name}, plan, nodes, &resp.Diagnostics)
	}
	resp.Diagnostics.Append(resp.Plan.SetAttribute(ctx, path.Root("nodes"), planned)...)
}

// review asks the hypervisors whether the plan can be met, as far as it is known.
func (r *poolResource) review(ctx context.Context, t task, plan poolModel, prior cluster.Nodes, diags *diag.Diagnostics) {
	if r.backend == nil || !r.backend.known {
		return
	}
	spec, complete := plan.spec()
	if spec.Nodes == 0 || !r.backend.hasTemplate(t, diags) || !complete {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, cluster.DefaultReadTimeout)
	defer cancel()
	problems, err := r.backend.engine.CheckPool(ctx, spec, prior)
	report(t, problems, err, poolPaths, diags)
}
