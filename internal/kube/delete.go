package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// patience is how long a Node object that is being deleted may be held by finalizers. k3s takes its own off within
	// seconds; a controller that was just elected on another server needs half a minute before it looks at anything.
	patience = time.Minute
	// lookEvery is the pause between two looks at a Node object that is held.
	lookEvery = time.Second
	// ownFinalizers begins the finalizers of the controllers that k3s embeds.
	ownFinalizers = "wrangler.cattle.io/"
)

// passwordSecret is the Secret in kube-system that binds a node name to the password of the machine that registered it
// first. k3s leaves it behind in some releases, and then refuses a new machine of that name
// (https://docs.k3s.io/architecture#how-agent-node-registration-works).
func passwordSecret(node string) string { return node + ".node-password.k3s" }

// DeleteNode removes a Node object and its node password, and returns when they are gone; ones that are gone already are
// no error. Its caller has stopped the node's VM and, of a server, removed the etcd member: a kubelet that runs registers
// the Node anew, and finalizers of k3s that stay for longer than a minute are taken off. Other finalizers are an error
// that names them.
func (c *Client) DeleteNode(ctx context.Context, name string) error {
	if err := c.deleteNode(ctx, name); err != nil {
		return fmt.Errorf("delete node %q: %w", name, err)
	}
	secret := passwordSecret(name)
	err := c.api.CoreV1().Secrets(metav1.NamespaceSystem).Delete(ctx, secret, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete secret %q: %w", secret, err)
	}
	return nil
}

// deleteNode deletes a Node object until there is none.
func (c *Client) deleteNode(ctx context.Context, name string) error {
	nodes := c.api.CoreV1().Nodes()
	end := time.NewTimer(patience)
	defer end.Stop()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		err := nodes.Delete(ctx, name, metav1.DeleteOptions{})
		var n *corev1.Node
		if err == nil {
			n, err = nodes.Get(ctx, name, metav1.GetOptions{})
		}
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		}
		select {
		case <-look.C:
		case <-end.C:
			return c.free(ctx, n)
		case <-ctx.Done():
			return fmt.Errorf("it is held by the finalizers %q: %w", n.Finalizers, context.Cause(ctx))
		}
	}
}

// free takes the finalizers of k3s off a Node object that is being deleted and held by nothing else.
func (c *Client) free(ctx context.Context, n *corev1.Node) error {
	foreign := slices.DeleteFunc(slices.Clone(n.Finalizers), func(f string) bool { return strings.HasPrefix(f, ownFinalizers) })
	switch {
	case n.DeletionTimestamp == nil || len(n.Finalizers) == 0:
		return errors.New("it is registered anew as often as it is deleted: a machine of that name still runs k3s")
	case len(foreign) > 0:
		return fmt.Errorf("it is held by the finalizers %q, which are not those of k3s: they stay until whoever set them takes them off", foreign)
	case n.Annotations[memberName] != "" && !memberIsOut(n):
		return fmt.Errorf("it is held by the finalizers %q, and its etcd member %q is still in the cluster", n.Finalizers, n.Annotations[memberName])
	}
	// Only the finalizers that were looked at: one that came since is a reason to fail.
	type operation struct {
		Op    string   `json:"op"`
		Path  string   `json:"path"`
		Value []string `json:"value,omitempty"`
	}
	const path = "/metadata/finalizers"
	patch, err := json.Marshal([]operation{{"test", path, n.Finalizers}, {"remove", path, nil}})
	if err != nil {
		return fmt.Errorf("take the finalizers %q off: %w", n.Finalizers, err)
	}
	_, err = c.api.CoreV1().Nodes().Patch(ctx, n.Name, types.JSONPatchType, patch, metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("take the finalizers %q off: %w", n.Finalizers, err)
	}
	return nil
}
