package kubelab

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/kubeapi"
	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/operators"
	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/pki"
	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/wire"
)

const (
	// idleAfter is how long all servers must be silent before a control plane is put to rest.
	idleAfter = 3 * time.Minute
	// keepEvery is the rhythm in which a control plane is looked after.
	keepEvery = 2 * time.Second
	// restartPause is the least time between two starts of one part.
	restartPause = 5 * time.Second
)

// States of a control plane.
const (
	stateStopped = "stopped" // nothing runs
	stateFrozen  = "frozen"  // the datastore is stopped in its tracks, as without a quorum
	stateRunning = "running"
)

// cluster is one control plane: real etcd, kube-apiserver, kube-controller-manager and kube-scheduler, which together
// stand behind all servers of one k3s cluster. The quorum of the servers' signs of life decides whether it runs.
type cluster struct {
	record
	dir, lan, program string
	log               *slog.Logger
	shared            wire.Cluster // what servers get, without API and Settings

	mu    sync.Mutex // guards what follows and record.Membership
	ports ports
	state string

	// What follows belongs to the keeper.
	etcd, apiserver, controller, scheduler *process
	started                                map[string]time.Time
	admin                                  *kubeapi.Client
	stopControllers                        func()
	wake                                   chan struct{}
}

// record is what survives a restart of the lab.
type record struct {
	ID         string        `json:"id"`
	Key        string        `json:"key"`
	Settings   wire.Settings `json:"settings"`
	Membership membership    `json:"membership"`
}

// openCluster reads a cluster's files.
func openCluster(dir, lan, program string, log *slog.Logger) (*cluster, error) {
	c := &cluster{
		dir: dir, lan: lan, program: program, state: stateStopped,
		started: map[string]time.Time{}, wake: make(chan struct{}, 1),
	}
	b, err := os.ReadFile(c.path("cluster.json"))
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, &c.record); err != nil {
		return nil, fmt.Errorf("reading cluster %s: %w", filepath.Base(dir), err)
	}
	c.log = log.With("cluster", c.ID)
	for _, p := range []struct {
		file string
		pair *wire.KeyPair
	}{
		{"server-ca", &c.shared.ServerCA}, {"client-ca", &c.shared.ClientCA},
		{"request-header-ca", &c.shared.RequestHeaderCA}, {"proxy", &c.shared.Proxy},
	} {
		cert, err := os.ReadFile(c.path("pki", p.file+".crt"))
		if err != nil {
			return nil, err
		}
		key, err := os.ReadFile(c.path("pki", p.file+".key"))
		if err != nil {
			return nil, err
		}
		p.pair.Cert, p.pair.Key = string(cert), string(key)
	}
	if c.ports, err = newPorts(lan); err != nil {
		return nil, err
	}
	for _, name := range []string{"controller", "scheduler"} {
		if err := c.writeKubeconfig(name); err != nil {
			return nil, err
		}
	}
	c.admin, err = c.adminClient()
	return c, err
}

// adminClient is the identity of the controllers that k3s embeds.
func (c *cluster) adminClient() (*kubeapi.Client, error) {
	pair, err := tls.LoadX509KeyPair(c.path("pki", "admin.crt"), c.path("pki", "admin.key"))
	if err != nil {
		return nil, fmt.Errorf("loading the admin certificate: %w", err)
	}
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: pki.Pool(c.shared.ServerCA.Cert), Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2: true, IdleConnTimeout: time.Minute,
	}
	return &kubeapi.Client{Base: c.apiURL, HTTP: &http.Client{Transport: transport}}, nil
}

// save writes the record; the caller holds mu.
func (c *cluster) save() error {
	b, err := json.MarshalIndent(c.record, "", "  ")
	if err != nil {
		return err
	}
	tmp := c.path("cluster.json.tmp")
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, c.path("cluster.json"))
}

// wireCluster is what a server gets.
func (c *cluster) wireCluster() wire.Cluster {
	w := c.shared
	w.ID, w.Key, w.API, w.Settings = c.ID, c.Key, c.apiURL(), c.Settings
	return w
}

func (c *cluster) nudge() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// keep looks after the control plane until ctx ends, then stops it.
func (c *cluster) keep(ctx context.Context) error {
	defer c.rest(context.WithoutCancel(ctx))
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	for {
		if err := c.step(ctx); err != nil && ctx.Err() == nil {
			c.log.Warn("control plane", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-c.wake:
		}
	}
}

// step moves the control plane towards the state that the servers' signs of life ask for.
func (c *cluster) step(ctx context.Context) error {
	now := time.Now()
	c.mu.Lock()
	if c.Membership.tick(now) {
		if err := c.save(); err != nil {
			c.mu.Unlock()
			return err
		}
	}
	quorum, silent, was := c.Membership.quorum(now), now.Sub(c.Membership.lastSeen()), c.state
	c.mu.Unlock()

	var err error
	want := stateRunning
	switch {
	case quorum:
		err = c.run(ctx)
	case silent > idleAfter || was == stateStopped:
		want = stateStopped
		c.rest(ctx)
	default:
		want = stateFrozen
		err = c.freeze(ctx)
	}
	if was != want {
		c.log.Info("control plane", "state", want)
		c.mu.Lock()
		c.state = want
		c.mu.Unlock()
	}
	return err
}

// run brings every part up, in order; a part that died is started again.
func (c *cluster) run(ctx context.Context) error {
	if err := c.etcd.thaw(); err != nil {
		return err
	}
	if err := c.ensure(&c.etcd, "etcd", c.etcdArgs()); err != nil {
		return err
	}
	if err := waitFor(ctx, 30*time.Second, func(ctx context.Context) bool {
		return c.etcd.running() && httpOK(ctx, fmt.Sprintf("http://127.0.0.1:%d/health", c.ports.etcd))
	}); err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	if err := c.ensure(&c.apiserver, "kube-apiserver", c.apiserverArgs()); err != nil {
		return err
	}
	if err := waitFor(ctx, time.Minute, func(ctx context.Context) bool {
		if !c.apiserver.running() {
			return false
		}
		_, err := c.admin.Raw(ctx, "/readyz")
		return err == nil
	}); err != nil {
		return fmt.Errorf("kube-apiserver: %w", err)
	}
	if err := c.ensure(&c.controller, "kube-controller-manager", c.controllerArgs()); err != nil {
		return err
	}
	if err := c.ensure(&c.scheduler, "kube-scheduler", c.schedulerArgs()); err != nil {
		return err
	}
	if c.stopControllers == nil {
		ctx, cancel := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			var group sync.WaitGroup
			group.Go(func() { c.control(ctx) })
			group.Go(func() {
				operators.New(c.admin).Run(ctx, func(err error) { c.log.Debug("operators", "error", err) })
			})
			group.Wait()
		}()
		c.stopControllers = func() { cancel(); <-done }
	}
	return nil
}

// ensure starts a part that does not run.
func (c *cluster) ensure(p **process, name string, args []string) error {
	if (*p).running() {
		return nil
	}
	if *p != nil && time.Since(c.started[name]) < restartPause {
		return fmt.Errorf("%s: ended soon after its start", name)
	}
	if *p != nil {
		c.log.Warn("part ended: starting it again", "part", name)
	}
	c.started[name] = time.Now()
	started, err := startProcess(c.path("log"), name, c.program, args...)
	if err != nil {
		return err
	}
	*p = started
	return nil
}

// freeze does what the loss of the quorum does to real servers: the datastore answers no more and the controllers,
// which cannot renew their leases, exit.
func (c *cluster) freeze(ctx context.Context) error {
	c.stopManagers(ctx)
	return c.etcd.freeze()
}

// rest stops everything.
func (c *cluster) rest(ctx context.Context) {
	c.stopManagers(ctx)
	c.apiserver.stop(ctx)
	c.etcd.stop(ctx)
	c.apiserver, c.etcd = nil, nil
}

func (c *cluster) stopManagers(ctx context.Context) {
	if c.stopControllers != nil {
		c.stopControllers()
		c.stopControllers = nil
	}
	c.scheduler.stop(ctx)
	c.controller.stop(ctx)
	c.scheduler, c.controller = nil, nil
}

var errNotInTime = errors.New("not ready in time")

// waitFor asks every 250 ms until f is true, at most for a given time.
func waitFor(ctx context.Context, most time.Duration, f func(context.Context) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, most, errNotInTime)
	defer cancel()
	for !f(ctx) {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(250 * time.Millisecond):
		}
	}
	return nil
}

func httpOK(ctx context.Context, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}
