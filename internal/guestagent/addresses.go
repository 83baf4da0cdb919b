package guestagent

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// netInterface is one element of the answer to guest-network-get-interfaces.
type netInterface struct {
	HardwareAddress string `json:"hardware-address"`
	IPAddresses     []struct {
		IPAddress string `json:"ip-address"`
	} `json:"ip-addresses"`
}

// Addresses returns the global-scope addresses of the interface with that MAC, IPv4 first, each family in the guest's
// order. None is no error: the agent starts before DHCP is done, so an empty answer means "not yet".
//
// The interface is chosen by its MAC alone: what a CNI adds inside the guest has others.
func (a *Agent) Addresses(ctx context.Context, mac string) ([]string, error) {
	var interfaces []netInterface
	if err := a.command(ctx, cmdInterfaces, nil, &interfaces); err != nil {
		return nil, err
	}
	return choose(interfaces, mac), nil
}

// choose picks the usable addresses of the interface with that MAC.
func choose(interfaces []netInterface, mac string) []string {
	var v4, v6 []string
	for _, nic := range interfaces {
		if !sameMAC(nic.HardwareAddress, mac) {
			continue
		}
		for _, a := range nic.IPAddresses {
			addr, ok := global(a.IPAddress)
			if !ok {
				continue
			}
			text := addr.String()
			switch {
			case slices.Contains(v4, text), slices.Contains(v6, text):
			case addr.Is4():
				v4 = append(v4, text)
			default:
				v6 = append(v6, text)
			}
		}
	}
	return append(v4, v6...)
}

// global parses an address and reports whether other hosts can reach it: loopback, link-local, multicast and
// unspecified addresses are none. A zone ("%eth0") is dropped.
func global(text string) (netip.Addr, bool) {
	text, _, _ = strings.Cut(text, "%")
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}, false
	}
	addr = addr.Unmap()
	return addr, addr.IsGlobalUnicast()
}

// sameMAC compares two MAC addresses in whatever spelling.
func sameMAC(a, b string) bool {
	x, errX := net.ParseMAC(a)
	y, errY := net.ParseMAC(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
