package cluster

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// Whatever is wanted of a pool, and whatever happens meanwhile, the next plan and apply without trouble bring it to what is
// wanted: no more and no less, as it was planned, with no node replaced that could have stayed, and with nothing left to do.
func TestPoolUnderRandomChangesAndFaults(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := newLife(t, rt)
		for range rapid.IntRange(1, 4).Draw(rt, "rounds") {
			spec := l.otherSpec()
			l.fault()
			l.round(spec, false)
			l.w.steps, l.w.apiDown = -1, nil
			clear(l.w.undrained)
			clear(l.w.unreachable)
			clear(l.w.guests)
			if rapid.Bool().Draw(rt, "adopt") {
				l.spec = spec
			}
		}
		for name, n := range l.w.nodes {
			if l.w.machineOf(name).Power == machine.Running {
				n.Ready = true
				l.w.nodes[name] = n
			}
		}
		l.round(l.spec, true)
	})
}

// life is a pool through which changes and faults go.
type life struct {
	*rapid.T
	w      *world
	spec   PoolSpec
	state  PoolState
	manual bool
	trace  []string
}

func newLife(t *testing.T, rt *rapid.T) *life {
	l := &life{T: rt, w: newWorld(t, "a", "b", "c"), manual: rapid.Bool().Draw(rt, "manual")}
	l.w.hosts[1].Schedulable, l.w.hosts[2].Schedulable = false, false // The server stands on a, which never falls silent.
	if _, err := l.w.engine().ApplyCluster(background, testSpec, nil, quick); err != nil {
		rt.Fatal(err)
	}
	l.w.hosts[1].Schedulable, l.w.hosts[2].Schedulable = true, true
	l.spec = l.placed(testPool(rapid.IntRange(1, 3).Draw(rt, "nodes")))
	var err error
	if l.state, err = l.w.engine().ApplyPool(background, l.spec, nil, quick); err != nil {
		rt.Fatal(err)
	}
	return l
}

func (l *life) say(format string, args ...any) {
	l.trace = append(l.trace, fmt.Sprintf(format, args...))
}

func (l *life) fail(format string, args ...any) {
	l.Helper()
	l.Fatalf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(l.trace, "\n"))
}

// placed gives a spec its manual rule, where the pool has one.
func (l *life) placed(s PoolSpec) PoolSpec {
	if l.manual {
		s.Placement = record.Placement{Strategy: record.Manual, Hosts: []string{"b", "c", "b", "c", "a"}[:s.Nodes]}
	}
	return s
}

// otherSpec is the wanted pool with one thing changed.
func (l *life) otherSpec() PoolSpec {
	s := l.spec
	number := func(least, most int) int { return rapid.IntRange(least, most).Draw(l.T, "number") }
	switch rapid.IntRange(0, 7).Draw(l.T, "change") {
	case 0:
		s.Nodes = number(1, 4)
	case 1:
		s.Shape.MemoryMiB = 1024 * number(1, 3)
	case 2:
		s.Shape.Clone = rapid.SampledFrom([]record.Clone{record.Full, record.Overlay}).Draw(l.T, "clone")
	case 3:
		s.Extra.Args = []string{fmt.Sprint("--v=", number(1, 2))}
	case 4:
		s.Labels = map[string]string{"tier": fmt.Sprint(number(1, 3))}
	case 5:
		s.Upgrade = record.Upgrade{MaxSurge: number(0, 3), MaxUnavailable: 1}
	case 6:
		s.RemoveFirst = []string{fmt.Sprint("w-", number(1, 4))}
	case 7:
		s.Extra.UserData = fmt.Sprint("#cloud-config\n#", number(1, 2))
	}
	l.say("wanted: %+v", s)
	return l.placed(s)
}

// fault lets something go wrong.
func (l *life) fault() {
	w := l.w
	name := fmt.Sprint("c-w-", rapid.IntRange(1, 4).Draw(l.T, "victim"))
	_, stands := w.nodes[name]
	kind := rapid.IntRange(0, 8).Draw(l.T, "fault")
	l.say("fault %d of %s", kind, name)
	switch {
	case kind == 0:
		w.steps = rapid.IntRange(0, 60).Draw(l.T, "steps")
	case kind == 1:
		w.unreachable["c"] = machine.ErrUnreachable
	case kind == 2:
		w.apiDown = fmt.Errorf("connection refused")
	case kind == 3:
		w.guests[name] = &fakeGuest{times: w.started[name] + 1, notReady: true}
	case !stands:
	case kind == 4:
		w.undrained[name] = errUndrained
	case kind == 5:
		delete(w.disks, w.machine(name).UUID)
		w.vanish(name)
	case kind == 6:
		if err := w.Stop(background, w.machine(name), 0); err != nil {
			l.Fatal(err)
		}
		w.fall(name, 0)
	case kind == 7:
		w.fall(name, time.Hour)
	}
}

// round reads, plans and applies as Terraform does. The last one has to succeed.
func (l *life) round(spec PoolSpec, last bool) {
	read, err := l.w.engine().ReadPool(background, l.state.Spec, l.state.Nodes)
	if err != nil {
		l.fail("read: %v", err)
	}
	r, err := l.w.engine().CheckPool(background, spec, &read)
	l.say("nodes %v, planned %v with %v, problems %v", read.Nodes, r.Assignment, r.Changes, r.Problems)
	l.state = read
	switch {
	case err != nil || len(r.Problems) > 0:
		if last {
			l.fail("check: %v", err)
		}
		return
	case idle(spec, read):
		if last {
			l.isRight(spec)
		}
		return
	}
	promised := spec
	promised.Assignment = r.Assignment
	done := len(l.w.log)
	got, err := l.w.engine().ApplyPool(background, promised, &read, quick)
	got.Spec.Assignment = nil
	l.state = got
	l.say("applied: %v, it did %v", err, l.w.log[done:])
	if !last {
		return
	}
	if err != nil || !maps.Equal(assigned(got.Nodes), r.Assignment) {
		l.fail("apply: %v, promised %v, got %v", err, r.Assignment, assigned(got.Nodes))
	}
	for name, n := range read.Nodes {
		host, stays := r.Assignment[strings.TrimPrefix(name, "c-")]
		if stays && host == n.Hypervisor && n.State != NodeMissing && n.State != NodeCreating && r.Changes[name] != Replaced && got.Nodes[name].UUID != n.UUID {
			l.fail("%s was replaced", name)
		}
	}
	l.isRight(spec)
	again, err := l.w.engine().ReadPool(background, got.Spec, got.Nodes)
	if err != nil || drifted(again.Nodes) != "" {
		l.fail("the next refresh: %v, %s", err, drifted(again.Nodes))
	}
	if r, err = l.w.engine().CheckPool(background, spec, &again); err != nil || len(r.Changes)+len(r.Problems) > 0 {
		l.fail("the next plan: %v, %+v", err, r)
	}
}

// idle reports whether Terraform would not call an apply at all.
func idle(spec PoolSpec, state PoolState) bool {
	was := state.Spec
	spec.RemoveFirst, was.RemoveFirst, was.Assignment = nil, nil, nil
	return drifted(state.Nodes) == "" && len(state.Nodes) == was.Nodes && fmt.Sprintf("%+v", spec) == fmt.Sprintf("%+v", was)
}

// isRight checks that what stands is what is wanted.
func (l *life) isRight(spec PoolSpec) {
	w := l.w
	if len(w.machines) != spec.Nodes+1 || len(w.disks) != spec.Nodes+1 || len(w.nodes) != spec.Nodes+1 {
		l.fail("VMs %s, Node objects %v, %d disks", w.names(), sortedKeys(w.nodes), len(w.disks))
	}
	g := w.engine().poolGroup(spec, "c", nil, machine.Observation{})
	for _, m := range w.machines {
		if m.Record.Pool != "w" {
			continue
		}
		n := w.nodes[m.Name]
		if need := g.need(m); need.change != "" || !n.Ready || n.Cordoned || mislabelled(n, g.base) != "" {
			l.fail("%s: %+v, Node %+v", m.Name, need, n)
		}
	}
}
