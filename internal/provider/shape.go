package provider

import (
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/numberdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/numberplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// shapeModel is the size of a node and where its disk stands.
type shapeModel struct {
	VCPUs       types.Number `tfsdk:"vcpus"`
	MemoryGiB   types.Number `tfsdk:"memory_gib"`
	DiskGiB     types.Number `tfsdk:"disk_gib"`
	StoragePool types.String `tfsdk:"storage_pool"`
	Clone       types.String `tfsdk:"clone"`
}

const mibPerGiB = 1024

// defaultShape is the size of a node whose configuration says nothing of it.
var defaultShape = record.Shape{VCPUs: 2, MemoryMiB: 4 * mibPerGiB, DiskGiB: 40, StoragePool: "default", Clone: record.Overlay}

func newShapeModel(s record.Shape) shapeModel {
	return shapeModel{
		VCPUs: numberValue(s.VCPUs), MemoryGiB: numberValue(s.MemoryMiB / mibPerGiB), DiskGiB: numberValue(s.DiskGiB),
		StoragePool: types.StringValue(s.StoragePool), Clone: types.StringValue(string(s.Clone)),
	}
}

// known reports whether every value is known.
func (m shapeModel) known() bool {
	return known(m.VCPUs, m.MemoryGiB, m.DiskGiB, m.StoragePool, m.Clone)
}

// equal reports whether nothing differs.
func (m shapeModel) equal(o shapeModel) bool {
	return m.VCPUs.Equal(o.VCPUs) && m.MemoryGiB.Equal(o.MemoryGiB) && m.DiskGiB.Equal(o.DiskGiB) &&
		m.StoragePool.Equal(o.StoragePool) && m.Clone.Equal(o.Clone)
}

func (m shapeModel) shape() record.Shape {
	return record.Shape{
		VCPUs: integer(m.VCPUs), MemoryMiB: integer(m.MemoryGiB) * mibPerGiB, DiskGiB: integer(m.DiskGiB),
		StoragePool: m.StoragePool.ValueString(), Clone: record.Clone(m.Clone.ValueString()),
	}
}

// known reports whether all values are known.
func known(values ...attr.Value) bool {
	for _, v := range values {
		if v.IsUnknown() {
			return false
		}
	}
	return true
}

// shapeAttributes are the attributes of shapeModel. The consequence says what a change of one of them means.
func shapeAttributes(consequence string) map[string]schema.Attribute {
	number := func(description string, def types.Number, most int64) schema.NumberAttribute {
		return schema.NumberAttribute{
			Optional: true, Computed: true, Default: numberdefault.StaticBigFloat(def.ValueBigFloat()),
			MarkdownDescription: fmt.Sprintf("%s Default `%d`. %s", description, integer(def), consequence),
			Validators:          []validator.Number{wholeNumber{1, most}},
			PlanModifiers:       []planmodifier.Number{numberplanmodifier.RequiresReplace()},
		}
	}
	text := func(description, def string, v validator.String) schema.StringAttribute {
		return schema.StringAttribute{
			Optional: true, Computed: true, Default: stringdefault.StaticString(def),
			MarkdownDescription: fmt.Sprintf("%s Default `%s`. %s", description, def, consequence),
			Validators:          []validator.String{v},
			PlanModifiers:       []planmodifier.String{stringplanmodifier.RequiresReplace()},
		}
	}
	def := newShapeModel(defaultShape)
	return map[string]schema.Attribute{
		"vcpus":      number("Virtual CPUs of each node.", def.VCPUs, 1024),
		"memory_gib": number("Memory of each node in GiB.", def.MemoryGiB, 64*1024),
		"disk_gib": number("Root disk of each node in GiB; not smaller than the template. The guest grows its file system to it.",
			def.DiskGiB, 64*1024),
		"storage_pool": text("libvirt storage pool for the disks, which must exist on every hypervisor that takes such nodes.",
			def.StoragePool.ValueString(), stringvalidator.LengthAtLeast(1)),
		"clone": text("How disks are made: `overlay` is a qcow2 file over the template that holds only what differs, `full` is a copy that depends on nothing.",
			def.Clone.ValueString(), oneOf("clone", string(record.Overlay), string(record.Full))),
	}
}
