package hypervisor

import (
	"reflect"
	"testing"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// stored is the stored definition of a VM.
func stored(t *testing.T, f *Fleet, m machine.Machine) (def *libvirtxml.Domain) {
	t.Helper()
	with(t, f, m.Hypervisor, func(conn *libvirt.Connect) error {
		d, err := lookup(conn.LookupDomainByUUIDString(m.UUID))
		if err != nil {
			return err
		}
		defer d.free()
		def, err = d.definition()
		return err
	})
	return def
}

// sizes are vCPUs and memory of a definition, each as the most and as what is given.
func sizes(t *testing.T, def *libvirtxml.Domain) (vcpus, most, memoryMiB, mostMiB int) {
	t.Helper()
	if def.Memory.Unit != "KiB" || def.CurrentMemory.Unit != "KiB" {
		t.Fatalf("memory in %s and %s", def.Memory.Unit, def.CurrentMemory.Unit)
	}
	vcpus, most = int(def.VCPU.Current), int(def.VCPU.Value)
	if vcpus == 0 { // as it stands where they are the same
		vcpus = most
	}
	return vcpus, most, int(def.CurrentMemory.Value >> 10), int(def.Memory.Value >> 10)
}

func TestResize(t *testing.T) {
	for name, to := range map[string][2]int{"grow": {4, 8192}, "shrink": {1, 1024}, "stay": {2, 2048}, "one up, one down": {3, 1024}} {
		t.Run(name, func(t *testing.T) {
			f := mockFleet(t, "hv-a")
			s := dataSpec()
			must(t, f.Define(t.Context(), s))
			must(t, f.CloneDisk(t.Context(), s))
			m := only(t, f)
			m.Record.Phase = record.Joined
			must(t, f.SetRecord(t.Context(), m, m.Record))
			before := stored(t, f, m)

			shape := s.Record.Shape
			shape.VCPUs, shape.MemoryMiB = to[0], to[1]
			for range 2 {
				must(t, f.Resize(t.Context(), m, shape))
				after := stored(t, f, m)
				vcpus, most, memory, mostMemory := sizes(t, after)
				if vcpus != to[0] || most != to[0] || memory != to[1] || mostMemory != to[1] {
					t.Errorf("it has %d of %d vCPUs and %d of %d MiB", vcpus, most, memory, mostMemory)
				}
				want := m.Record
				want.Shape = shape
				if got := only(t, f).Record; !reflect.DeepEqual(got, want) {
					t.Errorf("the record is %+v, want %+v", got, want)
				}
				after.Metadata, after.VCPU, after.VCPUs, after.Memory, after.CurrentMemory = before.Metadata, before.VCPU, before.VCPUs, before.Memory, before.CurrentMemory
				if !reflect.DeepEqual(before, after) {
					t.Error("more of the definition has changed")
				}
			}
		})
	}
}

// A crash between two steps leaves what the next Resize makes complete.
func TestResizeGoesOn(t *testing.T) {
	f := mockFleet(t, "hv-a")
	s := serverSpec("hv-a")
	must(t, f.Define(t.Context(), s))
	must(t, f.CloneDisk(t.Context(), s))
	m := only(t, f)
	with(t, f, "hv-a", func(conn *libvirt.Connect) error {
		d, err := conn.LookupDomainByUUIDString(m.UUID)
		if err != nil {
			return err
		}
		defer func() { _ = d.Free() }()
		return d.SetVcpusFlags(4, libvirt.DOMAIN_VCPU_CONFIG|libvirt.DOMAIN_VCPU_MAXIMUM)
	})
	shape := s.Record.Shape
	shape.VCPUs, shape.MemoryMiB = 4, 4096
	must(t, f.Resize(t.Context(), m, shape))
	if vcpus, most, memory, mostMemory := sizes(t, stored(t, f, m)); vcpus != 4 || most != 4 || memory != 4096 || mostMemory != 4096 {
		t.Errorf("it has %d of %d vCPUs and %d of %d MiB", vcpus, most, memory, mostMemory)
	}
}

func TestResizeRefuses(t *testing.T) {
	larger := func(s record.Shape) record.Shape {
		s.MemoryMiB *= 2
		return s
	}
	for name, tt := range map[string]struct {
		prepare func(*testing.T, *Fleet, machine.Machine)
		shape   func(record.Shape) record.Shape
		target  error
		words   []string
	}{
		"a VM that runs": {
			prepare: func(t *testing.T, f *Fleet, m machine.Machine) { t.Helper(); must(t, f.Start(t.Context(), m)) },
			shape:   larger, words: []string{"resize the VM", "it is running", "while it is off"}},
		"another storage pool": {
			shape: func(s record.Shape) record.Shape { s.StoragePool = "data"; return s }, words: []string{"only sizes can be changed"}},
		"another clone": {
			shape: func(s record.Shape) record.Shape { s.Clone = record.Full; return s }, words: []string{"only sizes can be changed"}},
		"another mount path": {
			shape: func(s record.Shape) record.Shape { s.Data.MountPath = "/mnt"; return s }, words: []string{"only sizes can be changed"}},
		"no data disk any more": {
			shape: func(s record.Shape) record.Shape { s.Data = record.DataDisk{}; return s }, words: []string{"only sizes can be changed"}},
		"a volume that is gone": {
			prepare: func(t *testing.T, f *Fleet, m machine.Machine) {
				t.Helper()
				with(t, f, "hv-a", func(conn *libvirt.Connect) error {
					return f.hosts["hv-a"].removeVolume(t.Context(), conn, record.Volume{Pool: "data", Name: machine.DataVolume(m.Name, m.UUID)})
				})
			},
			shape: larger, target: machine.ErrNotFound, words: []string{"-data.qcow2"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := mockFleet(t, "hv-a")
			s := dataSpec()
			must(t, f.Define(t.Context(), s))
			must(t, f.CloneDisk(t.Context(), s))
			m := only(t, f)
			if tt.prepare != nil {
				tt.prepare(t, f, m)
			}
			wantError(t, f.Resize(t.Context(), m, tt.shape(m.Record.Shape)), tt.target, tt.words...)
			if got := only(t, f).Record; !reflect.DeepEqual(got, m.Record) {
				t.Errorf("the record was changed to %+v", got)
			}
		})
	}
}

// With a saved state the VM would go on as it was.
func TestResizeForgetsASavedState(t *testing.T) {
	f := mockFleet(t, "hv-a")
	s := serverSpec("hv-a")
	must(t, f.Define(t.Context(), s))
	must(t, f.CloneDisk(t.Context(), s))
	must(t, f.Start(t.Context(), machineOf(s)))
	saved := func(work func(*libvirt.Domain) error) (yes bool) {
		with(t, f, "hv-a", func(conn *libvirt.Connect) error {
			d, err := conn.LookupDomainByUUIDString(s.UUID)
			if err != nil {
				return err
			}
			defer func() { _ = d.Free() }()
			if err := work(d); err != nil {
				return err
			}
			yes, err = d.HasManagedSaveImage(0)
			return err
		})
		return yes
	}
	if !saved(func(d *libvirt.Domain) error { return d.ManagedSave(0) }) {
		t.Fatal("there is no saved state")
	}
	must(t, f.Resize(t.Context(), only(t, f), s.Record.Shape))
	if saved(func(*libvirt.Domain) error { return nil }) {
		t.Error("the saved state is kept")
	}
}
