package cluster

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// reinforce decides which nodes stand in while others are changed: as many as the rule of the group allows, of those that
// are too many anyway and are as they should be, and else new ones. They take numbers above all others and go in the end, so
// that a node keeps its name, and with it its place in a manual rule, whatever is changed about it.
func (g group) reinforce(c *choice) {
	want := 0
	for _, m := range c.keep {
		if c.needs[m.Name].disrupts() && g.healthy(m) {
			want++
		}
	}
	if want = min(want, g.base.Upgrade.MaxSurge); want == 0 || g.base.Role != record.Agent {
		return
	}
	c.surplus = slices.DeleteFunc(c.surplus, func(m machine.Machine) bool {
		fit := len(c.stand) < want && m.Record.Ordinal > g.want && g.healthy(m) && !g.unwanted(m) && !g.need(m).rolls()
		if fit {
			c.stand = append(c.stand, m)
		}
		return fit
	})
	last := g.want
	for _, m := range g.machines {
		last = max(last, m.Record.Ordinal)
	}
	for _, n := range slices.Concat(c.held, c.beyond) {
		last = max(last, ordinalOf(g.base, n.Name))
	}
	for _, ordinal := range c.fresh {
		last = max(last, ordinal)
	}
	for len(c.stand)+len(c.surge) < want {
		last++
		c.surge = append(c.surge, last)
	}
}

// roll adds to a plan of agents what changes those that stand: first those that are not well, since nothing is lost with
// them, then the others in batches. A batch begins when all nodes of the one before are Ready; what fails ends the plan.
func (g group) roll(p Plan, c choice, places Assignment) (Plan, error) {
	var unwell, well []Lane
	disrupts := false
	for _, m := range c.keep {
		n := c.needs[m.Name]
		switch {
		case !n.rolls():
		case !g.healthy(m):
			unwell = append(unwell, g.change(m, n))
		default:
			well = append(well, g.change(m, n))
			disrupts = disrupts || n.disrupts()
		}
	}
	most := max(1, g.base.Upgrade.MaxUnavailable)
	proven := false
	batches := func(name string, lanes []Lane, size int) {
		slices.SortFunc(lanes, byOrdinal)
		for len(lanes) > 0 {
			n := min(size, len(lanes))
			if !proven {
				n, proven = 1, true // What fails on the first node has to fail on no other.
			}
			p.side(name, lanes[:n])
			lanes = lanes[n:]
		}
	}
	batches("mend", unwell, most)
	var surge []Lane
	for _, ordinal := range c.surge {
		l, err := g.creationOf(ordinal, places)
		if err != nil {
			return nil, err
		}
		l.Machine.Record.Temporary = true
		surge = append(surge, l)
	}
	p.side("surge", surge)
	if disrupts {
		most = g.base.Upgrade.MaxUnavailable + len(c.surge) + len(c.stand)
		if away := g.away(c); most <= len(away) {
			return nil, &Failure{
				Err:    fmt.Errorf("no node may be missing beside those that are: %s", strings.Join(away, ", ")),
				Cause:  "they are not Ready, or nothing can be said of them, and upgrade_settings allows no more.",
				Remedy: "look after them first and apply again, or allow more with upgrade_settings.max_unavailable.",
			}
		} else {
			most -= len(away)
		}
	}
	batches("roll", well, most)
	var done []Lane
	for _, m := range c.stand {
		done = append(done, Lane{Machine: m, Actions: departure(record.Agent)})
	}
	for _, l := range surge {
		done = append(done, Lane{Machine: l.Machine, Actions: departure(record.Agent)})
	}
	p.side("unsurge", done)
	return p, nil
}

// away are the nodes that a roll finds missing and does nothing about.
func (g group) away(c choice) []string {
	out := namesOf(c.held)
	if g.restraint(c) != nil {
		for _, m := range c.keep {
			if g.sick[m.Name] && !c.needs[m.Name].rolls() {
				out = append(out, m.Name)
			}
		}
	}
	return out
}

// change is the lane that makes a node what it should be.
func (g group) change(m machine.Machine, n need) Lane {
	drain := []Action{Drain}
	if g.base.Role == record.Server && len(g.machines) == 1 && !g.company(m.Name) {
		drain = nil // Its pods have nowhere to go, and will find it again.
	}
	end := []Action{Ready}
	if g.base.Role == record.Agent {
		end = append(end, Label)
	}
	if _, asked := g.api[m.Name]; asked || n.change != Restarted {
		end = append(end, Release)
	}
	lane := Lane{Machine: m}
	if g.sick[m.Name] && n.change != Replaced {
		lane.Else = g.instead(m) // It may hang, whatever it is given.
	}
	switch n.change {
	case Replaced:
		lane.Actions = slices.Concat(drain, farewell(g.base.Role))
		lane.Then = &Lane{Machine: g.newMachine(m.Record.Ordinal, m.Hypervisor), Actions: creation(g.base.Role, true)}
	case Resized:
		lane.Actions = slices.Concat(drain, []Action{Stop, Resize, Start, Agent})
		if g.misconfigured(m).change != "" {
			lane.Actions = append(lane.Actions, Configure)
		}
		lane.Actions = append(lane.Actions, end...)
	case Restarted:
		if _, asked := g.api[m.Name]; asked {
			lane.Actions = []Action{Cordon}
		}
		switch {
		case g.sick[m.Name]:
			lane.Actions = append(lane.Actions, Stop, Start, Agent)
		case m.Power != machine.Running:
			lane.Actions = append(lane.Actions, Start, Agent)
		}
		lane.Actions = slices.Concat(lane.Actions, []Action{Configure}, end)
	}
	return lane
}

// instead is the lane of an agent that takes the place of one that does not come up.
func (g group) instead(m machine.Machine) *Lane {
	return &Lane{
		Machine: m, Actions: departure(record.Agent),
		Then: &Lane{Machine: g.newMachine(m.Record.Ordinal, m.Hypervisor), Actions: creation(record.Agent, true)},
	}
}

// company reports whether the cluster has another node that is Ready.
func (g group) company(name string) bool {
	for other, n := range g.api {
		if other != name && n.Ready {
			return true
		}
	}
	return false
}

// repairs are the lanes of nodes that are not Ready for too long: they are switched off and on again, which keeps what stands
// on their disks, and replaced only where that does not help.
func (g group) repairs(c choice) []Lane {
	if g.restraint(c) != nil {
		return nil
	}
	var lanes []Lane
	for _, m := range c.keep {
		if !g.sick[m.Name] || c.needs[m.Name].rolls() {
			continue
		}
		lanes = append(lanes, Lane{
			Machine: m, Actions: []Action{Stop, Start, Agent, Ready, Label, Release}, Else: g.instead(m),
		})
	}
	return lanes
}

// restraint tells why nodes that are not Ready for too long are left alone, nil where they are not.
func (g group) restraint(c choice) error {
	var names []string
	for _, m := range c.keep {
		if g.sick[m.Name] {
			names = append(names, m.Name)
		}
	}
	if len(names) <= g.base.Repair.MaxUnhealthy {
		return nil
	}
	slices.Sort(names)
	return &Failure{
		Err:    fmt.Errorf("%d nodes are not Ready for too long (%s), and repair.max_unhealthy is %d: none of them is touched", len(names), strings.Join(names, ", "), g.base.Repair.MaxUnhealthy),
		Cause:  "where several nodes fail at once, what is wrong is likely to be the network, the CNI or a hypervisor, and not the nodes.",
		Remedy: "look after what they have in common; raise repair.max_unhealthy to have all of them repaired.",
	}
}

// changes tells what becomes of the nodes that stand and stay.
func (g group) changes(c choice) map[string]Change {
	out := map[string]Change{}
	restrained := g.restraint(c) != nil
	for _, m := range c.keep {
		switch n := c.needs[m.Name]; {
		case n.rolls():
			out[m.Name] = n.change
		case g.sick[m.Name] && !restrained:
			out[m.Name] = Repaired
		case m.Power != machine.Running:
			out[m.Name] = Started
		case n.change != "":
			out[m.Name] = n.change
		}
	}
	return out
}

// unchangeable finds what a single server would have to be replaced for.
func (g group) unchangeable(c choice) *Problem {
	if !g.single() {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(c.needs)) {
		if n := c.needs[name]; n.change == Replaced {
			return &Problem{Field: n.field, Err: &Failure{
				Err:    fmt.Errorf("the server %s would have to be replaced (%s), and it is the only one: the data of the cluster would be lost", name, n.reason),
				Remedy: "take the change back, or apply node_count = 3 first: three servers are replaced one after another without loss.",
			}}
		}
	}
	return nil
}

// grown are the nodes that are given another shape, by UUID.
func (c choice) grown() map[string]bool {
	out := map[string]bool{}
	for _, m := range c.keep {
		if c.needs[m.Name].disrupts() {
			out[m.UUID] = true
		}
	}
	return out
}
