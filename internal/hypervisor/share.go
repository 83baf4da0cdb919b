package hypervisor

import (
	"context"
	"sync"
	"time"
)

// farewell is how long the last caller of a shared work waits for the work to leave nothing behind, after the caller's
// own end has come.
const farewell = 900 * time.Millisecond

// shares lets callers that want the same work at the same time share one run of it. The zero value is ready for use.
type shares struct {
	mu   sync.Mutex
	runs map[string]*run
}

// run is one run of a work. It ends when the work does; the work is told to end once nobody waits for it any more.
type run struct {
	done    chan struct{}
	err     error // set before done is closed
	callers int
	cancel  context.CancelFunc
}

// do runs work, or waits for a run that is under way under the same key. It returns when the work or ctx has ended.
func (s *shares) do(ctx context.Context, key string, work func(context.Context) error) error {
	r := s.join(ctx, key, work)
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
	}
	if s.leave(key, r) {
		timer := time.NewTimer(farewell)
		defer timer.Stop()
		select {
		case <-r.done:
		case <-timer.C:
		}
	}
	return context.Cause(ctx)
}

// join enters a run, which it begins where there is none. What the first caller's ctx holds besides its end, such as the
// log, is the work's too.
func (s *shares) join(ctx context.Context, key string, work func(context.Context) error) *run {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.runs[key]; r != nil {
		r.callers++
		return r
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &run{done: make(chan struct{}), callers: 1, cancel: cancel}
	if s.runs == nil {
		s.runs = map[string]*run{}
	}
	s.runs[key] = r
	go func() {
		defer cancel()
		r.err = work(ctx)
		s.mu.Lock()
		s.forget(key, r)
		s.mu.Unlock()
		close(r.done)
	}()
	return r
}

// leave gives a run up and reports whether nobody else waits for it. That ends it, and later callers begin another.
func (s *shares) leave(key string, r *run) (last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.callers--
	if r.callers > 0 {
		return false
	}
	s.forget(key, r)
	r.cancel()
	return true
}

// forget keeps later callers off a run. Its caller holds the lock.
func (s *shares) forget(key string, r *run) {
	if s.runs[key] == r {
		delete(s.runs, key)
	}
}
