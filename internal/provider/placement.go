package provider

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/objectdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// The placements of servers and of pools whose configuration says nothing of it.
var (
	defaultServerPlacement = record.Placement{Strategy: record.Auto, AntiAffinity: record.Required}
	defaultPoolPlacement   = record.Placement{Strategy: record.Auto}
)

var (
	poolPlacementTypes   = map[string]attr.Type{"strategy": types.StringType, "hosts": types.ListType{ElemType: types.StringType}}
	serverPlacementTypes = map[string]attr.Type{
		"strategy": types.StringType, "anti_affinity": types.StringType, "hosts": types.ListType{ElemType: types.StringType},
	}
)

// placementValue renders a placement for the state; the types are those of servers or of pools.
func placementValue(of map[string]attr.Type, p record.Placement) types.Object {
	values := map[string]attr.Value{"strategy": types.StringValue(string(cmp.Or(p.Strategy, record.Auto))), "hosts": newList(p.Hosts)}
	if _, ok := of["anti_affinity"]; ok {
		values["anti_affinity"] = stringValue(string(p.AntiAffinity))
	}
	return types.ObjectValueMust(of, values)
}

// placementParts are the values of a placement, null where there is none. The placement of a pool has no anti-affinity.
func placementParts(placement types.Object) (strategy, antiAffinity types.String, hosts types.List) {
	return part[types.String](placement, "strategy"), part[types.String](placement, "anti_affinity"), part[types.List](placement, "hosts")
}

// placementOf reads a placement.
func placementOf(placement types.Object) record.Placement {
	strategy, antiAffinity, hosts := placementParts(placement)
	return record.Placement{Strategy: record.Strategy(strategy.ValueString()), AntiAffinity: record.AntiAffinity(antiAffinity.ValueString()), Hosts: texts(hosts)}
}

// hasHosts reports whether the provider has every hypervisor that a placement names, and fails the task at those that it
// is known not to have.
func (b *backend) hasHosts(t task, placement types.Object, at path.Path, diags *diag.Diagnostics) bool {
	if b == nil || !b.known {
		return true
	}
	found := true
	_, _, hosts := placementParts(placement)
	for i, e := range hosts.Elements() {
		h, ok := e.(types.String)
		if !ok || h.IsNull() || h.IsUnknown() {
			continue
		}
		if _, ok := b.settings.hypervisors[h.ValueString()]; !ok {
			found = false
			t.failAt(diags, at.AtName("hosts").AtListIndex(i), unknownHypervisor(h.ValueString(), b.settings.names()))
		}
	}
	return found
}

// unknownHypervisor is why something cannot stand on a hypervisor that is not configured.
func unknownHypervisor(name string, names []string) error {
	return fmt.Errorf("there is no hypervisor %q in the provider's configuration; there are: %s", name, strings.Join(names, ", "))
}

// placementOfServers is the attribute control_plane.placement.
func placementOfServers() schema.SingleNestedAttribute {
	a := placementAttribute("servers", defaultServerPlacement, serverPlacementTypes, 1)
	a.Attributes["anti_affinity"] = schema.StringAttribute{
		Optional: true, Computed: true,
		MarkdownDescription: "With the strategy `auto`: `required` puts each server on a hypervisor of its own, `preferred` puts as few as possible on one. " +
			"Default `required`. " + inPlace,
		Validators:    []validator.String{oneOf("anti_affinity", string(record.Required), string(record.Preferred))},
		PlanModifiers: []planmodifier.String{antiAffinityDefault{}},
	}
	a.Validators = append(a.Validators, quorumRule{})
	return a
}

// placementOfPool is the attribute placement of a node pool, with the default of its node_count.
func placementOfPool(nodes int) schema.SingleNestedAttribute {
	return placementAttribute("nodes", defaultPoolPlacement, poolPlacementTypes, nodes)
}

func placementAttribute(of string, def record.Placement, objectTypes map[string]attr.Type, nodes int) schema.SingleNestedAttribute {
	return schema.SingleNestedAttribute{
		Optional: true, Computed: true,
		MarkdownDescription: "How the " + of + " are spread over the hypervisors. Default: `auto`. " + inPlace + " It rules where new " + of +
			" go; those that stand are never moved.",
		Attributes: map[string]schema.Attribute{
			"strategy": schema.StringAttribute{
				Optional: true, Computed: true, Default: stringdefault.StaticString(string(def.Strategy)),
				MarkdownDescription: "`auto`: each on the schedulable hypervisor that it loads the least. `manual`: where `hosts` says. Default `auto`. " + inPlace,
				Validators:          []validator.String{oneOf("strategy", string(record.Auto), string(record.Manual))},
			},
			"hosts": schema.ListAttribute{
				Optional: true, ElementType: types.StringType,
				MarkdownDescription: "With the strategy `manual`, and only then: hypervisors by name, one for all " + of +
					" or one for each in the order of their numbers. " + inPlace,
				Validators: []validator.List{noNulls{}},
			},
		},
		Default:    objectdefault.StaticValue(placementValue(objectTypes, def)),
		Validators: []validator.Object{placementRule{nodes}},
	}
}

// antiAffinityDefault plans anti-affinity where the configuration has none: the strategy manual knows none.
type antiAffinityDefault struct{}

// Description says what is planned.
func (antiAffinityDefault) Description(context.Context) string {
	return "required with the strategy auto"
}

// MarkdownDescription says what is planned.
func (m antiAffinityDefault) MarkdownDescription(ctx context.Context) string {
	return m.Description(ctx)
}

// PlanModifyString plans a value where the configuration has none.
func (antiAffinityDefault) PlanModifyString(ctx context.Context, req planmodifier.StringRequest, resp *planmodifier.StringResponse) {
	if !req.ConfigValue.IsNull() {
		return
	}
	var strategy types.String
	resp.Diagnostics.Append(req.Plan.GetAttribute(ctx, req.Path.ParentPath().AtName("strategy"), &strategy)...)
	switch {
	case strategy.IsUnknown():
		resp.PlanValue = types.StringUnknown()
	case strategy.ValueString() == string(record.Manual):
		resp.PlanValue = types.StringNull()
	default:
		resp.PlanValue = types.StringValue(string(defaultServerPlacement.AntiAffinity))
	}
}

// placementRule validates that the parts of a placement fit together and to the node_count beside it, whose default it
// holds.
type placementRule struct{ nodes int }

// Description returns the rule.
func (placementRule) Description(context.Context) string {
	return "hosts with the strategy manual only, one or as many as there are nodes"
}

// MarkdownDescription returns the rule.
func (r placementRule) MarkdownDescription(ctx context.Context) string { return r.Description(ctx) }

// ValidateObject checks what is known.
func (r placementRule) ValidateObject(ctx context.Context, req validator.ObjectRequest, resp *validator.ObjectResponse) {
	strategy, antiAffinity, hosts := placementParts(req.ConfigValue)
	use := func(part, value string) task { return task{"use", "placement." + part, value} }
	at := req.Path.AtName
	manual := strategy.ValueString() == string(record.Manual)
	if manual && !antiAffinity.IsNull() && known(antiAffinity) {
		use("anti_affinity", antiAffinity.ValueString()).failAt(&resp.Diagnostics, at("anti_affinity"), errors.New(
			`the strategy "manual" follows hosts alone; leave anti_affinity out`))
	}
	count := len(hosts.Elements())
	switch {
	case !known(strategy, hosts):
	case manual && count == 0:
		use("strategy", string(record.Manual)).failAt(&resp.Diagnostics, at("hosts"), errors.New(
			`the strategy "manual" needs hosts: the names of hypervisors, one for all nodes or one for each`))
	case !manual && !hosts.IsNull():
		use("hosts", "").failAt(&resp.Diagnostics, at("hosts"), errors.New(
			`the strategy "auto" chooses the hypervisors itself; leave hosts out, or set strategy = "manual"`))
	case manual && count > 1:
		if nodes, ok := r.nodeCount(ctx, req, &resp.Diagnostics); ok && count != nodes {
			use("hosts", "").failAt(&resp.Diagnostics, at("hosts"), fmt.Errorf(
				"it names %d hypervisors for a node_count of %d; name one for all nodes, or one for each", count, nodes))
		}
	}
}

// nodeCount is the node_count beside the placement, where it is known.
func (r placementRule) nodeCount(ctx context.Context, req validator.ObjectRequest, diags *diag.Diagnostics) (int, bool) {
	var n types.Number
	diags.Append(req.Config.GetAttribute(ctx, req.Path.ParentPath().AtName("node_count"), &n)...)
	if n.IsNull() {
		return r.nodes, true
	}
	return integer(n), known(n)
}

// quorumRule warns of a placement that ties the majority of three servers to one hypervisor. It is the user's choice.
type quorumRule struct{}

// Description returns the rule.
func (quorumRule) Description(context.Context) string {
	return "no hypervisor should hold two of three servers"
}

// MarkdownDescription returns the rule.
func (r quorumRule) MarkdownDescription(ctx context.Context) string { return r.Description(ctx) }

// ValidateObject warns of what is known.
func (quorumRule) ValidateObject(ctx context.Context, req validator.ObjectRequest, resp *validator.ObjectResponse) {
	servers, ok := placementRule{1}.nodeCount(ctx, req, &resp.Diagnostics)
	p := placementOf(req.ConfigValue)
	if !ok || !whole(req.ConfigValue) || servers < 3 || p.Strategy != record.Manual {
		return
	}
	if len(p.Hosts) == 1 {
		p.Hosts = slices.Repeat(p.Hosts, servers)
	}
	if len(p.Hosts) != servers || slices.Contains(p.Hosts, "") {
		return // Others tell what is wrong with the hosts.
	}
	load := map[string]int{}
	for _, h := range p.Hosts {
		load[h]++
	}
	for _, h := range slices.Sorted(maps.Keys(load)) {
		if 2*load[h] > servers {
			resp.Diagnostics.AddAttributeWarning(req.Path.AtName("hosts"), fmt.Sprintf("The control plane hangs on hypervisor %q", h), fmt.Sprintf(
				"It holds %d of %d servers. While it is down, most of the servers are, and the API of the cluster does not answer.", load[h], servers))
		}
	}
}
