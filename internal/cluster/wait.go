package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/guestagent"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/k3s"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// pollInterval is how often a wait looks again. A look costs one round trip to the hypervisor or the API.
const pollInterval = 2 * time.Second

// poll calls look until it is done or fails, or ctx ends. look keeps the reason why it is not done yet to itself, for
// the caller to tell when poll returns the context's error. A Failure that look found counts even if ctx has ended by
// then; any other error may be no more than the sign of that.
func poll(ctx context.Context, look func(context.Context) (done bool, err error)) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		done, err := look(ctx)
		var f *Failure
		switch {
		case done, errors.As(err, &f):
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

// errWait ends a wait whose own bound has passed; the context it stands in goes on.
var errWait = errors.New("gave up waiting")

func within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, errWait)
}

// insist repeats what a moment's trouble of the API or a guest agent may have foiled, for as long as an agent is waited
// for, and returns the last error. A Failure ends it at once: its cause is known, and is no moment's trouble.
func (r *run) insist(ctx context.Context, do func(context.Context) error) error {
	wctx, cancel := within(ctx, r.waits.Agent)
	defer cancel()
	var last error
	err := poll(wctx, func(ctx context.Context) (bool, error) {
		var f *Failure
		if err := do(ctx); err == nil || ctx.Err() == nil || last == nil || errors.As(err, &f) {
			last = err
		}
		if errors.As(last, &f) {
			return false, last
		}
		return last == nil, nil
	})
	return blame(err, last)
}

// blame completes the end of a wait by what was in the way. A wait whose own bound has passed is told of by that alone.
func blame(err, last error) error {
	switch {
	case errors.Is(err, errWait):
		return last
	case err != nil && last != nil && !errors.Is(last, err) && !errors.Is(err, last):
		return fmt.Errorf("%w, while this was in the way: %w", err, last)
	}
	return err
}

// awaitAgent waits until the guest agent answers and the VM's own NIC has an address.
func (r *run) awaitAgent(ctx context.Context, m machine.Machine) error {
	guest := r.engine.fleet.Guest(m)
	start := time.Now()
	wctx, cancel := within(ctx, r.waits.Agent)
	defer cancel()
	answered := false
	var address string
	err := poll(wctx, func(ctx context.Context) (bool, error) {
		if !answered {
			if err := guest.Ping(ctx); err != nil {
				return false, transient(err)
			}
			answered = true
		}
		addresses, err := guest.Addresses(ctx, m.MAC)
		if err != nil || len(addresses) == 0 {
			return false, transient(err)
		}
		address = addresses[0]
		return true, nil
	})
	if err != nil {
		return r.diagnoseAgent(ctx, m, err, answered, time.Since(start))
	}
	return r.claim(address, m.Name)
}

// transient keeps only errors that end a wait: an agent that does not answer yet is none, nor is a hypervisor whose
// daemon is restarted meanwhile.
func transient(err error) error {
	if errors.Is(err, guestagent.ErrNotConnected) || errors.Is(err, machine.ErrUnreachable) {
		return nil
	}
	return err
}

// claim refuses two nodes with one address.
func (r *run) claim(address, node string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if other, ok := r.addresses[address]; ok && other != node {
		return &Failure{
			Err:    fmt.Errorf("it has the address %s, which node %q has too", address, other),
			Cause:  "the golden image was not cleaned: its /etc/machine-id is not empty, so both VMs ask for the same DHCP lease.",
			Remedy: "empty /etc/machine-id in the golden image, and make the nodes anew.",
		}
	}
	if r.addresses == nil {
		r.addresses = map[string]string{}
	}
	r.addresses[address] = node
	return nil
}

// awaitBootstrap waits for the marker that the bootstrap leaves in the guest. It is over when k3s was told to start: whether
// the node joins is seen on the Node. That of a prepared server is over until its turn when it waits for that.
func (r *run) awaitBootstrap(ctx context.Context, m machine.Machine, prepared bool) error {
	guest := r.engine.fleet.Guest(m)
	wctx, cancel := within(ctx, r.waits.Bootstrap)
	defer cancel()
	var last k3s.Marker
	err := poll(wctx, func(ctx context.Context) (bool, error) {
		raw, err := guest.ReadFile(ctx, k3s.MarkerPath)
		if errors.Is(err, fs.ErrNotExist) {
			return false, checkSeedRead(ctx, guest)
		}
		if err != nil {
			return false, transient(err)
		}
		marker, err := k3s.ParseMarker(raw)
		if err != nil || marker.Instance != m.UUID {
			return false, nil //nolint:nilerr // a marker of the image's own past, or one that is being written
		}
		last = marker
		switch marker.State {
		case k3s.MarkerDone:
			return true, nil
		case k3s.MarkerWaiting:
			return prepared, nil
		case k3s.MarkerFailed:
			return false, bootstrapFailure(ctx, guest, marker)
		}
		return false, nil
	})
	if errors.Is(err, errWait) {
		return r.diagnoseBootstrap(ctx, guest, last)
	}
	return explainAgent(err)
}

// awaitReady waits until the node is Ready at the wanted version. Of a VM that was restarted the API still tells what it
// was before, so its Node counts only once it speaks of the guest's present boot.
func (r *run) awaitReady(ctx context.Context, m machine.Machine) error {
	r.mu.Lock()
	restarted := r.restarted[m.UUID]
	r.mu.Unlock()
	wctx, cancel := within(ctx, r.waits.Ready)
	defer cancel()
	var last error
	err := poll(wctx, func(ctx context.Context) (bool, error) {
		err := r.checkReady(ctx, m, restarted)
		if err == nil || ctx.Err() == nil || last == nil {
			last = err
		}
		return err == nil, nil
	})
	if errors.Is(err, errWait) {
		return r.diagnoseReady(ctx, m, last)
	}
	return blame(err, last)
}

var (
	// errNotReady: the API answers, and the node is not there yet.
	errNotReady = errors.New("it is not Ready")
	// errNoNetwork: it is errNotReady, and its kubelet says that it has no network.
	errNoNetwork = fmt.Errorf("%w", errNotReady)
)

// notReady is the error of a node that has registered.
func notReady(n Node) error {
	err := errNotReady
	if strings.Contains(n.Message, "NetworkPluginNotReady") || strings.Contains(n.Message, "cni plugin") {
		err = errNoNetwork
	}
	return fmt.Errorf("%w: %s: %s", err, n.Reason, n.Message)
}

func (r *run) checkReady(ctx context.Context, m machine.Machine, restarted bool) error {
	boot := ""
	if restarted {
		raw, err := r.engine.fleet.Guest(m).ReadFile(ctx, "/proc/sys/kernel/random/boot_id")
		if err != nil {
			return fmt.Errorf("ask for its boot: %w", err)
		}
		boot = strings.TrimSpace(string(raw))
	}
	return r.withAPI(ctx, func(k Kube) error {
		if m.Record.Role == record.Server {
			if err := k.Ready(ctx); err != nil {
				return err
			}
		}
		nodes, err := k.Nodes(ctx)
		if err != nil {
			return err
		}
		for _, n := range nodes {
			switch {
			case n.Name != m.Name:
			case boot != "" && n.BootID != boot:
				return fmt.Errorf("%w: it has not reported since its VM was started", errNotReady)
			case !n.Ready:
				return notReady(n)
			case m.Record.Role == record.Server && !n.Voter: // the label that tells of the member may come later
				return fmt.Errorf("%w: its member of etcd has no vote yet", errNotReady)
			case n.K3sVersion != r.settings.K3sVersion:
				return fmt.Errorf("%w at version %s: it runs %s", errNotReady, r.settings.K3sVersion, n.K3sVersion)
			default:
				return nil
			}
		}
		return fmt.Errorf("%w: it has not registered with the API", errNotReady)
	})
}
