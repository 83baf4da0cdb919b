package provider

import (
	"context"
	"errors"

	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
)

type poolResource struct{ backend *backend }

var (
	_ resource.ResourceWithConfigure   = (*poolResource)(nil)
	_ resource.ResourceWithModifyPlan  = (*poolResource)(nil)
	_ resource.ResourceWithImportState = (*poolResource)(nil)
)

func newPoolResource() resource.Resource { return &poolResource{} }

// Metadata names the resource.
func (r *poolResource) Metadata(_ context.Context, _ resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = typeName + "_k3s_node_pool"
}

// Configure takes over the provider's data.
func (r *poolResource) Configure(_ context.Context, req resource.ConfigureRequest, resp *resource.ConfigureResponse) {
	r.backend = backendOf(req.ProviderData, &resp.Diagnostics)
}

// Create makes the pool. With an error, what exists by then is in the state.
func (r *poolResource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	var m poolModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	create := task{"create", thePool, m.Name.ValueString()}
	if !r.backend.ready(create, &resp.Diagnostics) {
		return
	}
	timeout, d := m.Timeouts.Create(ctx, cluster.DefaultCreateTimeout)
	resp.Diagnostics.Append(d...)
	if resp.Diagnostics.HasError() {
		return
	}
	m.ID = poolID(m.ClusterID, m.Name)
	spec, _ := m.spec()

	opCtx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	state, err := r.backend.engine.ApplyPool(opCtx, spec, nil, cluster.WaitsWithin(timeout))
	if err == nil || len(state.Nodes) > 0 {
		m.setNodes(ctx, state.Nodes, &resp.Diagnostics)
		resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
	}
	if err != nil {
		create.fail(&resp.Diagnostics, err, timeoutAdvice(opCtx, "create", timeout), resumeAdvice(state.Nodes))
	}
}

// Read looks at the pool. It leaves the state only with its cluster; a pool without nodes is a pool.
func (r *poolResource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	if r.backend == nil || !r.backend.known {
		return // The state stays as it is until the provider's configuration is known.
	}
	var m poolModel
	resp.Diagnostics.Append(req.State.Get(ctx, &m)...)
	timeout, d := m.Timeouts.Read(ctx, cluster.DefaultReadTimeout)
	resp.Diagnostics.Append(d...)
	prior := nodesOf(ctx, m.Nodes, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	spec, _ := m.spec()
	opCtx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	state, err := r.backend.engine.ReadPool(opCtx, spec, prior)
	switch {
	case errors.Is(err, cluster.ErrGone):
		resp.State.RemoveResource(ctx)
		return
	case err != nil:
		task{"read", thePool, spec.Name}.fail(&resp.Diagnostics, err, timeoutAdvice(opCtx, "read", timeout))
		return
	}
	m.setSpec(state.Spec)
	m.setNodes(ctx, state.Nodes, &resp.Diagnostics)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// Update brings the pool to the plan. With an error, what exists by then is in the state.
func (r *poolResource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var m, before poolModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	resp.Diagnostics.Append(req.State.Get(ctx, &before)...)
	if resp.Diagnostics.HasError() {
		return
	}
	if known(m.Nodes) { // Only the timeouts have changed.
		resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
		return
	}
	update := task{"update", thePool, m.Name.ValueString()}
	if !r.backend.ready(update, &resp.Diagnostics) {
		return
	}
	timeout, d := m.Timeouts.Update(ctx, cluster.DefaultUpdateTimeout)
	resp.Diagnostics.Append(d...)
	prior := nodesOf(ctx, before.Nodes, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	spec, _ := m.spec()
	opCtx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	state, err := r.backend.engine.ApplyPool(opCtx, spec, prior, cluster.WaitsWithin(timeout))
	m.Nodes = before.Nodes
	m.setNodes(ctx, state.Nodes, &resp.Diagnostics)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
	if err != nil {
		update.fail(&resp.Diagnostics, err, timeoutAdvice(opCtx, "update", timeout), resumeUpdate)
	}
}

// Delete removes the pool. With an error, what remains is in the state.
func (r *poolResource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	var m poolModel
	resp.Diagnostics.Append(req.State.Get(ctx, &m)...)
	remove := task{"delete", thePool, m.Name.ValueString()}
	if !r.backend.ready(remove, &resp.Diagnostics) {
		return
	}
	timeout, d := m.Timeouts.Delete(ctx, cluster.DefaultDeleteTimeout)
	resp.Diagnostics.Append(d...)
	prior := nodesOf(ctx, m.Nodes, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	spec, _ := m.spec()
	opCtx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	left, err := r.backend.engine.DeletePool(opCtx, spec, prior, cluster.WaitsWithin(timeout))
	if err != nil {
		resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("nodes"), nodesValue(ctx, left, &resp.Diagnostics))...)
		remove.fail(&resp.Diagnostics, err, timeoutAdvice(opCtx, "delete", timeout), resumeDelete)
	}
}

// ImportState finds a pool by <cluster>/<pool>; the read that follows fills in its nodes.
func (r *poolResource) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	imports := task{"import", thePool, req.ID}
	if !r.backend.ready(imports, &resp.Diagnostics) {
		return
	}
	opCtx, cancel := context.WithTimeout(ctx, cluster.DefaultReadTimeout)
	defer cancel()
	spec, err := r.backend.engine.FindPool(opCtx, req.ID)
	if err != nil {
		imports.fail(&resp.Diagnostics, err)
		return
	}
	// The first attribute makes an object of the null that a state begins as.
	resp.Diagnostics.Append(resp.State.SetAttribute(ctx, path.Root("name"), spec.Name)...)
	var m poolModel
	resp.Diagnostics.Append(resp.State.Get(ctx, &m)...)
	m.setSpec(spec)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}
