package hypervisor

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"libvirt.org/go/libvirt"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// dataSpec is a small VM with a data disk in a storage pool of its own. Both go away with the test.
func (g *ground) dataSpec(t *testing.T) machine.Spec {
	t.Helper()
	pool := g.tag + "-data"
	with(t, g.Fleet, "hv-a", func(conn *libvirt.Connect) error { return addPool(t, conn, pool) })
	s := g.spec(t)
	s.Record.Shape.Data = record.DataDisk{SizeGiB: 1, StoragePool: pool, MountPath: "/data"}
	return s
}

// made makes a VM, which is off and has joined.
func (g *ground) made(t *testing.T, s machine.Spec) machine.Machine {
	t.Helper()
	m := machineOf(s)
	must(t, g.Define(t.Context(), s))
	must(t, g.CloneDisk(t.Context(), s))
	must(t, g.WriteSeed(t.Context(), m, nil))
	m = g.observed(t, s.UUID)
	m.Record.Phase = record.Joined
	must(t, g.SetRecord(t.Context(), m, m.Record))
	return m
}

// grown is a shape in which everything is more.
func grown(s record.Shape) record.Shape {
	s.VCPUs, s.MemoryMiB, s.DiskGiB = s.VCPUs+2, 2*s.MemoryMiB, s.DiskGiB+1
	if s.Data.SizeGiB > 0 {
		s.Data.SizeGiB += 2
	}
	return s
}

func TestLibvirtdDataDisk(t *testing.T) {
	g := newGround(t)
	s := g.dataSpec(t)
	m, pool := machineOf(s), s.Record.Shape.Data.StoragePool
	site, problems, err := g.Check(t.Context(), machine.Request{
		Hypervisor: "hv-a", StoragePool: g.vms, DiskGiB: 2, Data: s.Record.Shape.Data, Network: g.network, Names: []string{s.Name()}, ClusterID: clusterID,
	})
	if err != nil || len(problems) != 0 || site.DataStore != "hv-a/"+pool || site.DataFreeMiB == 0 {
		t.Fatalf("the site is %+v, problems %+v, error %v", site, problems, err)
	}
	must(t, g.Define(t.Context(), s))
	for range 2 {
		must(t, g.CloneDisk(t.Context(), s))
	}
	def, _ := g.inspect(t, pool, machine.DataVolume(s.Name(), s.UUID))
	if def.Capacity.Value != gib || def.BackingStore != nil || def.Target.Format.Type != "qcow2" || def.Target.Permissions.Mode != "0600" {
		t.Errorf("the data volume is %+v, %+v, behind it %+v", def.Capacity, def.Target, def.BackingStore)
	}
	must(t, g.WriteSeed(t.Context(), m, nil))
	must(t, g.Start(t.Context(), m))
	disks := stored(t, g.Fleet, m).Devices.Disks
	if len(disks) != 3 || disks[2].Target.Dev != "vdc" || disks[2].Serial != machine.DataSerial || disks[2].Driver.Discard != "unmap" {
		t.Errorf("its disks are %+v", disks)
	}
	for range 2 {
		must(t, g.Delete(t.Context(), m))
	}
	for _, p := range []string{g.vms, pool} {
		if left := volumes(t, g.Fleet, "hv-a", p); len(left) != 0 {
			t.Errorf("volumes %q are left in %s", left, p)
		}
	}
}

func TestLibvirtdResize(t *testing.T) {
	g := newGround(t)
	s := g.dataSpec(t)
	m := g.made(t, s)
	annotate(t, g, m)
	must(t, g.Start(t.Context(), m))
	wantError(t, g.Resize(t.Context(), m, grown(s.Record.Shape)), nil, "it is running")
	must(t, g.Stop(t.Context(), m, 0))
	before := stored(t, g.Fleet, m)

	smaller := s.Record.Shape
	smaller.VCPUs, smaller.MemoryMiB = 1, 48
	for _, shape := range []record.Shape{grown(s.Record.Shape), grown(grown(s.Record.Shape)), smaller, s.Record.Shape} {
		for range 2 {
			must(t, g.Resize(t.Context(), m, shape))
		}
		want := m.Record
		want.Shape = shape
		if got := g.observed(t, m.UUID); !reflect.DeepEqual(got.Record, want) || got.Power != machine.Stopped {
			t.Errorf("it is %s, its record %+v, want %+v", got.Power, got.Record, want)
		}
		after := stored(t, g.Fleet, m)
		vcpus, most, memory, mostMemory := sizes(t, after)
		if vcpus != shape.VCPUs || most != shape.VCPUs || memory != shape.MemoryMiB || mostMemory != shape.MemoryMiB {
			t.Errorf("it has %d of %d vCPUs and %d of %d MiB, want %+v", vcpus, most, memory, mostMemory, shape)
		}
		if !strings.Contains(after.Metadata.XML, "a note of somebody else") {
			t.Errorf("of its metadata is left %s", after.Metadata.XML)
		}
		after.Metadata, after.VCPU, after.Memory, after.CurrentMemory = before.Metadata, before.VCPU, before.Memory, before.CurrentMemory
		if !reflect.DeepEqual(before, after) {
			t.Error("more of the definition has changed")
		}
		must(t, g.Start(t.Context(), m))
		must(t, g.Stop(t.Context(), m, 0))
	}

	largest := grown(grown(s.Record.Shape)) // what is smaller afterwards does not shrink it
	root, _ := g.inspect(t, g.vms, machine.RootVolume(m.Name, m.UUID))
	if root.Capacity.Value != inBytes(largest.DiskGiB) || root.BackingStore == nil || root.BackingStore.Path != "/var/lib/libvirt/images/"+g.templates+"/golden.qcow2" {
		t.Errorf("the root volume is %+v, behind it %+v", root.Capacity, root.BackingStore)
	}
	data, _ := g.inspect(t, largest.Data.StoragePool, machine.DataVolume(m.Name, m.UUID))
	if data.Capacity.Value != inBytes(largest.Data.SizeGiB) {
		t.Errorf("the data volume is %+v", data.Capacity)
	}
}

// annotate gives a VM metadata that is not ours.
func annotate(t *testing.T, g *ground, m machine.Machine) {
	t.Helper()
	with(t, g.Fleet, "hv-a", func(conn *libvirt.Connect) error {
		d, err := conn.LookupDomainByUUIDString(m.UUID)
		if err != nil {
			return err
		}
		defer func() { _ = d.Free() }()
		return d.SetMetadata(libvirt.DOMAIN_METADATA_ELEMENT, "<note>a note of somebody else</note>", "x", "https://example.com/x", libvirt.DOMAIN_AFFECT_CONFIG)
	})
}

// The connection breaks after each step in turn.
func TestLibvirtdResizeIsCut(t *testing.T) {
	g := newGround(t)
	p, f := newProxy(t, g)
	m := g.made(t, g.spec(t))
	shape := m.Record.Shape
	for name, procedure := range map[string]uint32{
		"grow a volume": procVolResize, "vCPUs": procSetVcpusFlags, "memory": procSetMemoryFlags, "the record": procSetMetadata,
	} {
		shape = grown(shape)
		p.swallow(procedure)
		if err := f.Resize(t.Context(), m, shape); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if p.swallow(0) != 0 {
			t.Errorf("%s: nothing was cut off", name)
		}
		vcpus, _, memory, _ := sizes(t, stored(t, g.Fleet, m))
		if got := g.observed(t, m.UUID).Record.Shape; got != shape || vcpus != shape.VCPUs || memory != shape.MemoryMiB {
			t.Errorf("%s: it has %d vCPUs and %d MiB, and its record %+v, want %+v", name, vcpus, memory, got, shape)
		}
	}
}

// What stands over a volume, as backup tools put it there, would not grow with it.
func TestLibvirtdResizeOfASnapshot(t *testing.T) {
	g := newGround(t)
	m := g.made(t, g.spec(t))
	file := g.snapshot(t, m.UUID, "snapshot.qcow2", func(*libvirt.DomainSnapshot) error { return nil })
	wantError(t, g.Resize(t.Context(), m, grown(m.Record.Shape)), nil, "vda", file, "snapshot", "merged first")
	if got := g.observed(t, m.UUID).Record; !reflect.DeepEqual(got, m.Record) {
		t.Errorf("the record was changed to %+v", got)
	}
	with(t, g.Fleet, "hv-a", func(conn *libvirt.Connect) error {
		return g.hosts["hv-a"].removeVolume(t.Context(), conn, record.Volume{Pool: g.vms, Name: "snapshot.qcow2"})
	})
}

// The devices are those of the machine that runs the tests, which may have none, and no IOMMU.
func TestLibvirtdHostDevices(t *testing.T) {
	g := newGround(t)
	request := machine.Request{Hypervisor: "hv-a", StoragePool: g.vms, DiskGiB: 2, HostDevices: []string{"0000:ff:1f.7"}, ClusterID: clusterID}
	check := func(words ...string) {
		t.Helper()
		_, problems, err := g.Check(t.Context(), request)
		must(t, err)
		if len(problems) != 1 || problems[0].Field != machine.FieldHostDevices {
			t.Fatalf("problems %+v", problems)
		}
		wantError(t, problems[0].Err, nil, words...)
	}
	check("0000:ff:1f.7", "not found", "there ")

	var found []pciDevice
	with(t, g.Fleet, "hv-a", func(conn *libvirt.Connect) error {
		list, err := conn.ListAllNodeDevices(libvirt.CONNECT_LIST_NODE_DEVICES_CAP_PCI_DEV)
		for i := range list {
			d, derr := pciDeviceOf(&list[i])
			found, err = append(found, d), errors.Join(err, derr, list[i].Free())
		}
		return err
	})
	i := slices.IndexFunc(found, func(d pciDevice) bool { return len(d.group) == 0 && !strings.HasPrefix(d.class, bridge) })
	if i < 0 {
		t.Skipf("the machine has no PCI device without an IOMMU among %v", found)
	}
	request.HostDevices = []string{found[i].address}
	check(found[i].String(), "no IOMMU")

	s := g.spec(t)
	s.Record.HostDevices = request.HostDevices
	must(t, g.Define(t.Context(), s))
	owners, err := g.hosts["hv-a"].owners(t.Context(), request)
	if err != nil || owners[found[i].address] != s.Name() {
		t.Errorf("owners %v, %v", owners, err)
	}
}
