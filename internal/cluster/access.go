package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/k3s"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// door is the way into a cluster's API.
type door struct {
	// server is the UUID of the server that it was read from.
	server     string
	kubeconfig k3s.Kubeconfig
	kube       Kube
}

// apiPort is where a k3s server answers both the Kubernetes API and joining nodes (https://docs.k3s.io/installation/requirements).
const apiPort = "6443"

// serversOf picks the servers of a cluster's machines, those that run first, then by ordinal.
func serversOf(machines []machine.Machine) []machine.Machine {
	var out []machine.Machine
	for _, m := range machines {
		if m.Record.Role == record.Server {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b machine.Machine) int {
		if (a.Power == machine.Running) != (b.Power == machine.Running) {
			if a.Power == machine.Running {
				return -1
			}
			return 1
		}
		return a.Record.Ordinal - b.Record.Ordinal
	})
	return out
}

// open returns the way into the API of the cluster that the machines belong to. It is read from a living server
// through the guest agent and kept for the life of the Engine; fresh reads it anew.
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
		e.mu.Lock()
		e.doors[id] = d
		e.mu.Unlock()
		return d, nil
	}
	return nil, errors.Join(errs...)
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
	kube, err := e.dial(kubeconfig.Raw)
	if err != nil {
		return nil, err
	}
	return &door{server: server.UUID, kubeconfig: kubeconfig, kube: kube}, nil
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

// join is what an agent needs to join.
type join struct{ url, token string }

// joinInfo reads where and with which token agents join.
func (e *Engine) joinInfo(ctx context.Context, machines []machine.Machine) (join, error) {
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
		return join{url: "https://" + net.JoinHostPort(d.kubeconfig.Host, apiPort), token: token}, nil
	}
	return join{}, errors.New("the server of the cluster is gone")
}

// endpoint is the URL of a cluster's API as it was last read, "" where it never was.
func (e *Engine) endpoint(clusterID string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if d := e.doors[clusterID]; d != nil {
		return d.kubeconfig.Endpoint
	}
	return ""
}
