package kube

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// successor is the pod that a stateful set makes when one of its pods is gone: it has the same name.
func successor(p *corev1.Pod, node string) *corev1.Pod {
	base, number, _ := strings.Cut(string(p.UID), "-")
	n, _ := strconv.Atoi(number)
	return pod(p.Name, func(p *corev1.Pod) { p.UID, p.Spec.NodeName = types.UID(base+"-"+strconv.Itoa(n+1)), node })
}

// A pod that tolerates the cordon, or is bound to its node by name, comes back as often as it is evicted. That is no reason
// to go on for ever.
func TestDrainOfAPodThatComesBack(t *testing.T) {
	for _, takes := range []time.Duration{0, 3 * time.Second, 30 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorkload(t, node("w-1"), pod("db"), pod("web"))
			w.takes["db"] = takes
			w.ended = func(p *corev1.Pod) {
				if p.Name == "db" {
					_ = w.api.Tracker().Add(successor(p, "w-1"))
				}
			}
			began := time.Now()
			if err := w.Drain(t.Context(), "w-1", patient); err != nil || time.Since(began) > max(takes, straggle)+takes+drainPause {
				t.Errorf("takes %s: %v after %s", takes, err, time.Since(began))
			}
			if left := w.left("w-1"); !slices.Equal(left, []string{"db"}) {
				t.Errorf("takes %s: %v are left", takes, left)
			}
		})
	}
}

// A successor elsewhere is not evicted, although it has the name of the pod that was seen.
func TestDrainSparesASuccessorElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorkload(t, node("w-1"), pod("db"))
		first := true
		w.ended = func(p *corev1.Pod) { _ = w.api.Tracker().Add(successor(p, "w-2")) }
		w.api.PrependReactor("create", "pods", reactOnce(&first, func() { w.end(pod("db")) }))
		if err := w.Drain(t.Context(), "w-1", patient); err != nil {
			t.Fatal(err)
		}
		if left := w.left("w-2"); !slices.Equal(left, []string{"db"}) || len(w.evicted) > 0 {
			t.Errorf("%v are left there, evicted %v", left, w.evicted)
		}
	})
}

// A pod that the scheduler had put on the node before it saw the cordon is drained too.
func TestDrainOfAPodThatComesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorkload(t, node("w-1"), pod("web"))
		w.takes["web"], w.takes["late"] = 5*time.Second, 5*time.Second
		time.AfterFunc(time.Second, func() { _ = w.api.Tracker().Add(pod("late")) })
		if err := w.Drain(t.Context(), "w-1", patient); err != nil {
			t.Fatal(err)
		}
		if left := w.left("w-1"); len(left) > 0 {
			t.Errorf("%v are left", left)
		}
	})
}
