package hypervisor

import (
	"fmt"
	"testing"

	"libvirt.org/go/libvirt"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

func TestCheck(t *testing.T) {
	type want struct {
		field  machine.Field
		target error
		words  []string
	}
	tests := map[string]struct {
		hypervisor string
		request    machine.Request
		want       []want
	}{
		"all is well": {hypervisor: "hv-a", request: machine.Request{StoragePool: "vms", DiskGiB: 4, Network: "lan", Names: []string{"a", "b"}}},
		"on a bridge": {hypervisor: "hv-a", request: machine.Request{StoragePool: "templates", DiskGiB: 4, Bridge: "br0"}},
		"no such pool": {hypervisor: "hv-a", request: machine.Request{StoragePool: "ssd", DiskGiB: 8, Network: "lan"}, want: []want{
			{machine.FieldStoragePool, machine.ErrNotFound, []string{`storage pool "ssd": not found; there are: data, lvm, templates, vms`}},
		}},
		"a pool without files": {hypervisor: "hv-a", request: machine.Request{StoragePool: "lvm", DiskGiB: 8, Network: "lan"}, want: []want{
			{machine.FieldStoragePool, nil, []string{`"lvm"`, `"logical"`, "qcow2", "dir, fs, netfs"}},
		}},
		"disk too small": {hypervisor: "hv-a", request: machine.Request{StoragePool: "vms", DiskGiB: 3, Network: "lan"}, want: []want{
			{machine.FieldDisk, nil, []string{"3 GiB", "4 GiB", "golden.qcow2"}},
		}},
		"a data disk": {hypervisor: "hv-a", request: machine.Request{StoragePool: "vms", DiskGiB: 4, Data: record.DataDisk{SizeGiB: 1, StoragePool: "data"}}},
		"no such pool for data": {hypervisor: "hv-a", request: machine.Request{StoragePool: "vms", DiskGiB: 4, Data: record.DataDisk{SizeGiB: 1, StoragePool: "ssd"}}, want: []want{
			{machine.FieldDataPool, machine.ErrNotFound, []string{`storage pool "ssd": not found; there are: data, lvm, templates, vms`}},
		}},
		"a pool for data without files": {hypervisor: "hv-a", request: machine.Request{StoragePool: "vms", DiskGiB: 4, Data: record.DataDisk{SizeGiB: 1, StoragePool: "lvm"}}, want: []want{
			{machine.FieldDataPool, nil, []string{`"lvm"`, `"logical"`, "qcow2"}},
		}},
		"no such pool for either disk is said once": {hypervisor: "hv-a", request: machine.Request{StoragePool: "ssd", DiskGiB: 4, Data: record.DataDisk{SizeGiB: 1, StoragePool: "ssd"}}, want: []want{
			{machine.FieldStoragePool, machine.ErrNotFound, nil},
		}},
		"no such network and bridge": {hypervisor: "hv-a", request: machine.Request{StoragePool: "vms", DiskGiB: 8, Network: "wan", Bridge: "br7"}, want: []want{
			{machine.FieldNetwork, machine.ErrNotFound, []string{`network "wan": not found; there are: dmz, lan`}},
			{machine.FieldBridge, machine.ErrNotFound, []string{`bridge "br7": not found among the host's interfaces`}},
		}},
		"all is wrong": {hypervisor: "hv-a", request: machine.Request{StoragePool: "ssd", DiskGiB: 1, Network: "wan", Names: []string{"legacy"}}, want: []want{
			{machine.FieldStoragePool, machine.ErrNotFound, nil},
			{machine.FieldNetwork, machine.ErrNotFound, nil},
			{machine.FieldName, machine.ErrForeign, []string{`a VM named "legacy" exists and was not made by this provider`, "choose another name"}},
		}},
	}
	f := mockFleet(t, "hv-a", "hv-b")
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.request.Hypervisor, tt.request.ClusterID = tt.hypervisor, clusterID
			_, problems, err := f.Check(t.Context(), tt.request)
			must(t, err)
			if len(problems) != len(tt.want) {
				t.Fatalf("problems %+v, want %d", problems, len(tt.want))
			}
			for i, w := range tt.want {
				if problems[i].Field != w.field {
					t.Errorf("problem with %s, want %s", problems[i].Field, w.field)
				}
				wantError(t, problems[i].Err, w.target, w.words...)
			}
		})
	}
}

// What a site says of stores and their room.
func TestCheckSite(t *testing.T) {
	f := mockFleet(t, "hv-a")
	for name, tt := range map[string]struct {
		data  record.DataDisk
		store string
	}{
		"no data disk":     {},
		"a pool for each":  {record.DataDisk{SizeGiB: 1, StoragePool: "data"}, "hv-a/data"},
		"one pool for all": {record.DataDisk{SizeGiB: 1, StoragePool: "vms"}, "hv-a/vms"},
	} {
		t.Run(name, func(t *testing.T) {
			site, _, err := f.Check(t.Context(), machine.Request{Hypervisor: "hv-a", StoragePool: "vms", DiskGiB: 4, Data: tt.data})
			must(t, err)
			if site.Store != "hv-a/vms" || site.FreeMiB == 0 || site.DataStore != tt.store || (site.DataFreeMiB > 0) != (tt.store != "") {
				t.Errorf("the site is %+v", site)
			}
		})
	}
}

func TestCheckStartsWhatIsInactive(t *testing.T) {
	f := mockFleet(t, "hv-a")
	with(t, f, "hv-a", func(conn *libvirt.Connect) error {
		n, err := conn.LookupNetworkByName("lan")
		if err != nil {
			return err
		}
		defer func() { _ = n.Free() }()
		for _, name := range []string{"templates", "data"} {
			p, err := conn.LookupStoragePoolByName(name)
			if err != nil {
				return err
			}
			defer func() { _ = p.Free() }()
			if err := p.Destroy(); err != nil {
				return err
			}
		}
		return n.Destroy()
	})
	// The test driver's pools forget their volumes when they stop, which is why the template is asked for in another.
	addVolume(t, f, "hv-a", "vms", "golden.qcow2", gib)
	for _, pool := range []string{"vms", "templates"} {
		_, _, err := f.Check(t.Context(), machine.Request{
			Hypervisor: "hv-a", StoragePool: pool, DiskGiB: 8, Data: record.DataDisk{SizeGiB: 1, StoragePool: "data"}, Network: "lan",
		})
		must(t, err)
	}
	with(t, f, "hv-a", func(conn *libvirt.Connect) error {
		pools, err := conn.ListAllStoragePools(libvirt.CONNECT_LIST_STORAGE_POOLS_INACTIVE)
		if err != nil || len(pools) != 0 {
			return fmt.Errorf("%d pools are inactive, %w", len(pools), err)
		}
		networks, err := conn.ListAllNetworks(libvirt.CONNECT_LIST_NETWORKS_INACTIVE)
		if err != nil || len(networks) != 0 {
			return fmt.Errorf("%d networks are inactive, %w", len(networks), err)
		}
		return nil
	})
}

func TestTemplateOfAnotherHypervisorStandsInTheTargetPool(t *testing.T) {
	f := mockFleet(t, "hv-a", "hv-b")
	addVolume(t, f, "hv-b", "vms", "golden.qcow2", 4*gib)
	s := serverSpec("hv-b")
	must(t, f.Define(t.Context(), s))
	must(t, f.CloneDisk(t.Context(), s))
	if m := only(t, f); m.Record.Template.Pool != "vms" {
		t.Errorf("the template is %+v", m.Record.Template)
	}
}
