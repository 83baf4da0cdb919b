package provider

import (
	"context"
	"errors"

	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
)

type clusterResource struct{ backend *backend }

var (
	_ resource.ResourceWithConfigure   = (*clusterResource)(nil)
	_ resource.ResourceWithModifyPlan  = (*clusterResource)(nil)
	_ resource.ResourceWithImportState = (*clusterResource)(nil)
)

func newClusterResource() resource.Resource { return &clusterResource{} }

// Metadata names the resource.
func (r *clusterResource) Metadata(_ context.Context, _ resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = typeName + "_k3s_cluster"
}

// Configure takes over the provider's data.
func (r *clusterResource) Configure(_ context.Context, req resource.ConfigureRequest, resp *resource.ConfigureResponse) {
	r.backend = backendOf(req.ProviderData, &resp.Diagnostics)
}

// Create makes the cluster. With an error, what exists by then is in the state.
func (r *clusterResource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	var m clusterModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	create := task{"create", theCluster, m.Name.ValueString()}
	if !r.backend.ready(create, &resp.Diagnostics) {
		return
	}
	timeout, d := m.Timeouts.Create(ctx, cluster.DefaultCreateTimeout)
	resp.Diagnostics.Append(d...)
	spec, _ := m.spec(ctx, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	spec.ID = cluster.NewID()
	m.ID = types.StringValue(spec.ID)

	opCtx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	state, err := r.backend.engine.ApplyCluster(opCtx, spec, nil, cluster.WaitsWithin(timeout))
	if err == nil || len(state.Nodes) > 0 {
		m.setState(ctx, state, &resp.Diagnostics)
		resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
	}
	if err != nil {
		create.fail(&resp.Diagnostics, err, timeoutAdvice(opCtx, "create", timeout), resumeAdvice(state.Nodes))
	}
}

// Read looks at the cluster. Only where every hypervisor answered and none has a server of it, it leaves the state.
func (r *clusterResource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	if r.backend == nil || !r.backend.known {
		return // The state stays as it is until the provider's configuration is known.
	}
	var m clusterModel
	resp.Diagnostics.Append(req.State.Get(ctx, &m)...)
	timeout, d := m.Timeouts.Read(ctx, cluster.DefaultReadTimeout)
	resp.Diagnostics.Append(d...)
	spec, _ := m.spec(ctx, &resp.Diagnostics)
	prior := nodesOf(ctx, m.Nodes, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	opCtx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	state, err := r.backend.engine.ReadCluster(opCtx, spec, prior)
	switch {
	case errors.Is(err, cluster.ErrGone):
		resp.State.RemoveResource(ctx)
		return
	case err != nil:
		task{"read", theCluster, spec.Name}.fail(&resp.Diagnostics, err, timeoutAdvice(opCtx, "read", timeout))
		return
	}
	m.setSpec(ctx, state.Spec, &resp.Diagnostics)
	m.setState(ctx, state, &resp.Diagnostics)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// Update brings the cluster to the plan. With an error, what exists by then is in the state.
func (r *clusterResource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var m, before clusterModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	resp.Diagnostics.Append(req.State.Get(ctx, &before)...)
	if resp.Diagnostics.HasError() {
		return
	}
	if m.same(before) { // Only the timeouts have changed.
		resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
		return
	}
	update := task{"update", theCluster, m.Name.ValueString()}
	if !r.backend.ready(update, &resp.Diagnostics) {
		return
	}
	timeout, d := m.Timeouts.Update(ctx, cluster.DefaultUpdateTimeout)
	resp.Diagnostics.Append(d...)
	spec, _ := m.spec(ctx, &resp.Diagnostics)
	prior := nodesOf(ctx, before.Nodes, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	opCtx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	state, err := r.backend.engine.ApplyCluster(opCtx, spec, prior, cluster.WaitsWithin(timeout))
	if err == nil {
		m.settle(ctx, state, &resp.Diagnostics)
	} else {
		// The settings of before stay in the state, so that the next plan shows the change again.
		before.Timeouts = m.Timeouts
		m = before
		m.setState(ctx, state, &resp.Diagnostics)
	}
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
	if err != nil {
		update.fail(&resp.Diagnostics, err, timeoutAdvice(opCtx, "update", timeout), resumeUpdate)
	}
}

// Delete removes the cluster. With an error, what remains is in the state.
func (r *clusterResource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	var m clusterModel
	resp.Diagnostics.Append(req.State.Get(ctx, &m)...)
	remove := task{"delete", theCluster, m.Name.ValueString()}
	if !r.backend.ready(remove, &resp.Diagnostics) {
		return
	}
	timeout, d := m.Timeouts.Delete(ctx, cluster.DefaultDeleteTimeout)
	resp.Diagnostics.Append(d...)
	spec, _ := m.spec(ctx, &resp.Diagnostics)
	prior := nodesOf(ctx, m.Nodes, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	opCtx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	left, err := r.backend.engine.DeleteCluster(opCtx, spec, prior, cluster.WaitsWithin(timeout))
	if err != nil {
		resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("nodes"), nodesValue(ctx, left, &resp.Diagnostics))...)
		remove.fail(&resp.Diagnostics, err, timeoutAdvice(opCtx, "delete", timeout), resumeDelete)
	}
}

// ImportState finds a cluster by its name or id; the read that follows fills in its state.
func (r *clusterResource) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	imports := task{"import", theCluster, req.ID}
	if !r.backend.ready(imports, &resp.Diagnostics) {
		return
	}
	opCtx, cancel := context.WithTimeout(ctx, cluster.DefaultReadTimeout)
	defer cancel()
	spec, err := r.backend.engine.FindCluster(opCtx, req.ID)
	if err != nil {
		imports.fail(&resp.Diagnostics, err)
		return
	}
	// The first attribute makes an object of the null that a state begins as.
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("name"), spec.Name)...)
	var m clusterModel
	resp.Diagnostics.Append(resp.State.Get(ctx, &m)...)
	m.setSpec(ctx, spec, &resp.Diagnostics)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}
