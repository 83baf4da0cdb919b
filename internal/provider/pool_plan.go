package provider

import (
	"context"
	"fmt"
	"slices"

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
	machine.FieldCluster:     path.Root("cluster_id"),
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
		r.planCreate(ctx, plan, req, resp)
		return
	}
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	if resp.Diagnostics.HasError() {
		return
	}
	markReplaced(ctx, resp.Private, state.ID.ValueString(), &resp.Diagnostics)
	if plan.replaces(state) {
		return // Terraform plans a replacement as a create of its own.
	}
	r.planUpdate(ctx, plan, state, resp)
}

func (r *poolResource) planCreate(ctx context.Context, plan poolModel, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	plan.ID = poolID(plan.ClusterID, plan.Name)
	resp.Diagnostics.Append(resp.Plan.SetAttribute(ctx, path.Root("id"), plan.ID)...)
	create := task{"create", thePool, plan.Name.ValueString()}
	if integer(plan.NodeCount) > 0 && !r.backend.hasTemplate(create, &resp.Diagnostics) {
		return
	}
	problems := r.review(ctx, create, plan, nil, &resp.Diagnostics)
	if replaced(ctx, req.Private, &resp.Diagnostics) == plan.ID.ValueString() {
		problems = slices.DeleteFunc(problems, inUse) // by the pool that goes first
	}
	report(create, problems, poolPaths, &resp.Diagnostics)
}

func (r *poolResource) planUpdate(ctx context.Context, plan, state poolModel, resp *resource.ModifyPlanResponse) {
	name := state.Name.ValueString()
	nodes := nodesOf(ctx, state.Nodes, &resp.Diagnostics)
	was, want := integer(state.NodeCount), integer(state.NodeCount)
	if known(plan.NodeCount) {
		want = integer(plan.NodeCount)
	}
	drifted := drift(nodes, was, want)
	if len(drifted) > 0 {
		warnDrift(fmt.Sprintf("Node pool %q has drifted", name), drifted, &resp.Diagnostics)
	}
	planned := state.Nodes
	if len(drifted) > 0 || !plan.NodeCount.Equal(state.NodeCount) {
		planned = types.MapUnknown(state.Nodes.ElementType(ctx))
		update := task{"update", thePool, name}
		if want <= was || r.backend.hasTemplate(update, &resp.Diagnostics) {
			report(update, r.review(ctx, update, plan, nodes, &resp.Diagnostics), poolPaths, &resp.Diagnostics)
		}
	}
	resp.Diagnostics.Append(resp.Plan.SetAttribute(ctx, path.Root("nodes"), planned)...)
}

// review asks the hypervisors whether the plan can be met, as far as it is known, and returns why it cannot.
func (r *poolResource) review(ctx context.Context, t task, plan poolModel, prior cluster.Nodes, diags *diag.Diagnostics) []cluster.Problem {
	spec, complete := plan.spec()
	if r.backend == nil || !r.backend.known || !complete {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, cluster.DefaultReadTimeout)
	defer cancel()
	problems, err := r.backend.engine.CheckPool(ctx, spec, prior)
	if err != nil {
		t.fail(diags, err)
	}
	return problems
}
