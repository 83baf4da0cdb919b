package kube

import (
	"errors"
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

// cordonState is a Node as far as cordons go.
type cordonState struct{ unschedulable, mark bool }

func (s cordonState) node() *corev1.Node {
	n := node("w-1")
	n.ResourceVersion = "7"
	n.Annotations = map[string]string{"example.test/x": "y"}
	n.Spec.Unschedulable = s.unschedulable
	if s.mark {
		n.Annotations["cockpit-k3s.github.io/cordoned"] = "true"
	}
	return n
}

func cordonStateOf(t *testing.T, api *fake.Clientset) cordonState {
	t.Helper()
	n, err := api.CoreV1().Nodes().Get(t.Context(), "w-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if n.Annotations["example.test/x"] != "y" {
		t.Errorf("the annotations are %v", n.Annotations)
	}
	_, mark := n.Annotations["cockpit-k3s.github.io/cordoned"]
	return cordonState{n.Spec.Unschedulable, mark}
}

func TestCordonAndRelease(t *testing.T) {
	free, foreign, ours, lifted := cordonState{}, cordonState{unschedulable: true}, cordonState{true, true}, cordonState{mark: true}
	for name, tt := range map[string]struct {
		before  cordonState
		release bool
		want    cordonState
		patches int
	}{
		"cordon":                          {before: free, want: ours, patches: 1},
		"cordon, ours already":            {before: ours, want: ours},
		"cordon, somebody else's already": {before: foreign, want: foreign},
		"cordon, ours was lifted":         {before: lifted, want: ours, patches: 1},
		"release":                         {before: ours, release: true, want: free, patches: 1},
		"release, never cordoned":         {before: free, release: true, want: free},
		"release, somebody else's":        {before: foreign, release: true, want: foreign},
		"release, ours was lifted":        {before: lifted, release: true, want: free, patches: 1},
	} {
		t.Run(name, func(t *testing.T) {
			api := fake.NewClientset(tt.before.node())
			versioned(t, api, nil)
			c := &Client{api: api}
			do := c.Cordon
			if tt.release {
				do = c.Release
			}
			if err := do(t.Context(), "w-1"); err != nil {
				t.Fatal(err)
			}
			if n := patches(api); n != tt.patches {
				t.Errorf("%d patches", n)
			}
			if got := cordonStateOf(t, api); got != tt.want {
				t.Errorf("it is %+v", got)
			}
		})
	}
}

// A cordon of somebody else that comes between the look and the patch is not taken for ours, nor lifted.
func TestCordonDoesNotTakeWhatComesMeanwhile(t *testing.T) {
	api := fake.NewClientset(cordonState{}.node())
	versioned(t, api, func(n *corev1.Node) bool {
		changed := !n.Spec.Unschedulable
		n.Spec.Unschedulable = true
		return changed
	})
	c := &Client{api: api}
	if err := c.Cordon(t.Context(), "w-1"); err != nil {
		t.Fatal(err)
	}
	if err := c.Release(t.Context(), "w-1"); err != nil {
		t.Fatal(err)
	}
	if got := cordonStateOf(t, api); got != (cordonState{unschedulable: true}) {
		t.Errorf("it is %+v", got)
	}
}

// A Node is changed again by others as often as one looks: that is retried, and has its bound.
func TestCordonOfARestlessNode(t *testing.T) {
	for _, restless := range []int{1, 3, 1000} {
		synctest.Test(t, func(t *testing.T) {
			api := fake.NewClientset(cordonState{}.node())
			changes := 0
			versioned(t, api, func(*corev1.Node) bool { changes++; return changes <= restless })
			began := time.Now()
			err := (&Client{api: api}).Cordon(t.Context(), "w-1")
			switch {
			case restless < 10 && (err != nil || cordonStateOf(t, api) != cordonState{true, true}):
				t.Errorf("%d changes: %v", restless, err)
			case restless > 10 && !apierrors.IsConflict(err):
				t.Errorf("%d changes: %v", restless, err)
			}
			if waited := time.Since(began); waited > time.Second {
				t.Errorf("%d changes: waited %s", restless, waited)
			}
		})
	}
}

func TestCordonOfANodeThatIsGone(t *testing.T) {
	for _, gone := range []string{"before", "meanwhile"} {
		api := fake.NewClientset(cordonState{}.node())
		if gone == "before" {
			api = fake.NewClientset()
		}
		missing := apierrors.NewNotFound(corev1.Resource("nodes"), "w-1")
		api.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, missing })
		c := &Client{api: api}
		if err := errors.Join(c.Cordon(t.Context(), "w-1"), c.Release(t.Context(), "w-1")); err != nil {
			t.Errorf("gone %s: %v", gone, err)
		}
	}
}

func TestCordonReportsWhatFailed(t *testing.T) {
	for _, verb := range []string{"get", "patch"} {
		refused := apierrors.NewForbidden(corev1.Resource("nodes"), "w-1", errors.New("not allowed"))
		for release, before := range map[bool]cordonState{false: {}, true: {true, true}} {
			api := fake.NewClientset(before.node())
			api.PrependReactor(verb, "nodes", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, refused })
			c := &Client{api: api}
			do := c.Cordon
			if release {
				do = c.Release
			}
			if err := do(t.Context(), "w-1"); !apierrors.IsForbidden(err) {
				t.Errorf("%s, release %t: %v", verb, release, err)
			}
		}
	}
}
