package addons

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
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
	for i := range list.Items {
		if v := &list.Items[i]; driverOf(v) == driver {
			out = append(out, volumeName(v))
		}
	}
	slices.Sort(out)
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
