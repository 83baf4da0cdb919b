package kubelab

import (
	"context"
	"crypto/tls"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/kubeapi"
	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/pki"
	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/wire"
)

// TestControlPlane runs the real control plane whose program LAB_CONTROLPLANE names (see tools/controlplane) and plays
// two servers towards it.
func TestControlPlane(t *testing.T) {
	program := os.Getenv("LAB_CONTROLPLANE")
	if program == "" {
		t.Skip("LAB_CONTROLPLANE does not name the program of tools/controlplane")
	}
	ctx, cancel := context.WithCancel(t.Context())
	ready, done := make(chan string, 1), make(chan error, 1)
	go func() {
		done <- Run(ctx, Config{
			Listen: "127.0.0.1:0", StateDir: t.TempDir(), ControlPlane: program, K3sDouble: "/nonexistent", Ready: func(url string) { ready <- url },
		})
	}()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	c := wire.NewClient(<-ready)

	first := wire.Server{Member: "cp-1-aaaa", Node: "cp-1", Address: "192.0.2.1", TokenHash: "h"}
	w, err := c.Create(ctx, wire.CreateRequest{Server: first, Settings: wire.Settings{
		Etcd: true, ClusterCIDR: "10.42.0.0/16", ServiceCIDR: "10.43.0.0/16", NodePortRange: "30000-32767", TokenHash: "h", CloudController: true,
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Beat(ctx, w.ID, "wrong", first.Member); err == nil {
		t.Error("a wrong key was let in")
	}
	if _, err := c.Attach(ctx, w.ID, w.Key, wire.Server{Member: "cp-2-bbbb", Node: "cp-2", TokenHash: "other"}); err == nil || err.(*wire.Error).Code != wire.CodeToken { //nolint:errorlint,forcetypeassert // a refusal is that
		t.Errorf("another token: %v", err)
	}
	api := frontClient(t, w)
	eventually(t, "the API", func() bool { _, err := api.Raw(ctx, "/readyz"); return err == nil })
	if code := anonymous(t, w); code != http.StatusUnauthorized {
		t.Errorf("anonymous access: %d, want 401", code)
	}

	second := wire.Server{Member: "cp-2-bbbb", Node: "cp-2", Address: "192.0.2.2", TokenHash: "h"}
	if _, err := c.Attach(ctx, w.ID, w.Key, second); err != nil {
		t.Fatal(err)
	}
	alive := func() {
		for _, s := range []wire.Server{first, second} {
			if _, err := c.Beat(ctx, w.ID, w.Key, s.Member); err != nil {
				t.Fatal(err)
			}
		}
	}
	eventually(t, "the second voter", func() bool {
		alive()
		members, err := c.Members(ctx, w.ID, w.Key)
		return err == nil && len(members) == 2 && !members[1].Learner
	})
	for _, s := range []wire.Server{first, second} {
		if err := api.Create(ctx, "/api/v1/nodes", kubeapi.Node{APIVersion: "v1", Kind: "Node", Metadata: kubeapi.Meta{
			Name: s.Node, Labels: map[string]string{etcdLabel: "true", controlPlaneLabel: "true"}, Annotations: map[string]string{etcdNodeName: s.Member},
		}, Spec: kubeapi.NodeSpec{Taints: []kubeapi.Taint{{Key: cloudTaint, Effect: "NoSchedule"}}}}, nil); err != nil {
			t.Fatal(err)
		}
	}
	var n kubeapi.Node
	eventually(t, "the cloud controller and the finalizer", func() bool {
		alive()
		n = kubeapi.Node{}
		err := api.Get(ctx, "/api/v1/nodes/cp-2", &n)
		return err == nil && n.Spec.ProviderID == "k3s://cp-2" && slices.Contains(n.Metadata.Finalizers, etcdFinalizer) &&
			n.Metadata.Labels["node.kubernetes.io/instance-type"] == "k3s" && !slices.ContainsFunc(n.Spec.Taints, func(x kubeapi.Taint) bool { return x.Key == cloudTaint })
	})
	if err := api.Delete(ctx, "/api/v1/nodes/cp-2", nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the member's removal", func() bool {
		beat, err := c.Beat(ctx, w.ID, w.Key, second.Member)
		return err == nil && beat.Removed && kubeapi.IsNotFound(api.Get(ctx, "/api/v1/nodes/cp-2", &n))
	})

	if err := c.Leave(ctx, w.ID, w.Key, first.Member); err != nil {
		t.Fatal(err)
	}
	state := func() string {
		all, err := c.Clusters(ctx)
		if err != nil || len(all) != 1 {
			t.Fatalf("%v, %v", all, err)
		}
		return all[0].State
	}
	eventually(t, "the freeze", func() bool { return state() == stateFrozen })
	if _, err := c.Attach(ctx, w.ID, w.Key, first); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the thaw", func() bool { return state() == stateRunning })
	if err := api.Get(ctx, "/api/v1/nodes/cp-1", &n); err != nil {
		t.Errorf("after the thaw: %v", err)
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

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	start := time.Now()
	defer func() { t.Logf("%s: %v", what, time.Since(start).Round(time.Millisecond)) }()
	for deadline := time.Now().Add(2 * time.Minute); !f(); {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not come", what)
		}
		time.Sleep(500 * time.Millisecond)
	}
}
