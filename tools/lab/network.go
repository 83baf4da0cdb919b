package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/internal/run"
)

// Interfaces inside the lab's namespaces. None is ever made in the machine's own.
const (
	lanBridge  = "lan0" // in the LAN's namespace
	bridgeName = "br0"  // in each hypervisor's namespace
	uplink     = "lan"  // each hypervisor's cable to the LAN
)

// ipScript runs the lines of a script for "ip -batch" inside a network namespace.
func ipScript(ctx context.Context, netns, script string) error {
	cmd := run.Command(ctx, "ip", "-netns", netns, "-batch", "-")
	cmd.Stdin = strings.NewReader(script)
	if err := run.Do(cmd); err != nil {
		return fmt.Errorf("setting up network namespace %s: %w", netns, err)
	}
	return nil
}

// makeLAN makes the namespaces of the LAN and of every hypervisor and joins them.
func makeLAN(ctx context.Context, l layout, hypervisors []Hypervisor) error {
	add := func(netns string) error { return run.Do(run.Command(ctx, "ip", "netns", "add", netns)) }
	if err := add(l.lanNetns()); err != nil {
		return err
	}
	if err := ipScript(ctx, l.lanNetns(), lanScript()); err != nil {
		return err
	}
	for _, h := range hypervisors {
		if err := add(h.Netns); err != nil {
			return err
		}
		if err := ipScript(ctx, l.lanNetns(), cableScript(h)); err != nil {
			return err
		}
		if err := ipScript(ctx, h.Netns, hostScript(h)); err != nil {
			return err
		}
	}
	return nil
}

// lanScript makes the switch of the LAN, which is also its router and server. Forwarding starts at once: without spanning
// tree there is nothing to wait for.
func lanScript() string {
	return fmt.Sprintf(`link set lo up
link add %[1]s type bridge forward_delay 0 stp_state 0 mcast_snooping 0
address add %[2]s/%[3]d dev %[1]s
link set %[1]s up
`, lanBridge, lanGateway, lanPrefix.Bits())
}

// cableScript lays a cable from the switch to a hypervisor.
func cableScript(h Hypervisor) string {
	return fmt.Sprintf(`link add %[1]s type veth peer name %[2]s netns %[3]s
link set %[1]s master %[4]s up
`, h.Name, uplink, h.Netns, lanBridge)
}

// hostScript makes the hypervisor's bridge, with the cable in it, and its own address.
func hostScript(h Hypervisor) string {
	return fmt.Sprintf(`link set lo up
link add %[1]s type bridge forward_delay 0 stp_state 0 mcast_snooping 0
link set %[2]s master %[1]s up
address add %[3]s/%[4]d dev %[1]s
link set %[1]s up
route add default via %[5]s
`, bridgeName, uplink, h.Address, lanPrefix.Bits(), lanGateway)
}

// namespaces lists the network namespaces of the lab that exist.
func (l layout) namespaces() ([]string, error) {
	entries, err := os.ReadDir(netnsDir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking for the lab's network namespaces: %w", err)
	}
	var found []string
	for _, e := range entries {
		if l.owns(e.Name()) {
			found = append(found, e.Name())
		}
	}
	return found, nil
}

// owns says whether a network namespace of that name is this lab's. That of lab "a-b" begins as those of lab "a" do, so it
// also looks at what follows.
func (l layout) owns(netns string) bool {
	rest, ok := strings.CutPrefix(netns, l.netnsPrefix())
	return ok && (rest == "lan" || hypervisorForm.MatchString(rest))
}

func netnsPath(name string) string { return filepath.Join(netnsDir, name) }
