package cluster

import (
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/semaphore"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
)

// Engine makes, reads, changes and deletes clusters and node pools. It is safe for concurrent use; one Engine serves a
// whole provider process.
type Engine struct {
	fleet   Fleet
	dial    Dialer
	options Options
	// lanes bounds how many nodes are worked on at once on each hypervisor.
	lanes map[string]*semaphore.Weighted

	watch watch
	book  book

	mu    sync.Mutex
	doors map[string]*door
	// charting lets one apply at a time work on the add-ons of each cluster.
	charting map[string]*semaphore.Weighted
}

// Options are the settings of the provider that are no property of one cluster.
type Options struct {
	// Parallelism is how many nodes of one hypervisor are worked on at once.
	Parallelism int
	// InstallScriptURL is where guests get the k3s install script.
	InstallScriptURL string
	// Catalogue knows how add-ons are made. It is needed by clusters that have some.
	Catalogue Catalogue
}

// DefaultParallelism is how many nodes of one hypervisor are worked on at once unless the user says otherwise.
const DefaultParallelism = 4

// New returns an Engine over a fleet. It does no I/O.
func New(fleet Fleet, dial Dialer, o Options) *Engine {
	e := &Engine{
		fleet: fleet, dial: dial, options: o, lanes: map[string]*semaphore.Weighted{}, doors: map[string]*door{},
		charting: map[string]*semaphore.Weighted{},
		watch: watch{
			age: surveyAge, reading: map[string]*semaphore.Weighted{}, seen: map[string]machine.Machine{}, names: map[string]string{},
		},
		book: newBook(),
	}
	for _, h := range fleet.Hypervisors() {
		e.watch.reading[h.Name] = semaphore.NewWeighted(1)
		e.lanes[h.Name] = semaphore.NewWeighted(int64(max(o.Parallelism, 1)))
	}
	return e
}

// Waits bounds the waits inside one node's making or removal.
type Waits struct {
	// Agent is for the guest agent and an address, Bootstrap for the bootstrap in the guest, Ready for the Node.
	Agent, Bootstrap, Ready time.Duration
	// Stop is the grace a guest gets to shut down by itself.
	Stop time.Duration
	// Addons is for the installation of add-ons and for their pods.
	Addons time.Duration
}

// The default timeouts of the operations, those of Create and Update for each node that is made after another one, as
// servers are. They hold a node's three waits twice, since a node that fails is replaced once, and that for the add-ons. They do
// not hold the queue of a hypervisor that has to make more nodes than it may at once.
const (
	DefaultCreateTimeout = 75 * time.Minute
	DefaultUpdateTimeout = 75 * time.Minute
	DefaultReadTimeout   = 5 * time.Minute
	DefaultDeleteTimeout = 20 * time.Minute
)

// attempts is how often a node is tried: it is replaced once.
const attempts = 2

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
		Addons:    part(15 * time.Minute),
	}
}

// NewID makes the id of a new cluster or VM.
func NewID() string { return uuid.NewString() }
