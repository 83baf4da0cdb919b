package hypervisor

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
	"libvirt.org/go/libvirt"
)

const (
	// maxCalls and maxLooks bound the calls under way on one connection. A daemon takes five of a client
	// (max_client_requests in libvirtd.conf) and stops to listen to it at the fifth, to keep-alive too.
	maxCalls = 3
	// maxLooks is what is kept for looks (see host.look), which plans wait for.
	maxLooks = 1
	// maxCopies bounds the calls that last as long as a disk is copied, so that others always come through.
	maxCopies = maxCalls - 1
)

// host is one hypervisor. It has one connection, made when it is first needed and again after it broke.
type host struct {
	name   string
	config Config
	calls  *semaphore.Weighted
	looks  *semaphore.Weighted
	copies *semaphore.Weighted
	// listing: a list of all domains is under way (see listAtOnce).
	listing atomic.Bool

	mu sync.Mutex
	// link is the connection that new calls take, dialling the attempt to make one.
	link     *link
	dialling *dial
	// answered: there was a connection before.
	answered bool
	// gates holds one gate for each storage pool that was used.
	gates map[string]*semaphore.Weighted
	// virtType is the domain type that the host does best, once it is known.
	virtType string
}

func newHost(name string, c Config, parallelism int) *host {
	return &host{
		name:   name,
		config: c,
		calls:  semaphore.NewWeighted(maxCalls),
		looks:  semaphore.NewWeighted(maxLooks),
		copies: semaphore.NewWeighted(int64(min(max(parallelism, 1), maxCopies))),
		gates:  map[string]*semaphore.Weighted{},
	}
}

// do calls fn with the connection. It calls it a second time, with a new connection, where the first one broke: fn must
// bear that.
func (h *host) do(ctx context.Context, fn func(*libvirt.Connect) error) error {
	return twice(ctx, fn, h.once)
}

// once calls fn with the connection. fn holds one place among the calls, and waits for nothing but a call's answer
// except by aside.
func (h *host) once(ctx context.Context, fn func(*libvirt.Connect) error) error {
	if err := acquire(ctx, h.calls, 1); err != nil {
		return err
	}
	defer h.calls.Release(1)
	return h.call(ctx, fn)
}

// look is do for what only reads and what no work may delay, however long its calls last. fn has a place that is kept
// for looks, or else one among the calls, and does not use aside.
func (h *host) look(ctx context.Context, fn func(*libvirt.Connect) error) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if !h.looks.TryAcquire(1) {
		return h.do(ctx, fn)
	}
	defer h.looks.Release(1)
	return twice(ctx, fn, h.call)
}

// twice calls fn, and again where the connection broke under it.
func twice(ctx context.Context, fn func(*libvirt.Connect) error, call func(context.Context, func(*libvirt.Connect) error) error) error {
	err := call(ctx, fn)
	if errors.Is(err, errBroken) && ctx.Err() == nil {
		return call(ctx, fn)
	}
	return err
}

// call calls fn with the connection, for a caller that has a place.
func (h *host) call(ctx context.Context, fn func(*libvirt.Connect) error) error {
	l, err := h.connect(ctx)
	if err != nil {
		return err
	}
	defer h.leave(l)
	if err := fn(l.conn); err != nil {
		if !l.alive() {
			h.drop(l)
			return broken(err)
		}
		return err
	}
	return nil
}

// sideBySide calls work for each index below n, side by side as far as there are places besides the caller's own.
func (h *host) sideBySide(ctx context.Context, n int, work func(int) error) error {
	places := 1
	for places < n && h.calls.TryAcquire(1) {
		places++
	}
	defer h.calls.Release(int64(places - 1))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(places)
	for i := range n {
		g.Go(func() error {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			return work(i)
		})
	}
	return g.Wait()
}

// aside waits without the place among the calls that its caller holds, so that others come through. It takes a place
// again even where ctx has ended, because its caller may make calls still and gives one back. A place comes free in any
// case: copies never hold all of them.
func (h *host) aside(ctx context.Context, wait func()) {
	h.calls.Release(1)
	wait()
	_ = h.calls.Acquire(context.WithoutCancel(ctx), 1) // cannot fail
}

// acquire takes n places; it takes none once ctx has ended.
func acquire(ctx context.Context, s *semaphore.Weighted, n int64) error {
	if err := s.Acquire(ctx, n); err != nil {
		return context.Cause(ctx)
	}
	if ctx.Err() != nil {
		s.Release(n)
		return context.Cause(ctx)
	}
	return nil
}
