package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// membersModel is what a resource shows of its nodes: how they are, where they stand, and what they take there.
type membersModel struct {
	Nodes      types.Map `tfsdk:"nodes"`
	Assignment types.Map `tfsdk:"assignment"`
	Footprint  types.Map `tfsdk:"footprint"`
}

// resourcesModel is what nodes take of a hypervisor.
type resourcesModel struct {
	VCPUs     types.Number `tfsdk:"vcpus"`
	MemoryGiB types.Number `tfsdk:"memory_gib"`
	DiskGiB   types.Number `tfsdk:"disk_gib"`
}

// addMembers adds the attributes of membersModel. The example is the short name of a node.
func addMembers(attributes map[string]schema.Attribute, of, example string) {
	const whenKnown = " Known in the plan whenever the hypervisors can be asked."
	attributes["nodes"] = nodesAttribute(of)
	attributes["assignment"] = schema.MapAttribute{
		Computed: true, ElementType: types.StringType,
		MarkdownDescription: "The hypervisor of each of the " + of + ", by the node's name without that of the cluster, such as `" + example + "`." + whenKnown,
	}
	attributes["footprint"] = schema.MapNestedAttribute{
		Computed:            true,
		MarkdownDescription: "What the " + of + " take of each hypervisor, by its name." + whenKnown,
		NestedObject:        footprintObject(),
	}
}

func footprintObject() schema.NestedAttributeObject {
	computed := func(description string) schema.NumberAttribute {
		return schema.NumberAttribute{Computed: true, MarkdownDescription: description}
	}
	return schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
		"vcpus":      computed("Virtual CPUs."),
		"memory_gib": computed("Memory in GiB."),
		"disk_gib":   computed("Root and data disks in GiB, as large as they can grow."),
	}}
}

// show takes over the nodes of a pool, which are of one shape.
func (m *membersModel) show(ctx context.Context, pool string, nodes cluster.Nodes, shape record.Shape, diags *diag.Diagnostics) {
	m.Nodes = nodesValue(ctx, nodes, diags)
	m.place(ctx, assignmentOf(pool, nodes), shape, diags)
}

// place takes over where nodes stand or are going to stand. With nil that is not known yet.
func (m *membersModel) place(ctx context.Context, a cluster.Assignment, shape record.Shape, diags *diag.Diagnostics) {
	if a == nil {
		m.Assignment, m.Footprint = types.MapUnknown(types.StringType), types.MapUnknown(footprintObject().Type())
		return
	}
	models := map[string]resourcesModel{}
	for host, r := range cluster.Footprint(a, shape) {
		models[host] = resourcesModel{VCPUs: numberValue(r.VCPUs), MemoryGiB: numberValue(r.MemoryMiB / mibPerGiB), DiskGiB: numberValue(r.DiskGiB)}
	}
	var d diag.Diagnostics
	m.Assignment, d = types.MapValueFrom(ctx, types.StringType, a)
	diags.Append(d...)
	m.Footprint, d = types.MapValueFrom(ctx, footprintObject().Type(), models)
	diags.Append(d...)
}

// settled is what the state holds after an apply: what was planned and, where the plan left it open, what was seen.
func (m membersModel) settled(planned membersModel) membersModel {
	if known(planned.Nodes) {
		m.Nodes = planned.Nodes
	}
	if known(planned.Assignment, planned.Footprint) {
		m.Assignment, m.Footprint = planned.Assignment, planned.Footprint
	}
	return m
}

// promised is the assignment that a plan or state names, nil where it names none.
func (m membersModel) promised(ctx context.Context, diags *diag.Diagnostics) cluster.Assignment {
	if m.Assignment.IsNull() || m.Assignment.IsUnknown() {
		return nil
	}
	a := cluster.Assignment{}
	diags.Append(m.Assignment.ElementsAs(ctx, &a, false)...)
	return a
}

// assignmentOf tells where the nodes of a pool stand.
func assignmentOf(pool string, nodes cluster.Nodes) cluster.Assignment {
	a := cluster.Assignment{}
	for name, n := range nodes {
		if n.Hypervisor != "" {
			a[shortName(pool, name)] = n.Hypervisor
		}
	}
	return a
}
