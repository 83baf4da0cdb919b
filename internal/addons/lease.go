package addons

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typed "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/utils/ptr"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
)

// While an apply works on a release it holds a Lease and renews it. Helm has a lock of its own, the state pending, which nobody
// takes off a release whose apply was killed. The Lease tells the two apart: its holder is alive as long as the Lease changes.
const (
	renewEvery = 5 * time.Second
	// silence is how long a Lease that does not change has a holder. It is measured here: clocks differ.
	silence = 20 * time.Second
)

// errLost is why work ends on a release whose Lease another apply has taken.
var errLost = errors.New("another apply has taken the work over")

// alone runs something that nobody else may do to the release of an add-on at the same time. orphaned tells that whoever did so
// before has not come to the end.
func (k *installed) alone(ctx context.Context, a cluster.Addon, do func(ctx context.Context, orphaned bool) error) error {
	leases := k.typed.CoordinationV1().Leases(metav1.NamespaceSystem)
	held, orphaned, err := acquire(ctx, leases, "cockpit-addon-"+string(a))
	if err != nil {
		return fmt.Errorf("wait for another apply that works on %s: %w", a, err)
	}
	wctx, stop := context.WithCancelCause(ctx)
	var renewal sync.WaitGroup
	renewal.Go(func() { held.renew(wctx, stop) })
	defer func() {
		stop(nil)
		renewal.Wait()
		held.release(ctx)
	}()
	return do(wctx, orphaned)
}

// holding is a Lease that is held.
type holding struct {
	leases typed.LeaseInterface
	lease  *coordinationv1.Lease
}

// acquire takes a Lease when it is free, or when its holder is silent.
func acquire(ctx context.Context, leases typed.LeaseInterface, name string) (*holding, bool, error) {
	holder, seconds := uuid.NewString(), int32(silence/time.Second)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var version string
	var since time.Time
	for {
		now := metav1.NowMicro()
		lease, err := leases.Get(ctx, name, metav1.GetOptions{})
		orphaned := err == nil
		switch {
		case apierrors.IsNotFound(err):
			lease, err = leases.Create(ctx, &coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, AcquireTime: &now, RenewTime: &now},
			}, metav1.CreateOptions{})
		case err != nil:
		case since.IsZero() || lease.ResourceVersion != version:
			version, since = lease.ResourceVersion, time.Now()
			lease = nil
		case time.Since(since) >= silence:
			lease = lease.DeepCopy()
			lease.Spec.HolderIdentity, lease.Spec.AcquireTime, lease.Spec.RenewTime = &holder, &now, &now
			lease, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
		default:
			lease = nil
		}
		switch {
		case err == nil && lease != nil:
			return &holding{leases, lease}, orphaned, nil
		case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err):
			// Somebody was quicker; where there is no namespace yet, the API is young.
		case err != nil:
			return nil, false, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, false, context.Cause(ctx)
		}
	}
}

// renew keeps the Lease until the context ends. One that is lost ends the work.
func (h *holding) renew(ctx context.Context, stop context.CancelCauseFunc) {
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := metav1.NowMicro()
		next := h.lease.DeepCopy()
		next.Spec.RenewTime = &now
		next, err := h.leases.Update(ctx, next, metav1.UpdateOptions{})
		switch {
		case err == nil:
			h.lease = next
		case apierrors.IsConflict(err) || apierrors.IsNotFound(err):
			// The answer to an update of ours may have been lost.
			is, err := h.leases.Get(ctx, h.lease.Name, metav1.GetOptions{})
			switch {
			case err == nil && ptr.Deref(is.Spec.HolderIdentity, "") == *h.lease.Spec.HolderIdentity:
				h.lease = is
			case err == nil || apierrors.IsNotFound(err):
				stop(errLost)
				return
			}
		}
	}
}

// release gives the Lease back. Where that fails, the next apply waits for as long as a silent holder has.
func (h *holding) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
	defer cancel()
	_ = h.leases.Delete(ctx, h.lease.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &h.lease.UID, ResourceVersion: &h.lease.ResourceVersion},
	})
}
