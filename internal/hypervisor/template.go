package hypervisor

import (
	"context"
	"errors"
	"fmt"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// template is a golden image, whose user frees it.
type template struct {
	*libvirt.StorageVol
	ref  record.Template
	path string
	// format is that of the file: qcow2 or raw.
	format string
	// capacity is the size of the disk that the guest sees, in bytes.
	capacity uint64
}

func (t *template) free() { _ = t.Free() }

// findTemplate finds the golden image for new VMs of a pool: in that pool, or in the template's own where this is the
// template's hypervisor. The pools are refreshed before a miss is believed.
func (f *Fleet) findTemplate(ctx context.Context, h *host, conn *libvirt.Connect, target *pool) (*template, error) {
	if f.template.Volume == "" {
		return nil, errors.New("the provider's configuration names no template")
	}
	pools := []*pool{target}
	if h.name == f.template.Hypervisor && f.template.Pool != target.name {
		store, err := h.pool(conn, f.template.Pool)
		if err != nil {
			return nil, fmt.Errorf("the template's %w", err)
		}
		defer store.free()
		pools = append(pools, store)
	}
	for _, stale := range []bool{true, false} {
		for _, p := range pools {
			if !stale {
				if err := p.refresh(ctx); err != nil {
					return nil, err
				}
			}
			t, err := openTemplate(p, f.template.Volume)
			if !errors.Is(err, machine.ErrNotFound) {
				return t, err
			}
		}
	}
	return nil, f.noTemplate(h, target)
}

// noTemplate says where the golden image is missing and what to do.
func (f *Fleet) noTemplate(h *host, target *pool) error {
	t := f.template
	if h.name == t.Hypervisor && t.Pool == target.name {
		return fmt.Errorf("template %q: %w in storage pool %q; upload the golden image there, or correct the provider's template",
			t.Volume, machine.ErrNotFound, t.Pool)
	}
	if h.name == t.Hypervisor {
		return fmt.Errorf("template %q: %w, neither in its storage pool %q nor in %q; upload the golden image to the former, or correct the "+
			"provider's template", t.Volume, machine.ErrNotFound, t.Pool, target.name)
	}
	return fmt.Errorf("template %q: %w in storage pool %q of hypervisor %q; copy it there under that name from storage pool %q of "+
		"hypervisor %q (virsh vol-download, vol-upload)", t.Volume, machine.ErrNotFound, target.name, h.name, t.Pool, t.Hypervisor)
}

// openTemplate finds a golden image in a pool.
func openTemplate(p *pool, name string) (*template, error) {
	vol, err := p.LookupStorageVolByName(name)
	if err != nil {
		return nil, wrap(err, "template %q in storage pool %q", name, p.name)
	}
	t := &template{StorageVol: vol, ref: record.Template{Pool: p.name, Volume: name}}
	if err := t.inspect(); err != nil {
		t.free()
		return nil, fmt.Errorf("template %q in storage pool %q: %w", name, p.name, err)
	}
	return t, nil
}

func (t *template) inspect() error {
	info, err := t.GetInfo() // looks at the file itself
	if err != nil {
		return wrap(err, "ask for its size")
	}
	text, err := t.GetXMLDesc(0)
	if err != nil {
		return wrap(err, "read its definition")
	}
	var def libvirtxml.StorageVolume
	if err := def.Unmarshal(text); err != nil {
		return fmt.Errorf("read its definition: %w", err)
	}
	if def.Target == nil || def.Target.Format == nil {
		return errors.New("its format is unknown")
	}
	t.path, t.format, t.capacity = def.Target.Path, def.Target.Format.Type, info.Capacity
	if t.format != "qcow2" && t.format != "raw" {
		return fmt.Errorf("it is of format %q, but must be qcow2 or raw", t.format)
	}
	return nil
}

// fits makes sure that a disk of that size can hold the template.
func (t *template) fits(diskGiB int) error {
	if inBytes(diskGiB) < t.capacity {
		return fmt.Errorf("a disk of %d GiB is smaller than the template %q, which needs %d GiB", diskGiB, t.ref.Volume, (t.capacity+gib-1)/gib)
	}
	return nil
}
