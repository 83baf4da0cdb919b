package addons

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
)

// versionLeases makes a fake API number the versions of Leases, and refuse updates of an old one.
func versionLeases(api *fake.Clientset) {
	var mu sync.Mutex
	n := 0
	api.PrependReactor("*", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
		change, ok := a.(clienttesting.CreateAction) // An update has the same method.
		if !ok {
			return false, nil, nil
		}
		mu.Lock()
		defer mu.Unlock()
		lease := change.GetObject().(*coordinationv1.Lease)
		if is, err := api.Tracker().Get(a.GetResource(), a.GetNamespace(), lease.Name); a.GetVerb() == "update" && err == nil &&
			is.(*coordinationv1.Lease).ResourceVersion != lease.ResourceVersion {
			return true, nil, apierrors.NewConflict(a.GetResource().GroupResource(), lease.Name, errors.New("old"))
		}
		n++
		lease.ResourceVersion = strconv.Itoa(n)
		return false, nil, nil
	})
}

// newLeased are add-ons whose API takes Leases as the real one does.
func newLeased(t *testing.T) *installed {
	t.Helper()
	k := newInstalled(t, nil)
	versionLeases(k.typed.(*fake.Clientset))
	return k
}

func TestAloneOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newLeased(t)
		var mu sync.Mutex
		working := 0
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() {
				err := k.alone(t.Context(), cluster.NFS, func(ctx context.Context, orphaned bool) error {
					mu.Lock()
					working++
					if working > 1 || orphaned {
						t.Errorf("%d work at a time, orphaned %t", working, orphaned)
					}
					mu.Unlock()
					// Longer than a silent holder is waited for: this one renews its Lease.
					time.Sleep(3 * silence)
					mu.Lock()
					working--
					mu.Unlock()
					return ctx.Err()
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		// Another add-on is another matter.
		began := time.Now()
		if err := k.alone(t.Context(), cluster.Longhorn, func(context.Context, bool) error { return nil }); err != nil || time.Since(began) > 0 {
			t.Errorf("waited %s: %v", time.Since(began), err)
		}
	})
}

// kill leaves a Lease as an apply does that is killed.
func kill(t *testing.T, k *installed, a cluster.Addon) {
	t.Helper()
	if _, _, err := acquire(t.Context(), k.typed.CoordinationV1().Leases(metav1.NamespaceSystem), "cockpit-addon-"+string(a)); err != nil {
		t.Fatal(err)
	}
}

func TestAloneAfterAKilledApply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newLeased(t)
		kill(t, k, cluster.NFS)
		began, was := time.Now(), false
		if err := k.alone(t.Context(), cluster.NFS, func(_ context.Context, orphaned bool) error { was = orphaned; return nil }); err != nil || !was {
			t.Errorf("orphaned %t: %v", was, err)
		}
		if waited := time.Since(began); waited < silence || waited > silence+2*time.Second {
			t.Errorf("waited %s", waited)
		}
		// It was given back.
		if err := k.alone(t.Context(), cluster.NFS, func(_ context.Context, orphaned bool) error { was = orphaned; return nil }); err != nil || was {
			t.Errorf("orphaned %t: %v", was, err)
		}
	})
}

func TestAloneWaitsNoLongerThanItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newLeased(t)
		kill(t, k, cluster.NFS)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err := k.alone(ctx, cluster.NFS, func(context.Context, bool) error { return nil })
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

// Who was out of reach for so long that another apply has taken over ends its own work.
func TestAloneLosesItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newLeased(t)
		leases := k.typed.CoordinationV1().Leases(metav1.NamespaceSystem)
		err := k.alone(t.Context(), cluster.NFS, func(ctx context.Context, _ bool) error {
			lease, err := leases.Get(ctx, "cockpit-addon-nfs", metav1.GetOptions{})
			if err != nil {
				return err
			}
			other := "other"
			lease.Spec.HolderIdentity = &other
			if _, err := leases.Update(ctx, lease, metav1.UpdateOptions{}); err != nil {
				return err
			}
			<-ctx.Done()
			return context.Cause(ctx)
		})
		if !errors.Is(err, errLost) {
			t.Errorf("got %v", err)
		}
	})
}

// An update whose answer was lost is no reason to end.
func TestAloneSurvivesALostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newLeased(t)
		lost := 0
		k.typed.(*fake.Clientset).PrependReactor("update", "leases", func(a clienttesting.Action) (bool, runtime.Object, error) {
			lost++
			if lost > 1 {
				return false, nil, nil
			}
			lease := a.(clienttesting.UpdateAction).GetObject().(*coordinationv1.Lease).DeepCopy()
			lease.ResourceVersion = "lost"
			if err := k.typed.(*fake.Clientset).Tracker().Update(a.GetResource(), lease, a.GetNamespace()); err != nil {
				t.Error(err)
			}
			return true, nil, errors.New("connection reset")
		})
		err := k.alone(t.Context(), cluster.NFS, func(ctx context.Context, _ bool) error {
			time.Sleep(4 * renewEvery)
			return context.Cause(ctx)
		})
		if err != nil || lost < 3 {
			t.Errorf("%d updates: %v", lost, err)
		}
	})
}
