package hypervisor

import (
	"fmt"
	"strings"
	"testing"

	"libvirt.org/go/libvirt"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// addOverlay makes a volume with another file behind it.
func addOverlay(t *testing.T, f *Fleet, hypervisor, pool, name, behind string) {
	t.Helper()
	with(t, f, hypervisor, func(conn *libvirt.Connect) error {
		p, err := f.hosts[hypervisor].pool(conn, pool)
		if err != nil {
			return err
		}
		defer p.free()
		return p.overlay(t.Context(), name, privateMode, &template{path: p.path + "/" + behind, image: image{format: "qcow2"}}, 4*gib)
	})
}

// addAllocated makes a volume of 4 GiB that takes so many bytes.
func addAllocated(t *testing.T, f *Fleet, hypervisor, pool, name string, bytes uint64) {
	t.Helper()
	with(t, f, hypervisor, func(conn *libvirt.Connect) error {
		p, err := f.hosts[hypervisor].pool(conn, pool)
		if err != nil {
			return err
		}
		defer p.free()
		vol, err := p.StorageVolCreateXML(fmt.Sprintf(`<volume><name>%s</name><capacity unit="GiB">4</capacity><allocation>%d</allocation>
			<target><format type="qcow2"/></target></volume>`, name, bytes), 0)
		if err != nil {
			return err
		}
		return vol.Free()
	})
}

// addNFS makes a pool of network storage.
func addNFS(t *testing.T, f *Fleet, hypervisor, name, host, dir string) {
	t.Helper()
	with(t, f, hypervisor, func(conn *libvirt.Connect) error {
		p, err := conn.StoragePoolDefineXML(fmt.Sprintf(`<pool type="netfs"><name>%s</name><source><host name="%s"/><dir path="%s"/></source>
			<target><path>/mnt/%[1]s</path></target></pool>`, name, host, dir), 0)
		if err != nil {
			return err
		}
		defer func() { _ = p.Free() }()
		return p.Create(0)
	})
}

// silence makes a hypervisor one that cannot be reached.
func silence(f *Fleet, hypervisor string) {
	hangUp(f.hosts[hypervisor])
	f.hosts[hypervisor] = newHost(hypervisor, Config{URI: "qemu+unix:///system?socket=/nonexistent/libvirt-sock"}, 1)
}

// find looks for the template of the VMs in a pool.
func find(t *testing.T, f *Fleet, hypervisor, pool string) (c choice, err error) {
	t.Helper()
	with(t, f, hypervisor, func(conn *libvirt.Connect) error {
		p, failed := f.hosts[hypervisor].pool(conn, pool)
		if failed != nil {
			return failed
		}
		defer p.free()
		c, err = f.findTemplate(t.Context(), f.hosts[hypervisor], conn, p)
		return nil
	})
	return c, err
}

func TestFindTemplate(t *testing.T) {
	// The test driver knows neither sizes nor times of files.
	key := cacheKey{"golden.qcow2", image{}.identity("golden.qcow2")}
	older := cacheKey{"golden.qcow2", "0123456789ab"}
	in := func(pool, volume string) record.Template { return record.Template{Pool: pool, Volume: volume} }
	golden := func(pool string) record.Template { return in(pool, "golden.qcow2") }
	copied := func(t *testing.T, f *Fleet, k cacheKey) {
		addVolume(t, f, "hv-b", "vms", k.data(1), 4*gib)
		addOverlay(t, f, "hv-b", "vms", k.entry(), k.data(1))
	}
	tests := map[string]struct {
		// on and pool are where the template is wanted.
		on, pool string
		given    func(t *testing.T, f *Fleet)
		want     record.Template
		missing  bool
		target   error
		words    []string
	}{
		"on its own hypervisor":         {on: "hv-a", pool: "vms", want: golden("templates")},
		"in its own pool":               {on: "hv-a", pool: "templates", want: golden("templates")},
		"on another, never copied":      {on: "hv-b", pool: "vms", want: in("vms", key.entry()), missing: true},
		"in the other's pool of a name": {on: "hv-b", pool: "templates", want: in("templates", key.entry()), missing: true},
		"put there by the user": {on: "hv-b", pool: "vms", want: golden("vms"), given: func(t *testing.T, f *Fleet) {
			addVolume(t, f, "hv-b", "vms", "golden.qcow2", 4*gib)
			copied(t, f, key)
		}},
		"put there, and its hypervisor is silent": {on: "hv-b", pool: "vms", want: golden("vms"), given: func(t *testing.T, f *Fleet) {
			addVolume(t, f, "hv-b", "vms", "golden.qcow2", 4*gib)
			silence(f, "hv-a")
		}},
		"in a shared pool": {on: "hv-b", pool: "vms", want: golden("templates"), given: func(t *testing.T, f *Fleet) {
			f.template.Shared = true
			addVolume(t, f, "hv-b", "templates", "golden.qcow2", 4*gib)
			silence(f, "hv-a")
		}},
		"in a pool that is not shared after all": {on: "hv-b", pool: "vms", want: in("vms", key.entry()), missing: true, given: func(_ *testing.T, f *Fleet) {
			f.template.Shared = true
		}},
		"in the same network storage": {on: "hv-b", pool: "vms", want: golden("nfs"), given: func(t *testing.T, f *Fleet) {
			f.template.Pool = "nfs"
			addNFS(t, f, "hv-a", "nfs", "nas.example", "/export/images")
			addNFS(t, f, "hv-b", "nfs", "NAS.example", "/export/images/")
			addVolume(t, f, "hv-a", "nfs", "golden.qcow2", 4*gib)
			addVolume(t, f, "hv-b", "nfs", "golden.qcow2", 4*gib)
		}},
		"in other network storage": {on: "hv-b", pool: "vms", want: in("vms", key.entry()), missing: true, given: func(t *testing.T, f *Fleet) {
			f.template.Pool = "nfs"
			addNFS(t, f, "hv-a", "nfs", "nas.example", "/export/images")
			addNFS(t, f, "hv-b", "nfs", "nas.example", "/export/old")
			addVolume(t, f, "hv-a", "nfs", "golden.qcow2", 4*gib)
			addVolume(t, f, "hv-b", "nfs", "golden.qcow2", 4*gib)
		}},
		"in network storage, and its hypervisor is silent": {on: "hv-b", pool: "vms", want: golden("nfs"), given: func(t *testing.T, f *Fleet) {
			f.template.Pool = "nfs"
			addNFS(t, f, "hv-b", "nfs", "nas.example", "/export/images")
			addVolume(t, f, "hv-b", "nfs", "golden.qcow2", 4*gib)
			silence(f, "hv-a")
		}},
		"copied": {on: "hv-b", pool: "vms", want: in("vms", key.entry()), given: func(t *testing.T, f *Fleet) { copied(t, f, key); copied(t, f, older) }},
		"copied, and it has changed since": {on: "hv-b", pool: "vms", want: in("vms", key.entry()), missing: true, given: func(t *testing.T, f *Fleet) {
			copied(t, f, older)
		}},
		"copied, and the data is gone": {on: "hv-b", pool: "vms", want: in("vms", key.entry()), missing: true, given: func(t *testing.T, f *Fleet) {
			addOverlay(t, f, "hv-b", "vms", key.entry(), key.data(1))
		}},
		"a stranger under the name of a copy": {on: "hv-b", pool: "vms", want: in("vms", key.entry()), missing: true, given: func(t *testing.T, f *Fleet) {
			addOverlay(t, f, "hv-b", "vms", key.entry(), older.data(1))
			addVolume(t, f, "hv-b", "vms", older.data(1), 4*gib)
		}},
		"copied, and its hypervisor is silent": {on: "hv-b", pool: "vms", want: in("vms", older.entry()), given: func(t *testing.T, f *Fleet) {
			copied(t, f, older)
			addOverlay(t, f, "hv-b", "vms", key.entry(), key.data(1)) // half of a copy
			silence(f, "hv-a")
		}},
		"copied twice, and its hypervisor is silent": {on: "hv-b", pool: "vms", target: machine.ErrUnreachable, given: func(t *testing.T, f *Fleet) {
			copied(t, f, key)
			copied(t, f, older)
			silence(f, "hv-a")
		}},
		"its hypervisor is silent": {on: "hv-b", pool: "vms", target: machine.ErrUnreachable, given: func(_ *testing.T, f *Fleet) { silence(f, "hv-a") },
			words: []string{`template "golden.qcow2": its hypervisor "hv-a" cannot be asked`, `storage pool "vms" of hypervisor "hv-b"`, "Failed to connect socket"}},
		"its hypervisor is not configured": {on: "hv-b", pool: "vms", target: machine.ErrUnreachable, given: func(_ *testing.T, f *Fleet) {
			f.template.Hypervisor = "hv-z"
		}, words: []string{"configuration does not name it"}},
		"it is nowhere": {on: "hv-b", pool: "vms", target: machine.ErrNotFound, given: func(_ *testing.T, f *Fleet) { f.template.Volume = "g.qcow2" },
			words: []string{`template "g.qcow2": not found in storage pool "templates" of hypervisor "hv-a"; upload`}},
		"its own hypervisor lacks it": {on: "hv-a", pool: "vms", target: machine.ErrNotFound, given: func(_ *testing.T, f *Fleet) { f.template.Volume = "g.qcow2" },
			words: []string{`template "g.qcow2": not found in storage pool "templates"; upload`}},
		"its own hypervisor lacks it, but the target has it": {on: "hv-a", pool: "vms", want: in("vms", "g.qcow2"), given: func(t *testing.T, f *Fleet) {
			f.template.Volume = "g.qcow2"
			addVolume(t, f, "hv-a", "vms", "g.qcow2", gib)
		}},
		"its pool is nowhere": {on: "hv-b", pool: "vms", target: machine.ErrNotFound, given: func(_ *testing.T, f *Fleet) { f.template.Pool = "images" },
			words: []string{`on hypervisor "hv-a", the template's storage pool "images": not found; there are: data, lvm, templates, vms`}},
		"its own hypervisor lacks its pool": {on: "hv-a", pool: "vms", target: machine.ErrNotFound, given: func(_ *testing.T, f *Fleet) { f.template.Pool = "images" },
			words: []string{`the template's storage pool "images": not found; there are: data, lvm, templates, vms`}},
		"it depends on another file": {on: "hv-b", pool: "vms", given: func(t *testing.T, f *Fleet) {
			f.template.Volume = "g.qcow2"
			addOverlay(t, f, "hv-a", "templates", "g.qcow2", "golden.qcow2")
		}, words: []string{`template "g.qcow2"`, "/srv/templates/golden.qcow2", "self-contained"}},
		"there is none": {on: "hv-a", pool: "vms", given: func(_ *testing.T, f *Fleet) { f.template = TemplateRef{} },
			words: []string{"names no template"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := mockFleet(t, "hv-a", "hv-b")
			if tt.given != nil {
				tt.given(t, f)
			}
			c, err := find(t, f, tt.on, tt.pool)
			if tt.target != nil || tt.words != nil {
				wantError(t, err, tt.target, tt.words...)
				return
			}
			must(t, err)
			if c.ref != tt.want || c.missing != tt.missing {
				t.Errorf("the template is %+v, missing: %t", c.ref, c.missing)
			}
		})
	}
}

func TestSites(t *testing.T) {
	const gibs = 1024
	// The template takes 3 GiB and a byte of the 100 GiB that pools have with the test driver.
	const allocated = 3*gib + 1
	tests := map[string]struct {
		on, pool string
		given    func(t *testing.T, f *Fleet)
		want     machine.Site
	}{
		"the template is there": {on: "hv-a", pool: "vms", want: machine.Site{Store: "hv-a/vms", FreeMiB: 100 * gibs}},
		"it has to be copied":   {on: "hv-b", pool: "vms", want: machine.Site{Store: "hv-b/vms", FreeMiB: 100 * gibs, CopyMiB: 3*gibs + 1}},
		"the template's pool":   {on: "hv-a", pool: "templates", want: machine.Site{Store: "hv-a/templates", FreeMiB: 97*gibs - 1}},
		"the same, shared": {on: "hv-b", pool: "templates", want: machine.Site{Store: "hv-a/templates", FreeMiB: 97*gibs - 1}, given: func(t *testing.T, f *Fleet) {
			f.template.Shared = true
			addAllocated(t, f, "hv-b", "templates", "big.qcow2", allocated)
		}},
		"network storage": {on: "hv-b", pool: "nfs", want: machine.Site{Store: "nas.example:/export", FreeMiB: 100 * gibs, CopyMiB: 3*gibs + 1}, given: func(t *testing.T, f *Fleet) {
			addNFS(t, f, "hv-b", "nfs", "nas.example", "/export")
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := mockFleet(t, "hv-a", "hv-b")
			f.template.Volume = "big.qcow2"
			addAllocated(t, f, "hv-a", "templates", "big.qcow2", allocated)
			if tt.given != nil {
				tt.given(t, f)
			}
			site, problems, err := f.Check(t.Context(), machine.Request{Hypervisor: tt.on, StoragePool: tt.pool, DiskGiB: 4})
			must(t, err)
			if site != tt.want || len(problems) != 0 {
				t.Errorf("the site is %+v, with problems %+v", site, problems)
			}
		})
	}
}

// A plan must be able to tell a template that nobody can be asked for from one that is not there.
func TestCheckWithoutTheTemplatesHypervisor(t *testing.T) {
	f := mockFleet(t, "hv-a", "hv-b")
	silence(f, "hv-a")
	site, problems, err := f.Check(t.Context(), machine.Request{Hypervisor: "hv-b", StoragePool: "vms", DiskGiB: 4})
	must(t, err)
	if len(problems) != 1 || problems[0].Field != machine.FieldTemplate || site.Store != "hv-b/vms" {
		t.Fatalf("site %+v, problems %+v", site, problems)
	}
	wantError(t, problems[0].Err, machine.ErrUnreachable)
}

// The test driver has no streams: what a copy that failed leaves can be seen with it, and no more.
func TestFailedCopyLeavesNothing(t *testing.T) {
	f := mockFleet(t, "hv-a", "hv-b")
	s := serverSpec("hv-b")
	must(t, f.Define(t.Context(), s))
	if r := only(t, f).Record.Template; r.Pool != "vms" || !strings.HasPrefix(r.Volume, "cockpit-golden.qcow2-") {
		t.Errorf("the record's template is %+v", r)
	}
	wantError(t, f.CloneDisk(t.Context(), s), nil, "make the disks", `read the template "golden.qcow2" in storage pool "templates" of hypervisor "hv-a"`)
	if left := volumes(t, f, "hv-b", "vms"); len(left) != 0 {
		t.Errorf("volumes %q are left", left)
	}
}
