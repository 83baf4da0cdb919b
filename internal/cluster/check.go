package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// Problem is one reason why a wish cannot be met, found before anything was changed.
type Problem struct {
	Field      machine.Field
	Hypervisor string
	Err        error
}

// CheckCluster reviews a wanted cluster against the hypervisors that answer. A nil prior means that it is to be made, be
// it in the place of another one.
func (e *Engine) CheckCluster(ctx context.Context, spec Spec, prior Nodes) ([]Problem, error) {
	o, err := e.observe(ctx)
	if err != nil {
		return nil, err
	}
	g := e.serverGroup(spec, prior, o)
	if prior == nil {
		g.machines = nil // What a replacement finds goes first.
	}
	_, problems, err := e.hosts(ctx, g, o, spec.Settings)
	if p := nameTaken(o, spec); p != nil {
		problems = append(problems, *p)
	}
	return problems, err
}

// CheckPool reviews a wanted node pool; see CheckCluster. The cluster's id may be "" where it is not known yet.
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
	} else if spec.ClusterID != "" && len(o.Unreachable) == 0 {
		return []Problem{{Field: machine.FieldCluster, Err: fmt.Errorf("no hypervisor has a server of the cluster %s", spec.ClusterID)}}, nil
	}
	g := e.newGroup(base, spec.Nodes, prior, o)
	taken := poolTaken(g)
	if prior == nil {
		g.machines = nil // What a replacement finds goes first.
	}
	_, problems, err := e.hosts(ctx, g, o, settings)
	if taken != nil {
		problems = append(problems, *taken)
	}
	return problems, err
}

// poolTaken refuses to make a pool that somebody else has made: its surplus would be removed. What an apply that was
// killed left half-made is nobody's.
func poolTaken(g group) *Problem {
	if g.prior != nil {
		return nil
	}
	for _, m := range g.machines {
		if m.Record.Phase == record.Joined {
			return &Problem{Field: machine.FieldName, Err: fmt.Errorf(
				"the cluster %q has a node pool %q already (its node %q stands on hypervisor %q); choose another name, or import that pool as %s/%s",
				g.base.ClusterName, g.base.Pool, m.Name, m.Hypervisor, g.base.ClusterName, g.base.Pool)}
		}
	}
	return nil
}

// nameTaken looks for another cluster of the same name. Agents without a server are no cluster any more.
func nameTaken(o machine.Observation, spec Spec) *Problem {
	for _, m := range o.Machines {
		if m.Record.Role == record.Server && m.Record.ClusterName == spec.Name && m.Record.ClusterID != spec.ID {
			return &Problem{Field: machine.FieldName, Err: fmt.Errorf(
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
	if g.base.ClusterName == "" {
		names = nil // They are not known before the cluster is.
	}
	var candidates []string
	for _, h := range e.fleet.Hypervisors() {
		if h.Schedulable {
			candidates = append(candidates, h.Name)
		}
	}
	if len(candidates) == 0 {
		return nil, []Problem{{Field: machine.FieldHypervisor,
			Err: errors.New("no hypervisor is schedulable; set schedulable = true on at least one of the provider's hypervisors")}}, nil
	}
	found := make([][]Problem, len(candidates))
	var wg sync.WaitGroup
	for i, name := range candidates {
		wg.Go(func() {
			found[i] = e.checkHost(ctx, o, machine.Request{
				Hypervisor: name, StoragePool: g.base.Shape.StoragePool, DiskGiB: g.base.Shape.DiskGiB,
				Network: settings.Network, Bridge: settings.Bridge, Names: names, ClusterID: g.base.ClusterID,
			})
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	fit := map[string]int{}
	var problems, clashes []Problem
	for i, name := range candidates {
		if len(found[i]) == 0 {
			fit[name] = 0
		}
		for _, p := range found[i] {
			problems = append(problems, p)
			if p.Field == machine.FieldName {
				clashes = append(clashes, p)
			}
		}
	}
	if len(clashes) > 0 {
		return nil, clashes, nil
	}
	if len(fit) == 0 {
		return nil, problems, nil
	}
	for _, p := range problems {
		tflog.Warn(ctx, "the hypervisor takes no new node", map[string]any{
			"cluster": g.base.ClusterName, "pool": g.base.Pool, "hypervisor": p.Hypervisor, "reason": p.Err.Error(),
		})
	}
	for _, m := range o.Machines {
		if _, ok := fit[m.Hypervisor]; ok && m.Record.ClusterID == g.base.ClusterID {
			fit[m.Hypervisor]++
		}
	}
	return fit, nil, nil
}

// checkHost reviews one hypervisor; one that does not answer is a problem too.
func (e *Engine) checkHost(ctx context.Context, o machine.Observation, r machine.Request) []Problem {
	err := o.Unreachable[r.Hypervisor]
	var found []machine.Problem
	if err == nil {
		found, err = e.fleet.Check(ctx, r)
	}
	if err != nil {
		found = append(found, machine.Problem{Field: machine.FieldHypervisor, Err: err})
	}
	problems := make([]Problem, 0, len(found))
	for _, p := range found {
		problems = append(problems, Problem{Field: p.Field, Hypervisor: r.Hypervisor, Err: p.Err})
	}
	return problems
}

// newNames lists the names that the group's plan would give to new nodes.
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
	g := group{want: want, base: base, prior: prior, silence: e.silenceOf(o), identity: NewID}
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
