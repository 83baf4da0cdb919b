package kube

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
)

var _ cluster.Kube = (*Client)(nil)

func node(name string, conditions ...corev1.NodeCondition) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{
			Conditions: conditions,
			NodeInfo:   corev1.NodeSystemInfo{KubeletVersion: "v1.36.2+k3s1"},
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeHostName, Address: name}, {Type: corev1.NodeInternalIP, Address: "192.0.2.7"},
				{Type: corev1.NodeInternalIP, Address: "2001:db8::7"},
			},
		},
	}
}

func TestNodes(t *testing.T) {
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}
	lost := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown", Message: "Kubelet stopped posting node status."}
	pressure := corev1.NodeCondition{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue, Reason: "KubeletHasDiskPressure"}
	c := &Client{api: fake.NewClientset(node("a", pressure, ready), node("b", lost), node("c"))}
	got, err := c.Nodes(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	want := []cluster.Node{
		{Name: "a", Ready: true, Reason: "KubeletReady", K3sVersion: "v1.36.2+k3s1", InternalIP: "192.0.2.7"},
		{Name: "b", Reason: "NodeStatusUnknown", Message: "Kubelet stopped posting node status.", K3sVersion: "v1.36.2+k3s1", InternalIP: "192.0.2.7"},
		{Name: "c", Reason: "Unknown", Message: "no Ready condition yet", K3sVersion: "v1.36.2+k3s1", InternalIP: "192.0.2.7"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
}

func TestDeleteNode(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "w-1.node-password.k3s"}}
	other := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "w-2.node-password.k3s"}}
	api := fake.NewClientset(node("w-1"), node("w-2"), secret, other)
	c := &Client{api: api}
	// The second time everything is gone, which is no error; nor is a secret that is left without its node.
	for range 2 {
		if err := c.DeleteNode(context.Background(), "w-1"); err != nil {
			t.Fatal(err)
		}
	}
	nodes, err := c.Nodes(context.Background())
	if err != nil || len(nodes) != 1 || nodes[0].Name != "w-2" {
		t.Errorf("nodes are %v, %v", nodes, err)
	}
	secrets, err := api.CoreV1().Secrets("kube-system").List(context.Background(), metav1.ListOptions{})
	if err != nil || len(secrets.Items) != 1 || secrets.Items[0].Name != other.Name {
		t.Errorf("secrets are %v, %v", secrets.Items, err)
	}
}

func TestDeleteNodeReportsWhatFailed(t *testing.T) {
	for _, resource := range []string{"nodes", "secrets"} {
		api := fake.NewClientset(node("w-1"))
		refused := apierrors.NewForbidden(corev1.Resource(resource), "w-1", errors.New("not allowed"))
		api.PrependReactor("delete", resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, refused })
		err := (&Client{api: api}).DeleteNode(context.Background(), "w-1")
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: got %v", resource, err)
		}
	}
}

func TestNewRefusesWhatIsNoKubeconfig(t *testing.T) {
	if _, err := New([]byte("kind: Config\n")); err == nil {
		t.Error("an empty kubeconfig was taken")
	}
}
