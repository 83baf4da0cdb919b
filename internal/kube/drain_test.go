package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
)

func mirror(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }

func emptyDir(p *corev1.Pod) {
	p.Spec.Volumes = []corev1.Volume{{Name: "x", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
}

func daemonSet(name string) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
}

var patient = cluster.DrainOptions{Timeout: 10 * time.Minute}

// Mirror pods and those of daemon sets stay; all others go, whoever owns them and whatever data they have on the node.
func TestDrainOfEachKindOfPod(t *testing.T) {
	daemon := ownedBy("apps/v1", "DaemonSet", "ds")
	for name, tt := range map[string]struct {
		pod  *corev1.Pod
		goes bool
	}{
		"mirror":                                {pod("x", mirror), false},
		"of a daemon set":                       {pod("x", daemon), false},
		"of a daemon set, local data":           {pod("x", daemon, emptyDir), false},
		"of a daemon set, ended":                {pod("x", daemon, phase(corev1.PodFailed)), true},
		"of a daemon set, gone":                 {pod("x", ownedBy("apps/v1", "DaemonSet", "gone")), true},
		"of a daemon set of others":             {pod("x", ownedBy("apps.kruise.io/v1", "DaemonSet", "ds")), true},
		"of a replica set":                      {pod("x", ownedBy("apps/v1", "ReplicaSet", "rs")), true},
		"of a stateful set":                     {pod("x", ownedBy("apps/v1", "StatefulSet", "s")), true},
		"of a job":                              {pod("x", ownedBy("batch/v1", "Job", "j")), true},
		"of a controller that is ours to guess": {pod("x", ownedBy("example.test/v1", "Thing", "t")), true},
		"bare":                                  {pod("x"), true},
		"bare, local data":                      {pod("x", emptyDir), true},
		"bare, done":                            {pod("x", phase(corev1.PodSucceeded)), true},
		"bare, failed":                          {pod("x", phase(corev1.PodFailed)), true},
		"pending":                               {pod("x", phase(corev1.PodPending)), true},
		"in kube-system":                        {pod("x", in("kube-system")), true},
		"on another node":                       {pod("x", func(p *corev1.Pod) { p.Spec.NodeName = "w-2" }), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorkload(t, node("w-1"), daemonSet("ds"), tt.pod)
				if err := w.Drain(t.Context(), "w-1", patient); err != nil {
					t.Fatal(err)
				}
				if went := slices.Equal(w.evicted, []string{"x"}); went != tt.goes || len(w.evicted) > 1 {
					t.Errorf("evicted %v", w.evicted)
				}
			})
		})
	}
}

func TestDrainOfAnEmptyNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := newWorkload(t, node("w-1")).Drain(t.Context(), "w-1", patient); err != nil || time.Since(began) > 0 {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}

// It ends when the last pod is gone, and evicts each once.
func TestDrainWaitsForPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorkload(t, node("w-1"))
		for i := range 110 {
			p := pod(fmt.Sprintf("p-%d", i))
			if err := w.api.Tracker().Add(p); err != nil {
				t.Fatal(err)
			}
			w.takes[p.Name] = time.Duration(i) * 100 * time.Millisecond
		}
		began := time.Now()
		if err := w.Drain(t.Context(), "w-1", patient); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(began); waited < 11*time.Second || waited > 11*time.Second+drainPause || w.tried != 110 {
			t.Errorf("waited %s, evicted %d times", waited, w.tried)
		}
	})
}

func TestDrainGrace(t *testing.T) {
	short, none := 7*time.Second, time.Duration(0)
	for name, tt := range map[string]struct {
		options cluster.DrainOptions
		pod     *corev1.Pod
		// want is what the eviction asked for; -1 is the pod's own, nil is no eviction.
		want *int64
	}{
		"its own":                    {cluster.DrainOptions{}, pod("x"), new(int64(-1))},
		"the user's":                 {cluster.DrainOptions{GracePeriod: &short}, pod("x"), new(int64(7))},
		"none":                       {cluster.DrainOptions{GracePeriod: &none}, pod("x"), new(int64(0))},
		"on a dead node":             {cluster.DrainOptions{Dead: true}, pod("x"), new(int64(1))},
		"on a dead node, the user's": {cluster.DrainOptions{GracePeriod: &short, Dead: true}, pod("x"), new(int64(1))},
		"told already":               {cluster.DrainOptions{}, pod("x", terminating(time.Second)), nil},
		"told already, for longer":   {cluster.DrainOptions{GracePeriod: &short}, pod("x", terminating(time.Second)), new(int64(7))},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorkload(t, node("w-1"), tt.pod)
				if tt.pod.DeletionTimestamp != nil {
					time.AfterFunc(3*time.Second, func() { w.end(tt.pod) })
				}
				tt.options.Timeout = time.Minute
				if err := w.Drain(t.Context(), "w-1", tt.options); err != nil {
					t.Fatal(err)
				}
				got, evicted := w.grace["x"]
				if evicted != (tt.want != nil) || evicted && got != *tt.want {
					t.Errorf("evicted %v with a grace of %d", w.evicted, got)
				}
			})
		})
	}
}

// Nobody ends the pods of a dead node: it is done as soon as they were told to.
func TestDrainOfADeadNode(t *testing.T) {
	slow := func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(600)) }
	for name, tt := range map[string]struct {
		pods    []runtime.Object
		evicted string
	}{
		"pods that take long":                      {[]runtime.Object{pod("a", slow), pod("b", slow)}, "a b"},
		"a bare pod with data":                     {[]runtime.Object{pod("a", emptyDir)}, "a"},
		"pods that were told long ago":             {[]runtime.Object{pod("a", terminating(-24*time.Hour)), pod("b")}, "b"},
		"pods that were told to end in a while":    {[]runtime.Object{pod("a", terminating(590*time.Second)), pod("b")}, "b"},
		"nothing but pods that were told long ago": {[]runtime.Object{pod("a", terminating(-24*time.Hour), finalizer)}, ""},
		"a finalizer":                              {[]runtime.Object{pod("a", finalizer)}, "a"},
		"a daemon set":                             {[]runtime.Object{pod("a", ownedBy("apps/v1", "DaemonSet", "ds")), pod("b", mirror)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorkload(t, append(tt.pods, daemonSet("ds"), node("w-1"))...)
				w.dead = true
				began := time.Now()
				if err := w.Drain(t.Context(), "w-1", cluster.DrainOptions{Timeout: 10 * time.Minute, Dead: true}); err != nil {
					t.Fatal(err)
				}
				slices.Sort(w.evicted)
				if got := strings.Join(w.evicted, " "); got != tt.evicted || time.Since(began) > drainPause {
					t.Errorf("evicted %q in %s", got, time.Since(began))
				}
			})
		})
	}
}

// What holds a pod that was told to end: on a living node its kubelet is waited for, and not whoever else has a finalizer.
func TestDrainOfPodsThatEnd(t *testing.T) {
	for name, tt := range map[string]struct {
		pod *corev1.Pod
		// ends: its kubelet ends it after ten seconds.
		ends bool
		want string
	}{
		"told before us":                      {pod("x", terminating(-time.Minute)), true, ""},
		"told before us, does not end":        {pod("x", terminating(-time.Minute)), false, "default/x does not end"},
		"a finalizer":                         {pod("x", terminating(time.Minute), finalizer), true, ""},
		"a finalizer, does not end":           {pod("x", terminating(time.Minute), finalizer), false, "default/x does not end"},
		"done, a finalizer":                   {pod("x", terminating(time.Minute), finalizer, phase(corev1.PodSucceeded)), false, ""},
		"failed, a finalizer":                 {pod("x", terminating(time.Minute), finalizer, phase(corev1.PodFailed)), false, ""},
		"done, its volumes are still mounted": {pod("x", terminating(time.Minute), phase(corev1.PodSucceeded)), false, "default/x does not end"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorkload(t, node("w-1"), tt.pod)
				if tt.ends {
					time.AfterFunc(10*time.Second, func() { w.end(tt.pod) })
				}
				err := w.Drain(t.Context(), "w-1", cluster.DrainOptions{Timeout: time.Minute})
				if u := new(cluster.Undrained); tt.want == "" && err != nil || tt.want != "" && (!errors.As(err, &u) || !strings.Contains(err.Error(), tt.want)) {
					t.Errorf("got %v", err)
				}
				if w.tried > 0 {
					t.Errorf("evicted %v", w.evicted)
				}
			})
		})
	}
}

// The end of the context ends a drain at once, whatever it is about.
func TestDrainEndsWithContext(t *testing.T) {
	errStop := errors.New("the user has had enough")
	for name, change := range map[string]func(*workload){
		"a pod takes long":   func(w *workload) { w.takes["x"] = time.Hour },
		"a pod is protected": func(w *workload) { w.refuse = func(*corev1.Pod) error { return apierrors.NewTooManyRequests("no", 0) } },
	} {
		for _, deadline := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, deadline %t", name, deadline), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorkload(t, node("w-1"), pod("x"))
					change(w)
					ctx, cancel := context.WithCancelCause(t.Context())
					time.AfterFunc(61*time.Second, func() { cancel(errStop) })
					if deadline {
						var stop context.CancelFunc
						ctx, stop = context.WithTimeout(t.Context(), 61*time.Second)
						defer stop()
					}
					began := time.Now()
					err := w.Drain(ctx, "w-1", patient)
					if u := new(cluster.Undrained); errors.As(err, &u) != deadline || errors.Is(err, errStop) == deadline {
						t.Errorf("got %v", err)
					}
					if time.Since(began) != 61*time.Second {
						t.Errorf("after %s", time.Since(began))
					}
				})
			})
		}
	}
}

// An API that does not answer is not taken for an empty node.
func TestDrainReportsWhatFailed(t *testing.T) {
	for resource, verb := range map[string]string{"pods": "list", "daemonsets": "get"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorkload(t, node("w-1"), daemonSet("ds"), pod("x"), pod("y", ownedBy("apps/v1", "DaemonSet", "ds")))
			w.takes["x"] = time.Hour
			calls := 0
			w.api.PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) {
				calls++
				return calls > 1, nil, apierrors.NewInternalError(errors.New("it is down"))
			})
			err := w.Drain(t.Context(), "w-1", patient)
			if u := new(cluster.Undrained); err == nil || errors.As(err, &u) || !strings.Contains(err.Error(), "it is down") || !strings.Contains(err.Error(), `node "w-1"`) {
				t.Errorf("%s: got %v", resource, err)
			}
		})
	}
}
