package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/internal/flock"
	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/internal/proc"
	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/internal/run"
)

const (
	// daemonGrace is what a daemon gets to end by itself; the service stops its control planes in it.
	daemonGrace = 15 * time.Second
	// guestGrace is what QEMU gets to close its disks.
	guestGrace = 3 * time.Second
)

// Down removes the lab of that name with everything in it: VMs, daemons, network namespaces, directories. What is gone
// already is no error, nor is a lab that never was.
func Down(ctx context.Context, name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("a lab is made and removed by root")
	}
	l := layout{name}
	unlock, err := flock.Lock(ctx, l.lockFile())
	if err != nil {
		return err
	}
	defer unlock()
	if err := down(ctx, l); err != nil {
		return fmt.Errorf("taking lab %q down: %w", name, err)
	}
	return nil
}

// down works from what exists and not from the state alone, so that no crash leaves something behind for good.
func down(ctx context.Context, l layout) error {
	s, err := readState(l)
	boot, bootErr := proc.BootID()
	if err == nil && bootErr == nil && s.BootID == boot {
		// The last started goes first: libvirtd before its guests, so that it does not report them as crashed.
		for _, d := range slices.Backward(s.Processes) {
			if err := d.Stop(ctx, daemonGrace); err != nil {
				return err
			}
		}
	}
	namespaces, err := l.namespaces()
	if err != nil {
		return err
	}
	for _, ns := range namespaces {
		if err := clearNamespace(ctx, ns); err != nil {
			return err
		}
	}
	for _, ns := range namespaces {
		if err := run.Do(run.Command(ctx, "ip", "netns", "delete", ns)); err != nil {
			return fmt.Errorf("removing network namespace %s: %w", ns, err)
		}
	}
	// The mounts went with the processes in whose namespaces they were; the directories are plain ones now.
	return errors.Join(os.RemoveAll(l.runDir()), os.RemoveAll(l.dataDir()))
}

// clearNamespace ends everything that still lives in a network namespace: QEMU, control planes, programs of "lab exec".
// Nothing but the lab's own can be in there.
func clearNamespace(ctx context.Context, ns string) error {
	left, err := proc.InNetwork(netnsPath(ns))
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, p := range left {
		group.Go(func() error { return p.Stop(ctx, guestGrace) })
	}
	return group.Wait()
}
