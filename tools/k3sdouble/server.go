package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/kubeapi"
	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/pki"
	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/wire"
)

const (
	apiRetry  = time.Second
	beatEvery = 5 * time.Second
	// quorumGrace is how long the datastore may be silent before k3s exits, as it does when its controllers cannot
	// renew their leases.
	quorumGrace = 15 * time.Second
)

// server is a running `k3s server`.
type server struct {
	o      *options
	ctl    *wire.Client
	member string
	// secret is the server token's; agentSecret that of the agent token, if there is one.
	secret, agentSecret string

	cluster            wire.Cluster
	api                atomic.Pointer[string] // URL of the native API server
	serverCA, clientCA *pki.Authority
	verifier           *verifier
	admin              *kubeapi.Client
	balancer           *balancer
	// learner is true until the member votes; ready, once the API has answered.
	learner, ready atomic.Bool
}

func runServer(ctx context.Context, o *options, control string) error {
	s := &server{o: o, ctl: wire.NewClient(control), balancer: &balancer{}}
	var err error
	if s.agentSecret, err = agentSecret(o); err != nil {
		return err
	}
	if err := s.prepare(ctx); err != nil {
		return fmt.Errorf("starting kubernetes: preparing server: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	if err := s.listen(ctx, group); err != nil {
		return err
	}
	s.balancer.setServers([]string{net.JoinHostPort("127.0.0.1", port(o.values))})
	local, err := s.balancer.listen(ctx, o.lbPort)
	if err != nil {
		return err
	}
	group.Go(func() error { return s.balancer.serve(ctx, local) })
	group.Go(func() error { return s.heartbeat(ctx) })
	group.Go(func() error {
		log.infof("Running kube-apiserver %s", s.o.version)
		if err := s.waitAPI(ctx); err != nil {
			return err
		}
		s.ready.Store(true)
		log.infof("k3s is up and running")
		if err := notifyReady(); err != nil {
			return err
		}
		group.Go(func() error { return s.deployManifests(ctx) })
		if o.values.is("disable-agent", false) {
			return nil
		}
		group.Go(func() error { return s.labelNode(ctx) })
		return runNode(ctx, o, fmt.Sprintf("https://127.0.0.1:%d", o.lbPort), formatToken(s.cluster.ServerCA.Cert, "server", s.secret), s.balancer)
	})
	err = group.Wait()
	s.leave(context.WithoutCancel(ctx))
	return err
}

// agentSecret is the secret of --agent-token.
func agentSecret(o *options) (string, error) {
	text, err := secretOf(o.values, "agent-token")
	if err != nil || text == "" {
		return "", err
	}
	t, err := parseToken(text)
	return t.secret, err
}

// prepare finds the cluster and writes every file that belongs to it.
func (s *server) prepare(ctx context.Context) error {
	if err := s.bootstrap(ctx); err != nil {
		return err
	}
	var err error
	if s.serverCA, err = pki.ParseAuthority(s.cluster.ServerCA.Cert, s.cluster.ServerCA.Key); err != nil {
		return err
	}
	if s.clientCA, err = pki.ParseAuthority(s.cluster.ClientCA.Cert, s.cluster.ClientCA.Key); err != nil {
		return err
	}
	s.verifier = &verifier{roots: pki.Pool(s.cluster.ClientCA.Cert), known: map[[32]byte]time.Time{}}
	proxy, err := tls.X509KeyPair([]byte(s.cluster.Proxy.Cert), []byte(s.cluster.Proxy.Key))
	if err != nil {
		return err
	}
	s.admin = &kubeapi.Client{
		Base: func() string { return *s.api.Load() },
		HTTP: &http.Client{Transport: frontProxy{
			base: apiTransport(s.cluster.ServerCA.Cert, &proxy, true),
			id:   identity{user: "system:k3s-supervisor", groups: []string{"system:masters", "system:authenticated"}},
		}},
	}
	return s.writeFiles()
}

// listen opens port 6443.
func (s *server) listen(ctx context.Context, group *errgroup.Group) error {
	proxyCert, err := tls.X509KeyPair([]byte(s.cluster.Proxy.Cert), []byte(s.cluster.Proxy.Key))
	if err != nil {
		return err
	}
	cert, err := newServing(s.o, s.serverCA)
	if err != nil {
		return err
	}
	addr := net.JoinHostPort(s.o.values.str("bind-address", ""), port(s.o.values))
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("starting the supervisor: %w", err)
	}
	web := &http.Server{
		Handler: s.supervisor(s.newProxy(proxyCert)), ReadHeaderTimeout: 30 * time.Second, ErrorLog: stdlog.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{
			GetCertificate: cert.certificate, MinVersion: tls.VersionTLS12,
			ClientAuth: tls.RequestClientCert, ClientCAs: s.verifier.roots,
		},
	}
	group.Go(func() error {
		stop := context.AfterFunc(ctx, func() { _ = web.Close() })
		defer stop()
		if err := web.ServeTLS(l, "", ""); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serving the supervisor: %w", err)
		}
		return nil
	})
	return nil
}

// heartbeat keeps the member alive in the control plane's eyes and follows what becomes of it.
func (s *server) heartbeat(ctx context.Context) error {
	var lost time.Time
	for {
		beat, err := s.ctl.Beat(ctx, s.cluster.ID, s.cluster.Key, s.member)
		var refused *wire.Error
		switch {
		case errors.As(err, &refused):
			return fmt.Errorf("etcd exited: %w", refused)
		case err != nil:
			log.warnf("datastore: %v", err)
		case beat.Removed:
			return errors.New("etcd exited: the member has been permanently removed from the cluster")
		default:
			s.api.Store(&beat.API)
			if s.learner.Swap(beat.Learner) && !beat.Learner {
				log.infof("etcd member %s is a voting member", s.member)
			}
			if beat.Quorum {
				lost = time.Time{}
			} else if lost.IsZero() {
				lost = time.Now()
			}
		}
		if !lost.IsZero() && time.Since(lost) > quorumGrace && s.ready.Load() {
			return errors.New("leaderelection lost for k3s-etcd")
		}
		if err := sleep(ctx, beatEvery); err != nil {
			return nil //nolint:nilerr // the end of the context is the normal end
		}
	}
}

// leave says goodbye, so that the others need not wait for silence. A lab that is gone does not mind.
func (s *server) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	_ = s.ctl.Leave(ctx, s.cluster.ID, s.cluster.Key, s.member)
}

// labelNode gives this server's node the roles that a kubelet may not give itself.
func (s *server) labelNode(ctx context.Context) error {
	labels := map[string]string{"node-role.kubernetes.io/control-plane": "true"}
	if legacyMaster(s.o.version) {
		labels["node-role.kubernetes.io/master"] = "true"
	}
	annotations := map[string]string{}
	if s.cluster.Settings.Etcd {
		labels["node-role.kubernetes.io/etcd"] = "true"
		annotations["etcd.k3s.cattle.io/node-name"] = s.member
		annotations["etcd.k3s.cattle.io/node-address"] = s.o.nodeIP.String()
	}
	path := "/api/v1/nodes/" + s.o.nodeName
	patch := map[string]any{"metadata": map[string]any{"labels": labels, "annotations": annotations}}
	for {
		var n kubeapi.Node
		err := s.admin.Get(ctx, path, &n)
		// A node that was left by a removed member of its name is taken over; the removed member itself leaves it alone.
		removed := n.Metadata.Annotations["etcd.k3s.cattle.io/removed-node-name"] == s.member
		if err == nil && n.Metadata.DeletionTimestamp == nil && !removed && !covers(n.Metadata, labels, annotations) {
			err = s.admin.Patch(ctx, path, kubeapi.MergePatch, patch, nil)
		}
		if err != nil && !kubeapi.IsNotFound(err) && ctx.Err() == nil {
			log.warnf("Failed to set node roles: %v", err)
		}
		wait := 30 * time.Second
		if err != nil {
			wait = 2 * time.Second
		}
		if err := sleep(ctx, wait); err != nil {
			return nil //nolint:nilerr // the end of the context is the normal end
		}
	}
}

func covers(m kubeapi.Meta, labels, annotations map[string]string) bool {
	for k, v := range labels {
		if m.Labels[k] != v {
			return false
		}
	}
	for k, v := range annotations {
		if m.Annotations[k] != v {
			return false
		}
	}
	return true
}

// sleep waits, or returns early with ctx's error.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
