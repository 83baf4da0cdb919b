package record

// Plugin is a network plugin.
type Plugin string

// The network plugins. Flannel is part of k3s; the zero value means it too.
const (
	Flannel Plugin = "flannel"
	Calico  Plugin = "calico"
	Cilium  Plugin = "cilium"
)

// Routing is how packets between pods get from node to node.
type Routing string

// The ways of routing. Each plugin has two of them, the first of which is its default: Flannel VXLAN and HostGateway, Calico
// IPIP and VXLAN, Cilium Tunnel and Native.
const (
	// VXLAN wraps packets in UDP; it works over any network that carries the nodes' traffic.
	VXLAN Routing = "vxlan"
	// HostGateway has each node as the gateway to its own pods; the nodes have to be in one L2 network.
	HostGateway Routing = "host-gw"
	// IPIP wraps packets in IP, between nodes that tell each other their routes by BGP.
	IPIP Routing = "ipip"
	// Tunnel is Cilium's VXLAN. Native is its direct routing, for nodes in one L2 network.
	Tunnel Routing = "tunnel"
	Native Routing = "native"
)

// CNI is the network of a cluster's pods.
type CNI struct {
	Plugin  Plugin  `json:"plugin,omitempty"`
	Routing Routing `json:"routing,omitempty"`
	// PodCIDR and ServiceCIDR are the IPv4 networks of pods and services, "" for those of k3s.
	PodCIDR     string `json:"pod_cidr,omitempty"`
	ServiceCIDR string `json:"service_cidr,omitempty"`
	// Hubble and KubeProxyReplacement are for Cilium only.
	Hubble               bool  `json:"hubble,omitempty"`
	KubeProxyReplacement bool  `json:"kube_proxy_replacement,omitempty"`
	Chart                Chart `json:"chart,omitzero"`
}

// Chart is where the chart of an add-on comes from and what the user has to say to it. It holds no secret.
type Chart struct {
	// Repository is the URL of a chart repository, https:// or oci://, "" for that of the provider or else of the project.
	Repository string `json:"repository,omitempty"`
	// Archive is a local chart, packed or a directory; Repository and Version are "" then.
	Archive string `json:"archive,omitempty"`
	// Version is that of the chart, "" for the one that this provider was tested with.
	Version string `json:"version,omitempty"`
	// Values is YAML that is merged over the provider's own values.
	Values string `json:"values,omitempty"`
}

// CSI is the storage of a cluster. The tiers are nil where they are not wanted.
type CSI struct {
	LocalPath *LocalPath `json:"local_path,omitempty"`
	NFS       *NFS       `json:"nfs,omitempty"`
	Longhorn  *Longhorn  `json:"longhorn,omitempty"`
	// DefaultClass is the name of the default StorageClass, one of the constants below; "" leaves the choice to the rule
	// of Default.
	DefaultClass string `json:"default_class,omitempty"`
}

// The names of the tiers' StorageClasses.
const (
	LocalPathClass = "local-path"
	NFSClass       = "nfs"
	LonghornClass  = "longhorn"
)

// Default is the name of the default StorageClass: the one that was chosen, or else that of the first tier in the order
// Longhorn, local-path, NFS; "" where there is no tier.
//
// Longhorn's volumes outlive their node. A volume of local-path is lost with its node, but any program works on it, which
// cannot be said of databases on NFS.
func (c CSI) Default() string {
	switch {
	case c.DefaultClass != "":
		return c.DefaultClass
	case c.Longhorn != nil:
		return LonghornClass
	case c.LocalPath != nil:
		return LocalPathClass
	case c.NFS != nil:
		return NFSClass
	}
	return ""
}

// LocalPath is storage on the disk of the node that a pod runs on.
type LocalPath struct {
	// Path is the directory on the nodes.
	Path  string `json:"path"`
	Chart Chart  `json:"chart,omitzero"`
}

// NFS is storage on a file server.
type NFS struct {
	// Pool is the storage pool of the hypervisors whose definition tells Server and Path, "" where the user does.
	Pool string `json:"pool,omitempty"`
	// Server is a name or an address, Path the exported directory.
	Server string `json:"server"`
	Path   string `json:"path"`
	// Version is the version of the protocol, "3", "4", "4.1" or "4.2"; "" leaves it to client and server.
	Version string `json:"version,omitempty"`
	// MountOptions are more options of mount.nfs.
	MountOptions []string `json:"mount_options,omitempty"`
	Chart        Chart    `json:"chart,omitzero"`
}

// Longhorn is storage on the disks of the nodes, with copies on several of them.
type Longhorn struct {
	// Replicas is how many copies a volume has, as far as there are nodes for them.
	Replicas int `json:"replicas"`
	// DataPath is the directory on the nodes.
	DataPath string `json:"data_path"`
	// DrainPolicy is Longhorn's setting node-drain-policy: what the drain of a node does about copies of volumes on it.
	DrainPolicy string `json:"drain_policy"`
	Chart       Chart  `json:"chart,omitzero"`
}
