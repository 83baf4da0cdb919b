package provider

import (
	"context"
	"time"

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
	diags := &resp.Diagnostics
	diags.Append(req.Plan.Get(ctx, &m)...)
	m.ID = poolID(m.ClusterID, m.Name)
	spec := m.wanted(ctx, diags)
	create := task{"create", thePool, spec.Name}
	r.backend.within(ctx, create, m.Timeouts, createSpan(1), diags, func(opCtx context.Context, waits cluster.Waits) (string, error) {
		state, err := r.backend.engine.ApplyPool(opCtx, spec, nil, waits)
		create.warn(diags, state.Warnings)
		switch {
		case err == nil:
			m.settle(ctx, state, diags)
		case len(state.Nodes) > 0:
			m.setNodes(ctx, state.Nodes, spec.Shape, diags)
		default:
			return resumeAdvice(nil), err
		}
		diags.Append(resp.State.Set(ctx, &m)...)
		return resumeAdvice(state.Nodes), err
	})
}

// Read looks at the pool. It leaves the state only with its cluster; a pool without nodes is a pool.
func (r *poolResource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	if r.backend == nil || !r.backend.known {
		return // The state stays as it is until the provider's configuration is known.
	}
	var m poolModel
	diags := &resp.Diagnostics
	diags.Append(req.State.Get(ctx, &m)...)
	before := m.before(ctx, diags)
	r.backend.refresh(ctx, task{"read", thePool, before.Spec.Name}, m.Timeouts, resp, func(opCtx context.Context) error {
		state, err := r.backend.engine.ReadPool(opCtx, before.Spec, before.Nodes)
		if err != nil {
			return err
		}
		m.setSpec(state.Spec)
		m.setNodes(ctx, state.Nodes, state.Spec.Shape, diags)
		diags.Append(resp.State.Set(ctx, &m)...)
		return nil
	})
}

// Update brings the pool to the plan. With an error, what exists by then is in the state, and what is still to be done is not, so
// that the next plan shows it again.
func (r *poolResource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var m, was poolModel
	diags := &resp.Diagnostics
	diags.Append(req.Plan.Get(ctx, &m)...)
	diags.Append(req.State.Get(ctx, &was)...)
	if diags.HasError() {
		return
	}
	if m.same(was) { // Only what stands in the state alone has changed.
		diags.Append(resp.State.Set(ctx, &m)...)
		return
	}
	spec, before := m.wanted(ctx, diags), was.before(ctx, diags)
	update := task{"update", thePool, spec.Name}
	r.backend.within(ctx, update, m.Timeouts, spanOfPool(spec, len(before.Nodes)), diags, func(opCtx context.Context, waits cluster.Waits) (string, error) {
		state, err := r.backend.engine.ApplyPool(opCtx, spec, &before, waits)
		update.warn(diags, state.Warnings)
		if err == nil {
			m.settle(ctx, state, diags)
		} else {
			was.Timeouts, was.RemoveFirst = m.Timeouts, m.RemoveFirst
			m = was
			m.setSpec(state.Spec)
			m.setNodes(ctx, state.Nodes, state.Spec.Shape, diags)
		}
		diags.Append(resp.State.Set(ctx, &m)...)
		return resumeUpdate, err
	})
}

// Delete removes the pool. With an error, what remains is in the state.
func (r *poolResource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	var m poolModel
	diags := &resp.Diagnostics
	diags.Append(req.State.Get(ctx, &m)...)
	before := m.before(ctx, diags)
	var drain time.Duration
	if !before.Spec.Drain.KeepOnDestroy {
		drain = seconds(before.Spec.Drain.TimeoutSeconds)
	}
	remove := task{"delete", thePool, before.Spec.Name}
	r.backend.within(ctx, remove, m.Timeouts, deleteSpan(drain), diags, func(opCtx context.Context, waits cluster.Waits) (string, error) {
		left, err := r.backend.engine.DeletePool(opCtx, before.Spec, before.Nodes, waits)
		remove.warn(diags, left.Warnings)
		if err != nil {
			m.show(ctx, before.Spec.Name, left.Nodes, before.Spec.Shape, diags)
			diags.Append(resp.State.Set(ctx, &m)...)
		}
		return resumeDelete, err
	})
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
