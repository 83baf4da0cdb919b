package kube

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/util/retry"
)

// mark begins the annotations in which we keep on a Node what we did to it.
const mark = "cockpit-k3s.github.io/"

// amend changes a Node object with one patch. Where somebody else has changed it since it was read, nothing is lost: it is
// read and changed anew, a few times within half a second. No patch is sent where change leaves the Node as it is.
func (c *Client) amend(ctx context.Context, name string, change func(*corev1.Node)) error {
	nodes := c.api.CoreV1().Nodes()
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		before, err := nodes.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		after := before.DeepCopy()
		change(after)
		if equality.Semantic.DeepEqual(before, after) {
			return nil
		}
		patch, err := difference(before, after)
		if err != nil {
			return fmt.Errorf("make a patch: %w", err)
		}
		_, err = nodes.Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
		return err
	})
}

// difference returns the patch that leads from one Node to another. It has the resource version in it, so that the API
// refuses it as a conflict once the Node has changed.
func difference(before, after *corev1.Node) ([]byte, error) {
	from := before.DeepCopy()
	from.ResourceVersion = ""
	a, err := json.Marshal(from)
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(after)
	if err != nil {
		return nil, err
	}
	return strategicpatch.CreateTwoWayMergePatch(a, b, corev1.Node{})
}

// annotate sets an annotation of a Node; "" takes it off.
func annotate(n *corev1.Node, key, value string) {
	switch {
	case value == "":
		delete(n.Annotations, key)
	case n.Annotations == nil:
		n.Annotations = map[string]string{key: value}
	default:
		n.Annotations[key] = value
	}
}
