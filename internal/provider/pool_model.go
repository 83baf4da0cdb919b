package provider

import (
	"cmp"
	"context"
	"reflect"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// poolModel is a node pool in configuration, plan and state.
type poolModel struct {
	ClusterID types.String `tfsdk:"cluster_id"`
	Name      types.String `tfsdk:"name"`
	NodeCount types.Number `tfsdk:"node_count"`
	shapeModel
	DataDisk    types.Object `tfsdk:"data_disk"`
	HostDevices types.Map    `tfsdk:"host_devices"`
	Placement   types.Object `tfsdk:"placement"`
	Labels      types.Map    `tfsdk:"labels"`
	Taints      types.List   `tfsdk:"taints"`
	Drain       types.Object `tfsdk:"drain"`
	Upgrade     types.Object `tfsdk:"upgrade_settings"`
	Repair      types.Object `tfsdk:"repair"`
	RemoveFirst types.List   `tfsdk:"remove_first"`
	AgentArgs   types.List   `tfsdk:"agent_args"`
	extraModel
	Timeouts timeouts.Value `tfsdk:"timeouts"`

	ID types.String `tfsdk:"id"`
	membersModel
}

// spec is the wanted pool. What is not known yet is left out of it.
func (m poolModel) spec() cluster.PoolSpec {
	shape := m.shape()
	shape.Data = dataDiskOf(m.DataDisk)
	return cluster.PoolSpec{
		ClusterID: m.ClusterID.ValueString(), Name: m.Name.ValueString(), Nodes: integer(m.NodeCount), Shape: shape, Placement: placementOf(m.Placement),
		HostDevices: hostDevicesOf(m.HostDevices), Labels: labelsOf(m.Labels), Taints: taintsOf(m.Taints),
		Drain: drainOf(m.Drain), Upgrade: upgradeOf(m.Upgrade), Repair: repairOf(m.Repair),
		Extra: m.extra(m.AgentArgs), RemoveFirst: texts(m.RemoveFirst),
	}
}

// reviewable reports whether all is known that decides which nodes there will be and where they can stand. The cluster's id need not be.
func (m poolModel) reviewable() bool {
	return whole(m.Name, m.NodeCount, m.VCPUs, m.MemoryGiB, m.DiskGiB, m.StoragePool, m.Clone, m.DataDisk, m.HostDevices, m.Placement, m.RemoveFirst)
}

// decided reports whether all is known that decides over making and replacing VMs.
func (m poolModel) decided() bool { return m.reviewable() && whole(m.ExtraUserData, m.Repair) }

// assuming is the model with the values of a state where the rest is not known yet.
func (m poolModel) assuming(state poolModel) poolModel {
	m.Labels, m.Taints = wholeOr(m.Labels, state.Labels), wholeOr(m.Taints, state.Taints)
	m.Drain, m.Upgrade, m.Repair = wholeOr(m.Drain, state.Drain), wholeOr(m.Upgrade, state.Upgrade), wholeOr(m.Repair, state.Repair)
	m.AgentArgs, m.extraModel = wholeOr(m.AgentArgs, state.AgentArgs), m.extraModel.assuming(state.extraModel)
	return m
}

// wanted is the pool that an apply makes, with what its plan has promised.
func (m poolModel) wanted(ctx context.Context, diags *diag.Diagnostics) cluster.PoolSpec {
	spec := m.spec()
	spec.Assignment = m.promised(ctx, diags)
	return spec
}

// before is the pool as a state has it.
func (m poolModel) before(ctx context.Context, diags *diag.Diagnostics) cluster.PoolState {
	return cluster.PoolState{Spec: m.spec(), Nodes: nodesOf(ctx, m.Nodes, diags)}
}

// setSpec takes over what is known of the pool. Which nodes go first stands in no record.
func (m *poolModel) setSpec(spec cluster.PoolSpec) {
	m.ClusterID, m.Name = types.StringValue(spec.ClusterID), types.StringValue(spec.Name)
	m.NodeCount, m.shapeModel = numberValue(spec.Nodes), newShapeModel(spec.Shape)
	m.DataDisk = kept(m.DataDisk, dataDiskOf, spec.Shape.Data, newDataDisk)
	m.HostDevices = kept(m.HostDevices, hostDevicesOf, spec.HostDevices, newHostDevices)
	m.Placement = placementValue(poolPlacementTypes, spec.Placement)
	m.Labels, m.Taints = kept(m.Labels, labelsOf, spec.Labels, newLabels), kept(m.Taints, taintsOf, spec.Taints, newTaints)
	m.Drain = kept(m.Drain, drainOf, cmp.Or(spec.Drain, cluster.DefaultDrain), newDrain)
	m.Upgrade = kept(m.Upgrade, upgradeOf, cmp.Or(spec.Upgrade, cluster.DefaultUpgrade), newUpgrade)
	m.Repair = kept(m.Repair, repairOf, cmp.Or(spec.Repair, cluster.DefaultRepair), newRepair)
	m.AgentArgs, m.extraModel = listValue(m.AgentArgs, spec.Extra.Args), m.known(spec.Extra)
	m.ID = poolID(m.ClusterID, m.Name)
}

// setNodes takes over what was seen of the pool; nil nodes were not seen.
func (m *poolModel) setNodes(ctx context.Context, nodes cluster.Nodes, shape record.Shape, diags *diag.Diagnostics) {
	if nodes != nil || m.Nodes.IsUnknown() || m.Nodes.IsNull() {
		m.show(ctx, m.Name.ValueString(), nodes, shape, diags)
	}
}

// settle takes over what was seen of the pool where the plan left it open.
func (m *poolModel) settle(ctx context.Context, s cluster.PoolState, diags *diag.Diagnostics) {
	planned := m.membersModel
	m.setNodes(ctx, s.Nodes, s.Spec.Shape, diags)
	m.membersModel = m.settled(planned)
}

// same reports whether an update from a state to the plan has nothing to do outside the state. Which nodes go first matters only
// where some go.
func (m poolModel) same(before poolModel) bool {
	is, was := m.spec(), before.spec()
	is.RemoveFirst, was.RemoveFirst = nil, nil
	return m.decided() && whole(m.Labels, m.Taints, m.Drain, m.Upgrade, m.AgentArgs, m.RegistriesYAML) && known(m.Nodes) && reflect.DeepEqual(is, was)
}

// sameNodes reports whether a change from a state to the plan makes, resizes and replaces no VM.
func (m poolModel) sameNodes(before poolModel) bool {
	is, was := m.spec(), before.spec()
	return is.Nodes == was.Nodes && is.Shape == was.Shape && is.Extra.UserData == was.Extra.UserData && reflect.DeepEqual(is.HostDevices, was.HostDevices)
}

// replaces reports whether the plan replaces the pool of the state.
func (m poolModel) replaces(state poolModel) bool {
	return !m.ClusterID.Equal(state.ClusterID) || !m.Name.Equal(state.Name)
}

func poolID(clusterID, name types.String) types.String {
	if !known(clusterID, name) {
		return types.StringUnknown()
	}
	return types.StringValue(clusterID.ValueString() + "/" + name.ValueString())
}
