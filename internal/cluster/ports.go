package cluster

import (
	"context"
	"time"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// Fleet is what the pipeline asks of the hypervisors. Every method that changes something is idempotent: what is done
// already is not done again. Methods that name a hypervisor which does not answer return machine.ErrUnreachable.
type Fleet interface {
	// Hypervisors lists the configured hypervisors by name; Schedulable says whether new nodes may go there.
	Hypervisors() []Hypervisor
	// Survey looks at all hypervisors in parallel, with a constant number of calls for each. It never fails as a whole.
	Survey(ctx context.Context) machine.Survey
	// Describe reads the records of VMs on one hypervisor, by UUID. VMs that are not ours, or are gone by then, are not
	// among what it returns. The error is machine.ErrUnreachable where the hypervisor does not answer.
	Describe(ctx context.Context, hypervisor string, uuids []string) ([]machine.Machine, []machine.Unreadable, error)
	// Check returns what the hypervisor offers for the request and every reason why it cannot be met, or
	// machine.ErrUnreachable.
	Check(ctx context.Context, r machine.Request) (machine.Site, []machine.Problem, error)
	// Template is the golden image that new disks are made from, as it is configured: its pool and volume in the primary
	// store. It is zero where none is configured. It does no I/O.
	Template() record.Template
	// Define writes the domain with its record; nothing else exists of the VM before that. Where the record names no
	// template, the fleet writes into it which one the VM's disk is made from, and SetRecord keeps that.
	Define(ctx context.Context, s machine.Spec) error
	// CloneDisk makes the root volume from the template, which it first brings to the VM's storage pool where that
	// lacks it, and grows it. It makes the empty volume of the data disk too, where the record's shape has one.
	CloneDisk(ctx context.Context, s machine.Spec) error
	// WriteSeed writes the cloud-init seed, over an older one if there is one.
	WriteSeed(ctx context.Context, m machine.Machine, iso []byte) error
	// Start powers the VM on.
	Start(ctx context.Context, m machine.Machine) error
	// SetRecord replaces the record.
	SetRecord(ctx context.Context, m machine.Machine, r record.Record) error
	// Stop powers the VM off: it asks the guest and gives it grace before it pulls the plug.
	Stop(ctx context.Context, m machine.Machine, grace time.Duration) error
	// Resize gives a VM that is off the CPUs, memory and sizes of disks of a shape, and writes that into its record. Disks
	// only grow: one that is larger already stays.
	Resize(ctx context.Context, m machine.Machine, s record.Shape) error
	// Delete removes the domain and the volumes that its record lists. Its domain is the last to go, so that a
	// Delete that failed half-way can be repeated. A domain that is gone already is no error: volumes that stand
	// under the names of machine.RootVolume, machine.SeedVolume and machine.DataVolume are removed all the same.
	Delete(ctx context.Context, m machine.Machine) error
	// Guest reaches into the VM. It does no I/O.
	Guest(m machine.Machine) Guest
	// Export tells what NFS export the storage pool of that name is, active or not. The error is machine.ErrUnreachable where
	// no hypervisor that answers has such a pool and some do not answer; pools that differ and ones that are no NFS are
	// errors too.
	Export(ctx context.Context, pool string) (machine.Export, error)
}

// Hypervisor is a configured hypervisor.
type Hypervisor = machine.Hypervisor

// Guest is what the pipeline sees inside a VM.
type Guest = machine.Guest

// Kube is what the pipeline asks of a cluster's API.
type Kube interface {
	// Ready asks the API's readiness endpoint.
	Ready(ctx context.Context) error
	// Nodes lists all Node objects.
	Nodes(ctx context.Context) ([]Node, error)
	// DeleteNode removes the Node object and its node-password secret, and returns when they are gone; ones that are gone
	// already are no error.
	DeleteNode(ctx context.Context, name string) error
	// Cordon keeps new pods off a node, unless somebody has done so already, and marks the node where it did. Release takes
	// such a cordon back, and leaves that of somebody else. A node that is gone is no error to either.
	Cordon(ctx context.Context, name string) error
	Release(ctx context.Context, name string) error
	// Drain evicts the pods of a node, which is cordoned, and returns when they are gone. The error is *Undrained where some
	// are left when the time is over, or can never be evicted.
	Drain(ctx context.Context, name string, o DrainOptions) error
	// Attached lists the persistent volumes that are attached to a node although no pod there works with them.
	Attached(ctx context.Context, node string) ([]string, error)
	// Label gives a Node object these labels and taints, takes those off that an earlier call gave it, and leaves all others.
	Label(ctx context.Context, name string, labels map[string]string, taints []record.Taint) error
	// LeaveEtcd asks for the removal of a server's member from the cluster's etcd, and reports whether it is out: asking
	// again is how its end is waited for. A Node that is gone or was no member is out. While etcd refuses, it is not out
	// and the request is made anew by the next call.
	LeaveEtcd(ctx context.Context, name string) (out bool, err error)
}

// Node is a Node object, as far as the pipeline looks at it.
type Node struct {
	Name  string
	Ready bool
	// Reason and Message are those of the Ready condition where it is not true.
	Reason     string
	Message    string
	K3sVersion string
	InternalIP string
	// Etcd: the node runs a member of the cluster's etcd; Voter: that member has a vote, and is no learner any more.
	Etcd  bool
	Voter bool
	// Since is when the Ready condition last changed; zero where it is not known.
	Since time.Time
	// Cordoned: it is cordoned by Cordon, and not by somebody else.
	Cordoned bool
	// Labels and Taints are all that stand on it.
	Labels map[string]string
	Taints []record.Taint
	// OwnLabels are the keys of those that Label gave it, OwnTaints what such taints are told apart by, "<key>:<effect>".
	OwnLabels []string
	OwnTaints []string
	// BootID is the boot of the machine that the kubelet last reported from.
	BootID string
}

// Dialer makes a client for the API from a kubeconfig; it does no I/O.
type Dialer func(kubeconfig []byte) (Kube, error)
