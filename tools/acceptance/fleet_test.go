package acceptance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/terraform"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab"
)

// Each of the hypervisors that the tests of a fleet need. The first two share a pool.
var fleet = []string{"hv-a", "hv-b", "hv-c"}

// inFleet is inLab for what needs several hypervisors. No hypervisor has a copy of the template.
func inFleet(t *testing.T) *lab.Lab {
	t.Helper()
	l := inLab(t)
	if len(l.Hypervisors) < len(fleet) {
		t.Skipf("needs a lab with %d hypervisors: lab up -hypervisors %[1]d", len(fleet))
	}
	for _, hv := range fleet {
		entries, data := copies(t, l, hv)
		for _, volume := range append(entries, data...) {
			virsh(t, l, hv, "vol-delete", "--pool", lab.DefaultPool, volume)
		}
	}
	return l
}

// copies lists what the cache in the pool of a hypervisor's nodes has of the template: what clones are made from, and the
// data behind it.
func copies(t *testing.T, l *lab.Lab, hv string) (entries, data []string) {
	t.Helper()
	for _, volume := range having(volumesIn(t, l, hv, lab.DefaultPool), "cockpit-"+l.Template) {
		if strings.Contains(volume, ".data") {
			data = append(data, volume)
		} else {
			entries = append(entries, volume)
		}
	}
	return entries, data
}

// copied makes sure that each hypervisor has as many copies of the template.
func copied(t *testing.T, l *lab.Lab, want map[string]int) resource.TestCheckFunc {
	return func(*terraform.State) error {
		for _, hv := range fleet {
			if entries, data := copies(t, l, hv); len(entries) != want[hv] || len(data) != want[hv] {
				return fmt.Errorf("hypervisor %s has copies %v of the template with the data %v, want %d", hv, entries, data, want[hv])
			}
		}
		return nil
	}
}

// vanish removes a VM and its volumes behind Terraform's back.
func vanish(t *testing.T, l *lab.Lab, hv, node string) {
	t.Helper()
	virsh(t, l, hv, "destroy", node)
	virsh(t, l, hv, "undefine", node)
	for _, volume := range volumes(t, l, hv, node) {
		virsh(t, l, hv, "vol-delete", "--pool", lab.DefaultPool, volume)
	}
}

// stop kills the libvirtd of a hypervisor; in the end it runs again, whatever the test does.
func stop(t *testing.T, l *lab.Lab, hv string) {
	t.Helper()
	t.Cleanup(func() { start(t, l, hv) })
	if err := l.StopHypervisor(t.Context(), hv); err != nil {
		t.Fatal(err)
	}
}

func start(t *testing.T, l *lab.Lab, hv string) {
	t.Helper()
	if err := l.StartHypervisor(context.Background(), hv); err != nil {
		t.Fatal(err)
	}
}

// strikePoll is how often strike looks. What it waits for may be over in a second.
const strikePoll = 5 * time.Millisecond

// strike runs Terraform and kills the libvirtd of a hypervisor as soon as it sees something. It returns what Terraform
// said of its failure.
func (c *cli) strike(l *lab.Lab, hv string, seen func() bool, args ...string) string {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	struck := make(chan error, 1)
	go func() {
		struck <- when(ctx, seen, func() error { return l.StopHypervisor(context.WithoutCancel(ctx), hv) })
	}()
	out, err := c.try(args...)
	cancel()
	switch missed := <-struck; {
	case missed != nil:
		c.t.Fatalf("hypervisor %s was not stopped while Terraform ran: %v\n%s", hv, missed, out)
	case err == nil:
		c.t.Fatalf("terraform %s did not fail:\n%s", strings.Join(args, " "), out)
	}
	return out
}

// when does something once, as soon as it sees something else. Its error is that, or that ctx ended before.
func when(ctx context.Context, seen func() bool, do func() error) error {
	tick := time.NewTicker(strikePoll)
	defer tick.Stop()
	for !seen() {
		select {
		case <-ctx.Done():
			return errors.New("what was waited for did not happen")
		case <-tick.C:
		}
	}
	return do()
}

// hostPath is where a path of a hypervisor lies on this machine.
func hostPath(t *testing.T, l *lab.Lab, hv, path string) string {
	t.Helper()
	at, err := l.HostPath(hv, path)
	if err != nil {
		t.Fatal(err)
	}
	return at
}
