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
	// Assignment is what a plan has promised; nil where it could promise nothing.
	Assignment Assignment
}

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
}

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
		r.DiskGiB += s.DiskGiB
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
	// NodeStopped: the VM exists and does not run.
	NodeStopped NodeState = "stopped"
	// NodeMissing: every hypervisor that could hold the VM answered, and none has it.
	NodeMissing NodeState = "missing"
	// NodeUnknown: the hypervisor or the cluster's API could not be asked.
	NodeUnknown NodeState = "unknown"
)

// Drifted reports whether the next apply mends the node.
func (s NodeState) Drifted() bool {
	return s == NodeMissing || s == NodeStopped || s == NodeCreating
}

// NodeStatus is what is known of one node of a cluster or pool.
type NodeStatus struct {
	Name       string
	Role       record.Role
	Hypervisor string
	UUID       string
	MAC        string
	IP         string
	K3sVersion string
	State      NodeState
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
}

// PoolState is a node pool as it is.
type PoolState struct {
	Spec  PoolSpec
	Nodes Nodes
}
