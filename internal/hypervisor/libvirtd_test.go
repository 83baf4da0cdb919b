package hypervisor

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/guestagent"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// uriVariable names the hypervisor of the tests below.
const uriVariable = "COCKPIT_TEST_LIBVIRT_URI"

// ground is a place on a real hypervisor: pools and a network of its own, which go away with the test.
type ground struct {
	*Fleet
	uri string
	// tag is in every name.
	tag, vms, templates, network string
}

// newGround makes a ground, or skips the test.
func newGround(t *testing.T) *ground {
	t.Helper()
	uri := os.Getenv(uriVariable)
	if uri == "" {
		t.Skipf("%s is not set: it takes the URI of a hypervisor where VMs, storage pools and networks may be made, such as one of the lab's", uriVariable)
	}
	b := make([]byte, 3)
	_, _ = rand.Read(b)
	g := &ground{uri: uri, tag: "ct" + hex.EncodeToString(b)}
	g.vms, g.templates, g.network = g.tag+"-vms", g.tag+"-templates", g.tag
	g.Fleet = g.fleet(t, uri)
	t.Cleanup(func() { wantNoLeak(t, g.Fleet) })
	with(t, g.Fleet, "hv-a", func(conn *libvirt.Connect) error {
		return errors.Join(addPool(t, conn, g.templates), addPool(t, conn, g.vms), addNetwork(t, conn, g.network))
	})
	addVolume(t, g.Fleet, "hv-a", g.templates, "golden.qcow2", gib)
	return g
}

// fleet makes a fleet of the one hypervisor, on another road to it where uri is.
func (g *ground) fleet(t *testing.T, uri string) *Fleet {
	t.Helper()
	f := New(map[string]Config{"hv-a": {URI: uri, VirtType: "qemu", Schedulable: true}},
		TemplateRef{Hypervisor: "hv-a", Pool: g.templates, Volume: "golden.qcow2"}, 4)
	t.Cleanup(func() { hangUp(f.hosts["hv-a"]) })
	return f
}

// spec is a small VM, which goes away with the test.
func (g *ground) spec(t *testing.T) machine.Spec {
	t.Helper()
	s := serverSpec("hv-a")
	s.UUID, s.Network = uuid.NewString(), g.network
	s.Record.ClusterName = g.tag
	s.Record.Shape = record.Shape{VCPUs: 1, MemoryMiB: 64, DiskGiB: 2, StoragePool: g.vms, Clone: record.Overlay}
	s.Record.Volumes = nil
	t.Cleanup(func() {
		if err := g.Delete(context.WithoutCancel(t.Context()), machineOf(s)); err != nil {
			t.Error(err)
		}
	})
	return s
}

// observed returns a VM as it is seen.
func (g *ground) observed(t *testing.T, uuid string) machine.Machine {
	t.Helper()
	o := observe(t, g.Fleet)
	i := slices.IndexFunc(o.Machines, func(m machine.Machine) bool { return m.UUID == uuid })
	if i < 0 {
		t.Fatalf("%s is not among %+v", uuid, o)
	}
	return o.Machines[i]
}

func addPool(t *testing.T, conn *libvirt.Connect, name string) error {
	t.Helper()
	def := libvirtxml.StoragePool{Type: "dir", Name: name, Target: &libvirtxml.StoragePoolTarget{Path: "/var/lib/libvirt/images/" + name}}
	text, err := def.Marshal()
	if err != nil {
		return err
	}
	p, err := conn.StoragePoolDefineXML(text, 0)
	if err != nil {
		return err
	}
	t.Cleanup(func() {
		if vol, err := p.LookupStorageVolByName("golden.qcow2"); err == nil {
			_ = vol.Delete(0)
			_ = vol.Free()
		}
		err := errors.Join(p.Destroy(), p.Delete(libvirt.STORAGE_POOL_DELETE_NORMAL), p.Undefine(), p.Free())
		if err != nil {
			t.Errorf("storage pool %s is not empty: %v", name, err)
		}
	})
	return errors.Join(p.Build(libvirt.STORAGE_POOL_BUILD_NEW), p.Create(0))
}

// addNetwork makes a network without any way out.
func addNetwork(t *testing.T, conn *libvirt.Connect, name string) error {
	t.Helper()
	def := libvirtxml.Network{Name: name, Bridge: &libvirtxml.NetworkBridge{Name: name}}
	text, err := def.Marshal()
	if err != nil {
		return err
	}
	n, err := conn.NetworkDefineXML(text)
	if err != nil {
		return err
	}
	t.Cleanup(func() {
		_ = n.Destroy()
		if err := errors.Join(n.Undefine(), n.Free()); err != nil {
			t.Error(err)
		}
	})
	return nil // inactive: it is started when it is needed
}

// inspect returns the definition and the content of a volume.
func (g *ground) inspect(t *testing.T, pool, name string) (def libvirtxml.StorageVolume, content []byte) {
	t.Helper()
	with(t, g.Fleet, "hv-a", func(conn *libvirt.Connect) error {
		p, err := g.hosts["hv-a"].pool(conn, pool)
		if err != nil {
			return err
		}
		defer p.free()
		vol, err := p.volume(t.Context(), name)
		if err != nil {
			return err
		}
		defer func() { _ = vol.Free() }()
		text, err := vol.GetXMLDesc(0)
		if err != nil {
			return err
		}
		if err := def.Unmarshal(text); err != nil {
			return err
		}
		content, err = download(conn, vol)
		return err
	})
	return def, content
}

func download(conn *libvirt.Connect, vol *libvirt.StorageVol) ([]byte, error) {
	stream, err := conn.NewStream(0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = stream.Free() }()
	if err := vol.Download(stream, 0, 0, 0); err != nil {
		return nil, err
	}
	var content []byte
	buffer := make([]byte, sendSize)
	for {
		n, err := stream.Recv(buffer)
		if errors.Is(err, io.EOF) {
			return content, stream.Finish()
		}
		if err != nil {
			return nil, err
		}
		content = append(content, buffer[:n]...)
	}
}

func TestLibvirtdLifeOfAVM(t *testing.T) {
	g := newGround(t)
	s := g.spec(t)
	m := machineOf(s)
	root, seed := machine.RootVolume(s.Name(), s.UUID), machine.SeedVolume(s.Name(), s.UUID)

	_, problems, err := g.Check(t.Context(), machine.Request{
		Hypervisor: "hv-a", StoragePool: g.vms, DiskGiB: 2, Network: g.network, Names: []string{s.Name()}, ClusterID: clusterID,
	})
	if err != nil || len(problems) != 0 {
		t.Fatalf("problems %+v, error %v", problems, err)
	}
	for range 2 {
		must(t, g.Define(t.Context(), s))
	}
	for range 2 {
		must(t, g.CloneDisk(t.Context(), s))
	}
	def, _ := g.inspect(t, g.vms, root)
	if def.Capacity.Value != 2*gib || def.Target.Format.Type != "qcow2" || def.Target.Permissions.Mode != "0600" {
		t.Errorf("the root volume is %+v, %+v", def.Capacity, def.Target)
	}
	if b := def.BackingStore; b == nil || b.Path != "/var/lib/libvirt/images/"+g.templates+"/golden.qcow2" || b.Format.Type != "qcow2" {
		t.Errorf("behind the root volume is %+v", b)
	}

	secret := bytes.Repeat([]byte("K10 token "), 10_000)
	must(t, g.WriteSeed(t.Context(), m, secret))
	def, content := g.inspect(t, g.vms, seed)
	if !bytes.Equal(content[:len(secret)], secret) || len(content) != seedSize || def.Target.Permissions.Mode != "0600" {
		t.Errorf("the seed has %d bytes and mode %s", len(content), def.Target.Permissions.Mode)
	}

	for range 2 {
		must(t, g.Start(t.Context(), m))
	}
	if got := g.observed(t, s.UUID); got.Power != machine.Running || got.MAC != s.MAC {
		t.Errorf("started, it is %+v", got)
	}
	guest := g.Guest(m)
	if connected, err := guest.Connected(t.Context()); connected || err != nil {
		t.Errorf("connected %t, %v", connected, err)
	}
	wantError(t, guest.Ping(t.Context()), guestagent.ErrNotConnected, "guest-ping")
	_, err = guest.ReadFile(t.Context(), "/etc/hostname")
	wantError(t, err, guestagent.ErrNotConnected)

	with(t, g.Fleet, "hv-a", func(conn *libvirt.Connect) error {
		d, err := conn.LookupDomainByUUIDString(s.UUID)
		if err != nil {
			return err
		}
		defer func() { _ = d.Free() }()
		return d.Suspend()
	})
	wantError(t, guest.Ping(t.Context()), guestagent.ErrPaused)
	must(t, g.Start(t.Context(), m))

	must(t, g.CloneDisk(t.Context(), s)) // it runs on that disk: nothing is made anew
	must(t, g.WriteSeed(t.Context(), m, []byte("no secret")))
	if _, content = g.inspect(t, g.vms, seed); bytes.Contains(content, []byte("token")) || !bytes.HasPrefix(content, []byte("no secret\x00")) || len(content) != seedSize {
		t.Errorf("the seed that was written over has %d bytes, and begins with %q", len(content), content[:16])
	}

	r := s.Record
	r.Phase = record.Joined
	must(t, g.SetRecord(t.Context(), m, r))
	must(t, g.Stop(t.Context(), m, 2*time.Second)) // nothing in there hears the question
	got := g.observed(t, s.UUID)
	if got.Power != machine.Stopped || got.Record.Phase != record.Joined || got.Record.Template.Volume != "golden.qcow2" {
		t.Errorf("stopped, it is %+v", got)
	}
	wantError(t, guest.Ping(t.Context()), guestagent.ErrNotRunning)
	for range 2 {
		must(t, g.Delete(t.Context(), m))
	}
	if left := volumes(t, g.Fleet, "hv-a", g.vms); len(left) != 0 {
		t.Errorf("volumes %q are left", left)
	}
}

func TestLibvirtdFullClone(t *testing.T) {
	g := newGround(t)
	s := g.spec(t)
	s.Record.Shape.Clone = record.Full
	must(t, g.Define(t.Context(), s))
	for range 2 {
		must(t, g.CloneDisk(t.Context(), s))
	}
	def, _ := g.inspect(t, g.vms, machine.RootVolume(s.Name(), s.UUID))
	if def.Capacity.Value != 2*gib || def.BackingStore != nil || def.Target.Format.Type != "qcow2" {
		t.Errorf("the root volume is %+v, %+v behind it", def.Capacity, def.BackingStore)
	}
}

// What backup tools leave on a VM must not keep it from being deleted.
func TestLibvirtdDeleteRunning(t *testing.T) {
	snapshot := func(d *libvirt.Domain) error {
		made, err := d.CreateSnapshotXML(`<domainsnapshot><disks><disk name="vdb" snapshot="no"/></disks></domainsnapshot>`, 0)
		if err != nil {
			return err
		}
		return made.Free()
	}
	checkpoint := func(name string) func(d *libvirt.Domain) error {
		def := libvirtxml.DomainCheckpoint{Name: name, Disks: &libvirtxml.DomainCheckpointDisks{
			Disks: []libvirtxml.DomainCheckpointDisk{{Name: "vda", Checkpoint: "bitmap"}},
		}}
		return func(d *libvirt.Domain) error {
			text, err := def.Marshal()
			if err != nil {
				return err
			}
			made, err := d.CreateCheckpointXML(text, 0)
			if err != nil {
				return err
			}
			return made.Free()
		}
	}
	save := func(d *libvirt.Domain) error { return d.ManagedSave(0) }
	for name, leave := range map[string][]func(*libvirt.Domain) error{
		"checkpoints":              {checkpoint("a"), checkpoint("b"), checkpoint("c")},
		"snapshot and saved state": {snapshot, save},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGround(t)
			s := g.spec(t)
			m := machineOf(s)
			must(t, g.Define(t.Context(), s))
			must(t, g.CloneDisk(t.Context(), s))
			must(t, g.WriteSeed(t.Context(), m, nil))
			must(t, g.Start(t.Context(), m))
			with(t, g.Fleet, "hv-a", func(conn *libvirt.Connect) error {
				d, err := lookup(conn.LookupDomainByUUIDString(s.UUID))
				if err != nil {
					return err
				}
				defer d.free()
				for i, f := range leave {
					if err := f(d.Domain); err != nil {
						return fmt.Errorf("%d: %w", i, err)
					}
				}
				return nil
			})
			must(t, g.Delete(t.Context(), m))
			if left := volumes(t, g.Fleet, "hv-a", g.vms); len(left) != 0 {
				t.Errorf("volumes %q are left", left)
			}
		})
	}
}

func TestLibvirtdStartWithoutDisk(t *testing.T) {
	g := newGround(t)
	s := g.spec(t)
	must(t, g.Define(t.Context(), s))
	wantError(t, g.Start(t.Context(), machineOf(s)), nil, "start the VM", "No such file", s.Name())
}

// snapshot puts an external snapshot of a VM's root disk over it, into a file of that name in the pool's directory, and
// returns the file's path. What is done with the snapshot then is the caller's.
func (g *ground) snapshot(t *testing.T, uuid, name string, then func(*libvirt.DomainSnapshot) error) string {
	t.Helper()
	file := "/var/lib/libvirt/images/" + g.vms + "/" + name
	snapshot := libvirtxml.DomainSnapshot{Name: "s", Disks: &libvirtxml.DomainSnapshotDisks{Disks: []libvirtxml.DomainSnapshotDisk{
		{Name: "vda", Snapshot: "external", Source: &libvirtxml.DomainDiskSource{File: &libvirtxml.DomainDiskSourceFile{File: file}}},
		{Name: "vdb", Snapshot: "no"},
	}}}
	text, err := snapshot.Marshal()
	must(t, err)
	with(t, g.Fleet, "hv-a", func(conn *libvirt.Connect) error {
		d, err := conn.LookupDomainByUUIDString(uuid)
		if err != nil {
			return err
		}
		defer func() { _ = d.Free() }()
		made, err := d.CreateSnapshotXML(text, libvirt.DOMAIN_SNAPSHOT_CREATE_DISK_ONLY)
		if err != nil {
			return err
		}
		return errors.Join(then(made), made.Free())
	})
	return file
}

func TestLibvirtdTemplateInAStalePool(t *testing.T) {
	g := newGround(t)
	s := g.spec(t)
	must(t, g.Define(t.Context(), s))
	must(t, g.CloneDisk(t.Context(), s))
	// A snapshot makes a file in the pool's directory that the pool does not know of.
	g.snapshot(t, s.UUID, "newer.qcow2", func(made *libvirt.DomainSnapshot) error {
		return made.Delete(libvirt.DOMAIN_SNAPSHOT_DELETE_METADATA_ONLY)
	})
	if slices.Contains(volumes(t, g.Fleet, "hv-a", g.vms), "newer.qcow2") {
		t.Fatal("the pool knows the file")
	}
	g.template.Volume = "newer.qcow2"
	_, problems, err := g.Check(t.Context(), machine.Request{Hypervisor: "hv-a", StoragePool: g.vms, DiskGiB: 2})
	if err != nil || len(problems) != 0 {
		t.Errorf("problems %+v, error %v", problems, err)
	}
	with(t, g.Fleet, "hv-a", func(conn *libvirt.Connect) error {
		return g.hosts["hv-a"].removeVolume(t.Context(), conn, record.Volume{Pool: g.vms, Name: "newer.qcow2"})
	})
}

func TestLibvirtdInactivePool(t *testing.T) {
	g := newGround(t)
	with(t, g.Fleet, "hv-a", func(conn *libvirt.Connect) error {
		p, err := conn.LookupStoragePoolByName(g.templates)
		if err != nil {
			return err
		}
		return errors.Join(p.Destroy(), p.Free())
	})
	_, problems, err := g.Check(t.Context(), machine.Request{Hypervisor: "hv-a", StoragePool: g.vms, DiskGiB: 2})
	if err != nil || len(problems) != 0 {
		t.Errorf("problems %+v, error %v", problems, err)
	}
}

func TestLibvirtdVirtType(t *testing.T) {
	g := newGround(t)
	with(t, g.Fleet, "hv-a", func(conn *libvirt.Connect) error {
		for wish, want := range map[string][]string{"": {"kvm", "qemu"}, "qemu": {"qemu"}} {
			got, err := newHost("hv-a", Config{VirtType: wish}, 1).domainType(conn)
			if err != nil || !slices.Contains(want, got) {
				t.Errorf("%q: got %q, %v", wish, got, err)
			}
		}
		return nil
	})
}

func TestLibvirtdManyAtOnce(t *testing.T) {
	g := newGround(t)
	done := make(chan error)
	const n = 8
	for i := range n {
		s := g.spec(t)
		s.Record.Ordinal = i + 1
		m := machineOf(s)
		t.Cleanup(func() { must(t, g.Delete(context.WithoutCancel(t.Context()), m)) })
		go func() {
			done <- func() error {
				if err := g.Define(t.Context(), s); err != nil {
					return err
				}
				if err := g.CloneDisk(t.Context(), s); err != nil {
					return err
				}
				if o := observe(t, g.Fleet); len(o.Unreachable) > 0 {
					return o.Unreachable["hv-a"]
				}
				if err := g.WriteSeed(t.Context(), m, []byte(m.Name)); err != nil {
					return err
				}
				if i%2 == 0 {
					return g.Delete(t.Context(), m)
				}
				return nil
			}()
		}()
	}
	for range n {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if got := volumes(t, g.Fleet, "hv-a", g.vms); len(got) != n {
		t.Errorf("volumes %q", got)
	}
	own := 0
	for _, m := range observe(t, g.Fleet).Machines {
		if strings.HasPrefix(m.Name, g.tag) {
			own++
		}
	}
	if own != n/2 {
		t.Errorf("%d VMs, want %d", own, n/2)
	}
}
