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
	// Define writes the domain with its record; nothing else exists of the VM before that. Where the record names no
	// template, the fleet writes into it which one the VM's disk is made from, and SetRecord keeps that.
	Define(ctx context.Context, s machine.Spec) error
	// CloneDisk makes the root volume from the template, which it first brings to the VM's storage pool where that
	// lacks it, and grows it.
	CloneDisk(ctx context.Context, s machine.Spec) error
	// WriteSeed writes the cloud-init seed, over an older one if there is one.
	WriteSeed(ctx context.Context, m machine.Machine, iso []byte) error
	// Start powers the VM on.
	Start(ctx context.Context, m machine.Machine) error
	// SetRecord replaces the record.
	SetRecord(ctx context.Context, m machine.Machine, r record.Record) error
	// Stop powers the VM off: it asks the guest and gives it grace before it pulls the plug.
	Stop(ctx context.Context, m machine.Machine, grace time.Duration) error
	// Delete removes the domain and the volumes that its record lists. Its domain is the last to go, so that a
	// Delete that failed half-way can be repeated. A domain that is gone already is no error: volumes that stand
	// under the names of machine.RootVolume and machine.SeedVolume are removed all the same.
	Delete(ctx context.Context, m machine.Machine) error
	// Guest reaches into the VM. It does no I/O.
	Guest(m machine.Machine) Guest
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
	// BootID is the boot of the machine that the kubelet last reported from.
	BootID string
}

// Dialer makes a client for the API from a kubeconfig; it does no I/O.
type Dialer func(kubeconfig []byte) (Kube, error)
