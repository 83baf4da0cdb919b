package hypervisor

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// secondURIVariable names a second hypervisor that shares the directories of this machine with the first. Only tests of
// what two daemons do in one directory need it.
const secondURIVariable = "COCKPIT_TEST_LIBVIRT_SECOND_URI"

// way is a ground where the template stands on hv-a and VMs on hv-b: one daemon under two names, with a proxy before each.
type way struct {
	*ground
	source, target *proxy
	// far is the fleet of both.
	far *Fleet
	// content is what the template's file has besides its qcow2 header.
	content []byte
}

const (
	// contentAt is where the content begins, and contentSize its size.
	contentAt   = 1 << 20
	contentSize = 16 << 20
)

func newWay(t *testing.T) *way {
	t.Helper()
	w := &way{ground: newGround(t)}
	t.Cleanup(func() { w.clean(t) })
	w.change(t)
	w.source, w.target, w.far = w.another(t)
	return w
}

// another is what another process has: connections of its own.
func (w *way) another(t *testing.T) (source, target *proxy, far *Fleet) {
	t.Helper()
	source, sourceURI := interpose(t, w.uri)
	target, targetURI := interpose(t, w.uri)
	far = New(map[string]Config{
		"hv-a": {URI: sourceURI, VirtType: "qemu", Schedulable: true},
		"hv-b": {URI: targetURI, VirtType: "qemu", Schedulable: true},
	}, w.template, 4)
	far.stall = time.Second
	t.Cleanup(func() { wantNoLeak(t, far) })
	return source, target, far
}

// change gives the template another content.
func (w *way) change(t *testing.T) {
	t.Helper()
	w.content = make([]byte, contentSize)
	_, _ = rand.Read(w.content)
	w.put(t, w.templates, w.template.Volume, contentAt, w.content)
}

// put writes into a volume.
func (w *way) put(t *testing.T, in, name string, offset uint64, content []byte) {
	t.Helper()
	w.pool(t, in, func(conn *libvirt.Connect, p *pool) error {
		vol, err := p.volume(t.Context(), name)
		if err != nil {
			return err
		}
		defer func() { _ = vol.Free() }()
		stream, err := conn.NewStream(0)
		if err != nil {
			return err
		}
		defer func() { _ = stream.Free() }()
		if err := vol.Upload(stream, offset, uint64(len(content)), 0); err != nil {
			return err
		}
		return errors.Join(send(t.Context(), stream, content), stream.Finish())
	})
}

// pool calls fn with a pool.
func (w *way) pool(t *testing.T, name string, fn func(*libvirt.Connect, *pool) error) {
	t.Helper()
	with(t, w.Fleet, "hv-a", func(conn *libvirt.Connect) error {
		p, err := w.hosts["hv-a"].pool(conn, name)
		if err != nil {
			return err
		}
		defer p.free()
		return fn(conn, p)
	})
}

// clean removes the cache and the templates.
func (w *way) clean(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	for _, name := range []string{w.vms, w.templates} {
		var names []string
		must(t, w.hosts["hv-a"].do(ctx, func(conn *libvirt.Connect) error {
			p, err := w.hosts["hv-a"].pool(conn, name)
			if err != nil {
				return err
			}
			defer p.free()
			names, err = p.ListStorageVolumes()
			return err
		}))
		for _, volume := range names {
			if _, ok := parseCached(volume); ok || strings.HasPrefix(volume, "golden") {
				w.remove(t, name, volume)
			}
		}
	}
}

func (w *way) remove(t *testing.T, from, name string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // the test may have ended
	must(t, w.hosts["hv-a"].do(ctx, func(conn *libvirt.Connect) error {
		return w.hosts["hv-a"].removeVolume(ctx, conn, record.Volume{Pool: from, Name: name})
	}))
}

// node is a VM on hv-b.
func (w *way) node(t *testing.T, ordinal int) machine.Spec {
	t.Helper()
	s := w.spec(t)
	s.Record.Ordinal = ordinal
	m := machineOf(s)
	t.Cleanup(func() { must(t, w.Delete(context.WithoutCancel(t.Context()), m)) })
	s.Hypervisor = "hv-b"
	return s
}

// clone makes a VM on hv-b with its disk.
func clone(ctx context.Context, far *Fleet, s machine.Spec) error {
	if err := far.Define(ctx, s); err != nil {
		return err
	}
	return far.CloneDisk(ctx, s)
}

// cached lists the cache.
func (w *way) cached(t *testing.T) (names []string) {
	t.Helper()
	for _, name := range volumes(t, w.Fleet, "hv-a", w.vms) {
		if _, ok := parseCached(name); ok {
			names = append(names, name)
		}
	}
	return names
}

// wantCopies makes sure that the cache is these copies, each complete, and returns their keys.
func (w *way) wantCopies(t *testing.T, n int) (keys []cacheKey) {
	t.Helper()
	names := w.cached(t)
	for _, name := range names {
		if c, _ := parseCached(name); c.n == 0 {
			keys = append(keys, c.cacheKey)
		}
	}
	if len(keys) != n || len(names) != 2*n {
		t.Fatalf("the cache has %q, want %d copies", names, n)
	}
	return keys
}

// wantContent makes sure that the data of a copy is the template.
func (w *way) wantContent(t *testing.T, data string) (def libvirtxml.StorageVolume) {
	t.Helper()
	_, want := w.inspect(t, w.templates, w.template.Volume)
	def, got := w.inspect(t, w.vms, data)
	if !bytes.Equal(got, want) {
		t.Errorf("the copy has %d bytes, the template %d, and they differ", len(got), len(want))
	}
	return def
}

// templateOf is what the record of a VM names.
func (w *way) templateOf(t *testing.T, s machine.Spec) record.Template {
	t.Helper()
	return w.observed(t, s.UUID).Record.Template
}

func TestLibvirtdCopy(t *testing.T) {
	w := newWay(t)
	request := machine.Request{Hypervisor: "hv-b", StoragePool: w.vms, DiskGiB: 2}
	site, problems, err := w.far.Check(t.Context(), request)
	if err != nil || len(problems) != 0 || site.CopyMiB < contentSize/mib || site.CopyMiB > contentSize/mib+1 || site.FreeMiB == 0 {
		t.Fatalf("site %+v, problems %+v, error %v", site, problems, err)
	}
	overlay, full := w.node(t, 1), w.node(t, 2)
	full.Record.Shape.Clone = record.Full
	must(t, clone(t.Context(), w.far, overlay))
	key := w.wantCopies(t, 1)[0]
	must(t, clone(t.Context(), w.far, full))
	if got := w.source.count()[procVolDownload]; got != 1 {
		t.Errorf("the template was copied %d times", got)
	}
	await(t, "end of the copy's connections", func() bool { return w.source.connections() <= 1 && w.target.connections() <= 1 })
	if got := w.wantContent(t, key.data(1)); got.Target.Format.Type != "qcow2" || got.Capacity.Value != gib || got.BackingStore != nil {
		t.Errorf("the copy is %+v with capacity %+v", got.Target, got.Capacity)
	}
	dir := "/var/lib/libvirt/images/" + w.vms + "/"
	for name, behind := range map[string]string{key.entry(): key.data(1), machine.RootVolume(overlay.Name(), overlay.UUID): key.entry()} {
		def, _ := w.inspect(t, w.vms, name)
		if b := def.BackingStore; b == nil || b.Path != dir+behind || b.Format.Type != "qcow2" {
			t.Errorf("behind %s is %+v", name, b)
		}
	}
	if def, _ := w.inspect(t, w.vms, machine.RootVolume(full.Name(), full.UUID)); def.BackingStore != nil || def.Capacity.Value != 2*gib {
		t.Errorf("the full clone is %+v, %+v behind it", def.Capacity, def.BackingStore)
	}
	if got := w.templateOf(t, overlay); got != (record.Template{Pool: w.vms, Volume: key.entry()}) {
		t.Errorf("the record's template is %+v", got)
	}
	if site, _, err := w.far.Check(t.Context(), request); err != nil || site.CopyMiB != 0 {
		t.Errorf("copied, the site is %+v, error %v", site, err)
	}
	must(t, w.far.WriteSeed(t.Context(), machineOf(overlay), nil))
	must(t, w.far.Start(t.Context(), machineOf(overlay))) // QEMU takes the chain
}

func TestLibvirtdCopyIsMadeOnce(t *testing.T) {
	w := newWay(t)
	otherSource, _, other := w.another(t)
	const n = 4
	done := make(chan error)
	for i := range n {
		for j, far := range []*Fleet{w.far, other} {
			s := w.node(t, 2*i+j+1)
			go func() { done <- clone(t.Context(), far, s) }()
		}
	}
	for range 2 * n {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	key := w.wantCopies(t, 1)[0]
	w.wantContent(t, key.data(1))
	if got := w.source.count()[procVolDownload] + otherSource.count()[procVolDownload]; got != 1 {
		t.Errorf("the template was copied %d times", got)
	}
}

func TestLibvirtdCopyIsCut(t *testing.T) {
	for name, end := range map[string]func(*way) *proxy{
		"where it is read":    func(w *way) *proxy { return w.source },
		"where it is written": func(w *way) *proxy { return w.target },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWay(t)
			s := w.node(t, 1)
			end(w).stop(contentSize*6/10, nil)
			wantError(t, clone(t.Context(), w.far, s), machine.ErrUnreachable, "make the disks", "the connection broke")
			if left := volumes(t, w.Fleet, "hv-a", w.vms); len(left) != 0 {
				t.Errorf("volumes %q are left", left)
			}
			end(w).stop(0, nil)
			must(t, clone(t.Context(), w.far, s))
			w.wantContent(t, w.wantCopies(t, 1)[0].data(1))
		})
	}
}

// The process that copied was killed, or its hypervisor could not be told to remove what it had.
func TestLibvirtdAbandonedCopy(t *testing.T) {
	w := newWay(t)
	s := w.node(t, 1)
	must(t, w.far.Define(t.Context(), s))
	c, ok := parseCached(w.templateOf(t, s).Volume)
	if !ok {
		t.Fatalf("the record's template is %+v", w.templateOf(t, s))
	}
	addVolume(t, w.Fleet, "hv-a", w.vms, c.data(1), gib)
	must(t, w.far.CloneDisk(t.Context(), s))
	if got, want := w.cached(t), []string{c.entry(), c.data(2)}; !slices.Equal(got, want) {
		t.Errorf("the cache has %q, want %q", got, want)
	}
	w.wantContent(t, c.data(2))
}

// A copy that stood still is taken for abandoned while its process lives.
func TestLibvirtdCopyIsOvertaken(t *testing.T) {
	w := newWay(t)
	_, _, other := w.another(t)
	slow, fast := w.node(t, 1), w.node(t, 2)
	release := make(chan struct{})
	w.source.stop(contentSize/2, release)
	done := make(chan error, 1)
	go func() { done <- clone(t.Context(), w.far, slow) }()
	await(t, "begin of the copy", func() bool { return len(w.cached(t)) > 0 || len(done) > 0 })
	must(t, clone(t.Context(), other, fast))
	close(release)
	must(t, <-done)
	key := w.wantCopies(t, 1)[0]
	w.wantContent(t, key.data(2))
}

func TestLibvirtdCopyIsCancelled(t *testing.T) {
	w := newWay(t)
	s := w.node(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	release := make(chan struct{})
	w.source.stop(contentSize/2, release)
	done := make(chan error, 1)
	go func() { done <- clone(ctx, w.far, s) }()
	await(t, "begin of the copy", func() bool { return len(w.cached(t)) > 0 || len(done) > 0 })
	cancel() // nothing comes from the hypervisor any more, and still
	wantError(t, <-done, context.Canceled, "make the disks")
	close(release)
	await(t, "removal of the copy, once the hypervisor answers", func() bool { return len(w.cached(t)) == 0 })
	w.source.stop(0, nil)
	must(t, clone(t.Context(), w.far, s))
	w.wantCopies(t, 1)
}

func TestLibvirtdChangedTemplate(t *testing.T) {
	w := newWay(t)
	first, second, third := w.node(t, 1), w.node(t, 2), w.node(t, 3)
	must(t, clone(t.Context(), w.far, first))
	before := w.wantCopies(t, 1)[0]

	w.change(t)
	must(t, clone(t.Context(), w.far, second))
	keys := w.wantCopies(t, 2) // the first VM stands on the older
	i := slices.IndexFunc(keys, func(k cacheKey) bool { return k != before })
	if got := w.templateOf(t, second).Volume; i < 0 || got != keys[i].entry() {
		t.Fatalf("the second VM was made from %s; the copies are %+v", got, keys)
	}
	w.wantContent(t, keys[i].data(1))

	w.change(t)
	must(t, w.far.Delete(t.Context(), machineOf(first)))
	must(t, clone(t.Context(), w.far, third))
	if left := w.wantCopies(t, 2); slices.Contains(left, before) || !slices.Contains(left, keys[i]) {
		t.Errorf("the copies are %+v", left)
	}
}

// The template was changed after the VM was defined, and then once more while it was copied.
func TestLibvirtdTemplateChangesUnderTheCopy(t *testing.T) {
	w := newWay(t)
	s := w.node(t, 1)
	must(t, w.far.Define(t.Context(), s))
	defined := w.templateOf(t, s)
	w.change(t)
	release := make(chan struct{})
	w.source.stop(contentSize/2, release)
	done := make(chan error, 1)
	go func() { done <- w.far.CloneDisk(t.Context(), s) }()
	await(t, "begin of the copy", func() bool { return len(w.cached(t)) > 0 || len(done) > 0 })
	during := w.templateOf(t, s)
	w.change(t)
	w.source.stop(0, nil)
	close(release)
	must(t, <-done)
	key := w.wantCopies(t, 1)[0]
	w.wantContent(t, key.data(1))
	if got := w.templateOf(t, s); got.Volume != key.entry() || got == defined || got == during || defined == during {
		t.Errorf("the record's template was %+v, then %+v, and is %+v", defined, during, got)
	}
}

func TestLibvirtdSparseCopy(t *testing.T) {
	const size, piece = 64 << 20, 1 << 20
	for name, old := range map[string]func(*way){
		"both ends":               nil,
		"old where it is read":    func(w *way) { w.source.makeOld() },
		"old where it is written": func(w *way) { w.target.makeOld() },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWay(t)
			w.pool(t, w.templates, func(_ *libvirt.Connect, p *pool) error {
				text, err := volumeXML("golden.img", "raw", "0640", size, nil)
				if err != nil {
					return err
				}
				vol, err := p.create(t.Context(), text)
				if err != nil {
					return err
				}
				return vol.Free()
			})
			for _, at := range []uint64{4 * piece, size / 2} {
				w.put(t, w.templates, "golden.img", at, w.content[:piece])
			}
			w.template.Volume, w.far.template.Volume = "golden.img", "golden.img"
			if old != nil {
				old(w)
			}
			s := w.node(t, 1)
			must(t, w.far.Define(t.Context(), s))
			w.source.traffic()
			w.target.traffic()
			must(t, w.far.CloneDisk(t.Context(), s))
			moved := w.source.traffic() + w.target.traffic()
			key := w.wantCopies(t, 1)[0]
			def := w.wantContent(t, key.data(1))
			if def.Target.Format.Type != "raw" || def.Capacity.Value != size || def.Target.Permissions.Mode != "0640" {
				t.Errorf("the copy is %+v with capacity %+v", def.Target, def.Capacity)
			}
			if old != nil {
				return
			}
			if moved < 4*piece || moved > 6*piece {
				t.Errorf("%d bytes were moved for twice %d", moved, 2*piece)
			}
			if def.Allocation.Value > 4*piece {
				t.Errorf("the copy takes %d bytes", def.Allocation.Value)
			}
		})
	}
}

func TestLibvirtdUsersOwnCopy(t *testing.T) {
	w := newWay(t)
	_, content := w.inspect(t, w.templates, w.template.Volume)
	addVolume(t, w.Fleet, "hv-a", w.vms, w.template.Volume, gib)
	w.put(t, w.vms, w.template.Volume, 0, content)
	same, outdated := w.node(t, 1), w.node(t, 2)
	must(t, clone(t.Context(), w.far, same))
	if got := w.templateOf(t, same); got != (record.Template{Pool: w.vms, Volume: w.template.Volume}) {
		t.Errorf("the template is %+v", got)
	}
	w.wantCopies(t, 0)
	w.put(t, w.templates, w.template.Volume, uint64(len(content)), content) // the golden image grows
	must(t, clone(t.Context(), w.far, outdated))
	key := w.wantCopies(t, 1)[0]
	if got := w.templateOf(t, outdated); got.Volume != key.entry() {
		t.Errorf("the template is %+v", got)
	}
}

// Somebody has laid hands on the cache.
func TestLibvirtdDamagedCopy(t *testing.T) {
	w := newWay(t)
	first, second := w.node(t, 1), w.node(t, 2)
	must(t, clone(t.Context(), w.far, first))
	key := w.wantCopies(t, 1)[0]
	w.remove(t, w.vms, key.data(1))
	must(t, clone(t.Context(), w.far, second))
	if again := w.wantCopies(t, 1)[0]; again != key {
		t.Errorf("the copy is %+v, was %+v", again, key)
	}
	w.wantContent(t, key.data(1))
}

// Two hypervisors have one directory, and neither knows it of the other.
func TestLibvirtdCopyIntoOneDirectory(t *testing.T) {
	w := newWay(t)
	uri := os.Getenv(secondURIVariable)
	if uri == "" {
		t.Skipf("%s is not set: it takes the URI of a second hypervisor on this machine", secondURIVariable)
	}
	dir := t.TempDir()
	w.far.hosts["hv-c"] = newHost("hv-c", Config{URI: uri, VirtType: "qemu"}, 4)
	define := func(far *Fleet, hypervisor string) {
		with(t, far, hypervisor, func(conn *libvirt.Connect) error {
			def := libvirtxml.StoragePool{Type: "dir", Name: w.tag + "-shared", Target: &libvirtxml.StoragePoolTarget{Path: dir}}
			text, err := def.Marshal()
			if err != nil {
				return err
			}
			p, err := conn.StoragePoolDefineXML(text, 0)
			if err != nil {
				return err
			}
			t.Cleanup(func() { must(t, errors.Join(p.Destroy(), p.Undefine(), p.Free())) })
			return p.Create(0)
		})
	}
	define(w.Fleet, "hv-a")
	define(w.far, "hv-c")
	done := make(chan error)
	for i, hypervisor := range []string{"hv-b", "hv-c"} {
		s := w.node(t, i+1)
		s.Hypervisor, s.Record.Shape.StoragePool = hypervisor, w.tag+"-shared"
		t.Cleanup(func() { must(t, w.far.Delete(context.WithoutCancel(t.Context()), machineOf(s))) })
		go func() { done <- clone(t.Context(), w.far, s) }()
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if got := w.source.count()[procVolDownload]; got != 1 {
		t.Errorf("the template was copied %d times", got)
	}
	files, err := os.ReadDir(dir)
	must(t, err)
	if len(files) != 4 { // two disks, the entry and its data
		t.Errorf("the directory has %v", files)
	}
}
