package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

const (
	observeTimeout = 2 * time.Minute
	// surveyAge is for how long readers share a survey: the resources that are refreshed at one moment.
	surveyAge = 2 * time.Second
	// surveyKey is the one thing that is surveyed.
	surveyKey = "fleet"
)

// watch is what the engine has seen of the fleet.
type watch struct {
	surveys singleflight.Group
	// age is surveyAge but in tests.
	age time.Duration

	mu sync.Mutex
	// last is the newest survey, taken at time taken; generation counts the changes that this process made.
	last       *machine.Survey
	taken      time.Time
	generation int
	// reading lets one reader at a time read records on each hypervisor, so that the next finds them read.
	reading map[string]*semaphore.Weighted
	// seen are joined VMs whose records were read since the last change, by UUID.
	seen map[string]machine.Machine
	// names are the names of clusters by id.
	names map[string]string
}

// scope says which VMs an observation is about.
type scope struct {
	// belongs reports whether a VM of that name may be one of them; nil means that any may.
	belongs func(name string) bool
	// known are nodes that the state vouches for, by UUID: their records are not read again.
	known map[string]machine.Machine
	// fresh: nothing that was seen before counts, neither a survey nor a record nor the state.
	fresh bool
}

// ofCluster is the scope of all nodes of a cluster, by its name; "" is every VM.
func ofCluster(name string) scope {
	if name == "" {
		return scope{}
	}
	return scope{belongs: func(vm string) bool { return strings.HasPrefix(vm, name+"-") }}
}

// ofGroups is the scope of some groups of a cluster's nodes; see ofCluster.
func ofGroups(name string, pools ...string) scope {
	if name == "" {
		return scope{}
	}
	return scope{belongs: func(vm string) bool {
		return slices.ContainsFunc(pools, func(pool string) bool {
			return ordinalOf(record.Record{ClusterName: name, Pool: pool}, vm) > 0
		})
	}}
}

// anew is the scope of who is about to change something.
func (s scope) anew() scope {
	s.fresh = true
	return s
}

// vouch adds the nodes that a state knows, by the group that the state tells of. It vouches for those that had joined, and
// were as they should be, when they were last seen; the power state is seen anew in any case.
func (s scope) vouch(nodes Nodes, g group) scope {
	s.known = map[string]machine.Machine{}
	for name, n := range nodes {
		ordinal := ordinalOf(g.base, name)
		if ordinal == 0 || !n.State.settled() {
			continue
		}
		r := g.base
		r.Ordinal, r.Phase, r.Volumes, r.HostDevices = ordinal, record.Joined, volumes(name, n.UUID, r.Shape), g.hostDevices[n.Hypervisor]
		r.Image = imageOf(n.Template)
		s.known[n.UUID] = machine.Machine{Hypervisor: n.Hypervisor, Name: name, UUID: n.UUID, MAC: n.MAC, Record: r}
	}
	return s
}

// imageText is how a golden image is shown, and imageOf what was shown.
func imageText(t record.Template) string {
	if t == (record.Template{}) {
		return ""
	}
	return t.Pool + "/" + t.Volume
}

func imageOf(text string) record.Template {
	pool, volume, ok := strings.Cut(text, "/")
	if !ok {
		return record.Template{}
	}
	return record.Template{Pool: pool, Volume: volume}
}

// observe surveys the fleet and reads the records of the VMs in the scope, which costs a call for each VM that nobody
// vouches for. Hypervisors are asked side by side, and callers at the same moment share a survey.
func (e *Engine) observe(ctx context.Context, s scope) (machine.Observation, error) {
	survey, err := e.survey(ctx, s.fresh)
	if err != nil {
		return machine.Observation{}, err
	}
	o := machine.Observation{Survey: machine.Survey{Hosts: map[string]machine.Host{}, Unreachable: map[string]error{}}}
	for name, err := range survey.Unreachable {
		o.Unreachable[name] = err
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for name, host := range survey.Hosts {
		wg.Go(func() {
			machines, unreadable, err := e.look(ctx, name, host, s)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				o.Unreachable[name] = err
				return
			}
			o.Hosts[name] = host
			o.Machines = append(o.Machines, machines...)
			o.Unreadable = append(o.Unreadable, unreadable...)
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return machine.Observation{}, context.Cause(ctx)
	}
	slices.SortFunc(o.Machines, func(a, b machine.Machine) int {
		return cmp.Or(cmp.Compare(a.Hypervisor, b.Hypervisor), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UUID, b.UUID))
	})
	return o, seenTwice(o)
}

// survey returns a survey of the fleet, a new one or, for a reader, one that is hardly older than the question.
func (e *Engine) survey(ctx context.Context, fresh bool) (machine.Survey, error) {
	e.watch.mu.Lock()
	last, generation := e.watch.last, e.watch.generation
	usable := last != nil && !fresh && time.Since(e.watch.taken) < e.watch.age
	e.watch.mu.Unlock()
	if usable {
		return *last, nil
	}
	ch := e.watch.surveys.DoChan(surveyKey, func() (any, error) {
		// The survey is shared: it must not end with the context of the caller that happened to come first.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), observeTimeout)
		defer cancel()
		began := time.Now()
		survey := e.fleet.Survey(ctx)
		e.watch.mu.Lock()
		defer e.watch.mu.Unlock()
		if generation == e.watch.generation {
			e.watch.last, e.watch.taken = &survey, began
		}
		return survey, nil
	})
	select {
	case r := <-ch:
		return r.Val.(machine.Survey), nil
	case <-ctx.Done():
		return machine.Survey{}, context.Cause(ctx)
	}
}

// look reads what a survey does not tell of one hypervisor's VMs.
func (e *Engine) look(ctx context.Context, hypervisor string, host machine.Host, s scope) ([]machine.Machine, []machine.Unreadable, error) {
	if turn := e.watch.reading[hypervisor]; turn != nil && !s.fresh {
		if err := turn.Acquire(ctx, 1); err != nil {
			return nil, nil, context.Cause(ctx)
		}
		defer turn.Release(1)
	}
	generation := e.generation()
	var machines, tell []machine.Machine
	var unknown []string
	for _, d := range host.Domains {
		m, known := s.known[d.UUID]
		// A VM of another size was changed by an apply that told nobody.
		known = known && m.Name == d.Name && d.VCPUs == m.Record.Shape.VCPUs && d.MemoryMiB == m.Record.Shape.MemoryMiB
		ok := known
		if !known {
			m, ok = e.seen(d)
		}
		switch {
		case ok && !s.fresh:
			m.Hypervisor, m.Power = hypervisor, d.Power
			machines, tell = append(machines, m), append(tell, m)
		case s.belongs == nil || s.belongs(d.Name):
			unknown = append(unknown, d.UUID)
		}
	}
	var unreadable []machine.Unreadable
	if len(unknown) > 0 {
		var read []machine.Machine
		var err error
		if read, unreadable, err = e.fleet.Describe(ctx, hypervisor, unknown); err != nil {
			return nil, nil, err
		}
		machines, tell = append(machines, read...), append(tell, read...)
	}
	e.remember(tell, generation)
	return machines, unreadable, nil
}

// generation is how many changes this process has made.
func (e *Engine) generation() int {
	e.watch.mu.Lock()
	defer e.watch.mu.Unlock()
	return e.watch.generation
}

// seen returns a VM whose record was read before.
func (e *Engine) seen(d machine.Domain) (machine.Machine, bool) {
	e.watch.mu.Lock()
	defer e.watch.mu.Unlock()
	m, ok := e.watch.seen[d.UUID]
	return m, ok && m.Name == d.Name
}

// remember keeps what was read since a change, unless another one was made meanwhile.
func (e *Engine) remember(machines []machine.Machine, generation int) {
	e.watch.mu.Lock()
	defer e.watch.mu.Unlock()
	for _, m := range machines {
		e.watch.names[m.Record.ClusterID] = m.Record.ClusterName
		if m.Record.Phase == record.Joined && generation == e.watch.generation {
			e.watch.seen[m.UUID] = m
		}
	}
}

// nameOf is the name of a cluster, "" where no VM of it was seen yet.
func (e *Engine) nameOf(clusterID string) string {
	e.watch.mu.Lock()
	defer e.watch.mu.Unlock()
	return e.watch.names[clusterID]
}

// changed makes the next observation a new one: a look that is under way may have passed by what was changed.
func (e *Engine) changed() {
	e.watch.surveys.Forget(surveyKey)
	e.watch.mu.Lock()
	defer e.watch.mu.Unlock()
	e.watch.generation++
	e.watch.last = nil
	clear(e.watch.seen)
}

// seenTwice refuses a configuration in which one host has two names: each VM would count twice, and half of them as
// too many.
func seenTwice(o machine.Observation) error {
	seen := map[string]machine.Machine{}
	for _, m := range o.Machines {
		if other, ok := seen[m.UUID]; ok {
			return &Failure{
				Err:    fmt.Errorf("the hypervisors %q and %q both have the VM %q (UUID %s)", other.Hypervisor, m.Hypervisor, m.Name, m.UUID),
				Cause:  "both names lead to the same host, or the VM was migrated and its definition left behind.",
				Remedy: "name each host once in the provider's hypervisors, or undefine the copy that does not run.",
			}
		}
		seen[m.UUID] = m
	}
	return nil
}

// errUnconfigured is why nodes on a hypervisor that left the provider's configuration are unknown.
var errUnconfigured = errors.New("it is not in the provider's configuration")

// silence is what nothing can be said of: the nodes on hypervisors that did not answer or that the configuration does not
// name any more, and VMs whose record cannot be read. What is silent is not gone.
type silence struct {
	configured map[string]bool
	// hosts are the configured hypervisors that did not answer, vms the unreadable VMs by UUID.
	hosts, vms map[string]error
}

func (e *Engine) silenceOf(o machine.Observation) silence {
	s := silence{configured: map[string]bool{}, hosts: o.Unreachable, vms: map[string]error{}}
	for _, h := range e.fleet.Hypervisors() {
		s.configured[h.Name] = true
	}
	for _, u := range o.Unreadable {
		s.vms[u.UUID] = u.Err
	}
	return s
}

// of returns the reason why nothing can be said of a node that was not seen, nil where it is gone.
func (s silence) of(n NodeStatus) error {
	if err := s.hosts[n.Hypervisor]; err != nil {
		return fmt.Errorf("hypervisor %q: %w", n.Hypervisor, err)
	}
	if !s.configured[n.Hypervisor] {
		return fmt.Errorf("hypervisor %q: %w", n.Hypervisor, errUnconfigured)
	}
	return s.vms[n.UUID]
}

// covers reports whether nodes that were not seen may stand all the same: some of these, or ones that nobody knows of.
func (s silence) covers(nodes Nodes) bool {
	for _, n := range nodes {
		if s.of(n) != nil {
			return true
		}
	}
	return len(s.hosts) > 0
}
