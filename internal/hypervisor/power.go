package hypervisor

import (
	"context"
	"errors"
	"time"

	"libvirt.org/go/libvirt"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
)

// stopPoll is how often Stop looks whether the guest has powered itself off.
const stopPoll = time.Second

// Start powers the VM on, and lets a paused one go on. The network and the storage pools are started first where the
// hypervisor did not start them.
func (f *Fleet) Start(ctx context.Context, m machine.Machine) error {
	return f.on(ctx, m.Hypervisor, "start the VM", func(ctx context.Context, h *host) error {
		return h.withDomain(ctx, m, func(conn *libvirt.Connect, d *domain) error { return h.start(ctx, conn, d) })
	})
}

func (h *host) start(ctx context.Context, conn *libvirt.Connect, d *domain) error {
	switch state, err := d.power(); {
	case err != nil || state == machine.Running:
		return err
	case state == machine.Paused:
		return wrap(d.Resume(), "let it go on")
	}
	shape := d.record.Shape
	pools := []string{shape.StoragePool}
	if shape.Data.SizeGiB > 0 && shape.Data.StoragePool != shape.StoragePool {
		pools = append(pools, shape.Data.StoragePool)
	}
	for _, name := range pools {
		pool, err := h.pool(conn, name)
		if err != nil {
			return err
		}
		pool.free()
	}
	networks, err := d.networks()
	if err != nil {
		return err
	}
	for _, name := range networks {
		if err := startNetwork(conn, name); err != nil {
			return err
		}
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	err = d.Create()
	if errors.Is(err, libvirt.ERR_OPERATION_INVALID) { // somebody else was faster
		if state, perr := d.power(); perr == nil && state == machine.Running {
			return nil
		}
	}
	return explainStart(wrap(err, "start the domain"))
}

// Stop powers the VM off. It asks the guest, through its agent or else by ACPI, and pulls the plug after grace. A VM
// whose domain is gone is off.
func (f *Fleet) Stop(ctx context.Context, m machine.Machine, grace time.Duration) error {
	return f.on(ctx, m.Hypervisor, "stop the VM", func(ctx context.Context, h *host) error {
		if h.askDown(ctx, m, grace) {
			return nil
		}
		err := h.withDomain(ctx, m, func(_ *libvirt.Connect, d *domain) error { return pullPlug(ctx, d) })
		if errors.Is(err, machine.ErrNotFound) {
			return nil
		}
		return err
	})
}

// askDown asks the guest to power itself off and reports whether it did so within grace. A guest that cannot be asked,
// or that is paused, is not waited for; why it cannot be asked comes up again when the plug is pulled.
func (h *host) askDown(ctx context.Context, m machine.Machine, grace time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	down, err := within(ctx, func() (bool, error) {
		asked := false
		for {
			var state machine.Power
			err := h.withDomain(ctx, m, func(_ *libvirt.Connect, d *domain) (err error) {
				if state, err = d.power(); err == nil && state == machine.Running && !asked {
					asked = true
					err = wrap(d.Shutdown(), "ask the guest to shut down")
				}
				return err
			})
			if err != nil || state != machine.Running {
				return state == machine.Stopped, err
			}
			select {
			case <-ctx.Done():
				return false, nil
			case <-time.After(stopPoll):
			}
		}
	})
	return down && err == nil
}

// pullPlug powers a domain off at once.
func pullPlug(ctx context.Context, d *domain) error {
	state, err := d.power()
	if err != nil || state == machine.Stopped {
		return err
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	err = d.Destroy()
	if errors.Is(err, libvirt.ERR_OPERATION_INVALID) || errors.Is(err, libvirt.ERR_NO_DOMAIN) { // it went off by itself
		return nil
	}
	return wrap(err, "power it off")
}
