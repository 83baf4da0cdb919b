package hypervisor

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/semaphore"
	"libvirt.org/go/libvirt"
)

// busyPool is how libvirt refuses to refresh a pool in which somebody builds.
var busyPool = libvirt.Error{Code: libvirt.ERR_INTERNAL_ERROR, Message: "internal error: pool 'vms' has asynchronous jobs running."}

// call runs fn as host.do does, with a place among the calls.
func call(t *testing.T, h *host, fn func() error) error {
	t.Helper()
	must(t, acquire(t.Context(), h.calls, 1))
	defer h.calls.Release(1)
	return fn()
}

// free counts the free places of a semaphore.
func free(s *semaphore.Weighted) (n int64) {
	for s.TryAcquire(1) {
		n++
	}
	s.Release(n)
	return n
}

func TestWhileBusy(t *testing.T) {
	t.Run("third try", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHost("hv-a", Config{}, 1)
			answers := []error{busyPool, wrap(busyPool, "refresh"), nil}
			tries := 0
			err := call(t, h, func() error {
				return h.whileBusy(t.Context(), func() error { tries++; return answers[tries-1] })
			})
			if err != nil || tries != 3 {
				t.Errorf("error %v after %d tries", err, tries)
			}
		})
	})
	t.Run("another error", func(t *testing.T) {
		h := newHost("hv-a", Config{}, 1)
		err := h.whileBusy(t.Context(), func() error { return libvirt.Error{Code: libvirt.ERR_NO_STORAGE_VOL} })
		wantError(t, err, libvirt.ERR_NO_STORAGE_VOL)
	})
	t.Run("until the end", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := newHost("hv-a", Config{}, 1)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			err := call(t, h, func() error { return h.whileBusy(ctx, func() error { return busyPool }) })
			wantError(t, err, context.DeadlineExceeded, "asynchronous jobs running")
		})
	})
}

func TestBusyPausesHoldNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost("hv-a", Config{}, 1)
		var held []int64
		done := make(chan error, 1)
		go func() {
			done <- call(t, h, func() error {
				return h.whileBusy(t.Context(), func() error {
					if held = append(held, maxCalls-free(h.calls)); len(held) == 1 {
						return busyPool
					}
					return nil
				})
			})
		}()
		synctest.Wait()
		if n := free(h.calls); n != maxCalls {
			t.Errorf("%d places are free while it pauses", n)
		}
		must(t, <-done)
		if !slices.Equal(held, []int64{1, 1}) {
			t.Errorf("it held %d places in its calls", held)
		}
	})
}

func TestGateKeepsRefreshesFromBuilds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost("hv-a", Config{}, 1)
		p := &pool{name: "vms", host: h, gate: h.gate("vms")}
		finish := make(chan struct{})
		var order []string
		enter := func(n int64, name string, work func()) {
			go func() {
				err := call(t, h, func() error {
					return p.pass(t.Context(), n, func() error { work(); order = append(order, name); return nil })
				})
				if err != nil {
					t.Error(err)
				}
			}()
			synctest.Wait()
		}
		enter(1, "copy", func() { <-finish })
		enter(gateSize, "refresh", func() {})
		enter(1, "build", func() {})
		enter(1, "build", func() {})
		if n := free(h.calls); n != maxCalls-1 {
			t.Errorf("while one disk is copied and others wait, %d places are free", n)
		}
		close(finish)
		synctest.Wait()
		if want := []string{"copy", "refresh", "build", "build"}; !slices.Equal(order, want) {
			t.Errorf("order %q, want %q", order, want)
		}
		if n, gate := free(h.calls), free(p.gate); n != maxCalls || gate != gateSize {
			t.Errorf("at the end, %d places and %d of the gate are free", n, gate)
		}
	})
}

func TestGateIsLeftAtTheEnd(t *testing.T) {
	tests := map[string]struct {
		gate, calls int64 // what others hold
	}{
		"gate free":              {},
		"gate closed":            {gate: 1},
		"gate closed, no places": {gate: 1, calls: maxCalls},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost("hv-a", Config{}, 1)
				p := &pool{name: "vms", host: h, gate: h.gate("vms")}
				must(t, p.gate.Acquire(t.Context(), tt.gate))
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				begin := make(chan struct{})
				go func() {
					done <- call(t, h, func() error {
						<-begin
						return p.pass(ctx, gateSize, func() error { t.Error("it ran"); return nil })
					})
				}()
				synctest.Wait()
				if tt.gate == 0 {
					cancel()
				}
				close(begin)
				synctest.Wait()
				must(t, h.calls.Acquire(t.Context(), tt.calls)) // those that it gave back
				if tt.calls > 0 {                               // it passes the gate, and waits for a place when the end comes
					p.gate.Release(tt.gate)
					tt.gate = 0
					synctest.Wait()
				}
				cancel()
				synctest.Wait()
				p.gate.Release(tt.gate)
				h.calls.Release(tt.calls)
				wantError(t, <-done, context.Canceled)
				if n, gate := free(h.calls), free(p.gate); n != maxCalls || gate != gateSize {
					t.Errorf("at the end, %d places and %d of the gate are free", n, gate)
				}
			})
		})
	}
}
