package hypervisor

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"libvirt.org/go/libvirt"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

func TestDeleteOfAGoneDomainRemovesItsVolumes(t *testing.T) {
	f := mockFleet(t, "hv-a")
	s := serverSpec("hv-a")
	addVolume(t, f, "hv-a", "vms", machine.RootVolume(s.Name(), s.UUID), gib)
	addVolume(t, f, "hv-a", "vms", machine.SeedVolume(s.Name(), s.UUID), 1<<20)
	addVolume(t, f, "hv-a", "vms", machine.RootVolume(s.Name(), "ffffffff"), gib) // of a successor
	addDomain(t, f, "hv-a", s.Name(), "")                                         // somebody took the name
	s.Record.Volumes = append(s.Record.Volumes, record.Volume{Pool: "gone", Name: "data"})
	must(t, f.Delete(t.Context(), machineOf(s)))
	if got := volumes(t, f, "hv-a", "vms"); !slices.Equal(got, []string{machine.RootVolume(s.Name(), "ffffffff")}) {
		t.Errorf("volumes %q", got)
	}
}

// A Delete that came only as far as the disks must not leave what looks like a node that is merely off.
func TestDeleteThatFailsHalfWay(t *testing.T) {
	f := mockFleet(t, "hv-a")
	s := serverSpec("hv-a")
	s.Record.Volumes = append(s.Record.Volumes, record.Volume{Pool: "lvm", Name: "data"})
	must(t, f.Define(t.Context(), s))
	must(t, f.CloneDisk(t.Context(), s))
	m := only(t, f)
	m.Record.Phase = record.Joined
	must(t, f.SetRecord(t.Context(), m, m.Record))
	must(t, f.Start(t.Context(), m))
	before := only(t, f).Record
	wantError(t, f.Delete(t.Context(), m), nil, `"lvm"`)
	if got := volumes(t, f, "hv-a", "vms"); len(got) != 0 {
		t.Fatalf("volumes %q", got)
	}
	after := only(t, f).Record
	if before.Phase != record.Joined || after.Phase != record.Creating {
		t.Errorf("the phase was %s and is %s", before.Phase, after.Phase)
	}
	before.Phase = record.Creating
	if !reflect.DeepEqual(before, after) {
		t.Errorf("the record was %+v and is %+v", before, after)
	}
	must(t, f.CloneDisk(t.Context(), s)) // it is made anew
	if got := volumes(t, f, "hv-a", "vms"); len(got) != 1 {
		t.Errorf("made anew, the volumes are %q", got)
	}
}

func TestDeleteOfATransientDomain(t *testing.T) {
	f := mockFleet(t, "hv-a")
	s := serverSpec("hv-a")
	s.Record.Phase = record.Joined
	text, err := domainXML(s, layout{virtType: "test", poolPath: "/srv/vms"})
	must(t, err)
	with(t, f, "hv-a", func(conn *libvirt.Connect) error {
		d, err := conn.DomainCreateXML(text, 0)
		if err != nil {
			return err
		}
		return d.Free()
	})
	addVolume(t, f, "hv-a", "vms", machine.RootVolume(s.Name(), s.UUID), gib)
	m := machineOf(s)
	m.Record.Volumes = nil // the domain's own record counts
	must(t, f.Delete(t.Context(), m))
	if o := observe(t, f); len(o.Machines) != 0 {
		t.Errorf("deleted, there is %+v", o)
	}
	if got := volumes(t, f, "hv-a", "vms"); len(got) != 0 {
		t.Errorf("volumes %q", got)
	}
}

func TestDiscardInAPoolThatVanishes(t *testing.T) {
	f := mockFleet(t, "hv-a")
	addVolume(t, f, "hv-a", "vms", "a.qcow2", gib)
	with(t, f, "hv-a", func(conn *libvirt.Connect) error {
		p, err := f.hosts["hv-a"].pool(conn, "vms")
		if err != nil {
			return err
		}
		defer p.free()
		vol, err := p.LookupStorageVolByName("a.qcow2")
		if err != nil {
			return err
		}
		defer func() { _ = vol.Free() }()
		if err := errors.Join(p.Destroy(), p.Undefine()); err != nil {
			return err
		}
		return p.discard(t.Context(), "a.qcow2", vol)
	})
}

func TestDeleteWithSnapshots(t *testing.T) {
	f := mockFleet(t, "hv-a")
	s := serverSpec("hv-a")
	must(t, f.Define(t.Context(), s))
	with(t, f, "hv-a", func(conn *libvirt.Connect) error {
		d, err := conn.LookupDomainByName(s.Name())
		if err != nil {
			return err
		}
		defer func() { _ = d.Free() }()
		snapshot, err := d.CreateSnapshotXML("<domainsnapshot><name>before</name></domainsnapshot>", 0)
		if err != nil {
			return err
		}
		return snapshot.Free()
	})
	must(t, f.Delete(t.Context(), machineOf(s)))
	if o := observe(t, f); len(o.Machines) != 0 {
		t.Errorf("deleted, there is %+v", o)
	}
}
