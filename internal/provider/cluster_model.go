package provider

import (
	"context"
	"reflect"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// clusterModel is a cluster in configuration, plan and state.
type clusterModel struct {
	Name               types.String   `tfsdk:"name"`
	K3sVersion         types.String   `tfsdk:"k3s_version"`
	Network            types.String   `tfsdk:"network"`
	Bridge             types.String   `tfsdk:"bridge"`
	Endpoint           types.String   `tfsdk:"endpoint"`
	TLSSANs            types.List     `tfsdk:"tls_sans"`
	ControlPlane       types.Object   `tfsdk:"control_plane"`
	CNI                types.Object   `tfsdk:"cni"`
	CSI                types.Object   `tfsdk:"csi"`
	SSHAuthorizedKeys  types.List     `tfsdk:"ssh_authorized_keys"`
	DeletionProtection types.Bool     `tfsdk:"deletion_protection"`
	Timeouts           timeouts.Value `tfsdk:"timeouts"`

	ID         types.String `tfsdk:"id"`
	APIURL     types.String `tfsdk:"api_url"`
	Status     types.String `tfsdk:"status"`
	Conditions types.List   `tfsdk:"conditions"`
	Addons     types.Map    `tfsdk:"addons"`
	// ImageRegistry is that of the provider.
	ImageRegistry types.String `tfsdk:"image_registry"`
	membersModel
}

// controlPlaneModel is the attribute control_plane.
type controlPlaneModel struct {
	NodeCount  types.Number
	Placement  types.Object
	ServerArgs types.List
	shapeModel
	extraModel
}

type conditionModel struct {
	Type    types.String `tfsdk:"type"`
	Status  types.String `tfsdk:"status"`
	Reason  types.String `tfsdk:"reason"`
	Message types.String `tfsdk:"message"`
}

var controlPlaneTypes = map[string]attr.Type{
	"node_count": types.NumberType, "vcpus": types.NumberType, "memory_gib": types.NumberType, "disk_gib": types.NumberType,
	"storage_pool": types.StringType, "clone": types.StringType, "placement": types.ObjectType{AttrTypes: serverPlacementTypes},
	"server_args": types.ListType{ElemType: types.StringType}, "registries_yaml": types.StringType, "extra_user_data": types.StringType,
}

// defaultServers is the node_count of a control plane.
const defaultServers = 1

func defaultControlPlane() types.Object {
	return controlPlaneModel{}.value(defaultServers, defaultShape, defaultServerPlacement, cluster.Extra{})
}

// value renders a control plane. What the user wrote stays where it says the same.
func (m controlPlaneModel) value(servers int, s record.Shape, p record.Placement, x cluster.Extra) types.Object {
	shape, extra := newShapeModel(s), m.known(x)
	return types.ObjectValueMust(controlPlaneTypes, map[string]attr.Value{
		"node_count": numberValue(servers), "vcpus": shape.VCPUs, "memory_gib": shape.MemoryGiB, "disk_gib": shape.DiskGiB,
		"storage_pool": shape.StoragePool, "clone": shape.Clone, "placement": placementValue(serverPlacementTypes, p),
		"server_args": listValue(m.ServerArgs, x.Args), "registries_yaml": extra.RegistriesYAML, "extra_user_data": extra.ExtraUserData,
	})
}

// controlPlane reads the control plane; what is not known of it is empty.
func (m clusterModel) controlPlane() controlPlaneModel {
	o := m.ControlPlane
	return controlPlaneModel{
		NodeCount: part[types.Number](o, "node_count"), Placement: part[types.Object](o, "placement"), ServerArgs: part[types.List](o, "server_args"),
		shapeModel: shapeModel{
			VCPUs: part[types.Number](o, "vcpus"), MemoryGiB: part[types.Number](o, "memory_gib"), DiskGiB: part[types.Number](o, "disk_gib"),
			StoragePool: part[types.String](o, "storage_pool"), Clone: part[types.String](o, "clone"),
		},
		extraModel: extraModel{RegistriesYAML: part[types.String](o, "registries_yaml"), ExtraUserData: part[types.String](o, "extra_user_data")},
	}
}

// sameVMs reports whether nothing differs for which a server would be replaced.
func (m controlPlaneModel) sameVMs(before controlPlaneModel) bool {
	return m.StoragePool.Equal(before.StoragePool) && m.Clone.Equal(before.Clone) && m.DiskGiB.Equal(before.DiskGiB) &&
		whole(m.ExtraUserData) && m.ExtraUserData.ValueString() == before.ExtraUserData.ValueString()
}

// spec is the wanted cluster. What is not known yet is left out of it.
func (m clusterModel) spec() cluster.Spec {
	cp := m.controlPlane()
	return cluster.Spec{
		ID: m.ID.ValueString(), Name: m.Name.ValueString(), Servers: integer(cp.NodeCount), Shape: cp.shape(), Placement: placementOf(cp.Placement),
		Extra: cp.extra(cp.ServerArgs),
		Settings: record.Cluster{
			K3sVersion: m.K3sVersion.ValueString(), Network: m.Network.ValueString(), Bridge: m.Bridge.ValueString(),
			SSHAuthorizedKeys: texts(m.SSHAuthorizedKeys), Endpoint: m.Endpoint.ValueString(), TLSSANs: texts(m.TLSSANs),
			DeletionProtection: m.DeletionProtection.ValueBool(), ImageRegistry: m.ImageRegistry.ValueString(),
			CNI: cniOf(m.CNI), CSI: csiOf(m.CSI),
		},
	}
}

// reviewable reports whether all is known that decides which servers there will be and where they can stand.
func (m clusterModel) reviewable() bool {
	cp := m.controlPlane()
	return known(m.ControlPlane) && whole(m.Name, m.Network, m.Bridge, cp.NodeCount, cp.Placement, cp.VCPUs, cp.MemoryGiB, cp.DiskGiB, cp.StoragePool, cp.Clone)
}

// decided reports whether all is known that decides over making and replacing VMs.
func (m clusterModel) decided() bool { return m.reviewable() && whole(m.controlPlane().ExtraUserData) }

// assuming is the wanted cluster with the values of a state where what is not known yet decides over nothing but what becomes of
// servers that stand.
func (m clusterModel) assuming(state clusterModel) cluster.Spec {
	cp, was := m.controlPlane(), state.controlPlane()
	m.K3sVersion, m.Endpoint, m.TLSSANs = wholeOr(m.K3sVersion, state.K3sVersion), wholeOr(m.Endpoint, state.Endpoint), wholeOr(m.TLSSANs, state.TLSSANs)
	m.SSHAuthorizedKeys, m.DeletionProtection = wholeOr(m.SSHAuthorizedKeys, state.SSHAuthorizedKeys), wholeOr(m.DeletionProtection, state.DeletionProtection)
	m.CNI, m.CSI = wholeOr(m.CNI, state.CNI), wholeOr(withoutOpenExport(m.CSI), state.CSI)
	m.ImageRegistry = wholeOr(m.ImageRegistry, state.ImageRegistry)
	spec := m.spec()
	spec.Extra = cp.extraModel.assuming(was.extraModel).extra(wholeOr(cp.ServerArgs, was.ServerArgs))
	return spec
}

// wanted is the cluster that an apply makes, with what its plan has promised.
func (m clusterModel) wanted(ctx context.Context, diags *diag.Diagnostics) cluster.Spec {
	spec := m.spec()
	spec.Assignment = m.promised(ctx, diags)
	return spec
}

// before is the cluster as a state has it.
func (m clusterModel) before(ctx context.Context, diags *diag.Diagnostics) cluster.State {
	return cluster.State{Spec: m.spec(), Nodes: nodesOf(ctx, m.Nodes, diags)}
}

// setSpec takes over what is known of the cluster's settings. Of its protection the records tell an import alone: they cannot be
// written while their hypervisor is down, which must not keep anybody from taking the protection off.
func (m *clusterModel) setSpec(spec cluster.Spec) {
	m.ID, m.Name = types.StringValue(spec.ID), types.StringValue(spec.Name)
	m.K3sVersion = types.StringValue(spec.Settings.K3sVersion)
	m.Network, m.Bridge = stringValue(spec.Settings.Network), stringValue(spec.Settings.Bridge)
	m.Endpoint = stringValue(spec.Settings.Endpoint)
	m.ControlPlane = m.controlPlane().value(spec.Servers, spec.Shape, spec.Placement, spec.Extra)
	m.SSHAuthorizedKeys = listValue(m.SSHAuthorizedKeys, spec.Settings.SSHAuthorizedKeys)
	m.TLSSANs = listValue(m.TLSSANs, spec.Settings.TLSSANs)
	m.setAddons(spec)
	if m.DeletionProtection.IsNull() {
		m.DeletionProtection = types.BoolValue(spec.Settings.DeletionProtection)
	}
}

// setAddons takes over what the add-ons of a cluster follow from.
func (m *clusterModel) setAddons(spec cluster.Spec) {
	m.CNI, m.CSI = cniValue(m.CNI, spec.Settings.CNI), csiValue(m.CSI, spec.Settings.CSI)
	m.ImageRegistry = stringValue(spec.Settings.ImageRegistry)
}

// setState takes over what was seen of the cluster. What was not seen now stays as it was, but is null where it was
// unknown.
func (m *clusterModel) setState(ctx context.Context, s cluster.State, diags *diag.Diagnostics) {
	if s.Endpoint != "" || m.APIURL.IsUnknown() {
		m.APIURL = stringValue(s.Endpoint)
	}
	if s.Nodes != nil || m.Nodes.IsUnknown() || m.Nodes.IsNull() {
		m.show(ctx, record.ServerPool, s.Nodes, s.Spec.Shape, diags)
	}
	if s.Status != "" || m.Status.IsUnknown() {
		m.Status = stringValue(string(s.Status))
		m.Conditions = conditionsValue(ctx, s.Conditions, diags)
	}
	if s.Addons != nil || m.Addons.IsUnknown() {
		m.Addons = addonsValue(ctx, remembered(s.Addons, addonsOf(ctx, m.Addons, diags)), diags)
	}
}

// settle takes over what was seen of the cluster where the plan left it open.
func (m *clusterModel) settle(ctx context.Context, s cluster.State, diags *diag.Diagnostics) {
	planned := *m
	m.setAddons(s.Spec)
	m.setState(ctx, s, diags)
	if known(planned.APIURL) {
		m.APIURL = planned.APIURL
	}
	if known(planned.Status, planned.Conditions) {
		m.Status, m.Conditions = planned.Status, planned.Conditions
	}
	if known(planned.Addons) {
		m.Addons = planned.Addons
	}
	m.membersModel = m.settled(planned.membersModel)
}

// same reports whether an update from a state to the plan has nothing to do outside the state. What is planned to stay is
// known in the plan.
func (m clusterModel) same(before clusterModel) bool {
	return m.decided() && whole(m.ControlPlane, m.K3sVersion, m.SSHAuthorizedKeys, m.Endpoint, m.TLSSANs, m.DeletionProtection, m.CNI, m.CSI, m.ImageRegistry) &&
		known(m.Nodes, m.APIURL, m.Addons) && reflect.DeepEqual(m.spec(), before.spec())
}

// sameAddons reports whether a change from a state to the plan wants no add-on otherwise.
func (m clusterModel) sameAddons(before clusterModel) bool {
	return whole(m.CNI, m.CSI, m.ImageRegistry) && m.ImageRegistry.Equal(before.ImageRegistry) &&
		reflect.DeepEqual(cniOf(m.CNI), cniOf(before.CNI)) && reflect.DeepEqual(csiOf(m.CSI), csiOf(before.CSI))
}

// sameNodes reports whether a change from a state to the plan makes, resizes and replaces no VM.
func (m clusterModel) sameNodes(before clusterModel) bool {
	is, was := m.spec(), before.spec()
	return is.Servers == was.Servers && is.Shape == was.Shape && is.Extra.UserData == was.Extra.UserData
}

func conditionsValue(ctx context.Context, conditions []cluster.Condition, diags *diag.Diagnostics) types.List {
	models := make([]conditionModel, 0, len(conditions))
	for _, c := range conditions {
		models = append(models, conditionModel{
			Type: stringValue(c.Type), Status: stringValue(c.Status), Reason: stringValue(c.Reason), Message: stringValue(c.Message),
		})
	}
	list, d := types.ListValueFrom(ctx, conditionObject().Type(), models)
	diags.Append(d...)
	return list
}
