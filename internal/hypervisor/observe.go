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
// seen. The machines are in the order of hypervisor and name.
func (f *Fleet) Observe(ctx context.Context) machine.Observation {
	o := machine.Observation{Unreachable: map[string]error{}}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for name, h := range f.hosts {
		wg.Go(func() {
			ctx, cancel := answering(ctx)
			defer cancel()
			machines, err := within(ctx, func() ([]machine.Machine, error) { return h.observe(ctx) })
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				o.Unreachable[name] = err
			}
			o.Machines = append(o.Machines, machines...)
		})
	}
	wg.Wait()
	slices.SortFunc(o.Machines, func(a, b machine.Machine) int {
		return cmp.Or(cmp.Compare(a.Hypervisor, b.Hypervisor), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UUID, b.UUID))
	})
	return o
}

// observe lists our VMs on one hypervisor: one call for the list, one for each domain and two more for each of ours, side
// by side as far as the connection has places.
func (h *host) observe(ctx context.Context) ([]machine.Machine, error) {
	var found []*machine.Machine
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
		found = make([]*machine.Machine, len(domains))
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
				found[i], err = h.look(ctx, &domains[i])
				return err
			})
		}
		return g.Wait()
	})
	if err != nil {
		return nil, err
	}
	var machines []machine.Machine
	for _, m := range found {
		if m != nil {
			machines = append(machines, *m)
		}
	}
	return machines, nil
}

// look reads one domain; nil is one that is not ours, or went away just now. A record that cannot be read is nobody's:
// its domain is not touched, and a warning tells of it.
func (h *host) look(ctx context.Context, found *libvirt.Domain) (*machine.Machine, error) {
	name, err := found.GetName()
	if err != nil {
		return nil, wrap(err, "read the name of a domain")
	}
	d := &domain{Domain: found, name: name}
	r, err := readRecord(found)
	switch {
	case errors.Is(err, errNoRecord), errors.Is(err, machine.ErrNotFound):
		return nil, nil
	case message(err) != "":
		return nil, fmt.Errorf("VM %q: %w", name, err)
	case err != nil:
		tflog.Warn(ctx, "a VM has a record that cannot be read; it is left alone",
			map[string]any{"hypervisor": h.name, "vm": name, "error": err.Error()})
		return nil, nil
	}
	m := &machine.Machine{Hypervisor: h.name, Name: name, Record: r}
	if err := d.describe(m); err != nil {
		if errors.Is(err, machine.ErrNotFound) {
			return nil, nil
		}
		return nil, fmt.Errorf("VM %q: %w", name, err)
	}
	return m, nil
}

// describe adds what libvirt knows of a VM.
func (d *domain) describe(m *machine.Machine) (err error) {
	if m.UUID, err = d.GetUUIDString(); err != nil {
		return wrap(err, "read its UUID")
	}
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
