package addons

import (
	"strings"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// cilium is made by its chart (https://docs.cilium.io/en/stable/helm-reference/).
var cilium = recipe{
	chartField:  machine.FieldCNIChart,
	valuesField: machine.FieldCNIValues,
	chart:       func(s cluster.AddonSpec) record.Chart { return s.CNI.Chart },
	values:      ciliumValues,
	owned: []owned{
		own("agent", "without it there is no network"),
		own("operator.enabled", "without it there is no network"),
		own("namespaceOverride", "the provider looks for Cilium in "+places[cluster.Cilium].namespace),
		own("ipam.mode", "the nodes' own parts of cni.pod_cidr are used"),
		own("ipam.operator.clusterPoolIPv4PodCIDRList", "use cni.pod_cidr"),
		own("ipam.operator.clusterPoolIPv4MaskSize", "k3s gives each node a /24 of cni.pod_cidr"),
		own("ipv4.enabled", "cni.pod_cidr is an IPv4 network"),
		own("routingMode", "use cni.routing"),
		own("tunnelProtocol", "use cni.routing"),
		own("autoDirectNodeRoutes", "use cni.routing"),
		own("ipv4NativeRoutingCIDR", "use cni.pod_cidr"),
		own("kubeProxyReplacement", "use cni.kube_proxy_replacement"),
		own("k8sServiceHost", "k3s has the API there on every node"),
		own("k8sServicePort", "k3s has the API there on every node"),
		own("hubble.enabled", "use cni.hubble"),
		own("hubble.relay.enabled", "use cni.hubble"),
	},
	complete: func(s cluster.AddonSpec, r *release) {
		r.workloads = []workload{{daemonSet, r.namespace, "cilium"}, {deployment, r.namespace, "cilium-operator"}}
		if s.CNI.Hubble {
			r.workloads = append(r.workloads, workload{deployment, r.namespace, "hubble-relay"})
		}
		r.pods = []podSelector{{r.namespace, map[string]string{"app.kubernetes.io/part-of": "cilium"}}}
	},
}

// Where the API answers on every node of k3s, before any network of services works
// (https://docs.k3s.io/cli/server#supervisor-options, lb-server-port).
const (
	localAPIHost = "127.0.0.1"
	localAPIPort = 6444
)

// ciliumValues are the values for k3s.
//
// Addresses come from the part of the pods' network that k3s gives each node (ipam.mode kubernetes), not from parts that
// Cilium's operator would cut out of the same network once more: so Node objects tell the truth, and a node's network needs
// no operator to begin with.
func ciliumValues(s cluster.AddonSpec) tree {
	values := tree{
		"agent":          true,
		"ipv4":           tree{"enabled": true},
		"ipam":           tree{"mode": "kubernetes"},
		"k8s":            tree{"requireIPv4PodCIDR": true},
		"k8sServiceHost": localAPIHost,
		"k8sServicePort": localAPIPort,
		"operator": tree{
			"enabled":  true,
			"replicas": min(2, s.Servers), // No two stand on one node, and workers come later.
			// It has to run where nothing else can yet, and to leave a node that is gone.
			"tolerations": []tree{
				{"operator": "Exists", "effect": "NoSchedule"},
				{"key": "node.kubernetes.io/not-ready", "operator": "Exists"},
				{"key": "CriticalAddonsOnly", "operator": "Exists"},
			},
			"rollOutPods": true,
		},
		// Agents read their settings when they start.
		"rollOutCiliumPods":    true,
		"kubeProxyReplacement": s.CNI.KubeProxyReplacement,
		"hubble":               hubbleValues(s.CNI.Hubble),
	}
	if s.CNI.Routing == record.Native {
		values["routingMode"] = "native"
		values["autoDirectNodeRoutes"] = true
		values["ipv4NativeRoutingCIDR"] = podCIDR(s)
	} else {
		values["routingMode"] = "tunnel"
		values["tunnelProtocol"] = "vxlan"
	}
	if s.CNI.KubeProxyReplacement {
		values["bpf"] = tree{"masquerade": true} // What is left of iptables goes with kube-proxy.
	}
	if s.ImageRegistry != "" {
		for key, repository := range ciliumImages {
			path := strings.Split(key, ".")
			put(values, mirrored(s.ImageRegistry, repository), append(path, "repository")...)
			// Mirrors that were filled image by image for one platform have other digests, and the other charts have none.
			put(values, false, append(path, "useDigest")...)
		}
	}
	return values
}

// hubbleValues turn Hubble off, or on with its relay. Its certificates are renewed in time: those that Helm would make end
// after a year.
func hubbleValues(on bool) tree {
	values := tree{"enabled": on, "relay": tree{"enabled": on}}
	if on {
		put(values, true, "relay", "rollOutPods")
		put(values, "cronJob", "tls", "auto", "method")
	}
	return values
}

// ciliumImages are the images of the chart by the keys of their settings.
var ciliumImages = map[string]string{
	"image":                       "quay.io/cilium/cilium",
	"certgen.image":               "quay.io/cilium/certgen",
	"clustermesh.apiserver.image": "quay.io/cilium/clustermesh-apiserver",
	"encryption.ztunnel.image":    "quay.io/cilium/ztunnel",
	"envoy.image":                 "quay.io/cilium/cilium-envoy",
	"hubble.relay.image":          "quay.io/cilium/hubble-relay",
	"hubble.ui.backend.image":     "quay.io/cilium/hubble-ui-backend",
	"hubble.ui.frontend.image":    "quay.io/cilium/hubble-ui",
	"nodeinit.image":              "quay.io/cilium/startup-script",
	"operator.image":              "quay.io/cilium/operator",
	"preflight.image":             "quay.io/cilium/cilium",
	"preflight.envoy.image":       "quay.io/cilium/cilium-envoy",
	"authentication.mutual.spire.install.agent.image":  "ghcr.io/spiffe/spire-agent",
	"authentication.mutual.spire.install.initImage":    "docker.io/library/busybox",
	"authentication.mutual.spire.install.server.image": "ghcr.io/spiffe/spire-server",
}
