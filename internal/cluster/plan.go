package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// group is what the planner knows of one group of equal nodes: the servers of a cluster, or a node pool.
type group struct {
	// want is the wanted number of nodes.
	want int
	// planned is what a plan has promised, nil where there is no such promise.
	planned Assignment
	// base is the record of a new node; its ordinal and volumes are filled in.
	base record.Record
	// machines are the VMs of the group that were observed.
	machines []machine.Machine
	// prior is what the state knew of the group, was the shape that it told of, and had the number of nodes; zero where it told
	// none.
	prior Nodes
	was   record.Shape
	had   int
	// silence is what nothing can be said of.
	silence silence
	// registered are the names of the cluster's Node objects.
	registered []string
	// ready tells which nodes are Ready, members which run members of etcd; nil where the API was not asked. api are the
	// Node objects.
	ready, members map[string]bool
	api            map[string]Node
	// sick are the nodes that are not Ready for longer than is allowed.
	sick map[string]bool
	// extra is what the user gives to the guests.
	extra Extra
	// hostDevices are the PCI devices of the node on each hypervisor.
	hostDevices map[string][]string
	// removeFirst are the short names of nodes that go before others.
	removeFirst []string
	// addons is what has to be done about the cluster's add-ons.
	addons addonWork
	// overcommit is that of each hypervisor.
	overcommit map[string]machine.Overcommit
	// identity makes the UUID of a new VM.
	identity func() string
}

// choice is what becomes of a group's nodes.
type choice struct {
	// keep stay, surplus go although nothing is wrong with them, and broken because their making did not come to an end.
	keep, surplus, broken []machine.Machine
	// held are nodes that were not seen and may stand all the same; lost those that are gone.
	held []NodeStatus
	lost []NodeStatus
	// beyond are nodes that were not seen and are too many: they go once something can be said of them.
	beyond []NodeStatus
	// stay is where the nodes stand that are kept or held.
	stay Assignment
	// fresh are the ordinals of new nodes.
	fresh []int
	// needs are what has to be done to nodes that are kept, by name.
	needs map[string]need
	// stand are surplus nodes that stay until others have been changed, and surge the ordinals of new ones that do.
	stand []machine.Machine
	surge []int
}

// going are the VMs that go before new ones come, by UUID.
func (c choice) going() map[string]bool {
	going := map[string]bool{}
	for _, m := range slices.Concat(c.broken, c.surplus) {
		going[m.UUID] = true
	}
	return going
}

// on counts the nodes that stay on a hypervisor.
func (c choice) on(hypervisor string) int {
	n := 0
	for _, host := range c.stay {
		if host == hypervisor {
			n++
		}
	}
	return n
}

// choose compares what is wanted with what is.
//
// A VM that is still in phase creating was left by an apply that failed or was killed: it is made anew, since nothing
// tells how far its guest came. Nodes of which nothing can be said count as present and are not touched. Where a plan
// has promised which nodes there will be, those and no others are.
func (g group) choose() (choice, error) {
	var c choice
	for _, m := range g.machines {
		switch {
		case m.Record.Phase != record.Joined:
			c.broken = append(c.broken, m)
		case g.temporary(m):
			c.surplus = append(c.surplus, m)
		default:
			c.keep = append(c.keep, m)
		}
	}
	c.held, c.lost = g.withheld()
	if g.planned != nil {
		if err := g.unchanged(c); err != nil {
			return choice{}, err
		}
	}
	surplus := len(c.keep) + len(c.held) - g.want
	if surplus > len(c.keep) {
		return choice{}, &Failure{
			Err:    fmt.Errorf("fewer nodes are wanted, and nothing can be said of %s: %w", strings.Join(namesOf(c.held), ", "), g.reasons(c.held)),
			Remedy: "apply again when their hypervisors answer and their records can be read.",
		}
	}
	// Rather than a node that works one goes that stood in for others, though only when it is seen again.
	c.held = slices.DeleteFunc(c.held, func(n NodeStatus) bool {
		beyond := surplus > 0 && g.excess(n)
		if beyond {
			c.beyond = append(c.beyond, n)
			surplus--
		}
		return beyond
	})
	g.sortForRemoval(c.keep)
	for ; len(c.keep) > 0 && (surplus > 0 || !g.promises(c.keep[0])); surplus-- {
		c.surplus = append(c.surplus, c.keep[0])
		c.keep = c.keep[1:]
	}
	slices.SortFunc(c.keep, func(a, b machine.Machine) int { return cmp.Compare(a.Record.Ordinal, b.Record.Ordinal) })
	taken := map[int]bool{}
	for _, m := range c.keep {
		taken[m.Record.Ordinal] = true
	}
	for _, n := range c.held {
		taken[ordinalOf(g.base, n.Name)] = true
	}
	for ordinal := 1; len(c.keep)+len(c.held)+len(c.fresh) < g.want; ordinal++ {
		_, promised := g.planned[record.ShortName(g.base.Pool, ordinal)]
		if !taken[ordinal] && (promised || g.planned == nil) {
			c.fresh = append(c.fresh, ordinal)
		}
	}
	c.stay = g.standing(c)
	c.needs = map[string]need{}
	for _, m := range c.keep {
		if n := g.need(m); n.change != "" {
			c.needs[m.Name] = n
		}
	}
	g.reinforce(&c)
	return c, g.keepsQuorum(c)
}

// temporary reports whether a node stood in for others, and is not one of those that are wanted.
func (g group) temporary(m machine.Machine) bool {
	if !m.Record.Temporary || m.Record.Ordinal > g.want {
		return m.Record.Temporary
	}
	hosts := g.base.Placement.Hosts // By a manual rule it may stand on a hypervisor that is not its own.
	return len(hosts) >= m.Record.Ordinal && len(hosts) > 1 && hosts[m.Record.Ordinal-1] != m.Hypervisor
}

// unchanged makes sure that what was seen still fits what a plan promised.
func (g group) unchanged(c choice) error {
	changed := func(format string, args ...any) error {
		return &Failure{Err: fmt.Errorf("this is not as it was when it was planned: "+format, args...), Remedy: "plan and apply again."}
	}
	if len(g.planned) != g.want {
		return changed("%d nodes were planned and %d are wanted", len(g.planned), g.want)
	}
	for _, m := range c.keep {
		host, stays := g.planned[m.Record.ShortName()]
		p, known := g.prior[m.Name]
		switch {
		case stays && host != m.Hypervisor:
			return changed("the node %s stands on hypervisor %q, not %q", m.Name, m.Hypervisor, host)
		case !stays && (!known || p.UUID != m.UUID):
			return changed("there is a node %s on hypervisor %q", m.Name, m.Hypervisor)
		}
	}
	for _, n := range c.held {
		if _, stays := g.planned[record.ShortName(g.base.Pool, ordinalOf(g.base, n.Name))]; !stays && !g.excess(n) {
			return changed("the node %s has to go, and nothing can be said of it", n.Name)
		}
	}
	return nil
}

// excess reports whether an agent has a number above all that are and were wanted, as those have that stood in for others.
func (g group) excess(n NodeStatus) bool {
	return g.base.Role == record.Agent && g.had > 0 && ordinalOf(g.base, n.Name) > max(g.want, g.had)
}

// rule is the one by which new nodes get their places: where a plan has promised places, no other will do.
func (g group) rule(fresh []int) record.Placement {
	if g.planned == nil || len(fresh) == 0 {
		return g.base.Placement
	}
	rule := record.Placement{Strategy: record.Manual, Hosts: make([]string, slices.Max(fresh))}
	for _, ordinal := range fresh {
		rule.Hosts[ordinal-1] = g.planned[record.ShortName(g.base.Pool, ordinal)]
	}
	return rule
}

// standing is where the nodes stand that stay.
func (g group) standing(c choice) Assignment {
	a := Assignment{}
	for _, m := range c.keep {
		a[m.Record.ShortName()] = m.Hypervisor
	}
	for _, n := range c.held {
		if n.Hypervisor != "" {
			a[record.ShortName(g.base.Pool, ordinalOf(g.base, n.Name))] = n.Hypervisor
		}
	}
	return a
}

// plan lists what has to be done so that the choice becomes true. New nodes go to their places.
func (g group) plan(c choice, places Assignment) (Plan, error) {
	var clean, remove, nodes, fresh []Lane
	for _, m := range c.broken {
		clean = append(clean, Lane{Machine: m, Actions: g.removal(c)})
	}
	for _, n := range c.lost {
		clean = append(clean, Lane{Machine: g.leftover(n), Actions: g.oblivion(c, n)})
	}
	for _, m := range c.surplus {
		remove = append(remove, Lane{Machine: m, Actions: departure(g.base.Role)})
		if g.base.Role == record.Server && g.ready == nil && m.Power != machine.Running {
			nodes = append(nodes, Lane{Machine: m, Actions: []Action{Start, Agent, Ready}}) // It may be what the API waits for.
		}
	}
	for _, m := range c.keep {
		if actions := g.upkeep(m, c.needs[m.Name]); len(actions) > 0 {
			nodes = append(nodes, Lane{Machine: m, Actions: actions})
		}
	}
	for _, ordinal := range c.fresh {
		l, err := g.creationOf(ordinal, places)
		if err != nil {
			return nil, err
		}
		fresh = append(fresh, l)
	}
	if g.base.Role == record.Server {
		return g.serverPlan(c, nodes, clean, remove, fresh)
	}
	var p Plan
	p.side("clean", clean)
	p.side("remove", remove)
	p.side("nodes", slices.Concat(nodes, fresh))
	p.side("repair", g.repairs(c))
	p, err := g.roll(p, c, places)
	if err != nil {
		return nil, err
	}
	g.finish(&p)
	return p, nil
}

// finish adds the stage of the add-ons, where it has something to do: in an apply of a pool where there are new nodes.
func (g group) finish(p *Plan) {
	grows := slices.ContainsFunc(*p, func(s Stage) bool {
		return slices.ContainsFunc(s.Lanes, func(l Lane) bool { return slices.Contains(l.Actions, Define) || l.Then != nil })
	})
	if g.addons.storage && (g.base.Role == record.Server || grows) {
		p.side("storage", []Lane{g.whole(Storage)})
	}
}

// whole is a lane of the cluster as a whole.
func (g group) whole(action Action) Lane {
	return Lane{Machine: machine.Machine{Record: record.Record{ClusterID: g.base.ClusterID, ClusterName: g.base.ClusterName}}, Actions: []Action{action}}
}

// upkeep lists what is done to a node that stays, beside a change that rolls through the group. Those that are to be changed
// or repaired are not waited for: it may be what brings them up.
func (g group) upkeep(m machine.Machine, n need) []Action {
	if g.sick[m.Name] {
		return nil
	}
	var actions []Action
	switch {
	case n.rolls() && g.base.Role == record.Server && m.Power != machine.Running:
		actions = []Action{Start, Agent} // A quorum may hang on it.
	case n.rolls():
	case m.Power != machine.Running:
		actions = []Action{Start, Agent, Ready}
	case g.ready != nil && !g.ready[m.Name]:
		actions = []Action{Ready}
	}
	if n.change == Adjusted && g.base.Role == record.Agent {
		actions = append(actions, Label)
	}
	if g.api[m.Name].Cordoned && !n.rolls() {
		actions = append(actions, Release)
	}
	return actions
}

// creationOf is the lane of a new node at its place.
func (g group) creationOf(ordinal int, places Assignment) (Lane, error) {
	host, ok := places[record.ShortName(g.base.Pool, ordinal)]
	if !ok {
		return Lane{}, fmt.Errorf("no hypervisor can take a new node")
	}
	return Lane{Machine: g.newMachine(ordinal, host), Actions: creation(g.base.Role, true)}, nil
}

// removal lists the actions that end a node whose making did not come to its end.
func (g group) removal(c choice) []Action {
	if g.base.Role == record.Server && len(c.keep) == 0 {
		return []Action{Delete} // Without another server there is no API that could forget it.
	}
	return farewell(g.base.Role)
}

// oblivion lists the actions that end a node whose VM is gone. The Node object of a successor must stay.
func (g group) oblivion(c choice, n NodeStatus) []Action {
	switch {
	case g.stands(n.Name), g.base.Role == record.Server && len(c.keep) == 0:
		return []Action{Delete}
	case g.base.Role == record.Agent:
		// The volumes go first: if the VM turns out to be there and not ours, nothing else was touched.
		return []Action{Delete, Forget}
	}
	return []Action{Leave, Delete, Forget}
}

// departure lists the actions that end a node which works.
func departure(role record.Role) []Action { return append([]Action{Drain}, farewell(role)...) }

// farewell lists the actions that end a node while its cluster lives. It is stopped before its Node object goes, or it would
// register anew; and the member of a server goes before that, since one that is only stopped still counts for the quorum.
func farewell(role record.Role) []Action {
	if role == record.Server {
		return []Action{Leave, Stop, Forget, Delete}
	}
	return []Action{Stop, Forget, Delete}
}

// withheld lists the nodes that were not seen: those that may stand where nobody answered, and those that are lost. While
// a hypervisor is silent, a node that only the cluster's API knows may stand there too.
func (g group) withheld() (held, lost []NodeStatus) {
	for _, name := range sortedKeys(g.prior) {
		n := g.prior[name]
		switch seen := slices.ContainsFunc(g.machines, func(m machine.Machine) bool { return m.UUID == n.UUID }); {
		case seen || n.UUID == "":
		case g.silence.of(n) != nil:
			held = append(held, n)
		default:
			lost = append(lost, n)
		}
	}
	if len(g.silence.hosts) == 0 {
		return held, lost
	}
	for _, name := range g.registered {
		_, known := g.prior[name]
		if !known && ordinalOf(g.base, name) > 0 && !g.stands(name) {
			held = append(held, NodeStatus{Name: name})
		}
	}
	return held, lost
}

// stands reports whether a VM of that name was observed.
func (g group) stands(name string) bool {
	return slices.ContainsFunc(g.machines, func(m machine.Machine) bool { return m.Name == name })
}

// sortForRemoval puts first what goes first: nodes that the plan does not promise, then those that the user named, then those
// that do not run or are not Ready, then the highest ordinal.
func (g group) sortForRemoval(ms []machine.Machine) {
	slices.SortFunc(ms, func(a, b machine.Machine) int {
		return cmp.Or(after(g.promises(a), g.promises(b)), after(!g.unwanted(a), !g.unwanted(b)), after(g.healthy(a), g.healthy(b)), cmp.Compare(b.Record.Ordinal, a.Record.Ordinal))
	})
}

// unwanted reports whether the user named a node as one that goes first, by its name with or without that of the cluster.
func (g group) unwanted(m machine.Machine) bool {
	return slices.Contains(g.removeFirst, m.Record.ShortName()) || slices.Contains(g.removeFirst, m.Name)
}

// promises reports whether there is to be a node of that name, as far as a plan has promised which there will be.
func (g group) promises(m machine.Machine) bool {
	_, ok := g.planned[m.Record.ShortName()]
	return ok || g.planned == nil
}

// healthy reports whether nothing bad is known of a node.
func (g group) healthy(m machine.Machine) bool {
	return m.Power == machine.Running && (g.ready == nil || g.ready[m.Name])
}

// after orders what is true after what is not.
func after(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// before is what the state knows of the nodes' readiness, and of those that are not Ready for too long.
func (g group) before() (ready, sick map[string]bool) {
	ready, sick = map[string]bool{}, map[string]bool{}
	for _, m := range g.machines {
		state := g.prior[m.Name].State
		ready[m.Name] = state != NodeNotReady && state != NodeUnhealthy
		sick[m.Name] = state == NodeUnhealthy
	}
	return ready, sick
}
