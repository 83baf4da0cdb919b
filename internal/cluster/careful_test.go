package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// replan reads and reviews a pool as Terraform does before an apply, in a process of its own.
func (w *world) replan(t *testing.T, spec PoolSpec, p PoolState) (PoolState, Review) {
	t.Helper()
	p, err := w.engine().ReadPool(background, p.Spec, p.Nodes)
	if err != nil {
		t.Fatal(err)
	}
	r, err := w.engine().CheckPool(background, spec, &p)
	if err != nil {
		t.Fatal(err)
	}
	return p, r
}

// drifted lists the nodes that an apply mends, with their states.
func drifted(nodes Nodes) string {
	var out []string
	for _, name := range sortedKeys(nodes) {
		if s := nodes[name].State; s.Drifted() {
			out = append(out, fmt.Sprintf("%s=%s", name, s))
		}
	}
	return strings.Join(out, " ")
}

func (w *world) logged() string { return strings.Join(w.log, ", ") }

// One that stands in and had to be made twice goes all the same.
func TestStandInThatIsReplaced(t *testing.T) {
	w := newWorld(t, "a", "b")
	e, _, p := up(t, w, 2)
	w.guests["c-w-3"] = &fakeGuest{times: 1, ping: errNoAgent}
	spec := poolWith(poolChanges["resized, one stands in"])
	got, err := e.ApplyPool(background, spec, &p, quick)
	if err != nil || w.names() != "c-cp-1 c-w-1 c-w-2" {
		t.Fatalf("%v, VMs %s", err, w.names())
	}
	w.isAs(t, spec, got)
}

// What was powered off with its hypervisor is started, however long ago and however many there are.
func TestManyPoweredOffForLong(t *testing.T) {
	w := newWorld(t, "a")
	_, _, p := up(t, w, 3)
	for _, name := range []string{"c-w-1", "c-w-2"} {
		if err := w.Stop(background, w.machine(name), 0); err != nil {
			t.Fatal(err)
		}
		w.fall(name, time.Hour)
	}
	p, r := w.replan(t, testPool(3), p)
	got, err := w.engine().ApplyPool(background, testPool(3), &p, quick)
	if err != nil || len(got.Warnings) > 0 || drifted(got.Nodes) != "" || r.Changes["c-w-1"] != Started {
		t.Errorf("%v, %v, %s, planned %v", err, got.Warnings, drifted(got.Nodes), r.Changes)
	}
}

// While more nodes are down than may be, those that run are not taken down too, and those that are down are not replaced.
func TestChangesDuringAnOutage(t *testing.T) {
	for name, down := range map[string][]string{"of all": {"c-w-1", "c-w-2", "c-w-3"}, "of most": {"c-w-1", "c-w-2"}} {
		for what, change := range map[string]func(*PoolSpec){
			"replaced": func(s *PoolSpec) { s.Shape.Clone = record.Full }, "resized": func(s *PoolSpec) { s.Shape.MemoryMiB *= 2 },
		} {
			w := newWorld(t, "a")
			_, _, p := up(t, w, 3)
			for _, n := range down {
				w.fall(n, time.Hour)
			}
			spec := testPool(3)
			spec.Upgrade = record.Upgrade{MaxUnavailable: 1}
			change(&spec)
			w.log = nil
			if _, err := w.engine().ApplyPool(background, spec, &p, quick); err == nil || !strings.Contains(err.Error(), "max_unhealthy") || w.logged() != "" {
				t.Errorf("an outage %s, %s: %v, it did %s", name, what, err, w.logged())
			}
		}
	}
}

// A node on a hypervisor that does not answer is missing already.
func TestRollBesideASilentHypervisor(t *testing.T) {
	w := newWorld(t, "a", "b")
	_, _, p := up(t, w, 2)
	silent := w.machine("c-w-2").Hypervisor
	if w.machine("c-cp-1").Hypervisor == silent {
		silent = w.machine("c-w-1").Hypervisor
	}
	w.unreachable[silent] = machine.ErrUnreachable
	w.log = nil
	spec := poolWith(poolChanges["resized, nobody does"])
	if _, err := w.engine().ApplyPool(background, spec, &p, quick); err == nil || !strings.Contains(err.Error(), "no node may be missing") || w.logged() != "" {
		t.Errorf("%v, it did %s", err, w.logged())
	}
	spec.Upgrade.MaxUnavailable = 2
	if _, err := w.engine().ApplyPool(background, spec, &p, quick); err != nil {
		t.Errorf("with two that may be missing: %v", err)
	}
}

// Of several servers none is touched while nobody can tell what etcd can do without.
func TestServersAreNotTouchedWithoutTheirAPI(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	_, s := upThree(t, w)
	w.apiDown, w.log = errors.New("connection refused"), nil
	spec := three()
	spec.Shape.MemoryMiB *= 2
	if _, err := w.engine().ApplyCluster(background, spec, &s, quick); err == nil || w.logged() != "" {
		t.Errorf("%v, it did %s", err, w.logged())
	}
}

// A hypervisor that falls silent with one that stood in for others costs no node that works.
func TestStandInOutOfSight(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	_, _, p := up(t, w, 2)
	spec := poolWith(poolChanges["resized, one stands in"])
	w.hosts[0].Schedulable = false // where the server is
	w.undrained["c-w-2"] = errUndrained
	got, err := w.engine().ApplyPool(background, spec, &p, quick)
	if err == nil || w.names() != "c-cp-1 c-w-1 c-w-2 c-w-3" {
		t.Fatalf("%v, VMs %s", err, w.names())
	}
	clear(w.undrained)
	host := w.machine("c-w-3").Hypervisor
	w.unreachable[host] = machine.ErrUnreachable
	got, r := w.replan(t, spec, got)
	if len(r.Assignment) != 2 || r.Assignment["w-3"] != "" {
		t.Errorf("promised %v", r.Assignment)
	}
	clear(w.unreachable)
	got, r = w.replan(t, spec, got)
	spec.Assignment = r.Assignment
	if got, err = w.engine().ApplyPool(background, spec, &got, quick); err != nil {
		t.Fatal(err)
	}
	w.isAs(t, spec, got)
}

// A node that hangs is switched off and on before it is given other arguments.
func TestHungNodeGetsOtherArguments(t *testing.T) {
	w := newWorld(t, "a")
	_, _, p := up(t, w, 2)
	w.fall("c-w-2", time.Hour)
	w.guests["c-w-2"] = &fakeGuest{times: 1, ping: errNoAgent, notReady: true}
	spec := poolWith(poolChanges["restarted"])
	p, _ = w.replan(t, spec, p)
	got, err := w.engine().ApplyPool(background, spec, &p, quick)
	if err != nil || w.started["c-w-2"] != 2 {
		t.Fatalf("%v, started %d times", err, w.started["c-w-2"])
	}
	w.isAs(t, spec, got)
}

// A change that failed, or was killed with nothing told to the state, and is taken back is seen by the next plan.
func TestChangeThatIsTakenBack(t *testing.T) {
	bad := func(s *PoolSpec) { s.Extra.Args = []string{"--nonsense"} }
	w := newWorld(t, "a")
	e, s, p := up(t, w, 2)
	w.restartErr["c-w-1"], w.restartErr["c-cp-1"] = errors.New("exit status 1"), errors.New("exit status 1")
	got, err := e.ApplyPool(background, poolWith(bad), &p, quick)
	if _, r := w.replan(t, testPool(2), got); err == nil || r.Changes["c-w-1"] != Restarted {
		t.Errorf("an agent: %v, planned %v", err, r.Changes)
	}
	worse := testSpec
	worse.Extra.Args = []string{"--nonsense"}
	state, err := e.ApplyCluster(background, worse, &s, quick)
	if err == nil {
		t.Fatal("the server took it")
	}
	if state, err = w.engine().ReadCluster(background, state.Spec, state.Nodes); err != nil {
		t.Fatal(err)
	}
	if r, err := w.engine().CheckCluster(background, testSpec, &state); err != nil || r.Changes["c-cp-1"] != Restarted {
		t.Errorf("the server: %v, planned %v", err, r.Changes)
	}
	for _, what := range []string{"restarted", "resized, nobody does", "replaced, nobody does"} {
		hidden := []int{}
		for steps := 0; ; steps++ {
			w := newWorld(t, "a", "b")
			_, _, before := up(t, w, 1)
			spec := testPool(1)
			poolChanges[what](&spec)
			w.steps = steps
			if _, err := w.engine().ApplyPool(background, spec, &before, quick); err == nil {
				break
			}
			w.steps = -1
			p, r := w.replan(t, before.Spec, before)
			for _, m := range w.machines {
				if m.Record.Pool == "w" && w.engine().poolGroup(before.Spec, "c", nil, machine.Observation{}).need(m).rolls() && drifted(p.Nodes) == "" && len(r.Changes) == 0 {
					hidden = append(hidden, steps)
				}
			}
		}
		if len(hidden) > 0 {
			t.Errorf("%s: nothing is seen after %v steps", what, hidden)
		}
	}
}

// What an apply that was killed has written goes with the next one, also if nothing is wanted any more.
func TestRegistriesThatAreTakenBack(t *testing.T) {
	w := newWorld(t, "a")
	_, _, p := up(t, w, 1)
	m := w.machine("c-w-1")
	m.Record.Setup.Changing = true
	r := &run{engine: w.engine(), base: w.engine().poolGroup(p.Spec, "c", nil, machine.Observation{}).base}
	files, err := r.settingsOf(m)
	if err != nil || len(files) != 2 || len(files[1].Content) != 0 {
		t.Errorf("%v, %+v", err, files)
	}
}

// New nodes and those that stand in share the room, and never a name.
func TestNewNodesBesideStandIns(t *testing.T) {
	w := newWorld(t, "a")
	w.memoryMiB = 4 << 10
	_, _, p := up(t, w, 2)
	spec := testPool(3)
	spec.Shape.Clone = record.Full
	if _, r := w.replan(t, spec, p); len(r.Problems) != 1 || r.Problems[0].Field != machine.FieldUpgrade {
		t.Errorf("5 GiB on a hypervisor of 4: %+v", r.Problems)
	}
	w = newWorld(t, "a", "b")
	_, _, p = up(t, w, 5)
	spec = testPool(4)
	spec.RemoveFirst = []string{"w-1"}
	p, err := w.engine().ApplyPool(background, spec, &p, quick)
	if err != nil {
		t.Fatal(err)
	}
	spec.Shape.MemoryMiB *= 2
	p, r := w.replan(t, spec, p)
	spec.Assignment = r.Assignment
	w.vanish("c-w-5")
	if p, err = w.engine().ApplyPool(background, spec, &p, quick); err != nil || len(w.machines) != 5 || len(w.nodes) != 5 || drifted(p.Nodes) != "" {
		t.Errorf("%v, VMs %s, Nodes %v", err, w.names(), sortedKeys(w.nodes))
	}
}

// One that stood in stays only where a manual rule would have put it.
func TestStandInAndManualRule(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	e := w.engine()
	if _, err := e.ApplyCluster(background, testSpec, nil, quick); err != nil {
		t.Fatal(err)
	}
	spec := testPool(2)
	spec.Placement = record.Placement{Strategy: record.Manual, Hosts: []string{"a", "b"}}
	p, err := e.ApplyPool(background, spec, nil, quick)
	if err != nil {
		t.Fatal(err)
	}
	spec.Shape.MemoryMiB *= 2
	w.undrained["c-w-2"] = errUndrained
	if p, err = w.engine().ApplyPool(background, spec, &p, quick); err == nil {
		t.Fatal("it was drained")
	}
	clear(w.undrained)
	spec.Nodes, spec.Placement.Hosts = 3, []string{"a", "b", "c"}
	p, r := w.replan(t, spec, p)
	spec.Assignment = r.Assignment
	if p, err = w.engine().ApplyPool(background, spec, &p, quick); err != nil || p.Nodes["c-w-3"].Hypervisor != "c" {
		t.Errorf("%v, %+v", err, p.Nodes["c-w-3"])
	}
	w.isAs(t, spec, p)
}

// slowKube takes for each drain all the time that it is given.
type slowKube struct{ fakeKube }

func (slowKube) Drain(ctx context.Context, _ string, o DrainOptions) error {
	select {
	case <-time.After(o.Timeout):
	case <-ctx.Done():
	}
	return errUndrained
}

// However many nodes cannot be drained, a destroy comes to its end within its time.
func TestDestroyOfManyThatCannotBeDrained(t *testing.T) {
	w := newWorld(t, "a")
	w.cpus, w.memoryMiB = 999, 1<<20
	_, _, p := up(t, w, 20)
	e := New(w, func(k []byte) (Kube, error) { return slowKube{fakeKube{w, k}}, nil }, Options{Parallelism: 2})
	ctx, cancel := context.WithTimeout(background, 2*time.Second)
	defer cancel()
	p.Spec.Drain.TimeoutSeconds = 1
	left, err := e.DeletePool(ctx, p.Spec, p.Nodes, quick)
	if err != nil || len(left.Nodes) > 0 || len(left.Warnings) != 20 {
		t.Errorf("%v, %d nodes are left, %d warnings", err, len(left.Nodes), len(left.Warnings))
	}
}
