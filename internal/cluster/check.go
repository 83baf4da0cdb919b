package cluster

import (
	"context"
	"errors"
	"fmt"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// Problem is one reason why a wish cannot be met, found before anything was changed.
type Problem struct {
	Field      machine.Field
	Hypervisor string
	Err        error
}

// CheckCluster reviews a wanted cluster against the hypervisors that answer. The error is only that of ctx.
func (e *Engine) CheckCluster(ctx context.Context, spec Spec, prior Nodes) ([]Problem, error) {
	o, err := e.observe(ctx)
	if err != nil {
		return nil, err
	}
	if p := nameTaken(o, spec); p != nil {
		return []Problem{*p}, nil
	}
	g := e.serverGroup(spec, prior, o)
	_, problems, err := e.hosts(ctx, g, o, spec.Settings)
	return problems, err
}

// CheckPool reviews a wanted node pool. The cluster's id may be "", and its settings are then not looked at.
func (e *Engine) CheckPool(ctx context.Context, spec PoolSpec, prior Nodes) ([]Problem, error) {
	o, err := e.observe(ctx)
	if err != nil {
		return nil, err
	}
	var settings record.Cluster
	base := record.Record{Pool: spec.Name, Role: record.Agent, Shape: spec.Shape}
	if servers := serversOf(o.OfCluster(spec.ClusterID)); spec.ClusterID != "" && len(servers) > 0 {
		settings = clusterSettings(servers)
		base.ClusterID, base.ClusterName = spec.ClusterID, servers[0].Record.ClusterName
	}
	g := e.newGroup(base, spec.Nodes, prior, o)
	_, problems, err := e.hosts(ctx, g, o, settings)
	return problems, err
}

// nameTaken looks for another cluster of the same name. Agents without a server are no cluster any more.
func nameTaken(o machine.Observation, spec Spec) *Problem {
	for _, m := range o.Machines {
		if m.Record.Role == record.Server && m.Record.ClusterName == spec.Name && m.Record.ClusterID != spec.ID {
			return &Problem{Field: machine.FieldName, Hypervisor: m.Hypervisor, Err: fmt.Errorf(
				"a cluster named %q exists already (id %s; its node %q stands on hypervisor %q); choose another name, or import that cluster with its name",
				spec.Name, m.Record.ClusterID, m.Name, m.Hypervisor)}
		}
	}
	return nil
}

// hosts finds the hypervisors that can take a new node of the group, with the number of the cluster's nodes there. The
// problems say why there is none, which may be that those which could did not answer (machine.ErrUnreachable); a foreign
// VM under one of the names is a problem wherever it stands.
func (e *Engine) hosts(ctx context.Context, g group, o machine.Observation, settings record.Cluster) (map[string]int, []Problem, error) {
	names := g.newNames()
	if len(names) == 0 {
		return nil, nil, nil
	}
	fit := map[string]int{}
	var problems, clashes, silent []Problem
	schedulable := 0
	for _, h := range e.fleet.Hypervisors() {
		if !h.Schedulable {
			continue
		}
		schedulable++
		if err := o.Unreachable[h.Name]; err != nil {
			silent = append(silent, Problem{Field: machine.FieldHypervisor, Hypervisor: h.Name, Err: err})
			continue
		}
		found, err := e.fleet.Check(ctx, machine.Request{
			Hypervisor: h.Name, StoragePool: g.base.Shape.StoragePool, DiskGiB: g.base.Shape.DiskGiB,
			Network: settings.Network, Bridge: settings.Bridge, Names: names, ClusterID: g.base.ClusterID,
		})
		switch {
		case ctx.Err() != nil:
			return nil, nil, context.Cause(ctx)
		case errors.Is(err, machine.ErrUnreachable):
			silent = append(silent, Problem{Field: machine.FieldHypervisor, Hypervisor: h.Name, Err: err})
			continue
		case err != nil:
			found = append(found, machine.Problem{Field: machine.FieldHypervisor, Err: err})
		}
		if len(found) == 0 {
			fit[h.Name] = 0
		}
		for _, p := range found {
			problem := Problem{Field: p.Field, Hypervisor: h.Name, Err: p.Err}
			if p.Field == machine.FieldName {
				clashes = append(clashes, problem)
			} else {
				problems = append(problems, problem)
			}
		}
	}
	if schedulable == 0 {
		problems = append(problems, Problem{Field: machine.FieldHypervisor,
			Err: errors.New("no hypervisor is schedulable; set schedulable = true on at least one of the provider's hypervisors")})
	}
	for _, m := range o.Machines {
		if _, ok := fit[m.Hypervisor]; ok && m.Record.ClusterID == g.base.ClusterID {
			fit[m.Hypervisor]++
		}
	}
	switch {
	case len(clashes) > 0:
		return nil, clashes, nil
	case len(fit) > 0:
		return fit, nil, nil
	}
	return nil, append(problems, silent...), nil
}

// newNames lists the names that the group's plan would give to new nodes; none where the cluster's name is unknown.
func (g group) newNames() []string {
	probe := g
	probe.hosts = map[string]int{"": 0}
	probe.identity = func() string { return "00000000-0000-0000-0000-000000000000" }
	p, err := probe.plan()
	if err != nil {
		return nil
	}
	var names []string
	for _, s := range p {
		for _, l := range s.Lanes {
			if l.Machine.Hypervisor == "" {
				names = append(names, l.Machine.Name)
			}
		}
	}
	return names
}

// problemError turns problems met at apply into one error.
func problemError(problems []Problem) error {
	errs := make([]error, 0, len(problems))
	for _, p := range problems {
		if p.Hypervisor == "" {
			errs = append(errs, p.Err)
			continue
		}
		errs = append(errs, fmt.Errorf("hypervisor %q: %w", p.Hypervisor, p.Err))
	}
	return errors.Join(errs...)
}

// serverGroup is the group of a cluster's servers.
func (e *Engine) serverGroup(spec Spec, prior Nodes, o machine.Observation) group {
	settings := spec.Settings
	base := record.Record{
		ClusterID: spec.ID, ClusterName: spec.Name, Pool: record.ServerPool, Role: record.Server,
		Shape: spec.Shape, Cluster: &settings,
	}
	return e.newGroup(base, spec.Servers, prior, o)
}

// newGroup collects what the planner needs, but for the hosts of new nodes.
func (e *Engine) newGroup(base record.Record, want int, prior Nodes, o machine.Observation) group {
	g := group{want: want, base: base, prior: prior, unreachable: e.silent(o, prior), identity: NewID}
	for _, m := range o.Machines {
		if base.ClusterID != "" && m.Record.ClusterID == base.ClusterID && m.Record.Pool == base.Pool {
			g.machines = append(g.machines, m)
		}
	}
	return g
}

// clusterSettings returns the cluster-wide settings that stand on a server's record.
func clusterSettings(servers []machine.Machine) record.Cluster {
	for _, s := range servers {
		if s.Record.Cluster != nil {
			return *s.Record.Cluster
		}
	}
	return record.Cluster{}
}
