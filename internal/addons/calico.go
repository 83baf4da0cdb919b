package addons

import (
	"context"

	"k8s.io/client-go/dynamic"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// calico is made by its operator, which the chart brings, from an object Installation
// (https://docs.tigera.io/calico/latest/reference/installation/api). The operator tolerates every taint and speaks to the API
// through kube-proxy, which in k3s needs no network plugin.
var calico = recipe{
	chartField:  machine.FieldCNIChart,
	valuesField: machine.FieldCNIValues,
	chart:       func(s cluster.AddonSpec) record.Chart { return s.CNI.Chart },
	values:      calicoValues,
	owned: []owned{
		own("installation.enabled", "without it there is no network"),
		own("installation.cni.type", "nothing but Calico itself gives pods addresses of cni.pod_cidr"),
		own("installation.cni.ipam.type", "nothing but Calico itself gives pods addresses of cni.pod_cidr"),
		own("installation.calicoNetwork.bgp", "use cni.routing"),
		own("installation.calicoNetwork.ipPools", "use cni.pod_cidr and cni.routing"),
		own("installation.calicoNetwork.containerIPForwarding", "k3s needs it"),
	},
	complete: func(_ cluster.AddonSpec, r *release) {
		r.workloads = []workload{
			{deployment, r.namespace, "tigera-operator"},
			{daemonSet, calicoNamespace, "calico-node"},
			{deployment, calicoNamespace, "calico-kube-controllers"},
		}
		r.pods = []podSelector{{namespace: r.namespace}, {namespace: calicoNamespace}}
		r.ready = func(ctx context.Context, api dynamic.Interface) ([]string, error) {
			return lacksOfTigera(ctx, api, "calico")
		}
	},
}

// calicoNamespace is where the operator makes what it makes.
const calicoNamespace = "calico-system"

// calicoValues are the values for k3s.
func calicoValues(s cluster.AddonSpec) tree {
	bgp, encapsulation := "Enabled", "IPIP"
	if s.CNI.Routing == record.VXLAN {
		bgp, encapsulation = "Disabled", "VXLAN"
	}
	installation := tree{
		"enabled": true,
		"cni":     tree{"type": "Calico", "ipam": tree{"type": "Calico"}},
		"calicoNetwork": tree{
			"bgp": bgp,
			// Pods of k3s that forward packets, as those of its load balancer do, need it
			// (https://docs.k3s.io/networking/basic-network-options#custom-cni).
			"containerIPForwarding": "Enabled",
			"ipPools": []tree{{
				"cidr":          podCIDR(s),
				"encapsulation": encapsulation,
				"natOutgoing":   "Enabled",
				"nodeSelector":  "all()",
				"blockSize":     26,
			}},
			// The first address that is found can be one of another network of the node.
			"nodeAddressAutodetectionV4": tree{"kubernetes": "NodeInternalIP"},
		},
		// Without nodes to spread over, a second one of each costs memory and helps nobody.
		"controlPlaneReplicas": min(2, s.Servers),
		// Drivers for policies on HTTP, in a directory that is read-only on some systems.
		"flexVolumePath": "None",
	}
	values := tree{
		"installation": installation,
		// Flows and their page are for those who ask for them.
		"goldmane": tree{"enabled": false},
		"whisker":  tree{"enabled": false},
	}
	if r := s.ImageRegistry; r != "" {
		installation["registry"] = r + "/" // The operator demands the slash.
		values["tigeraOperator"] = tree{"registry": r}
		values["calicoctl"] = tree{"image": mirrored(r, "quay.io/calico/ctl")}
	}
	return values
}
