package cluster

import (
	"context"
	"fmt"
	"strings"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// Addon names an add-on of a cluster.
type Addon string

// The add-ons, in the order in which they are installed. Flannel is none: it is part of k3s.
const (
	Calico    Addon = "calico"
	Cilium    Addon = "cilium"
	LocalPath Addon = "local-path"
	NFS       Addon = "nfs"
	Longhorn  Addon = "longhorn"
)

// IsNetwork reports whether nodes need the add-on to become Ready.
func (a Addon) IsNetwork() bool { return a == Calico || a == Cilium }

// AddonSpec is what the add-ons of a cluster follow from.
type AddonSpec struct {
	CNI record.CNI
	CSI record.CSI
	// Servers is how many servers the cluster has, Nodes how many nodes it has that take pods of any kind; neither is 0 in an
	// installation.
	Servers, Nodes int
	// ImageRegistry as in record.Cluster.
	ImageRegistry string
	// K3sVersion is the version of k3s that the cluster has or gets, "" where it is not known.
	K3sVersion string
}

// Addons lists the add-ons of a cluster in the order of their installation.
func (s AddonSpec) Addons() []Addon {
	var out []Addon
	switch s.CNI.Plugin {
	case record.Calico:
		out = append(out, Calico)
	case record.Cilium:
		out = append(out, Cilium)
	}
	if s.CSI.LocalPath != nil {
		out = append(out, LocalPath)
	}
	if s.CSI.NFS != nil {
		out = append(out, NFS)
	}
	if s.CSI.Longhorn != nil {
		out = append(out, Longhorn)
	}
	return out
}

// AddonState is the state of an add-on in a few words.
type AddonState string

// The states of an add-on.
const (
	// AddonDeployed: it is installed as it is wanted. Whether its pods run is another matter.
	AddonDeployed AddonState = "deployed"
	// AddonMissing: it is not installed. AddonFailed: its installation or change did not come to its end.
	AddonMissing AddonState = "missing"
	AddonFailed  AddonState = "failed"
	// AddonDrifted: it is installed with another chart or other values than wanted, or its StorageClass is not as wanted.
	AddonDrifted AddonState = "drifted"
	// AddonUnwanted: it is installed by the provider, and is not wanted any more.
	AddonUnwanted AddonState = "unwanted"
	// AddonUnknown: the cluster's API could not be asked.
	AddonUnknown AddonState = "unknown"
)

// AddonStatus is what is known of one add-on.
type AddonStatus struct {
	// Chart and Version are those of the installed release, "" where there is none.
	Chart, Version string
	// Namespace is where the release stands.
	Namespace string
	State     AddonState
	// Reason says why the state is not deployed.
	Reason string
	// Raisable: it is deployed, and with the nodes that there are by now an Install would have Longhorn keep more copies.
	Raisable bool
}

// AddonStatuses are the add-ons of a cluster: all that are wanted, and those that are there without being wanted.
type AddonStatuses map[Addon]AddonStatus

// Catalogue knows how the add-ons are made.
type Catalogue interface {
	// Check says what is wrong with what the user asks for, such as values that contradict what the provider sets. It does
	// no I/O but to read local charts.
	Check(s AddonSpec) []Problem
	// Fetch brings the charts of these add-ons here and makes sure that the values fit them, so that Install needs no other
	// source any more. Charts that were fetched before are not fetched again. The error names the add-on and its source.
	Fetch(ctx context.Context, s AddonSpec, addons []Addon) error
	// Open returns the add-ons of the cluster that a kubeconfig leads to. It does no I/O.
	Open(kubeconfig []byte) (Addons, error)
}

// Addons is what the pipeline asks of the add-ons of one cluster. Methods are idempotent, safe for concurrent use, and bounded
// by their context only.
type Addons interface {
	// Look tells how the add-ons are, with a number of requests that does not depend on the number of releases' revisions.
	// It needs no chart. Default classes that are not the provider's are not among it.
	Look(ctx context.Context, s AddonSpec) (AddonStatuses, error)
	// Install installs an add-on or brings it to what is wanted, and does nothing where it is so. It returns when all objects
	// are in the cluster, and does not wait for pods. What an earlier attempt left behind is repaired. The cluster's
	// API may be young: the caller repeats what failed for a moment's reason.
	Install(ctx context.Context, s AddonSpec, a Addon) error
	// Health returns nil where all of an add-on's own workloads are available on the nodes there are. The error is
	// *Unavailable where they are not yet.
	Health(ctx context.Context, s AddonSpec, a Addon) error
	// Volumes names the PersistentVolumes of a storage add-on, each with the claim that it is bound to, as
	// "pvc-1234 (claim default/data)".
	Volumes(ctx context.Context, a Addon) ([]string, error)
	// Remove uninstalls a storage add-on without volumes. One that is not there is no error.
	Remove(ctx context.Context, a Addon) error
	// Defaults names all default StorageClasses.
	Defaults(ctx context.Context) ([]string, error)
}

// Unavailable is the error of an add-on that is installed and does not run.
type Unavailable struct {
	Addon Addon
	// Workloads tells of each workload that is not available, such as "DaemonSet kube-system/cilium: 1 of 2 available".
	Workloads []string
	// Pods tells of each of its pods that does not run why not, such as "pod kube-system/cilium-x7z on c-cp-1: ErrImagePull:
	// …"; of many only the first few.
	Pods []string
}

// Error names the workloads, and their pods with what they wait for.
func (u *Unavailable) Error() string {
	text := fmt.Sprintf("%s is not available", u.Addon)
	if what := append(append([]string{}, u.Workloads...), u.Pods...); len(what) > 0 {
		text += ": " + strings.Join(what, "; ")
	}
	return text
}
