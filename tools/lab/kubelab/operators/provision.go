package operators

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/kubeapi"
)

// Annotations of claims and volumes, of Kubernetes' own making.
const (
	// selectedNode is the node that the scheduler has chosen for the pod of a claim that waits for its first consumer.
	selectedNode  = "volume.kubernetes.io/selected-node"
	provisionedBy = "pv.kubernetes.io/provisioned-by"
)

// provisioners are the names of provisioners, each with the Deployment whose pods do its work.
var provisioners = map[string]string{
	"rancher.io/local-path": "local-path-provisioner",
	"nfs.csi.k8s.io":        "csi-nfs-controller",
	longhornDriver:          "csi-provisioner",
}

type claim struct {
	Metadata kubeapi.Meta `json:"metadata"`
	Spec     struct {
		StorageClassName string   `json:"storageClassName"`
		VolumeName       string   `json:"volumeName"`
		AccessModes      []string `json:"accessModes"`
		VolumeMode       string   `json:"volumeMode"`
		Resources        struct {
			Requests map[string]string `json:"requests"`
		} `json:"resources"`
	} `json:"spec"`
}

type volume struct {
	Metadata kubeapi.Meta `json:"metadata"`
	Spec     struct {
		ReclaimPolicy string `json:"persistentVolumeReclaimPolicy"`
	} `json:"spec"`
	Status struct {
		Phase string `json:"phase"`
	} `json:"status"`
}

type storageClass struct {
	Metadata          kubeapi.Meta      `json:"metadata"`
	Provisioner       string            `json:"provisioner"`
	Parameters        map[string]string `json:"parameters"`
	MountOptions      []string          `json:"mountOptions"`
	ReclaimPolicy     string            `json:"reclaimPolicy"`
	VolumeBindingMode string            `json:"volumeBindingMode"`
}

// provision makes the volumes that claims ask for, and removes those whose claims are gone.
func (o *Operators) provision(ctx context.Context, all workloads) error {
	running := map[string]bool{}
	for name, deployment := range provisioners {
		if all.named("Deployment", deployment).runs() {
			running[name] = true
		}
	}
	if len(running) == 0 {
		return nil
	}
	var claims kubeapi.List[claim]
	var volumes kubeapi.List[volume]
	if err := errors.Join(
		o.api.Get(ctx, "/api/v1/persistentvolumeclaims?resourceVersion=0", &claims),
		o.api.Get(ctx, "/api/v1/persistentvolumes?resourceVersion=0", &volumes),
	); err != nil {
		return err
	}
	var errs []error
	for _, v := range volumes.Items {
		if running[v.Metadata.Annotations[provisionedBy]] && v.Status.Phase == "Released" && v.Spec.ReclaimPolicy == "Delete" &&
			v.Metadata.DeletionTimestamp == nil {
			errs = append(errs, o.remove(ctx, "/api/v1/persistentvolumes/"+v.Metadata.Name))
		}
	}
	for _, c := range claims.Items {
		if c.Spec.VolumeName == "" && c.Spec.StorageClassName != "" && c.Metadata.DeletionTimestamp == nil {
			errs = append(errs, o.provide(ctx, c, running))
		}
	}
	return errors.Join(errs...)
}

// provide makes the volume of one claim, if its provisioner runs and its time has come.
func (o *Operators) provide(ctx context.Context, c claim, running map[string]bool) error {
	var class storageClass
	switch err := o.api.Get(ctx, "/apis/storage.k8s.io/v1/storageclasses/"+c.Spec.StorageClassName, &class); {
	case kubeapi.IsNotFound(err):
		return nil
	case err != nil:
		return err
	}
	node := c.Metadata.Annotations[selectedNode]
	if !running[class.Provisioner] || class.VolumeBindingMode == "WaitForFirstConsumer" && node == "" {
		return nil
	}
	name := "pvc-" + c.Metadata.UID
	source, err := o.source(ctx, class, c, node)
	if err != nil {
		return err
	}
	spec := object{
		"capacity": object{"storage": cmp.Or(c.Spec.Resources.Requests["storage"], "1Gi")}, "accessModes": c.Spec.AccessModes,
		"volumeMode": cmp.Or(c.Spec.VolumeMode, "Filesystem"), "storageClassName": class.Metadata.Name, "mountOptions": class.MountOptions,
		"persistentVolumeReclaimPolicy": cmp.Or(class.ReclaimPolicy, "Delete"),
		"claimRef": object{
			"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": c.Metadata.Namespace, "name": c.Metadata.Name,
			"uid": c.Metadata.UID, "resourceVersion": c.Metadata.ResourceVersion,
		},
	}
	for k, v := range source {
		spec[k] = v
	}
	err = o.api.Create(ctx, "/api/v1/persistentvolumes", object{
		"apiVersion": "v1", "kind": "PersistentVolume", "spec": spec,
		"metadata": object{"name": name, "annotations": object{provisionedBy: class.Provisioner}},
	}, nil)
	if kubeapi.IsConflict(err) {
		return nil // made in an earlier round
	}
	return err
}

// source is the part of a volume's specification that tells where its data are.
func (o *Operators) source(ctx context.Context, class storageClass, c claim, node string) (object, error) {
	name := "pvc-" + c.Metadata.UID
	switch class.Provisioner {
	case "nfs.csi.k8s.io":
		server, share := class.Parameters["server"], class.Parameters["share"]
		return csi(class.Provisioner, fmt.Sprintf("%s#%s#%s##", server, share, name), object{"server": server, "share": share, "subdir": name}), nil
	case longhornDriver:
		return csi(class.Provisioner, name, object{"numberOfReplicas": class.Parameters["numberOfReplicas"]}), nil
	}
	dir, err := o.localDirectory(ctx)
	if err != nil {
		return nil, err
	}
	return object{
		"local": object{"path": fmt.Sprintf("%s/%s_%s_%s", dir, name, c.Metadata.Namespace, c.Metadata.Name)},
		"nodeAffinity": object{"required": object{"nodeSelectorTerms": []object{{
			"matchExpressions": []object{{"key": "kubernetes.io/hostname", "operator": "In", "values": []string{node}}},
		}}}},
	}, nil
}

func csi(driver, handle string, attributes object) object {
	return object{"csi": object{"driver": driver, "volumeHandle": handle, "volumeAttributes": attributes}}
}

// localDirectory is where local-path puts volumes by its ConfigMap.
func (o *Operators) localDirectory(ctx context.Context) (string, error) {
	var config struct {
		Data map[string]string `json:"data"`
	}
	if err := o.api.Get(ctx, "/api/v1/namespaces/kube-system/configmaps/local-path-config", &config); err != nil {
		return "", err
	}
	var settings struct {
		NodePathMap []struct {
			Paths []string `json:"paths"`
		} `json:"nodePathMap"`
	}
	if err := json.Unmarshal([]byte(config.Data["config.json"]), &settings); err != nil {
		return "", fmt.Errorf("reading the configuration of local-path: %w", err)
	}
	for _, m := range settings.NodePathMap {
		if len(m.Paths) > 0 {
			return m.Paths[0], nil
		}
	}
	return "", errors.New("the configuration of local-path has no path")
}
