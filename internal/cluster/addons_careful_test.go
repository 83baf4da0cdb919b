package cluster

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

func poolNamed(name string, nodes int) PoolSpec {
	p := testPool(nodes)
	p.Name = name
	return p
}

// madeWith is a cluster with a change, and what makes it.
func madeWith(t *testing.T, w *world, change func(*Spec)) (*Engine, State) {
	t.Helper()
	e := w.engine()
	s, err := e.ApplyCluster(background, with(change), nil, quick)
	if err != nil {
		t.Fatal(err)
	}
	return e, s
}

// A half-made server may still answer, and goes with all that is installed in its cluster.
func TestNewClusterKilledAfterEachStep(t *testing.T) {
	spec := with(func(s *Spec) { cilium(s); localPath(s) })
	killed := true
	for steps := 0; killed; steps++ {
		if steps > 100 {
			t.Fatal("it does not come to its end")
		}
		w := newWorld(t, "a")
		w.mortal, w.steps = true, steps
		s, err := w.engine().ApplyCluster(background, spec, nil, quick)
		killed = err != nil
		w.steps = -1
		if len(s.Nodes) == 0 {
			continue
		}
		if s, err = w.engine().ReadCluster(background, s.Spec, s.Nodes); err != nil {
			t.Fatal(err)
		}
		s, err = w.engine().ApplyCluster(background, spec, &s, quick)
		if err != nil || len(w.installed()) != 2 || s.Status != Active {
			t.Errorf("after %d steps: %v, installed %v, status %s", steps, err, w.installed(), s.Status)
		}
	}
}

// Pools do not wait for each other's pods, and none fails for an add-on that does not run.
func TestPoolsBesideAnAddonThatDoesNotRun(t *testing.T) {
	w := newWorld(t, "a")
	e, _ := madeWith(t, w, localPath)
	w.unhealthy[LocalPath] = &Unavailable{Addon: LocalPath}
	waits := quick
	waits.Addons = 3 * time.Second
	ctx, cancel := context.WithTimeout(background, 5*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for _, name := range []string{"p", "q", "r"} {
		wg.Go(func() {
			if p, err := e.ApplyPool(ctx, poolNamed(name, 1), nil, waits); err != nil || len(p.Warnings) != 1 {
				t.Errorf("pool %s: %v, %v", name, err, p.Warnings)
			}
		})
	}
	wg.Wait()
}

// A network that is changed in place is waited for.
func TestNetworkChangedInPlace(t *testing.T) {
	w := newWorld(t, "a")
	e, s := madeWith(t, w, cilium)
	w.relay = &Unavailable{Addon: Cilium, Pods: []string{"pod kube-system/hubble-relay-x on c-cp-1: ErrImagePull"}}
	spec := with(cilium)
	spec.Settings.CNI.Hubble = true
	if _, err := e.ApplyCluster(background, spec, &s, quick); err == nil || !strings.Contains(err.Error(), "hubble-relay") {
		t.Errorf("got %v", err)
	}
}

// What has nothing to do with add-ons needs no charts.
func TestStoppedServerWithoutCharts(t *testing.T) {
	w := newWorld(t, "a")
	_, s := madeWith(t, w, cilium)
	for id, m := range w.machines {
		m.Power = machine.Stopped
		w.machines[id] = m
	}
	w.fetchErr = errors.New("the mirror is down")
	if _, err := w.engine().ApplyCluster(background, with(cilium), &s, quick); err != nil {
		t.Error(err)
	}
}

// An apply whose own time is over tells what it waited for.
func TestReasonAtTheEndOfTheTime(t *testing.T) {
	waits := quick
	waits.Addons, waits.Agent = time.Minute, time.Minute
	for name, spoil := range map[string]func(*world){
		"ErrImagePull": func(w *world) {
			w.unhealthy[LocalPath] = &Unavailable{Addon: LocalPath, Pods: []string{"ErrImagePull"}}
		},
		"no room": func(w *world) { w.installErr[LocalPath] = errors.New("no room") },
	} {
		w := newWorld(t, "a")
		spoil(w)
		ctx, cancel := context.WithTimeout(background, time.Second)
		_, err := w.engine().ApplyCluster(ctx, with(localPath), nil, waits)
		cancel()
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want the reason %q", err, name)
		}
	}
}

// A change that was made by an apply which failed later is no change any more.
func TestExportThatHasMoved(t *testing.T) {
	w := newWorld(t, "a")
	e, s := madeWith(t, w, nfsAt)
	moved := with(nfsAt)
	moved.Settings.CSI.NFS.Path = "/other"
	w.unhealthy[NFS] = &Unavailable{Addon: NFS}
	s, err := e.ApplyCluster(background, moved, &s, quick)
	if err == nil {
		t.Fatal("the apply did not fail")
	}
	delete(w.unhealthy, NFS)
	w.volumes[NFS] = []string{"pvc-1 (claim shop/data)"}
	if s, err = e.ReadCluster(background, s.Spec, s.Nodes); err != nil {
		t.Fatal(err)
	}
	if r, err := e.CheckCluster(background, moved, &s); err != nil || len(r.Problems) > 0 {
		t.Errorf("%v, %v", err, r.Problems)
	}
	if s, err = e.ApplyCluster(background, moved, &s, quick); err != nil || s.Spec.Settings.CSI.NFS.Path != "/other" {
		t.Errorf("%v, %+v", err, s.Spec.Settings.CSI.NFS)
	}
}

// What of the network does not run elsewhere is not why a node does not come up: that one is made anew, as ever.
func TestNodeThatFailsBesideItsNetwork(t *testing.T) {
	w := newWorld(t, "a")
	e, _ := madeWith(t, w, cilium)
	w.guests["c-w-1"] = &fakeGuest{times: 1, notReady: true, message: "PLEG is not healthy"}
	w.relay = &Unavailable{Addon: Cilium, Workloads: []string{"Deployment kube-system/hubble-relay: 0 of 1 available"}}
	if p, err := e.ApplyPool(background, testPool(1), nil, quick); err != nil || w.started["c-w-1"] != 2 {
		t.Errorf("%v after %d starts, %v", err, w.started["c-w-1"], p.Warnings)
	}
}

// A node whose network cannot run is not repaired by a new VM, which would lose the data on its disks.
func TestRepairWithoutNetwork(t *testing.T) {
	w := newWorld(t, "a")
	e, _ := madeWith(t, w, cilium)
	p, err := e.ApplyPool(background, testPool(1), nil, quick)
	if err != nil {
		t.Fatal(err)
	}
	was := p.Nodes["c-w-1"].UUID
	w.guests["c-w-1"] = &fakeGuest{times: 2, notReady: true}
	w.relay = &Unavailable{Addon: Cilium, Workloads: []string{"DaemonSet kube-system/cilium: 1 of 2 available"}}
	w.fall("c-w-1", time.Hour)
	if p, err = e.ApplyPool(background, testPool(1), &p, quick); err == nil || p.Nodes["c-w-1"].UUID != was {
		t.Errorf("%v, the VM is %s and was %s", err, p.Nodes["c-w-1"].UUID, was)
	}
}

// Before a tier goes, the one in its place has to be there.
func TestTierInThePlaceOfAnother(t *testing.T) {
	w := newWorld(t, "a")
	e, s := madeWith(t, w, localPath)
	w.lacks["c-cp-1"] = "iscsiadm is missing"
	s, err := e.ApplyCluster(background, with(onLonghorn), &s, quick)
	if err == nil || len(w.installed()) != 1 {
		t.Fatalf("%v, installed %v", err, w.installed())
	}
	delete(w.lacks, "c-cp-1")
	if _, err = e.ApplyCluster(background, with(onLonghorn), &s, quick); err != nil || len(w.installed()) != 1 || w.installed()[0] != Longhorn {
		t.Errorf("%v, installed %v", err, w.installed())
	}
}

// A network that no record tells of is not taken away from nodes that live by it.
func TestNetworkThatNoRecordTellsOf(t *testing.T) {
	w := newWorld(t, "a")
	e, s := madeWith(t, w, func(*Spec) {})
	w.releases[Cilium] = release{}
	s, err := e.ApplyCluster(background, testSpec, &s, quick)
	if err != nil || len(w.installed()) != 1 || len(s.Addons) > 0 {
		t.Errorf("%v, installed %v, %+v", err, w.installed(), s.Addons)
	}
}

// Nodes that are down run no pods, so nothing is waited for that could run there alone.
func TestAddonsWhileWorkersAreDown(t *testing.T) {
	w := newWorld(t, "a")
	w.tainted = true
	e, s := madeWith(t, w, func(*Spec) {})
	if _, err := e.ApplyPool(background, testPool(1), nil, quick); err != nil {
		t.Fatal(err)
	}
	w.fall("c-w-1", time.Hour)
	n := w.nodes["c-w-1"]
	n.Taints = []record.Taint{{Key: "node.kubernetes.io/unreachable", Effect: "NoExecute"}}
	w.nodes["c-w-1"] = n
	w.unhealthy[NFS] = &Unavailable{Addon: NFS}
	if _, err := e.ApplyCluster(background, with(nfsAt), &s, quick); err != nil {
		t.Error(err)
	}
}

// An archive is needed where its add-on is installed or changed, and not for anything else.
func TestArchiveThatIsElsewhere(t *testing.T) {
	w := newWorld(t, "a")
	e, s := madeWith(t, w, func(s *Spec) { cilium(s); s.Settings.CNI.Chart.Archive = "testdata/none.tgz" })
	spec := s.Spec
	r, err := e.CheckCluster(background, spec, nil)
	if err != nil || len(r.Problems) != 1 || r.Problems[0].Field != machine.FieldCNIChart {
		t.Errorf("a new cluster: %v, %v", err, r.Problems)
	}
	spec.Shape.MemoryMiB *= 2
	if r, err = e.CheckCluster(background, spec, &s); err != nil || len(r.Problems) > 0 {
		t.Errorf("another shape: %v, %v", err, r.Problems)
	}
	spec.Settings.CNI.Hubble = true
	if r, err = e.CheckCluster(background, spec, &s); err != nil || len(r.Problems) != 1 {
		t.Errorf("other values: %v, %v", err, r.Problems)
	}
}

// While the API is silent, add-ons are unknown, and nothing is planned about them.
func TestAddonsOfASilentCluster(t *testing.T) {
	w := newWorld(t, "a")
	_, s := madeWith(t, w, cilium)
	w.apiDown = errors.New("connection refused")
	e := w.engine()
	s, err := e.ReadCluster(background, s.Spec, s.Nodes)
	if err != nil || len(s.Addons) != 1 || s.Addons[Cilium].State != AddonUnknown || s.Addons[Cilium].Reason == "" {
		t.Fatalf("%v, %+v", err, s.Addons)
	}
	if r, err := e.CheckCluster(background, s.Spec, &s); err != nil || len(r.Addons) > 0 {
		t.Errorf("%v, %v", err, r.Addons)
	}
}
