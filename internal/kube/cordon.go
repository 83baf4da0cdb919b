package kube

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// cordonMark is the annotation that tells our cordons from those of others. It outlives a cordon that somebody else lifts,
// and counts for nothing then.
const cordonMark = mark + "cordoned"

// Cordon keeps new pods off a node and marks it as cordoned by us. One that is cordoned stays as it is, and so somebody
// else's cordon is never taken for ours. A node that is gone is no error.
func (c *Client) Cordon(ctx context.Context, name string) error {
	err := c.amend(ctx, name, func(n *corev1.Node) {
		if !n.Spec.Unschedulable {
			n.Spec.Unschedulable = true
			annotate(n, cordonMark, "true")
		}
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("cordon node %q: %w", name, err)
	}
	return nil
}

// Release lets pods on a node again that Cordon has kept off it, and takes its mark off. The cordon of somebody else stays,
// and a node that is gone is no error.
func (c *Client) Release(ctx context.Context, name string) error {
	err := c.amend(ctx, name, func(n *corev1.Node) {
		if n.Annotations[cordonMark] != "" {
			n.Spec.Unschedulable = false
			annotate(n, cordonMark, "")
		}
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("take back the cordon of node %q: %w", name, err)
	}
	return nil
}

// isCordoned reports whether a Node is cordoned by Cordon.
func isCordoned(n *corev1.Node) bool {
	return n.Spec.Unschedulable && n.Annotations[cordonMark] != ""
}
