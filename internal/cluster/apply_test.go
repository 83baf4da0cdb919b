package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/guestagent"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

var (
	testShape = record.Shape{VCPUs: 2, MemoryMiB: 1024, DiskGiB: 10, StoragePool: "default", Clone: record.Overlay}
	testSpec  = Spec{
		ID: "6b1f0ab4-8d0c-4f4f-9c0c-000000000001", Name: "c", Servers: 1, Shape: testShape,
		Settings: record.Cluster{K3sVersion: testVersion, Network: "default"},
	}
	quick = Waits{Agent: 20 * time.Millisecond, Bootstrap: 20 * time.Millisecond, Ready: 20 * time.Millisecond, Addons: 20 * time.Millisecond}
)

func testPool(nodes int) PoolSpec {
	return PoolSpec{
		ClusterID: testSpec.ID, Name: "w", Nodes: nodes, Shape: testShape, Drain: DefaultDrain, Upgrade: DefaultUpgrade, Repair: DefaultRepair,
	}
}

// up makes a cluster with a pool of that many nodes.
func up(t *testing.T, w *world, nodes int) (*Engine, State, PoolState) {
	t.Helper()
	e := w.engine()
	s, err := e.ApplyCluster(context.Background(), testSpec, nil, quick)
	if err != nil {
		t.Fatal(err)
	}
	p, err := e.ApplyPool(context.Background(), testPool(nodes), nil, quick)
	if err != nil {
		t.Fatal(err)
	}
	return e, s, p
}

func TestClusterAndPool(t *testing.T) {
	w := newWorld(t, "a", "b")
	_, s, p := up(t, w, 2)
	if got := w.names(); got != "c-cp-1 c-w-1 c-w-2" {
		t.Fatalf("VMs: %s", got)
	}
	if s.Status != Active || s.Endpoint != "https://192.0.2.49:6443" {
		t.Errorf("cluster is %s at %q", s.Status, s.Endpoint)
	}
	for name, n := range p.Nodes {
		if n.State != NodeReady || n.K3sVersion != testVersion || n.IP == "" {
			t.Errorf("%s: %+v", name, n)
		}
		if w.machine(name).Record.Phase != record.Joined {
			t.Errorf("%s: its record does not say that it joined", name)
		}
	}
	if p.Nodes["c-w-1"].Hypervisor == p.Nodes["c-w-2"].Hypervisor {
		t.Error("both nodes stand on one hypervisor")
	}
}

// After joining the seed on the pool holds no token.
func TestSeedsAreSealed(t *testing.T) {
	w := newWorld(t, "a")
	up(t, w, 1)
	if len(w.seeds) != 2 {
		t.Fatalf("%d seeds, want 2", len(w.seeds))
	}
	for id, iso := range w.seeds {
		if bytes.Contains(iso, []byte(testSecret)) || bytes.Contains(iso, []byte("token")) {
			t.Errorf("the seed of %s holds a token", id)
		}
		if !bytes.Contains(iso, []byte(id)) {
			t.Errorf("the seed of %s lost its instance id: cloud-init would run again at the next boot", id)
		}
	}
}

// A power cut costs a node nothing that it needs to come up again: it counts as joined once all is on its disk, and k3s is
// restarted with settings that are.
func TestPowerCutsLoseNothing(t *testing.T) {
	w := newWorld(t, "a")
	e, _, p := up(t, w, 1)
	other := testPool(1)
	other.Extra.Args = []string{"--debug"}
	if _, err := e.ApplyPool(background, other, &p, quick); err != nil {
		t.Fatal(err)
	}
	if len(w.torn) > 0 {
		t.Errorf("a power cut would have cost these what they had written: %q", w.torn)
	}
}

func TestSecondApplyDoesNothing(t *testing.T) {
	w := newWorld(t, "a")
	e, s, p := up(t, w, 2)
	if _, err := e.ApplyCluster(context.Background(), testSpec, &s, quick); err != nil {
		t.Fatal(err)
	}
	again, err := e.ApplyPool(context.Background(), testPool(2), &p, quick)
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(again.Nodes) != fmt.Sprint(p.Nodes) || w.started["c-w-1"] != 1 {
		t.Errorf("the nodes changed: %v, before %v", again.Nodes, p.Nodes)
	}
}

func TestScale(t *testing.T) {
	w := newWorld(t, "a")
	e, _, p := up(t, w, 2)
	for _, tc := range []struct {
		nodes int
		want  string
	}{{3, "c-cp-1 c-w-1 c-w-2 c-w-3"}, {1, "c-cp-1 c-w-1"}, {0, "c-cp-1"}, {2, "c-cp-1 c-w-1 c-w-2"}} {
		var err error
		if p, err = e.ApplyPool(context.Background(), testPool(tc.nodes), &p, quick); err != nil {
			t.Fatal(err)
		}
		if got := w.names(); got != tc.want || len(p.Nodes) != tc.nodes {
			t.Errorf("scaled to %d: VMs %s, nodes %v", tc.nodes, got, p.Nodes)
		}
		if len(w.nodes) != tc.nodes+1 || len(w.disks) != tc.nodes+1 {
			t.Errorf("scaled to %d: %d Node objects, %d disks", tc.nodes, len(w.nodes), len(w.disks))
		}
	}
}

func TestMissingNodeIsReportedAndMadeAnew(t *testing.T) {
	w := newWorld(t, "a")
	e, _, p := up(t, w, 2)
	old := p.Nodes["c-w-2"].UUID
	w.vanish("c-w-2")
	p, err := e.ReadPool(context.Background(), p.Spec, p.Nodes)
	if err != nil {
		t.Fatal(err)
	}
	if n := p.Nodes["c-w-2"]; n.State != NodeMissing || !n.State.Drifted() || p.Spec.Nodes != 2 {
		t.Fatalf("the node is %+v in a pool of %d", n, p.Spec.Nodes)
	}
	if p, err = e.ApplyPool(context.Background(), p.Spec, &p, quick); err != nil {
		t.Fatal(err)
	}
	if n := p.Nodes["c-w-2"]; n.State != NodeReady || n.UUID == old {
		t.Errorf("the node is %+v", n)
	}
	if w.disks[old] || len(w.disks) != 3 {
		t.Errorf("%d disks, the old one is among them: %v", len(w.disks), w.disks[old])
	}
}

func TestStoppedNodeIsStarted(t *testing.T) {
	w := newWorld(t, "a")
	e, _, p := up(t, w, 1)
	m := w.machine("c-w-1")
	if err := w.Stop(context.Background(), m, 0); err != nil {
		t.Fatal(err)
	}
	p, err := e.ReadPool(context.Background(), p.Spec, p.Nodes)
	if err != nil || p.Nodes["c-w-1"].State != NodeStopped {
		t.Fatalf("%v, %+v", err, p.Nodes)
	}
	if p, err = e.ApplyPool(context.Background(), p.Spec, &p, quick); err != nil {
		t.Fatal(err)
	}
	if n := p.Nodes["c-w-1"]; n.State != NodeReady || n.UUID != m.UUID {
		t.Errorf("the node is %+v", n)
	}
}

func TestFailingNodeIsReplacedOnce(t *testing.T) {
	w := newWorld(t, "a")
	w.guests["c-w-1"] = &fakeGuest{times: 1, ping: errNoAgent}
	up(t, w, 1)
	if w.started["c-w-1"] != 2 || len(w.disks) != 2 {
		t.Errorf("started %d VMs, %d disks are left", w.started["c-w-1"], len(w.disks))
	}
}

// A pool of three of which one fails keeps two; the next apply makes only the third.
func TestPartialPool(t *testing.T) {
	w := newWorld(t, "a")
	e := w.engine()
	if _, err := e.ApplyCluster(context.Background(), testSpec, nil, quick); err != nil {
		t.Fatal(err)
	}
	w.startErr["c-w-3"] = errors.New("cannot allocate memory")
	p, err := e.ApplyPool(context.Background(), testPool(3), nil, quick)
	if err == nil || !strings.Contains(err.Error(), `node "c-w-3" on hypervisor "a": cannot allocate memory`) {
		t.Fatalf("got %v", err)
	}
	if len(p.Nodes) != 3 || p.Nodes["c-w-1"].State != NodeReady || p.Nodes["c-w-3"].State != NodeCreating {
		t.Fatalf("state holds %+v", p.Nodes)
	}
	first := p.Nodes["c-w-1"].UUID
	delete(w.startErr, "c-w-3")
	if p, err = e.ApplyPool(context.Background(), testPool(3), &p, quick); err != nil {
		t.Fatal(err)
	}
	if p.Nodes["c-w-1"].UUID != first || w.started["c-w-1"] != 1 || p.Nodes["c-w-3"].State != NodeReady || len(w.disks) != 4 {
		t.Errorf("nodes %+v, %d disks", p.Nodes, len(w.disks))
	}
}

// Each trouble of a guest has its own text, and none is taken for another.
func TestDiagnoses(t *testing.T) {
	result := func(ds string) map[string]string {
		return map[string]string{"/run/cloud-init/result.json": `{"v1":{"datasource":"` + ds + `","errors":[]}}`}
	}
	for name, tc := range map[string]struct {
		guest fakeGuest
		want  string
	}{
		"no agent":        {fakeGuest{ping: errNoAgent}, "its channel is disconnected"},
		"powered off":     {fakeGuest{ping: guestagent.ErrNotRunning}, "powered itself off"},
		"forbidden agent": {fakeGuest{ping: guestagent.ErrDisabled}, "guest-exec-status and guest-file-*"},
		"no address":      {fakeGuest{noIP: true}, "has none"},
		"seed not read":   {fakeGuest{marker: "none", files: result("DataSourceNone")}, "without reading the node's seed"},
		"user-data not run": {
			fakeGuest{marker: "none", files: result("DataSourceNoCloud [seed=/dev/vdb]")}, "the bootstrap did not run"},
		"download": {
			fakeGuest{marker: `{"instance":"UUID","state":"failed","step":"download","rc":22}`,
				files: map[string]string{"/var/log/cockpit-bootstrap.log": "curl: (22) error: 500\n"}},
			"curl: (22) error: 500"},
		"storage that it has not": {
			fakeGuest{marker: `{"instance":"UUID","state":"failed","step":"preflight","rc":1,"message":"mount.nfs is missing\nthe NFS server refuses"}`},
			"needs: mount.nfs is missing; the NFS server refuses."},
		"slow": {fakeGuest{marker: `{"instance":"UUID","state":"running","step":"install","rc":0}`}, `still at step "install"`},
		"a marker of the image's past": {
			fakeGuest{marker: `{"instance":"another","state":"done","step":"start","rc":0}`}, "has not begun"},
		"not ready": {fakeGuest{notReady: true}, "cni plugin not initialized"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "a")
			tc.guest.times = 9
			w.guests["c-cp-1"] = &tc.guest
			s, err := w.engine().ApplyCluster(context.Background(), testSpec, nil, quick)
			if err == nil {
				t.Fatal("no error")
			}
			text := Explain(err)
			if !strings.Contains(text, tc.want) || !strings.Contains(text, "What to do: ") {
				t.Errorf("the text lacks %q or what to do:\n%s", tc.want, text)
			}
			if strings.Contains(text, testSecret) {
				t.Error("the text holds the token")
			}
			if len(s.Nodes) != 1 {
				t.Errorf("the state holds %v, one VM stands", s.Nodes)
			}
		})
	}
}

func TestTwoNodesWithOneAddress(t *testing.T) {
	r := &run{}
	if err := r.claim("192.0.2.30", "w-0"); err != nil {
		t.Fatal(err)
	}
	err := r.claim("192.0.2.30", "w-1")
	if err == nil || !strings.Contains(Explain(err), "machine-id") || !strings.Contains(err.Error(), "w-0") {
		t.Errorf("got %v", err)
	}
}

func TestUnreachableIsNotGone(t *testing.T) {
	w := newWorld(t, "a", "b")
	e, s, p := up(t, w, 2)
	w.unreachable["b"] = machine.ErrUnreachable
	p2, err := e.ReadPool(context.Background(), p.Spec, p.Nodes)
	if err != nil {
		t.Fatal(err)
	}
	var unknown string
	for name, n := range p2.Nodes {
		if n.State == NodeUnknown {
			unknown = name
			if n.UUID != p.Nodes[name].UUID || n.IP != p.Nodes[name].IP {
				t.Errorf("%s lost its last values: %+v", name, n)
			}
		}
	}
	if unknown == "" {
		t.Fatalf("no node is unknown: %+v", p2.Nodes)
	}
	if _, err := e.ApplyPool(context.Background(), p.Spec, &p2, quick); err != nil {
		t.Fatal(err)
	}
	if w.started[unknown] != 1 {
		t.Errorf("%s was made anew although its hypervisor was only silent", unknown)
	}
	left, err := e.DeletePool(context.Background(), p.Spec, p2.Nodes, quick)
	if err == nil || !strings.Contains(err.Error(), unknown) || len(left.Nodes) != 1 {
		t.Errorf("delete: %v, left %v", err, left)
	}
	w.unreachable["a"] = machine.ErrUnreachable
	if _, err := e.ReadCluster(context.Background(), s.Spec, s.Nodes); err != nil {
		t.Errorf("read of a cluster that cannot be asked: %v", err)
	}
}

func TestDelete(t *testing.T) {
	w := newWorld(t, "a")
	e, s, p := up(t, w, 2)
	if _, err := e.DeleteCluster(context.Background(), s.Spec, s.Nodes, quick); err == nil || !strings.Contains(err.Error(), "c-w-1, c-w-2") {
		t.Fatalf("a cluster with agents went: %v", err)
	}
	// With the API down the pool goes all the same.
	w.apiDown = errors.New("connection refused")
	if left, err := e.DeletePool(context.Background(), p.Spec, p.Nodes, quick); err != nil || len(left.Nodes) != 0 {
		t.Fatalf("%v, left %v", err, left)
	}
	if left, err := e.DeleteCluster(context.Background(), s.Spec, s.Nodes, quick); err != nil || len(left) != 0 {
		t.Fatalf("%v, left %v", err, left)
	}
	if len(w.machines)+len(w.disks)+len(w.seeds) != 0 {
		t.Errorf("left: %v %v", w.machines, w.disks)
	}
	if _, err := e.ReadCluster(context.Background(), s.Spec, s.Nodes); !errors.Is(err, ErrGone) {
		t.Errorf("read after delete: %v", err)
	}
}

func TestFind(t *testing.T) {
	w := newWorld(t, "a")
	e, _, _ := up(t, w, 2)
	for _, ref := range []string{"c", testSpec.ID} {
		spec, err := e.FindCluster(context.Background(), ref)
		if err != nil || fmt.Sprint(spec) != fmt.Sprint(testSpec) {
			t.Errorf("%s: %+v, %v", ref, spec, err)
		}
	}
	pool, err := e.FindPool(context.Background(), "c/w")
	if err != nil || fmt.Sprint(pool) != fmt.Sprint(testPool(2)) {
		t.Errorf("%+v, %v", pool, err)
	}
	for _, ref := range []string{"c", "c/", "/w", "c/cp", "c/x", "d/w"} {
		if _, err := e.FindPool(context.Background(), ref); err == nil {
			t.Errorf("%q was found", ref)
		}
	}
}

func TestNameTaken(t *testing.T) {
	w := newWorld(t, "a")
	e, _, _ := up(t, w, 0)
	other := testSpec
	other.ID = "6b1f0ab4-8d0c-4f4f-9c0c-000000000002"
	review, err := e.CheckCluster(context.Background(), other, nil)
	if err != nil || len(review.Problems) != 1 || review.Problems[0].Field != machine.FieldName {
		t.Errorf("%v, %v", review, err)
	}
	if _, err := e.ApplyCluster(context.Background(), other, nil, quick); err == nil || !strings.Contains(err.Error(), "exists already") {
		t.Errorf("apply: %v", err)
	}
}

// Changed keys reach the records, from which nodes made later get them.
func TestSettingsAreRecorded(t *testing.T) {
	w := newWorld(t, "a")
	e, s, _ := up(t, w, 0)
	spec := testSpec
	spec.Settings.SSHAuthorizedKeys = []string{"ssh-ed25519 AAAA someone"}
	if _, err := e.ApplyCluster(context.Background(), spec, &s, quick); err != nil {
		t.Fatal(err)
	}
	if got := w.machine("c-cp-1").Record.Cluster.SSHAuthorizedKeys; len(got) != 1 {
		t.Errorf("the record holds %v", got)
	}
}

func TestProblemsStopAnApply(t *testing.T) {
	w := newWorld(t, "a")
	w.problems = []machine.Problem{{Field: machine.FieldStoragePool, Err: errors.New(`storage pool "default" does not exist`)}}
	_, err := w.engine().ApplyCluster(context.Background(), testSpec, nil, quick)
	if err == nil || !strings.Contains(err.Error(), `hypervisor "a": storage pool "default" does not exist`) || len(w.machines) != 0 {
		t.Errorf("%v, VMs %v", err, w.machines)
	}
}

// A cluster whose only server is gone is gone; its agents are never given an empty one.
func TestLostServer(t *testing.T) {
	w := newWorld(t, "a")
	e, s, p := up(t, w, 1)
	w.vanish("c-cp-1")
	if _, err := e.ReadCluster(context.Background(), s.Spec, s.Nodes); !errors.Is(err, ErrGone) {
		t.Errorf("read: %v", err)
	}
	if _, err := e.ApplyCluster(context.Background(), testSpec, &s, quick); err == nil || !strings.Contains(err.Error(), "datastore is lost") {
		t.Errorf("apply: %v", err)
	}
	// The new cluster may take the name at once, and the old pool can still be destroyed.
	other := testSpec
	other.ID = "6b1f0ab4-8d0c-4f4f-9c0c-000000000002"
	if review, err := e.CheckCluster(context.Background(), other, nil); err != nil || len(review.Problems) > 0 {
		t.Errorf("check: %v, %v", review, err)
	}
	if left, err := e.DeletePool(context.Background(), p.Spec, p.Nodes, quick); err != nil || len(left.Nodes) > 0 {
		t.Errorf("delete: %v, %v", left, err)
	}
}

func TestNothingAnswers(t *testing.T) {
	w := newWorld(t, "a")
	w.unreachable["a"] = fmt.Errorf("dial: connection refused: %w", machine.ErrUnreachable)
	review, err := w.engine().CheckCluster(context.Background(), testSpec, nil)
	if err != nil || len(review.Problems) != 1 || !errors.Is(review.Problems[0].Err, machine.ErrUnreachable) {
		t.Errorf("check: %v, %v", review, err)
	}
	_, err = w.engine().ApplyCluster(context.Background(), testSpec, nil, quick)
	if err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("apply: %v", err)
	}
}
