package kube

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

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

// withFinalizers makes a fake API keep what it is told to delete while finalizers hold it, as the real one does.
func withFinalizers(t *testing.T, api *fake.Clientset) {
	t.Helper()
	nodes := corev1.SchemeGroupVersion.WithResource("nodes")
	get := func(name string) (*corev1.Node, error) {
		o, err := api.Tracker().Get(nodes, "", name)
		if err != nil {
			return nil, err
		}
		return o.(*corev1.Node).DeepCopy(), nil
	}
	api.PrependReactor("delete", "nodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
		n, err := get(a.(clienttesting.DeleteAction).GetName())
		if err != nil || len(n.Finalizers) == 0 {
			return false, nil, nil
		}
		if n.DeletionTimestamp == nil {
			now := metav1.Now()
			n.DeletionTimestamp = &now
		}
		return true, nil, api.Tracker().Update(nodes, n, "")
	})
	react := clienttesting.ObjectReaction(api.Tracker())
	api.PrependReactor("patch", "nodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
		handled, o, err := react(a)
		if n, ok := o.(*corev1.Node); ok && err == nil && n.DeletionTimestamp != nil && len(n.Finalizers) == 0 {
			err = api.Tracker().Delete(nodes, "", n.Name)
		}
		return handled, o, err
	})
}

const (
	k3sFinalizer  = "wrangler.cattle.io/managed-etcd-controller"
	nodeFinalizer = "wrangler.cattle.io/node"
)

// held is a Node with finalizers.
func held(finalizers ...string) *corev1.Node {
	n := node("w-1")
	n.Finalizers = finalizers
	return n
}

// k3s takes its finalizers off after a while, and only then is the Node gone.
func TestDeleteNodeWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fake.NewClientset(held(k3sFinalizer))
		withFinalizers(t, api)
		patches := 0
		api.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			patches++
			return false, nil, nil
		})
		time.AfterFunc(10*time.Second+time.Millisecond, func() {
			_ = api.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("nodes"), "", "w-1")
		})
		began := time.Now()
		if err := (&Client{api: api}).DeleteNode(t.Context(), "w-1"); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(began); waited != 11*time.Second || patches > 0 {
			t.Errorf("waited %s and changed the Node %d times", waited, patches)
		}
	})
}

func TestDeleteNodeTakesFinalizersOff(t *testing.T) {
	member := func(annotations map[string]string) *corev1.Node {
		n := held(k3sFinalizer, nodeFinalizer)
		n.Labels = map[string]string{etcdLabel: "true"}
		n.Annotations = annotations
		return n
	}
	for name, tt := range map[string]struct {
		node *corev1.Node
		// text is what the error says; "" where there is none.
		text string
	}{
		"of k3s":                      {node: held(k3sFinalizer, nodeFinalizer)},
		"of k3s, the member is out":   {node: member(map[string]string{memberRemove: "true", memberRemoved: "w-1-0a1b2c3d"})},
		"of k3s, no member is known":  {node: member(nil)},
		"of k3s, the member is in":    {node: member(map[string]string{memberName: "w-1-0a1b2c3d"}), text: `its etcd member "w-1-0a1b2c3d" is still in the cluster`},
		"of somebody else":            {node: held("example.test/x"), text: `"example.test/x"`},
		"of k3s and of somebody else": {node: held(k3sFinalizer, "example.test/x"), text: `["example.test/x"]`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := fake.NewClientset(tt.node)
				withFinalizers(t, api)
				c := &Client{api: api}
				began := time.Now()
				err := c.DeleteNode(t.Context(), "w-1")
				if waited := time.Since(began); waited != patience {
					t.Errorf("waited %s", waited)
				}
				nodes, listErr := c.Nodes(t.Context())
				if listErr != nil {
					t.Fatal(listErr)
				}
				switch {
				case tt.text == "" && (err != nil || len(nodes) > 0):
					t.Errorf("got %v, and the nodes are %v", err, nodes)
				case tt.text != "" && (err == nil || !strings.Contains(err.Error(), tt.text) || !strings.Contains(err.Error(), `node "w-1"`)):
					t.Errorf("got %v, want %s", err, tt.text)
				case tt.text != "" && len(nodes) != 1:
					t.Error("the Node is gone")
				}
			})
		})
	}
}

// A finalizer that comes after the look stays.
func TestDeleteNodeTakesOffWhatItHasSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fake.NewClientset(held(k3sFinalizer))
		withFinalizers(t, api)
		changed := false
		api.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			if !changed {
				changed = true
				n := held(k3sFinalizer, "example.test/x")
				n.DeletionTimestamp = new(metav1.Time)
				return false, nil, api.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), n, "")
			}
			return false, nil, nil
		})
		if err := (&Client{api: api}).DeleteNode(t.Context(), "w-1"); err == nil {
			t.Error("a finalizer of somebody else was taken off")
		}
	})
}

// A kubelet that still runs registers its Node again.
func TestDeleteNodeOfARunningMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fake.NewClientset(node("w-1"))
		api.PrependReactor("get", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			_ = api.Tracker().Add(node("w-1"))
			return false, nil, nil
		})
		err := (&Client{api: api}).DeleteNode(t.Context(), "w-1")
		if err == nil || !strings.Contains(err.Error(), "still runs k3s") {
			t.Errorf("got %v", err)
		}
	})
}

func TestDeleteNodeEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fake.NewClientset(held(k3sFinalizer))
		withFinalizers(t, api)
		ctx, cancel := context.WithTimeout(t.Context(), patience/2)
		defer cancel()
		began := time.Now()
		err := (&Client{api: api}).DeleteNode(ctx, "w-1")
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), k3sFinalizer) || time.Since(began) != patience/2 {
			t.Errorf("got %v after %s", err, time.Since(began))
		}
	})
}
