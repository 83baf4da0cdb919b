package cluster

import (
	"fmt"
	"testing"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

var serverChanges = map[string]func(*Spec){
	"resized":        func(s *Spec) { s.Shape.MemoryMiB *= 2 },
	"replaced":       func(s *Spec) { s.Shape.StoragePool = "ssd" },
	"restarted":      func(s *Spec) { s.Extra.Args = []string{"--disable=servicelb"} },
	"with new names": func(s *Spec) { s.Settings.TLSSANs = []string{"k8s.example.com"} },
	"protected":      func(s *Spec) { s.Settings.DeletionProtection = true },
	"all at once": func(s *Spec) {
		s.Shape.VCPUs, s.Extra.Args, s.Settings.TLSSANs = 4, []string{"--debug"}, []string{"k8s"}
	},
}

// Servers are changed one at a time, and whenever an apply is killed the next one brings them to what is wanted, or back.
func TestServerChangeKilledAfterEachStep(t *testing.T) {
	for name, change := range serverChanges {
		for _, servers := range []int{1, 3} {
			if servers == 1 && name == "replaced" {
				continue
			}
			was := three()
			was.Servers = servers
			killAfterEachStep(t, fmt.Sprintf("%s, %d servers", name, servers), was, change)
		}
	}
}

// killAfterEachStep has a change of a cluster killed after each of its steps, and then brought to its end or taken back by the next
// apply.
func killAfterEachStep(t *testing.T, name string, was Spec, change func(*Spec)) {
	t.Helper()
	for _, back := range []bool{false, true} {
		t.Run(fmt.Sprintf("%s, back %t", name, back), func(t *testing.T) {
			killed := true
			for steps := 0; killed; steps++ {
				if steps > 200 {
					t.Fatal("it does not come to its end")
				}
				w := newWorld(t, "a", "b", "c")
				before, err := w.engine().ApplyCluster(background, was, nil, quick)
				if err != nil {
					t.Fatal(err)
				}
				spec := was
				change(&spec)
				w.steps = steps
				state, err := w.engine().ApplyCluster(background, spec, &before, quick)
				killed = err != nil
				w.steps = -1
				if back {
					spec = was
				}
				if state, err = w.engine().ReadCluster(background, state.Spec, state.Nodes); err != nil {
					t.Fatal(err)
				}
				review, err := w.engine().CheckCluster(background, spec, &state)
				if err != nil || len(review.Problems) > 0 {
					t.Fatalf("after %d steps: %v, %+v", steps, err, review)
				}
				promised := spec
				promised.Assignment = review.Assignment
				if state, err = w.engine().ApplyCluster(background, promised, &state, quick); err != nil {
					t.Fatalf("after %d steps: %v; log %v", steps, err, w.log)
				}
				if w.isCluster(t, spec, state); t.Failed() {
					t.Fatalf("after %d steps; log %v", steps, w.log)
				}
			}
		})
	}
}

// isCluster checks that a cluster is as a spec wants it, to the last record, Node object and release.
func (w *world) isCluster(t *testing.T, spec Spec, state State) {
	t.Helper()
	if len(w.machines) != spec.Servers || len(w.nodes) != spec.Servers || state.Status != Active {
		t.Errorf("VMs %s, %d Node objects, %+v", w.names(), len(w.nodes), state)
	}
	for _, m := range w.machines {
		want := (&Engine{fleet: w}).serverGroup(spec, nil, machine.Observation{}).base
		want.Ordinal, want.Volumes, want.Phase = m.Record.Ordinal, m.Record.Volumes, record.Joined
		if n := w.nodes[m.Name]; !record.Same(m.Record, want) || !n.Voter || n.Cordoned {
			t.Errorf("record %+v, want %+v; Node %+v", m.Record, want, n)
		}
	}
	addons := addonsOf(spec.Settings, spec.Servers, spec.Servers)
	for _, a := range addons.Addons() {
		if got := w.releases[a].setting; got != addons.setting(a) {
			t.Errorf("%s is installed with %s, want %s", a, got, addons.setting(a))
		}
	}
	if got := w.installed(); len(got) != len(addons.Addons()) {
		t.Errorf("installed %v", got)
	}
}
