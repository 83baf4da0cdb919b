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
	ControlPlane      types.Object   `tfsdk:"control_plane"`
	SSHAuthorizedKeys types.List     `tfsdk:"ssh_authorized_keys"`
	Timeouts          timeouts.Value `tfsdk:"timeouts"`

	ID         types.String `tfsdk:"id"`
	Endpoint   types.String `tfsdk:"endpoint"`
	Status     types.String `tfsdk:"status"`
	Conditions types.List   `tfsdk:"conditions"`
	Nodes      types.Map    `tfsdk:"nodes"`
}

type controlPlaneModel struct {
	NodeCount types.Number `tfsdk:"node_count"`
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
	"storage_pool": types.StringType, "clone": types.StringType,
}

func defaultControlPlane() types.Object { return controlPlaneValue(1, defaultShape) }

func controlPlaneValue(servers int, s record.Shape) types.Object {
	m := newShapeModel(s)
	return types.ObjectValueMust(controlPlaneTypes, map[string]attr.Value{
		"node_count": numberValue(servers), "vcpus": m.VCPUs, "memory_gib": m.MemoryGiB, "disk_gib": m.DiskGiB,
		"storage_pool": m.StoragePool, "clone": m.Clone,
	})
}

// spec is the wanted cluster, and whether all of it is known that a review looks at.
func (m clusterModel) spec(ctx context.Context, diags *diag.Diagnostics) (cluster.Spec, bool) {
	var cp controlPlaneModel
	diags.Append(m.ControlPlane.As(ctx, &cp, basetypes.ObjectAsOptions{UnhandledNullAsEmpty: true, UnhandledUnknownAsEmpty: true})...)
	var keys []types.String
	if !m.SSHAuthorizedKeys.IsUnknown() {
		diags.Append(m.SSHAuthorizedKeys.ElementsAs(ctx, &keys, false)...)
	}
	spec := cluster.Spec{
		ID: m.ID.ValueString(), Name: m.Name.ValueString(), Servers: integer(cp.NodeCount), Shape: cp.shape(),
		Settings: record.Cluster{
			K3sVersion: m.K3sVersion.ValueString(), Network: m.Network.ValueString(), Bridge: m.Bridge.ValueString(),
		},
	}
	for _, k := range keys {
		spec.Settings.SSHAuthorizedKeys = append(spec.Settings.SSHAuthorizedKeys, k.ValueString())
	}
	return spec, known(m.Name, m.Network, m.Bridge, m.ControlPlane, cp.NodeCount) && cp.known()
}

// setSpec takes over what the records of the cluster say of its settings.
func (m *clusterModel) setSpec(ctx context.Context, spec cluster.Spec, diags *diag.Diagnostics) {
	m.ID, m.Name = types.StringValue(spec.ID), types.StringValue(spec.Name)
	m.K3sVersion = types.StringValue(spec.Settings.K3sVersion)
	m.Network, m.Bridge = stringValue(spec.Settings.Network), stringValue(spec.Settings.Bridge)
	m.ControlPlane = controlPlaneValue(spec.Servers, spec.Shape)
	keys := spec.Settings.SSHAuthorizedKeys
	if len(keys) == 0 {
		// An empty list and none are the same wish: what the user wrote stays.
		if len(m.SSHAuthorizedKeys.Elements()) > 0 || m.SSHAuthorizedKeys.IsUnknown() {
			m.SSHAuthorizedKeys = types.ListNull(types.StringType)
		}
		return
	}
	list, d := types.ListValueFrom(ctx, types.StringType, keys)
	diags.Append(d...)
	m.SSHAuthorizedKeys = list
}

// setState takes over what was seen of the cluster. What was not seen now stays as it was, but is null where it was
// unknown.
func (m *clusterModel) setState(ctx context.Context, s cluster.State, diags *diag.Diagnostics) {
	if s.Endpoint != "" || m.Endpoint.IsUnknown() {
		m.Endpoint = stringValue(s.Endpoint)
	}
	if s.Nodes != nil || m.Nodes.IsUnknown() || m.Nodes.IsNull() {
		m.Nodes = nodesValue(ctx, s.Nodes, diags)
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
	if !planned.Endpoint.IsUnknown() {
		m.Endpoint = planned.Endpoint
	}
	if !planned.Nodes.IsUnknown() {
		m.Status, m.Conditions, m.Nodes = planned.Status, planned.Conditions, planned.Nodes
	}
}

// same reports whether an update from a state to the plan has nothing to do outside the state. What is planned to stay is
// known in the plan.
func (m clusterModel) same(before clusterModel) bool {
	keys := m.SSHAuthorizedKeys.Equal(before.SSHAuthorizedKeys) ||
		known(m.SSHAuthorizedKeys) && len(m.SSHAuthorizedKeys.Elements()) == 0 && len(before.SSHAuthorizedKeys.Elements()) == 0
	return keys && known(m.Nodes, m.Endpoint)
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
