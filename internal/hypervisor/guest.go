package hypervisor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"libvirt.org/go/libvirt"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/guestagent"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
)

// guest is a VM seen from inside.
type guest struct {
	*guestagent.Agent
	channel
}

// channel is the road to the agent of one VM.
type channel struct {
	fleet *Fleet
	m     machine.Machine
}

// Guest reaches into the VM. It does no I/O.
func (f *Fleet) Guest(m machine.Machine) machine.Guest {
	c := channel{f, m}
	return guest{guestagent.New(c), c}
}

// reach carries work out on the VM's hypervisor.
func reach[T any](ctx context.Context, c channel, work func(*host) (T, error)) (T, error) {
	h, err := c.fleet.host(c.m.Hypervisor)
	if err != nil {
		var none T
		return none, err
	}
	return within(ctx, func() (T, error) { return work(h) })
}

// Connected reports the state of the agent's channel: whether a process in the guest holds it open.
func (c channel) Connected(ctx context.Context) (bool, error) {
	return reach(ctx, c, func(h *host) (connected bool, err error) {
		err = h.withDomain(ctx, c.m, func(_ *libvirt.Connect, d *domain) error {
			switch state, err := d.power(); {
			case err != nil:
				return err
			case state == machine.Stopped:
				return guestagent.ErrNotRunning
			case state == machine.Paused:
				return guestagent.ErrPaused
			}
			def, err := d.definition()
			if err != nil {
				return err
			}
			for _, ch := range def.Devices.Channels {
				if ch.Target != nil && ch.Target.VirtIO != nil && ch.Target.VirtIO.Name == agentChannel {
					connected = ch.Target.VirtIO.State == "connected"
					return nil
				}
			}
			return guestagent.ErrNotConfigured
		})
		return connected, err
	})
}

// Command sends one request to the agent. It is not repeated on a new connection where the old one broke: the guest may
// have carried it out.
func (c channel) Command(ctx context.Context, request string, timeout time.Duration) (string, error) {
	return reach(ctx, c, func(h *host) (reply string, err error) {
		err = h.once(ctx, func(conn *libvirt.Connect) error {
			d, err := lookup(conn.LookupDomainByUUIDString(c.m.UUID))
			if err != nil {
				return err
			}
			defer d.free()
			seconds := libvirt.DomainQemuAgentCommandTimeout(max(1, timeout/time.Second))
			reply, err = d.QemuAgentCommand(request, seconds, 0)
			return agentError(err, d.power)
		})
		if errors.Is(err, errBroken) {
			err = fmt.Errorf("%w: %w", guestagent.ErrNotConnected, err)
		}
		return reply, err
	})
}

// agentRefusal begins libvirt's text around what the agent itself answered, up to libvirt 11.1. Later ones have a code
// for that.
const agentRefusal = "unable to execute QEMU agent command"

// agentError translates what libvirt says of an agent's command. libvirt calls every domain "not running" that does not
// run at the moment, a paused one too, so that its power state is asked for.
func agentError(err error, power func() (machine.Power, error)) error {
	var e libvirt.Error
	if !errors.As(err, &e) {
		return err
	}
	switch e.Code {
	case libvirt.ERR_AGENT_UNRESPONSIVE, libvirt.ERR_AGENT_UNSYNCED, libvirt.ERR_AGENT_COMMAND_TIMEOUT:
		return fmt.Errorf("%w: %w", guestagent.ErrNotConnected, plain(err))
	case libvirt.ERR_OPERATION_INVALID:
		switch state, perr := power(); {
		case perr != nil:
			return perr
		case state == machine.Paused:
			return guestagent.ErrPaused
		case state == machine.Running: // by now, or still on its way down
			return fmt.Errorf("%w: %w", guestagent.ErrNotConnected, plain(err))
		}
		return fmt.Errorf("%w: %w", guestagent.ErrNotRunning, plain(err))
	case libvirt.ERR_ARGUMENT_UNSUPPORTED:
		return fmt.Errorf("%w: %w", guestagent.ErrNotConfigured, plain(err))
	case libvirt.ERR_AGENT_COMMAND_FAILED:
		return &guestagent.RefusedError{Text: refusal(e.Message)}
	case libvirt.ERR_INTERNAL_ERROR:
		if strings.Contains(e.Message, agentRefusal) {
			return &guestagent.RefusedError{Text: refusal(e.Message)}
		}
	}
	return plain(err)
}

// refusal cuts libvirt's own words off what the agent answered.
func refusal(text string) string {
	if _, rest, ok := strings.Cut(text, agentRefusal); ok {
		if _, answer, ok := strings.Cut(rest, ": "); ok {
			return answer
		}
	}
	return text
}
