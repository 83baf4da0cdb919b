package cluster

import (
	"errors"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// with is the test's cluster with a change.
func with(change func(*Spec)) Spec {
	s := testSpec
	change(&s)
	return s
}

func cilium(s *Spec) { s.Settings.CNI = record.CNI{Plugin: record.Cilium, Routing: record.Tunnel} }
func localPath(s *Spec) {
	s.Settings.CSI.LocalPath = &record.LocalPath{Path: "/opt/local-path-provisioner"}
}
func onLonghorn(s *Spec) {
	s.Settings.CSI.Longhorn = &record.Longhorn{Replicas: 3, DataPath: "/var/lib/longhorn", DrainPolicy: "always-allow"}
}

// nfsAt is a change to a cluster whose NFS server is in no network of this machine (RFC 5737).
func nfsAt(s *Spec) { s.Settings.CSI.NFS = &record.NFS{Server: "203.0.113.7", Path: "/export"} }

func all(s *Spec) {
	cilium(s)
	localPath(s)
	nfsAt(s)
	onLonghorn(s)
}

// events lists what was logged of some kinds.
func (w *world) events(kinds ...string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Join(slices.DeleteFunc(slices.Clone(w.log), func(line string) bool {
		return !slices.ContainsFunc(kinds, func(k string) bool { return strings.HasPrefix(line, k) })
	}), ", ")
}

// The network plugin comes before anything is Ready, and storage after the servers.
func TestAddonsOfANewCluster(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	spec := with(all)
	spec.Servers = 3
	e := w.engine()
	w.refusals = 1 // The API has just begun.
	patient := quick
	patient.Agent = 10 * time.Second
	s, err := e.ApplyCluster(background, spec, nil, patient)
	if err != nil {
		t.Fatal(err)
	}
	want := "install cilium, joined c-cp-1, joined c-cp-2, joined c-cp-3, install local-path, install nfs, install longhorn"
	if got := w.events("install", "joined"); got != want {
		t.Errorf("it did %s", got)
	}
	if s.Status != Active || len(s.Addons) != 4 || s.Addons[Longhorn].State != AddonDeployed {
		t.Errorf("the state is %s, %+v", s.Status, s.Addons)
	}
	if c := s.Conditions[len(s.Conditions)-1]; c.Type != addonsReady || c.Status != "True" {
		t.Errorf("the conditions are %+v", s.Conditions)
	}
	before := len(w.log)
	if s, err = w.engine().ApplyCluster(background, spec, &s, quick); err != nil || strings.Contains(strings.Join(w.log[before:], " "), "install") {
		t.Errorf("a second apply: %v, it did %s", err, w.log[before:])
	}
	w.apiDown = errors.New("connection refused")
	before = len(w.log)
	if left, err := w.engine().DeleteCluster(background, spec, s.Nodes, quick); err != nil || len(left) > 0 || len(w.releases) != 4 || len(w.log) > before {
		t.Errorf("the destroy: %v, left %v, it did %s", err, left, w.log[before:])
	}
}

// withWork is a group whose cluster has add-ons to work on.
func withWork(g group, network, storage bool) group {
	g.addons = addonWork{network, storage}
	return g
}

func TestPlanOfAddons(t *testing.T) {
	for name, tc := range map[string]struct {
		group group
		want  string
	}{
		"a new cluster": {withWork(testGroup(record.Server, 3, "a", "b", "d"), true, true), `
boot
  c-cp-1@a: define clone seed start agent bootstrap network ready seal
  c-cp-2@b: define clone seed start agent bootstrap
  c-cp-3@d: define clone seed start agent bootstrap
join
  c-cp-2@b: leave forget admit bootstrap ready seal
join
  c-cp-3@d: leave forget admit bootstrap ready seal
storage
  the cluster: storage
`},
		"a network that is gone, and a server that is off": {
			withWork(withReady(testGroup(record.Server, 2, "a").with("1@a", "2@a!")), true, true), `
start
  c-cp-2@a: start agent
network
  the cluster: network
ready
  c-cp-1@a: ready
  c-cp-2@a: ready
storage
  the cluster: storage
`},
		"storage that comes later": {withWork(withReady(testGroup(record.Server, 1, "a").with("1@a"), "c-cp-1"), false, true), `
storage
  the cluster: storage
`},
		"a pool that grows": {withWork(testGroup(record.Agent, 2, "a").with("1@a"), false, true), `
nodes
  c-w-2@a: forget define clone seed start agent bootstrap ready label seal
storage
  the cluster: storage
`},
		"a pool that shrinks": {withWork(testGroup(record.Agent, 1, "a").with("1@a", "2@a"), false, true), `
remove
  c-w-2@a: drain stop forget delete
`},
	} {
		t.Run(name, func(t *testing.T) { wantPlan(t, tc.group, tc.want) })
	}
}

// A chart that cannot be got, and values that contradict the provider's, end an apply before it has made anything.
func TestAddonsThatCannotBe(t *testing.T) {
	w := newWorld(t, "a")
	w.fetchErr = errors.New("no such chart")
	if _, err := w.engine().ApplyCluster(background, with(cilium), nil, quick); err == nil || !strings.Contains(err.Error(), "no such chart") || w.names() != "" {
		t.Errorf("%v, VMs %q", err, w.names())
	}
	w.fetchErr = nil
	spec := with(cilium)
	spec.Settings.CNI.Chart.Values = "bad"
	if _, err := w.engine().ApplyCluster(background, spec, nil, quick); err == nil || !strings.Contains(err.Error(), "bad values") || w.names() != "" {
		t.Errorf("%v, VMs %q", err, w.names())
	}
}

// Where nodes stay not Ready because their network does not run, the error shows what its pods wait for, and no VM is made
// anew for that.
func TestNetworkThatDoesNotRun(t *testing.T) {
	w := newWorld(t, "a")
	w.unhealthy[Cilium] = &Unavailable{Addon: Cilium, Workloads: []string{"DaemonSet kube-system/cilium: 0 of 1 available"}, Pods: []string{"pod kube-system/cilium-x on c-cp-1: ErrImagePull: no such image"}}
	s, err := w.engine().ApplyCluster(background, with(cilium), nil, quick)
	var f *Failure
	if !errors.As(err, &f) || !strings.Contains(err.Error(), "ErrImagePull") || !strings.Contains(err.Error(), "cni plugin not initialized") || w.started["c-cp-1"] != 1 {
		t.Fatalf("got %v after %d starts", err, w.started["c-cp-1"])
	}
	if !strings.Contains(f.Cause, "network plugin") {
		t.Errorf("the cause is %q", f.Cause)
	}
	delete(w.unhealthy, Cilium)
	if s, err = w.engine().ApplyCluster(background, with(cilium), &s, quick); err != nil || s.Status != Active {
		t.Errorf("the next apply: %v, %+v", err, s)
	}
}

// More nodes let Longhorn keep more copies, and pools wait for what could not run before them.
func TestPoolsFinishAddons(t *testing.T) {
	w := newWorld(t, "a")
	spec := with(onLonghorn)
	w.unhealthy[Longhorn] = &Unavailable{Addon: Longhorn}
	e := w.engine()
	taint := func(s *Spec) {
		s.Extra.Args = []string{"--node-taint=node-role.kubernetes.io/control-plane:NoSchedule"}
	}
	taint(&spec)
	w.tainted = true
	s, err := e.ApplyCluster(background, spec, nil, quick)
	if err != nil || len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0].Error(), "1 of 3 copies") {
		t.Fatalf("a cluster none of whose nodes takes pods: %v, %v", err, s.Warnings)
	}
	delete(w.unhealthy, Longhorn)
	p, err := e.ApplyPool(background, testPool(2), nil, quick)
	if err != nil || w.releases[Longhorn].copies != 2 || len(p.Warnings) != 1 || !strings.Contains(p.Warnings[0].Error(), "2 of 3 copies") {
		t.Errorf("%v, %+v, %v", err, w.releases, p.Warnings)
	}
	if s, err = e.ReadCluster(background, s.Spec, s.Nodes); err != nil || s.Addons[Longhorn].State != AddonDeployed || s.Status != Active {
		t.Errorf("%v, %+v", err, s)
	}
	if p, err = e.ApplyPool(background, testPool(3), &p, quick); err != nil || w.releases[Longhorn].copies != 3 || len(p.Warnings) != 0 {
		t.Errorf("%v, %+v, %v", err, w.releases, p.Warnings)
	}
	// What add-ons lack is no reason to fail a pool whose nodes are there, which would make them anew.
	w.unhealthy[Longhorn] = &Unavailable{Addon: Longhorn, Workloads: []string{"Deployment longhorn-system/csi-attacher: 0 of 1 available"}}
	if p, err = e.ApplyPool(background, testPool(4), &p, quick); err != nil || len(p.Warnings) != 1 || !strings.Contains(p.Warnings[0].Error(), "csi-attacher") {
		t.Errorf("%v, %v", err, p.Warnings)
	}
	if got := w.installed(); len(got) != 1 {
		t.Errorf("installed %v", got)
	}
}

// A tier that comes later needs of the nodes that stand what new ones are asked for.
func TestStorageEnabledLater(t *testing.T) {
	w := newWorld(t, "a", "b")
	e, s, _ := up(t, w, 1)
	w.lacks["c-w-1"] = "iscsiadm is missing\niscsid does not run\n"
	spec := with(onLonghorn)
	got, err := e.ApplyCluster(background, spec, &s, quick)
	if err == nil || !strings.Contains(err.Error(), `node "c-w-1" on hypervisor`) || !strings.Contains(err.Error(), "iscsiadm is missing; iscsid does not run") || len(w.installed()) > 0 {
		t.Fatalf("%v, installed %v", err, w.installed())
	}
	if got.Spec.Settings.CSI.Longhorn != nil {
		t.Error("the state tells of Longhorn")
	}
	delete(w.lacks, "c-w-1")
	r, err := e.CheckCluster(background, spec, &got)
	if err != nil || !slices.Equal(r.Addons, []Addon{Longhorn}) || len(r.Problems) > 0 {
		t.Errorf("%v, %+v", err, r)
	}
	if got, err = e.ApplyCluster(background, spec, &got, quick); err != nil || got.Spec.Settings.CSI.Longhorn == nil || got.Addons[Longhorn].State != AddonDeployed {
		t.Errorf("%v, %+v", err, got)
	}
}

// A default class that somebody else has made is told of, and is nothing to mend.
func TestForeignDefaultClass(t *testing.T) {
	w := newWorld(t, "a")
	w.defaults = []string{"mine", record.NFSClass}
	s, err := w.engine().ApplyCluster(background, with(nfsAt), nil, quick)
	if c := s.Conditions[len(s.Conditions)-1]; err != nil || c.Status != "False" || !strings.Contains(c.Message, "beside nfs there are other default StorageClasses: mine") || s.Status != Active {
		t.Errorf("%v, %s, %+v", err, s.Status, c)
	}
	if r, err := w.engine().CheckCluster(background, with(nfsAt), &s); err != nil || len(r.Addons) > 0 {
		t.Errorf("%v, %+v", err, r)
	}
}

// A tier with volumes stays.
func TestStorageWithVolumes(t *testing.T) {
	w := newWorld(t, "a")
	e := w.engine()
	s, err := e.ApplyCluster(background, with(nfsAt), nil, quick)
	if err != nil {
		t.Fatal(err)
	}
	w.volumes[NFS] = []string{"pvc-1 (claim shop/data)"}
	moved := with(nfsAt)
	moved.Settings.CSI.NFS.Path = "/other"
	for name, spec := range map[string]Spec{"removed": testSpec, "moved": moved} {
		r, err := e.CheckCluster(background, spec, &s)
		if err != nil || len(r.Problems) != 1 || r.Problems[0].Field != machine.FieldNFS || !strings.Contains(r.Problems[0].Err.Error(), "shop/data") {
			t.Errorf("%s: %v, %+v", name, err, r.Problems)
		}
	}
	if _, err := e.ApplyCluster(background, testSpec, &s, quick); err == nil || !strings.Contains(err.Error(), "shop/data") || len(w.installed()) != 1 {
		t.Errorf("%v, installed %v", err, w.installed())
	}
	delete(w.volumes, NFS)
	if r, err := e.CheckCluster(background, testSpec, &s); err != nil || len(r.Problems) > 0 || !slices.Equal(r.Addons, []Addon{NFS}) {
		t.Errorf("%v, %+v", err, r)
	}
	if s, err = e.ApplyCluster(background, testSpec, &s, quick); err != nil || len(w.installed()) > 0 || len(s.Addons) > 0 {
		t.Errorf("%v, %+v", err, s.Addons)
	}
}

// What becomes of a release behind the provider's back is seen, planned and mended.
func TestAddonDrift(t *testing.T) {
	for name, spoil := range map[string]func(*world){
		"gone":    func(w *world) { delete(w.releases, Cilium) },
		"altered": func(w *world) { w.releases[NFS] = release{setting: "by hand"} },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "a")
			spec := with(func(s *Spec) { cilium(s); nfsAt(s) })
			s, err := w.engine().ApplyCluster(background, spec, nil, quick)
			if err != nil {
				t.Fatal(err)
			}
			good := maps.Clone(w.releases)
			spoil(w)
			e := w.engine()
			if s, err = e.ReadCluster(background, s.Spec, s.Nodes); err != nil || s.Status != Degraded {
				t.Errorf("%v, %s %+v", err, s.Status, s.Addons)
			}
			if r, err := e.CheckCluster(background, spec, &s); err != nil || len(r.Addons) != 1 {
				t.Errorf("%v, %+v", err, r)
			}
			if s, err = e.ApplyCluster(background, spec, &s, quick); err != nil || s.Status != Active || !maps.Equal(w.releases, good) {
				t.Errorf("%v, %+v", err, s)
			}
		})
	}
}

var addonChanges = map[string]func(*Spec){
	"storage comes":      nfsAt,
	"storage goes":       func(s *Spec) { s.Settings.CSI = record.CSI{} },
	"another registry":   func(s *Spec) { s.Settings.ImageRegistry = "registry.example" },
	"another default":    func(s *Spec) { nfsAt(s); s.Settings.CSI.DefaultClass = record.NFSClass },
	"other values":       func(s *Spec) { s.Settings.CNI.Hubble = true },
	"more servers":       func(s *Spec) { s.Servers = 3 },
	"storage and memory": func(s *Spec) { onLonghorn(s); s.Shape.MemoryMiB *= 2 },
}

// An apply that is killed after any of its steps is brought to its end by the next one, and taken back by one that wants what
// was before.
func TestAddonChangeKilledAfterEachStep(t *testing.T) {
	for name, change := range addonChanges {
		killAfterEachStep(t, name, with(func(s *Spec) { cilium(s); localPath(s) }), change)
	}
}

// Only where this machine is in the network of a server its silence says something.
func TestDialNeighbour(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := dialNeighbour(background, "127.0.0.1", port); err != nil {
		t.Errorf("a server that answers: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := dialNeighbour(background, "127.0.0.1", port); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("one that does not: %v", err)
	}
	for _, host := range []string{"203.0.113.7", "no-such-host.invalid"} {
		if err := dialNeighbour(background, host, port); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
}

// A pool tells of an export that could not be asked for when it was planned.
func TestExportOfAPool(t *testing.T) {
	w := newWorld(t, "a")
	spec := with(func(s *Spec) { s.Settings.CSI.NFS = &record.NFS{Pool: "nfs-ds"} })
	if _, err := w.engine().ApplyCluster(background, spec, nil, quick); err == nil || !strings.Contains(err.Error(), "nfs-ds") || w.names() != "" {
		t.Errorf("%v, VMs %q", err, w.names())
	}
	w.exports = map[string]machine.Export{"nfs-ds": {Server: "203.0.113.7", Path: "/export"}}
	s, err := w.engine().ApplyCluster(background, spec, nil, quick)
	if err != nil || s.Spec.Settings.CSI.NFS.Server != "203.0.113.7" || s.Spec.Settings.CSI.NFS.Path != "/export" {
		t.Errorf("%v, %+v", err, s.Spec.Settings.CSI.NFS)
	}
}
