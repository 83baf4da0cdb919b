package hypervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hashicorp/terraform-plugin-log/tflog"
	"libvirt.org/go/libvirt"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// originTimeout bounds the question to the template's own hypervisor, which another hypervisor waits for.
const originTimeout = answerTimeout / 2

// choice is the template that new VMs of a storage pool are cloned from.
type choice struct {
	ref record.Template
	image
	// missing: it is the entry of a copy that has yet to be made. image is what will be copied.
	missing bool
	// remark is what the user should know about the choice, or "".
	remark string
}

// origin is the golden image as the template's own hypervisor has it.
type origin struct {
	image
	// source is that of its storage pool.
	source string
}

// origin asks the template's own hypervisor. The error is machine.ErrUnreachable where that does not answer.
func (f *Fleet) origin(ctx context.Context) (origin, error) {
	h, err := f.host(f.template.Hypervisor)
	if err != nil {
		return origin{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, originTimeout, fmt.Errorf("%w: no answer within %s", machine.ErrUnreachable, originTimeout))
	defer cancel()
	o, err := within(ctx, func() (o origin, err error) {
		err = h.do(ctx, func(conn *libvirt.Connect) (err error) {
			o, err = f.originOn(ctx, h, conn)
			return err
		})
		return o, err
	})
	if errors.Is(err, machine.ErrUnreachable) {
		// That its connection broke must not make anybody repeat a call to another hypervisor.
		err = unreachableOrigin{err}
	}
	return o, err
}

// unreachableOrigin is an error of the template's own hypervisor, without what it is made of.
type unreachableOrigin struct{ cause error }

func (e unreachableOrigin) Error() string { return e.cause.Error() }

func (e unreachableOrigin) Is(target error) bool { return target == machine.ErrUnreachable }

// originOn looks for the golden image on its own hypervisor.
func (f *Fleet) originOn(ctx context.Context, h *host, conn *libvirt.Connect) (origin, error) {
	p, err := h.pool(conn, f.template.Pool)
	if err != nil {
		return origin{}, fmt.Errorf("the template's %w", err)
	}
	defer p.free()
	vol, err := p.volume(ctx, f.template.Volume) // a miss refreshes the pool
	if err != nil {
		return origin{}, err
	}
	_ = vol.Free()
	t, err := openTemplate(p, f.template.Volume)
	if err != nil {
		return origin{}, err
	}
	defer t.free()
	return origin{image: t.image, source: p.source}, nil
}

// search looks for the template of one storage pool.
type search struct {
	*Fleet
	host   *host
	target *pool
	// store is this hypervisor's pool with the name of the template's, which may be the target; nil where there is none that
	// can be used, because of storeErr.
	store    *pool
	storeErr error
	// ask is Fleet.origin, once.
	ask func() (origin, error)
}

// findTemplate chooses the template for the VMs of a pool. The pools are refreshed before a miss is believed.
func (f *Fleet) findTemplate(ctx context.Context, h *host, conn *libvirt.Connect, target *pool) (choice, error) {
	if f.template.Volume == "" {
		return choice{}, errors.New("the provider's configuration names no template")
	}
	s := search{Fleet: f, host: h, target: target, store: target}
	s.ask = sync.OnceValues(func() (o origin, err error) {
		h.aside(ctx, func() { o, err = f.origin(ctx) })
		return o, err
	})
	if f.template.Pool != target.name {
		if s.store, s.storeErr = h.pool(conn, f.template.Pool); s.store != nil {
			defer s.store.free()
		}
	}
	c, err := s.look()
	if err != nil || c.missing {
		if err := s.refresh(ctx); err != nil {
			return choice{}, err
		}
		c, err = s.look()
	}
	if err == nil && c.remark != "" {
		tflog.Warn(ctx, c.remark, map[string]any{"hypervisor": h.name, "pool": c.ref.Pool, "volume": c.ref.Volume})
	}
	return c, err
}

// own reports whether this is the template's own hypervisor.
func (s *search) own() bool { return s.host.name == s.template.Hypervisor }

func (s *search) refresh(ctx context.Context) error {
	if err := s.target.refresh(ctx); err != nil {
		return err
	}
	if s.store == nil || s.store == s.target {
		return nil
	}
	return s.store.refresh(ctx)
}

// look chooses, without believing that the pools are up to date:
//
//  1. a volume of the template's name in the target, be it the golden image itself or what the user has put there, unless
//     its size tells that the golden image is another one by now;
//  2. the golden image, where this hypervisor sees it;
//  3. the copy of the golden image in the target, or the one that has to be made.
func (s *search) look() (choice, error) {
	golden, image, err := s.golden()
	if golden != nil && golden.ref.Pool == s.target.name {
		return *golden, nil
	}
	remark := ""
	if mine, mineErr := s.at(s.target); mineErr == nil {
		if err != nil || mine.physical == image.physical {
			return mine, nil
		}
		remark = fmt.Sprintf("the volume %q in storage pool %q is not used: the template of that name has another size by now", mine.ref.Volume, mine.ref.Pool)
	}
	if golden != nil {
		golden.remark = cmp.Or(golden.remark, remark)
		return *golden, nil
	}
	if err != nil {
		return s.without(err)
	}
	key := cacheKey{volume: s.template.Volume, identity: image.identity(s.template.Volume)}
	entry, err := openEntry(s.target, key, image.physical)
	switch {
	case err == nil:
		defer entry.free()
		return choice{ref: entry.ref, image: entry.image, remark: remark}, nil
	case !errors.Is(err, machine.ErrNotFound):
		return choice{}, err
	case image.backing != "":
		return choice{}, fmt.Errorf("the template %q cannot be copied to hypervisor %q, because it depends on the file %s behind it: make it "+
			"self-contained (qemu-img convert)", s.template.Volume, s.host.name, image.backing)
	}
	return choice{ref: record.Template{Pool: s.target.name, Volume: key.entry()}, image: image, missing: true, remark: remark}, nil
}

// at is the volume of the template's name in a pool.
func (s *search) at(p *pool) (choice, error) {
	t, err := openTemplate(p, s.template.Volume)
	if err != nil {
		return choice{}, err
	}
	defer t.free()
	return choice{ref: t.ref, image: t.image}, nil
}

// atStore is the volume of the template's name in the pool of the template's.
func (s *search) atStore() (choice, error) {
	if s.store == nil {
		return choice{}, fmt.Errorf("the template's %w", s.storeErr)
	}
	return s.at(s.store)
}

// golden finds the golden image: as a choice where this hypervisor sees it, and what it is like in any case.
func (s *search) golden() (*choice, image, error) {
	if s.own() || s.template.Shared && s.store != nil {
		c, err := s.atStore()
		if err == nil {
			return &c, c.image, nil
		}
		if s.own() {
			return nil, image{}, err
		}
	}
	o, err := s.ask()
	silent := errors.Is(err, machine.ErrUnreachable)
	if s.store != nil && s.store.source != "" && (silent || err == nil && s.store.source == o.source) {
		if c, err := s.at(s.store); err == nil {
			if silent {
				c.remark = "the template's hypervisor cannot be asked; the network storage in the pool of the template's is taken for the template's"
			}
			return &c, c.image, nil
		}
	}
	return nil, o.image, err
}

// without chooses where the golden image cannot be looked at because of err, and the target has no volume of its name: the
// only copy that there is, or nothing.
func (s *search) without(err error) (choice, error) {
	t := s.template
	if errors.Is(err, machine.ErrUnreachable) {
		entry, none := s.target.onlyEntry(t.Volume)
		if none != nil {
			return choice{}, fmt.Errorf("template %q: its hypervisor %q cannot be asked, and storage pool %q of hypervisor %q has no copy that is certain to be "+
				"the present one: %w", t.Volume, t.Hypervisor, s.target.name, s.host.name, err)
		}
		defer entry.free()
		return choice{ref: entry.ref, image: entry.image,
			remark: "the template's hypervisor cannot be asked; the only copy of the template in the storage pool is taken for the present one"}, nil
	}
	const remedy = "upload the golden image there, or correct the provider's template"
	switch missing := errors.Is(err, libvirt.ERR_NO_STORAGE_VOL); {
	case !missing && s.own():
		return choice{}, err
	case !missing:
		return choice{}, fmt.Errorf("on hypervisor %q, %w", t.Hypervisor, err)
	case s.own():
		return choice{}, fmt.Errorf("template %q: %w in storage pool %q; %s", t.Volume, machine.ErrNotFound, t.Pool, remedy)
	}
	return choice{}, fmt.Errorf("template %q: %w in storage pool %q of hypervisor %q; %s", t.Volume, machine.ErrNotFound, t.Pool, t.Hypervisor, remedy)
}
