package cluster

import (
	"errors"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// ErrGone is returned where every hypervisor answered and none has a node of the cluster.
var ErrGone = errors.New("no hypervisor has a node of this cluster")

// Spec is a wanted cluster: its settings and its servers.
type Spec struct {
	ID       string
	Name     string
	Settings record.Cluster
	Servers  int
	Shape    record.Shape
	// Placement is the rule by which the servers are spread over the hypervisors.
	Placement record.Placement
	Extra     Extra
	// Assignment is what a plan has promised; nil where it could promise nothing.
	Assignment Assignment
}

// PoolSpec is a wanted node pool of agents.
type PoolSpec struct {
	ClusterID string
	Name      string
	Nodes     int
	Shape     record.Shape
	// Placement is the rule by which the nodes are spread over the hypervisors.
	Placement record.Placement
	// HostDevices are the PCI addresses of the devices that the pool's node on a hypervisor gets, by hypervisor.
	HostDevices map[string][]string
	Labels      map[string]string
	Taints      []record.Taint
	Drain       record.Drain
	Upgrade     record.Upgrade
	Repair      record.Repair
	Extra       Extra
	// RemoveFirst are the nodes that go first when there are too many, by their name within the cluster.
	RemoveFirst []string
	// Assignment is what a plan has promised; nil where it could promise nothing.
	Assignment Assignment
}

// Extra is what the user gives to the guests of a group beyond what the provider does. It may hold secrets.
type Extra struct {
	// Args are more arguments of k3s, each "--name=value" or "--name".
	Args []string
	// Registries is the text of k3s's registries.yaml, UserData a cloud-config that is merged into the provider's.
	Registries string
	UserData   string
}

// The rules of a pool whose configuration says nothing of them.
var (
	DefaultDrain   = record.Drain{TimeoutSeconds: 15 * 60}
	DefaultUpgrade = record.Upgrade{MaxSurge: 1}
	DefaultRepair  = record.Repair{NotReadySeconds: 10 * 60, MaxUnhealthy: 1}
)

// Assignment tells on which hypervisor each node of a group stands, or is going to stand. The nodes go by their name
// within the cluster (record.ShortName), which is known before the cluster is.
type Assignment map[string]string

// Review is what can be said of a wish before anything is changed.
type Review struct {
	// Problems are the reasons why it cannot be met, or, with machine.ErrUnreachable, could not be checked in full.
	Problems []Problem
	// Assignment is where the nodes of the group will stand, those that are there already included; nil where that
	// cannot be told before the apply.
	Assignment Assignment
	// Changes tells what becomes of standing nodes that are not as they are wanted, by name; nodes that stay as they are, or
	// go because there are too many, are not among them.
	Changes map[string]Change
	// Addons are the add-ons that an apply installs, changes or removes, as far as that is known, in order.
	Addons []Addon
}

// Change is what an apply does to a node that stands.
type Change string

// The changes, from the least to the greatest.
const (
	// Adjusted: its labels, taints or record are brought up to date; it runs on.
	Adjusted Change = "adjusted"
	// Restarted: k3s is restarted in it with other settings; its pods run on.
	Restarted Change = "restarted"
	// Resized: it is drained, powered off, given its new size and powered on again. What stands on its disks stays.
	Resized Change = "resized"
	// Started: its VM is powered on; Repaired: it is powered off and on again, and replaced if that does not help.
	Started  Change = "started"
	Repaired Change = "repaired"
	// Replaced: it is drained, and a new node takes its place and name. What stands on its disks is lost.
	Replaced Change = "replaced"
)

// Resources is what nodes take of a hypervisor.
type Resources struct {
	VCPUs     int
	MemoryMiB int
	DiskGiB   int
}

// Footprint sums up what the nodes of an assignment take of each hypervisor.
func Footprint(a Assignment, s record.Shape) map[string]Resources {
	out := map[string]Resources{}
	for _, host := range a {
		r := out[host]
		r.VCPUs += s.VCPUs
		r.MemoryMiB += s.MemoryMiB
		r.DiskGiB += s.DiskGiB + s.Data.SizeGiB
		out[host] = r
	}
	return out
}

// NodeState is the state of a node in a few words.
type NodeState string

// The states of a node.
const (
	// NodeReady: the VM runs and its Node object is Ready.
	NodeReady NodeState = "ready"
	// NodeNotReady: the VM runs, and the API says that the node is not Ready or does not know it.
	NodeNotReady NodeState = "not_ready"
	// NodeCreating: the making of the node did not come to its end yet.
	NodeCreating NodeState = "creating"
	// NodeUnhealthy: it is not Ready for longer than its pool allows.
	NodeUnhealthy NodeState = "unhealthy"
	// NodeDrifted: it is Ready, and is not as its group wants it.
	NodeDrifted NodeState = "drifted"
	// NodeStopped: the VM exists and does not run.
	NodeStopped NodeState = "stopped"
	// NodeMissing: every hypervisor that could hold the VM answered, and none has it.
	NodeMissing NodeState = "missing"
	// NodeUnknown: the hypervisor or the cluster's API could not be asked.
	NodeUnknown NodeState = "unknown"
)

// Drifted reports whether the next apply mends the node.
func (s NodeState) Drifted() bool {
	switch s {
	case NodeMissing, NodeStopped, NodeCreating, NodeUnhealthy, NodeDrifted:
		return true
	}
	return false
}

// settled reports whether a node in that state has joined, and its record is what its group wants. Of one that is not Ready
// that is not sure: it may be a change that has brought it down.
func (s NodeState) settled() bool { return s == NodeReady }

// NodeStatus is what is known of one node of a cluster or pool.
type NodeStatus struct {
	Name       string
	Role       record.Role
	Hypervisor string
	UUID       string
	MAC        string
	IP         string
	K3sVersion string
	// Template is the golden image that the node was made from, as <pool>/<volume>; "" where that is not known.
	Template string
	State    NodeState
	// Reason says why the state is not ready.
	Reason string
}

// Nodes are the nodes of a cluster or pool by name.
type Nodes map[string]NodeStatus

// Status is the state of a cluster in one word.
type Status string

// The states of a cluster.
const (
	Provisioning Status = "provisioning"
	Active       Status = "active"
	Degraded     Status = "degraded"
)

// Condition is one aspect of a cluster's state, in the manner of Kubernetes conditions: status is True, False or
// Unknown.
type Condition struct {
	Type    string
	Status  string
	Reason  string
	Message string
}

// State is a cluster as it is.
type State struct {
	Spec Spec
	// Endpoint is the URL of the API, "" where it is not known yet.
	Endpoint   string
	Nodes      Nodes
	Status     Status
	Conditions []Condition
	// Addons is nil where nobody has looked at the add-ons.
	Addons AddonStatuses
	// Warnings as in PoolState.
	Warnings []error
}

// PoolState is a node pool as it is.
type PoolState struct {
	Spec  PoolSpec
	Nodes Nodes
	// Warnings tell of what was done otherwise than asked, although the task as a whole succeeded.
	Warnings []error
}
