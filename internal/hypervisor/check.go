package hypervisor

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"libvirt.org/go/libvirt"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
)

// Check returns what a hypervisor offers for the VMs of a request, and every reason why they cannot be made there. It
// starts the storage pools and the network if they are inactive. The error is machine.ErrUnreachable where the hypervisor
// does not answer.
func (f *Fleet) Check(ctx context.Context, r machine.Request) (machine.Site, []machine.Problem, error) {
	h, err := f.host(r.Hypervisor)
	if err != nil {
		return machine.Site{}, nil, err
	}
	ctx, cancel := answering(ctx)
	defer cancel()
	found, err := within(ctx, func() (found finding, err error) {
		err = h.do(ctx, func(conn *libvirt.Connect) (err error) {
			found, err = f.check(ctx, h, conn, r)
			return err
		})
		if err != nil || len(r.HostDevices) == 0 {
			return found, err
		}
		devices, err := h.checkDevices(ctx, r)
		found.problems = append(found.problems, devices...)
		return found, err
	})
	return found.site, found.problems, err
}

// finding is what a check of one hypervisor has found.
type finding struct {
	site     machine.Site
	problems []machine.Problem
}

func (f *Fleet) check(ctx context.Context, h *host, conn *libvirt.Connect, r machine.Request) (finding, error) {
	found := f.checkStorage(ctx, h, conn, r)
	if r.Data.SizeGiB > 0 {
		f.checkDataPool(h, conn, r, &found)
	}
	if r.Network != "" {
		if err := startNetwork(conn, r.Network); err != nil {
			found.problems = append(found.problems, machine.Problem{Field: machine.FieldNetwork, Err: err})
		}
	}
	if r.Bridge != "" {
		if err := checkBridge(conn, r.Bridge); err != nil {
			found.problems = append(found.problems, machine.Problem{Field: machine.FieldBridge, Err: err})
		}
	}
	names, err := checkNames(conn, r)
	found.problems = append(found.problems, names...)
	if err == nil {
		err = context.Cause(ctx)
	}
	// A connection that broke meanwhile makes for problems that are none; h.do sees that for any error.
	if err == nil && len(found.problems) > 0 {
		_, err = conn.GetLibVersion()
		err = wrap(err, "ask for the version")
	}
	return found, err
}

// checkStorage looks at the storage pool, the template and the size of the disk. Without a pool there is no more to say.
func (f *Fleet) checkStorage(ctx context.Context, h *host, conn *libvirt.Connect, r machine.Request) (found finding) {
	fail := func(field machine.Field, err error) finding {
		found.problems = append(found.problems, machine.Problem{Field: field, Err: err})
		return found
	}
	p, err := h.pool(conn, r.StoragePool)
	if err != nil {
		return fail(machine.FieldStoragePool, err)
	}
	defer p.free()
	if found.site.FreeMiB, err = p.room(); err != nil {
		return fail(machine.FieldStoragePool, err)
	}
	found.site.Store = f.store(h, p)
	t, err := f.findTemplate(ctx, h, conn, p)
	if err != nil {
		return fail(machine.FieldTemplate, err)
	}
	if t.missing {
		found.site.CopyMiB = int((t.allocation + mib - 1) / mib) //nolint:gosec // nor a template
	}
	if err := t.fits(r.DiskGiB, f.template.Volume); err != nil {
		return fail(machine.FieldDisk, err)
	}
	return found
}

// checkDataPool looks at the storage pool of the data disk. Of one that is the root disk's too, all is known already.
func (f *Fleet) checkDataPool(h *host, conn *libvirt.Connect, r machine.Request, found *finding) {
	site := &found.site
	if r.Data.StoragePool == r.StoragePool {
		site.DataStore, site.DataFreeMiB = site.Store, site.FreeMiB
		return
	}
	p, err := h.pool(conn, r.Data.StoragePool)
	if err == nil {
		defer p.free()
		site.DataStore = f.store(h, p)
		site.DataFreeMiB, err = p.room()
	}
	if err != nil {
		found.problems = append(found.problems, machine.Problem{Field: machine.FieldDataPool, Err: err})
	}
}

// store names the storage behind a pool, so that pools which share one have one name.
func (f *Fleet) store(h *host, p *pool) string {
	switch {
	case p.source != "":
		return p.source
	case f.template.Shared && p.name == f.template.Pool:
		return f.template.Hypervisor + "/" + p.name
	}
	return h.name + "/" + p.name
}

// checkNames looks for domains that stand under the names of new ones and do not belong to the cluster.
func checkNames(conn *libvirt.Connect, r machine.Request) ([]machine.Problem, error) {
	var problems []machine.Problem
	for _, name := range slices.Sorted(slices.Values(r.Names)) {
		d, err := lookup(conn.LookupDomainByName(name))
		if errors.Is(err, machine.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		err = d.claim(r.ClusterID)
		d.free()
		switch {
		case errors.Is(err, machine.ErrNotFound): // it went away just now
		case errors.Is(err, machine.ErrForeign):
			err = fmt.Errorf("%w; it is neither taken over nor removed: rename or remove it, or choose another name", err)
			fallthrough
		case err != nil:
			problems = append(problems, machine.Problem{Field: machine.FieldName, Err: err})
		}
	}
	return problems, nil
}
