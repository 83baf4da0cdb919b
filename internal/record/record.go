// Package record is what the provider writes on each VM it makes: the only database a cluster has.
//
// A record stands as JSON in a domain's <metadata>, in an element of our own namespace. A domain without one is not
// ours and is never touched. The record is written before any volume exists, so that whatever a crash leaves behind
// is still listed by somebody.
package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// Namespace and Prefix name the XML element that carries a record in a domain's metadata; libvirt stores one element
// for each namespace (https://libvirt.org/formatdomain.html#general-metadata).
const (
	Namespace = "https://cockpit-k3s.github.io/record"
	Prefix    = "cockpit"
	Element   = "node"
)

// version is the schema that this build writes and the newest that it reads.
const version = 1

// ErrNewer is returned by Decode for a record that a newer provider wrote.
var ErrNewer = errors.New("the record was written by a newer version of the provider")

// Role tells k3s servers from agents.
type Role string

// The roles of a node.
const (
	Server Role = "server"
	Agent  Role = "agent"
)

// ServerPool is the pool name of the control plane in node names: <cluster>-cp-<n>.
const ServerPool = "cp"

// Phase is how far the making of a node has come.
type Phase string

// The phases of a node. A node becomes Joined once, when it was seen Ready for the first time and its seed holds no
// secret any more.
const (
	Creating Phase = "creating"
	Joined   Phase = "joined"
)

// Record describes one node.
type Record struct {
	Version     int      `json:"version"`
	ClusterID   string   `json:"cluster_id"`
	ClusterName string   `json:"cluster_name"`
	Pool        string   `json:"pool"`
	Role        Role     `json:"role"`
	Ordinal     int      `json:"ordinal"`
	Phase       Phase    `json:"phase"`
	Shape       Shape    `json:"shape"`
	Template    Template `json:"template"`
	// Image is the golden image as it was configured when the node was made. Template may be a copy of it.
	Image Template `json:"image,omitzero"`
	// Temporary: the node stands in while others are changed, and goes in the end.
	Temporary bool `json:"temporary,omitempty"`
	// Placement is the rule by which the nodes of the group are spread over the hypervisors.
	Placement Placement `json:"placement,omitzero"`
	// HostDevices are the PCI addresses of the devices of its hypervisor that the VM has.
	HostDevices []string `json:"host_devices,omitempty"`
	// Setup is what the guest was set up with beyond what every guest gets.
	Setup Setup `json:"setup,omitzero"`
	// Labels and Taints are those that the configuration asks for; others may stand on the Node object too.
	Labels map[string]string `json:"labels,omitempty"`
	Taints []Taint           `json:"taints,omitempty"`
	// Drain, Upgrade and Repair are rules of the group. They change nothing about a node that stands.
	Drain   Drain   `json:"drain,omitzero"`
	Upgrade Upgrade `json:"upgrade,omitzero"`
	Repair  Repair  `json:"repair,omitzero"`
	// Volumes lists what was made for this node alone and goes away with it.
	Volumes []Volume `json:"volumes"`
	// Cluster holds the cluster-wide settings; it stands on servers only.
	Cluster *Cluster `json:"cluster,omitempty"`
}

// Shape is the size of a node and where its disk stands.
type Shape struct {
	VCPUs       int    `json:"vcpus"`
	MemoryMiB   int    `json:"memory_mib"`
	DiskGiB     int    `json:"disk_gib"`
	StoragePool string `json:"storage_pool"`
	Clone       Clone  `json:"clone"`
	// Data is a second disk; its zero value is none.
	Data DataDisk `json:"data,omitzero"`
}

// DataDisk is a disk beside the root disk. It goes with its node.
type DataDisk struct {
	SizeGiB     int    `json:"size_gib"`
	StoragePool string `json:"storage_pool"`
	// MountPath is where the guest mounts it.
	MountPath string `json:"mount_path"`
}

// Setup is what a guest is set up with beyond what every guest gets. What may hold secrets stands here as a digest only,
// which is "" where there is none.
type Setup struct {
	// Args are more arguments of k3s.
	Args []string `json:"args,omitempty"`
	// Registries is the digest of the registries.yaml of k3s, UserData that of the user's own cloud-config.
	Registries string `json:"registries,omitempty"`
	UserData   string `json:"user_data,omitempty"`
	// Changing: k3s is being given other settings, and nothing tells which ones it has.
	Changing bool `json:"changing,omitempty"`
}

// Taint keeps pods off a node that do not tolerate it.
type Taint struct {
	Key    string `json:"key"`
	Value  string `json:"value,omitempty"`
	Effect string `json:"effect"`
}

// Clone is how a node's disk is made from the template.
type Clone string

// An overlay is a qcow2 file that holds only what differs from the template; a full clone depends on nothing.
const (
	Overlay Clone = "overlay"
	Full    Clone = "full"
)

// Drain is the rule by which the nodes of a pool are drained before they go.
type Drain struct {
	// TimeoutSeconds bounds the drain of one node; 0 is the default.
	TimeoutSeconds int `json:"timeout_seconds,omitempty"`
	// GraceSeconds is what pods get to end in place of their own grace period; nil leaves them that.
	GraceSeconds *int `json:"grace_seconds,omitempty"`
	// Force goes on with the removal of a node whose drain did not come to its end.
	Force bool `json:"force,omitempty"`
	// KeepOnDestroy: nodes are not drained when the whole pool goes.
	KeepOnDestroy bool `json:"keep_on_destroy,omitempty"`
}

// Upgrade says how many nodes of a group are changed at once.
type Upgrade struct {
	// MaxSurge is how many nodes more than wanted there may be meanwhile, MaxUnavailable how many fewer.
	MaxSurge       int `json:"max_surge"`
	MaxUnavailable int `json:"max_unavailable"`
}

// Repair says when nodes that are not Ready are restarted, and replaced where that does not help.
type Repair struct {
	// NotReadySeconds is how long a node may be not Ready; 0 is the default.
	NotReadySeconds int `json:"not_ready_seconds,omitempty"`
	// MaxUnhealthy is how many nodes may be in that state at once: with more none is touched, since the trouble is likely
	// to lie elsewhere.
	MaxUnhealthy int `json:"max_unhealthy,omitempty"`
}

// Placement is the rule by which a group of nodes is spread over the hypervisors.
type Placement struct {
	Strategy Strategy `json:"strategy,omitempty"`
	// AntiAffinity is for servers, with the strategy auto.
	AntiAffinity AntiAffinity `json:"anti_affinity,omitempty"`
	// Hosts are hypervisors by name, with the strategy manual: one for all nodes, or that of the node with ordinal n at
	// index n-1.
	Hosts []string `json:"hosts,omitempty"`
}

// Strategy says who decides on which hypervisor a node stands.
type Strategy string

// The strategies: the provider decides by the load of the hypervisors, or the user by name. The zero value is Auto.
const (
	Auto   Strategy = "auto"
	Manual Strategy = "manual"
)

// AntiAffinity says how strictly the nodes of a group keep apart.
type AntiAffinity string

// The degrees of anti-affinity: none is the zero value.
const (
	// Required: no two nodes on one hypervisor.
	Required AntiAffinity = "required"
	// Preferred: as few as possible on one hypervisor.
	Preferred AntiAffinity = "preferred"
)

// Template names the golden image that a node was cloned from.
type Template struct {
	Pool   string `json:"pool"`
	Volume string `json:"volume"`
}

// Volume is one storage volume of a node.
type Volume struct {
	Pool string `json:"pool"`
	Name string `json:"name"`
}

// Cluster is what every node of a cluster shares.
type Cluster struct {
	K3sVersion        string   `json:"k3s_version"`
	Network           string   `json:"network,omitempty"`
	Bridge            string   `json:"bridge,omitempty"`
	SSHAuthorizedKeys []string `json:"ssh_authorized_keys,omitempty"`
	// Endpoint is the host[:port] of a load balancer or virtual address in front of the servers, "" where there is none.
	Endpoint string `json:"endpoint,omitempty"`
	// TLSSANs are more names and addresses that the certificate of the API is valid for.
	TLSSANs []string `json:"tls_sans,omitempty"`
	// DeletionProtection refuses to destroy the cluster.
	DeletionProtection bool `json:"deletion_protection,omitempty"`
	// ImageRegistry is where the images of k3s and of the add-ons come from, "" where each comes from its own registry.
	ImageRegistry string `json:"image_registry,omitempty"`
	CNI           CNI    `json:"cni,omitzero"`
	CSI           CSI    `json:"csi,omitzero"`
}

// NodeName is the name of the VM, of the Node object and in the state: <cluster>-<pool>-<ordinal>.
func (r Record) NodeName() string { return NodeName(r.ClusterName, r.Pool, r.Ordinal) }

// ShortName is NodeName without the cluster's name: <pool>-<ordinal>. It is known before the cluster is.
func (r Record) ShortName() string { return ShortName(r.Pool, r.Ordinal) }

// ShortName is the name of a pool's node within its cluster.
func ShortName(pool string, ordinal int) string { return fmt.Sprintf("%s-%d", pool, ordinal) }

// NodeName is the name of a pool's node with that ordinal, from 1.
func NodeName(cluster, pool string, ordinal int) string {
	return fmt.Sprintf("%s-%s-%d", cluster, pool, ordinal)
}

// Encode returns the record as the JSON text of its metadata element.
func Encode(r Record) ([]byte, error) {
	r.Version = version
	b, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode record of %s: %w", r.NodeName(), err)
	}
	return b, nil
}

// Same reports whether two records say the same.
func Same(a, b Record) bool {
	x, errA := Encode(a)
	y, errB := Encode(b)
	return errA == nil && errB == nil && bytes.Equal(x, y)
}

// Decode reads the JSON text of a metadata element. The error is ErrNewer where the record's version is unknown.
func Decode(b []byte) (Record, error) {
	var r Record
	if err := json.Unmarshal(b, &r); err != nil {
		return Record{}, fmt.Errorf("decode record: %w", err)
	}
	switch {
	case r.Version > version:
		return Record{}, fmt.Errorf("record version %d: %w", r.Version, ErrNewer)
	case r.Version < 1, r.ClusterID == "", r.ClusterName == "", r.Pool == "", r.Ordinal < 1:
		return Record{}, errors.New("decode record: it names no cluster, pool or ordinal")
	case r.Role != Server && r.Role != Agent:
		return Record{}, fmt.Errorf("decode record: unknown role %q", r.Role)
	case r.Phase != Creating && r.Phase != Joined:
		return Record{}, fmt.Errorf("decode record: unknown phase %q", r.Phase)
	}
	return r, nil
}
