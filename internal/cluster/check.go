package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/placement"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// Problem is one reason why a wish cannot be met, found before anything was changed.
type Problem struct {
	Field      machine.Field
	Hypervisor string
	Err        error
}

// CheckCluster reviews a wanted cluster against the hypervisors that answer. Without a state of before it is to be made, be it
// in the place of another one.
func (e *Engine) CheckCluster(ctx context.Context, spec Spec, before *State) (Review, error) {
	s := ofCluster(spec.Name)
	var prior Nodes
	if before != nil {
		prior = before.Nodes
		s = ofGroups(spec.Name, record.ServerPool)
		if same(spec.Extra, before.Spec.Extra) {
			s = s.vouch(prior, e.serverGroup(before.Spec, prior, machine.Observation{}))
		}
	}
	o, err := e.observe(ctx, s)
	if err != nil {
		return Review{}, err
	}
	g := e.serverGroup(spec, prior, o)
	if before == nil {
		g.machines = nil // What a replacement finds goes first.
	}
	r, err := e.review(ctx, g, o, spec.Settings)
	if err != nil {
		return r, err
	}
	if p := nameTaken(o, spec); p != nil {
		r.Problems = append(r.Problems, *p)
	}
	addons, problems := e.reviewAddons(ctx, spec, before, o.OfCluster(spec.ID))
	r.Addons, r.Problems = addons, append(r.Problems, problems...)
	return r, nil
}

// same reports whether a state tells of the same texts as are wanted. Where it does not, it may be because they were not
// known to it, and only the records tell what the nodes were made with.
func same(a, b Extra) bool {
	return a.Registries == b.Registries && a.UserData == b.UserData && slices.Equal(a.Args, b.Args)
}

// CheckPool reviews a wanted node pool; see CheckCluster. The cluster's id may be "" where it is not known yet.
func (e *Engine) CheckPool(ctx context.Context, spec PoolSpec, before *PoolState) (Review, error) {
	name := e.nameOf(spec.ClusterID)
	if spec.ClusterID == "" {
		name = e.book.stranger(spec.Name).cluster
	}
	s := ofCluster(name)
	var prior Nodes
	if before != nil {
		prior = before.Nodes
		name = cmp.Or(name, clusterOf(prior, spec.Name))
		s = ofGroups(name, record.ServerPool, spec.Name)
		if same(spec.Extra, before.Spec.Extra) {
			s = s.vouch(prior, e.poolGroup(before.Spec, name, prior, machine.Observation{}))
		}
	}
	o, err := e.observe(ctx, s)
	if err != nil {
		return Review{}, err
	}
	var settings record.Cluster
	switch servers := serversOf(o.OfCluster(spec.ClusterID)); {
	case spec.ClusterID == "":
		settings = e.book.settings(name)
	case len(servers) > 0:
		settings = clusterSettings(servers)
		name = servers[0].Record.ClusterName
	case len(o.Unreachable) == 0:
		return Review{Problems: []Problem{{Field: machine.FieldCluster, Err: fmt.Errorf("no hypervisor has a server of the cluster %s", spec.ClusterID)}}}, nil
	}
	g := e.poolGroup(spec, name, prior, o)
	taken := poolTaken(g)
	if before == nil {
		g.machines = nil // What a replacement finds goes first.
	} else {
		g.had = before.Spec.Nodes
	}
	r, err := e.review(ctx, g, o, settings)
	if taken != nil {
		r.Problems = append(r.Problems, *taken)
	}
	return r, err
}

// review finds out what becomes of a group's nodes, and promises the new ones their places.
func (e *Engine) review(ctx context.Context, g group, o machine.Observation, settings record.Cluster) (Review, error) {
	g.ready, g.sick = g.before()
	c, err := g.choose()
	if err != nil {
		return Review{Problems: []Problem{{Err: err}}}, nil
	}
	r := Review{Assignment: c.stay, Changes: g.changes(c)}
	if p := g.unchangeable(c); p != nil {
		r.Problems = append(r.Problems, *p)
		return r, nil
	}
	if err := g.collision(settings); err != nil {
		r.Problems = append(r.Problems, Problem{Field: machine.FieldUserData, Err: err})
		return r, nil
	}
	problems, err := e.outgrown(ctx, g, c, o, settings)
	if err != nil {
		return Review{}, err
	}
	if len(c.surge) > 0 && len(problems) == 0 {
		if _, problems, err = e.surgePlaces(ctx, g, c, o, settings); err != nil {
			return Review{}, err
		}
	}
	if r.Problems = problems; len(problems) > 0 {
		return r, nil
	}
	if len(c.fresh) == 0 {
		e.book.settle(keyOf(g.base))
		return r, nil
	}
	fit, problems, err := e.candidates(ctx, g, c.fresh, o, settings)
	if err != nil {
		return Review{}, err
	}
	r.Assignment = nil
	if r.Problems = problems; len(fit) == 0 {
		return r, nil
	}
	if r.Problems = slices.DeleteFunc(slices.Clone(problems), Problem.closed); len(r.Problems) > 0 {
		return r, nil
	}
	places, sure, err := e.book.promise(g, c, o, fit)
	if err != nil {
		r.Problems = []Problem{placementProblem(err, problems)}
		return r, nil
	}
	if sure {
		r.Assignment = c.stay
		maps.Copy(r.Assignment, places)
	}
	return r, nil
}

// closed reports whether a problem is more than that nobody could be asked.
func (p Problem) closed() bool { return !errors.Is(p.Err, machine.ErrUnreachable) }

// placementProblem turns the end of a search for places into a problem. What keeps a hypervisor from being chosen at
// all may be the true reason.
func placementProblem(err error, excluded []Problem) Problem {
	p := Problem{Err: err}
	var none *placement.Error
	if errors.As(err, &none) {
		p.Field = none.Field
	}
	if len(excluded) > 0 {
		p.Err = fmt.Errorf("%w; other hypervisors cannot be chosen: %w", err, problemError(excluded))
	}
	return p
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

// candidates finds the hypervisors that can take new nodes of the group, with what they offer. The problems say why
// others cannot, which may be that they did not answer (machine.ErrUnreachable); a foreign VM under one of the names is a
// problem wherever it stands.
func (e *Engine) candidates(ctx context.Context, g group, ordinals []int, o machine.Observation, settings record.Cluster) (map[string]machine.Site, []Problem, error) {
	return e.candidatesBy(ctx, g, ruleFor(g.rule(ordinals), ordinals), ordinals, o, settings)
}

func (e *Engine) candidatesBy(ctx context.Context, g group, rule record.Placement, ordinals []int, o machine.Observation, settings record.Cluster) (map[string]machine.Site, []Problem, error) {
	names, problems := e.eligible(rule)
	if len(problems) > 0 {
		return nil, problems, nil
	}
	var vms []string
	for _, ordinal := range ordinals {
		if g.base.ClusterID != "" || g.base.Role == record.Server {
			vms = append(vms, record.NodeName(g.base.ClusterName, g.base.Pool, ordinal))
		}
	}
	found := make([][]Problem, len(names))
	sites := make([]machine.Site, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() {
			sites[i], found[i] = e.checkHost(ctx, o, g.requestTo(name, vms, settings))
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	fit := map[string]machine.Site{}
	for i, name := range names {
		if len(found[i]) == 0 {
			fit[name] = sites[i]
		}
		problems = append(problems, found[i]...)
	}
	if clashes := slices.DeleteFunc(slices.Clone(problems), func(p Problem) bool { return p.Field != machine.FieldName }); len(clashes) > 0 {
		return nil, clashes, nil
	}
	for _, p := range problems {
		tflog.Warn(ctx, "the hypervisor takes no new node", map[string]any{
			"cluster": g.base.ClusterName, "pool": g.base.Pool, "hypervisor": p.Hypervisor, "reason": p.Err.Error(),
		})
	}
	for _, h := range e.fleet.Hypervisors() {
		if !h.Schedulable && rule.Strategy != record.Manual {
			problems = append(problems, Problem{Field: machine.FieldHypervisor, Hypervisor: h.Name, Err: errUnschedulable})
		}
	}
	return fit, problems, nil
}

// errUnschedulable is why a hypervisor is not asked at all.
var errUnschedulable = errors.New("it takes no new nodes: it is configured with schedulable = false")

// requestTo asks a hypervisor for nodes of the group under these names.
func (g group) requestTo(hypervisor string, names []string, settings record.Cluster) machine.Request {
	return machine.Request{
		Hypervisor: hypervisor, StoragePool: g.base.Shape.StoragePool, DiskGiB: g.base.Shape.DiskGiB, Data: g.base.Shape.Data,
		HostDevices: g.hostDevices[hypervisor], Network: settings.Network, Bridge: settings.Bridge, Names: names, ClusterID: g.base.ClusterID,
	}
}

// ruleFor is a rule as far as it is about new nodes: where others stand does not matter for them.
func ruleFor(rule record.Placement, fresh []int) record.Placement {
	if rule.Strategy != record.Manual || len(rule.Hosts) == 1 {
		return rule
	}
	hosts := rule.Hosts
	rule.Hosts = nil
	for _, ordinal := range fresh {
		if ordinal <= len(hosts) {
			rule.Hosts = append(rule.Hosts, hosts[ordinal-1])
		}
	}
	return rule
}

// eligible lists the hypervisors that a rule allows.
func (e *Engine) eligible(rule record.Placement) ([]string, []Problem) {
	var all, schedulable []string
	for _, h := range e.fleet.Hypervisors() {
		all = append(all, h.Name)
		if h.Schedulable {
			schedulable = append(schedulable, h.Name)
		}
	}
	if rule.Strategy != record.Manual {
		if len(schedulable) == 0 {
			return nil, []Problem{{Field: machine.FieldHypervisor,
				Err: errors.New("no hypervisor is schedulable; set schedulable = true on at least one of the provider's hypervisors")}}
		}
		return schedulable, nil
	}
	var problems []Problem
	names := slices.Compact(slices.Sorted(slices.Values(rule.Hosts)))
	for _, name := range names {
		switch {
		case !slices.Contains(all, name):
			problems = append(problems, Problem{Field: machine.FieldHosts,
				Err: fmt.Errorf("the provider's configuration has no hypervisor %q; it has: %s", name, strings.Join(all, ", "))})
		case !slices.Contains(schedulable, name):
			problems = append(problems, Problem{Field: machine.FieldHosts,
				Err: fmt.Errorf("hypervisor %q: %w", name, errUnschedulable)})
		}
	}
	return names, problems
}

// checkHost reviews one hypervisor; one that does not answer is a problem too.
func (e *Engine) checkHost(ctx context.Context, o machine.Observation, r machine.Request) (machine.Site, []Problem) {
	err := o.Unreachable[r.Hypervisor]
	var site machine.Site
	var found []machine.Problem
	if err == nil {
		site, found, err = e.fleet.Check(ctx, r)
	}
	if err != nil {
		found = append(found, machine.Problem{Field: machine.FieldHypervisor, Err: err})
	}
	problems := make([]Problem, 0, len(found))
	for _, p := range found {
		problems = append(problems, Problem{Field: p.Field, Hypervisor: r.Hypervisor, Err: p.Err})
	}
	return site, problems
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
	g := e.newGroup(record.Record{
		ClusterID: spec.ID, ClusterName: spec.Name, Pool: record.ServerPool, Role: record.Server,
		Shape: spec.Shape, Placement: spec.Placement, Setup: setupOf(spec.ID, spec.Extra), Cluster: &settings,
	}, spec.Servers, prior, o)
	g.extra = spec.Extra
	return g
}

// poolGroup is the group of a pool's nodes.
func (e *Engine) poolGroup(spec PoolSpec, cluster string, prior Nodes, o machine.Observation) group {
	g := e.newGroup(record.Record{
		ClusterID: spec.ClusterID, ClusterName: cluster, Pool: spec.Name, Role: record.Agent,
		Shape: spec.Shape, Placement: spec.Placement, Setup: setupOf(spec.ClusterID, spec.Extra), Labels: spec.Labels, Taints: spec.Taints,
		Drain: cmp.Or(spec.Drain, DefaultDrain), Upgrade: cmp.Or(spec.Upgrade, DefaultUpgrade), Repair: cmp.Or(spec.Repair, DefaultRepair),
	}, spec.Nodes, prior, o)
	g.extra, g.hostDevices, g.removeFirst = spec.Extra, spec.HostDevices, spec.RemoveFirst
	return g
}

// newGroup collects what the planner needs.
func (e *Engine) newGroup(base record.Record, want int, prior Nodes, o machine.Observation) group {
	base.Image = e.fleet.Template()
	g := group{want: want, base: base, prior: prior, silence: e.silenceOf(o), overcommit: map[string]machine.Overcommit{}, identity: NewID}
	for _, h := range e.fleet.Hypervisors() {
		g.overcommit[h.Name] = h.Overcommit
	}
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
