package operators

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
)

// sidecars are the parts of Longhorn's CSI driver that are Deployments, without the prefix of their names.
var sidecars = []string{"attacher", "provisioner", "resizer", "snapshotter"}

// driver does what the driver deployer does: it makes the CSI driver of images and numbers that its chart tells it.
func (l longhorn) driver(ctx context.Context, deployer *workload) error {
	labels := map[string]string{"longhorn.io/managed-by": "longhorn-manager"}
	if err := l.apply(ctx, "/apis/storage.k8s.io/v1/csidrivers/"+longhornDriver, object{
		"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": metadata("", longhornDriver, labels, nil),
		"spec": object{"attachRequired": true, "podInfoOnMount": true, "fsGroupPolicy": "ReadWriteOnceWithFSType"},
	}); err != nil {
		return err
	}
	for _, s := range sidecars {
		variable := "CSI_" + strings.ToUpper(s)
		replicas, err := strconv.Atoi(cmp.Or(deployer.env(variable+"_REPLICA_COUNT"), "3"))
		if err != nil {
			return fmt.Errorf("%s_REPLICA_COUNT: %w", variable, err)
		}
		name := "csi-" + s
		pod := l.pod(object{"name": name, "image": deployer.env(variable + "_IMAGE")})
		// They are spread over the nodes, as far as there are as many.
		pod["affinity"] = object{"podAntiAffinity": object{"preferredDuringSchedulingIgnoredDuringExecution": []object{{
			"weight":          1,
			"podAffinityTerm": object{"topologyKey": "kubernetes.io/hostname", "labelSelector": object{"matchLabels": object{"app": name}}},
		}}}}
		path, body := appsWorkload("Deployment", metadata(l.namespace, name, labels, nil), replicas, map[string]string{"app": name}, pod)
		if err := l.apply(ctx, path, body); err != nil {
			return err
		}
	}
	const plugin = "longhorn-csi-plugin"
	path, body := appsWorkload("DaemonSet", metadata(l.namespace, plugin, labels, nil), 0, map[string]string{"app": plugin}, l.pod(
		object{"name": "node-driver-registrar", "image": deployer.env("CSI_NODE_DRIVER_REGISTRAR_IMAGE")},
		object{"name": "longhorn-liveness-probe", "image": deployer.env("CSI_LIVENESS_PROBE_IMAGE")},
	))
	return l.apply(ctx, path, body)
}

func (l longhorn) pod(containers ...object) object {
	return object{"serviceAccountName": "longhorn-service-account", "priorityClassName": "longhorn-critical", "containers": containers}
}
