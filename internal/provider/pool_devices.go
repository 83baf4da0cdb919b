package provider

import (
	"context"
	"errors"
	"fmt"
	"maps"
	slash "path"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-validators/listvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/mapvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// defaultMountPath is where a data disk is mounted.
const defaultMountPath = "/data"

var dataDiskTypes = map[string]attr.Type{"size_gib": types.NumberType, "storage_pool": types.StringType, "mount_path": types.StringType}

// dataDiskOf reads a data disk, zero where there is none, and newDataDisk renders it.
func dataDiskOf(o types.Object) record.DataDisk {
	return record.DataDisk{
		SizeGiB: integer(part[types.Number](o, "size_gib")), StoragePool: part[types.String](o, "storage_pool").ValueString(),
		MountPath: part[types.String](o, "mount_path").ValueString(),
	}
}

func newDataDisk(d record.DataDisk) types.Object {
	if d.SizeGiB == 0 {
		return types.ObjectNull(dataDiskTypes)
	}
	return types.ObjectValueMust(dataDiskTypes, map[string]attr.Value{
		"size_gib": numberValue(d.SizeGiB), "storage_pool": types.StringValue(d.StoragePool), "mount_path": types.StringValue(d.MountPath),
	})
}

var deviceListType = types.ListType{ElemType: types.StringType}

// hostDevicesOf reads the devices of each hypervisor, nil where there are none, and newHostDevices renders them.
func hostDevicesOf(m types.Map) map[string][]string {
	var out map[string][]string
	for host, e := range m.Elements() {
		if list, ok := e.(types.List); ok {
			if out == nil {
				out = map[string][]string{}
			}
			out[host] = texts(list)
		}
	}
	return out
}

func newHostDevices(devices map[string][]string) types.Map {
	if len(devices) == 0 {
		return types.MapNull(deviceListType)
	}
	values := map[string]attr.Value{}
	for host, addresses := range devices {
		values[host] = newList(addresses)
	}
	return types.MapValueMust(deviceListType, values)
}

func dataDiskAttribute() schema.SingleNestedAttribute {
	size := schema.NumberAttribute{
		Required: true,
		MarkdownDescription: "Size in GiB. A larger one is given to the nodes in place, by `upgrade_settings`: each is drained, powered off and on again, and what stands on it stays. " +
			"With a smaller one each node is replaced, and what stands on its disks is lost.",
		Validators: []validator.Number{wholeNumber{1, 64 * 1024}},
	}
	return schema.SingleNestedAttribute{
		Optional: true,
		MarkdownDescription: "A second disk of each node, with an ext4 file system. It goes with its node: a node that is removed or replaced takes what stands on it along. " +
			"Adding or removing it replaces the nodes by `upgrade_settings`.",
		Attributes: map[string]schema.Attribute{
			"size_gib": size,
			"storage_pool": schema.StringAttribute{
				Optional: true, Computed: true,
				MarkdownDescription: "libvirt storage pool for the data disks. Default: the pool's `storage_pool`. " + ofPools.replaced,
				Validators:          []validator.String{stringvalidator.LengthAtLeast(1)},
				PlanModifiers:       []planmodifier.String{dataPoolDefault{}},
			},
			"mount_path": schema.StringAttribute{
				Optional: true, Computed: true, Default: stringdefault.StaticString(defaultMountPath),
				MarkdownDescription: "Where the node mounts it, an absolute path outside of the system's own directories; `/var/lib/longhorn`, `/var/lib/rancher` and " +
					"`/opt/local-path-provisioner` are possible. Default `" + defaultMountPath + "`. " + ofPools.replaced,
				Validators: []validator.String{mountPathForm()},
			},
		},
	}
}

// dataPoolDefault plans the storage pool of the root disk where the configuration has none for the data disk.
type dataPoolDefault struct{}

// Description says what is planned.
func (dataPoolDefault) Description(context.Context) string { return "the pool's storage_pool" }

// MarkdownDescription says what is planned.
func (m dataPoolDefault) MarkdownDescription(ctx context.Context) string { return m.Description(ctx) }

// PlanModifyString plans a value where the configuration has none.
func (dataPoolDefault) PlanModifyString(ctx context.Context, req planmodifier.StringRequest, resp *planmodifier.StringResponse) {
	if req.ConfigValue.IsNull() {
		resp.Diagnostics.Append(req.Plan.GetAttribute(ctx, path.Root("storage_pool"), &resp.PlanValue)...)
	}
}

// What no data disk may cover: systemTrees with all below them, and systemDirectories by themselves, below which there is room
// for a mount.
var (
	systemTrees = []string{
		"/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/root", "/run", "/sbin", "/sys", "/tmp", "/usr", "/var/cache",
		"/var/lib/cloud", "/var/lib/dbus", "/var/lib/dpkg", "/var/lib/rpm", "/var/lib/systemd", "/var/lock", "/var/run", "/var/tmp",
	}
	systemDirectories = []string{"/", "/home", "/opt", "/var", "/var/lib"}
	mountPath         = regexp.MustCompile(`^(/[A-Za-z0-9._-]+)+$`)
)

// ofK3s is made by k3s itself, and below it are parts that have to be on one file system.
const ofK3s = "/var/lib/rancher/k3s"

func mountPathForm() form {
	const rule = "an absolute path of letters, digits, dots, dashes and underscores"
	return form{thing: "data_disk.mount_path", rule: rule, check: func(s string) error {
		below := func(tree string) bool { return s == tree || strings.HasPrefix(s, tree+"/") }
		switch {
		case slices.Contains(systemDirectories, s), slices.ContainsFunc(systemTrees, below):
			return errors.New(`it is a directory of the system, or below one; choose one such as "/data" or "/srv/data"`)
		case below(ofK3s):
			return fmt.Errorf("k3s lays %s out itself; to have its data on the disk choose %q", ofK3s, slash.Dir(ofK3s))
		case !mountPath.MatchString(s), slash.Clean(s) != s:
			return errors.New("it has to be " + rule + `, such as "/data" or "/srv/data"`)
		}
		return nil
	}}
}

// pciAddress is the address of a function of a PCI device, as libvirt and lspci -D print it.
var pciAddress = regexp.MustCompile(`^[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$`)

func pciForm() form {
	const rule = "a PCI address in lower case, domain:bus:slot.function"
	return form{thing: "host device", rule: rule, check: func(s string) error {
		if !pciAddress.MatchString(s) {
			return errors.New("it has to be " + rule + `, such as "0000:65:00.0"; lspci -D lists them`)
		}
		return nil
	}}
}

func hostDevicesAttribute() schema.MapAttribute {
	return schema.MapAttribute{
		Optional: true, ElementType: deviceListType,
		MarkdownDescription: "PCI devices of the hypervisors for the nodes, such as `{ hv-a = [\"0000:65:00.0\"] }`: each node gets those of its hypervisor. " +
			"Only with `placement.strategy = \"manual\"`, one node on each hypervisor, a key for each of them, and `upgrade_settings.max_surge = 0`, since a device has one VM at a time. " + ofPools.replaced,
		Validators: []validator.Map{
			noNulls{}, mapvalidator.ValueListsAre(noNulls{}, listvalidator.SizeAtLeast(1), listvalidator.UniqueValues(), listvalidator.ValueStringsAre(pciForm())), devicesRule{},
		},
	}
}

// devicesRule validates that each node of a pool with host devices can have those of a hypervisor for itself.
type devicesRule struct{}

// Description returns the rule.
func (devicesRule) Description(context.Context) string {
	return "placed by hand, one node on each hypervisor, each with devices, and none extra"
}

// MarkdownDescription returns the rule.
func (r devicesRule) MarkdownDescription(ctx context.Context) string { return r.Description(ctx) }

// ValidateMap checks what is known.
func (devicesRule) ValidateMap(ctx context.Context, req validator.MapRequest, resp *validator.MapResponse) {
	if req.ConfigValue.IsNull() || !known(req.ConfigValue) || len(req.ConfigValue.Elements()) == 0 {
		return
	}
	var (
		placement, upgrade types.Object
		count              types.Number
		diags              = &resp.Diagnostics
		refuse             = func(at path.Path, format string, args ...any) {
			task{"use", "host_devices", ""}.failAt(diags, at, fmt.Errorf(format, args...))
		}
	)
	diags.Append(req.Config.GetAttribute(ctx, path.Root("placement"), &placement)...)
	diags.Append(req.Config.GetAttribute(ctx, path.Root("upgrade_settings"), &upgrade)...)
	diags.Append(req.Config.GetAttribute(ctx, path.Root("node_count"), &count)...)
	if surge := part[types.Number](upgrade, "max_surge"); known(upgrade, surge) && numberOr(surge, cluster.DefaultUpgrade.MaxSurge) != 0 {
		refuse(path.Root("upgrade_settings").AtName("max_surge"),
			"a node that stands in for another one would need its devices; set upgrade_settings = { max_surge = 0, max_unavailable = 1 }")
	}
	strategy, _, hosts := placementParts(placement)
	if !known(placement, strategy) {
		return
	}
	if strategy.ValueString() != string(record.Manual) {
		refuse(req.Path, `devices are those of one hypervisor; set placement = { strategy = "manual", hosts = […] }, with a hypervisor for each node`)
		return
	}
	if !whole(hosts) {
		return
	}
	load := map[string]int{}
	for _, host := range texts(hosts) {
		load[host]++
	}
	if len(hosts.Elements()) == 1 && known(count) {
		load[texts(hosts)[0]] = numberOr(count, defaultNodes)
	}
	devices := req.ConfigValue.Elements()
	for _, host := range slices.Sorted(maps.Keys(load)) {
		if load[host] > 1 {
			refuse(path.Root("placement").AtName("hosts"), "there are to be %d nodes on hypervisor %q, and its devices are for one; name a hypervisor for each node", load[host], host)
		}
		if _, ok := devices[host]; !ok {
			refuse(req.Path, "a node is to stand on hypervisor %q, and there are no devices for that; add them, or choose another hypervisor in placement.hosts", host)
		}
	}
}

// hasDevices reports whether the provider has every hypervisor that devices are named of, and fails the task at those that it is
// known not to have.
func (b *backend) hasDevices(t task, devices types.Map, at path.Path, diags *diag.Diagnostics) bool {
	if b == nil || !b.known {
		return true
	}
	found := true
	for _, host := range slices.Sorted(maps.Keys(devices.Elements())) {
		if _, ok := b.settings.hypervisors[host]; !ok {
			found = false
			t.failAt(diags, at.AtMapKey(host), unknownHypervisor(host, b.settings.names()))
		}
	}
	return found
}
