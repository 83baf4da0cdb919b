package k3s

// The networks that k3s takes by itself (https://docs.k3s.io/cli/server#networking).
const (
	DefaultPodCIDR     = "10.42.0.0/16"
	DefaultServiceCIDR = "10.43.0.0/16"
)

// The values of Network.Backend.
const (
	BackendVXLAN  = "vxlan"
	BackendHostGW = "host-gw"
	BackendNone   = "none"
)

// Network is the network of a cluster's pods. k3s takes it for good: what a server joins with must be what the cluster began
// with.
type Network struct {
	// PodCIDR and ServiceCIDR are IPv4 networks, "" for the defaults. Each node takes a /24 of the pods'.
	PodCIDR, ServiceCIDR string
	// Backend is Flannel's, "" for BackendVXLAN. BackendNone leaves the network to another plugin, which k3s does not bring,
	// and network policies too.
	Backend string
	// NoKubeProxy leaves services to the plugin as well.
	NoKubeProxy bool
}

// network is what the configuration of a server says of a Network. What k3s does by itself is left out.
type network struct {
	PodCIDR         string `yaml:"cluster-cidr,omitempty"`
	ServiceCIDR     string `yaml:"service-cidr,omitempty"`
	Backend         string `yaml:"flannel-backend,omitempty"`
	NoNetworkPolicy bool   `yaml:"disable-network-policy,omitempty"`
	NoKubeProxy     bool   `yaml:"disable-kube-proxy,omitempty"`
}

func (n Network) settings() network {
	return network{
		PodCIDR:         unless(DefaultPodCIDR, n.PodCIDR),
		ServiceCIDR:     unless(DefaultServiceCIDR, n.ServiceCIDR),
		Backend:         unless(BackendVXLAN, n.Backend),
		NoNetworkPolicy: n.Backend == BackendNone,
		NoKubeProxy:     n.NoKubeProxy,
	}
}

// unless is a value, or "" where it is the default.
func unless(byDefault, value string) string {
	if value == byDefault {
		return ""
	}
	return value
}
