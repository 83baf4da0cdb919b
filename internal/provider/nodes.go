package provider

import (
	"context"
	"maps"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// nodeModel is a node in the state; what is not known of it is null.
type nodeModel struct {
	Role       types.String `tfsdk:"role"`
	Hypervisor types.String `tfsdk:"hypervisor"`
	UUID       types.String `tfsdk:"uuid"`
	MAC        types.String `tfsdk:"mac"`
	IP         types.String `tfsdk:"ip"`
	K3sVersion types.String `tfsdk:"k3s_version"`
	Template   types.String `tfsdk:"template"`
	State      types.String `tfsdk:"state"`
	Reason     types.String `tfsdk:"reason"`
}

func nodesAttribute(of string) schema.MapNestedAttribute {
	computed := func(description string) schema.StringAttribute {
		return schema.StringAttribute{Computed: true, MarkdownDescription: description}
	}
	return schema.MapNestedAttribute{
		Computed:            true,
		MarkdownDescription: "The " + of + " by name, which is that of the VM and of the Node object alike.",
		NestedObject: schema.NestedAttributeObject{
			Attributes: map[string]schema.Attribute{
				"role":        computed("`server` or `agent`."),
				"hypervisor":  computed("Name of the hypervisor, a key of the provider's `hypervisors`."),
				"uuid":        computed("UUID of the libvirt domain."),
				"mac":         computed("MAC address of the node's network interface."),
				"ip":          computed("IP address of the node in the cluster."),
				"k3s_version": computed("Version of k3s that runs on the node."),
				"template":    computed("The golden image that the node was made from, as `<storage pool>/<volume>`. With another template in the configuration of the provider it is replaced, unless it is a single server."),
				"state": computed("`ready`, `not_ready`, `unhealthy` (not ready for longer than the pool's `repair` allows), `drifted` (ready, and not as it is wanted), `creating`, " +
					"`stopped`, `missing`, or `unknown` where the hypervisor or the cluster's API could not be asked. All but `ready`, `not_ready` and `unknown` are mended by the next apply."),
				"reason": computed("Why the node is not `ready`."),
			},
		},
	}
}

// nodesValue renders nodes for the state.
func nodesValue(ctx context.Context, nodes cluster.Nodes, diags *diag.Diagnostics) types.Map {
	models := make(map[string]nodeModel, len(nodes))
	for name, n := range nodes {
		models[name] = nodeModel{
			Role: stringValue(string(n.Role)), Hypervisor: stringValue(n.Hypervisor), UUID: stringValue(n.UUID), MAC: stringValue(n.MAC),
			IP: stringValue(n.IP), K3sVersion: stringValue(n.K3sVersion), Template: stringValue(n.Template), State: stringValue(string(n.State)), Reason: stringValue(n.Reason),
		}
	}
	value, d := types.MapValueFrom(ctx, nodesAttribute("").NestedObject.Type(), models)
	diags.Append(d...)
	return value
}

// nodesOf reads the nodes of a state; there are none where the value is null or unknown. They are never nil, which to the
// engine means that all nodes are new.
func nodesOf(ctx context.Context, value types.Map, diags *diag.Diagnostics) cluster.Nodes {
	if value.IsNull() || value.IsUnknown() {
		return cluster.Nodes{}
	}
	var models map[string]nodeModel
	diags.Append(value.ElementsAs(ctx, &models, false)...)
	nodes := make(cluster.Nodes, len(models))
	for name, m := range models {
		nodes[name] = cluster.NodeStatus{
			Name: name, Role: record.Role(m.Role.ValueString()), Hypervisor: m.Hypervisor.ValueString(), UUID: m.UUID.ValueString(),
			MAC: m.MAC.ValueString(), IP: m.IP.ValueString(), K3sVersion: m.K3sVersion.ValueString(), Template: m.Template.ValueString(),
			State: cluster.NodeState(m.State.ValueString()), Reason: m.Reason.ValueString(),
		}
	}
	return nodes
}

func sortedNames(nodes cluster.Nodes) []string { return slices.Sorted(maps.Keys(nodes)) }

// stringValue is null for an empty text.
func stringValue(s string) types.String {
	if s == "" {
		return types.StringNull()
	}
	return types.StringValue(s)
}
