package cluster

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
)

// Engine makes, reads, changes and deletes clusters and node pools. It is safe for concurrent use; one Engine serves a
// whole provider process.
type Engine struct {
	fleet Fleet
	dial  Dialer
	// lanes bounds how many nodes are worked on at once on each hypervisor.
	lanes map[string]*semaphore.Weighted

	observing singleflight.Group
	mu        sync.Mutex
	doors     map[string]*door
}

// DefaultParallelism is how many nodes of one hypervisor are worked on at once unless the user says otherwise.
const DefaultParallelism = 4

// New returns an Engine over a fleet. It does no I/O.
func New(fleet Fleet, dial Dialer, parallelism int) *Engine {
	e := &Engine{fleet: fleet, dial: dial, lanes: map[string]*semaphore.Weighted{}, doors: map[string]*door{}}
	for _, h := range fleet.Hypervisors() {
		e.lanes[h.Name] = semaphore.NewWeighted(int64(parallelism))
	}
	return e
}

// observe looks at the fleet; callers at the same moment share one look. It takes no longer than the caller's context
// allows.
func (e *Engine) observe(ctx context.Context) (machine.Observation, error) {
	ch := e.observing.DoChan("fleet", func() (any, error) {
		// The look is shared: it must not end with the context of the caller that happened to come first.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), observeTimeout)
		defer cancel()
		return e.fleet.Observe(ctx), nil
	})
	select {
	case r := <-ch:
		return r.Val.(machine.Observation), nil
	case <-ctx.Done():
		return machine.Observation{}, context.Cause(ctx)
	}
}

// Waits bounds the waits inside one node's making or removal.
type Waits struct {
	// Agent is for the guest agent and an address, Bootstrap for the bootstrap in the guest, Ready for the Node.
	Agent, Bootstrap, Ready time.Duration
	// Stop is the grace a guest gets to shut down by itself.
	Stop time.Duration
}

// The default timeouts of the operations. Create and Update hold a node's three waits twice, since a node that fails
// is replaced once.
const (
	DefaultCreateTimeout = 60 * time.Minute
	DefaultUpdateTimeout = 60 * time.Minute
	DefaultReadTimeout   = 5 * time.Minute
	DefaultDeleteTimeout = 20 * time.Minute
)

const (
	observeTimeout = 2 * time.Minute
	// attempts is how often a node is tried: it is replaced once.
	attempts = 2
)

// WaitsWithin divides an operation's timeout into the waits inside: a shorter timeout shortens each of them.
func WaitsWithin(timeout time.Duration) Waits {
	part := func(d time.Duration) time.Duration {
		return time.Duration(float64(d) * float64(timeout) / float64(DefaultCreateTimeout))
	}
	return Waits{
		Agent:     part(8 * time.Minute),
		Bootstrap: part(11 * time.Minute),
		Ready:     part(10 * time.Minute),
		Stop:      min(part(30*time.Second), time.Minute),
	}
}

// NewID makes the id of a new cluster or VM.
func NewID() string { return uuid.NewString() }
