package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/wire"
)

// controlPlane is a stand-in for the lab's service that answers an attach as told.
func controlPlane(t *testing.T, answers ...*wire.Error) (*wire.Client, *[]wire.Server) {
	t.Helper()
	var seen []wire.Server
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m wire.Server
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			t.Error(err)
		}
		seen = append(seen, m)
		if len(answers) > 0 {
			e := answers[0]
			answers = answers[1:]
			w.WriteHeader(http.StatusConflict)
			_ = json.NewEncoder(w).Encode(e)
			return
		}
		sendJSON(w, wire.Cluster{ID: "id", Key: "key", API: "https://api"})
	}))
	t.Cleanup(web.Close)
	return wire.NewClient(web.URL), &seen
}

// A server may join at a load balancer: behind it the first that answers lets it in.
func TestJoinThroughALoadBalancer(t *testing.T) {
	first, url, _ := behind(t)
	first.cluster.ID, first.cluster.Key, first.cluster.Settings.Etcd = "id", "key", true
	lb := &balancer{servers: []string{"127.0.0.1:1", hostPort(url)}}
	l, err := lb.listen(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- lb.serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	at := "https://" + l.Addr().String()
	for name, c := range map[string]struct {
		args []string
		text string
	}{
		"full token":        {[]string{"--token", formatToken(first.cluster.ServerCA.Cert, "server", "s3cret")}, ""},
		"short token":       {[]string{"--token=s3cret"}, ""},
		"another cluster's": {[]string{"--token", formatToken("another CA", "server", "s3cret")}, "token CA hash does not match"},
		"no token":          {nil, "K3S_TOKEN is required"},
		"other settings":    {[]string{"--token=s3cret", "--cluster-cidr=10.0.0.0/16"}, "critical configuration value mismatch"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &server{o: newOptions(t, "server", append(c.args, "--server", at)...)}
			var seen *[]wire.Server
			s.ctl, seen = controlPlane(t)
			err := s.bootstrap(t.Context())
			if c.text != "" {
				if err == nil || !strings.Contains(err.Error(), c.text) || len(*seen) > 0 {
					t.Errorf("got %v, want %s; it was announced as %v", err, c.text, *seen)
				}
				return
			}
			if err != nil || len(*seen) != 1 || !strings.HasPrefix((*seen)[0].Member, "node-1-") || !s.learner.Load() {
				t.Errorf("got %v; it was announced as %v", err, *seen)
			}
		})
	}
}

func TestAttachComesBackToItsCluster(t *testing.T) {
	s := &server{o: newOptions(t, "server", "--token", "s3cret")}
	var seen *[]wire.Server
	s.ctl, seen = controlPlane(t)
	s.member = "node-1-abcd"
	if err := s.adopt(wire.Cluster{ID: "id", Key: "key", API: "https://api", Settings: wire.Settings{Etcd: true}}); err != nil {
		t.Fatal(err)
	}
	again := &server{o: s.o, ctl: s.ctl}
	if err := again.bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := (*seen)[0]; got.Member != "node-1-abcd" || got.TokenHash != hashHex("s3cret") || again.cluster.ID != "id" {
		t.Errorf("attached as %+v to %q", got, again.cluster.ID)
	}
}

func TestAttachRefused(t *testing.T) {
	for want, refusal := range map[string]*wire.Error{
		"etcd cluster join failed: duplicate node name found, please use a unique name for this node": {Code: wire.CodeDuplicate, Message: "duplicate node name found, please use a unique name for this node"},
		"failed to bootstrap cluster data: different token":                                           {Code: wire.CodeToken, Message: "different token"},
		"etcd cluster join failed: permanently removed":                                               {Code: wire.CodeRemoved, Message: "permanently removed"},
	} {
		s := &server{o: newOptions(t, "server", "--token", "x")}
		s.ctl, _ = controlPlane(t, refusal)
		if err := s.attach(t.Context(), "id", "key"); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	s := &server{o: newOptions(t, "server", "--token", "x")}
	s.ctl, _ = controlPlane(t, &wire.Error{Code: wire.CodeBusy, Message: "busy"})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.attach(ctx, "id", "key"); err == nil {
		t.Error("a busy cluster was joined by a dead context")
	}
}

func TestCriticalConfig(t *testing.T) {
	a, b := newOptions(t, "server").shared(), newOptions(t, "server", "--disable-kube-proxy").shared()
	if a.critical() != b.critical() {
		t.Error("disable-kube-proxy counts as critical")
	}
	for _, arg := range []string{"--flannel-backend=none", "--disable=servicelb", "--cluster-cidr=10.0.0.0/16", "--secrets-encryption", "--disable-network-policy"} {
		if newOptions(t, "server", arg).shared().critical() == a.critical() {
			t.Errorf("%s does not count as critical", arg)
		}
	}
}
