package hypervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/terraform-plugin-log/tflog"
	"libvirt.org/go/libvirt"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
)

const (
	// answerTimeout bounds what is asked of one hypervisor while a plan waits. A daemon's first look at its QEMU can take
	// tens of seconds on a slow host.
	answerTimeout = 90 * time.Second
	// listPatience is how long the list of all domains may take, which is a matter of milliseconds unless a VM is frozen.
	listPatience = 5 * time.Second
)

var (
	// errFrozen: the list of all domains does not come. QEMU of one of them has stopped to answer, as it does where its
	// disk is on a file server that has gone away.
	errFrozen = fmt.Errorf("the list of all domains did not come within %s", listPatience)
	// errListing: such a list is under way already.
	errListing = errors.New("an earlier list of all domains has not come yet")
)

// answering bounds ctx by answerTimeout; one that passes it counts as unreachable.
func answering(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, answerTimeout, fmt.Errorf("%w: no answer within %s", machine.ErrUnreachable, answerTimeout))
}

// Survey looks at all hypervisors in parallel, with two calls for each. A hypervisor that cannot be asked does not keep
// the others from being seen. Domains are in the order of their names.
func (f *Fleet) Survey(ctx context.Context) machine.Survey {
	s := machine.Survey{Hosts: map[string]machine.Host{}, Unreachable: map[string]error{}}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for name, h := range f.hosts {
		wg.Go(func() {
			ctx, cancel := answering(ctx)
			defer cancel()
			seen, err := within(ctx, func() (machine.Host, error) { return h.survey(ctx) })
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				s.Unreachable[name] = err
				return
			}
			s.Hosts[name] = seen
		})
	}
	wg.Wait()
	return s
}

// survey looks at one hypervisor. A VM that is frozen delays it, and a driver that cannot list what is wanted makes it
// cost a call for each domain; neither alters what is seen.
func (h *host) survey(ctx context.Context) (seen machine.Host, err error) {
	err = h.look(ctx, func(conn *libvirt.Connect) error {
		info, err := conn.GetNodeInfo()
		if err != nil {
			return wrap(err, "ask for CPUs and memory")
		}
		seen.CPUs, seen.MemoryMiB = int(info.Cpus), int(info.Memory/1024) //nolint:gosec // no memory is that large
		return nil
	})
	if err != nil {
		return machine.Host{}, err
	}
	seen.Domains, err = h.listAtOnce(ctx)
	if err != nil && ctx.Err() == nil {
		tflog.Debug(ctx, "domains are asked one by one", map[string]any{"hypervisor": h.name, "reason": err.Error()})
		seen.Domains, err = h.listEach(ctx)
	}
	if err != nil {
		return machine.Host{}, err
	}
	slices.SortFunc(seen.Domains, func(a, b machine.Domain) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UUID, b.UUID))
	})
	return seen, nil
}

// listAtOnce lists all domains with one call. A frozen VM keeps that call from ending, which then is left behind with
// its place among the calls; so there is one at a time.
func (h *host) listAtOnce(ctx context.Context) ([]machine.Domain, error) {
	if !h.listing.CompareAndSwap(false, true) {
		return nil, errListing
	}
	ctx, cancel := context.WithTimeoutCause(ctx, listPatience, errFrozen)
	defer cancel()
	return within(ctx, func() (domains []machine.Domain, err error) {
		defer h.listing.Store(false)
		err = h.look(ctx, func(conn *libvirt.Connect) (err error) {
			domains, err = domainStats(conn, sizeStats)
			return err
		})
		return domains, err
	})
}

// listEach lists all domains with one call and one more for each, which waits for no VM.
func (h *host) listEach(ctx context.Context) ([]machine.Domain, error) {
	all := func(*domain) bool { return true }
	return readEach(ctx, h, all, func(d *domain) (machine.Domain, error) {
		info, err := d.GetInfo()
		if err != nil {
			return machine.Domain{}, wrap(err, "ask for its state and size")
		}
		return machine.Domain{
			Name: d.name, UUID: d.uuid, Power: powerOf(info.State), VCPUs: int(info.NrVirtCpu), MemoryMiB: wholeMiB(info.MaxMem),
		}, nil
	})
}

// wholeMiB is a size in KiB in MiB, rounded up.
func wholeMiB(kib uint64) int { return int((kib + 1023) / 1024) } //nolint:gosec // no memory is that large
