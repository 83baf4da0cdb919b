package hypervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"libvirt.org/go/libvirt"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
)

// answerTimeout bounds what is asked of one hypervisor while a plan waits. A daemon's first look at its QEMU can take
// tens of seconds on a slow host.
const answerTimeout = 90 * time.Second

// answering bounds ctx by answerTimeout; one that passes it counts as unreachable.
func answering(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, answerTimeout, fmt.Errorf("%w: no answer within %s", machine.ErrUnreachable, answerTimeout))
}

// Observe looks at all hypervisors in parallel. A hypervisor that cannot be asked does not keep the others from being
// seen. What was seen is in the order of hypervisor and name.
func (f *Fleet) Observe(ctx context.Context) machine.Observation {
	o := machine.Observation{Unreachable: map[string]error{}}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for name, h := range f.hosts {
		wg.Go(func() {
			ctx, cancel := answering(ctx)
			defer cancel()
			seen, err := within(ctx, func() (machine.Observation, error) { return h.observe(ctx) })
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				o.Unreachable[name] = err
			}
			include(&o, seen)
		})
	}
	wg.Wait()
	slices.SortFunc(o.Machines, func(a, b machine.Machine) int {
		return cmp.Or(cmp.Compare(a.Hypervisor, b.Hypervisor), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UUID, b.UUID))
	})
	slices.SortFunc(o.Unreadable, func(a, b machine.Unreadable) int {
		return cmp.Or(cmp.Compare(a.Hypervisor, b.Hypervisor), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UUID, b.UUID))
	})
	return o
}

// include adds the VMs of one observation to another.
func include(o *machine.Observation, seen machine.Observation) {
	o.Machines = append(o.Machines, seen.Machines...)
	o.Unreadable = append(o.Unreadable, seen.Unreadable...)
}

// observe lists our VMs on one hypervisor: one call for the list, one for each domain and two more for each of ours, side
// by side as far as the connection has places.
func (h *host) observe(ctx context.Context) (machine.Observation, error) {
	var found []machine.Observation
	err := h.do(ctx, func(conn *libvirt.Connect) error {
		domains, err := conn.ListAllDomains(0)
		if err != nil {
			return wrap(err, "list the domains")
		}
		defer func() {
			for i := range domains {
				_ = domains[i].Free()
			}
		}()
		found = make([]machine.Observation, len(domains))
		places := 1
		for h.calls.TryAcquire(1) {
			places++
		}
		defer h.calls.Release(int64(places - 1))
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(places)
		for i := range domains {
			g.Go(func() (err error) {
				if err := context.Cause(ctx); err != nil {
					return err
				}
				found[i], err = h.look(&domains[i])
				return err
			})
		}
		return g.Wait()
	})
	if err != nil {
		return machine.Observation{}, err
	}
	var o machine.Observation
	for _, seen := range found {
		include(&o, seen)
	}
	return o, nil
}

// look reads one domain. It sees nothing where the domain is not ours or went away just now.
func (h *host) look(found *libvirt.Domain) (o machine.Observation, err error) {
	m := machine.Machine{Hypervisor: h.name}
	if m.Name, err = found.GetName(); err == nil {
		m.UUID, err = found.GetUUIDString()
	}
	if err != nil {
		return o, wrap(err, "read the name and UUID of a domain")
	}
	m.Record, err = readRecord(found)
	switch {
	case errors.Is(err, errNoRecord):
		return o, nil
	case err == nil:
		err = (&domain{Domain: found}).describe(&m)
	case message(err) == "": // not the call has failed: the record is at fault
		o.Unreadable = []machine.Unreadable{{Hypervisor: h.name, Name: m.Name, UUID: m.UUID, Err: err}}
		return o, nil
	}
	switch {
	case errors.Is(err, machine.ErrNotFound):
		return o, nil
	case err != nil:
		return o, fmt.Errorf("VM %q: %w", m.Name, err)
	}
	o.Machines = []machine.Machine{m}
	return o, nil
}

// describe adds the power state and the MAC address of a VM.
func (d *domain) describe(m *machine.Machine) (err error) {
	if m.Power, err = d.power(); err != nil {
		return err
	}
	def, err := d.definition()
	if err != nil {
		return err
	}
	for _, nic := range def.Devices.Interfaces {
		if nic.MAC != nil {
			m.MAC = nic.MAC.Address
			break
		}
	}
	return nil
}
