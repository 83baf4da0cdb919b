package kube

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
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
	ready.LastTransitionTime = metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	pressure := corev1.NodeCondition{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue, Reason: "KubeletHasDiskPressure"}
	c := &Client{api: fake.NewClientset(node("a", pressure, ready), node("b", lost), node("c"))}
	got, err := c.Nodes(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	want := []cluster.Node{
		{Name: "a", Ready: true, Reason: "KubeletReady", K3sVersion: "v1.36.2+k3s1", InternalIP: "192.0.2.7", Since: ready.LastTransitionTime.Time},
		{Name: "b", Reason: "NodeStatusUnknown", Message: "Kubelet stopped posting node status.", K3sVersion: "v1.36.2+k3s1", InternalIP: "192.0.2.7"},
		{Name: "c", Reason: "Unknown", Message: "no Ready condition yet", K3sVersion: "v1.36.2+k3s1", InternalIP: "192.0.2.7"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
}

func TestNodesTellTheMembersOfEtcd(t *testing.T) {
	server := func(name string, voter ...corev1.NodeCondition) *corev1.Node {
		n := node(name, voter...)
		n.Labels = map[string]string{"node-role.kubernetes.io/etcd": "true"}
		return n
	}
	const voter = corev1.NodeConditionType("EtcdIsVoter")
	c := &Client{api: fake.NewClientset(
		node("agent"), server("joins"),
		server("learns", corev1.NodeCondition{Type: voter, Status: corev1.ConditionFalse, Reason: "MemberIsLearner"}),
		server("lost", corev1.NodeCondition{Type: voter, Status: corev1.ConditionFalse, Reason: "Unhealthy"}),
		server("votes", corev1.NodeCondition{Type: voter, Status: corev1.ConditionTrue, Reason: "MemberNotLearner"}),
	)}
	nodes, err := c.Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][2]bool{}
	for _, n := range nodes {
		got[n.Name] = [2]bool{n.Etcd, n.Voter}
	}
	want := map[string][2]bool{"agent": {}, "joins": {true, false}, "learns": {true, false}, "lost": {true, false}, "votes": {true, true}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("etcd and voter (-want +got):\n%s", diff)
	}
}

func TestNodesTellWhatIsOurs(t *testing.T) {
	plain := node("plain")
	plain.Labels = map[string]string{"a": "1"}
	plain.Spec = corev1.NodeSpec{Unschedulable: true, Taints: []corev1.Taint{{Key: "x", Value: "1", Effect: corev1.TaintEffectNoSchedule}}}
	ours := node("ours")
	ours.Labels = map[string]string{"a": "1", "b": "", "c": "3"}
	ours.Spec = corev1.NodeSpec{Unschedulable: true, Taints: []corev1.Taint{{Key: "x", Effect: corev1.TaintEffectNoExecute}}}
	ours.Annotations = map[string]string{
		"cockpit-k3s.github.io/cordoned": "true", "cockpit-k3s.github.io/labels": "a,b", "cockpit-k3s.github.io/taints": "x:NoExecute,y:NoSchedule",
	}
	lifted := node("was-ours")
	lifted.Annotations = map[string]string{"cockpit-k3s.github.io/cordoned": "true"}
	nodes, err := (&Client{api: fake.NewClientset(plain, ours, lifted)}).Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := make([]cluster.Node, len(nodes))
	for i, n := range nodes {
		got[i] = cluster.Node{Name: n.Name, Cordoned: n.Cordoned, Labels: n.Labels, Taints: n.Taints, OwnLabels: n.OwnLabels, OwnTaints: n.OwnTaints}
	}
	want := []cluster.Node{
		{
			Name: "ours", Cordoned: true, Labels: ours.Labels, Taints: []record.Taint{{Key: "x", Effect: "NoExecute"}},
			OwnLabels: []string{"a", "b"}, OwnTaints: []string{"x:NoExecute", "y:NoSchedule"},
		},
		{Name: "plain", Labels: plain.Labels, Taints: []record.Taint{{Key: "x", Value: "1", Effect: "NoSchedule"}}},
		{Name: "was-ours"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
}

func TestNewRefusesWhatIsNoKubeconfig(t *testing.T) {
	if _, err := New([]byte("kind: Config\n")); err == nil {
		t.Error("an empty kubeconfig was taken")
	}
}
