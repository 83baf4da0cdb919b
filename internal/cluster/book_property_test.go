package cluster

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// Whatever a run makes, changes, replaces and destroys, and in which order: with room for all, what its plan has promised is
// found again when the turn of each resource comes.
func TestPromisesAreFoundAgain(t *testing.T) {
	for seed := range uint64(150) {
		r := &randomRun{T: t, rnd: rand.New(rand.NewPCG(seed, 1))}
		if !r.check() {
			t.Fatalf("seed %d:\n%s", seed, strings.Join(r.trace, "\n"))
		}
	}
}

// randomRun is a run of Terraform with resources by chance.
type randomRun struct {
	*testing.T
	rnd   *rand.Rand
	w     *world
	jobs  []*job
	trace []string
}

// job is what the run does with one resource.
type job struct {
	name string
	// after are the jobs that come first.
	after []string
	// first plans it, and again once more when its turn comes; both are nil for a removal.
	first, again func(*Engine) (Review, error)
	apply        func(*Engine, Assignment) error
	// promised is what the first plan has promised, planned what the second.
	promised, planned Assignment
}

func (r *randomRun) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *randomRun) shape() record.Shape {
	s := testShape
	s.VCPUs, s.MemoryMiB = 1+r.rnd.IntN(4), (1+r.rnd.IntN(4))<<10
	return s
}

func (r *randomRun) cluster(name string) Spec {
	s := testSpec
	s.ID, s.Name, s.Shape, s.Servers = NewID(), name, r.shape(), 1+2*r.rnd.IntN(2)
	s.Placement = record.Placement{Strategy: record.Auto, AntiAffinity: record.Preferred}
	return s
}

func (r *randomRun) pool(c Spec, name string) PoolSpec {
	return PoolSpec{ClusterID: c.ID, Name: name, Nodes: r.rnd.IntN(5), Shape: r.shape()}
}

// check plans the run in one process and carries it out in another. It reports whether all promises were found again.
func (r *randomRun) check() bool {
	r.prepare()
	first, second := r.w.engine(), r.w.engine()
	r.inOrder(func(j *job) bool {
		if j.first != nil {
			review, err := j.first(first)
			r.must(err)
			j.promised = review.Assignment
			r.trace = append(r.trace, fmt.Sprint("promise ", j.name, ": ", j.promised))
		}
		return true
	}, func(*job) {})
	return r.inOrder(func(j *job) bool {
		if j.again == nil {
			return true
		}
		review, err := j.again(second)
		r.must(err)
		j.planned = review.Assignment
		r.trace = append(r.trace, fmt.Sprint("plan ", j.name, ": ", j.planned))
		return j.promised == nil || maps.Equal(j.promised, j.planned)
	}, func(j *job) {
		r.must(j.apply(second, j.planned))
		r.trace = append(r.trace, "applied "+j.name)
	})
}

// inOrder begins and ends all jobs, some of them side by side, in an order by chance that their dependencies allow.
func (r *randomRun) inOrder(begin func(*job) bool, end func(*job)) bool {
	left, begun := slices.Clone(r.jobs), []*job(nil)
	for len(left)+len(begun) > 0 {
		if len(begun) > 0 && r.rnd.IntN(2) == 0 {
			i := r.rnd.IntN(len(begun))
			end(begun[i])
			begun = slices.Delete(begun, i, i+1)
			continue
		}
		var free []int
		for i, j := range left {
			if !slices.ContainsFunc(slices.Concat(left, begun), func(o *job) bool { return slices.Contains(j.after, o.name) }) {
				free = append(free, i)
			}
		}
		if len(free) == 0 {
			continue
		}
		i := free[r.rnd.IntN(len(free))]
		if !begin(left[i]) {
			return false
		}
		begun = append(begun, left[i])
		left = slices.Delete(left, i, i+1)
	}
	return true
}

// prepare makes a fleet with a cluster and two pools, and chooses what the run does with them and makes beside them.
func (r *randomRun) prepare() {
	hosts := []string{"a", "b", "c", "d"}[:2+r.rnd.IntN(3)]
	r.w = newWorld(r.T, hosts...)
	r.w.cpus, r.w.memoryMiB = 1000, 1<<20
	for i := range r.rnd.IntN(4) {
		id := NewID()
		r.w.machines[id] = machine.Machine{
			Name: fmt.Sprint("foreign-", i), UUID: id, Hypervisor: hosts[r.rnd.IntN(len(hosts))], Record: record.Record{Shape: r.shape()},
		}
	}
	e, old := r.w.engine(), r.cluster("old")
	s, err := e.ApplyCluster(background, old, nil, quick)
	r.must(err)
	p, err := e.ApplyPool(background, r.pool(old, "p"), nil, quick)
	r.must(err)
	q, err := e.ApplyPool(background, r.pool(old, "q"), nil, quick)
	r.must(err)
	for _, name := range []string{"new", "other"}[:r.rnd.IntN(3)] {
		c := r.cluster(name)
		r.create(c, "", r.pool(c, "p"), r.pool(c, "q"))
	}
	resized := func(p PoolState) PoolSpec {
		p.Spec.Nodes = r.rnd.IntN(6)
		return p.Spec
	}
	switch r.rnd.IntN(3) {
	case 0:
		r.remove(p)
		r.remove(q)
		r.jobs = append(r.jobs, &job{name: "remove old", after: []string{"remove p", "remove q"}, apply: func(e *Engine, _ Assignment) error {
			err := firstError(e.DeleteCluster(background, old, s.Nodes, quick))
			maps.DeleteFunc(r.w.nodes, func(name string, _ Node) bool { return strings.HasPrefix(name, "old-") })
			return err
		}})
		c := old
		c.ID = NewID()
		r.create(c, old.ID, r.pool(c, "p"), r.pool(c, "q"))
	case 1:
		c := old
		c.Servers = 3
		plan := func(e *Engine) (Review, error) { return e.CheckCluster(background, c, &s) }
		r.jobs = append(r.jobs, &job{name: "old", first: plan, again: plan, apply: func(e *Engine, a Assignment) error {
			c := c
			c.Assignment = a
			return firstError(e.ApplyCluster(background, c, &s, quick))
		}})
		r.change(resized(p), &p, "old")
		r.change(resized(q), &q, "old")
	default:
		r.change(resized(p), &p)
		r.remove(q)
		if r.rnd.IntN(2) == 0 {
			r.change(r.pool(old, "q"), nil, "remove q")
		}
	}
}

// create makes a cluster with its pools, in the place of one with that id if there is any.
func (r *randomRun) create(c Spec, instead string, pools ...PoolSpec) {
	unknown := c
	unknown.ID = ""
	replacement := c
	replacement.ID = instead
	r.jobs = append(r.jobs, &job{
		name: c.Name, after: []string{"remove " + c.Name},
		first: func(e *Engine) (Review, error) { return e.CheckCluster(background, replacement, nil) },
		again: func(e *Engine) (Review, error) { return e.CheckCluster(background, unknown, nil) },
		apply: func(e *Engine, a Assignment) error {
			c := c
			c.Assignment = a
			return firstError(e.ApplyCluster(background, c, nil, quick))
		},
	})
	for _, p := range pools {
		unknown := p
		unknown.ClusterID = ""
		r.change(p, nil, c.Name)
		r.jobs[len(r.jobs)-1].first = func(e *Engine) (Review, error) { return e.CheckPool(background, unknown, nil) }
	}
}

// change makes a pool anew, or of another size.
func (r *randomRun) change(p PoolSpec, before *PoolState, after ...string) {
	plan := func(e *Engine) (Review, error) { return e.CheckPool(background, p, before) }
	r.jobs = append(r.jobs, &job{
		name: p.ClusterID[:8] + "/" + p.Name, after: after, first: plan, again: plan,
		apply: func(e *Engine, a Assignment) error {
			p := p
			p.Assignment = a
			return firstError(e.ApplyPool(background, p, before, quick))
		},
	})
}

func (r *randomRun) remove(p PoolState) {
	r.jobs = append(r.jobs, &job{name: "remove " + p.Spec.Name, apply: func(e *Engine, _ Assignment) error {
		return firstError(e.DeletePool(background, p.Spec, p.Nodes, quick))
	}})
}
