package provider

import (
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/numberdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
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

func (m shapeModel) shape() record.Shape {
	return record.Shape{
		VCPUs: integer(m.VCPUs), MemoryMiB: integer(m.MemoryGiB) * mibPerGiB, DiskGiB: integer(m.DiskGiB),
		StoragePool: m.StoragePool.ValueString(), Clone: record.Clone(m.Clone.ValueString()),
	}
}

// consequences say what changes mean for nodes that stand, in the descriptions of the attributes.
type consequences struct{ resized, disk, restarted, replaced string }

// The consequences for the nodes of a pool and for servers.
var (
	ofPools = consequences{
		resized:   "A change resizes the nodes in place, by `upgrade_settings`: each is drained, powered off and on again. What stands on its disks stays.",
		disk:      "A larger one is given to the nodes in place, by `upgrade_settings`: each is drained, powered off and on again, and what stands on its disks stays. With a smaller one each is replaced under its own name, and what stands on its disks is lost.",
		restarted: "A change restarts k3s on the nodes in place, by `upgrade_settings`; their pods run on.",
		replaced:  "A change replaces the nodes by `upgrade_settings`, each under its own name, and what stands on its disks is lost.",
	}
	ofServers = consequences{
		resized:   "A change resizes the servers in place, one at a time: each is drained, powered off and on again. What stands on its disks stays.",
		disk:      "A larger one is given to the servers in place, one at a time: each is drained, powered off and on again, and what stands on its disks stays. With a smaller one " + replacesServers,
		restarted: "A change restarts k3s on the servers in place, one at a time; their pods run on.",
		replaced:  "With a change " + replacesServers,
	}
)

const replacesServers = "three servers are replaced one at a time, each under its own name, and what else stands on its disks is lost; with one server it is an error, since the data of the cluster would go."

// shapeAttributes are the attributes of shapeModel.
func shapeAttributes(c consequences) map[string]schema.Attribute {
	text := func(description, def, consequence string, v validator.String) schema.StringAttribute {
		return schema.StringAttribute{
			Optional: true, Computed: true, Default: stringdefault.StaticString(def),
			MarkdownDescription: fmt.Sprintf("%s Default `%s`. %s", description, def, consequence),
			Validators:          []validator.String{v},
		}
	}
	def := defaultShape
	return map[string]schema.Attribute{
		"vcpus":      numberAttribute("Virtual CPUs of each node.", def.VCPUs, 1, 1024, c.resized),
		"memory_gib": numberAttribute("Memory of each node in GiB.", def.MemoryMiB/mibPerGiB, 1, 64*1024, c.resized),
		"disk_gib": numberAttribute("Root disk of each node in GiB; not smaller than the template. The guest grows its file system to it.",
			def.DiskGiB, 1, 64*1024, c.disk),
		"storage_pool": text("libvirt storage pool for the root disks, which must exist on every hypervisor that takes such nodes.",
			def.StoragePool, c.replaced, stringvalidator.LengthAtLeast(1)),
		"clone": text("How root disks are made: `overlay` is a qcow2 file over the template that holds only what differs, `full` is a copy that depends on nothing.",
			string(def.Clone), c.replaced, oneOf("clone", string(record.Overlay), string(record.Full))),
	}
}

// numberAttribute is a whole number within bounds, with a default.
func numberAttribute(description string, def int, least, most int64, consequence string) schema.NumberAttribute {
	return schema.NumberAttribute{
		Optional: true, Computed: true, Default: numberdefault.StaticBigFloat(numberValue(def).ValueBigFloat()),
		MarkdownDescription: fmt.Sprintf("%s Default `%d`. %s", description, def, consequence),
		Validators:          []validator.Number{wholeNumber{least, most}},
	}
}
