package kubelab

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/wire"
)

// registry holds all control planes of the lab.
type registry struct {
	dir, lan, program string
	most              int
	log               *slog.Logger
	ctx               context.Context //nolint:containedctx // the life of the keepers, not of a request
	group             *errgroup.Group

	mu       sync.Mutex
	clusters map[string]*cluster
}

// load opens the clusters that an earlier run of the lab left. They are at rest until one of their servers speaks.
func (r *registry) load() error {
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		c, err := openCluster(filepath.Join(r.dir, e.Name()), r.lan, r.program, r.log)
		if err != nil {
			r.log.Warn("cluster is not usable", "directory", e.Name(), "error", err)
			continue
		}
		r.adopt(c)
	}
	return nil
}

func (r *registry) adopt(c *cluster) {
	r.clusters[c.ID] = c
	r.group.Go(func() error { return c.keep(r.ctx) })
}

// create makes a control plane and starts it.
func (r *registry) create(req wire.CreateRequest) (*cluster, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := r.active(); n >= r.most {
		return nil, &wire.Error{Code: wire.CodeFull, Message: fmt.Sprintf("the lab runs %d control planes already", n)}
	}
	id, err := randomHex(8)
	if err != nil {
		return nil, err
	}
	key, err := randomHex(16)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(r.dir, id)
	for _, d := range []string{"pki", "log"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			return nil, err
		}
	}
	if _, err := newPKI(filepath.Join(dir, "pki"), r.lan, req.Settings.ServiceCIDR); err != nil {
		return nil, err
	}
	now := time.Now()
	c := &cluster{dir: dir, record: record{ID: id, Key: key, Settings: req.Settings, Membership: membership{
		Etcd:    req.Settings.Etcd,
		Members: []member{{Name: req.Server.Member, Node: req.Server.Node, Address: req.Server.Address, Joined: now}},
	}}}
	if err := c.save(); err != nil {
		return nil, err
	}
	if c, err = openCluster(dir, r.lan, r.program, r.log); err != nil {
		return nil, err
	}
	c.Membership.Members[0].seen = now
	r.adopt(c)
	return c, nil
}

// active counts the control planes that are not at rest; the caller holds mu.
func (r *registry) active() int {
	n := 0
	for _, c := range r.clusters {
		c.mu.Lock()
		if time.Since(c.Membership.lastSeen()) < idleAfter {
			n++
		}
		c.mu.Unlock()
	}
	return n
}

// find returns a cluster to whoever holds its key.
func (r *registry) find(id, key string) (*cluster, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, ok := r.clusters[id]
	if !ok || subtle.ConstantTimeCompare([]byte(c.Key), []byte(key)) != 1 {
		return nil, &wire.Error{Code: wire.CodeUnknown, Message: "no such cluster"}
	}
	return c, nil
}

func (r *registry) summaries() []wire.Summary {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]wire.Summary, 0, len(r.clusters))
	for _, c := range r.clusters {
		c.mu.Lock()
		out = append(out, wire.Summary{
			ID: c.ID, State: c.state, API: c.apiURL(), Etcd: c.Settings.Etcd, Members: c.Membership.summaries(time.Now()),
		})
		c.mu.Unlock()
	}
	return out
}

// attach lets a server in, or back in.
func (c *cluster) attach(s wire.Server) (wire.Cluster, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if subtle.ConstantTimeCompare([]byte(s.TokenHash), []byte(c.Settings.TokenHash)) != 1 {
		return wire.Cluster{}, &wire.Error{Code: wire.CodeToken, Message: "bootstrap data already found and encrypted with different token"}
	}
	if err := c.Membership.attach(s, time.Now()); err != nil {
		return wire.Cluster{}, err
	}
	if err := c.save(); err != nil {
		return wire.Cluster{}, err
	}
	c.nudge()
	return c.wireCluster(), nil
}

// beat takes a server's sign of life.
func (c *cluster) beat(name string) (wire.Beat, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	learner, refused := c.Membership.beat(name, now)
	switch {
	case refused == nil:
	case refused.Code == wire.CodeRemoved:
		return wire.Beat{Removed: true}, nil
	default:
		return wire.Beat{}, refused
	}
	if c.state != stateRunning {
		c.nudge()
	}
	return wire.Beat{API: c.apiURL(), Quorum: c.Membership.quorum(now), Learner: learner}, nil
}

func (c *cluster) leave(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Membership.leave(name, time.Now())
}

func (c *cluster) members() []wire.MemberSummary {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Membership.summaries(time.Now())
}

func randomHex(n int) (string, error) {
	b := make([]byte, n)
	if _, err := rand.Read(b); err != nil {
		return "", err
	}
	return hex.EncodeToString(b), nil
}
