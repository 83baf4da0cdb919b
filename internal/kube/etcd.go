package kube

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// What k3s and the holders of its API say to each other about a server's member of the embedded etcd. They are no part of
// its documentation; the source is pkg/etcd of k3s.
const (
	// etcdLabel is on the Node of each server that runs a member.
	etcdLabel = "node-role.kubernetes.io/etcd"
	// etcdVoter is a condition of such a Node, by k3s 1.29 and later (https://github.com/k3s-io/k3s/pull/8724). The server
	// with etcd's leader looks at all members every 15 seconds, so that the condition of a new server is missing at first
	// and later false with the reason MemberIsLearner. It turns false, too, for a member that does not answer or is out.
	etcdVoter corev1.NodeConditionType = "EtcdIsVoter"
	// memberName is the annotation with the name of the Node's member.
	memberName = "etcd.k3s.cattle.io/node-name"
	// memberRemove asks for the member's removal. Where etcd refuses, for want of other members that run, it is taken off.
	memberRemove = "etcd.k3s.cattle.io/remove"
	// memberRemoved tells that it is out, with the name it had.
	memberRemoved = "etcd.k3s.cattle.io/removed-node-name"
)

// LeaveEtcd asks for the removal of a server's member from the cluster's etcd and reports whether it is out. It does not
// wait: the removal goes on in the cluster, and the next call tells how far it has come or asks again.
func (c *Client) LeaveEtcd(ctx context.Context, name string) (out bool, err error) {
	n, err := c.api.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("get node %q: %w", name, err)
	case memberIsOut(n):
		return true, nil
	case n.Annotations[memberRemove] == "true":
		return false, nil
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"true"}}}`, memberRemove)
	_, err = c.api.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("ask for the removal of the etcd member of node %q: %w", name, err)
	}
	return false, nil
}

// memberIsOut reports whether the server of a Node has no member of etcd. The note of a removal outlives a member that
// joined later under another name, until k3s takes it off.
func memberIsOut(n *corev1.Node) bool {
	if _, etcd := n.Labels[etcdLabel]; !etcd {
		return true
	}
	removed, present := n.Annotations[memberRemoved], n.Annotations[memberName]
	return removed != "" && (present == "" || present == removed)
}
