package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// clusterModel is a cluster in configuration, plan and state.
type clusterModel struct {
	Name              types.String   `tfsdk:"name"`
	K3sVersion        types.String   `tfsdk:"k3s_version"`
	Network           types.String   `tfsdk:"network"`
	Bridge            types.String   `tfsdk:"bridge"`
	Endpoint          types.String   `tfsdk:"endpoint"`
	TLSSANs           types.List     `tfsdk:"tls_sans"`
	ControlPlane      types.Object   `tfsdk:"control_plane"`
	SSHAuthorizedKeys types.List     `tfsdk:"ssh_authorized_keys"`
	Timeouts          timeouts.Value `tfsdk:"timeouts"`

	ID         types.String `tfsdk:"id"`
	APIURL     types.String `tfsdk:"api_url"`
	Status     types.String `tfsdk:"status"`
	Conditions types.List   `tfsdk:"conditions"`
	membersModel
}

type controlPlaneModel struct {
	NodeCount types.Number `tfsdk:"node_count"`
	Placement types.Object `tfsdk:"placement"`
	shapeModel
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
}

// defaultServers is the node_count of a control plane.
const defaultServers = 1

func defaultControlPlane() types.Object {
	return controlPlaneValue(defaultServers, defaultShape, defaultServerPlacement)
}

func controlPlaneValue(servers int, s record.Shape, p record.Placement) types.Object {
	m := newShapeModel(s)
	return types.ObjectValueMust(controlPlaneTypes, map[string]attr.Value{
		"node_count": numberValue(servers), "vcpus": m.VCPUs, "memory_gib": m.MemoryGiB, "disk_gib": m.DiskGiB,
		"storage_pool": m.StoragePool, "clone": m.Clone, "placement": placementValue(serverPlacementTypes, p),
	})
}

// controlPlane reads the control plane; what is not known of it is empty.
func (m clusterModel) controlPlane(ctx context.Context, diags *diag.Diagnostics) controlPlaneModel {
	var cp controlPlaneModel
	diags.Append(m.ControlPlane.As(ctx, &cp, basetypes.ObjectAsOptions{UnhandledNullAsEmpty: true, UnhandledUnknownAsEmpty: true})...)
	return cp
}

// spec is the wanted cluster, and whether all of it is known that a review looks at.
func (m clusterModel) spec(ctx context.Context, diags *diag.Diagnostics) (cluster.Spec, bool) {
	cp := m.controlPlane(ctx, diags)
	placement, placed := placementOf(cp.Placement)
	return cluster.Spec{
		ID: m.ID.ValueString(), Name: m.Name.ValueString(), Servers: integer(cp.NodeCount), Shape: cp.shape(), Placement: placement,
		Settings: record.Cluster{
			K3sVersion: m.K3sVersion.ValueString(), Network: m.Network.ValueString(), Bridge: m.Bridge.ValueString(),
			SSHAuthorizedKeys: texts(ctx, m.SSHAuthorizedKeys, diags), Endpoint: m.Endpoint.ValueString(), TLSSANs: texts(ctx, m.TLSSANs, diags),
		},
	}, known(m.Name, m.Network, m.Bridge, m.ControlPlane, cp.NodeCount) && placed && cp.known()
}

// wanted is the cluster that an apply makes, with what its plan has promised.
func (m clusterModel) wanted(ctx context.Context, diags *diag.Diagnostics) cluster.Spec {
	spec, _ := m.spec(ctx, diags)
	spec.Assignment = m.promised(ctx, diags)
	return spec
}

// setSpec takes over what the records of the cluster say of its settings.
func (m *clusterModel) setSpec(ctx context.Context, spec cluster.Spec, diags *diag.Diagnostics) {
	m.ID, m.Name = types.StringValue(spec.ID), types.StringValue(spec.Name)
	m.K3sVersion = types.StringValue(spec.Settings.K3sVersion)
	m.Network, m.Bridge = stringValue(spec.Settings.Network), stringValue(spec.Settings.Bridge)
	m.Endpoint = stringValue(spec.Settings.Endpoint)
	m.ControlPlane = controlPlaneValue(spec.Servers, spec.Shape, spec.Placement)
	m.SSHAuthorizedKeys = listValue(ctx, m.SSHAuthorizedKeys, spec.Settings.SSHAuthorizedKeys, diags)
	m.TLSSANs = listValue(ctx, m.TLSSANs, spec.Settings.TLSSANs, diags)
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
}

// settle takes over what was seen of the cluster where the plan left it open.
func (m *clusterModel) settle(ctx context.Context, s cluster.State, diags *diag.Diagnostics) {
	planned := *m
	m.setState(ctx, s, diags)
	if known(planned.APIURL) {
		m.APIURL = planned.APIURL
	}
	if known(planned.Nodes) {
		m.Status, m.Conditions = planned.Status, planned.Conditions
	}
	m.membersModel = m.settled(planned.membersModel)
}

// same reports whether an update from a state to the plan has nothing to do outside the state. What is planned to stay is
// known in the plan.
func (m clusterModel) same(before clusterModel) bool {
	return known(m.Nodes, m.APIURL) && m.Endpoint.Equal(before.Endpoint) && m.ControlPlane.Equal(before.ControlPlane) &&
		sameList(m.SSHAuthorizedKeys, before.SSHAuthorizedKeys) && sameList(m.TLSSANs, before.TLSSANs)
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
