package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
)

// poolModel is a node pool in configuration, plan and state.
type poolModel struct {
	ClusterID types.String `tfsdk:"cluster_id"`
	Name      types.String `tfsdk:"name"`
	NodeCount types.Number `tfsdk:"node_count"`
	shapeModel
	Placement types.Object   `tfsdk:"placement"`
	Timeouts  timeouts.Value `tfsdk:"timeouts"`

	ID types.String `tfsdk:"id"`
	membersModel
}

// spec is the wanted pool, and whether all of it is known that a review looks at; that is not the cluster's id.
func (m poolModel) spec() (cluster.PoolSpec, bool) {
	placement, placed := placementOf(m.Placement)
	return cluster.PoolSpec{
		ClusterID: m.ClusterID.ValueString(), Name: m.Name.ValueString(), Nodes: integer(m.NodeCount), Shape: m.shape(), Placement: placement,
	}, known(m.Name, m.NodeCount) && placed && m.known()
}

// wanted is the pool that an apply makes, with what its plan has promised.
func (m poolModel) wanted(ctx context.Context, diags *diag.Diagnostics) cluster.PoolSpec {
	spec, _ := m.spec()
	spec.Assignment = m.promised(ctx, diags)
	return spec
}

// setSpec takes over what the records of the pool say of it.
func (m *poolModel) setSpec(spec cluster.PoolSpec) {
	m.ClusterID, m.Name = types.StringValue(spec.ClusterID), types.StringValue(spec.Name)
	m.NodeCount, m.shapeModel = numberValue(spec.Nodes), newShapeModel(spec.Shape)
	m.Placement = placementValue(poolPlacementTypes, spec.Placement)
	m.ID = poolID(m.ClusterID, m.Name)
}

// setNodes takes over what was seen of the pool; nil nodes were not seen.
func (m *poolModel) setNodes(ctx context.Context, nodes cluster.Nodes, diags *diag.Diagnostics) {
	if nodes != nil || m.Nodes.IsUnknown() || m.Nodes.IsNull() {
		m.show(ctx, m.Name.ValueString(), nodes, m.shape(), diags)
	}
}

// settle takes over what was seen of the pool where the plan left it open.
func (m *poolModel) settle(ctx context.Context, nodes cluster.Nodes, diags *diag.Diagnostics) {
	planned := m.membersModel
	m.setNodes(ctx, nodes, diags)
	m.membersModel = m.settled(planned)
}

// same reports whether an update from a state to the plan has nothing to do outside the state.
func (m poolModel) same(before poolModel) bool {
	return known(m.Nodes) && m.NodeCount.Equal(before.NodeCount) && m.Placement.Equal(before.Placement)
}

// replaces reports whether the plan replaces the pool of the state.
func (m poolModel) replaces(state poolModel) bool {
	return !m.ClusterID.Equal(state.ClusterID) || !m.Name.Equal(state.Name) || !m.equal(state.shapeModel)
}

func poolID(clusterID, name types.String) types.String {
	if !known(clusterID, name) {
		return types.StringUnknown()
	}
	return types.StringValue(clusterID.ValueString() + "/" + name.ValueString())
}
