package kube

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// Attached lists the persistent volumes that are attached to a node although no pod there works with them: after a drain
// those that are being detached. The volumes of pods that a drain leaves, as those of daemon sets, stay where they are for
// as long as the node runs, and waiting for them would never end.
func (c *Client) Attached(ctx context.Context, node string) ([]string, error) {
	names, err := c.attached(ctx, node)
	if err != nil {
		return nil, fmt.Errorf("list the volumes attached to node %q: %w", node, err)
	}
	return names, nil
}

func (c *Client) attached(ctx context.Context, node string) ([]string, error) {
	list, err := c.api.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, a := range list.Items {
		if a.Spec.NodeName == node {
			name := a.Name
			if pv := a.Spec.Source.PersistentVolumeName; pv != nil {
				name = cmp.Or(*pv, name)
			}
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	used, err := c.volumesInUse(ctx, node)
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return used[name] })
	slices.Sort(names)
	return names, nil
}

// volumesInUse is the set of the persistent volumes that pods on a node work with.
func (c *Client) volumesInUse(ctx context.Context, node string) (map[string]bool, error) {
	pods, err := c.api.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String(),
	})
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.DeletionTimestamp != nil || hasEnded(p) {
			continue
		}
		for _, v := range p.Spec.Volumes {
			claim := claimOf(p, v)
			if claim == "" {
				continue
			}
			pvc, err := c.api.CoreV1().PersistentVolumeClaims(p.Namespace).Get(ctx, claim, metav1.GetOptions{})
			switch {
			case err == nil:
				used[pvc.Spec.VolumeName] = true
			case !apierrors.IsNotFound(err):
				return nil, err
			}
		}
	}
	return used, nil
}

// claimOf is the name of the claim behind a pod's volume, "" where there is none.
func claimOf(p *corev1.Pod, v corev1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil: // https://kubernetes.io/docs/concepts/storage/ephemeral-volumes/#persistentvolumeclaim-naming
		return p.Name + "-" + v.Name
	}
	return ""
}
