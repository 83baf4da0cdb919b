package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// ApplyCluster makes the servers of a cluster as they are wanted. What it returns is true also with an error: it is
// what stands by then.
func (e *Engine) ApplyCluster(ctx context.Context, spec Spec, prior Nodes, waits Waits) (State, error) {
	o, err := e.observe(ctx)
	if err != nil {
		return State{Spec: spec, Nodes: prior}, err
	}
	if p := nameTaken(o, spec); p != nil {
		return State{Spec: spec, Nodes: prior}, p.Err
	}
	if err := orphaned(o.OfCluster(spec.ID)); err != nil {
		return State{Spec: spec, Nodes: prior}, err
	}
	g := e.serverGroup(spec, prior, o)
	err = e.applyGroup(ctx, &g, o, spec.Settings, waits)
	if err == nil {
		err = e.syncSettings(ctx, g.machines, spec.Settings)
	}
	rctx, cancel := evidence(ctx)
	defer cancel()
	state, readErr := e.ReadCluster(rctx, spec, known(prior, g))
	state.Spec = spec
	return state, errors.Join(err, notGone(readErr))
}

// orphaned refuses to give agents a new server: their cluster was lost with the datastore of its last one.
func orphaned(machines []machine.Machine) error {
	if len(machines) == 0 || len(serversOf(machines)) > 0 {
		return nil
	}
	return &Failure{
		Err:    errors.New("the cluster has agents and no server any more; its datastore is lost"),
		Cause:  "the VM of its server was deleted since the last refresh.",
		Remedy: "plan and apply again: Terraform then makes a new cluster and its node pools.",
	}
}

// ApplyPool makes the nodes of a pool as they are wanted; see ApplyCluster.
func (e *Engine) ApplyPool(ctx context.Context, spec PoolSpec, prior Nodes, waits Waits) (PoolState, error) {
	none := PoolState{Spec: spec, Nodes: prior}
	o, err := e.observe(ctx)
	if err != nil {
		return none, err
	}
	servers := serversOf(o.OfCluster(spec.ClusterID))
	if len(servers) == 0 {
		return none, noServers(spec.ClusterID, o)
	}
	base := record.Record{
		ClusterID: spec.ClusterID, ClusterName: servers[0].Record.ClusterName, Pool: spec.Name, Role: record.Agent,
		Shape: spec.Shape,
	}
	g := e.newGroup(base, spec.Nodes, prior, o)
	err = e.applyGroup(ctx, &g, o, clusterSettings(servers), waits)
	rctx, cancel := evidence(ctx)
	defer cancel()
	state, readErr := e.ReadPool(rctx, spec, known(prior, g))
	state.Spec = spec
	return state, errors.Join(err, notGone(readErr))
}

// notGone drops ErrGone: after an apply that failed early nothing may stand, which its own error explains.
func notGone(err error) error {
	if errors.Is(err, ErrGone) {
		return nil
	}
	return err
}

// noServers tells a cluster that is gone from one that cannot be asked.
func noServers(clusterID string, o machine.Observation) error {
	if len(o.Unreachable) == 0 {
		return fmt.Errorf("cluster %s: %w", clusterID, ErrGone)
	}
	return fmt.Errorf("cluster %s: no server on the hypervisors that answer: %w", clusterID, unreachable(o.Unreachable))
}

func unreachable(reasons map[string]error) error {
	var errs []error
	for _, name := range sortedKeys(reasons) {
		errs = append(errs, fmt.Errorf("hypervisor %q: %w", name, reasons[name]))
	}
	return errors.Join(errs...)
}

// applyGroup plans and runs. It leaves in g.machines what the group consists of by then.
func (e *Engine) applyGroup(ctx context.Context, g *group, o machine.Observation, settings record.Cluster, waits Waits) error {
	all := o.OfCluster(g.base.ClusterID)
	g.ready = e.readiness(ctx, all)
	hosts, problems, err := e.hosts(ctx, *g, o, settings)
	if err != nil {
		return err
	}
	if len(problems) > 0 {
		return problemError(problems)
	}
	g.hosts = hosts
	plan, err := g.plan()
	if err != nil {
		return err
	}
	tflog.Info(ctx, "planned", map[string]any{"cluster": g.base.ClusterName, "pool": g.base.Pool, "steps": plan.String()})
	r := &run{engine: e, settings: settings, machines: all, waits: waits}
	err = r.plan(ctx, plan)
	g.machines = r.group(g.base.Pool)
	return err
}

// syncSettings brings the records of the servers to the cluster's settings.
func (e *Engine) syncSettings(ctx context.Context, servers []machine.Machine, want record.Cluster) error {
	for _, s := range servers {
		if s.Record.Cluster != nil && equalSettings(*s.Record.Cluster, want) {
			continue
		}
		r := s.Record
		r.Cluster = &want
		if err := e.fleet.SetRecord(ctx, s, r); err != nil {
			return nodeError(s.Name, s.Hypervisor, err)
		}
	}
	return nil
}

func equalSettings(a, b record.Cluster) bool {
	keys := slices.Equal(a.SSHAuthorizedKeys, b.SSHAuthorizedKeys)
	a.SSHAuthorizedKeys, b.SSHAuthorizedKeys = nil, nil
	return keys && a.K3sVersion == b.K3sVersion && a.InstallScriptURL == b.InstallScriptURL && a.Network == b.Network && a.Bridge == b.Bridge
}

// known adds the nodes that an apply left standing to those that the state knew, so that none is lost from state even
// where the next look at the hypervisors fails.
func known(prior Nodes, g group) Nodes {
	out := Nodes{}
	for name, n := range prior {
		if g.unreachable[n.Hypervisor] != nil {
			out[name] = n
		}
	}
	for _, m := range g.machines {
		out[m.Name] = statusOf(m)
	}
	return out
}

// DeleteCluster removes the servers of a cluster. It neither asks the cluster's API nor drains: everything in it goes.
// What remains is returned with the error.
func (e *Engine) DeleteCluster(ctx context.Context, spec Spec, prior Nodes, waits Waits) (Nodes, error) {
	o, err := e.observe(ctx)
	if err != nil {
		return prior, err
	}
	var agents []string
	for _, m := range o.OfCluster(spec.ID) {
		if m.Record.Role == record.Agent {
			agents = append(agents, m.Name)
		}
	}
	if len(agents) > 0 {
		slices.Sort(agents)
		return prior, &Failure{
			Err:    fmt.Errorf("the cluster still has the agents %s", strings.Join(agents, ", ")),
			Cause:  "their node pools are not in this configuration, or could not be destroyed.",
			Remedy: "destroy the node pools first; one that is not in the state can be imported as <cluster>/<pool>.",
		}
	}
	e.forget(spec.ID)
	return e.deleteGroup(ctx, e.serverGroup(spec, prior, o), o.OfCluster(spec.ID), waits)
}

// DeletePool removes the nodes of a pool. With the cluster's API down the VMs go all the same: a node of the same name
// is forgotten before it comes back. What remains is returned with the error.
func (e *Engine) DeletePool(ctx context.Context, spec PoolSpec, prior Nodes, waits Waits) (Nodes, error) {
	o, err := e.observe(ctx)
	if err != nil {
		return prior, err
	}
	base := record.Record{ClusterID: spec.ClusterID, Pool: spec.Name, Role: record.Agent, Shape: spec.Shape}
	return e.deleteGroup(ctx, e.newGroup(base, 0, prior, o), o.OfCluster(spec.ClusterID), waits)
}

func (e *Engine) deleteGroup(ctx context.Context, g group, all []machine.Machine, waits Waits) (Nodes, error) {
	left := Nodes{}
	var lanes []Lane
	for _, m := range g.machines {
		actions := g.removal()
		if g.base.Role == record.Agent {
			actions = g.removal(Stop)
		}
		lanes = append(lanes, Lane{m, actions})
	}
	for _, n := range g.lost() {
		if g.unreachable[n.Hypervisor] != nil {
			left[n.Name] = n
			continue
		}
		lanes = append(lanes, Lane{g.leftover(n), []Action{Delete}})
	}
	held := sortedKeys(left)
	r := &run{engine: e, machines: all, waits: waits, apiOptional: true}
	err := r.plan(ctx, Plan{{"delete", lanes}})
	for _, m := range r.group(g.base.Pool) {
		n := statusOf(m)
		if p, ok := g.prior[m.Name]; ok {
			n = p
		}
		left[m.Name] = n
	}
	if len(held) > 0 {
		err = errors.Join(err, fmt.Errorf("the nodes %s stand on hypervisors that do not answer: %w",
			strings.Join(held, ", "), unreachable(g.unreachable)))
	}
	return left, err
}
