package hypervisor

import (
	"context"
	"errors"
	"fmt"
	"path"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// Resize gives a VM that is off the vCPUs, the memory and the sizes of disks of a shape, and writes that into its record.
// Disks are grown, and stay as they are where they are larger. Every step can be repeated, and the record comes last: as
// long as it has the old shape, there is something to do.
func (f *Fleet) Resize(ctx context.Context, m machine.Machine, s record.Shape) error {
	return f.on(ctx, m.Hypervisor, "resize the VM", func(ctx context.Context, h *host) error {
		return h.withDomain(ctx, m, func(conn *libvirt.Connect, d *domain) error { return h.resize(ctx, conn, d, s) })
	})
}

func (h *host) resize(ctx context.Context, conn *libvirt.Connect, d *domain, s record.Shape) error {
	switch state, err := d.power(); {
	case err != nil:
		return err
	case state != machine.Stopped:
		return fmt.Errorf("it is %s, and can be resized only while it is off", state)
	}
	resized := d.record.Shape
	resized.VCPUs, resized.MemoryMiB, resized.DiskGiB, resized.Data.SizeGiB = s.VCPUs, s.MemoryMiB, s.DiskGiB, s.Data.SizeGiB
	if resized != s {
		return errors.New("only sizes can be changed of a VM that stands, and neither its storage pools nor how its disks are made and mounted")
	}
	if err := d.forgetState(ctx); err != nil {
		return err
	}
	if err := h.growDisks(ctx, conn, d, s); err != nil {
		return err
	}
	if err := d.setSize(ctx, s); err != nil {
		return err
	}
	r := d.record
	r.Shape = s
	return d.setRecord(ctx, r)
}

// forgetState removes a saved state, as a hypervisor may make one of each VM when it is shut down: the VM would go on from
// there with its old size.
func (d *domain) forgetState(ctx context.Context) error {
	saved, err := d.HasManagedSaveImage(0)
	if err != nil || !saved {
		return wrap(err, "ask for a saved state")
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return wrap(d.ManagedSaveRemove(0), "remove its saved state")
}

// growDisks grows the volumes of a VM's disks.
func (h *host) growDisks(ctx context.Context, conn *libvirt.Connect, d *domain, s record.Shape) error {
	def, err := d.definition()
	if err != nil {
		return err
	}
	root := record.Volume{Pool: s.StoragePool, Name: machine.RootVolume(d.name, d.uuid)}
	if err := h.growDisk(ctx, conn, def, rootDevice, root, s.DiskGiB); err != nil || s.Data.SizeGiB == 0 {
		return err
	}
	data := record.Volume{Pool: s.Data.StoragePool, Name: machine.DataVolume(d.name, d.uuid)}
	return h.growDisk(ctx, conn, def, dataDevice, data, s.Data.SizeGiB)
}

// growDisk grows the volume of a disk, unless it is as large already.
func (h *host) growDisk(ctx context.Context, conn *libvirt.Connect, def *libvirtxml.Domain, device string, v record.Volume, sizeGiB int) error {
	if file := fileOf(def, device); path.Base(file) != v.Name {
		return fmt.Errorf("its disk %s is %q instead of the volume %q: somebody has made a snapshot of it, which has to be merged first", device, file, v.Name)
	}
	p, err := h.pool(conn, v.Pool)
	if err != nil {
		return err
	}
	defer p.free()
	vol, err := p.volume(ctx, v.Name)
	if err != nil {
		return err
	}
	defer func() { _ = vol.Free() }()
	is, err := definition(vol) // for which libvirt looks at the file: another hypervisor may have grown it
	if err != nil {
		return fmt.Errorf("the volume %q: %w", v.Name, err)
	}
	if imageOf(is).capacity >= inBytes(sizeGiB) {
		return nil
	}
	err = p.build(ctx, func() error { return vol.Resize(inBytes(sizeGiB), 0) })
	return wrap(err, "grow the volume %q in storage pool %q", v.Name, v.Pool)
}

// fileOf is the file behind a disk of a domain, "" where there is none.
func fileOf(def *libvirtxml.Domain, device string) string {
	for _, d := range def.Devices.Disks {
		if d.Target != nil && d.Target.Dev == device && d.Source != nil && d.Source.File != nil {
			return d.Source.File.File
		}
	}
	return ""
}

// setSize sets vCPUs and memory of the stored definition, and leaves everything else in it as it is. The maximum comes
// first: a VM cannot be given more, and where it is lowered, libvirt lowers with it what the VM has.
func (d *domain) setSize(ctx context.Context, s record.Shape) error {
	vcpus, kib := uint(s.VCPUs), uint64(s.MemoryMiB)<<10 //nolint:gosec // neither is negative
	for _, set := range []func() error{
		func() error { return d.SetVcpusFlags(vcpus, libvirt.DOMAIN_VCPU_CONFIG|libvirt.DOMAIN_VCPU_MAXIMUM) },
		func() error { return d.SetVcpusFlags(vcpus, libvirt.DOMAIN_VCPU_CONFIG) },
		func() error { return d.SetMemoryFlags(kib, libvirt.DOMAIN_MEM_CONFIG|libvirt.DOMAIN_MEM_MAXIMUM) },
		func() error { return d.SetMemoryFlags(kib, libvirt.DOMAIN_MEM_CONFIG) },
	} {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if err := set(); err != nil {
			return wrap(err, "give it %d vCPUs and %d MiB of memory", s.VCPUs, s.MemoryMiB)
		}
	}
	return nil
}
