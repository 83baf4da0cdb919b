package cluster

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// poolWith is a pool of two nodes with a change.
func poolWith(change func(*PoolSpec)) PoolSpec {
	p := testPool(2)
	change(&p)
	return p
}

var poolChanges = map[string]func(*PoolSpec){
	"resized, one stands in":  func(p *PoolSpec) { p.Shape.MemoryMiB *= 2 },
	"resized, nobody does":    func(p *PoolSpec) { p.Shape.VCPUs, p.Upgrade = 4, record.Upgrade{MaxUnavailable: 1} },
	"replaced, one stands in": func(p *PoolSpec) { p.Extra.UserData = "#cloud-config\npackages: [jq]\n" },
	"replaced, nobody does":   func(p *PoolSpec) { p.Shape.Clone, p.Upgrade = record.Full, record.Upgrade{MaxUnavailable: 2} },
	"restarted":               func(p *PoolSpec) { p.Extra.Args = []string{"--kubelet-arg=max-pods=50"} },
	"labelled":                func(p *PoolSpec) { p.Labels = map[string]string{"tier": "web"} },
	"tainted":                 func(p *PoolSpec) { p.Taints = []record.Taint{{Key: "dedicated", Value: "db", Effect: "NoSchedule"}} },
	"fewer":                   func(p *PoolSpec) { p.Nodes = 1 },
	"more, and larger":        func(p *PoolSpec) { p.Nodes, p.Shape.MemoryMiB = 3, 2048 },
	"fewer, and with a label": func(p *PoolSpec) { p.Nodes, p.Labels = 1, map[string]string{"tier": "web"} },
	"with other rules":        func(p *PoolSpec) { p.Drain.Force, p.Upgrade.MaxSurge = true, 2 },
	"replaced and with a disk": func(p *PoolSpec) {
		p.Shape.Data = record.DataDisk{SizeGiB: 5, StoragePool: "default", MountPath: "/data"}
	},
}

// isAs checks that a pool is as a spec wants it, to the last record and Node object.
func (w *world) isAs(t *testing.T, spec PoolSpec, p PoolState) {
	t.Helper()
	if len(p.Nodes) != spec.Nodes || len(w.machines) != spec.Nodes+1 || len(w.disks) != spec.Nodes+1 || len(w.nodes) != spec.Nodes+1 {
		t.Errorf("nodes %v, VMs %s, %d disks, %d Node objects", sortedKeys(p.Nodes), w.names(), len(w.disks), len(w.nodes))
	}
	for _, name := range sortedKeys(p.Nodes) {
		m, n := w.machine(name), w.nodes[name]
		r := m.Record
		want := (&Engine{fleet: w}).poolGroup(spec, "c", nil, machine.Observation{}).base
		want.Ordinal, want.Volumes, want.Phase = r.Ordinal, r.Volumes, record.Joined
		if !record.Same(r, want) {
			t.Errorf("%s: its record is %+v, want %+v", name, r, want)
		}
		if p.Nodes[name].State != NodeReady || n.Cordoned || !n.Ready {
			t.Errorf("%s: %+v, Node %+v", name, p.Nodes[name], n)
		}
		if reason := mislabelled(n, want); reason != "" {
			t.Errorf("%s: %s", name, reason)
		}
	}
}

// assigned tells where the nodes of the pool w stand.
func assigned(nodes Nodes) Assignment {
	a := Assignment{}
	for name, n := range nodes {
		a[strings.TrimPrefix(name, "c-")] = n.Hypervisor
	}
	return a
}

func TestPoolChanges(t *testing.T) {
	for name, change := range poolChanges {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "a", "b")
			e, _, p := up(t, w, 2)
			spec := poolWith(change)
			got, err := e.ApplyPool(background, spec, &p, quick)
			if err != nil {
				t.Fatal(err)
			}
			w.isAs(t, spec, got)
			steps := len(w.log)
			if got, err = w.engine().ApplyPool(background, spec, &got, quick); err != nil || len(w.log) != steps {
				t.Errorf("a second apply: %v, it did %v", err, w.log[steps:])
			}
			w.isAs(t, spec, got)
		})
	}
}

// An apply of a change that is killed after any of its steps is brought to its end by the next one, and taken back by one that
// wants what was before.
func TestPoolChangeKilledAfterEachStep(t *testing.T) {
	for name, change := range poolChanges {
		for _, back := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, back %t", name, back), func(t *testing.T) {
				killed := true
				for steps := 0; killed; steps++ {
					if steps > 200 {
						t.Fatal("it does not come to its end")
					}
					w := newWorld(t, "a", "b")
					_, _, before := up(t, w, 2)
					w.steps = steps
					spec := poolWith(change)
					state, err := w.engine().ApplyPool(background, spec, &before, quick)
					killed = err != nil
					w.steps = -1
					if !killed && back {
						break
					}
					if back {
						spec = before.Spec
					}
					// What Terraform has in its state, it refreshes first.
					if state, err = w.engine().ReadPool(background, state.Spec, state.Nodes); err != nil {
						t.Fatal(err)
					}
					review, err := w.engine().CheckPool(background, spec, &state)
					if err != nil || len(review.Problems) > 0 || len(review.Assignment) != spec.Nodes {
						t.Fatalf("after %d steps: %v, %+v", steps, err, review)
					}
					promised := spec
					promised.Assignment = review.Assignment
					if state, err = w.engine().ApplyPool(background, promised, &state, quick); err != nil {
						t.Fatalf("after %d steps: %v", steps, err)
					}
					if got := assigned(state.Nodes); !maps.Equal(got, review.Assignment) {
						t.Errorf("after %d steps: promised %v, got %v", steps, review.Assignment, got)
					}
					w.isAs(t, spec, state)
					// Where there are too many, the one that does not run goes first.
					if got := strings.Join(sortedKeys(state.Nodes), " "); !strings.HasPrefix("c-w-1 c-w-2 c-w-3", got) && spec.Nodes == 2 && name != "more, and larger" {
						t.Errorf("the nodes are %s", got)
					}
					if t.Failed() {
						t.Fatalf("after %d steps; log %v", steps, w.log)
					}
				}
			})
		}
	}
}

var errUndrained = &Undrained{Pods: []Pod{{Namespace: "shop", Name: "db-0", Budgets: []string{"db"}}}}

func TestDrainThatFails(t *testing.T) {
	w := newWorld(t, "a")
	e, _, p := up(t, w, 2)
	w.undrained["c-w-2"] = errUndrained
	got, err := e.ApplyPool(background, testPool(1), &p, quick)
	var f *Failure
	if !errors.As(err, &f) || !strings.Contains(err.Error(), "shop/db-0") || !strings.Contains(err.Error(), "PodDisruptionBudget db") {
		t.Fatalf("got %v", err)
	}
	if m := w.machine("c-w-2"); m.Power != machine.Running || w.nodes["c-w-2"].Cordoned || len(got.Nodes) != 2 || got.Spec.Nodes != 2 {
		t.Errorf("the VM is %s, its Node %+v, the state %+v", m.Power, w.nodes["c-w-2"], got)
	}
	// The user may want to go on without it.
	force := testPool(1)
	force.Drain.Force = true
	got, err = e.ApplyPool(background, force, &got, quick)
	if err != nil || len(got.Nodes) != 1 || len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0].Error(), "shop/db-0") {
		t.Errorf("with force: %v, %+v", err, got)
	}
}

func TestVolumesThatStayAttached(t *testing.T) {
	w := newWorld(t, "a")
	e, _, p := up(t, w, 2)
	w.attached["c-w-2"] = []string{"pvc-1"}
	short := testPool(1)
	short.Drain.TimeoutSeconds = 1
	if _, err := e.ApplyPool(background, short, &p, quick); err == nil || !strings.Contains(err.Error(), "pvc-1") {
		t.Errorf("got %v", err)
	}
	if w.machine("c-w-2").Power != machine.Running || w.nodes["c-w-2"].Cordoned {
		t.Error("the node did not stay as it was")
	}
}

// A destroy always comes to an end.
func TestDestroyOfAPool(t *testing.T) {
	for name, tc := range map[string]struct {
		spec     func(*PoolSpec)
		world    func(*world)
		warnings int
		log      string
	}{
		"drained":                 {log: "drain c-w-1"},
		"pods do not go":          {world: func(w *world) { w.undrained["c-w-1"] = errUndrained }, warnings: 1, log: "drain c-w-1"},
		"the API does not answer": {world: func(w *world) { w.apiDown = errors.New("connection refused") }, warnings: 1},
		"not to be drained":       {spec: func(p *PoolSpec) { p.Drain.KeepOnDestroy = true }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "a")
			e, _, p := up(t, w, 1)
			if tc.spec != nil {
				tc.spec(&p.Spec)
			}
			if tc.world != nil {
				tc.world(w)
			}
			w.log = nil
			left, err := e.DeletePool(background, p.Spec, p.Nodes, quick)
			if err != nil || len(left.Nodes) > 0 || w.names() != "c-cp-1" || len(left.Warnings) != tc.warnings {
				t.Errorf("%v, left %v, VMs %s, warnings %v", err, left.Nodes, w.names(), left.Warnings)
			}
			if got := strings.Join(w.log, ", "); got != tc.log {
				t.Errorf("it did %q", got)
			}
		})
	}
}

// fall makes a node not Ready since a time.
func (w *world) fall(name string, since time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.nodes[name]
	n.Ready, n.Reason, n.Since = false, "NodeStatusUnknown", time.Now().Add(-since)
	w.nodes[name] = n
}

func TestRepair(t *testing.T) {
	w := newWorld(t, "a")
	e, _, p := up(t, w, 2)
	w.fall("c-w-2", time.Hour)
	p, err := e.ReadPool(background, p.Spec, p.Nodes)
	if n := p.Nodes["c-w-2"]; err != nil || n.State != NodeUnhealthy || !n.State.Drifted() {
		t.Fatalf("%v, %+v", err, n)
	}
	if r, err := e.CheckPool(background, p.Spec, &p); err != nil || r.Changes["c-w-2"] != Repaired || r.Changes["c-w-1"] != "" {
		t.Errorf("%v, %+v", err, r)
	}
	old := w.machine("c-w-2").UUID
	if p, err = e.ApplyPool(background, p.Spec, &p, quick); err != nil || p.Nodes["c-w-2"].State != NodeReady || w.machine("c-w-2").UUID != old {
		t.Fatalf("%v, %+v", err, p.Nodes)
	}
	// Where switching it off and on does not help, another one takes its place.
	w.fall("c-w-2", time.Hour)
	w.guests["c-w-2"] = &fakeGuest{times: 3, notReady: true}
	if p, err = e.ApplyPool(background, p.Spec, &p, quick); err != nil || p.Nodes["c-w-2"].State != NodeReady || w.machine("c-w-2").UUID == old {
		t.Errorf("%v, %+v", err, p.Nodes)
	}
	if len(w.disks) != 3 {
		t.Errorf("%d disks", len(w.disks))
	}
}

// Where many nodes fail at once the cause is likely to lie elsewhere.
func TestRepairIsBounded(t *testing.T) {
	w := newWorld(t, "a")
	e, _, p := up(t, w, 3)
	w.fall("c-w-1", time.Hour)
	w.fall("c-w-3", time.Hour)
	started := maps.Clone(w.started)
	got, err := e.ApplyPool(background, testPool(3), &p, quick)
	if err != nil || len(got.Warnings) != 1 || !strings.Contains(got.Warnings[0].Error(), "c-w-1, c-w-3") {
		t.Errorf("%v, %v", err, got.Warnings)
	}
	if fmt.Sprint(started) != fmt.Sprint(w.started) {
		t.Errorf("started %v, before %v", w.started, started)
	}
	if r, err := e.CheckPool(background, got.Spec, &got); err != nil || len(r.Changes) != 0 {
		t.Errorf("the plan: %v, %+v", err, r.Changes)
	}
}

// What is altered on the Node objects by hand is drift; what others put there is not.
func TestLabelDrift(t *testing.T) {
	w := newWorld(t, "a")
	e := w.engine()
	spec := poolWith(poolChanges["labelled"])
	if _, err := e.ApplyCluster(background, testSpec, nil, quick); err != nil {
		t.Fatal(err)
	}
	p, err := e.ApplyPool(background, spec, nil, quick)
	if err != nil {
		t.Fatal(err)
	}
	n := w.nodes["c-w-1"]
	n.Labels = map[string]string{"foreign": "x", "tier": "db"}
	w.nodes["c-w-1"] = n
	if p, err = e.ReadPool(background, p.Spec, p.Nodes); err != nil || p.Nodes["c-w-1"].State != NodeDrifted || p.Nodes["c-w-2"].State != NodeReady {
		t.Fatalf("%v, %+v", err, p.Nodes)
	}
	if p, err = e.ApplyPool(background, spec, &p, quick); err != nil {
		t.Fatal(err)
	}
	w.isAs(t, spec, p)
	if w.nodes["c-w-1"].Labels["foreign"] != "x" || w.started["c-w-1"] != 1 {
		t.Errorf("Node %+v, started %d times", w.nodes["c-w-1"], w.started["c-w-1"])
	}
}

// A golden image of another name makes new nodes, and the plan says so although no attribute of the pool has changed.
func TestAnotherTemplate(t *testing.T) {
	w := newWorld(t, "a")
	w.template = record.Template{Pool: "images", Volume: "v1"}
	_, s, p := up(t, w, 2)
	w.template.Volume = "v2"
	e := w.engine()
	p, err := e.ReadPool(background, p.Spec, p.Nodes)
	if n := p.Nodes["c-w-1"]; err != nil || n.State != NodeDrifted || n.Template != "images/v1" {
		t.Fatalf("%v, %+v", err, n)
	}
	if r, err := e.CheckPool(background, p.Spec, &p); err != nil || r.Changes["c-w-1"] != Replaced {
		t.Errorf("%v, %+v", err, r)
	}
	if p, err = e.ApplyPool(background, p.Spec, &p, quick); err != nil || p.Nodes["c-w-1"].Template != "images/v2" {
		t.Errorf("%v, %+v", err, p.Nodes)
	}
	w.isAs(t, p.Spec, p)
	// The one server holds the cluster's data, and stays.
	if s, err = e.ReadCluster(background, s.Spec, s.Nodes); err != nil || s.Nodes["c-cp-1"].State != NodeReady {
		t.Errorf("%v, %+v", err, s.Nodes)
	}
}

// What of the user's cloud-config cannot be merged is told by the plan.
func TestCollision(t *testing.T) {
	w := newWorld(t, "a")
	e, _, p := up(t, w, 1)
	for text, want := range map[string]string{
		"write_files: [{path: /etc/rancher/k3s/config.yaml, content: x}]\n": "/etc/rancher/k3s/config.yaml",
		"write_files: [{path: /data/x, content: x}]\n":                      "/data",
		"packages: [jq]\n": "",
	} {
		spec := poolWith(func(s *PoolSpec) {
			s.Nodes, s.Extra.UserData, s.Shape.Data = 1, text, record.DataDisk{SizeGiB: 1, StoragePool: "default", MountPath: "/data"}
		})
		r, err := e.CheckPool(background, spec, &p)
		if err != nil || (want == "") != (len(r.Problems) == 0) || want != "" && (r.Problems[0].Field != machine.FieldUserData || !strings.Contains(r.Problems[0].Err.Error(), want)) {
			t.Errorf("%q: %v, %+v", text, err, r.Problems)
		}
	}
}

// A single server is drained where others can take its pods, and comes back with its agents.
func TestSingleServerWithAgents(t *testing.T) {
	w := newWorld(t, "a")
	e, s, _ := up(t, w, 2)
	larger := testSpec
	larger.Shape.MemoryMiB *= 2
	w.log = nil
	got, err := e.ApplyCluster(background, larger, &s, quick)
	if log := strings.Join(w.log, ", "); err != nil || log != "drain c-cp-1, resize c-cp-1, start c-cp-1" || w.nodes["c-cp-1"].Cordoned {
		t.Errorf("%v, %s, Node %+v", err, log, w.nodes["c-cp-1"])
	}
	if got.Status != Active || got.Nodes["c-cp-1"].UUID != s.Nodes["c-cp-1"].UUID {
		t.Errorf("%+v", got)
	}
}

// The volumes of a VM that is gone are looked for where the state says that they were.
func TestLostNodeOfAnotherShape(t *testing.T) {
	w := newWorld(t, "a")
	e, _, p := up(t, w, 1)
	w.vanish("c-w-1")
	spec := p.Spec
	spec.Shape.StoragePool = "ssd"
	if _, err := e.ApplyPool(background, spec, &p, quick); err != nil {
		t.Fatal(err)
	}
	if got := w.deleted[p.Nodes["c-w-1"].UUID].Record.Volumes; len(got) != 2 || got[0].Pool != "default" {
		t.Errorf("volumes %v", got)
	}
}

// A canary that does not come up ends the roll, and the others stay as they are; the next apply begins with it.
func TestCanary(t *testing.T) {
	w := newWorld(t, "a")
	e, _, p := up(t, w, 2)
	w.restartErr["c-w-1"] = errors.New("exit status 1")
	bad := poolWith(func(s *PoolSpec) { s.Extra.Args = []string{"--nonsense"} })
	got, err := e.ApplyPool(background, bad, &p, quick)
	if err == nil || !strings.Contains(err.Error(), "restart k3s") || strings.Contains(strings.Join(w.log, ","), "restart c-w-2") {
		t.Fatalf("%v, %v", err, w.log)
	}
	if got.Nodes["c-w-2"].State != NodeReady || len(got.Spec.Extra.Args) != 0 {
		t.Errorf("the state: %+v", got)
	}
	w.restartErr = map[string]error{}
	if got, err = e.ApplyPool(background, p.Spec, &got, quick); err != nil || strings.Contains(strings.Join(w.log, ","), "restart c-w-2") {
		t.Fatalf("taken back: %v, %v", err, w.log)
	}
	w.isAs(t, p.Spec, got)
}

func TestRoomForChanges(t *testing.T) {
	w := newWorld(t, "a")
	w.memoryMiB = 5 << 10
	e, _, p := up(t, w, 2) // 3 GiB are taken
	larger := poolWith(func(s *PoolSpec) { s.Shape.MemoryMiB = 3 << 10 })
	r, err := e.CheckPool(background, larger, &p)
	if err != nil || len(r.Problems) != 1 || r.Problems[0].Field != machine.FieldMemory || !strings.Contains(r.Problems[0].Err.Error(), "w-1, w-2") {
		t.Errorf("%v, %+v", err, r.Problems)
	}
	// They would fit, and none that stands in.
	larger.Shape.MemoryMiB = 2 << 10
	if r, err = e.CheckPool(background, larger, &p); err != nil || len(r.Problems) != 1 || r.Problems[0].Field != machine.FieldUpgrade {
		t.Errorf("%v, %+v", err, r.Problems)
	}
	larger.Upgrade = record.Upgrade{MaxUnavailable: 1}
	if r, err = e.CheckPool(background, larger, &p); err != nil || len(r.Problems) > 0 || r.Changes["c-w-2"] != Resized || len(r.Assignment) != 2 {
		t.Errorf("%v, %+v", err, r)
	}
	if _, err = e.ApplyPool(background, larger, &p, quick); err != nil {
		t.Error(err)
	}
}
