package hypervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-log/tflog"
	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
)

const (
	// defaultStall is longer than a connection lives whose peer is silent: what a process copies that is still there does
	// not stand still for so long.
	defaultStall = (keepAliveSeconds*keepAliveCount + 10) * time.Second
	// watchPause is the pause between two looks at somebody else's copy.
	watchPause = time.Second
	// tidyTimeout bounds the removal of what a copy that failed has left.
	tidyTimeout = 30 * time.Second
)

// errTemplateChanged: the golden image became another one while it was copied.
var errTemplateChanged = errors.New("the template was changed while it was copied")

// provide writes into a VM's record which template its disk is made from, and copies that to the VM's storage pool where
// it is missing. However many VMs wait for a copy, it is made once.
func (f *Fleet) provide(ctx context.Context, m machine.Machine) error {
	h, err := f.host(m.Hypervisor)
	if err != nil {
		return err
	}
	c, err := within(ctx, func() (c choice, err error) {
		err = h.withDomain(ctx, m, func(conn *libvirt.Connect, d *domain) error {
			c, err = f.choose(ctx, h, conn, d)
			return err
		})
		return c, err
	})
	if err != nil || !c.missing {
		return err
	}
	key, _ := parseCached(c.ref.Volume)
	return f.fills.do(ctx, h.name+"/"+c.ref.Pool+"/"+c.ref.Volume, func(ctx context.Context) error {
		fill := filling{Fleet: f, host: h, pool: c.ref.Pool, key: key.cacheKey, image: c.image}
		return fill.run(ctx)
	})
}

// choose finds the template for a VM anew.
func (f *Fleet) choose(ctx context.Context, h *host, conn *libvirt.Connect, d *domain) (choice, error) {
	target, err := h.pool(conn, d.record.Shape.StoragePool)
	if err != nil {
		return choice{}, err
	}
	defer target.free()
	c, err := f.findTemplate(ctx, h, conn, target)
	if err != nil || c.ref == d.record.Template {
		return c, err
	}
	r := d.record
	r.Template = c.ref
	return c, d.setRecord(ctx, r)
}

// filling brings the golden image into a storage pool that lacks it, unless somebody else does.
type filling struct {
	*Fleet
	host *host
	pool string
	key  cacheKey
	// image is the golden image as it was when its key was made.
	image image
}

// situation is what a pool has of a template.
type situation struct {
	// done: the entry is there.
	done bool
	// latest is the number of the copy that was begun last, zero where there is none, and size what it has in bytes.
	latest int
	size   uint64
}

// run returns when the pool has the entry. A copy that another process or another hypervisor makes is waited for as long
// as it grows.
func (f *filling) run(ctx context.Context) error {
	watched := f.progress()
	var last situation
	var grown time.Time
	refresh := false
	for {
		now, err := f.look(ctx, refresh)
		if err != nil || now.done {
			return err
		}
		// Without growth a look may only not have seen what another hypervisor does in the same directory.
		if refresh = now == last; !refresh {
			last, grown = now, time.Now()
		}
		if now.latest == 0 || time.Since(grown) > f.stall {
			if done, err := f.attempt(ctx, now.latest+1); done || err != nil {
				return err
			}
			last, refresh = situation{}, true // somebody else was faster, or has taken it for abandoned
		} else {
			watched.at.Store(int64(now.size)) //nolint:gosec // the size of a file
			watched.tick(ctx, "another process copies the template")
		}
		if err := sleep(ctx, watchPause); err != nil {
			return err
		}
	}
}

// sleep waits, unless ctx ends before.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// with calls fn with the pool.
func (f *filling) with(ctx context.Context, fn func(*pool) error) error {
	return f.host.do(ctx, func(conn *libvirt.Connect) error {
		p, err := f.host.pool(conn, f.pool)
		if err != nil {
			return err
		}
		defer p.free()
		return fn(p)
	})
}

// look sees how far the copy is.
func (f *filling) look(ctx context.Context, refresh bool) (now situation, err error) {
	err = f.with(ctx, func(p *pool) error {
		if refresh {
			if err := p.glance(); err != nil {
				return err
			}
		}
		now, err = f.situation(p)
		return err
	})
	return now, err
}

func (f *filling) situation(p *pool) (now situation, err error) {
	entry, err := openEntry(p, f.key, f.image.physical)
	if err == nil {
		entry.free()
		return situation{done: true}, nil
	}
	if !errors.Is(err, machine.ErrNotFound) {
		return now, err
	}
	begun, err := f.begun(p)
	if err != nil || len(begun) == 0 {
		return now, err
	}
	now.latest = slices.Max(begun)
	vol, err := p.LookupStorageVolByName(f.key.data(now.latest))
	if err == nil {
		defer func() { _ = vol.Free() }()
		var def libvirtxml.StorageVolume
		def, err = definition(vol)
		now.size = imageOf(def).physical
	}
	if err = wrap(err, "look at the volume %q", f.key.data(now.latest)); errors.Is(err, machine.ErrNotFound) { // it went away just now
		err = nil
	}
	return now, err
}

// begun lists the copies that were begun, by their numbers.
func (f *filling) begun(p *pool) ([]int, error) {
	names, err := p.ListStorageVolumes()
	if err != nil {
		return nil, wrap(err, "list the volumes of storage pool %q", p.name)
	}
	var begun []int
	for _, name := range names {
		if c, ok := parseCached(name); ok && c.cacheKey == f.key && c.n > 0 {
			begun = append(begun, c.n)
		}
	}
	return begun, nil
}

// attempt makes the nth copy and the entry. It is not done where somebody else copies, too.
func (f *filling) attempt(ctx context.Context, n int) (done bool, err error) {
	source := f.hosts[f.template.Hypervisor]
	// Everything that may take long comes before the copy is begun, which then must grow.
	for _, h := range []*host{f.host, source} {
		if err := acquire(ctx, h.copies, 1); err != nil {
			return false, err
		}
		defer h.copies.Release(1)
	}
	from, err := source.apart(ctx)
	if err != nil {
		return false, fmt.Errorf("hypervisor %q: %w", source.name, err)
	}
	defer from.close()
	to, err := f.host.apart(ctx)
	if err != nil {
		return false, err
	}
	defer to.close()

	begun, err := f.begin(ctx, n)
	if begun {
		defer func() {
			if !done {
				f.tidy(ctx, n)
			}
		}()
	}
	if err != nil || !begun {
		return false, err
	}
	if alone, err := f.clear(ctx, n); err != nil || !alone {
		return false, err
	}
	if err := f.transfer(ctx, from, to, f.key.data(n)); err != nil {
		return false, err
	}
	return f.finish(ctx, n)
}

// begin makes the volume of the nth copy. libvirt and the file system let one alone do that.
func (f *filling) begin(ctx context.Context, n int) (begun bool, err error) {
	text, err := volumeXML(f.key.data(n), "raw", cmp.Or(f.image.mode, privateMode), 0, nil)
	if err != nil {
		return false, err
	}
	err = f.with(ctx, func(p *pool) error {
		vol, err := p.create(ctx, text)
		if exists(err) {
			return nil
		}
		if err != nil {
			return wrap(err, "make the volume %q", f.key.data(n))
		}
		begun = true
		return wrap(vol.Free(), "free the volume")
	})
	return begun, err
}

// exists reports whether a volume was not made because there is one of that name: known to libvirt, or made meanwhile by
// another hypervisor in the same directory.
func exists(err error) bool {
	text := message(err)
	return errors.Is(err, libvirt.ERR_STORAGE_VOL_EXIST) || strings.Contains(text, "already exists") || strings.Contains(text, "File exists")
}

// clear removes older copies, which were abandoned, and reports whether the nth is the one to make: nobody has made the
// entry after all, or has begun a later one.
func (f *filling) clear(ctx context.Context, n int) (alone bool, err error) {
	err = f.with(ctx, func(p *pool) error {
		if err := p.glance(); err != nil {
			return err
		}
		now, err := f.situation(p)
		if alone = !now.done && now.latest <= n; err != nil || !alone {
			return err
		}
		begun, err := f.begun(p)
		if err != nil {
			return err
		}
		for _, older := range begun {
			if older < n {
				if err := p.remove(ctx, f.key.data(older)); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return alone, err
}

// finish checks the nth copy and makes the entry. It is not done where somebody has taken the copy for abandoned.
func (f *filling) finish(ctx context.Context, n int) (done bool, err error) {
	switch o, err := f.origin(ctx); {
	case err != nil:
		return false, fmt.Errorf("hypervisor %q: %w", f.template.Hypervisor, err)
	case o.identity(f.template.Volume) != f.key.identity:
		return false, errTemplateChanged
	}
	err = f.with(ctx, func(p *pool) error {
		if err := p.refresh(ctx); err != nil { // libvirt reads the format anew
			return err
		}
		data, err := openTemplate(p, f.key.data(n))
		if errors.Is(err, machine.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		defer data.free()
		if err := f.check(data); err != nil {
			return err
		}
		if err := f.enter(ctx, p, data); err != nil {
			return err
		}
		done = true
		f.drop(ctx, p, data)
		return nil
	})
	return done, err
}

// check compares a copy with the golden image.
func (f *filling) check(data *template) error {
	if data.physical != f.image.physical || data.format != f.image.format || data.capacity != f.image.capacity {
		return fmt.Errorf("the copy of the template has %d bytes with a %s disk of %d, but the template has %d with a %s disk of %d",
			data.physical, data.format, data.capacity, f.image.physical, f.image.format, f.image.capacity)
	}
	return nil
}

// enter makes the entry. One that is there already is replaced if its data is not.
func (f *filling) enter(ctx context.Context, p *pool, data *template) error {
	create := func() error {
		return p.overlay(ctx, f.key.entry(), cmp.Or(f.image.mode, privateMode), data, data.capacity)
	}
	err := create()
	if !exists(err) {
		return err
	}
	entry, err := openEntry(p, f.key, f.image.physical)
	if err == nil {
		entry.free()
		return nil
	}
	if !errors.Is(err, machine.ErrNotFound) {
		return err
	}
	if err := p.remove(ctx, f.key.entry()); err != nil {
		return err
	}
	return create()
}

// tidy removes the nth copy. Where that fails, somebody will find the copy abandoned.
func (f *filling) tidy(ctx context.Context, n int) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTimeout)
	defer cancel()
	if err := f.with(ctx, func(p *pool) error { return p.remove(ctx, f.key.data(n)) }); err != nil {
		tflog.Warn(ctx, "an incomplete copy of the template is left, which the next one removes", f.fields(map[string]any{
			"volume": f.key.data(n), "error": err.Error(),
		}))
	}
}
