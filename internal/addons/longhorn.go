package addons

import (
	"context"
	"fmt"

	"k8s.io/client-go/dynamic"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// longhorn is made by its chart (https://github.com/longhorn/longhorn/tree/master/chart) and by what that installs: the manager
// makes the StorageClass, and makes it anew where a parameter changes, and the driver deployer makes the parts of the CSI driver.
var longhorn = recipe{
	chartField:  machine.FieldLonghornChart,
	valuesField: machine.FieldLonghornValues,
	chart:       func(s cluster.AddonSpec) record.Chart { return s.CSI.Longhorn.Chart },
	values:      longhornValues,
	owned: []owned{
		own("namespaceOverride", "the provider looks for Longhorn in "+places[cluster.Longhorn].namespace),
		own("persistence.createStorageClass", "the class is what the tier is for"),
		own("persistence.defaultClass", "use csi.default_class"),
		own("persistence.defaultClassReplicaCount", "use csi.longhorn.replica_count"),
		own("defaultSettings.defaultReplicaCount", "use csi.longhorn.replica_count"),
		own("defaultSettings.defaultDataPath", "use csi.longhorn.data_path"),
		own("defaultSettings.nodeDrainPolicy", "use csi.longhorn.drain_policy"),
	},
	complete: func(s cluster.AddonSpec, r *release) {
		r.growing = stillOurs(r.values, longhornValues(s), []growing{
			{"persistence.defaultClassReplicaCount", s.CSI.Longhorn.Replicas},
			{"defaultSettings.defaultReplicaCount", s.CSI.Longhorn.Replicas},
			{"csi.attacherReplicaCount", longhornSidecars},
			{"csi.provisionerReplicaCount", longhornSidecars},
			{"csi.resizerReplicaCount", longhornSidecars},
			{"csi.snapshotterReplicaCount", longhornSidecars},
		})
		r.class = &class{name: record.LonghornClass, isDefault: s.CSI.Default() == record.LonghornClass}
		for _, name := range []string{"longhorn-manager", "longhorn-csi-plugin"} {
			r.workloads = append(r.workloads, workload{daemonSet, r.namespace, name})
		}
		for _, name := range []string{"longhorn-driver-deployer", "csi-attacher", "csi-provisioner", "csi-resizer", "csi-snapshotter"} {
			r.workloads = append(r.workloads, workload{deployment, r.namespace, name})
		}
		r.pods = []podSelector{{namespace: r.namespace}}
		namespace := r.namespace
		r.ready = func(ctx context.Context, api dynamic.Interface) ([]string, error) {
			return lacksOfLonghorn(ctx, api, namespace)
		}
	},
	check: func(s cluster.AddonSpec) []cluster.Problem {
		var out []cluster.Problem
		if n := s.CSI.Longhorn.Replicas; n < 1 {
			out = append(out, cluster.Problem{Field: machine.FieldLonghorn, Err: fmt.Errorf("a volume cannot have %d copies", n)})
		}
		if err := checkDirectory(s.CSI.Longhorn.DataPath); err != nil {
			out = append(out, cluster.Problem{Field: machine.FieldLonghorn, Err: fmt.Errorf("data_path: %w", err)})
		}
		return out
	},
}

// longhornSidecars is how many of each part of the CSI driver Longhorn itself would run.
const longhornSidecars = 3

// longhornValues are the values for k3s. Copies of a volume stand on different nodes, so there are no more of them than nodes;
// with more, every volume would be degraded from its first day.
func longhornValues(s cluster.AddonSpec) tree {
	nodes := max(1, s.Nodes)
	replicas, sidecars := min(s.CSI.Longhorn.Replicas, nodes), min(longhornSidecars, nodes)
	values := tree{
		"persistence": tree{
			"createStorageClass":       true,
			"defaultClass":             s.CSI.Default() == record.LonghornClass,
			"defaultClassReplicaCount": replicas,
		},
		"defaultSettings": tree{
			"defaultReplicaCount": replicas,
			"defaultDataPath":     s.CSI.Longhorn.DataPath,
			"nodeDrainPolicy":     s.CSI.Longhorn.DrainPolicy,
		},
		"csi": tree{
			"attacherReplicaCount":    sidecars,
			"provisionerReplicaCount": sidecars,
			"resizerReplicaCount":     sidecars,
			"snapshotterReplicaCount": sidecars,
		},
		"longhornUI": tree{"replicas": 1},
		// The manager checks the same when it starts, and needs no job that has to end before Helm goes on.
		"preUpgradeChecker": tree{"jobEnabled": false},
	}
	if s.ImageRegistry != "" {
		values["global"] = tree{"imageRegistry": s.ImageRegistry}
	}
	return values
}
