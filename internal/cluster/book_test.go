package cluster

import (
	"errors"
	"maps"
	"testing"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// The servers that take the place of earlier ones of the same name on the same hypervisor are load for the pools of the run.
func TestReplacedServerIsLoad(t *testing.T) {
	w := newWorld(t, "a", "b")
	applyPlanned(t, w, testSpec, pool("w", 1))
	old := maps.Clone(w.machines)

	first := w.engine()
	if r, err := first.CheckCluster(background, testSpec, nil); err != nil || r.Assignment["cp-1"] != "a" {
		t.Fatalf("cluster: %+v, %v", r, err)
	}
	unknown := pool("w", 1)
	unknown.ClusterID = ""
	planned, err := first.CheckPool(background, unknown, nil)
	if err != nil {
		t.Fatal(err)
	}
	second := w.engine()
	for _, m := range old {
		if err := w.Delete(background, m); err != nil {
			t.Fatal(err)
		}
		second.book.removedVM(m)
	}
	spec := testSpec
	spec.ID = ""
	r, err := second.CheckCluster(background, spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	spec.ID, spec.Assignment = NewID(), r.Assignment
	if _, err := second.ApplyCluster(background, spec, nil, quick); err != nil {
		t.Fatal(err)
	}
	unknown.ClusterID = spec.ID
	again, err := second.CheckPool(background, unknown, nil)
	if err != nil || !maps.Equal(planned.Assignment, again.Assignment) {
		t.Errorf("the pool is planned for %v and then for %v (%v)", planned.Assignment, again.Assignment, err)
	}
}

// A node whose making failed makes room for its successor.
func TestHalfMadeNodeMakesRoom(t *testing.T) {
	w := newWorld(t, "a")
	w.memoryMiB = 2 * testShape.MemoryMiB // for the server and one agent
	e := w.engine()
	if _, err := e.ApplyCluster(background, testSpec, nil, quick); err != nil {
		t.Fatal(err)
	}
	w.startErr["c-w-1"] = errors.New("no KVM")
	p, err := e.ApplyPool(background, testPool(1), nil, quick)
	if err == nil || len(p.Nodes) != 1 {
		t.Fatalf("%v, %v", err, p.Nodes)
	}
	delete(w.startErr, "c-w-1")
	again := w.engine()
	r, err := again.CheckPool(background, testPool(1), &p)
	if err != nil || len(r.Problems) > 0 || r.Assignment["w-1"] != "a" {
		t.Fatalf("%+v, %v", r, err)
	}
	spec := testPool(1)
	spec.Assignment = r.Assignment
	if p, err = again.ApplyPool(background, spec, &p, quick); err != nil || p.Nodes["c-w-1"].State != NodeReady {
		t.Errorf("%v, %v", err, p.Nodes)
	}
}

// What the run removed counts once, also for who looks at a survey from before.
func TestRemovedVMCountsOnce(t *testing.T) {
	w := newWorld(t, "a", "b")
	e, _, p := up(t, w, 2)
	want, err := w.engine().CheckPool(background, pool("x", 3), nil)
	if err != nil {
		t.Fatal(err)
	}
	e.book.made = map[string]groupKey{} // by a run before
	for _, n := range p.Nodes {
		e.book.removedVM(w.machine(n.Name))
	}
	got, err := e.CheckPool(background, pool("x", 3), nil)
	if err != nil || !maps.Equal(got.Assignment, want.Assignment) {
		t.Errorf("planned for %v and then for %v (%v)", want.Assignment, got.Assignment, err)
	}
}

// A manual rule asks nothing of the hypervisors where no new node goes.
func TestManualRuleOfNewNodes(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	e, _, _ := up(t, w, 0)
	spec := testPool(1)
	spec.Placement = record.Placement{Strategy: record.Manual, Hosts: []string{"b"}}
	p, err := e.ApplyPool(background, spec, nil, quick)
	if err != nil {
		t.Fatal(err)
	}
	w.unreachable["b"] = machine.ErrUnreachable
	spec.Nodes, spec.Placement.Hosts = 3, []string{"b", "c", "a"}
	r, err := e.CheckPool(background, spec, &p)
	if err != nil || len(r.Problems) > 0 || !maps.Equal(r.Assignment, Assignment{"w-1": "b", "w-2": "c", "w-3": "a"}) {
		t.Fatalf("%+v, %v", r, err)
	}
	spec.Assignment = r.Assignment
	if p, err = e.ApplyPool(background, spec, &p, quick); err != nil || p.Nodes["c-w-2"].Hypervisor != "c" || p.Nodes["c-w-3"].Hypervisor != "a" {
		t.Errorf("%v, %v", err, p.Nodes)
	}
}

// What a plan wants of a cluster is not what the cluster is.
func TestPlanIsNotTold(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	_, s, _ := up(t, w, 0)
	e := w.engine()
	spec := three()
	spec.Settings.Endpoint = "lb.example"
	if r, err := e.CheckCluster(background, spec, &s); err != nil || len(r.Problems) > 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	if k, err := e.Kubeconfig(background, spec.ID); err != nil || k.Host != "192.0.2.49" {
		t.Errorf("the kubeconfig leads to %s, %v", k.Host, err)
	}
}
