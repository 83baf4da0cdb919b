package hypervisor

import (
	"errors"
	"fmt"

	"libvirt.org/go/libvirt"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
)

// startNetwork starts a libvirt network unless it is active.
func startNetwork(conn *libvirt.Connect, name string) error {
	n, err := conn.LookupNetworkByName(name)
	if err != nil {
		if errors.Is(err, libvirt.ERR_NO_NETWORK) {
			return fmt.Errorf("network %q: %w; %s", name, machine.ErrNotFound, offer(networkNames(conn)))
		}
		return wrap(err, "look for the network %q", name)
	}
	defer func() { _ = n.Free() }()
	active, err := n.IsActive()
	if err != nil || active {
		return wrap(err, "ask whether the network %q is active", name)
	}
	if err := n.Create(); err != nil && !errors.Is(err, libvirt.ERR_OPERATION_INVALID) { // somebody else was faster
		return wrap(err, "network %q is inactive and cannot be started", name)
	}
	return nil
}

// networkNames lists the libvirt networks.
func networkNames(conn *libvirt.Connect) []string {
	networks, err := conn.ListAllNetworks(0)
	if err != nil {
		return nil
	}
	var names []string
	for _, n := range networks {
		if name, err := n.GetName(); err == nil {
			names = append(names, name)
		}
		_ = n.Free()
	}
	return names
}

// checkBridge looks for a host bridge. Only a clear "there is none" is an error: not every hypervisor lets its
// interfaces be listed, and a bridge of Open vSwitch does not look like one.
func checkBridge(conn *libvirt.Connect, name string) error {
	i, err := conn.LookupInterfaceByName(name)
	if errors.Is(err, libvirt.ERR_NO_INTERFACE) {
		return fmt.Errorf("bridge %q: %w among the host's interfaces", name, machine.ErrNotFound)
	}
	if err == nil {
		_ = i.Free()
	}
	return nil
}
