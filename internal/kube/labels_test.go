package kube

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// state is a Node as far as labels and taints go; taints are written as kubectl does.
type state struct {
	labels              map[string]string
	taints              string
	ownLabels, ownTaint string
}

func parseTaints(text string) []corev1.Taint {
	var taints []corev1.Taint
	for field := range strings.FieldsSeq(text) {
		kv, effect, _ := strings.Cut(field, ":")
		key, value, _ := strings.Cut(kv, "=")
		taints = append(taints, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)})
	}
	return taints
}

func (s state) node() *corev1.Node {
	n := node("w-1")
	n.ResourceVersion = "7"
	n.Labels = map[string]string{"kubernetes.io/hostname": "w-1"}
	maps.Copy(n.Labels, s.labels)
	n.Spec.Taints = parseTaints(s.taints)
	n.Annotations = map[string]string{"example.test/x": "y"}
	if s.ownLabels != "" {
		n.Annotations["cockpit-k3s.github.io/labels"] = s.ownLabels
	}
	if s.ownTaint != "" {
		n.Annotations["cockpit-k3s.github.io/taints"] = s.ownTaint
	}
	return n
}

func TestLabel(t *testing.T) {
	for name, tt := range map[string]struct {
		before state
		labels map[string]string
		taints string
		// want is what the Node is after one patch; nil is no patch at all.
		want *state
	}{
		"nothing is wanted": {},
		"nothing is wanted, and others' stay": {
			before: state{labels: map[string]string{"a": "1"}, taints: "a=1:NoSchedule"},
		},
		"new ones": {
			labels: map[string]string{"b": "2", "a": "1"}, taints: "y:NoExecute x=1:NoSchedule",
			want: &state{map[string]string{"a": "1", "b": "2"}, "y:NoExecute x=1:NoSchedule", "a,b", "x:NoSchedule,y:NoExecute"},
		},
		"all is there": {
			before: state{map[string]string{"a": "1"}, "x=1:NoSchedule", "a", "x:NoSchedule"},
			labels: map[string]string{"a": "1"}, taints: "x=1:NoSchedule",
		},
		"the kubelet gave them at registration": {
			before: state{labels: map[string]string{"a": "1", "c": "3"}, taints: "x=1:NoSchedule z:NoExecute"},
			labels: map[string]string{"a": "1"}, taints: "x=1:NoSchedule",
			want: &state{map[string]string{"a": "1", "c": "3"}, "x=1:NoSchedule z:NoExecute", "a", "x:NoSchedule"},
		},
		"some are not wanted any more": {
			before: state{map[string]string{"a": "1", "b": "2", "c": "3"}, "x=1:NoSchedule y:NoExecute z:NoSchedule", "a,b", "x:NoSchedule,y:NoExecute"},
			labels: map[string]string{"b": "2"}, taints: "y:NoExecute",
			want: &state{map[string]string{"b": "2", "c": "3"}, "y:NoExecute z:NoSchedule", "b", "y:NoExecute"},
		},
		"none is wanted any more": {
			before: state{map[string]string{"a": "1", "c": "3"}, "x=1:NoSchedule", "a", "x:NoSchedule"},
			want:   &state{labels: map[string]string{"c": "3"}},
		},
		"what is not wanted any more has gone already": {
			before: state{ownLabels: "a", ownTaint: "x:NoSchedule"},
			want:   &state{},
		},
		"a foreign taint with our key and another effect": {
			before: state{nil, "x=1:NoSchedule x=1:NoExecute", "", "x:NoSchedule"},
			want:   &state{taints: "x=1:NoExecute"},
		},
		"another effect": {
			before: state{nil, "x=1:NoSchedule", "", "x:NoSchedule"}, taints: "x=1:NoExecute",
			want: &state{nil, "x=1:NoExecute", "", "x:NoExecute"},
		},
		"one key with two effects": {
			before: state{nil, "x:NoSchedule", "", "x:NoSchedule"}, taints: "x:NoSchedule x=2:NoExecute",
			want: &state{nil, "x:NoSchedule x=2:NoExecute", "", "x:NoExecute,x:NoSchedule"},
		},
		"other values": {
			before: state{map[string]string{"a": "1"}, "x=1:NoSchedule z:NoExecute", "a", "x:NoSchedule"},
			labels: map[string]string{"a": "2"}, taints: "x=2:NoSchedule",
			want: &state{map[string]string{"a": "2"}, "x=2:NoSchedule z:NoExecute", "a", "x:NoSchedule"},
		},
		"values that somebody changed": {
			before: state{map[string]string{"a": "9"}, "x=9:NoSchedule", "a", "x:NoSchedule"},
			labels: map[string]string{"a": "1"}, taints: "x:NoSchedule",
			want: &state{map[string]string{"a": "1"}, "x:NoSchedule", "a", "x:NoSchedule"},
		},
		"ones that somebody took off": {
			before: state{nil, "", "a", "x:NoSchedule"},
			labels: map[string]string{"a": "1"}, taints: "x=1:NoSchedule",
			want: &state{map[string]string{"a": "1"}, "x=1:NoSchedule", "a", "x:NoSchedule"},
		},
		"empty values": {
			labels: map[string]string{"a": ""}, taints: "x:PreferNoSchedule",
			want: &state{map[string]string{"a": ""}, "x:PreferNoSchedule", "a", "x:PreferNoSchedule"},
		},
		"keys with a prefix": {
			before: state{map[string]string{"example.test/a": "1", "example.test/ab": "2"}, "", "example.test/a", ""},
			want:   &state{labels: map[string]string{"example.test/ab": "2"}},
		},
		"one taint twice": {
			taints: "x=1:NoSchedule x=2:NoSchedule",
			want:   &state{nil, "x=2:NoSchedule", "", "x:NoSchedule"},
		},
		"the list of ours was spoilt": {
			before: state{map[string]string{"a": "1"}, "x:NoSchedule", ",,b", ":"},
			labels: map[string]string{"a": "1"},
			want:   &state{map[string]string{"a": "1"}, "x:NoSchedule", "a", ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			api := fake.NewClientset(tt.before.node())
			versioned(t, api, nil)
			var wanted []record.Taint
			for _, x := range parseTaints(tt.taints) {
				wanted = append(wanted, taintOf(x))
			}
			c := &Client{api: api}
			// The second time there is nothing to do.
			for range 2 {
				if err := c.Label(t.Context(), "w-1", tt.labels, wanted); err != nil {
					t.Fatal(err)
				}
			}
			want, sent := tt.before, 0
			if tt.want != nil {
				want, sent = *tt.want, 1
			}
			if n := patches(api); n != sent {
				t.Errorf("%d patches", n)
			}
			got, err := api.CoreV1().Nodes().Get(t.Context(), "w-1", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			expected := want.node()
			got.ResourceVersion, expected.ResourceVersion, got.ManagedFields = "", "", nil
			if diff := cmp.Diff(expected, got); diff != "" {
				t.Errorf("node (-want +got):\n%s", diff)
			}
		})
	}
}

// By the time that a taint for NoExecute was added, Kubernetes knows how long pods have tolerated it.
func TestLabelKeepsTheTimeOfATaint(t *testing.T) {
	n := state{taints: "x=9:NoExecute z:NoExecute", ownTaint: "x:NoExecute"}.node()
	added := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	for i := range n.Spec.Taints {
		n.Spec.Taints[i].TimeAdded = &added
	}
	api := fake.NewClientset(n)
	versioned(t, api, nil)
	if err := (&Client{api: api}).Label(t.Context(), "w-1", nil, []record.Taint{{Key: "x", Value: "1", Effect: "NoExecute"}}); err != nil {
		t.Fatal(err)
	}
	got, err := api.CoreV1().Nodes().Get(t.Context(), "w-1", metav1.GetOptions{})
	if err != nil || len(got.Spec.Taints) != 2 {
		t.Fatalf("got %v, %v", got.Spec.Taints, err)
	}
	for _, taint := range got.Spec.Taints {
		if taint.TimeAdded == nil || !taint.TimeAdded.Equal(&added) {
			t.Errorf("%s was added %v", taint.Key, taint.TimeAdded)
		}
	}
}

// What somebody else gives a Node between the look and the patch stays.
func TestLabelKeepsWhatComesMeanwhile(t *testing.T) {
	api := fake.NewClientset(state{taints: "x:NoSchedule", ownTaint: "x:NoSchedule"}.node())
	first := true
	versioned(t, api, func(n *corev1.Node) bool {
		if !first {
			return false
		}
		first = false
		n.Labels["late"] = "1"
		n.Spec.Taints = append(n.Spec.Taints, parseTaints("late:NoSchedule")...)
		return true
	})
	if err := (&Client{api: api}).Label(t.Context(), "w-1", map[string]string{"a": "1"}, nil); err != nil {
		t.Fatal(err)
	}
	got, err := api.CoreV1().Nodes().Get(t.Context(), "w-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Labels["late"] != "1" || got.Labels["a"] != "1" || len(got.Spec.Taints) != 1 || got.Spec.Taints[0].Key != "late" {
		t.Errorf("labels %v, taints %v", got.Labels, got.Spec.Taints)
	}
}

func TestLabelOfANodeThatIsGone(t *testing.T) {
	err := (&Client{api: fake.NewClientset()}).Label(t.Context(), "w-1", nil, nil)
	if !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), `node "w-1"`) {
		t.Errorf("got %v", err)
	}
}
