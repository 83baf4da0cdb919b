package kube

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
)

// budget is a disruption budget over the pods with a label app; "" selects all of its namespace.
func budget(name, app string, allowed int32, change ...func(*policyv1.PodDisruptionBudget)) *policyv1.PodDisruptionBudget {
	b := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{}},
		Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed},
	}
	if app != "" {
		b.Spec.Selector.MatchLabels = map[string]string{"app": app}
	}
	for _, c := range change {
		c(b)
	}
	return b
}

func TestDrainAndBudgets(t *testing.T) {
	of := func(app string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Labels["app"] = app } }
	within := func(namespace string) func(*policyv1.PodDisruptionBudget) {
		return func(b *policyv1.PodDisruptionBudget) { b.Namespace = namespace }
	}
	unselective := func(b *policyv1.PodDisruptionBudget) { b.Spec.Selector = nil }
	expression := func(b *policyv1.PodDisruptionBudget) {
		b.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"web"}}}
	}
	dead := cluster.DrainOptions{Dead: true}
	for name, tt := range map[string]struct {
		objects []runtime.Object
		options cluster.DrainOptions
		evicted string
		// want is the whole error, "" where there is none; it comes at once where a drain cannot but fail.
		want   string
		atOnce bool
	}{
		"room":                   {objects: []runtime.Object{pod("db"), budget("b", "db", 1)}, evicted: "db"},
		"no room":                {objects: []runtime.Object{pod("db"), pod("web"), budget("b", "db", 0), budget("c", "x", 0), budget("d", "db", 0, within("x"))}, evicted: "web", want: "default/db is protected by the PodDisruptionBudget b"},
		"room for one of two":    {objects: []runtime.Object{pod("a", of("db")), pod("b", of("db")), budget("b", "db", 1)}, want: "is protected by the PodDisruptionBudget b"},
		"of another namespace":   {objects: []runtime.Object{pod("db"), budget("b", "db", 0, within("x"))}, evicted: "db"},
		"that selects all":       {objects: []runtime.Object{pod("db"), budget("b", "", 0)}, want: "default/db is protected by the PodDisruptionBudget b"},
		"that selects none":      {objects: []runtime.Object{pod("db"), budget("b", "", 0, unselective)}, evicted: "db"},
		"that selects by others": {objects: []runtime.Object{pod("db"), pod("web"), budget("b", "", 0, expression)}, evicted: "web", want: "default/db is protected by the PodDisruptionBudget b"},
		"over a pod that is done": {
			objects: []runtime.Object{pod("a", phase(corev1.PodSucceeded)), pod("b", phase(corev1.PodFailed)), pod("c", phase(corev1.PodPending)), budget("b", "", 0)},
			evicted: "a b c",
		},
		"no room on a dead node": {
			objects: []runtime.Object{pod("db"), pod("web"), budget("b", "db", 0)}, options: dead, evicted: "web", want: "default/db is protected by the PodDisruptionBudget b",
		},
		"two over one pod": {
			objects: []runtime.Object{pod("db"), pod("web"), budget("b", "db", 1), budget("a", "", 1)}, atOnce: true,
			want:    "default/db has more than one PodDisruptionBudget, with which Kubernetes evicts no pod: a, b",
			evicted: "web",
		},
		"two over one pod, and another is protected": {
			objects: []runtime.Object{pod("app"), pod("db"), budget("b", "db", 1), budget("a", "db", 1), budget("c", "app", 0)},
			want:    "default/app is protected by the PodDisruptionBudget c; default/db has more than one PodDisruptionBudget, with which Kubernetes evicts no pod: a, b",
		},
		"two over one pod on a dead node": {
			objects: []runtime.Object{pod("db"), budget("b", "db", 1), budget("a", "db", 0)}, options: dead, atOnce: true,
			want: "default/db has more than one PodDisruptionBudget, with which Kubernetes evicts no pod: a, b",
		},
		"of Longhorn": {
			objects: []runtime.Object{pod("instance-manager-0a", in("longhorn-system")), budget("instance-manager-0a", "instance-manager-0a", 0, within("longhorn-system"))},
			want:    "longhorn-system/instance-manager-0a holds the last replica of a Longhorn volume (PodDisruptionBudget instance-manager-0a)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorkload(t, append(tt.objects, node("w-1"))...)
				w.dead = tt.options.Dead
				tt.options.Timeout = time.Minute
				began := time.Now()
				err := w.Drain(t.Context(), "w-1", tt.options)
				if u := new(cluster.Undrained); tt.want == "" && err != nil || tt.want != "" && (!errors.As(err, &u) || !strings.Contains(err.Error(), tt.want)) {
					t.Errorf("got %v", err)
				}
				switch waited := time.Since(began); {
				case tt.want != "" && !tt.atOnce && waited != time.Minute, (tt.want == "" || tt.atOnce) && waited > 2*drainPause:
					t.Errorf("it took %s", waited)
				}
				slices.Sort(w.evicted)
				if got := strings.Join(w.evicted, " "); tt.evicted != "" && got != tt.evicted {
					t.Errorf("evicted %q", got)
				}
			})
		})
	}
}

// The budget gets room when the pod's successor is ready elsewhere.
func TestDrainWaitsForABudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorkload(t, node("w-1"), pod("db"), pod("web"), budget("b", "db", 0))
		time.AfterFunc(5*time.Minute, func() { _ = w.api.Tracker().Update(budgets, budget("b", "db", 1), "default") })
		began := time.Now()
		if err := w.Drain(t.Context(), "w-1", patient); err != nil || time.Since(began) > 5*time.Minute+2*drainPause {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		if !slices.Equal(w.evicted, []string{"db", "web"}) && !slices.Equal(w.evicted, []string{"web", "db"}) {
			t.Errorf("evicted %v", w.evicted)
		}
	})
}

// Every refusal is tried again until the time is over, and what the API said then is told. No budget with room is blamed.
func TestDrainOfPodsThatTheAPIRefuses(t *testing.T) {
	resource := corev1.Resource("pods")
	ending := apierrors.NewForbidden(resource, "x", errors.New("unable to create new content in namespace default because it is being terminated"))
	ending.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, refusal := range map[string]error{
		"a namespace that ends":      ending,
		"a webhook":                  apierrors.NewForbidden(resource, "x", errors.New("admission webhook denied the request")),
		"a webhook that is down":     apierrors.NewInternalError(errors.New("failed calling webhook")),
		"a conflict":                 apierrors.NewConflict(resource, "x", errors.New("modified")),
		"too many requests":          apierrors.NewTooManyRequests("the server has received too many requests", 1),
		"evictions are not served":   apierrors.NewGenericServerResponse(http.StatusNotFound, "post", resource, "x", "", 0, true),
		"a connection that was lost": errors.New("connection reset by peer"),
	} {
		for _, passes := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorkload(t, node("w-1"), pod("x"), pod("y"), budget("b", "x", 1))
					began := time.Now()
					w.refuse = func(p *corev1.Pod) error {
						if p.Name == "y" || passes && time.Since(began) > 30*time.Second {
							return nil
						}
						return refusal
					}
					err := w.Drain(t.Context(), "w-1", cluster.DrainOptions{Timeout: time.Minute})
					want := "default/x could not be evicted: " + refusal.Error()
					if u := new(cluster.Undrained); passes && err != nil || !passes && (!errors.As(err, &u) || !strings.HasSuffix(err.Error(), want) || len(u.Pods) != 1) {
						t.Errorf("passes %t: got %v", passes, err)
					}
					if left := w.left("w-1"); passes && len(left) > 0 || !passes && !slices.Equal(left, []string{"x"}) {
						t.Errorf("passes %t: %v are left", passes, left)
					}
				})
			})
		}
	}
}

// Without the budgets, what the API said is told.
func TestDrainWhereBudgetsCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorkload(t, node("w-1"), pod("db"), budget("b", "db", 0))
		w.api.PrependReactor("list", "poddisruptionbudgets", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("not allowed")
		})
		err := w.Drain(t.Context(), "w-1", cluster.DrainOptions{Timeout: time.Minute})
		if u := new(cluster.Undrained); !errors.As(err, &u) || !strings.Contains(err.Error(), "default/db could not be evicted: Cannot evict pod as it would violate") {
			t.Errorf("got %v", err)
		}
	})
}

// An answer that the end of the time cut short does not hide what was said before.
func TestDrainTellsTheLastWholeAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorkload(t, node("w-1"), pod("db"), budget("b", "db", 0))
		w.refuse = func(*corev1.Pod) error {
			if w.tried == 1 {
				return nil
			}
			time.Sleep(time.Minute)
			return context.DeadlineExceeded
		}
		err := w.Drain(t.Context(), "w-1", cluster.DrainOptions{Timeout: time.Minute})
		if u := new(cluster.Undrained); !errors.As(err, &u) || !strings.Contains(err.Error(), "default/db is protected by the PodDisruptionBudget b") {
			t.Errorf("got %v", err)
		}
	})
}

// A pod that ends is not said to be refused when it could not be told to hurry.
func TestDrainOfAPodThatCannotBeHurried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorkload(t, node("w-1"), pod("x", terminating(time.Hour)))
		w.refuse = func(*corev1.Pod) error { return errors.New("not allowed") }
		err := w.Drain(t.Context(), "w-1", cluster.DrainOptions{Timeout: time.Minute, GracePeriod: new(time.Second)})
		if u := new(cluster.Undrained); !errors.As(err, &u) || !strings.HasSuffix(err.Error(), "default/x does not end") || w.tried == 0 {
			t.Errorf("got %v", err)
		}
	})
}
