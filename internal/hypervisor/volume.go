package hypervisor

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/terraform-plugin-log/tflog"
	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

const gib = 1 << 30

// inBytes is a size in GiB as libvirt counts it.
func inBytes(sizeGiB int) uint64 { return uint64(max(sizeGiB, 0)) * gib }

// privateMode lets only root and QEMU, to whom libvirt hands a disk over, at a volume.
const privateMode = "0600"

// volumeXML renders a new volume, with permissions in octal digits. backing is nil for one that depends on nothing.
func volumeXML(name, format, mode string, capacity uint64, backing *template) (string, error) {
	v := libvirtxml.StorageVolume{
		Type:       "file",
		Name:       name,
		Capacity:   &libvirtxml.StorageVolumeSize{Unit: "bytes", Value: capacity},
		Allocation: &libvirtxml.StorageVolumeSize{Unit: "bytes"},
		Target: &libvirtxml.StorageVolumeTarget{
			Format:      &libvirtxml.StorageVolumeTargetFormat{Type: format},
			Permissions: &libvirtxml.StorageVolumeTargetPermissions{Mode: mode},
		},
	}
	if format == "qcow2" {
		// libvirt still makes version 2 of the format, which can neither give discarded blocks back to the host where a
		// template stands behind them nor hold the bitmaps of backup tools. QEMU reads version 3 since 1.1.
		v.Target.Compat = "1.1"
	}
	if backing != nil {
		// The format is named, because neither QEMU nor the security drivers guess that of a file behind another.
		v.BackingStore = &libvirtxml.StorageVolumeBackingStore{
			Path:   backing.path,
			Format: &libvirtxml.StorageVolumeTargetFormat{Type: backing.format},
		}
	}
	text, err := v.Marshal()
	if err != nil {
		return "", fmt.Errorf("render the volume: %w", err)
	}
	return text, nil
}

// cloneAttempts bounds how often a clone is begun with another template than the one that went away under it.
const cloneAttempts = 3

// errTemplateGone: the template that a VM's record names is not there.
var errTemplateGone = errors.New("the template is gone")

// CloneDisk makes the root volume from the template that the VM's record names, of the record's size, and first brings
// the template to the hypervisor where it is not there yet. It makes the empty volume of the data disk, too, where the
// record has one. What stands under their names is left from an earlier attempt: it is made anew, unless the VM runs on
// it or has joined.
func (f *Fleet) CloneDisk(ctx context.Context, s machine.Spec) error {
	const doing = "make the disks"
	m := machine.Machine{Hypervisor: s.Hypervisor, Name: s.Name(), UUID: s.UUID, Record: s.Record}
	clone := func(ctx context.Context, h *host) error {
		if s.Record.Shape.Clone == record.Full {
			if err := acquire(ctx, h.copies, 1); err != nil {
				return err
			}
			defer h.copies.Release(1)
		}
		return h.withDomain(ctx, m, func(conn *libvirt.Connect, d *domain) error { return h.makeDisks(ctx, conn, d) })
	}
	for attempt := 1; ; attempt++ {
		err := f.on(ctx, s.Hypervisor, doing, clone)
		if !errors.Is(err, errTemplateGone) || attempt == cloneAttempts {
			return err
		}
		// It was not copied to this hypervisor yet, or has changed since the VM was defined.
		if err := f.provide(ctx, m); err != nil && !errors.Is(err, errTemplateChanged) {
			return fmt.Errorf("%s: %w", doing, err)
		}
	}
}

func (h *host) makeDisks(ctx context.Context, conn *libvirt.Connect, d *domain) error {
	state, err := d.power()
	if err != nil {
		return err
	}
	if state != machine.Stopped || d.record.Phase == record.Joined {
		return nil
	}
	if err := h.cloneDisk(ctx, conn, d); err != nil {
		return err
	}
	if d.record.Shape.Data.SizeGiB == 0 {
		return nil
	}
	return h.makeDataDisk(ctx, conn, d)
}

func (h *host) cloneDisk(ctx context.Context, conn *libvirt.Connect, d *domain) error {
	shape := d.record.Shape
	target, err := h.pool(conn, shape.StoragePool)
	if err != nil {
		return err
	}
	defer target.free()
	store, err := h.pool(conn, d.record.Template.Pool)
	if err != nil {
		return goneIfNotFound(err)
	}
	defer store.free()
	t, err := openSource(store, d.record.Template.Volume)
	if err != nil {
		return goneIfNotFound(err)
	}
	defer t.free()
	if err := t.fits(shape.DiskGiB, t.ref.Volume); err != nil {
		return err
	}
	name := machine.RootVolume(d.name, d.uuid)
	if err := target.vacate(ctx, name); err != nil {
		return err
	}
	if shape.Clone == record.Full {
		return target.copy(ctx, name, t, inBytes(shape.DiskGiB))
	}
	return target.overlay(ctx, name, privateMode, t, inBytes(shape.DiskGiB))
}

func (h *host) makeDataDisk(ctx context.Context, conn *libvirt.Connect, d *domain) error {
	disk := d.record.Shape.Data
	p, err := h.pool(conn, disk.StoragePool)
	if err != nil {
		return err
	}
	defer p.free()
	name := machine.DataVolume(d.name, d.uuid)
	if err := p.vacate(ctx, name); err != nil {
		return err
	}
	return p.overlay(ctx, name, privateMode, nil, inBytes(disk.SizeGiB))
}

// vacate deletes what stands under the name of a volume that is to be made.
func (p *pool) vacate(ctx context.Context, name string) error {
	old, err := p.LookupStorageVolByName(name)
	if errors.Is(err, libvirt.ERR_NO_STORAGE_VOL) {
		return nil
	}
	if err != nil {
		return wrap(err, "look for the volume %q in storage pool %q", name, p.name)
	}
	defer func() { _ = old.Free() }()
	return p.discard(ctx, name, old)
}

// goneIfNotFound marks the error of a look-up of a template.
func goneIfNotFound(err error) error {
	if errors.Is(err, machine.ErrNotFound) {
		return fmt.Errorf("%w: %w", errTemplateGone, err)
	}
	return err
}

// overlay makes a qcow2 volume that holds only what differs from the template, which is nil for an empty disk.
func (p *pool) overlay(ctx context.Context, name, mode string, t *template, capacity uint64) error {
	text, err := volumeXML(name, "qcow2", mode, capacity, t)
	if err != nil {
		return err
	}
	vol, err := p.create(ctx, text)
	if err != nil {
		return wrap(err, "make the volume %q", name)
	}
	return wrap(vol.Free(), "free the volume")
}

// copy makes a qcow2 volume that depends on nothing. libvirt gives a copy the template's size, whatever was asked for.
func (p *pool) copy(ctx context.Context, name string, t *template, capacity uint64) error {
	text, err := volumeXML(name, "qcow2", privateMode, capacity, nil)
	if err != nil {
		return err
	}
	return p.build(ctx, func() error {
		vol, err := p.StorageVolCreateXMLFrom(text, t.StorageVol, 0)
		if err != nil {
			return wrap(err, "copy the template to the volume %q", name)
		}
		defer func() { _ = vol.Free() }()
		if capacity == t.capacity {
			return nil
		}
		return wrap(vol.Resize(capacity, 0), "grow the volume %q", name)
	})
}

// create makes a volume.
func (p *pool) create(ctx context.Context, text string) (vol *libvirt.StorageVol, err error) {
	err = p.build(ctx, func() (err error) {
		vol, err = p.StorageVolCreateXML(text, 0)
		return err
	})
	return vol, err
}

// volume finds a volume by name. The pool is refreshed before a miss is believed.
func (p *pool) volume(ctx context.Context, name string) (*libvirt.StorageVol, error) {
	vol, err := p.LookupStorageVolByName(name)
	if errors.Is(err, libvirt.ERR_NO_STORAGE_VOL) {
		if err := p.refresh(ctx); err != nil {
			return nil, err
		}
		vol, err = p.LookupStorageVolByName(name)
	}
	if err != nil {
		return nil, wrap(err, "look for the volume %q in storage pool %q", name, p.name)
	}
	return vol, nil
}

// remove deletes a volume; one that is gone is no error.
func (p *pool) remove(ctx context.Context, name string) error {
	vol, err := p.volume(ctx, name)
	if errors.Is(err, machine.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = vol.Free() }()
	return p.discard(ctx, name, vol)
}

// discard deletes a volume that was found.
func (p *pool) discard(ctx context.Context, name string, vol *libvirt.StorageVol) error {
	err := p.build(ctx, func() error { return vol.Delete(libvirt.STORAGE_VOL_DELETE_NORMAL) })
	err = wrap(err, "delete the volume %q in storage pool %q", name, p.name)
	if errors.Is(err, machine.ErrNotFound) { // somebody else was faster, or removed the pool
		return nil
	}
	return err
}

// removeVolume deletes a volume, in whatever pool. Where the pool does not exist any more there is nothing to delete.
func (h *host) removeVolume(ctx context.Context, conn *libvirt.Connect, v record.Volume) error {
	p, err := h.pool(conn, v.Pool)
	if errors.Is(err, machine.ErrNotFound) {
		tflog.Warn(ctx, "storage pool is gone, its volume is taken for gone too",
			map[string]any{"hypervisor": h.name, "pool": v.Pool, "volume": v.Name})
		return nil
	}
	if err != nil {
		return err
	}
	defer p.free()
	return p.remove(ctx, v.Name)
}
