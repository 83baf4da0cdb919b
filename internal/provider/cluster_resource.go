package provider

import (
	"context"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

type clusterResource struct {
	// check says what is wrong with add-ons; it asks nobody.
	check func(cluster.AddonSpec) []cluster.Problem
	// untested says which charts were not tested with the cluster's version of Kubernetes.
	untested func(cluster.AddonSpec) []string
	backend  *backend
}

var (
	_ resource.ResourceWithConfigure      = (*clusterResource)(nil)
	_ resource.ResourceWithValidateConfig = (*clusterResource)(nil)
	_ resource.ResourceWithModifyPlan     = (*clusterResource)(nil)
	_ resource.ResourceWithImportState    = (*clusterResource)(nil)
)

// Metadata names the resource.
func (r *clusterResource) Metadata(_ context.Context, _ resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = typeName + "_k3s_cluster"
}

// Configure takes over the provider's data.
func (r *clusterResource) Configure(_ context.Context, req resource.ConfigureRequest, resp *resource.ConfigureResponse) {
	r.backend = backendOf(req.ProviderData, &resp.Diagnostics)
}

// ValidateConfig checks the charts and the values of add-ons, as far as they are known. The plan checks the rest, which validators have
// looked at already.
func (r *clusterResource) ValidateConfig(ctx context.Context, req resource.ValidateConfigRequest, resp *resource.ValidateConfigResponse) {
	var m clusterModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	spec := m.spec()
	if !whole(m.CNI) {
		spec.Settings.CNI = cniOf(types.ObjectNull(cniTypes))
	}
	for _, p := range r.check(addonsOfSpec(spec)) {
		if slices.Contains(chartFields, p.Field) {
			task{"use", string(p.Field), ""}.failAt(&resp.Diagnostics, clusterPaths[p.Field], p.Err)
		}
	}
}

// Create makes the cluster. With an error, what exists by then is in the state.
func (r *clusterResource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	var m clusterModel
	diags := &resp.Diagnostics
	diags.Append(req.Plan.Get(ctx, &m)...)
	spec := m.wanted(ctx, diags)
	create := task{"create", theCluster, spec.Name}
	r.backend.within(ctx, create, m.Timeouts, createSpan(turns(spec, nil)), diags, func(opCtx context.Context, waits cluster.Waits) (string, error) {
		spec.ID = cluster.NewID()
		m.ID = types.StringValue(spec.ID)
		state, err := r.backend.engine.ApplyCluster(opCtx, spec, nil, waits)
		create.warn(diags, state.Warnings)
		switch {
		case err == nil:
			m.settle(ctx, state, diags)
		case len(state.Nodes) > 0:
			m.setAddons(state.Spec)
			m.setState(ctx, state, diags)
			m.DeletionProtection = types.BoolValue(false) // What did not come to be can be made anew.
		default:
			return resumeAdvice(nil), err
		}
		diags.Append(resp.State.Set(ctx, &m)...)
		return resumeAdvice(state.Nodes), err
	})
}

// turns is how many servers an apply may have to make, one after another.
func turns(spec cluster.Spec, prior cluster.Nodes) int { return max(spec.Servers, len(prior), 1) }

// Read looks at the cluster.
func (r *clusterResource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	if r.backend == nil || !r.backend.known {
		return // The state stays as it is until the provider's configuration is known.
	}
	var m clusterModel
	diags := &resp.Diagnostics
	diags.Append(req.State.Get(ctx, &m)...)
	before := m.before(ctx, diags)
	r.backend.refresh(ctx, task{"read", theCluster, before.Spec.Name}, m.Timeouts, resp, func(opCtx context.Context) error {
		state, err := r.backend.engine.ReadCluster(opCtx, before.Spec, before.Nodes)
		if err != nil {
			return err
		}
		warnMoved(before.Nodes, state.Nodes, diags)
		m.setSpec(state.Spec)
		m.setState(ctx, state, diags)
		diags.Append(resp.State.Set(ctx, &m)...)
		return nil
	})
}

// Update brings the cluster to the plan. With an error, what exists by then is in the state, and what is still to be done is not, so
// that the next plan shows it again.
func (r *clusterResource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var m, was clusterModel
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
	update := task{"update", theCluster, spec.Name}
	r.backend.within(ctx, update, m.Timeouts, spanOfServers(turns(spec, before.Nodes)), diags, func(opCtx context.Context, waits cluster.Waits) (string, error) {
		state, err := r.backend.engine.ApplyCluster(opCtx, spec, &before, waits)
		update.warn(diags, state.Warnings)
		if err == nil {
			m.settle(ctx, state, diags)
		} else {
			was.Timeouts = m.Timeouts
			if !m.DeletionProtection.ValueBool() {
				was.DeletionProtection = m.DeletionProtection // It may be the way to be rid of a cluster that is broken.
			}
			m = was
			m.setSpec(state.Spec)
			m.setState(ctx, state, diags)
		}
		diags.Append(resp.State.Set(ctx, &m)...)
		return resumeUpdate, err
	})
}

// Delete removes the cluster, unless it is protected. With an error, what remains is in the state.
func (r *clusterResource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	var m clusterModel
	diags := &resp.Diagnostics
	diags.Append(req.State.Get(ctx, &m)...)
	before := m.before(ctx, diags)
	remove := task{"delete", theCluster, before.Spec.Name}
	m.spare(remove, diags)
	r.backend.within(ctx, remove, m.Timeouts, deleteSpan(0), diags, func(opCtx context.Context, waits cluster.Waits) (string, error) {
		left, err := r.backend.engine.DeleteCluster(opCtx, before.Spec, before.Nodes, waits)
		if err != nil {
			m.show(ctx, record.ServerPool, left, before.Spec.Shape, diags)
			diags.Append(resp.State.Set(ctx, &m)...)
		}
		return resumeDelete, err
	})
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
	m.setSpec(spec)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}
