package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/k3s"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// door is the way into a cluster's API.
type door struct {
	// server is the UUID of the server that it was read from.
	server string
	// file is the kubeconfig as it stands on the server, kubeconfig the one that leads to this very server.
	file       []byte
	kubeconfig k3s.Kubeconfig
	kube       Kube
	// addons is nil where the engine has no catalogue.
	addons Addons
}

// serversOf picks the servers of a cluster's machines: first those that have joined and run, then by ordinal.
func serversOf(machines []machine.Machine) []machine.Machine {
	var out []machine.Machine
	for _, m := range machines {
		if m.Record.Role == record.Server {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b machine.Machine) int {
		return cmp.Or(cmp.Compare(misses(a), misses(b)), cmp.Compare(a.Record.Ordinal, b.Record.Ordinal))
	})
	return out
}

// misses tells how far a server is from being of use.
func misses(m machine.Machine) int {
	n := 0
	if m.Power != machine.Running {
		n++
	}
	if m.Record.Phase != record.Joined {
		n += 2
	}
	return n
}

// open returns the way into the API of the cluster that the machines belong to. It is read from a living server
// through the guest agent and kept for the life of the Engine; fresh reads it anew. Of several servers it is the first whose
// API answers, and if none does, the first that can be asked at all.
func (e *Engine) open(ctx context.Context, machines []machine.Machine, fresh bool) (*door, error) {
	servers := serversOf(machines)
	if len(servers) == 0 {
		return nil, errors.New("none of the hypervisors that answered has a server of the cluster")
	}
	id := servers[0].Record.ClusterID
	e.mu.Lock()
	known := e.doors[id]
	e.mu.Unlock()
	if known != nil && !fresh && slices.ContainsFunc(servers, known.through) {
		return known, nil
	}
	var found *door
	var errs []error
	for _, s := range servers {
		if s.Power != machine.Running {
			errs = append(errs, fmt.Errorf("server %q is %s", s.Name, s.Power))
			continue
		}
		d, err := e.openServer(ctx, s)
		if err != nil {
			errs = append(errs, fmt.Errorf("server %q: %w", s.Name, err))
			continue
		}
		answers := len(servers) == 1 || e.answers(ctx, d.kubeconfig) == nil
		if answers || found == nil {
			found = d
		}
		if answers {
			break
		}
	}
	if found == nil {
		return nil, errors.Join(errs...)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.doors[id] = found
	return found, nil
}

func (e *Engine) openServer(ctx context.Context, server machine.Machine) (*door, error) {
	guest := e.fleet.Guest(server)
	addresses, err := guest.Addresses(ctx, server.MAC)
	if err != nil {
		return nil, fmt.Errorf("ask for its address: %w", err)
	}
	if len(addresses) == 0 {
		return nil, errors.New("it has no address yet")
	}
	raw, err := guest.ReadFile(ctx, k3s.KubeconfigPath)
	if err != nil {
		return nil, fmt.Errorf("read its kubeconfig: %w", err)
	}
	kubeconfig, err := k3s.ParseKubeconfig(raw, server.Record.ClusterName, addresses[0])
	if err != nil {
		return nil, fmt.Errorf("read its kubeconfig: %w", err)
	}
	d := &door{server: server.UUID, file: raw, kubeconfig: kubeconfig}
	if d.kube, err = e.dial(kubeconfig.Raw); err != nil {
		return nil, err
	}
	if e.options.Catalogue != nil {
		if d.addons, err = e.options.Catalogue.Open(kubeconfig.Raw); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// through reports whether the way leads through a server, which runs.
func (d *door) through(server machine.Machine) bool {
	return d.server == server.UUID && server.Power == machine.Running
}

// shut drops the way into a cluster that is gone.
func (e *Engine) shut(clusterID string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.doors, clusterID)
}

// endpointTimeout bounds the question whether a cluster's endpoint answers.
const endpointTimeout = 5 * time.Second

// join is what a node needs to join.
type join struct{ url, token string }

// joinInfo reads where and with which token nodes join: at the cluster's endpoint where it answers, else at a server.
func (e *Engine) joinInfo(ctx context.Context, machines []machine.Machine, settings record.Cluster) (join, error) {
	d, err := e.open(ctx, machines, false)
	if err != nil {
		return join{}, err
	}
	for _, s := range serversOf(machines) {
		if !d.through(s) {
			continue
		}
		raw, err := e.fleet.Guest(s).ReadFile(ctx, k3s.TokenPath)
		if err != nil {
			return join{}, fmt.Errorf("read the join token of server %q: %w", s.Name, err)
		}
		token, err := k3s.ParseToken(raw)
		if err != nil {
			return join{}, fmt.Errorf("read the join token of server %q: %w", s.Name, err)
		}
		return join{url: e.joinURL(ctx, d, s.Record.ClusterName, settings), token: token}, nil
	}
	return join{}, errors.New("the server of the cluster is gone")
}

func (e *Engine) joinURL(ctx context.Context, d *door, cluster string, settings record.Cluster) string {
	direct := d.kubeconfig.Endpoint
	if settings.Endpoint == "" {
		return direct
	}
	url, _, err := k3s.ServerURL(settings.Endpoint)
	if err == nil {
		var exported k3s.Kubeconfig
		if exported, err = d.export(cluster, settings); err == nil {
			err = e.answers(ctx, exported)
		}
	}
	if err != nil {
		tflog.Warn(ctx, "the cluster's endpoint does not answer, so nodes join at a server", map[string]any{
			"cluster": cluster, "endpoint": settings.Endpoint, "server": direct, "error": err.Error(),
		})
		return direct
	}
	return url
}

// answers asks the API behind a kubeconfig whether it is ready.
func (e *Engine) answers(ctx context.Context, kubeconfig k3s.Kubeconfig) error {
	ctx, cancel := context.WithTimeout(ctx, endpointTimeout)
	defer cancel()
	k, err := e.dial(kubeconfig.Raw)
	if err != nil {
		return err
	}
	return k.Ready(ctx)
}

// export returns the kubeconfig for users, which leads to the cluster's endpoint where it has one.
func (d *door) export(cluster string, settings record.Cluster) (k3s.Kubeconfig, error) {
	if settings.Endpoint == "" {
		return d.kubeconfig, nil
	}
	exported, err := k3s.ParseKubeconfig(d.file, cluster, settings.Endpoint)
	if err != nil {
		return k3s.Kubeconfig{}, fmt.Errorf("read the kubeconfig: %w", err)
	}
	return exported, nil
}

// apiURL is the URL of the API for users, "" where it is not known yet.
func (e *Engine) apiURL(clusterID string, settings record.Cluster) string {
	if url, _, err := k3s.ServerURL(settings.Endpoint); err == nil {
		return url
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if d := e.doors[clusterID]; d != nil {
		return d.kubeconfig.Endpoint
	}
	return ""
}
