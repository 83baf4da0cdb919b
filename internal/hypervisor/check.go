package hypervisor

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"libvirt.org/go/libvirt"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
)

// Check returns every reason why the VMs of a request cannot be made on its hypervisor. It starts the storage pool and
// the network if they are inactive. The error is machine.ErrUnreachable where the hypervisor does not answer.
func (f *Fleet) Check(ctx context.Context, r machine.Request) ([]machine.Problem, error) {
	h, err := f.host(r.Hypervisor)
	if err != nil {
		return nil, err
	}
	ctx, cancel := answering(ctx)
	defer cancel()
	return within(ctx, func() (problems []machine.Problem, err error) {
		err = h.do(ctx, func(conn *libvirt.Connect) (err error) {
			problems, err = f.check(ctx, h, conn, r)
			return err
		})
		return problems, err
	})
}

func (f *Fleet) check(ctx context.Context, h *host, conn *libvirt.Connect, r machine.Request) ([]machine.Problem, error) {
	problems := f.checkDisk(ctx, h, conn, r)
	if r.Network != "" {
		if err := startNetwork(conn, r.Network); err != nil {
			problems = append(problems, machine.Problem{Field: machine.FieldNetwork, Err: err})
		}
	}
	if r.Bridge != "" {
		if err := checkBridge(conn, r.Bridge); err != nil {
			problems = append(problems, machine.Problem{Field: machine.FieldBridge, Err: err})
		}
	}
	names, err := checkNames(conn, r)
	problems = append(problems, names...)
	if err == nil {
		err = context.Cause(ctx)
	}
	// A connection that broke meanwhile makes for problems that are none; h.do sees that for any error.
	if err == nil && len(problems) > 0 {
		_, err = conn.GetLibVersion()
		err = wrap(err, "ask for the version")
	}
	return problems, err
}

// checkDisk looks at the storage pool, the template and the size of the disk. Without a pool there is no more to say.
func (f *Fleet) checkDisk(ctx context.Context, h *host, conn *libvirt.Connect, r machine.Request) []machine.Problem {
	p, err := h.pool(conn, r.StoragePool)
	if err != nil {
		return []machine.Problem{{Field: machine.FieldStoragePool, Err: err}}
	}
	defer p.free()
	t, err := f.findTemplate(ctx, h, conn, p)
	if err != nil {
		return []machine.Problem{{Field: machine.FieldTemplate, Err: err}}
	}
	defer t.free()
	if err := t.fits(r.DiskGiB); err != nil {
		return []machine.Problem{{Field: machine.FieldDisk, Err: err}}
	}
	return nil
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
