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
	// Observe looks at all hypervisors in parallel. It never fails as a whole.
	Observe(ctx context.Context) machine.Observation
	// Check returns every reason why the request cannot be met, or machine.ErrUnreachable.
	Check(ctx context.Context, r machine.Request) ([]machine.Problem, error)
	// Define writes the domain with its record; nothing else exists of the VM before that. Where the record names no
	// template, the fleet writes into it which one the hypervisor has, and SetRecord keeps that.
	Define(ctx context.Context, s machine.Spec) error
	// CloneDisk makes the root volume from the template and grows it.
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
	// DeleteNode removes the Node object and its node-password secret; ones that are gone are no error.
	DeleteNode(ctx context.Context, name string) error
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
	// BootID is the boot of the machine that the kubelet last reported from.
	BootID string
}

// Dialer makes a client for the API from a kubeconfig; it does no I/O.
type Dialer func(kubeconfig []byte) (Kube, error)
