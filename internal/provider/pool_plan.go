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
	machine.FieldVCPUs:       path.Root("vcpus"),
	machine.FieldMemory:      path.Root("memory_gib"),
	machine.FieldDisk:        path.Root("disk_gib"),
	machine.FieldPlacement:   path.Root("placement"),
	machine.FieldHosts:       path.Root("placement").AtName("hosts"),
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
	create := task{"create", thePool, plan.Name.ValueString()}
	if integer(plan.NodeCount) == 0 || r.backend.hasTemplate(create, &resp.Diagnostics) {
		problems := r.review(ctx, create, &plan, nil, &resp.Diagnostics)
		if replaced(ctx, req.Private, &resp.Diagnostics) == plan.ID.ValueString() {
			problems = slices.DeleteFunc(problems, inUse) // by the pool that goes first
		}
		report(create, problems, poolPaths, &resp.Diagnostics)
	}
	resp.Diagnostics.Append(resp.Plan.Set(ctx, &plan)...)
}

func (r *poolResource) planUpdate(ctx context.Context, plan, state poolModel, resp *resource.ModifyPlanResponse) {
	update := task{"update", thePool, state.Name.ValueString()}
	o := outlookFor(ctx, state.membersModel, state.NodeCount, plan.NodeCount, &resp.Diagnostics)
	if len(o.drifted) > 0 {
		warnDrift(fmt.Sprintf("Node pool %q has drifted", update.name), o.drifted, "", &resp.Diagnostics)
	}
	plan.membersModel = state.membersModel
	switch {
	case !o.changes:
		r.backend.hasHosts(update, plan.Placement, poolPaths[machine.FieldPlacement], &resp.Diagnostics)
	case o.want <= o.was || r.backend.hasTemplate(update, &resp.Diagnostics):
		plan.Nodes = types.MapUnknown(state.Nodes.ElementType(ctx))
		report(update, r.review(ctx, update, &plan, o.nodes, &resp.Diagnostics), poolPaths, &resp.Diagnostics)
	}
	resp.Diagnostics.Append(resp.Plan.Set(ctx, &plan)...)
}

// review asks the hypervisors whether the plan can be met, as far as it is known, plans where the nodes stand then, and
// returns why it cannot be met.
func (r *poolResource) review(ctx context.Context, t task, plan *poolModel, prior cluster.Nodes, diags *diag.Diagnostics) []cluster.Problem {
	spec, complete := plan.spec()
	plan.place(ctx, nil, spec.Shape, diags)
	if !r.backend.hasHosts(t, plan.Placement, poolPaths[machine.FieldPlacement], diags) || !complete {
		return nil
	}
	review := r.backend.review(ctx, t, diags, func(ctx context.Context) (cluster.Review, error) {
		return r.backend.engine.CheckPool(ctx, spec, prior)
	})
	plan.place(ctx, review.Assignment, spec.Shape, diags)
	return review.Problems
}
