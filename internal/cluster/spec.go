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
}

// PoolSpec is a wanted node pool of agents.
type PoolSpec struct {
	ClusterID string
	Name      string
	Nodes     int
	Shape     record.Shape
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
