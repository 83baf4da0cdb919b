package kubelab

import (
	"context"
	"crypto/tls"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/kubeapi"
	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/pki"
	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/wire"
)

// TestControlPlane runs the real control plane whose program LAB_CONTROLPLANE names (see tools/controlplane) and plays
// three servers towards it.
func TestControlPlane(t *testing.T) {
	program := os.Getenv("LAB_CONTROLPLANE")
	if program == "" {
		t.Skip("LAB_CONTROLPLANE does not name the program of tools/controlplane")
	}
	ctx, cancel := context.WithCancel(t.Context())
	state := t.TempDir()
	ready, done := make(chan string, 1), make(chan error, 1)
	go func() {
		done <- Run(ctx, Config{
			Listen: "127.0.0.1:0", StateDir: state, ControlPlane: program, K3sDouble: "/nonexistent", Ready: func(url string) { ready <- url },
		})
	}()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		restingSize(t, state)
	}()
	p := &players{t: t, c: wire.NewClient(<-ready), alive: map[string]wire.Server{}}

	first := p.server("cp-1", "aaaa")
	p.create(first)
	p.access(first)
	second, third := p.server("cp-2", "bbbb"), p.server("cp-3", "cccc")
	p.join(second)
	p.join(third)
	p.agent("w-1")

	// One of three is lost: the API goes on. Its name is taken until its member is out.
	p.lose(second)
	if p.state() != stateRunning {
		t.Error("two of three servers are not enough")
	}
	again := p.server("cp-2", "dddd")
	if code := p.attach(again); code != wire.CodeDuplicate {
		t.Errorf("the name of a member that is lost: %q", code)
	}
	p.voter(second, "False", "Unhealthy")
	p.ask(second, "true")
	p.eventually("the removal of the lost member", func() bool {
		meta := p.node("cp-2").Metadata.Annotations
		return meta[etcdRemoved] == second.Member && meta[etcdNodeName] == ""
	})
	p.voter(second, "False", "NotAMember")
	if code := p.attach(second); code != wire.CodeRemoved {
		t.Errorf("a removed member comes back: %q", code)
	}
	p.delete("cp-2")
	p.join(again)

	// A living one leaves by the deletion of its node, and hears of it.
	p.delete("cp-3")
	if beat, err := p.c.Beat(ctx, p.w.ID, p.w.Key, third.Member); err != nil || !beat.Removed {
		t.Errorf("a removed member hears %+v, %v", beat, err)
	}
	delete(p.alive, third.Member)
	p.delete("w-1")

	// One of two is lost: nothing answers before it is back.
	p.lose(again)
	p.eventually("the freeze", func() bool { return p.state() == stateFrozen })
	if code := p.attach(p.server("cp-4", "eeee")); code != wire.CodeNoQuorum {
		t.Errorf("joining without a quorum: %q", code)
	}
	if code := p.attach(again); code != "" {
		t.Errorf("coming back without a quorum: %q", code)
	}
	p.alive[again.Member] = again
	p.eventually("the thaw", func() bool { return p.state() == stateRunning })
	p.ask(again, "true")
	p.eventually("the removal of one of two", func() bool { return p.node("cp-2").Metadata.Annotations[etcdRemoved] != "" })

	// The last one cannot leave: the request is taken back.
	p.ask(first, "true")
	p.eventually("the refusal", func() bool {
		_, asked := p.node("cp-1").Metadata.Annotations[etcdRemove]
		return !asked
	})
	p.voter(first, "True", "MemberNotLearner")
}

// players are the servers and nodes that the test plays.
type players struct {
	t   *testing.T
	c   *wire.Client
	w   wire.Cluster
	api *kubeapi.Client
	// alive are the servers that send signs of life, by member.
	alive map[string]wire.Server
}

func (p *players) server(node, id string) wire.Server {
	return wire.Server{Member: node + "-" + id, Node: node, Address: "192.0.2." + node[len(node)-1:], TokenHash: "h"}
}

// create makes the cluster with its first server.
func (p *players) create(s wire.Server) {
	p.t.Helper()
	w, err := p.c.Create(p.t.Context(), wire.CreateRequest{Server: s, Settings: wire.Settings{
		Etcd: true, ClusterCIDR: "10.42.0.0/16", ServiceCIDR: "10.43.0.0/16", NodePortRange: "30000-32767", TokenHash: "h", CloudController: true,
	}})
	if err != nil {
		p.t.Fatal(err)
	}
	p.w, p.api = w, frontClient(p.t, w)
	p.alive[s.Member] = s
	p.eventually("the API", func() bool { _, err := p.api.Raw(p.t.Context(), "/readyz"); return err == nil })
	p.register(s.Node, map[string]string{etcdLabel: "true", controlPlaneLabel: "true"}, map[string]string{etcdNodeName: s.Member})
	p.voter(s, "True", "MemberNotLearner")
}

// access tries what must be refused.
func (p *players) access(first wire.Server) {
	p.t.Helper()
	if _, err := p.c.Beat(p.t.Context(), p.w.ID, "wrong", first.Member); err == nil {
		p.t.Error("a wrong key was let in")
	}
	stranger := p.server("cp-2", "bbbb")
	stranger.TokenHash = "other"
	if code := p.attach(stranger); code != wire.CodeToken {
		p.t.Errorf("another token: %q", code)
	}
	if code := anonymous(p.t, p.w); code != http.StatusUnauthorized {
		p.t.Errorf("anonymous access: %d, want 401", code)
	}
}

// attach starts a server and returns the code of its refusal.
func (p *players) attach(s wire.Server) string {
	p.t.Helper()
	_, err := p.c.Attach(p.t.Context(), p.w.ID, p.w.Key, s)
	var refused *wire.Error
	if err != nil && !errors.As(err, &refused) {
		p.t.Fatal(err)
	}
	if refused != nil {
		return refused.Code
	}
	return ""
}

// join lets a server join and waits until it votes.
func (p *players) join(s wire.Server) {
	p.t.Helper()
	if code := p.attach(s); code != "" {
		p.t.Fatalf("%s: %s", s.Node, code)
	}
	p.alive[s.Member] = s
	p.register(s.Node, map[string]string{etcdLabel: "true", controlPlaneLabel: "true"}, map[string]string{etcdNodeName: s.Member})
	if code := p.attach(p.server("cp-9", "9999")); code != wire.CodeBusy {
		p.t.Errorf("a second learner: %q", code)
	}
	p.voter(s, "True", "MemberNotLearner")
	p.eventually("the cloud controller and the finalizer", func() bool {
		n := p.node(s.Node)
		return n.Spec.ProviderID == "k3s://"+s.Node && slices.Contains(n.Metadata.Finalizers, etcdFinalizer) &&
			n.Metadata.Labels["node.kubernetes.io/instance-type"] == "k3s" && !slices.ContainsFunc(n.Spec.Taints, func(x kubeapi.Taint) bool { return x.Key == cloudTaint })
	})
}

// agent registers a node without a member of etcd: it has the finalizer, and no condition.
func (p *players) agent(name string) {
	p.t.Helper()
	p.register(name, nil, nil)
	p.eventually("the agent's finalizer", func() bool { return slices.Contains(p.node(name).Metadata.Finalizers, etcdFinalizer) })
	if n := p.node(name); slices.ContainsFunc(n.Status.Conditions, func(c kubeapi.Condition) bool { return c.Type == etcdVoter }) {
		p.t.Errorf("an agent has the condition %s", etcdVoter)
	}
}

func (p *players) register(name string, labels, annotations map[string]string) {
	p.t.Helper()
	if err := p.api.Create(p.t.Context(), "/api/v1/nodes", kubeapi.Node{
		APIVersion: "v1", Kind: "Node", Metadata: kubeapi.Meta{Name: name, Labels: labels, Annotations: annotations},
		Spec: kubeapi.NodeSpec{Taints: []kubeapi.Taint{{Key: cloudTaint, Effect: "NoSchedule"}}},
	}, nil); err != nil {
		p.t.Fatal(err)
	}
}

// lose makes a server fall silent. The API must outlast it as long as there is a quorum.
func (p *players) lose(s wire.Server) {
	p.t.Helper()
	delete(p.alive, s.Member)
	if err := p.c.Leave(p.t.Context(), p.w.ID, p.w.Key, s.Member); err != nil {
		p.t.Fatal(err)
	}
	p.eventually("the loss of "+s.Node, func() bool {
		members, err := p.c.Members(p.t.Context(), p.w.ID, p.w.Key)
		return err == nil && slices.ContainsFunc(members, func(m wire.MemberSummary) bool { return m.Name == s.Member && !m.Alive })
	})
}

// ask asks for the removal of a server's member.
func (p *players) ask(s wire.Server, value string) {
	p.t.Helper()
	if err := p.api.Patch(p.t.Context(), "/api/v1/nodes/"+s.Node, kubeapi.MergePatch, metadata("annotations", map[string]any{etcdRemove: value}), nil); err != nil {
		p.t.Fatal(err)
	}
}

// voter waits for the condition that tells how a member stands. It must be there again and again while the kubelet
// writes its own conditions.
func (p *players) voter(s wire.Server, status, reason string) {
	p.t.Helper()
	told := func(n kubeapi.Node) bool {
		return has(n, kubeapi.Condition{Type: etcdVoter, Status: status, Reason: reason})
	}
	p.eventually(s.Node+" "+reason, func() bool { return told(p.node(s.Node)) })
	ready := kubeapi.Condition{Type: "Ready", Status: "True", Reason: "KubeletReady"}
	patch := map[string]any{"status": kubeapi.NodeStatus{Conditions: []kubeapi.Condition{ready}}}
	var n kubeapi.Node
	if err := p.api.Patch(p.t.Context(), "/api/v1/nodes/"+s.Node+"/status", kubeapi.StrategicPatch, patch, &n); err != nil || !told(n) || !has(n, ready) {
		p.t.Errorf("after the kubelet wrote its status the conditions are %+v, %v", n.Status.Conditions, err)
	}
}

func has(n kubeapi.Node, want kubeapi.Condition) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c kubeapi.Condition) bool {
		return c.Type == want.Type && c.Status == want.Status && c.Reason == want.Reason
	})
}

// delete deletes a node and waits until it is gone.
func (p *players) delete(name string) {
	p.t.Helper()
	path := "/api/v1/nodes/" + name
	if err := p.api.Delete(p.t.Context(), path, nil); err != nil {
		p.t.Fatal(err)
	}
	p.eventually("the end of "+name, func() bool { return kubeapi.IsNotFound(p.api.Get(p.t.Context(), path, nil)) })
}

func (p *players) node(name string) kubeapi.Node {
	p.t.Helper()
	var n kubeapi.Node
	if err := p.api.Get(p.t.Context(), "/api/v1/nodes/"+name, &n); err != nil {
		p.t.Fatal(err)
	}
	return n
}

func (p *players) state() string {
	p.t.Helper()
	all, err := p.c.Clusters(p.t.Context())
	if err != nil || len(all) != 1 {
		p.t.Fatalf("%v, %v", all, err)
	}
	return all[0].State
}

// eventually waits for f while all living servers give their signs of life.
func (p *players) eventually(what string, f func() bool) {
	p.t.Helper()
	start := time.Now()
	for !f() {
		if time.Since(start) > 2*time.Minute {
			p.t.Fatalf("%s did not come", what)
		}
		for _, s := range p.alive {
			if _, err := p.c.Beat(p.t.Context(), p.w.ID, p.w.Key, s.Member); err != nil {
				p.t.Fatal(err)
			}
		}
		time.Sleep(500 * time.Millisecond)
	}
	p.t.Logf("%s: %v", what, time.Since(start).Round(time.Millisecond))
}

// restingSize shows that a cluster which nobody asks takes little of the disk.
func restingSize(t *testing.T, dir string) {
	t.Helper()
	var size int64
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			size += info.Sys().(*syscall.Stat_t).Blocks * 512
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("at rest it takes %d MB", size/1_000_000)
	if size > 32<<20 {
		t.Errorf("at rest it takes %d bytes", size)
	}
}

// frontClient is an admin by the front-proxy method, as a guest's server is.
func frontClient(t *testing.T, w wire.Cluster) *kubeapi.Client {
	t.Helper()
	pair, err := tls.X509KeyPair([]byte(w.Proxy.Cert), []byte(w.Proxy.Key))
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pki.Pool(w.ServerCA.Cert), Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}}
	return &kubeapi.Client{Base: func() string { return w.API }, HTTP: &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		r = r.Clone(r.Context())
		r.Header.Set("X-Remote-User", "test")
		r.Header.Set("X-Remote-Group", "system:masters")
		return transport.RoundTrip(r)
	})}}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func anonymous(t *testing.T, w wire.Cluster) int {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pki.Pool(w.ServerCA.Cert), MinVersion: tls.VersionTLS12}}}
	resp, err := c.Get(w.API + "/version")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}
