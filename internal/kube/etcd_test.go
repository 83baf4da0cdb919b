package kube

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestLeaveEtcd(t *testing.T) {
	const member = "cp-2-0a1b2c3d"
	for name, tt := range map[string]struct {
		node  *corev1.Node
		out   bool
		asked bool
	}{
		"no Node":            {out: true},
		"no member":          {node: node("cp-2"), out: true},
		"a member":           {node: etcdNode(map[string]string{memberName: member}), asked: true},
		"asked already":      {node: etcdNode(map[string]string{memberName: member, memberRemove: "true"}), asked: true},
		"asked for nothing":  {node: etcdNode(map[string]string{memberName: member, memberRemove: "false"}), asked: true},
		"out":                {node: etcdNode(map[string]string{memberRemove: "true", memberRemoved: member}), out: true, asked: true},
		"out, and k3s runs":  {node: etcdNode(map[string]string{memberName: member, memberRemove: "true", memberRemoved: member}), out: true, asked: true},
		"in under a new one": {node: etcdNode(map[string]string{memberName: "cp-2-99999999", memberRemoved: member}), asked: true},
		"an empty note":      {node: etcdNode(map[string]string{memberName: member, memberRemove: "true", memberRemoved: ""}), asked: true},
	} {
		t.Run(name, func(t *testing.T) {
			api := fake.NewClientset()
			if tt.node != nil {
				api = fake.NewClientset(tt.node)
			}
			out, err := (&Client{api: api}).LeaveEtcd(t.Context(), "cp-2")
			if err != nil || out != tt.out {
				t.Errorf("got %t, %v", out, err)
			}
			if tt.node == nil {
				return
			}
			n, err := api.CoreV1().Nodes().Get(t.Context(), "cp-2", metav1.GetOptions{})
			if err != nil || (n.Annotations[memberRemove] == "true") != tt.asked {
				t.Errorf("the annotations are %v, %v", n.Annotations, err)
			}
			for key, value := range tt.node.Annotations {
				if key != memberRemove && n.Annotations[key] != value {
					t.Errorf("annotation %s is %q and was %q", key, n.Annotations[key], value)
				}
			}
		})
	}
}

// A request that etcd refused is taken back by k3s, and made again by the next call.
func TestLeaveEtcdAsksAgain(t *testing.T) {
	api := fake.NewClientset(etcdNode(map[string]string{memberName: "cp-2-0a1b2c3d"}))
	c := &Client{api: api}
	for range 2 {
		if out, err := c.LeaveEtcd(t.Context(), "cp-2"); out || err != nil {
			t.Fatalf("got %t, %v", out, err)
		}
		n, err := api.CoreV1().Nodes().Get(t.Context(), "cp-2", metav1.GetOptions{})
		if err != nil || n.Annotations[memberRemove] != "true" {
			t.Fatalf("not asked: %v, %v", n.Annotations, err)
		}
		delete(n.Annotations, memberRemove)
		if _, err := api.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLeaveEtcdReportsWhatFailed(t *testing.T) {
	for _, verb := range []string{"get", "patch"} {
		api := fake.NewClientset(etcdNode(map[string]string{memberName: "cp-2-0a1b2c3d"}))
		refused := apierrors.NewForbidden(corev1.Resource("nodes"), "cp-2", errors.New("not allowed"))
		api.PrependReactor(verb, "nodes", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, refused })
		if out, err := (&Client{api: api}).LeaveEtcd(t.Context(), "cp-2"); out || !apierrors.IsForbidden(err) {
			t.Errorf("%s: got %t, %v", verb, out, err)
		}
	}
}

func etcdNode(annotations map[string]string) *corev1.Node {
	n := node("cp-2")
	n.Labels = map[string]string{etcdLabel: "true"}
	n.Annotations = annotations
	return n
}
