package addons

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// nfs is made by the chart of the CSI driver (https://github.com/kubernetes-csi/csi-driver-nfs/tree/master/charts). Each volume
// is a directory of the export, and any number of nodes may write to it.
var nfs = recipe{
	chartField:  machine.FieldNFSChart,
	valuesField: machine.FieldNFSValues,
	chart:       func(s cluster.AddonSpec) record.Chart { return s.CSI.NFS.Chart },
	values:      nfsValues,
	owned: []owned{
		own("driver.name", "volumes are known by it"),
		own("controller.name", "the provider looks for it"),
		own("node.name", "the provider looks for it"),
		own("storageClass.create", "the class is what the tier is for"),
		own("storageClass.name", "the class of the tier is "+record.NFSClass),
		own("storageClass.parameters.server", "use csi.nfs.server or csi.nfs.pool"),
		own("storageClass.parameters.share", "use csi.nfs.path or csi.nfs.pool"),
		own("storageClass.mountOptions", "use csi.nfs.nfs_version and csi.nfs.mount_options"),
		{[]string{"storageClass", "annotations", defaultAnnotation}, "use csi.default_class"},
	},
	complete: func(s cluster.AddonSpec, r *release) {
		r.class = &class{
			name:         record.NFSClass,
			isDefault:    s.CSI.Default() == record.NFSClass,
			provisioner:  r.driver,
			parameters:   texts(r.values, "storageClass", "parameters"),
			mountOptions: nfsOptions(s.CSI.NFS),
		}
		r.class.follow(r.values)
		r.workloads = []workload{{deployment, r.namespace, nfsController}, {daemonSet, r.namespace, nfsNode}}
		r.pods = []podSelector{{r.namespace, map[string]string{"app": nfsController}}, {r.namespace, map[string]string{"app": nfsNode}}}
	},
	check: checkNFS,
}

// The workloads of the chart, which carry their names as the label app.
const (
	nfsController = "csi-nfs-controller"
	nfsNode       = "csi-nfs-node"
)

// nfsValues are the values for k3s.
func nfsValues(s cluster.AddonSpec) tree {
	n := s.CSI.NFS
	values := tree{
		"driver": tree{"name": places[cluster.NFS].driver},
		"controller": tree{
			"name": nfsController,
			// One is enough: volumes that are mounted do not need it. Two would need two nodes, as it has a port of its node.
			"replicas": 1,
			// The sidecar waits for CRDs of snapshots that nobody brings.
			"enableSnapshotter": false,
		},
		"node":                tree{"name": nfsNode},
		"externalSnapshotter": tree{"enabled": false},
		"storageClass": tree{
			"create":            true,
			"name":              record.NFSClass,
			"annotations":       tree{defaultAnnotation: fmt.Sprint(s.CSI.Default() == record.NFSClass)},
			"parameters":        tree{"server": n.Server, "share": n.Path},
			"reclaimPolicy":     "Delete",
			"volumeBindingMode": "Immediate",
			"mountOptions":      nfsOptions(n),
		},
	}
	if s.ImageRegistry != "" {
		for key, repository := range nfsImages {
			put(values, mirrored(s.ImageRegistry, repository), "image", key, "repository")
		}
	}
	return values
}

// nfsImages are the images of the chart by their keys below image.
var nfsImages = map[string]string{
	"csiProvisioner":      "registry.k8s.io/sig-storage/csi-provisioner",
	"csiResizer":          "registry.k8s.io/sig-storage/csi-resizer",
	"csiSnapshotter":      "registry.k8s.io/sig-storage/csi-snapshotter",
	"externalSnapshotter": "registry.k8s.io/sig-storage/snapshot-controller",
	"livenessProbe":       "registry.k8s.io/sig-storage/livenessprobe",
	"nfs":                 "registry.k8s.io/sig-storage/nfsplugin",
	"nodeDriverRegistrar": "registry.k8s.io/sig-storage/csi-node-driver-registrar",
}

// nfsOptions are the mount options of the class.
func nfsOptions(n *record.NFS) []string {
	var out []string
	if n.Version != "" {
		out = append(out, "nfsvers="+n.Version)
	}
	return append(out, n.MountOptions...)
}

// versionOption are mount options that choose a version of the protocol, and minorOption is one that chooses a part of it
// (https://man7.org/linux/man-pages/man5/nfs.5.html).
var versionOption = regexp.MustCompile(`^(nfsvers|vers|minorversion)=|^v[234](\.[0-9])?$`)

// checkNFS looks at server, path and options. Where a storage pool tells server and path, they may not be known yet.
func checkNFS(s cluster.AddonSpec) []cluster.Problem {
	n := s.CSI.NFS
	var out []cluster.Problem
	found := func(field machine.Field, err error) { out = append(out, cluster.Problem{Field: field, Err: err}) }
	switch {
	case n.Server == "" && n.Pool == "":
		found(machine.FieldNFSServer, errors.New("the tier has neither a server nor a pool that tells one"))
	case strings.ContainsAny(n.Server, "/ \t"):
		found(machine.FieldNFSServer, fmt.Errorf("%q is neither a name nor an address", n.Server))
	}
	if n.Path != "" && (!path.IsAbs(n.Path) || path.Clean(n.Path) != n.Path) || n.Path == "" && n.Pool == "" {
		found(machine.FieldNFS, fmt.Errorf("the path %q of the export is no absolute one, or not in its shortest form", n.Path))
	}
	for _, option := range n.MountOptions {
		switch {
		case option == "" || strings.ContainsAny(option, ", \t\n"):
			found(machine.FieldNFS, fmt.Errorf("%q in mount_options is not one option", option))
		case versionOption.MatchString(option):
			found(machine.FieldNFS, fmt.Errorf("%q in mount_options chooses the version of the protocol; use nfs_version", option))
		}
	}
	return out
}
