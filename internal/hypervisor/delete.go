package hypervisor

import (
	"context"
	"errors"
	"slices"

	"libvirt.org/go/libvirt"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// Delete powers the VM off and removes its volumes, and its domain last, so that a Delete that failed half-way can be
// repeated. Where the domain is gone, the volumes are removed all the same: their names carry the VM's UUID.
func (f *Fleet) Delete(ctx context.Context, m machine.Machine) error {
	return f.on(ctx, m.Hypervisor, "delete the VM", func(ctx context.Context, h *host) error {
		last := m.Record
		err := h.withDomain(ctx, m, func(conn *libvirt.Connect, d *domain) error {
			last = d.record
			if err := pullPlug(ctx, d); err != nil {
				return err
			}
			if err := d.unjoin(ctx); err != nil {
				return err
			}
			if err := h.removeVolumes(ctx, conn, volumesOf(m, d.record)); err != nil {
				return err
			}
			return undefine(ctx, d)
		})
		if !errors.Is(err, machine.ErrNotFound) {
			return err
		}
		// The domain was gone before, went with its power, or was undefined just before the connection broke.
		return h.do(ctx, func(conn *libvirt.Connect) error {
			return h.removeVolumes(ctx, conn, volumesOf(m, last))
		})
	})
}

// unjoin takes back that the VM has joined, before its disks go: if the rest of a Delete fails, the record says that
// the VM is to be made anew, where it would be taken for one that only needs to be started.
func (d *domain) unjoin(ctx context.Context) error {
	if d.record.Phase == record.Creating {
		return nil
	}
	r := d.record
	r.Phase = record.Creating
	return d.setRecord(ctx, r)
}

// volumesOf lists what a record names, and the volumes that a VM has even before its record lists them.
func volumesOf(m machine.Machine, r record.Record) []record.Volume {
	own := []record.Volume{
		{Pool: r.Shape.StoragePool, Name: machine.RootVolume(m.Name, m.UUID)},
		{Pool: r.Shape.StoragePool, Name: machine.SeedVolume(m.Name, m.UUID)},
	}
	if data := r.Shape.Data; data.SizeGiB > 0 {
		own = append(own, record.Volume{Pool: data.StoragePool, Name: machine.DataVolume(m.Name, m.UUID)})
	}
	list := slices.Clone(r.Volumes)
	for _, v := range own {
		if !slices.Contains(list, v) {
			list = append(list, v)
		}
	}
	return list
}

func (h *host) removeVolumes(ctx context.Context, conn *libvirt.Connect, volumes []record.Volume) error {
	for _, v := range volumes {
		if err := h.removeVolume(ctx, conn, v); err != nil {
			return err
		}
	}
	return nil
}

// undefineFlags are tried one after another until a hypervisor knows all of them: without them a saved state, snapshots
// or checkpoints keep a domain from being undefined, and older versions and other drivers do not know each.
var undefineFlags = []libvirt.DomainUndefineFlagsValues{
	libvirt.DOMAIN_UNDEFINE_MANAGED_SAVE | libvirt.DOMAIN_UNDEFINE_SNAPSHOTS_METADATA | libvirt.DOMAIN_UNDEFINE_CHECKPOINTS_METADATA | libvirt.DOMAIN_UNDEFINE_NVRAM,
	libvirt.DOMAIN_UNDEFINE_MANAGED_SAVE | libvirt.DOMAIN_UNDEFINE_SNAPSHOTS_METADATA | libvirt.DOMAIN_UNDEFINE_NVRAM,
	libvirt.DOMAIN_UNDEFINE_MANAGED_SAVE | libvirt.DOMAIN_UNDEFINE_SNAPSHOTS_METADATA,
	0,
}

// undefine removes a domain that is off.
func undefine(ctx context.Context, d *domain) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	var err error
	for _, flags := range undefineFlags {
		err = d.UndefineFlags(flags)
		if !errors.Is(err, libvirt.ERR_INVALID_ARG) && !errors.Is(err, libvirt.ERR_NO_SUPPORT) {
			break
		}
	}
	if errors.Is(err, libvirt.ERR_NO_DOMAIN) { // a transient domain went with its power
		return nil
	}
	return wrap(err, "undefine the domain")
}
