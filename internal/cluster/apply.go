package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// ApplyCluster makes the servers of a cluster as they are wanted. Without a state of before the cluster is new. What it
// returns is true also with an error: it is what stands by then, told relative to the spec of before where there is one, so
// that a state keeps what is still to be done.
func (e *Engine) ApplyCluster(ctx context.Context, spec Spec, before *State, waits Waits) (State, error) {
	none := State{Spec: spec}
	if before != nil {
		none = *before
	}
	prior := none.Nodes
	o, err := e.observe(ctx, ofCluster(spec.Name).anew())
	if err != nil {
		return none, err
	}
	if p := nameTaken(o, spec); p != nil {
		return none, p.Err
	}
	if err := lostServer(o, spec.ID, prior); err != nil {
		return none, err
	}
	if spec.Settings, err = e.resolve(ctx, spec.Settings); err != nil {
		return none, err
	}
	if problems := e.reviewNFS(ctx, addonsOf(spec.Settings, 0, 0), addonsOf(none.Spec.Settings, 0, 0)); before == nil && len(problems) > 0 {
		return none, problemError(problems)
	}
	g := e.serverGroup(spec, prior, o)
	g.planned, g.was = spec.Assignment, none.Spec.Shape
	r, err := e.applyGroup(ctx, g, o, spec.Settings, waits)
	nodes := r.nodes(prior, record.ServerPool)
	told := spec
	if err != nil && before != nil {
		told, nodes = before.Spec, unsettled(nodes)
	}
	lctx, cancel := lastLook(ctx)
	defer cancel()
	state, readErr := e.readCluster(lctx, told, nodes, ofGroups(spec.Name, record.ServerPool))
	if readErr != nil {
		unseen(ctx, spec.Name, readErr)
		a := answer{err: readErr}
		state.Endpoint, state.Nodes = e.apiURL(spec.ID, spec.Settings), nodes
		state.Status, state.Conditions = summarise(nodes, e.silenceOf(o), a)
	}
	if err == nil {
		state.Spec = spec
	}
	state.Warnings = r.warnings
	return state, err
}

// lostServer refuses to make a new server, with an empty datastore, for a cluster that may still be there in part: its
// agents could never join it.
func lostServer(o machine.Observation, id string, prior Nodes) error {
	machines := o.OfCluster(id)
	servers := serversOf(machines) // Those that have joined come first.
	switch {
	case len(servers) > 0 && servers[0].Record.Phase == record.Joined:
		return nil
	case len(prior) > 0 && len(o.Unreachable) > 0:
		return &Failure{
			Err:    fmt.Errorf("no server of the cluster was seen that has joined, and not every hypervisor answers: %w", unreachable(o.Unreachable)),
			Remedy: "apply again when all hypervisors answer.",
		}
	case len(machines) > len(servers):
		return &Failure{
			Err:    errors.New("the cluster has agents and no server any more; its datastore is lost"),
			Cause:  "the VM of its server was deleted since the last refresh.",
			Remedy: "plan and apply again: Terraform then makes a new cluster and its node pools.",
		}
	}
	return nil
}

// ApplyPool makes the nodes of a pool as they are wanted; see ApplyCluster. A new pool that stands already is refused.
func (e *Engine) ApplyPool(ctx context.Context, spec PoolSpec, before *PoolState, waits Waits) (PoolState, error) {
	none := PoolState{Spec: spec}
	if before != nil {
		none = *before
	}
	prior := none.Nodes
	o, err := e.observe(ctx, ofCluster(e.nameOf(spec.ClusterID)).anew())
	if err != nil {
		return none, err
	}
	servers := serversOf(o.OfCluster(spec.ClusterID))
	if len(servers) == 0 {
		return none, noServers(spec.ClusterID, o)
	}
	g := e.poolGroup(spec, servers[0].Record.ClusterName, prior, o)
	g.planned, g.was, g.had = spec.Assignment, none.Spec.Shape, none.Spec.Nodes
	if p := poolTaken(g); p != nil {
		return none, p.Err
	}
	r, err := e.applyGroup(ctx, g, o, clusterSettings(servers), waits)
	nodes := r.nodes(prior, spec.Name)
	told := spec
	if err != nil && before != nil {
		told, nodes = before.Spec, unsettled(nodes)
	}
	lctx, cancel := lastLook(ctx)
	defer cancel()
	state, readErr := e.readPool(lctx, told, nodes, ofGroups(g.base.ClusterName, record.ServerPool, spec.Name))
	if readErr != nil {
		unseen(ctx, spec.Name, readErr)
		state.Nodes = nodes
	}
	if err == nil {
		state.Spec = spec
	}
	state.Warnings = r.warnings
	return state, err
}

// unsettled makes the nodes of an apply that failed ones that nobody vouches for, until they are looked at: they may have been
// changed or not.
func unsettled(nodes Nodes) Nodes {
	out := maps.Clone(nodes)
	for name, n := range out {
		if n.State.settled() {
			n.State, n.Reason = NodeUnknown, "it could not be looked at after an apply that failed"
			out[name] = n
		}
	}
	return out
}

// lastLook bounds the look at what an apply has made. Where the apply's own time is over it is short.
func lastLook(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() != nil {
		return evidence(ctx)
	}
	return context.WithTimeout(ctx, observeTimeout+apiReadTimeout)
}

// unseen reports that the last look failed. What the apply itself knows stands in its place, so that a hypervisor that
// is slow to answer does not fail an apply whose work is done.
func unseen(ctx context.Context, name string, err error) {
	if !errors.Is(err, ErrGone) {
		tflog.Warn(ctx, "what was applied could not be looked at", map[string]any{"name": name, "error": err.Error()})
	}
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

// applyGroup plans and runs. The run knows what the group consists of by then.
func (e *Engine) applyGroup(ctx context.Context, g group, o machine.Observation, settings record.Cluster, waits Waits) (*run, error) {
	defer e.changed()
	defer e.book.settle(keyOf(g.base))
	r := &run{engine: e, settings: settings, base: g.base, extra: g.extra, machines: o.OfCluster(g.base.ClusterID), waits: waits}
	if r.servers = g.want; g.base.Role == record.Agent {
		r.servers = len(serversOf(r.machines))
	}
	a := e.askAPI(ctx, r.machines)
	if a.nodes != nil {
		g.ready, g.members, g.sick, g.api = map[string]bool{}, map[string]bool{}, map[string]bool{}, a.nodes
	}
	for name, n := range a.nodes {
		g.ready[name], g.members[name], g.sick[name] = n.Ready, n.Etcd, g.unhealthy(name, time.Now())
		g.registered = append(g.registered, name)
		if n.Ready && n.InternalIP != "" {
			_ = r.claim(n.InternalIP, name)
		}
	}
	for _, m := range g.machines {
		if m.Power != machine.Running {
			delete(g.sick, m.Name) // It is started, which is no repair.
		}
	}
	slices.Sort(g.registered)
	c, err := g.choose()
	if err != nil {
		return r, err
	}
	if p := g.unchangeable(c); p != nil {
		return r, p.Err
	}
	if len(c.beyond) > 0 {
		r.warn(fmt.Errorf("%s should go and stays for now: %w", strings.Join(namesOf(c.beyond), ", "), g.reasons(c.beyond)))
	}
	if err := g.restraint(c); err != nil {
		for _, n := range c.needs {
			if n.disrupts() {
				return r, err // Nodes that run are not taken down beside so many that do not.
			}
		}
		r.warn(err)
	}
	if g.addons, err = e.pendingAddons(ctx, g, a, settings); err != nil {
		return r, err
	}
	places, err := e.places(ctx, g, c, o, settings)
	if err != nil {
		return r, err
	}
	plan, err := g.plan(c, places)
	if err != nil {
		return r, err
	}
	tflog.Info(ctx, "planned", map[string]any{"cluster": g.base.ClusterName, "pool": g.base.Pool, "steps": plan.String()})
	if err := r.plan(ctx, plan); err != nil {
		return r, err
	}
	return r, e.syncRecords(ctx, r.group(g.base.Pool), g)
}

// places finds the hypervisors for new nodes, which have to pass the checks again that they passed when they were planned,
// and for those that stand in while others are changed.
func (e *Engine) places(ctx context.Context, g group, c choice, o machine.Observation, settings record.Cluster) (Assignment, error) {
	problems, err := e.outgrown(ctx, g, c, o, settings)
	if err != nil {
		return nil, err
	}
	if len(problems) > 0 {
		return nil, problemError(problems)
	}
	places := Assignment{}
	if len(c.surge) > 0 {
		found, problems, err := e.surgePlaces(ctx, g, c, o, settings)
		switch {
		case err != nil:
			return nil, err
		case len(problems) > 0:
			return nil, problemError(problems)
		}
		places = found
	}
	if len(c.fresh) == 0 {
		return places, nil
	}
	fit, problems, err := e.candidates(ctx, g, c.fresh, o, settings)
	switch {
	case err != nil:
		return nil, err
	case len(fit) == 0, len(problems) > 0 && g.rule(c.fresh).Strategy == record.Manual:
		return nil, problemError(problems)
	}
	found, err := e.book.take(g, c, o, fit)
	if err != nil {
		return nil, placementProblem(err, problems).Err
	}
	maps.Copy(places, found)
	return places, nil
}

// syncRecords brings the records of a group's nodes to what is wanted, once nothing else has to be done.
func (e *Engine) syncRecords(ctx context.Context, machines []machine.Machine, g group) error {
	defer e.changed()
	for _, m := range machines {
		r := g.settled(m.Record)
		if record.Same(r, m.Record) {
			continue
		}
		if err := e.fleet.SetRecord(ctx, m, r); err != nil {
			return nodeError(m.Name, m.Hypervisor, err)
		}
	}
	return nil
}

// DeleteCluster removes the servers of a cluster. It does not drain: everything in it goes. It asks the cluster's API
// only while a hypervisor is silent, to know whether agents stand there. What remains is returned with the error.
func (e *Engine) DeleteCluster(ctx context.Context, spec Spec, prior Nodes, waits Waits) (Nodes, error) {
	o, err := e.observe(ctx, ofCluster(spec.Name).anew())
	if err != nil {
		return prior, err
	}
	agents, err := e.agentsOf(ctx, o, spec.ID)
	if err != nil {
		return prior, err
	}
	if len(agents) > 0 {
		return prior, &Failure{
			Err:    fmt.Errorf("the cluster still has the agents %s", strings.Join(agents, ", ")),
			Cause:  "their node pools are not in this configuration, or could not be destroyed.",
			Remedy: "destroy the node pools first; one that is not in the state can be imported as <cluster>/<pool>.",
		}
	}
	e.shut(spec.ID)
	// A server is the API itself: there is nobody to forget it.
	r, err := e.deleteGroup(ctx, e.serverGroup(spec, prior, o), []Action{Delete}, o.OfCluster(spec.ID), waits)
	return r.nodes(prior, record.ServerPool), err
}

// agentsOf lists the agents of a cluster by name, also those that stand where nobody answers.
func (e *Engine) agentsOf(ctx context.Context, o machine.Observation, clusterID string) ([]string, error) {
	names := map[string]bool{}
	machines := o.OfCluster(clusterID)
	for _, m := range machines {
		names[m.Name] = true
	}
	if hidden := hidden(o); hidden != nil && len(machines) > 0 {
		a := e.askAPI(ctx, machines)
		if a.nodes == nil {
			return nil, &Failure{
				Err:    fmt.Errorf("whether the cluster has agents is not known: its API does not answer (%w), and they may be out of sight: %w", a.err, hidden),
				Remedy: "destroy it when all hypervisors answer, or take those that are gone for good out of the provider's configuration.",
			}
		}
		for name := range a.nodes {
			names[name] = true
		}
	}
	if servers := serversOf(machines); len(servers) > 0 { // Others may stand where nobody answers.
		maps.DeleteFunc(names, func(name string, _ bool) bool { return ordinalOf(servers[0].Record, name) > 0 })
	}
	return sortedKeys(names), nil
}

// hidden says which VMs cannot be seen for what they are, nil where all can.
func hidden(o machine.Observation) error {
	errs := []error{unreachable(o.Unreachable)}
	for _, u := range o.Unreadable {
		errs = append(errs, fmt.Errorf("VM %q on hypervisor %q: %w", u.Name, u.Hypervisor, u.Err))
	}
	return errors.Join(errs...)
}

// DeletePool removes the nodes of a pool, drained unless its rule says otherwise. It always comes to an end: with the
// cluster's API down, or pods that do not go, the VMs go all the same, and warnings tell of it. A node of the same name is
// forgotten before it comes back. What remains is returned with the error.
func (e *Engine) DeletePool(ctx context.Context, spec PoolSpec, prior Nodes, waits Waits) (PoolState, error) {
	o, err := e.observe(ctx, ofCluster(e.nameOf(spec.ClusterID)).anew())
	if err != nil {
		return PoolState{Spec: spec, Nodes: prior}, err
	}
	machines := o.OfCluster(spec.ClusterID)
	name := ""
	if len(machines) > 0 {
		name = machines[0].Record.ClusterName
	}
	g := e.poolGroup(spec, name, prior, o)
	g.want = 0
	last := departure(record.Agent)
	if spec.Drain.KeepOnDestroy {
		last = farewell(record.Agent)
	}
	r, err := e.deleteGroup(ctx, g, last, machines, waits)
	return PoolState{Spec: spec, Nodes: r.nodes(prior, spec.Name), Warnings: r.warnings}, err
}

func (e *Engine) deleteGroup(ctx context.Context, g group, last []Action, all []machine.Machine, waits Waits) (*run, error) {
	defer e.changed()
	var lanes []Lane
	for _, m := range g.machines {
		lanes = append(lanes, Lane{Machine: m, Actions: last})
	}
	held, lost := g.withheld()
	for _, n := range lost {
		lanes = append(lanes, Lane{Machine: g.leftover(n), Actions: []Action{Delete}})
	}
	r := &run{engine: e, base: g.base, machines: all, waits: waits, apiOptional: true}
	err := r.plan(ctx, Plan{{"delete", lanes}})
	if len(held) > 0 {
		err = errors.Join(err, fmt.Errorf("nothing can be said of the nodes %s, so they stay in the state: %w",
			strings.Join(namesOf(held), ", "), g.reasons(held)))
	}
	return r, err
}

// reasons says why nothing can be said of nodes.
func (g group) reasons(held []NodeStatus) error {
	said := map[string]bool{}
	var errs []error
	for _, n := range held {
		if err := g.silence.of(n); err != nil && !said[err.Error()] {
			said[err.Error()] = true
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
