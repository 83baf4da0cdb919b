package hypervisor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/guestagent"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// mockHost is the configuration of libvirt's test driver: a hypervisor in the memory of the process, private to each
// connection (https://libvirt.org/drvtest.html).
const mockHost = `<node>
  <cpu><mhz>2000</mhz><model>i686</model><active>8</active><nodes>1</nodes><sockets>1</sockets><cores>8</cores><threads>1</threads></cpu>
  <memory>16777216</memory>
  <network><name>lan</name><bridge name="virbr9"/></network>
  <network><name>dmz</name><bridge name="virbr8"/></network>
  <interface type="bridge" name="br0"><start mode="onboot"/><mac address="aa:bb:cc:dd:ee:f1"/><bridge/></interface>
  <pool type="dir"><name>vms</name><target><path>/srv/vms</path></target></pool>
  <pool type="dir"><name>data</name><target><path>/srv/data</path></target></pool>
  <pool type="dir"><name>templates</name><target><path>/srv/templates</path></target></pool>
  <pool type="logical"><name>lvm</name><source><name>vg0</name></source><target><path>/dev/vg0</path></target></pool>
  <domain type="test"><name>legacy</name><memory>65536</memory><os><type>hvm</type></os></domain>
` + mockDevices + `</node>`

// mockDevices are a graphics card with its audio function, two NICs of which one is without an IOMMU, and what they stand
// behind. What drivers they have is for udev to know.
const mockDevices = `
  <device><name>pci_0000_64_00_0</name><capability type="pci"><class>0x060400</class><domain>0</domain><bus>100</bus><slot>0</slot><function>0</function>
    <product id="0x2030">Root port</product><vendor id="0x8086">Intel Corporation</vendor></capability></device>
  <device><name>pci_0000_65_00_0</name><capability type="pci"><class>0x030000</class><domain>0</domain><bus>101</bus><slot>0</slot><function>0</function>
    <product id="0x2231">GA102GL [RTX A5000]</product><vendor id="0x10de">NVIDIA Corporation</vendor>
    <iommuGroup number="26"><address domain="0x0000" bus="0x65" slot="0x00" function="0x0"/><address domain="0x0000" bus="0x65" slot="0x00" function="0x1"/></iommuGroup></capability></device>
  <device><name>pci_0000_65_00_1</name><capability type="pci"><class>0x040300</class><domain>0</domain><bus>101</bus><slot>0</slot><function>1</function>
    <product id="0x1aef">GA102 High Definition Audio Controller</product><vendor id="0x10de">NVIDIA Corporation</vendor>
    <iommuGroup number="26"><address domain="0x0000" bus="0x65" slot="0x00" function="0x0"/><address domain="0x0000" bus="0x65" slot="0x00" function="0x1"/></iommuGroup></capability></device>
  <device><name>pci_0000_3b_00_0</name><capability type="pci"><class>0x020000</class><domain>0</domain><bus>59</bus><slot>0</slot><function>0</function>
    <product id="0x1017">MT27800 Family [ConnectX-5]</product><vendor id="0x15b3">Mellanox Technologies</vendor>
    <iommuGroup number="7"><address domain="0x0000" bus="0x3b" slot="0x00" function="0x0"/></iommuGroup></capability></device>
  <device><name>pci_0000_00_1f_6</name><capability type="pci"><class>0x020000</class><domain>0</domain><bus>0</bus><slot>31</slot><function>6</function>
    <product id="0x15b9"/><vendor id="0x8086">Intel Corporation</vendor></capability></device>
`

// mockFleet is a fleet on test drivers, with a template of 4 GiB in the pool "templates" of hypervisor hv-a.
func mockFleet(t *testing.T, hypervisors ...string) *Fleet {
	t.Helper()
	configs := map[string]Config{}
	for _, name := range hypervisors {
		file := filepath.Join(t.TempDir(), name+".xml")
		must(t, os.WriteFile(file, []byte(mockHost), 0o600))
		configs[name] = Config{URI: "test://" + file, VirtType: "test", Schedulable: true}
	}
	f := New(configs, TemplateRef{Hypervisor: "hv-a", Pool: "templates", Volume: "golden.qcow2"}, 4)
	t.Cleanup(func() { wantNoLeak(t, f) })
	for _, name := range hypervisors {
		err := f.hosts[name].do(t.Context(), func(*libvirt.Connect) error { return nil })
		if err != nil && strings.Contains(err.Error(), libraryHint) {
			t.Skip(err)
		}
		must(t, err)
	}
	if _, ok := configs["hv-a"]; ok {
		addVolume(t, f, "hv-a", "templates", "golden.qcow2", 4*gib)
	}
	return f
}

// wantNoLeak closes a fleet and checks that nothing of libvirt's was kept: each object holds on to its connection.
func wantNoLeak(t *testing.T, f *Fleet) {
	t.Helper()
	for name, h := range f.hosts {
		l := h.link
		if l == nil {
			continue
		}
		must(t, l.conn.Ref())
		hangUp(h)
		if left, err := l.conn.Close(); err != nil || left != 0 {
			t.Errorf("%d objects on %s were not freed (%v)", left, name, err)
		}
	}
}

// hangUp closes the connection to a hypervisor, once no call uses it that was left behind.
func hangUp(h *host) {
	h.mu.Lock()
	l := h.link
	h.link = nil
	idle := l != nil && l.users == 0
	h.mu.Unlock()
	if idle {
		l.close()
	}
}

// with calls fn with a hypervisor's own connection.
func with(t *testing.T, f *Fleet, hypervisor string, fn func(conn *libvirt.Connect) error) {
	t.Helper()
	must(t, f.hosts[hypervisor].do(t.Context(), fn))
}

// addVolume makes a volume as somebody else would.
func addVolume(t *testing.T, f *Fleet, hypervisor, pool, name string, capacity uint64) {
	t.Helper()
	with(t, f, hypervisor, func(conn *libvirt.Connect) error {
		text, err := volumeXML(name, "qcow2", privateMode, capacity, nil)
		if err != nil {
			return err
		}
		p, err := f.hosts[hypervisor].pool(conn, pool)
		if err != nil {
			return err
		}
		defer p.free()
		vol, err := p.StorageVolCreateXML(text, 0)
		if err != nil {
			return err
		}
		return vol.Free()
	})
}

// volumes lists the volumes of a pool.
func volumes(t *testing.T, f *Fleet, hypervisor, pool string) (names []string) {
	t.Helper()
	with(t, f, hypervisor, func(conn *libvirt.Connect) error {
		p, err := f.hosts[hypervisor].pool(conn, pool)
		if err != nil {
			return err
		}
		defer p.free()
		if names, err = p.ListStorageVolumes(); err != nil {
			return err
		}
		slices.Sort(names)
		return nil
	})
	return names
}

// addDomain defines a domain that is not ours, or whose record is what metadata says.
func addDomain(t *testing.T, f *Fleet, hypervisor, name, metadata string) {
	t.Helper()
	d := libvirtxml.Domain{
		Type: "test", Name: name, Memory: &libvirtxml.DomainMemory{Value: 64, Unit: "MiB"},
		OS: &libvirtxml.DomainOS{Type: &libvirtxml.DomainOSType{Type: "hvm"}},
	}
	if metadata != "" {
		d.Metadata = &libvirtxml.DomainMetadata{XML: metadata}
	}
	text, err := d.Marshal()
	must(t, err)
	with(t, f, hypervisor, func(conn *libvirt.Connect) error {
		d, err := conn.DomainDefineXML(text)
		if err != nil {
			return err
		}
		return d.Free()
	})
}

// only returns the only machine that is observed.
func only(t *testing.T, f *Fleet) machine.Machine {
	t.Helper()
	o := observe(t, f)
	if len(o.Machines) != 1 || len(o.Unreachable) != 0 {
		t.Fatalf("observed %+v", o)
	}
	return o.Machines[0]
}

func TestLifeOfAVM(t *testing.T) {
	f := mockFleet(t, "hv-a")
	s := serverSpec("hv-a")
	root, seed := machine.RootVolume(s.Name(), s.UUID), machine.SeedVolume(s.Name(), s.UUID)

	for range 2 { // each step may come twice
		must(t, f.Define(t.Context(), s))
	}
	m := only(t, f)
	if m.Name != "k8s-test-cp-1" || m.UUID != s.UUID || m.MAC != s.MAC || m.Power != machine.Stopped || m.Hypervisor != "hv-a" {
		t.Errorf("observed %+v", m)
	}
	if want := (record.Template{Pool: "templates", Volume: "golden.qcow2"}); m.Record.Template != want {
		t.Errorf("the record's template is %+v", m.Record.Template)
	}
	if m.Record.Phase != record.Creating || m.Record.Cluster == nil || m.Record.Shape != s.Record.Shape {
		t.Errorf("the record is %+v", m.Record)
	}
	with(t, f, "hv-a", func(conn *libvirt.Connect) error {
		d, err := conn.LookupDomainByName(m.Name)
		if err != nil {
			return err
		}
		defer func() { _ = d.Free() }()
		if on, err := d.GetAutostart(); err != nil || !on {
			t.Errorf("autostart %t, %v", on, err)
		}
		return nil
	})

	for range 2 {
		must(t, f.CloneDisk(t.Context(), s))
	}
	addVolume(t, f, "hv-a", "vms", seed, 1<<20) // the test driver has no streams
	if got := volumes(t, f, "hv-a", "vms"); !slices.Equal(got, []string{seed, root}) {
		t.Errorf("volumes %q", got)
	}
	for range 2 {
		must(t, f.Start(t.Context(), m))
	}
	if m = only(t, f); m.Power != machine.Running {
		t.Errorf("started, it is %s", m.Power)
	}

	joined := s.Record // without a template, as the caller's own copy may be
	joined.Phase = record.Joined
	must(t, f.SetRecord(t.Context(), m, joined))
	if m = only(t, f); m.Record.Phase != record.Joined || m.Record.Template.Volume != "golden.qcow2" {
		t.Errorf("the record is %+v", m.Record)
	}

	for range 2 {
		must(t, f.Stop(t.Context(), m, time.Minute))
	}
	if m = only(t, f); m.Power != machine.Stopped || m.Record.Phase != record.Joined {
		t.Errorf("stopped, it is %+v", m)
	}
	for range 2 {
		must(t, f.Delete(t.Context(), m))
	}
	if o := observe(t, f); len(o.Machines) != 0 {
		t.Errorf("deleted, there is %+v", o)
	}
	if got := volumes(t, f, "hv-a", "vms"); len(got) != 0 {
		t.Errorf("volumes %q are left", got)
	}
	if got := volumes(t, f, "hv-a", "templates"); !slices.Equal(got, []string{"golden.qcow2"}) {
		t.Errorf("templates %q", got)
	}
}

func TestJoinedVMsKeepTheirDisk(t *testing.T) {
	f := mockFleet(t, "hv-a")
	s := serverSpec("hv-a")
	s.Record.Phase = record.Joined
	must(t, f.Define(t.Context(), s))
	addVolume(t, f, "hv-a", "vms", machine.RootVolume(s.Name(), s.UUID), 5*gib)
	must(t, f.CloneDisk(t.Context(), s))
	s.Record.Shape.MemoryMiB *= 2
	must(t, f.Define(t.Context(), s))
	if m := only(t, f); m.Record.Shape.MemoryMiB != 2048 {
		t.Error("a VM that has joined was defined anew")
	}
	with(t, f, "hv-a", func(conn *libvirt.Connect) error {
		p, err := f.hosts["hv-a"].pool(conn, "vms")
		if err != nil {
			return err
		}
		defer p.free()
		vol, err := p.LookupStorageVolByName(machine.RootVolume(s.Name(), s.UUID))
		if err != nil {
			return err
		}
		defer func() { _ = vol.Free() }()
		if info, err := vol.GetInfo(); err != nil || info.Capacity != 5*gib {
			t.Errorf("its disk was made anew: %+v, %v", info, err)
		}
		return nil
	})
}

func TestPausedVMs(t *testing.T) {
	f := mockFleet(t, "hv-a")
	s := serverSpec("hv-a")
	m := machineOf(s)
	must(t, f.Define(t.Context(), s))
	must(t, f.Start(t.Context(), m))
	pause := func() {
		with(t, f, "hv-a", func(conn *libvirt.Connect) error {
			d, err := conn.LookupDomainByName(m.Name)
			if err != nil {
				return err
			}
			defer func() { _ = d.Free() }()
			return d.Suspend()
		})
		if got := only(t, f).Power; got != machine.Paused {
			t.Fatalf("paused, it is %s", got)
		}
	}
	pause()
	must(t, f.Start(t.Context(), m))
	if got := only(t, f).Power; got != machine.Running {
		t.Errorf("started, it is %s", got)
	}
	pause()
	_, err := f.Guest(m).Connected(t.Context())
	wantError(t, err, guestagent.ErrPaused)
	must(t, f.Stop(t.Context(), m, time.Hour)) // nobody is asked
	if got := only(t, f).Power; got != machine.Stopped {
		t.Errorf("stopped, it is %s", got)
	}
}

func TestForeignDomainsAreLeftAlone(t *testing.T) {
	other := serverSpec("hv-a").Record
	other.ClusterID, other.ClusterName = "another-id", "another"
	otherXML, err := recordMetadata(other)
	must(t, err)
	tests := map[string]struct {
		metadata string
		target   error
		words    []string
	}{
		"without a record":           {target: machine.ErrForeign, words: []string{"k8s-test-cp-1", "was not made by this provider"}},
		"with a record of another":   {metadata: otherXML.XML, words: []string{"belongs to another cluster", `"another"`, "another-id"}},
		"with an unreadable record":  {metadata: `<cockpit:node xmlns:cockpit="` + record.Namespace + `">{</cockpit:node>`, words: []string{"record"}},
		"with a newer record":        {metadata: `<cockpit:node xmlns:cockpit="` + record.Namespace + `">{"version":99}</cockpit:node>`, target: record.ErrNewer},
		"with somebody's else's XML": {metadata: `<x:node xmlns:x="https://example.com/x">{}</x:node>`, target: machine.ErrForeign},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := mockFleet(t, "hv-a")
			s := serverSpec("hv-a")
			addDomain(t, f, "hv-a", s.Name(), tt.metadata)
			var uuid string
			with(t, f, "hv-a", func(conn *libvirt.Connect) error {
				d, err := lookup(conn.LookupDomainByName(s.Name()))
				if err != nil {
					return err
				}
				defer d.free()
				uuid = d.uuid
				return nil
			})
			for _, m := range observe(t, f).Machines {
				if m.Record.ClusterID == clusterID {
					t.Errorf("observed %+v", m)
				}
			}
			_, problems, err := f.Check(t.Context(), machine.Request{Hypervisor: "hv-a", StoragePool: "vms", DiskGiB: 8, Names: []string{s.Name(), "free"}, ClusterID: clusterID})
			must(t, err)
			if len(problems) != 1 || problems[0].Field != machine.FieldName {
				t.Fatalf("problems %+v", problems)
			}
			wantError(t, problems[0].Err, tt.target, tt.words...)
			wantError(t, f.Define(t.Context(), s), tt.target, tt.words...)

			s.UUID = uuid // not even where the UUID is the same
			m := machineOf(s)
			for call, err := range map[string]error{
				"define": f.Define(t.Context(), s), "clone": f.CloneDisk(t.Context(), s), "start": f.Start(t.Context(), m),
				"record": f.SetRecord(t.Context(), m, s.Record), "stop": f.Stop(t.Context(), m, 0), "delete": f.Delete(t.Context(), m),
			} {
				if err == nil {
					t.Errorf("%s: no error", call)
				}
			}
			with(t, f, "hv-a", func(conn *libvirt.Connect) error {
				d, err := conn.LookupDomainByName(s.Name())
				if err != nil {
					return err
				}
				return d.Free()
			})
		})
	}
}

func TestDefineRefusesASecondVMOfOneName(t *testing.T) {
	f := mockFleet(t, "hv-a")
	s := serverSpec("hv-a")
	must(t, f.Define(t.Context(), s))
	s.UUID = "11111111-2222-3333-4444-555555555555"
	wantError(t, f.Define(t.Context(), s), nil, "taken by another VM of the same cluster", serverUUID)
}

func TestDefineNeedsOneNetwork(t *testing.T) {
	f := mockFleet(t, "hv-a")
	s := serverSpec("hv-a")
	s.Bridge = "br0"
	wantError(t, f.Define(t.Context(), s), nil, "either a network or a bridge")
}

func TestUnreachableIsNotGone(t *testing.T) {
	f := mockFleet(t, "hv-a")
	must(t, f.Define(t.Context(), serverSpec("hv-a")))
	const uri = "qemu+unix:///system?socket=/nonexistent/libvirt-sock"
	f.hosts["hv-b"] = newHost("hv-b", Config{URI: uri}, 1)
	o := observe(t, f)
	if len(o.Machines) != 1 || len(o.Unreachable) != 1 {
		t.Fatalf("observed %+v", o)
	}
	wantError(t, o.Unreachable["hv-b"], machine.ErrUnreachable, "qemu+unix:///system", "Failed to connect socket")
	for _, hypervisor := range []string{"hv-b", "hv-c"} {
		s := serverSpec(hypervisor)
		m := machineOf(s)
		_, _, checkErr := f.Check(t.Context(), machine.Request{Hypervisor: hypervisor})
		_, connectedErr := f.Guest(m).Connected(t.Context())
		_, _, describeErr := f.Describe(t.Context(), hypervisor, []string{s.UUID})
		for call, err := range map[string]error{
			"check": checkErr, "describe": describeErr, "define": f.Define(t.Context(), s), "clone": f.CloneDisk(t.Context(), s),
			"seed": f.WriteSeed(t.Context(), m, nil), "start": f.Start(t.Context(), m), "record": f.SetRecord(t.Context(), m, s.Record),
			"stop": f.Stop(t.Context(), m, time.Second), "delete": f.Delete(t.Context(), m), "connected": connectedErr,
			"ping": f.Guest(m).Ping(t.Context()),
		} {
			if !errors.Is(err, machine.ErrUnreachable) || errors.Is(err, machine.ErrNotFound) {
				t.Errorf("%s on %s: %v", call, hypervisor, err)
			}
		}
	}
}

func TestGuestWithoutAgent(t *testing.T) {
	f := mockFleet(t, "hv-a")
	s := serverSpec("hv-a")
	g := f.Guest(machineOf(s))
	_, err := g.Connected(t.Context())
	wantError(t, err, machine.ErrNotFound)
	wantError(t, g.Ping(t.Context()), machine.ErrNotFound)
	must(t, f.Define(t.Context(), s))
	_, err = g.Connected(t.Context())
	wantError(t, err, guestagent.ErrNotRunning)
}

func TestCancelledCallsDoNothing(t *testing.T) {
	f := mockFleet(t, "hv-a")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantError(t, f.Define(ctx, serverSpec("hv-a")), context.Canceled)
	if o := observe(t, f); len(o.Machines) != 0 {
		t.Errorf("observed %+v", o)
	}
}

// What is configured is compared with what stands in records, so that it must not depend on any hypervisor.
func TestTemplate(t *testing.T) {
	configured := TemplateRef{Hypervisor: "hv-a", Pool: "templates", Volume: "golden.qcow2", Shared: true}
	if got := New(nil, configured, 1).Template(); got != (record.Template{Pool: "templates", Volume: "golden.qcow2"}) {
		t.Errorf("got %+v", got)
	}
	if got := New(nil, TemplateRef{}, 1).Template(); got != (record.Template{}) {
		t.Errorf("without one, got %+v", got)
	}
	f := mockFleet(t, "hv-a")
	must(t, f.Define(t.Context(), serverSpec("hv-a")))
	if got := only(t, f).Record.Template; got != f.Template() {
		t.Errorf("a VM on the template's own hypervisor has %+v, configured is %+v", got, f.Template())
	}
}

func TestHypervisors(t *testing.T) {
	f := New(map[string]Config{
		"hv-b": {},
		"hv-a": {Schedulable: true, Overcommit: machine.Overcommit{CPU: 1.5, Disk: 2}},
	}, TemplateRef{}, 4)
	want := []machine.Hypervisor{
		{Name: "hv-a", Schedulable: true, Overcommit: machine.Overcommit{CPU: 1.5, Memory: 1, Disk: 2}},
		{Name: "hv-b", Overcommit: machine.Overcommit{CPU: 4, Memory: 1, Disk: 1}},
	}
	if got := f.Hypervisors(); !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}
