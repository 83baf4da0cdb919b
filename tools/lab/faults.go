package lab

import (
	"context"
	"fmt"
	"slices"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/internal/flock"
	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/internal/run"
)

// daemonName is what the libvirtd of a hypervisor is called among the lab's processes and logs.
func daemonName(hv string) string { return "libvirtd-" + hv }

// Runs says whether the libvirtd of a hypervisor was not stopped by StopHypervisor.
func (l *Lab) Runs(hv string) bool {
	_, ok := l.daemon(daemonName(hv))
	return ok
}

// StopHypervisor kills the libvirtd of a hypervisor, as a crash does; its VMs go on. One that is stopped already is no error.
func (l *Lab) StopHypervisor(ctx context.Context, hv string) error {
	return l.change(ctx, hv, "stopping libvirtd of", func(Hypervisor) error {
		d, ok := l.daemon(daemonName(hv))
		if !ok {
			return nil
		}
		if err := d.Stop(ctx, 0); err != nil {
			return err
		}
		l.Processes = slices.DeleteFunc(l.Processes, func(p Daemon) bool { return p.Name == d.Name })
		return l.write()
	})
}

// StartHypervisor starts the libvirtd of a hypervisor that was stopped, and returns when it answers; it finds its VMs
// running. One that runs is no error.
func (l *Lab) StartHypervisor(ctx context.Context, hv string) error {
	return l.change(ctx, hv, "starting libvirtd of", func(h Hypervisor) error {
		if l.Runs(hv) {
			return nil
		}
		d, err := l.startHypervisor(h, l.VirtType == "kvm")
		if err != nil {
			return err
		}
		l.Processes = append(l.Processes, d)
		if err := l.write(); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, hypervisorStart)
		defer cancel()
		if err := l.awaitHypervisor(ctx, h, d); err != nil {
			return fmt.Errorf("%w%s", err, l.logTail(d.Name))
		}
		return nil
	})
}

// CutCable takes a hypervisor's VMs off the LAN. Its libvirtd goes on to answer: it is asked through a socket.
func (l *Lab) CutCable(ctx context.Context, hv string) error {
	return l.change(ctx, hv, "cutting the cable of", func(h Hypervisor) error { return setCable(ctx, h, "down") })
}

// MendCable undoes CutCable.
func (l *Lab) MendCable(ctx context.Context, hv string) error {
	return l.change(ctx, hv, "mending the cable of", func(h Hypervisor) error { return setCable(ctx, h, "up") })
}

func setCable(ctx context.Context, h Hypervisor, state string) error {
	return run.Do(run.Command(ctx, "ip", "-netns", h.Netns, "link", "set", uplink, state))
}

// change lets work alter one hypervisor of the lab as it is now, while no other process alters the lab.
func (l *Lab) change(ctx context.Context, hv, what string, work func(Hypervisor) error) error {
	h, err := l.Hypervisor(hv)
	if err != nil {
		return err
	}
	unlock, err := flock.Lock(ctx, l.lockFile())
	if err != nil {
		return err
	}
	defer unlock()
	if l.State, err = readState(l.layout); err != nil {
		return err
	}
	if err := work(h); err != nil {
		return fmt.Errorf("%s %s: %w", what, hv, err)
	}
	return nil
}
