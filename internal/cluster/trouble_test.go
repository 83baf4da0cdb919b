package cluster

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

var background = context.Background()

// A pool that somebody else has made is refused, at plan and at apply; a replacement and what an apply left half-made are not.
func TestPoolTaken(t *testing.T) {
	w := newWorld(t, "a")
	e, _, p := up(t, w, 3)
	review, err := e.CheckPool(background, testPool(1), nil)
	if err != nil || len(review.Problems) != 1 || review.Problems[0].Field != machine.FieldName {
		t.Errorf("check: %v, %v", review, err)
	}
	if _, err := e.ApplyPool(background, testPool(1), nil, quick); err == nil || !strings.Contains(err.Error(), "import that pool as c/w") {
		t.Errorf("apply: %v", err)
	}
	if got := w.names(); got != "c-cp-1 c-w-1 c-w-2 c-w-3" {
		t.Errorf("VMs: %s", got)
	}
	if review, err := e.CheckPool(background, p.Spec, &p); err != nil || len(review.Problems) > 0 {
		t.Errorf("check of the same pool: %v, %v", review, err)
	}
}

// A replacement is reviewed as if what it replaces were gone.
func TestReplacementIsReviewed(t *testing.T) {
	w := newWorld(t, "a")
	e, _, _ := up(t, w, 1)
	w.problems = []machine.Problem{{Field: machine.FieldStoragePool, Err: machine.ErrNotFound}}
	review, err := e.CheckCluster(background, testSpec, nil)
	if err != nil || len(review.Problems) != 1 || review.Problems[0].Field != machine.FieldStoragePool {
		t.Errorf("cluster: %v, %v", review, err)
	}
	if review, err = e.CheckPool(background, testPool(1), nil); err != nil || len(review.Problems) != 2 || review.Problems[0].Field != machine.FieldStoragePool {
		t.Errorf("pool: %v, %v", review, err)
	}
}

func TestPoolWithoutItsCluster(t *testing.T) {
	w := newWorld(t, "a")
	e := w.engine()
	review, err := e.CheckPool(background, testPool(1), nil)
	if err != nil || len(review.Problems) != 1 || review.Problems[0].Field != machine.FieldCluster {
		t.Errorf("%v, %v", review, err)
	}
	unknown := testPool(1)
	unknown.ClusterID = ""
	if review, err := e.CheckPool(background, unknown, nil); err != nil || len(review.Problems) > 0 {
		t.Errorf("a cluster that is planned with it: %v, %v", review, err)
	}
}

// One host under two names would count each VM twice and remove half of them.
func TestOneHostUnderTwoNames(t *testing.T) {
	o := machine.Observation{Machines: []machine.Machine{
		{Hypervisor: "a", Name: "c-w-1", UUID: "1"}, {Hypervisor: "a", Name: "c-w-2", UUID: "2"}, {Hypervisor: "b", Name: "c-w-1", UUID: "1"},
	}}
	if err := seenTwice(o); err == nil || !strings.Contains(err.Error(), `"a" and "b" both have the VM "c-w-1"`) {
		t.Errorf("got %v", err)
	}
	o.Machines = o.Machines[:2]
	if err := seenTwice(o); err != nil {
		t.Error(err)
	}
}

// An agent that is gone for a moment fails neither the join nor the kubeconfig.
func TestMomentOfSilence(t *testing.T) {
	w := newWorld(t, "a")
	e := w.engine()
	slow := Waits{Agent: time.Minute, Bootstrap: time.Minute, Ready: time.Minute}
	if _, err := e.ApplyCluster(background, testSpec, nil, slow); err != nil {
		t.Fatal(err)
	}
	w.silentAgents = 1
	if _, err := e.ApplyPool(background, testPool(1), nil, slow); err != nil {
		t.Error(err)
	}
	w.silentAgents = 1
	if _, err := e.Kubeconfig(background, testSpec.ID); err != nil {
		t.Error(err)
	}
}

// What the API says of a node from before its VM was restarted does not count.
func TestRestartedNodeMustReport(t *testing.T) {
	w := newWorld(t, "a")
	e, _, p := up(t, w, 1)
	if err := w.Stop(background, w.machine("c-w-1"), 0); err != nil {
		t.Fatal(err)
	}
	w.staleNodes = true
	if _, err := e.ApplyPool(background, p.Spec, &p, quick); err == nil || !strings.Contains(err.Error(), "has not reported since its VM was started") {
		t.Errorf("got %v", err)
	}
}

// A look that began before a change is not taken for one after it.
func TestStaleLook(t *testing.T) {
	w := newWorld(t, "a")
	e, s, p := up(t, w, 1)
	e.changed() // or the look would be shared with the apply before
	begun, goOn := make(chan struct{}), make(chan struct{})
	w.observing = func() {
		w.observing = nil
		close(begun)
		<-goOn
	}
	done := make(chan error)
	go func() {
		_, err := e.ReadPool(background, p.Spec, p.Nodes)
		done <- err
	}()
	<-begun
	e.changed()
	if err := firstError(e.DeletePool(background, p.Spec, p.Nodes, quick)); err != nil {
		t.Error(err)
	}
	if err := firstError(e.DeleteCluster(background, s.Spec, s.Nodes, quick)); err != nil {
		t.Errorf("the cluster was judged by a look from before its pool went: %v", err)
	}
	close(goOn)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func firstError[T any](_ T, err error) error { return err }

// A domain whose definition was under way when the apply was interrupted stays in the state.
func TestInterruptedDefine(t *testing.T) {
	w := newWorld(t, "a")
	ctx, cancel := context.WithCancel(background)
	w.duringDefine = cancel
	s, err := w.engine().ApplyCluster(ctx, testSpec, nil, quick)
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), `stopped in phase "define"`) {
		t.Errorf("got %v", err)
	}
	if len(s.Nodes) != 1 || s.Nodes["c-cp-1"].UUID != w.machine("c-cp-1").UUID {
		t.Errorf("the state holds %v", s.Nodes)
	}
	if s, err = w.engine().ApplyCluster(background, testSpec, &s, quick); err != nil || len(w.machines) != 1 || s.Nodes["c-cp-1"].State != NodeReady {
		t.Errorf("the next apply: %v, %v", err, s.Nodes)
	}
}

// The end of the operation's own time names the phase and what was in the way.
func TestTimeIsOver(t *testing.T) {
	w := newWorld(t, "a")
	w.guests["c-cp-1"] = &fakeGuest{times: 9, notReady: true}
	ctx, cancel := context.WithTimeout(background, 50*time.Millisecond)
	defer cancel()
	slow := Waits{Agent: time.Minute, Bootstrap: time.Minute, Ready: time.Minute}
	s, err := w.engine().ApplyCluster(ctx, testSpec, nil, slow)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{`stopped in phase "ready"`, "cni plugin not initialized", `node "c-cp-1"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the text lacks %q: %v", want, err)
		}
	}
	if len(s.Nodes) != 1 {
		t.Errorf("the state holds %v", s.Nodes)
	}
}

// What could not be removed stays in the state.
func TestRemovalThatFails(t *testing.T) {
	w := newWorld(t, "a")
	e, _, p := up(t, w, 2)
	w.vanish("c-w-2")
	w.deleteErr = errors.New("volume is busy")
	again, err := e.ApplyPool(background, p.Spec, &p, quick)
	if err == nil || again.Nodes["c-w-2"].UUID != p.Nodes["c-w-2"].UUID {
		t.Errorf("apply: %v, state %v", err, again.Nodes)
	}
	left, err := e.DeletePool(background, p.Spec, p.Nodes, quick)
	if err == nil || len(left.Nodes) != 2 {
		t.Errorf("delete: %v, left %v", err, left)
	}
	w.deleteErr = nil
	if left, err := e.DeletePool(background, p.Spec, left.Nodes, quick); err != nil || len(left.Nodes) > 0 {
		t.Errorf("second delete: %v, left %v", err, left)
	}
}

// A VM whose record cannot be read is neither gone nor touched.
func TestUnreadableRecord(t *testing.T) {
	w := newWorld(t, "a")
	e, s, p := up(t, w, 1)
	w.unreadable = map[string]error{p.Nodes["c-w-1"].UUID: record.ErrNewer, s.Nodes["c-cp-1"].UUID: record.ErrNewer}
	// The state does not vouch for nodes that were unknown before, nor does another process for what this one has seen.
	doubt := func(nodes Nodes) {
		for name, n := range nodes {
			n.State = NodeUnknown
			nodes[name] = n
		}
	}
	doubt(p.Nodes)
	doubt(s.Nodes)
	e.changed()
	got, err := e.ReadPool(background, p.Spec, p.Nodes)
	if err != nil || got.Nodes["c-w-1"].State != NodeUnknown {
		t.Errorf("pool: %v, %v", got.Nodes, err)
	}
	if s, err = e.ReadCluster(background, s.Spec, s.Nodes); err != nil || s.Nodes["c-cp-1"].State != NodeUnknown {
		t.Errorf("cluster: %v, %v", s.Nodes, err)
	}
	if _, err := e.ApplyCluster(background, s.Spec, &s, quick); err != nil || w.names() != "c-cp-1 c-w-1" || w.started["c-cp-1"] != 1 {
		t.Errorf("apply: %v, VMs %s", err, w.names())
	}
}

// While a hypervisor is silent, no cluster is deleted whose agents may stand there, none is imported, and a server that
// may stand there is not replaced by an empty one.
func TestSilentHypervisorIsRespected(t *testing.T) {
	w := newWorld(t, "a", "b")
	e, s, p := up(t, w, 2)
	server := s.Nodes["c-cp-1"].Hypervisor
	other := map[string]string{"a": "b", "b": "a"}[server]
	agents := 0
	for _, n := range p.Nodes {
		if n.Hypervisor == server {
			if err := w.Delete(background, w.machine(n.Name)); err != nil {
				t.Fatal(err)
			}
			delete(w.nodes, n.Name)
			continue
		}
		agents++
	}
	if agents == 0 {
		t.Fatal("the agents stand with the server")
	}
	w.unreachable[other] = machine.ErrUnreachable
	if err := firstError(e.DeleteCluster(background, s.Spec, s.Nodes, quick)); err == nil || !strings.Contains(err.Error(), "still has the agents") {
		t.Errorf("delete: %v", err)
	}
	w.apiDown = errors.New("connection refused")
	if err := firstError(e.DeleteCluster(background, s.Spec, s.Nodes, quick)); err == nil || !strings.Contains(err.Error(), "is not known") {
		t.Errorf("delete without an API: %v", err)
	}
	if err := firstError(e.FindCluster(background, "c")); !errors.Is(err, machine.ErrUnreachable) {
		t.Errorf("import: %v", err)
	}
	w.vanish("c-cp-1")
	if err := firstError(e.ApplyCluster(background, s.Spec, &s, quick)); err == nil || !strings.Contains(err.Error(), "not every hypervisor answers") {
		t.Errorf("apply: %v", err)
	}
}

// An agent whose record cannot be read keeps its cluster from being deleted.
func TestUnreadableAgentIsRespected(t *testing.T) {
	w := newWorld(t, "a")
	e, s, p := up(t, w, 1)
	w.unreadable = map[string]error{p.Nodes["c-w-1"].UUID: record.ErrNewer}
	if err := firstError(e.DeleteCluster(background, s.Spec, s.Nodes, quick)); err == nil || !strings.Contains(err.Error(), "still has the agents c-w-1") {
		t.Errorf("got %v", err)
	}
	w.apiDown = errors.New("connection refused")
	if err := firstError(e.DeleteCluster(background, s.Spec, s.Nodes, quick)); !errors.Is(err, record.ErrNewer) || w.names() != "c-cp-1 c-w-1" {
		t.Errorf("without an API: %v, VMs %s", err, w.names())
	}
}

// A restart of the hypervisor's daemon does not end a wait.
func TestTransient(t *testing.T) {
	for err, want := range map[error]bool{
		errNoAgent: true, fmt.Errorf("ping: %w", machine.ErrUnreachable): true, errors.New("domain not found"): false,
	} {
		if got := transient(err) == nil; got != want {
			t.Errorf("%v: transient is %t", err, got)
		}
	}
}

func TestCertificateForAnotherAddress(t *testing.T) {
	w := newWorld(t, "a")
	e, _, _ := up(t, w, 0)
	w.apiDown = fmt.Errorf("ask: %w", x509.HostnameError{
		Host: "203.0.113.9", Certificate: &x509.Certificate{DNSNames: []string{"kubernetes"}, IPAddresses: []net.IP{net.ParseIP("192.0.2.49")}},
	})
	if err := firstError(e.Kubeconfig(background, testSpec.ID)); err == nil || !strings.Contains(err.Error(), "it is for kubernetes, 192.0.2.49") {
		t.Errorf("got %v", err)
	}
	w.apiDown = errors.New("connection refused")
	if err := firstError(e.Kubeconfig(background, testSpec.ID)); err != nil {
		t.Errorf("with the API down: %v", err)
	}
}

func TestTailHidesTokens(t *testing.T) {
	log := "joining with K10" + strings.Repeat("0f", 32) + "::server:" + testSecret + " failed\n"
	if got := tail([]byte(log)); strings.Contains(got, testSecret) || !strings.Contains(got, "joining with K10… failed") {
		t.Errorf("got %q", got)
	}
}
