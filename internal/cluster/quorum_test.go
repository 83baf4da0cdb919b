package cluster

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// upThree makes a cluster of three servers on the hypervisors a, b and c, in this order.
func upThree(t *testing.T, w *world) (*Engine, State) {
	t.Helper()
	e := w.engine()
	spec := three()
	spec.Assignment = Assignment{"cp-1": "a", "cp-2": "b", "cp-3": "c"}
	s, err := e.ApplyCluster(background, spec, nil, quick)
	if err != nil {
		t.Fatal(err)
	}
	return e, s
}

// halfMade sets a node back to where it has joined and nobody has recorded it yet.
func (w *world) halfMade(name string, nodes Nodes) {
	m := w.machine(name)
	m.Record.Phase = record.Creating
	w.machines[m.UUID] = m
	if n, ok := nodes[name]; ok {
		n.State = NodeCreating
		nodes[name] = n
	}
}

// lose removes a server with all traces of it.
func (w *world) lose(name string, nodes Nodes) {
	w.vanish(name)
	delete(nodes, name)
}

// A server whose apply was killed after it had joined is a member like any other: of two, neither may stop before its
// member is out.
func TestHalfMadeServerLeavesBeforeItStops(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	e, s := upThree(t, w)
	w.lose("c-cp-3", s.Nodes)
	w.halfMade("c-cp-2", s.Nodes)
	s, err := e.ApplyCluster(background, three(), &s, quick)
	if err != nil || len(s.Nodes) != 3 || w.started["c-cp-1"] != 1 || w.started["c-cp-2"] != 2 {
		t.Errorf("%v, starts %v", err, w.started)
	}
}

// So it is with one that is replaced in the middle of an apply.
func TestReplacedServerLeavesBeforeItStops(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	w.guests["c-cp-2"] = &fakeGuest{times: 1, notReady: true}
	if _, s := upThree(t, w); len(s.Nodes) != 3 || w.started["c-cp-2"] != 2 || strings.Join(w.left, " ") != "c-cp-2" {
		t.Errorf("starts %v, left etcd %v", w.started, w.left)
	}
}

// Where the only server that has joined is out of sight, those that have not begin no second cluster.
func TestNoSecondCluster(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	e, s := upThree(t, w)
	w.halfMade("c-cp-2", s.Nodes)
	w.halfMade("c-cp-3", s.Nodes)
	w.unreachable["a"] = machine.ErrUnreachable
	_, err := e.ApplyCluster(background, three(), &s, quick)
	if !errors.Is(err, machine.ErrUnreachable) || !strings.Contains(err.Error(), "not every hypervisor answers") || w.started["c-cp-2"] != 1 {
		t.Errorf("silent: %v, starts %v", err, w.started)
	}
	delete(w.unreachable, "a")
	w.hosts = w.hosts[1:]
	_, err = w.engine().ApplyCluster(background, three(), &s, quick)
	if !errors.Is(err, errUnconfigured) || w.started["c-cp-2"] != 1 {
		t.Errorf("out of the configuration: %v, starts %v", err, w.started)
	}
}

// A server out of sight is not said to be deleted.
func TestSilentServerIsNotLost(t *testing.T) {
	w := newWorld(t, "a", "b")
	e, s, _ := up(t, w, 2)
	w.unreachable[s.Nodes["c-cp-1"].Hypervisor] = machine.ErrUnreachable
	if _, err := e.ApplyCluster(background, testSpec, &s, quick); !errors.Is(err, machine.ErrUnreachable) {
		t.Errorf("got %v", err)
	}
}

// Three servers become one also where one of those that go does not run.
func TestShrinkWithADeadServer(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	e, s := upThree(t, w)
	if err := w.Stop(background, w.machine("c-cp-3"), 0); err != nil {
		t.Fatal(err)
	}
	n := w.nodes["c-cp-3"]
	n.Ready, n.Voter = false, false
	w.nodes["c-cp-3"] = n
	one := three()
	one.Servers = 1
	if _, err := e.ApplyCluster(background, one, &s, quick); err != nil || strings.Join(w.left, " ") != "c-cp-3 c-cp-2" {
		t.Errorf("%v, left etcd %v", err, w.left)
	}
}

// A server that runs and does not answer hides neither the API of the others nor their kubeconfig, and nobody joins at it.
func TestOneServerDoesNotAnswer(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	same, s := upThree(t, w)
	w.dead = map[string]bool{"c-cp-1": true}
	n := w.nodes["c-cp-1"]
	n.Ready = false
	w.nodes["c-cp-1"] = n
	for name, e := range map[string]*Engine{"another process": w.engine(), "the same": same} {
		got, err := e.ReadCluster(background, s.Spec, s.Nodes)
		if err != nil || got.Nodes["c-cp-2"].State != NodeReady || got.Nodes["c-cp-1"].State != NodeNotReady {
			t.Errorf("%s: %v, %v", name, got.Nodes, err)
		}
		if k, err := e.Kubeconfig(background, s.Spec.ID); err != nil || k.Host == "192.0.2.49" {
			t.Errorf("%s: the kubeconfig leads to %s, %v", name, k.Host, err)
		}
	}
	e := w.engine()
	if p, err := e.ApplyPool(background, testPool(1), nil, quick); err != nil || len(p.Nodes) != 1 {
		t.Fatalf("pool: %v, %v", p.Nodes, err)
	}
	for name, m := range w.machines {
		if m.Name == "c-w-1" && strings.Contains(string(w.seeds[name]), "192.0.2.49") {
			t.Error("the agent joins at the server that does not answer")
		}
	}
}

// A destroy with a hypervisor down says which servers remain, and does not take them for agents.
func TestDestroyWithASilentServer(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	e, s := upThree(t, w)
	w.unreachable["c"] = machine.ErrUnreachable
	left, err := e.DeleteCluster(background, s.Spec, s.Nodes, quick)
	if err == nil || !strings.Contains(err.Error(), "the nodes c-cp-3, so they stay in the state") || len(left) != 1 || w.names() != "c-cp-3" {
		t.Errorf("%v, left %v, VMs %s", err, left, w.names())
	}
}

// A server that has to be started before its names are changed is one that runs by then.
func TestStoppedServerIsConfigured(t *testing.T) {
	w := newWorld(t, "a")
	e, s, _ := up(t, w, 0)
	if err := w.Stop(background, w.machine("c-cp-1"), 0); err != nil {
		t.Fatal(err)
	}
	spec := testSpec
	spec.Settings.Endpoint = "lb.example"
	if _, err := e.ApplyCluster(background, spec, &s, quick); err != nil {
		t.Error(err)
	}
}

// Servers are asked for their addresses side by side.
func TestMovedServers(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	e, s := upThree(t, w)
	moved := maps.Clone(s.Nodes)
	for name, n := range moved {
		n.IP = "192.0.2.40"
		moved[name] = n
	}
	w.apiDown = errors.New("connection refused")
	got, err := e.ReadCluster(background, s.Spec, moved)
	if err != nil {
		t.Fatal(err)
	}
	for name, n := range got.Nodes {
		if n.IP != s.Nodes[name].IP {
			t.Errorf("%s is said to be at %s", name, n.IP)
		}
	}
}

// Two half-made VMs of one name both go.
func TestTwoHalfMadeNamesakes(t *testing.T) {
	w := newWorld(t, "a", "b")
	e, _, p := up(t, w, 1)
	w.halfMade("c-w-1", p.Nodes)
	twin := w.machine("c-w-1")
	twin.UUID = NewID()
	twin.Hypervisor = map[string]string{"a": "b", "b": "a"}[twin.Hypervisor]
	w.machines[twin.UUID] = twin
	if _, err := e.ApplyPool(background, p.Spec, &p, quick); err != nil || len(w.machines) != 2 || w.machines[twin.UUID].Name != "" ||
		w.machines[p.Nodes["c-w-1"].UUID].Name != "" {
		t.Errorf("%v, VMs %v", err, w.machines)
	}
}

// An apply that is killed after any of its steps is brought to its end by the next one, and the data of a cluster that lived
// before lives on.
func TestKilledAfterEachStep(t *testing.T) {
	one := three()
	one.Servers = 1
	for name, tc := range map[string]struct {
		from, to Spec
		// before happens between the two.
		before func(*world)
	}{
		"growth":    {one, three(), func(*world) {}},
		"shrinkage": {three(), one, func(*world) {}},
		"heal": {three(), three(), func(w *world) {
			w.vanish("c-cp-2")
			w.nodes["c-cp-2"] = Node{Name: "c-cp-2", Etcd: true, Voter: true}
		}},
		"heal the first": {three(), three(), func(w *world) {
			w.vanish("c-cp-1")
			w.nodes["c-cp-1"] = Node{Name: "c-cp-1", Etcd: true, Voter: true}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			killed := true
			for steps := 0; killed; steps++ {
				w := newWorld(t, "a", "b", "c")
				s, err := w.engine().ApplyCluster(background, tc.from, nil, quick)
				if err != nil {
					t.Fatal(err)
				}
				tc.before(w)
				old := maps.Clone(w.machines)
				w.steps = steps
				s, err = w.engine().ApplyCluster(background, tc.to, &s, quick)
				killed = err != nil
				w.steps = -1
				if s, err = w.engine().ApplyCluster(background, tc.to, &s, quick); err != nil {
					t.Fatalf("after %d steps: %v", steps, err)
				}
				stayed := 0
				for _, n := range s.Nodes {
					if _, ok := old[n.UUID]; ok {
						stayed++
					}
					if n.State != NodeReady {
						t.Errorf("after %d steps: %s is %s", steps, n.Name, n.State)
					}
				}
				if len(s.Nodes) != tc.to.Servers || len(w.machines) != tc.to.Servers || stayed != min(len(old), tc.to.Servers) {
					t.Errorf("after %d steps: %d of the old servers stayed, VMs %s", steps, stayed, w.names())
				}
			}
		})
	}
}
