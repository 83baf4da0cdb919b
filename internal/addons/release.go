package addons

import (
	"context"
	"io/fs"

	"k8s.io/client-go/dynamic"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
)

// release is an add-on as it is wanted. It follows from an AddonSpec alone.
type release struct {
	addon cluster.Addon
	place
	source source
	// crds is a chart of which nothing but objects is wanted: they are applied before the release is made, belong to no
	// release, and are never deleted. It is nil for none.
	crds *source
	// values are those of the chart's that are not its own defaults, the provider's and the user's merged. They hold JSON's
	// types only, float64 for numbers.
	values map[string]any
	// crdValues are those of crds.
	crdValues map[string]any
	// growing are values that follow the number of nodes.
	growing []growing
	// class is the StorageClass that the release makes, nil for none.
	class *class
	// workloads are what has to run, those included that an operator makes later.
	workloads []workload
	// pods selects the pods of workloads.
	pods []podSelector
	// ready tells what else is missing before the add-on works, such as "TigeraStatus calico: not Available: …"; nil where
	// workloads say it all. An error is one of the API.
	ready func(ctx context.Context, api dynamic.Interface) (lacks []string, err error)
}

// place is where the release of an add-on stands and what it is known by, however it is made.
type place struct {
	// namespace and name are those of the Helm release.
	namespace, name string
	// privileged: the namespace is the add-on's own, and its pods need the privileged level of pod security.
	privileged bool
	// driver is the name of the provisioner or CSI driver that its volumes carry, "" for a network.
	driver string
}

// places are those of all add-ons. They must not change: the releases of clusters that exist are found by them.
var places = map[cluster.Addon]place{
	cluster.Calico:    {namespace: "tigera-operator", name: "calico", privileged: true},
	cluster.Cilium:    {namespace: "kube-system", name: "cilium"},
	cluster.LocalPath: {namespace: "kube-system", name: "local-path", driver: "rancher.io/local-path"},
	cluster.NFS:       {namespace: "kube-system", name: "csi-driver-nfs", driver: "nfs.csi.k8s.io"},
	cluster.Longhorn:  {namespace: "longhorn-system", name: "longhorn", privileged: true, driver: "driver.longhorn.io"},
}

// source is where a chart comes from: files, else archive, else repository, else the provider's mirror, else origin.
type source struct {
	// chart and version are the chart's name and version. With an archive they may be "", and otherwise have to fit.
	chart, version string
	// files is the directory of a chart that is part of the provider.
	files fs.FS
	// archive is the path of a packed chart or of a chart's directory.
	archive string
	// repository is the one that the user named for this add-on, origin that of the project. Either is an http://, https://
	// or oci:// URL.
	repository, origin string
}

// growing is a value, a whole number, that follows the number of nodes. A release that has less than wanted is Raisable and
// not drifted. One that has more, up to most, is as it is wanted, and an Install leaves it so.
type growing struct {
	// key is a path in the values, such as "persistence.defaultClassReplicaCount".
	key  string
	most int
}

// class is a StorageClass as it is wanted.
type class struct {
	name      string
	isDefault bool
	// provisioner, parameters and mountOptions cannot be changed in a StorageClass. They are not compared where provisioner
	// is "": the add-on makes the class by itself, and anew where that has to be.
	provisioner  string
	parameters   map[string]string
	mountOptions []string
	// reclaimPolicy and bindingMode cannot be changed either; "" is what the chart makes of it.
	reclaimPolicy, bindingMode string
}

// kind is the kind of a workload.
type kind string

// The kinds of workloads.
const (
	deployment kind = "Deployment"
	daemonSet  kind = "DaemonSet"
)

// workload names a Deployment or DaemonSet.
type workload struct {
	kind            kind
	namespace, name string
}

// podSelector selects pods by all of these labels.
type podSelector struct {
	namespace string
	labels    map[string]string
}
