package addons

import (
	"strings"
	"testing"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// variant is an add-on with the settings that its values depend on.
type variant struct {
	name  string
	addon cluster.Addon
	spec  cluster.AddonSpec
}

const testRegistry = "registry.example:5000/mirror"

// variants are every plugin with every routing and every tier, on one node and on three, with and without a registry.
func variants() []variant {
	var out []variant
	add := func(name string, a cluster.Addon, s cluster.AddonSpec) {
		for _, size := range []struct {
			suffix         string
			servers, nodes int
			registry       string
		}{{"-1", 1, 1, ""}, {"-3", 3, 5, testRegistry}} {
			s.Servers, s.Nodes, s.ImageRegistry = size.servers, size.nodes, size.registry
			out = append(out, variant{name + size.suffix, a, s})
		}
	}
	network := func(c record.CNI) cluster.AddonSpec { return cluster.AddonSpec{CNI: c} }
	storage := func(c record.CSI) cluster.AddonSpec { return cluster.AddonSpec{CSI: c} }

	add("calico-ipip", cluster.Calico, network(record.CNI{Plugin: record.Calico, Routing: record.IPIP}))
	add("calico-vxlan", cluster.Calico, network(record.CNI{Plugin: record.Calico, Routing: record.VXLAN, PodCIDR: "10.64.0.0/14"}))
	add("cilium-tunnel", cluster.Cilium, network(record.CNI{Plugin: record.Cilium, Routing: record.Tunnel}))
	add("cilium-tunnel-hubble", cluster.Cilium, network(record.CNI{Plugin: record.Cilium, Routing: record.Tunnel, Hubble: true}))
	add("cilium-native", cluster.Cilium, network(record.CNI{Plugin: record.Cilium, Routing: record.Native, PodCIDR: "10.64.0.0/14"}))
	add("cilium-native-full", cluster.Cilium, network(record.CNI{Plugin: record.Cilium, Routing: record.Native, Hubble: true, KubeProxyReplacement: true}))
	local := &record.LocalPath{Path: "/opt/local-path-provisioner"}
	add("local-path", cluster.LocalPath, storage(record.CSI{LocalPath: local}))
	share := &record.NFS{Server: "192.0.2.5", Path: "/export"}
	add("nfs", cluster.NFS, storage(record.CSI{NFS: share}))
	add("nfs-beside", cluster.NFS, storage(record.CSI{
		LocalPath: local,
		NFS:       &record.NFS{Server: "nfs.example", Path: "/a/b", Version: "4.1", MountOptions: []string{"hard", "noatime"}},
	}))
	copies := &record.Longhorn{Replicas: 3, DataPath: "/var/lib/longhorn", DrainPolicy: "block-if-contains-last-replica"}
	add("longhorn", cluster.Longhorn, storage(record.CSI{LocalPath: local, Longhorn: copies}))
	add("longhorn-beside", cluster.Longhorn, storage(record.CSI{
		LocalPath: local, NFS: share,
		Longhorn:     &record.Longhorn{Replicas: 2, DataPath: "/data/longhorn", DrainPolicy: "always-allow"},
		DefaultClass: record.NFSClass,
	}))
	return out
}

// TestVariantsAreAll finds a plugin, routing or tier that the other tests would miss.
func TestVariantsAreAll(t *testing.T) {
	seen := map[cluster.Addon]int{}
	for _, v := range variants() {
		seen[v.addon]++
		if !strings.HasPrefix(v.name, string(v.addon)) {
			t.Errorf("%s is about %s", v.name, v.addon)
		}
	}
	for a := range places {
		if seen[a] == 0 {
			t.Errorf("no variant of %s", a)
		}
	}
}
