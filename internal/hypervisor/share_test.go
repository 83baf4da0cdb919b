package hypervisor

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestSharedWorkIsDoneOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s shares
		runs := 0
		finish := make(chan struct{})
		failed := errors.New("failed")
		const callers = 5
		results := make(chan error, callers)
		for range callers {
			go func() {
				results <- s.do(t.Context(), "a", func(context.Context) error { runs++; <-finish; return failed })
			}()
		}
		other := s.do(t.Context(), "b", func(context.Context) error { return nil })
		synctest.Wait()
		close(finish)
		for range callers {
			if err := <-results; !errors.Is(err, failed) {
				t.Errorf("error %v", err)
			}
		}
		if runs != 1 || other != nil {
			t.Errorf("%d runs; the other's error is %v", runs, other)
		}
		must(t, s.do(t.Context(), "a", func(context.Context) error { runs++; return nil }))
		if runs != 2 {
			t.Error("a later call got an earlier result")
		}
	})
}

func TestSharedWorkGoesOnWhileSomebodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s shares
		var ended atomic.Bool
		work := func(ctx context.Context) error {
			<-ctx.Done()
			ended.Store(true)
			time.Sleep(farewell / 2) // it tidies up
			return context.Cause(ctx)
		}
		type key struct{}
		first, leaveFirst := context.WithCancel(context.WithValue(t.Context(), key{}, "log"))
		second, leaveSecond := context.WithTimeout(t.Context(), time.Minute)
		defer leaveSecond()
		results := make(chan error, 2)
		var logged atomic.Bool
		go func() {
			results <- s.do(first, "a", func(ctx context.Context) error {
				logged.Store(ctx.Value(key{}) == "log")
				return work(ctx)
			})
		}()
		synctest.Wait()
		go func() { results <- s.do(second, "a", work) }()
		synctest.Wait()
		leaveFirst()
		wantError(t, <-results, context.Canceled)
		if synctest.Wait(); ended.Load() || !logged.Load() {
			t.Fatalf("the work ended with its first caller (%t), or has no log (%t)", ended.Load(), !logged.Load())
		}
		began := time.Now()
		wantError(t, <-results, context.DeadlineExceeded)
		if took := time.Since(began); !ended.Load() || took != time.Minute+farewell/2 {
			t.Errorf("the last caller left after %s, when the work had ended: %t", took, ended.Load())
		}
	})
}

func TestLastCallerLeavesWorkThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s shares
		hang := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		began := time.Now()
		wantError(t, s.do(ctx, "a", func(context.Context) error { <-hang; return nil }), context.Canceled)
		if took := time.Since(began); took != farewell {
			t.Errorf("it left after %s", took)
		}
		runs := 0
		must(t, s.do(t.Context(), "a", func(context.Context) error { runs++; return nil }))
		if runs != 1 {
			t.Error("a later call joined what hangs")
		}
		close(hang)
	})
}
