package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/wire"
)

const joinRetry = 5 * time.Second

// dbState is what stands on the disk in place of a datastore: whose cluster this server belongs to. A disk that is
// lost loses the cluster, as it does with the real datastore.
type dbState struct {
	ID     string `json:"id"`
	Key    string `json:"key"`
	Member string `json:"member"`
}

// sharedConfig is what /v1-k3s/config tells those who join: settings that must be equal on all servers, and those that
// agents follow.
type sharedConfig struct {
	ClusterCIDR, ServiceCIDR, ClusterDNS, ClusterDomain  string
	FlannelBackend, EgressSelectorMode                   string
	FlannelIPv6Masq, FlannelExternalIP, EmbeddedRegistry bool
	DisableCCM, DisableNPC, DisableHelm, DisableLB       bool
	EncryptSecrets                                       bool
	EncryptProvider                                      string
	DisableKubeProxy                                     bool
}

func (o *options) shared() sharedConfig {
	v := o.values
	return sharedConfig{
		ClusterCIDR: strings.Join(v.all("cluster-cidr", "10.42.0.0/16"), ","), ServiceCIDR: strings.Join(v.all("service-cidr", "10.43.0.0/16"), ","),
		ClusterDNS: strings.Join(v.all("cluster-dns"), ","), ClusterDomain: v.str("cluster-domain", "cluster.local"),
		FlannelBackend: o.flannel(), EgressSelectorMode: v.str("egress-selector-mode", "agent"),
		FlannelIPv6Masq: v.is("flannel-ipv6-masq", false), FlannelExternalIP: v.is("flannel-external-ip", false),
		EmbeddedRegistry: v.is("embedded-registry", false),
		DisableCCM:       v.is("disable-cloud-controller", false), DisableNPC: v.is("disable-network-policy", false),
		DisableHelm: v.is("disable-helm-controller", false), DisableLB: slices.Contains(o.disabled(), "servicelb"),
		EncryptSecrets: v.is("secrets-encryption", false), EncryptProvider: v.str("secrets-encryption-provider", "aescbc"),
		DisableKubeProxy: v.is("disable-kube-proxy", false),
	}
}

// critical is the part that must be equal on all servers.
func (s sharedConfig) critical() sharedConfig {
	s.DisableKubeProxy = false
	return s
}

// bootstrap finds or makes the server's cluster and makes the server a member of it.
func (s *server) bootstrap(ctx context.Context) error {
	for _, dir := range []string{s.o.path("server"), s.o.path("server", "db")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	state, err := s.readState()
	switch {
	case errors.Is(err, fs.ErrNotExist) && s.o.url == "":
		log.infof("No bootstrap data found; initializing a new cluster")
		return s.create(ctx)
	case errors.Is(err, fs.ErrNotExist):
		return s.join(ctx)
	case err != nil:
		return err
	}
	s.member = state.Member
	s.learner.Store(s.etcdOnDisk())
	return s.attach(ctx, state.ID, state.Key)
}

// create makes a new cluster with this server as its first member.
func (s *server) create(ctx context.Context) error {
	v, shared := s.o.values, s.o.shared()
	etcd := v.is("cluster-init", false)
	if err := s.chooseToken(); err != nil {
		return err
	}
	var err error
	if s.member, err = newMemberName(s.o.nodeName); err != nil {
		return err
	}
	c, err := s.ctl.Create(ctx, wire.CreateRequest{
		Settings: wire.Settings{
			Etcd: etcd, ClusterCIDR: shared.ClusterCIDR, ServiceCIDR: shared.ServiceCIDR,
			NodePortRange: v.str("service-node-port-range", "30000-32767"),
			TokenHash:     hashHex(s.secret), CloudController: !shared.DisableCCM,
		},
		Server: s.wireServer(),
	})
	if err != nil {
		return fmt.Errorf("failed to create the datastore: %w", err)
	}
	return s.adopt(c)
}

// join makes this server a member of the cluster at --server.
func (s *server) join(ctx context.Context) error {
	if s.o.token == "" {
		return errors.New("K3S_TOKEN is required to join a cluster")
	}
	a, err := connect(ctx, s.o.url, s.o.token, "server")
	if err != nil {
		return err
	}
	var c wire.Cluster
	if err := a.get(ctx, "/v1-k3s/server-bootstrap", &c); err != nil {
		return err
	}
	var theirs sharedConfig
	if err := a.get(ctx, "/v1-k3s/config", &theirs); err != nil {
		return err
	}
	if theirs.critical() != s.o.shared().critical() {
		return errors.New("failed to validate server configuration: critical configuration value mismatch between servers")
	}
	s.secret = a.secret
	if s.member, err = newMemberName(s.o.nodeName); err != nil {
		return err
	}
	s.learner.Store(true)
	log.infof("Adding member %s=https://%s:2380 to etcd cluster", s.member, s.o.nodeIP)
	return s.attach(ctx, c.ID, c.Key)
}

// attach tells the control plane that this member starts. While another member is joining, or the cluster has no
// quorum, it waits.
func (s *server) attach(ctx context.Context, id, key string) error {
	if err := s.chooseToken(); err != nil {
		return err
	}
	for {
		c, err := s.ctl.Attach(ctx, id, key, s.wireServer())
		var refused *wire.Error
		switch {
		case err == nil:
			return s.adopt(c)
		case !errors.As(err, &refused):
			return fmt.Errorf("failed to reach the datastore: %w", err)
		case refused.Code == wire.CodeBusy || refused.Code == wire.CodeNoQuorum:
			log.infof("Waiting for other members to finish joining etcd cluster: %s", refused.Message)
		case refused.Code == wire.CodeToken:
			return fmt.Errorf("failed to bootstrap cluster data: %w", refused)
		default:
			return fmt.Errorf("etcd cluster join failed: %w", refused)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(joinRetry):
		}
	}
}

func (s *server) wireServer() wire.Server {
	return wire.Server{Member: s.member, Node: s.o.nodeName, Address: s.o.nodeIP.String(), TokenHash: hashHex(s.secret)}
}

// chooseToken settles the secret: the configured one, else the one on disk, else a new one.
func (s *server) chooseToken() error {
	if s.secret != "" {
		return nil
	}
	text := s.o.token
	if text == "" {
		b, err := os.ReadFile(s.o.path("server", "token"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		text = string(b)
	}
	if strings.TrimSpace(text) == "" {
		var err error
		s.secret, err = randomHex(16)
		return err
	}
	t, err := parseToken(text)
	if err != nil {
		return err
	}
	s.secret = t.secret
	return nil
}

// adopt writes down what the server got.
func (s *server) adopt(c wire.Cluster) error {
	s.cluster = c
	s.api.Store(&c.API)
	b, err := json.Marshal(dbState{ID: c.ID, Key: c.Key, Member: s.member})
	if err != nil {
		return err
	}
	file := s.o.path("server", "db", "state.db")
	if c.Settings.Etcd {
		dir := s.o.path("server", "db", "etcd")
		if err := os.MkdirAll(s.o.path("server", "db", "snapshots"), 0o700); err != nil {
			return err
		}
		if err := writeFile(filepath.Join(dir, "name"), []byte(s.member), 0o600); err != nil {
			return err
		}
		file = filepath.Join(dir, "member", "state")
	}
	return writeFile(file, b, 0o600)
}

// etcdOnDisk reports whether the datastore is an etcd; until the first heartbeat its member may be a learner still.
func (s *server) etcdOnDisk() bool {
	_, err := os.Stat(s.o.path("server", "db", "etcd"))
	return err == nil
}

func (s *server) readState() (dbState, error) {
	var state dbState
	for _, file := range []string{s.o.path("server", "db", "etcd", "member", "state"), s.o.path("server", "db", "state.db")} {
		b, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return state, err
		}
		if err := json.Unmarshal(b, &state); err != nil {
			return state, fmt.Errorf("reading the datastore: %w", err)
		}
		return state, nil
	}
	return state, fs.ErrNotExist
}

func newMemberName(node string) (string, error) {
	id, err := randomHex(4)
	return node + "-" + id, err
}

// port is where a server with these settings listens.
func port(v values) string { return strconv.Itoa(v.num("https-listen-port", 6443)) }
