package provider

import (
	"cmp"
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework-validators/listvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/objectdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// The defaults of the storage tiers.
const (
	defaultLocalPath   = "/opt/local-path-provisioner"
	defaultReplicas    = 3
	defaultDataPath    = "/var/lib/longhorn"
	defaultDrainPolicy = "block-if-contains-last-replica"
)

// drainPolicies are the values of Longhorn's setting node-drain-policy
// (https://longhorn.io/docs/1.12.1/references/settings/#node-drain-policy).
var drainPolicies = []string{
	defaultDrainPolicy, "allow-if-replica-is-stopped", "always-allow", "block-for-eviction", "block-for-eviction-if-contains-last-replica",
}

var (
	localPathTypes = map[string]attr.Type{"path": types.StringType, "values_yaml": types.StringType}
	nfsTypes       = map[string]attr.Type{
		"pool": types.StringType, "server": types.StringType, "path": types.StringType, "nfs_version": types.StringType,
		"mount_options": types.ListType{ElemType: types.StringType}, "values_yaml": types.StringType, "chart": types.ObjectType{AttrTypes: chartTypes},
	}
	longhornTypes = map[string]attr.Type{
		"replica_count": types.NumberType, "data_path": types.StringType, "drain_policy": types.StringType,
		"values_yaml": types.StringType, "chart": types.ObjectType{AttrTypes: chartTypes},
	}
	csiTypes = map[string]attr.Type{
		"local_path": types.ObjectType{AttrTypes: localPathTypes}, "nfs": types.ObjectType{AttrTypes: nfsTypes},
		"longhorn": types.ObjectType{AttrTypes: longhornTypes}, "default_class": types.StringType,
	}
)

// defaultCSI is the storage of a cluster whose configuration says nothing of it.
func defaultCSI() record.CSI {
	return completeCSI(record.CSI{LocalPath: &record.LocalPath{Path: defaultLocalPath}})
}

// completeCSI names the default class, which a record may leave to the rule.
func completeCSI(c record.CSI) record.CSI {
	c.DefaultClass = c.Default()
	return c
}

// csiOf reads the storage of a cluster. A tier of which not all is known yet is left out, unless it is but for the export of its pool; so is a
// default class without its tier.
func csiOf(o types.Object) record.CSI {
	if o.IsNull() {
		return defaultCSI()
	}
	var c record.CSI
	o = withoutOpenExport(o)
	if t, on := tier(o, "local_path"); on {
		c.LocalPath = &record.LocalPath{Path: cmp.Or(part[types.String](t, "path").ValueString(), defaultLocalPath), Chart: chartOf(t)}
	}
	if t, on := tier(o, "nfs"); on {
		c.NFS = &record.NFS{
			Pool: part[types.String](t, "pool").ValueString(), Server: part[types.String](t, "server").ValueString(), Path: part[types.String](t, "path").ValueString(),
			Version: part[types.String](t, "nfs_version").ValueString(), MountOptions: texts(part[types.List](t, "mount_options")), Chart: chartOf(t),
		}
	}
	if t, on := tier(o, "longhorn"); on {
		c.Longhorn = &record.Longhorn{
			Replicas: cmp.Or(integer(part[types.Number](t, "replica_count")), defaultReplicas), DataPath: cmp.Or(part[types.String](t, "data_path").ValueString(), defaultDataPath),
			DrainPolicy: cmp.Or(part[types.String](t, "drain_policy").ValueString(), defaultDrainPolicy), Chart: chartOf(t),
		}
	}
	if class := part[types.String](o, "default_class").ValueString(); hasClass(c, class) {
		c.DefaultClass = class
	}
	return completeCSI(c)
}

// tier is a storage tier of csi, and reports whether it is on and all of it is known.
func tier(csi types.Object, name string) (types.Object, bool) {
	t := part[types.Object](csi, name)
	return t, !t.IsNull() && whole(t)
}

// hasClass reports whether the tier of a StorageClass is on.
func hasClass(c record.CSI, class string) bool {
	return class == record.LocalPathClass && c.LocalPath != nil || class == record.NFSClass && c.NFS != nil || class == record.LonghornClass && c.Longhorn != nil
}

func newCSI(c record.CSI) types.Object {
	localPath, nfs, longhorn := types.ObjectNull(localPathTypes), types.ObjectNull(nfsTypes), types.ObjectNull(longhornTypes)
	if t := c.LocalPath; t != nil {
		localPath = types.ObjectValueMust(localPathTypes, map[string]attr.Value{"path": types.StringValue(t.Path), "values_yaml": stringValue(t.Chart.Values)})
	}
	if t := c.NFS; t != nil {
		nfs = types.ObjectValueMust(nfsTypes, map[string]attr.Value{
			"pool": stringValue(t.Pool), "server": stringValue(t.Server), "path": stringValue(t.Path), "nfs_version": stringValue(t.Version),
			"mount_options": newList(t.MountOptions), "values_yaml": stringValue(t.Chart.Values), "chart": newChart(t.Chart),
		})
	}
	if t := c.Longhorn; t != nil {
		longhorn = types.ObjectValueMust(longhornTypes, map[string]attr.Value{
			"replica_count": numberValue(t.Replicas), "data_path": types.StringValue(t.DataPath), "drain_policy": types.StringValue(t.DrainPolicy),
			"values_yaml": stringValue(t.Chart.Values), "chart": newChart(t.Chart),
		})
	}
	return types.ObjectValueMust(csiTypes, map[string]attr.Value{"local_path": localPath, "nfs": nfs, "longhorn": longhorn, "default_class": stringValue(c.DefaultClass)})
}

// csiValue renders storage for the state; what the user wrote stays where it says the same.
func csiValue(before types.Object, c record.CSI) types.Object {
	c = completeCSI(c)
	if before.IsNull() {
		return newCSI(c)
	}
	return kept(before, csiOf, c, newCSI)
}

func csiAttribute() schema.SingleNestedAttribute {
	class := schema.StringAttribute{
		Optional: true, Computed: true,
		MarkdownDescription: fmt.Sprintf("The one default StorageClass, `%s`, `%s` or `%s`, whose tier has to be on. Default: that of Longhorn where it is on, or else of local-path, or else of NFS. %s",
			record.LocalPathClass, record.NFSClass, record.LonghornClass, inPlace),
		Validators:    []validator.String{oneOf("csi.default_class", record.LocalPathClass, record.NFSClass, record.LonghornClass)},
		PlanModifiers: []planmodifier.String{classDefault{}},
	}
	return schema.SingleNestedAttribute{
		Optional: true, Computed: true, Default: objectdefault.StaticValue(newCSI(defaultCSI())),
		MarkdownDescription: "The storage tiers of the cluster, each with a StorageClass of its name. Default: `{ local_path = {} }`; `{}` is a cluster without storage. Tiers come and go in place. " +
			"One with volumes stays: the plan, or else the apply, refuses to take it away, and to change what its volumes depend on, and names them.",
		Attributes: map[string]schema.Attribute{
			"local_path": localPathAttribute(), "nfs": nfsAttribute(), "longhorn": longhornAttribute(), "default_class": class,
		},
		Validators: []validator.Object{storageRule{}},
	}
}

// newStorageClass is what a change means that a StorageClass cannot take in.
const newStorageClass = "Changed in place while the tier has no volumes; with volumes it is an error that names them."

func localPathAttribute() schema.SingleNestedAttribute {
	return schema.SingleNestedAttribute{
		Optional:            true,
		MarkdownDescription: "Volumes on the disk of the node that a pod runs on, as StorageClass `local-path`. They are lost with their node. It needs nothing of the golden image. " + inPlace,
		Attributes: map[string]schema.Attribute{
			"path": schema.StringAttribute{
				Optional: true, Computed: true, Default: stringdefault.StaticString(defaultLocalPath),
				MarkdownDescription: fmt.Sprintf("Directory on the nodes for the volumes, an absolute path; it may be the `mount_path` of a data disk. Default `%s`. %s It counts for volumes made from then on.", defaultLocalPath, inPlace),
				Validators:          []validator.String{directoryForm("csi.local_path.path")},
			},
			"values_yaml": valuesAttribute(),
		},
	}
}

func nfsAttribute() schema.SingleNestedAttribute {
	place := func(description string, validators ...validator.String) schema.StringAttribute {
		return schema.StringAttribute{Optional: true, Computed: true, MarkdownDescription: description + " Default: as `pool` tells. " + newStorageClass, Validators: validators}
	}
	attributes := map[string]schema.Attribute{
		"pool": schema.StringAttribute{
			Optional: true,
			MarkdownDescription: "Storage pool of the hypervisors, of type `netfs`, from whose definition `server` and `path` are read when it is set or changed, in place of them. All hypervisors that " +
				"have a pool of that name have to agree. The pool itself is not used. " + newStorageClass,
			Validators: []validator.String{stringvalidator.LengthAtLeast(1)},
		},
		"server": place("The NFS server, a name or an IP address that the nodes reach.", nfsServerForm()),
		"path":   place("The exported directory, an absolute path. Each volume gets a directory of its own below it.", exportForm()),
		"nfs_version": schema.StringAttribute{
			Optional: true,
			MarkdownDescription: "Version of the protocol, `3`, `4`, `4.1` or `4.2`. `3` needs the ports of rpcbind and mountd beside 2049, which no check covers. Default: what client and server agree on. " +
				newStorageClass,
			Validators: []validator.String{oneOf("csi.nfs.nfs_version", "3", "4", "4.1", "4.2")},
		},
		"mount_options": schema.ListAttribute{
			Optional: true, ElementType: types.StringType,
			MarkdownDescription: "More options of `mount.nfs`, one in each element, such as `hard`. Default: none. " + newStorageClass,
			Validators:          []validator.List{noNulls{}, listvalidator.ValueStringsAre(mountOptionForm())},
		},
	}
	addChart(attributes)
	return schema.SingleNestedAttribute{
		Optional: true,
		MarkdownDescription: "Volumes on an NFS server, as StorageClass `nfs`, which pods on several nodes may write at once. It takes `pool`, or `server` and `path`. The golden image needs the mount helper of NFS " +
			"(Debian: `nfs-common`). Each new node checks that, and port 2049 of the server, before k3s is installed in it. " + inPlace,
		Attributes: attributes,
		Validators: []validator.Object{exportRule{}},
	}
}

func longhornAttribute() schema.SingleNestedAttribute {
	attributes := map[string]schema.Attribute{
		"replica_count": numberAttribute("How many copies each new volume has, 1 to 20, each on another node. With fewer nodes that take pods there are as many copies as such nodes, and the apply warns; "+
			"later applies of pools raise the number, and none lowers it.", defaultReplicas, 1, 20, inPlace+" It counts for volumes made from then on."),
		"data_path": schema.StringAttribute{
			Optional: true, Computed: true, Default: stringdefault.StaticString(defaultDataPath),
			MarkdownDescription: fmt.Sprintf("Directory on the nodes for the copies, an absolute path; the place for the data disks of pools. Default `%s`. A change is an error while Longhorn is installed: nodes keep the one that they began with.", defaultDataPath),
			Validators:          []validator.String{directoryForm("csi.longhorn.data_path")},
		},
		"drain_policy": schema.StringAttribute{
			Optional: true, Computed: true, Default: stringdefault.StaticString(defaultDrainPolicy),
			MarkdownDescription: fmt.Sprintf("Longhorn's [node drain policy](https://longhorn.io/docs/latest/maintenance/maintenance/): what the drain of a node does about copies on it. `%s` keeps a node with the last "+
				"copy of a volume; `allow-if-replica-is-stopped` and `always-allow` let it go; `block-for-eviction` and `block-for-eviction-if-contains-last-replica` move copies away first, which takes "+
				"its time. Default `%s`. %s", defaultDrainPolicy, defaultDrainPolicy, inPlace),
			Validators: []validator.String{oneOf("csi.longhorn.drain_policy", drainPolicies...)},
		},
	}
	addChart(attributes)
	return schema.SingleNestedAttribute{
		Optional: true,
		MarkdownDescription: "Volumes on the disks of the nodes with copies on several of them, as StorageClass `longhorn`. The golden image needs `open-iscsi`, and a multipathd that leaves Longhorn's devices alone, " +
			"or none. " + inPlace,
		Attributes: attributes,
	}
}

// classDefault plans the default class by the rule where the configuration names none.
type classDefault struct{}

// Description says what is planned.
func (classDefault) Description(context.Context) string { return "the class of the first tier" }

// MarkdownDescription says what is planned.
func (m classDefault) MarkdownDescription(ctx context.Context) string { return m.Description(ctx) }

// PlanModifyString plans a value where the configuration has none.
func (classDefault) PlanModifyString(ctx context.Context, req planmodifier.StringRequest, resp *planmodifier.StringResponse) {
	if !req.ConfigValue.IsNull() {
		return
	}
	var csi types.Object
	resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root("csi"), &csi)...)
	if class, sure := classByRule(csi); sure {
		resp.PlanValue = stringValue(class)
		return
	}
	resp.PlanValue = types.StringUnknown()
}

// classByRule is the default class of a configuration that names none, and reports whether it is known which tiers are on. It does not
// depend on what is in them.
func classByRule(csi types.Object) (class string, sure bool) {
	if csi.IsNull() {
		return defaultCSI().DefaultClass, true
	}
	localPath, nfs, longhorn := part[types.Object](csi, "local_path"), part[types.Object](csi, "nfs"), part[types.Object](csi, "longhorn")
	if !known(csi, localPath, nfs, longhorn) {
		return "", false
	}
	var c record.CSI
	if !localPath.IsNull() {
		c.LocalPath = &record.LocalPath{}
	}
	if !nfs.IsNull() {
		c.NFS = &record.NFS{}
	}
	if !longhorn.IsNull() {
		c.Longhorn = &record.Longhorn{}
	}
	return c.Default(), true
}
