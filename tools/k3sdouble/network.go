package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
)

// cniDir is where containerd looks for a network configuration when k3s brings none of its own.
const cniDir = "/etc/cni/net.d"

// network is the node's pod network as far as it shows: configuration files, interfaces, annotations.
type network struct {
	o       *options
	flannel string
	started atomic.Bool
}

// ready reports whether a container runtime would find a network: flannel's once it has the node's subnet, else any
// configuration that somebody put into /etc/cni/net.d.
func (n *network) ready() bool {
	if n.flannel != "none" {
		return n.started.Load()
	}
	entries, err := os.ReadDir(cniDir)
	if err != nil {
		return false
	}
	for _, e := range entries {
		switch filepath.Ext(e.Name()) {
		case ".conf", ".conflist", ".json":
			return true
		}
	}
	return false
}

// start brings flannel up for the node's subnet.
func (n *network) start(ctx context.Context, podCIDR string) error {
	if n.flannel == "none" || n.started.Load() {
		return nil
	}
	file := n.o.path("agent", "etc", "cni", "net.d", "10-flannel.conflist")
	if err := writeFile(file, []byte(flannelConf), 0o600); err != nil {
		return err
	}
	prefix, err := netip.ParsePrefix(podCIDR)
	if err != nil {
		return fmt.Errorf("pod CIDR: %w", err)
	}
	base := prefix.Masked().Addr()
	for _, link := range []struct {
		name, addr string
		kinds      [][]string
	}{
		{"flannel.1", base.String() + "/32", [][]string{{"vxlan", "id", "1", "dstport", "8472", "nolearning"}, {"dummy"}}},
		{"cni0", netip.PrefixFrom(base.Next(), prefix.Bits()).String(), [][]string{{"bridge"}, {"dummy"}}},
	} {
		if link.name == "flannel.1" && n.flannel != "vxlan" {
			continue // the other backends have no such interface
		}
		if err := addLink(ctx, link.name, link.addr, link.kinds); err != nil {
			// The interfaces are there to be seen; nothing goes through them.
			log.warnf("Failed to set up %s: %v", link.name, err)
		}
	}
	n.started.Store(true)
	return nil
}

// addLink makes an interface of the first kind that the kernel offers, with an address. One that is there stays.
func addLink(ctx context.Context, name, addr string, kinds [][]string) error {
	if _, err := os.Stat("/sys/class/net/" + name); err == nil {
		return nil
	}
	var err error
	for _, kind := range kinds {
		if err = ip(ctx, append([]string{"link", "add", name, "type"}, kind...)...); err == nil {
			break
		}
	}
	if err != nil {
		return err
	}
	if err := ip(ctx, "addr", "add", addr, "dev", name); err != nil {
		return err
	}
	return ip(ctx, "link", "set", name, "up")
}

func ip(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// annotations are those that flannel keeps on its node.
func (n *network) annotations(nodeIP string) map[string]string {
	if n.flannel == "none" || !n.started.Load() {
		return nil
	}
	a := map[string]string{
		"flannel.alpha.coreos.com/backend-type": n.flannel, "flannel.alpha.coreos.com/kube-subnet-manager": "true",
		"flannel.alpha.coreos.com/public-ip": nodeIP, "flannel.alpha.coreos.com/backend-data": "null",
	}
	if n.flannel == "vxlan" {
		if mac := read("/sys/class/net/flannel.1/address"); mac != "" {
			a["flannel.alpha.coreos.com/backend-data"] = fmt.Sprintf(`{"VNI":1,"VtepMAC":%q}`, mac)
		}
	}
	return a
}

const flannelConf = `{
  "name":"cbr0",
  "cniVersion":"1.0.0",
  "plugins":[
    {"type":"flannel","delegate":{"hairpinMode":true,"forceAddress":true,"isDefaultGateway":true}},
    {"type":"portmap","capabilities":{"portMappings":true}},
    {"type":"bandwidth","capabilities":{"bandwidth":true}}
  ]
}
`
