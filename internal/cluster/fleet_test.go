package cluster

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// three is a cluster of three servers, each on its own hypervisor.
func three() Spec {
	s := testSpec
	s.Servers, s.Placement = 3, record.Placement{Strategy: record.Auto, AntiAffinity: record.Required}
	return s
}

// Servers join one after the other, each with a vote before the next starts.
func TestThreeServers(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	e := w.engine()
	s, err := e.ApplyCluster(background, three(), nil, quick)
	if err != nil {
		t.Fatal(err)
	}
	// They start side by side, in any order.
	started := func(event string) bool { return strings.HasPrefix(event, "start ") }
	want := "joined c-cp-1, turn of c-cp-2, joined c-cp-2, turn of c-cp-3, joined c-cp-3"
	if got := strings.Join(slices.DeleteFunc(slices.Clone(w.log), started), ", "); got != want || len(w.log) != 8 {
		t.Errorf("the order was %v", w.log)
	}
	for name, text := range w.written {
		if !strings.Contains(text, "server: https://192.0.2.49:6443") || strings.Contains(text, "cluster-init") {
			t.Errorf("the configuration of %s is %s", name, text)
		}
	}
	hosts := map[string]bool{}
	for _, n := range s.Nodes {
		hosts[n.Hypervisor] = true
	}
	if len(hosts) != 3 || s.Status != Active {
		t.Errorf("status %s, nodes %v", s.Status, s.Nodes)
	}
	// A lost one is replaced: its member goes first, and the others are left alone.
	w.vanish("c-cp-2")
	w.nodes["c-cp-2"] = Node{Name: "c-cp-2", Etcd: true, Voter: true}
	w.log = nil
	if s, err = e.ApplyCluster(background, three(), &s, quick); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(w.log, ", "); got != "left c-cp-2, start c-cp-2, joined c-cp-2" || s.Nodes["c-cp-2"].State != NodeReady {
		t.Errorf("the order was %s, nodes %v", got, s.Nodes)
	}
	// And with one server less of them etcd shrinks one by one.
	one := three()
	one.Servers = 1
	w.log = nil
	if s, err = e.ApplyCluster(background, one, &s, quick); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(w.log, ", "); got != "drain c-cp-2, left c-cp-2, drain c-cp-3, left c-cp-3" || w.names() != "c-cp-1" {
		t.Errorf("the order was %s, VMs %s", got, w.names())
	}
	w.log = nil
	if _, err = e.ApplyCluster(background, three(), &s, quick); err != nil || w.started["c-cp-1"] != 1 {
		t.Errorf("growth: %v, %v", err, w.started)
	}
}

// A server that is Ready and has no vote in etcd yet is not done.
func TestServerWithoutAVote(t *testing.T) {
	w := newWorld(t, "a")
	w.noVote = true
	if _, err := w.engine().ApplyCluster(background, testSpec, nil, quick); err == nil || !strings.Contains(err.Error(), "no vote yet") {
		t.Errorf("got %v", err)
	}
}

// Two lost servers of three, or a lost one beside one that is down, are not made anew on the ruins.
func TestNoQuorum(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	e := w.engine()
	s, err := e.ApplyCluster(background, three(), nil, quick)
	if err != nil {
		t.Fatal(err)
	}
	n := w.nodes["c-cp-1"]
	n.Ready, n.Voter = false, false
	w.nodes["c-cp-1"] = n
	w.vanish("c-cp-2")
	w.nodes["c-cp-2"] = Node{Name: "c-cp-2", Etcd: true}
	_, err = e.ApplyCluster(background, three(), &s, quick)
	if err == nil || w.names() != "c-cp-1 c-cp-3" || len(w.left) > 0 {
		t.Errorf("with a server down: %v, VMs %s, left etcd %v", err, w.names(), w.left)
	}
	w.vanish("c-cp-3")
	read, err := e.ReadCluster(background, s.Spec, s.Nodes)
	if err != nil {
		t.Fatal(err)
	}
	review, err := e.CheckCluster(background, three(), &read)
	if err != nil || len(review.Problems) != 1 || !errors.Is(review.Problems[0].Err, ErrNoQuorum) {
		t.Errorf("check: %+v, %v", review, err)
	}
	if _, err := e.ApplyCluster(background, three(), &read, quick); !errors.Is(err, ErrNoQuorum) || w.names() != "c-cp-1" {
		t.Errorf("with two lost: %v, VMs %s", err, w.names())
	}
}

// A refresh reads no record of a node that the state vouches for, and shares one survey with the other readers of that
// moment.
func TestRefreshReadsNoRecords(t *testing.T) {
	w := newWorld(t, "a", "b")
	_, s, p := up(t, w, 20)
	e := w.engine() // another process
	e.watch.age = surveyAge
	w.surveyed, w.described = 0, 0
	if _, err := e.ReadCluster(background, s.Spec, s.Nodes); err != nil {
		t.Fatal(err)
	}
	if _, err := e.ReadPool(background, p.Spec, p.Nodes); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Kubeconfig(background, s.Spec.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := e.CheckPool(background, testPool(21), &p); err != nil {
		t.Fatal(err)
	}
	if w.surveyed != 1 || w.described != 0 {
		t.Errorf("%d surveys and %d records, want 1 and 0", w.surveyed, w.described)
	}
}

// Resources that are imported side by side read each record once.
func TestReadersShareRecords(t *testing.T) {
	w := newWorld(t, "a", "b")
	up(t, w, 5)
	e := w.engine()
	e.watch.age = surveyAge
	w.described = 0
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := e.FindPool(background, "c/w"); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if w.described != 6 {
		t.Errorf("%d records of 6 were read", w.described)
	}
}

// applyPlanned is what Terraform does: a plan in one process, then each resource planned again and applied in another. It fails if
// a second plan differs from a known first one.
func applyPlanned(t *testing.T, w *world, spec Spec, pools ...PoolSpec) {
	t.Helper()
	plan := func(e *Engine, spec PoolSpec) Assignment {
		r, err := e.CheckPool(background, spec, nil)
		if err != nil || len(r.Problems) > 0 {
			t.Fatalf("pool %s: %+v, %v", spec.Name, r, err)
		}
		return r.Assignment
	}
	first := w.engine()
	id := spec.ID
	spec.ID = ""
	r, err := first.CheckCluster(background, spec, nil)
	if err != nil || len(r.Problems) > 0 || len(r.Assignment) != spec.Servers {
		t.Fatalf("cluster: %+v, %v", r, err)
	}
	promised := map[string]Assignment{}
	for _, p := range pools {
		p.ClusterID = ""
		promised[p.Name] = plan(first, p)
	}
	second := w.engine()
	again, err := second.CheckCluster(background, spec, nil)
	if err != nil || !maps.Equal(again.Assignment, r.Assignment) {
		t.Fatalf("the cluster is planned for %v and then for %v (%v)", r.Assignment, again.Assignment, err)
	}
	spec.ID, spec.Assignment = id, again.Assignment
	if _, err := second.ApplyCluster(background, spec, nil, quick); err != nil {
		t.Fatal(err)
	}
	// The order of the pools is another one.
	for _, p := range slices.Backward(pools) {
		p.ClusterID = id
		p.Assignment = plan(second, p)
		if known := promised[p.Name]; known != nil && !maps.Equal(known, p.Assignment) {
			t.Errorf("pool %s is planned for %v and then for %v", p.Name, known, p.Assignment)
		}
		got, err := second.ApplyPool(background, p, nil, quick)
		if err != nil {
			t.Fatal(err)
		}
		for short, host := range p.Assignment {
			if n := got.Nodes["c-"+short]; n.Hypervisor != host {
				t.Errorf("%s stands on %s, not %s", short, n.Hypervisor, host)
			}
		}
	}
}

func pool(name string, nodes int) PoolSpec {
	p := testPool(nodes)
	p.Name = name
	return p
}

// What a plan promises is found again at apply, though other resources of the run have changed the fleet by then.
func TestPlanIsFoundAgain(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	applyPlanned(t, w, three(), pool("w", 2), pool("x", 4), pool("y", 1))
}

// Also where the run takes the place of an earlier cluster of the same name.
func TestReplacementIsFoundAgain(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	w.cpus = 2 // 8 vCPUs on each: the old and the new do not fit at once
	applyPlanned(t, w, three(), pool("w", 6))
	old := map[string]machine.Machine{}
	maps.Copy(old, w.machines)

	first := w.engine()
	spec := three()
	r, err := first.CheckCluster(background, spec, nil) // with the id of what it replaces
	if err != nil || len(r.Problems) > 0 || len(r.Assignment) != 3 {
		t.Fatalf("cluster: %+v, %v", r, err)
	}
	unknown := pool("w", 6)
	unknown.ClusterID = ""
	p, err := first.CheckPool(background, unknown, nil)
	if err != nil || len(p.Problems) > 0 || len(p.Assignment) != 6 {
		t.Fatalf("pool: %+v, %v", p, err)
	}
	second := w.engine()
	for _, m := range old {
		if err := w.Delete(background, m); err != nil {
			t.Fatal(err)
		}
		second.book.removedVM(m)
	}
	spec.ID = ""
	again, err := second.CheckCluster(background, spec, nil)
	if err != nil || !maps.Equal(r.Assignment, again.Assignment) {
		t.Errorf("the cluster is planned for %v and then for %+v (%v)", r.Assignment, again, err)
	}
	spec.ID, spec.Assignment = "6b1f0ab4-8d0c-4f4f-9c0c-000000000002", again.Assignment
	if _, err := second.ApplyCluster(background, spec, nil, quick); err != nil {
		t.Fatal(err)
	}
	unknown.ClusterID = spec.ID
	if again, err := second.CheckPool(background, unknown, nil); err != nil || !maps.Equal(p.Assignment, again.Assignment) {
		t.Errorf("the pool is planned for %v and then for %+v (%v)", p.Assignment, again, err)
	}
}

// The loss of a node, which the run mends, is not seen again as a VM that the run removed.
func TestLostNodeIsNoLoad(t *testing.T) {
	w := newWorld(t, "a", "b")
	_, s, p := up(t, w, 4)
	w.vanish("c-w-1")
	read, err := w.engine().ReadPool(background, p.Spec, p.Nodes)
	if err != nil {
		t.Fatal(err)
	}
	other := pool("x", 1)
	first, err := w.engine().CheckPool(background, other, nil)
	if err != nil {
		t.Fatal(err)
	}
	second := w.engine()
	if _, err := second.ApplyPool(background, p.Spec, &read, quick); err != nil {
		t.Fatal(err)
	}
	again, err := second.CheckPool(background, other, nil)
	if err != nil || !maps.Equal(first.Assignment, again.Assignment) {
		t.Errorf("planned for %v and then for %v (%v), cluster %v", first.Assignment, again.Assignment, err, s.Nodes)
	}
}

// A cluster and a pool that fit alone and not together are refused before either exists.
func TestResourcesOfOneRunSeeEachOther(t *testing.T) {
	w := newWorld(t, "a")
	w.memoryMiB = 3 << 10
	e := w.engine()
	if r, err := e.CheckCluster(background, testSpec, nil); err != nil || len(r.Problems) > 0 {
		t.Fatalf("cluster: %+v, %v", r, err)
	}
	unknown := testPool(3)
	unknown.ClusterID = ""
	r, err := e.CheckPool(background, unknown, nil)
	if err != nil || len(r.Problems) != 1 || r.Problems[0].Field != machine.FieldMemory || !strings.Contains(r.Problems[0].Err.Error(), "memory_overcommit") {
		t.Fatalf("pool: %+v, %v", r, err)
	}
	unknown.Nodes = 2
	if r, err = w.engine().CheckPool(background, unknown, nil); err != nil || len(r.Problems) > 0 {
		t.Errorf("alone: %+v, %v", r, err)
	}
}

// The review of placement: each rule has its own error on its own field, and what is silent ends no plan.
func TestReviewOfPlacement(t *testing.T) {
	manual := func(hosts ...string) record.Placement {
		return record.Placement{Strategy: record.Manual, Hosts: hosts}
	}
	for name, tc := range map[string]struct {
		change func(*world, *Spec)
		field  machine.Field
		want   string
	}{
		"too few hypervisors": {func(w *world, _ *Spec) { w.hosts = w.hosts[:2] }, machine.FieldPlacement, `anti_affinity = "preferred"`},
		"one is not schedulable": {
			func(w *world, _ *Spec) { w.hosts[2].Schedulable = false }, machine.FieldPlacement, "3 hypervisors of their own, and 2 can take one: a, b"},
		"an unknown hypervisor": {
			func(_ *world, s *Spec) { s.Placement = manual("a", "b", "host-x") }, machine.FieldHosts, `no hypervisor "host-x"; it has: a, b, c`},
		"a hypervisor that takes none": {
			func(w *world, s *Spec) { w.hosts[1].Schedulable, s.Placement = false, manual("a", "b", "c") }, machine.FieldHosts, "schedulable = false"},
		"too little memory": {func(w *world, _ *Spec) { w.memoryMiB = 512 }, machine.FieldMemory, "1 GiB wanted, 0.5 GiB of 0.5 GiB left"},
		"too few CPUs":      {func(w *world, s *Spec) { s.Shape.VCPUs = 65 }, machine.FieldVCPUs, "65 wanted, 64 of 64 left"},
		"too little disk":   {func(w *world, _ *Spec) { w.freeMiB = 5 << 10 }, machine.FieldDisk, "disk_overcommit"},
		"a silent one": {
			func(w *world, _ *Spec) { w.unreachable["c"] = machine.ErrUnreachable }, machine.FieldHypervisor, machine.ErrUnreachable.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			w, spec := newWorld(t, "a", "b", "c"), three()
			tc.change(w, &spec)
			r, err := w.engine().CheckCluster(background, spec, nil)
			if err != nil || len(r.Problems) != 1 || r.Problems[0].Field != tc.field || !strings.Contains(r.Problems[0].Err.Error(), tc.want) || r.Assignment != nil {
				t.Fatalf("%+v, %v", r, err)
			}
			_, err = w.engine().ApplyCluster(background, spec, nil, quick)
			if err == nil || !strings.Contains(err.Error(), tc.want) && tc.field != machine.FieldHypervisor || len(w.machines) > 0 {
				t.Errorf("apply: %v, VMs %v", err, w.names())
			}
		})
	}
}

func TestManualPlacement(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	spec := three()
	spec.Placement = record.Placement{Strategy: record.Manual, Hosts: []string{"c", "a", "c"}}
	r, err := w.engine().CheckCluster(background, spec, nil)
	if diff := cmp.Diff(Assignment{"cp-1": "c", "cp-2": "a", "cp-3": "c"}, r.Assignment); err != nil || diff != "" {
		t.Fatalf("%v, %s", err, diff)
	}
	e := w.engine()
	s, err := e.ApplyCluster(background, spec, nil, quick)
	if err != nil {
		t.Fatal(err)
	}
	// Another rule moves nothing, but it is written down.
	spec.Placement = record.Placement{Strategy: record.Auto, AntiAffinity: record.Preferred}
	if r, err = e.CheckCluster(background, spec, &s); err != nil || fmt.Sprint(r.Assignment) != "map[cp-1:c cp-2:a cp-3:c]" {
		t.Errorf("%v, %v", r.Assignment, err)
	}
	if s, err = e.ApplyCluster(background, spec, &s, quick); err != nil || w.started["c-cp-3"] != 1 {
		t.Errorf("%v, %v", err, w.started)
	}
	if found, err := e.FindCluster(background, "c"); err != nil || found.Placement.AntiAffinity != record.Preferred {
		t.Errorf("import: %+v, %v", found, err)
	}
	if got := Footprint(r.Assignment, spec.Shape)["c"]; got != (Resources{VCPUs: 4, MemoryMiB: 2048, DiskGiB: 20}) {
		t.Errorf("footprint of c: %+v", got)
	}
}

// Servers share a hypervisor where they may, as few as possible.
func TestPreferred(t *testing.T) {
	w := newWorld(t, "a", "b")
	spec := three()
	spec.Placement.AntiAffinity = record.Preferred
	r, err := w.engine().CheckCluster(background, spec, nil)
	if diff := cmp.Diff(Assignment{"cp-1": "a", "cp-2": "b", "cp-3": "a"}, r.Assignment); err != nil || diff != "" {
		t.Errorf("%v, %s", err, diff)
	}
}

// The endpoint stands in the kubeconfig and in the certificate from the beginning, and a changed one reaches servers that
// run, one after the other.
func TestEndpoint(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	e := w.engine()
	spec := three()
	spec.Settings.Endpoint, spec.Settings.TLSSANs = "lb.example", []string{"other.example"}
	s, err := e.ApplyCluster(background, spec, nil, quick)
	if err != nil {
		t.Fatal(err)
	}
	if s.Endpoint != "https://lb.example:6443" {
		t.Errorf("the API is at %s", s.Endpoint)
	}
	if k, err := e.Kubeconfig(background, spec.ID); err != nil || k.Host != "lb.example" {
		t.Errorf("the kubeconfig leads to %s, %v", k.Host, err)
	}
	spec.Settings.Endpoint = "vip.example:7443"
	if s, err = e.ApplyCluster(background, spec, &s, quick); err != nil || s.Endpoint != "https://vip.example:7443" {
		t.Fatalf("%s, %v", s.Endpoint, err)
	}
	for name, text := range w.written {
		if want := "tls-san:\n- vip.example\n- other.example\nsystem-default-registry: \"\"\n"; text != want {
			t.Errorf("%s was given %q, want %q", name, text, want)
		}
	}
	if len(w.written) != 3 {
		t.Errorf("%d servers were configured", len(w.written))
	}
}

// A server whose address has changed, so that k3s does not come up on it, tells its new one itself.
func TestMovedServer(t *testing.T) {
	w := newWorld(t, "a")
	e, s, _ := up(t, w, 0)
	n := s.Nodes["c-cp-1"]
	n.IP = "192.0.2.40"
	s.Nodes["c-cp-1"] = n
	w.apiDown = errors.New("connection refused")
	delete(w.nodes, "c-cp-1")
	got, err := e.ReadCluster(background, s.Spec, s.Nodes)
	if n := got.Nodes["c-cp-1"]; err != nil || n.IP != "192.0.2.49" || n.State == NodeReady {
		t.Errorf("%+v, %v", n, err)
	}
}

// A pool that is planned together with its cluster is checked against the cluster's network.
func TestPoolOfPlannedClusterKnowsItsNetwork(t *testing.T) {
	w := newWorld(t, "a")
	e := w.engine()
	if _, err := e.CheckCluster(background, testSpec, nil); err != nil {
		t.Fatal(err)
	}
	unknown := testPool(1)
	unknown.ClusterID = ""
	if _, err := e.CheckPool(background, unknown, nil); err != nil || w.asked.Network != "default" {
		t.Errorf("asked for the network %q, %v", w.asked.Network, err)
	}
}
