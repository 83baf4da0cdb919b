package addons

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
)

// provisionedBy is the annotation by which provisioners outside of Kubernetes mark what they have made.
const provisionedBy = "pv.kubernetes.io/provisioned-by"

// Volumes names the PersistentVolumes of a storage add-on. A volume that somebody made by hand for a CSI driver counts, too.
func (k *installed) Volumes(ctx context.Context, a cluster.Addon) ([]string, error) {
	driver := places[a].driver
	if driver == "" {
		return nil, nil
	}
	list, err := k.typed.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list PersistentVolumes: %w", err)
	}
	var out []string
	handles := map[string]bool{}
	for i := range list.Items {
		v := &list.Items[i]
		if driverOf(v) != driver {
			continue
		}
		out = append(out, volumeName(v))
		if v.Spec.CSI != nil {
			handles[v.Spec.CSI.VolumeHandle] = true
		}
	}
	if a == cluster.Longhorn {
		others, err := k.longhornVolumes(ctx, handles)
		if err != nil {
			return nil, err
		}
		out = append(out, others...)
	}
	slices.Sort(out)
	return out, nil
}

// longhornVolumes names the volumes that Longhorn has and no PersistentVolume stands for: those of ones that were deleted and retained,
// and those that were made or restored in its own interface. Their data would go with it.
func (k *installed) longhornVolumes(ctx context.Context, known map[string]bool) ([]string, error) {
	list, err := k.dynamic.Resource(longhornData).Namespace(places[cluster.Longhorn].namespace).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil // It has never run.
	}
	if err != nil {
		return nil, fmt.Errorf("list Longhorn's volumes: %w", err)
	}
	var out []string
	for _, v := range list.Items {
		if !known[v.GetName()] {
			out = append(out, v.GetName()+" (of Longhorn, without a PersistentVolume)")
		}
	}
	return out, nil
}

// driverOf is the name of the driver or provisioner of a volume, "" where there is none.
func driverOf(v *corev1.PersistentVolume) string {
	if v.Spec.CSI != nil {
		return v.Spec.CSI.Driver
	}
	return v.Annotations[provisionedBy]
}

func volumeName(v *corev1.PersistentVolume) string {
	if c := v.Spec.ClaimRef; c != nil {
		return fmt.Sprintf("%s (claim %s/%s)", v.Name, c.Namespace, c.Name)
	}
	return v.Name
}
