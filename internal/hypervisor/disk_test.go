package hypervisor

import (
	"slices"
	"testing"

	"libvirt.org/go/libvirt"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// dataSpec is a server on hv-a with a data disk in a storage pool of its own.
func dataSpec() machine.Spec {
	s := serverSpec("hv-a")
	s.Record.Shape.Data = record.DataDisk{SizeGiB: 20, StoragePool: "data", MountPath: "/data"}
	s.Record.Volumes = append(s.Record.Volumes, record.Volume{Pool: "data", Name: machine.DataVolume(s.Name(), s.UUID)})
	return s
}

// volumeSize is the capacity of a volume in bytes.
func volumeSize(t *testing.T, f *Fleet, pool, name string) (size uint64) {
	t.Helper()
	with(t, f, "hv-a", func(conn *libvirt.Connect) error {
		p, err := f.hosts["hv-a"].pool(conn, pool)
		if err != nil {
			return err
		}
		defer p.free()
		vol, err := p.LookupStorageVolByName(name)
		if err != nil {
			return err
		}
		defer func() { _ = vol.Free() }()
		info, err := vol.GetInfo()
		if err == nil {
			size = info.Capacity
		}
		return err
	})
	return size
}

func TestDataDisk(t *testing.T) {
	f := mockFleet(t, "hv-a")
	s := dataSpec()
	m := machineOf(s)
	data := machine.DataVolume(s.Name(), s.UUID)
	must(t, f.Define(t.Context(), s))
	addVolume(t, f, "hv-a", "data", data, gib) // of an attempt that was cut short
	addVolume(t, f, "hv-a", "data", machine.DataVolume(s.Name(), "ffffffff"), gib)
	for range 2 {
		must(t, f.CloneDisk(t.Context(), s))
	}
	if size := volumeSize(t, f, "data", data); size != 20*gib {
		t.Errorf("the data volume has %d bytes", size)
	}
	must(t, f.Start(t.Context(), m))
	if got := only(t, f).Record.Shape.Data; got != s.Record.Shape.Data {
		t.Errorf("the record has the data disk %+v", got)
	}

	must(t, f.CloneDisk(t.Context(), s)) // it works with that disk
	for range 2 {
		must(t, f.Delete(t.Context(), m))
	}
	if got := volumes(t, f, "hv-a", "vms"); len(got) != 0 {
		t.Errorf("volumes %q are left", got)
	}
	if got := volumes(t, f, "hv-a", "data"); !slices.Equal(got, []string{machine.DataVolume(s.Name(), "ffffffff")}) {
		t.Errorf("data volumes %q are left", got)
	}
}

func TestDataDiskOfAJoinedVMIsKept(t *testing.T) {
	f := mockFleet(t, "hv-a")
	s := dataSpec()
	s.Record.Phase = record.Joined
	must(t, f.Define(t.Context(), s))
	addVolume(t, f, "hv-a", "data", machine.DataVolume(s.Name(), s.UUID), 21*gib)
	must(t, f.CloneDisk(t.Context(), s))
	if size := volumeSize(t, f, "data", machine.DataVolume(s.Name(), s.UUID)); size != 21*gib {
		t.Errorf("it has %d bytes", size)
	}
}

func TestDataDiskNeedsItsPool(t *testing.T) {
	f := mockFleet(t, "hv-a")
	s := dataSpec()
	s.Record.Shape.Data.StoragePool = "ssd"
	wantError(t, f.Define(t.Context(), s), machine.ErrNotFound, `storage pool "ssd"`)
}

// A hypervisor may not start its storage pools by itself.
func TestStartActivatesBothPools(t *testing.T) {
	f := mockFleet(t, "hv-a")
	s := dataSpec()
	must(t, f.Define(t.Context(), s))
	stop := func(conn *libvirt.Connect, name string) error {
		p, err := conn.LookupStoragePoolByName(name)
		if err != nil {
			return err
		}
		defer func() { _ = p.Free() }()
		return p.Destroy()
	}
	with(t, f, "hv-a", func(conn *libvirt.Connect) error {
		if err := stop(conn, "vms"); err != nil {
			return err
		}
		return stop(conn, "data")
	})
	must(t, f.Start(t.Context(), machineOf(s)))
	with(t, f, "hv-a", func(conn *libvirt.Connect) error {
		inactive, err := conn.ListAllStoragePools(libvirt.CONNECT_LIST_STORAGE_POOLS_INACTIVE)
		for i := range inactive {
			name, _ := inactive[i].GetName()
			t.Errorf("storage pool %q is inactive", name)
			_ = inactive[i].Free()
		}
		return err
	})
}

func TestDeleteOfAGoneDomainRemovesItsDataVolume(t *testing.T) {
	f := mockFleet(t, "hv-a")
	s := dataSpec()
	addVolume(t, f, "hv-a", "data", machine.DataVolume(s.Name(), s.UUID), gib)
	m := machineOf(s)
	m.Record.Volumes = nil // found by its name
	must(t, f.Delete(t.Context(), m))
	if got := volumes(t, f, "hv-a", "data"); len(got) != 0 {
		t.Errorf("data volumes %q are left", got)
	}
}
