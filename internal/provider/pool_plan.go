package provider

import (
	"context"
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
	machine.FieldClone:       path.Root("clone"),
	machine.FieldVCPUs:       path.Root("vcpus"),
	machine.FieldMemory:      path.Root("memory_gib"),
	machine.FieldDisk:        path.Root("disk_gib"),
	machine.FieldDataDisk:    path.Root("data_disk").AtName("size_gib"),
	machine.FieldDataPool:    path.Root("data_disk").AtName("storage_pool"),
	machine.FieldHostDevices: path.Root("host_devices"),
	machine.FieldPlacement:   path.Root("placement"),
	machine.FieldHosts:       path.Root("placement").AtName("hosts"),
	machine.FieldUpgrade:     path.Root("upgrade_settings"),
	machine.FieldUserData:    path.Root("extra_user_data"),
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
	subject{ID: state.ID.ValueString()}.mark(ctx, resp.Private, &resp.Diagnostics)
	if plan.replaces(state) {
		return // Terraform plans a replacement as a create of its own.
	}
	r.planUpdate(ctx, plan, state, resp)
}

func (r *poolResource) planCreate(ctx context.Context, plan poolModel, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	plan.ID = poolID(plan.ClusterID, plan.Name)
	create := task{"create", thePool, plan.Name.ValueString()}
	spec := plan.spec()
	plan.place(ctx, nil, spec.Shape, &resp.Diagnostics)
	if integer(plan.NodeCount) == 0 || r.backend.hasTemplate(create, &resp.Diagnostics) {
		review, _ := r.review(ctx, create, plan, nil, &resp.Diagnostics)
		if replaced(ctx, req.Private, &resp.Diagnostics).ID == plan.ID.ValueString() {
			review.Problems = slices.DeleteFunc(review.Problems, inUse) // by the pool that goes first
		}
		report(create, review.Problems, poolPaths, &resp.Diagnostics)
		plan.place(ctx, review.Assignment, spec.Shape, &resp.Diagnostics)
	}
	resp.Diagnostics.Append(resp.Plan.Set(ctx, &plan)...)
}

// planUpdate plans what a change of the configuration, or of what was seen, does to a pool that stands. The engine is asked only where
// there is something to do: a plan without changes costs nothing.
func (r *poolResource) planUpdate(ctx context.Context, plan, state poolModel, resp *resource.ModifyPlanResponse) {
	diags := &resp.Diagnostics
	update := task{"update", thePool, state.Name.ValueString()}
	plan.membersModel = state.membersModel
	assumed := plan.assuming(state)
	spec, before := assumed.spec(), state.before(ctx, diags)
	o := outlookFor(ctx, update.name, state.membersModel, state.NodeCount, plan.NodeCount, rules{spec.RemoveFirst, spec.Repair.MaxUnhealthy}, diags)
	o.warnRestrained(update.name, spec.Repair.MaxUnhealthy, diags)
	if plan.same(state) && !o.changes() {
		r.hasHypervisors(update, plan, diags)
		diags.Append(resp.Plan.Set(ctx, &plan)...)
		return
	}
	var review cluster.Review
	reviewed := false
	if o.want <= o.was || r.backend.hasTemplate(update, diags) {
		review, reviewed = r.review(ctx, update, assumed, &before, diags)
	}
	o.learn(review)
	o.warnDrift("Node pool", update.name, nil, "", diags)
	o.warnRenewed("Node pool", update.name, spec.Upgrade, diags)
	report(update, review.Problems, poolPaths, diags)
	if makes(review, spec.Upgrade.MaxSurge) {
		r.backend.hasTemplate(update, diags)
	}
	quiet := !o.changes() && plan.decided() && !disturbs(review) && (reviewed || plan.sameNodes(state))
	if !quiet {
		plan.Nodes = types.MapUnknown(state.Nodes.ElementType(ctx))
	}
	if review.Assignment != nil || !quiet {
		plan.place(ctx, review.Assignment, spec.Shape, diags)
	}
	diags.Append(resp.Plan.Set(ctx, &plan)...)
}

// review asks the hypervisors whether the plan can be met, as far as it is known, and reports whether there is an answer. Without a
// state of before, the pool is to be made.
func (r *poolResource) review(ctx context.Context, t task, plan poolModel, before *cluster.PoolState, diags *diag.Diagnostics) (cluster.Review, bool) {
	if !r.hasHypervisors(t, plan, diags) || !plan.reviewable() {
		return cluster.Review{}, false
	}
	return r.backend.review(ctx, t, diags, func(ctx context.Context) (cluster.Review, error) {
		return r.backend.engine.CheckPool(ctx, plan.spec(), before)
	})
}

// hasHypervisors reports whether the provider has all that the plan names, and fails the task at those that it is known not to have.
func (r *poolResource) hasHypervisors(t task, plan poolModel, diags *diag.Diagnostics) bool {
	placed := r.backend.hasHosts(t, plan.Placement, poolPaths[machine.FieldPlacement], diags)
	return r.backend.hasDevices(t, plan.HostDevices, poolPaths[machine.FieldHostDevices], diags) && placed
}
