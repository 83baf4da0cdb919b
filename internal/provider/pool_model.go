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
	Timeouts timeouts.Value `tfsdk:"timeouts"`

	ID    types.String `tfsdk:"id"`
	Nodes types.Map    `tfsdk:"nodes"`
}

// spec is the wanted pool, and whether all of it is known that a review looks at; that is not the cluster's id.
func (m poolModel) spec() (cluster.PoolSpec, bool) {
	return cluster.PoolSpec{
		ClusterID: m.ClusterID.ValueString(), Name: m.Name.ValueString(), Nodes: integer(m.NodeCount), Shape: m.shape(),
	}, known(m.Name, m.NodeCount) && m.known()
}

// setSpec takes over what the records of the pool say of it.
func (m *poolModel) setSpec(spec cluster.PoolSpec) {
	m.ClusterID, m.Name = types.StringValue(spec.ClusterID), types.StringValue(spec.Name)
	m.NodeCount, m.shapeModel = numberValue(spec.Nodes), newShapeModel(spec.Shape)
	m.ID = poolID(m.ClusterID, m.Name)
}

// setNodes takes over what was seen of the pool; nil nodes were not seen.
func (m *poolModel) setNodes(ctx context.Context, nodes cluster.Nodes, diags *diag.Diagnostics) {
	if nodes != nil || m.Nodes.IsUnknown() || m.Nodes.IsNull() {
		m.Nodes = nodesValue(ctx, nodes, diags)
	}
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
