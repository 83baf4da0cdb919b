package provider

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// outlook is what the next apply means for the nodes of a group that stands.
type outlook struct {
	// group is their name without that of the cluster and the number.
	group string
	nodes cluster.Nodes
	// was is the number of nodes that the state says were wanted, want that which is wanted now. While it is unknown, it is
	// taken to stay.
	was, want int
	// recount reports whether another number is wanted, be it an unknown one.
	recount bool
	// restrained are the nodes that are unhealthy and not touched, since there are more of them than may be.
	restrained []string
	fates      map[string]fate
}

// rules are those of a group that bear on its outlook.
type rules struct {
	removeFirst  []string
	maxUnhealthy int
}

func outlookFor(ctx context.Context, group string, state membersModel, was, want types.Number, r rules, diags *diag.Diagnostics) outlook {
	o := outlook{group: group, nodes: nodesOf(ctx, state.Nodes, diags), was: integer(was), want: integer(was), recount: !want.Equal(was)}
	least := 1
	if known(want) {
		o.want, least = integer(want), integer(want)
	}
	o.fates = o.foresee(least, r.removeFirst)
	o.restrain(r.maxUnhealthy)
	return o
}

// fate is what the next apply does to a node; it leaves most alone, which is "".
type fate string

const (
	started   fate = "it is started"
	repaired  fate = "it is powered off and on again, and replaced where that does not help"
	adjusted  fate = "it is brought up to date"
	restarted fate = "k3s is restarted in it with its settings"
	resized   fate = "it is powered off, resized and started again"
	renewed   fate = "a new node takes its place, and what stands on its disks is lost"
	removed   fate = "it is removed"
	cleared   fate = "what is left of it is removed"
	remade    fate = "what is left of it is removed, and a new node is made"
)

// fateOf is what a change of the engine's review means.
var fateOf = map[cluster.Change]fate{
	cluster.Adjusted: adjusted, cluster.Restarted: restarted, cluster.Resized: resized, cluster.Started: started, cluster.Repaired: repaired,
	cluster.Replaced: renewed,
}

// leaves reports whether the VM is not there any more afterwards.
func (f fate) leaves() bool { return slices.Contains([]fate{renewed, removed, cleared, remade}, f) }

// foresee tells what the next apply does to each node, as far as the state tells. Where nodes have to go, those that the user names go
// first, then those that are not well, then the others, each in the order of their numbers from the highest. Those of which nothing
// is known are left alone.
func (o outlook) foresee(want int, removeFirst []string) map[string]fate {
	var gone, stay []string
	out := map[string]fate{}
	for name, n := range o.nodes {
		switch n.State {
		case cluster.NodeMissing, cluster.NodeCreating:
			gone = append(gone, name)
		case cluster.NodeUnknown:
		case cluster.NodeStopped:
			out[name] = started
			stay = append(stay, name)
		case cluster.NodeUnhealthy:
			out[name] = repaired
			stay = append(stay, name)
		case cluster.NodeDrifted:
			out[name] = adjusted
			stay = append(stay, name)
		default:
			stay = append(stay, name)
		}
	}
	slices.SortFunc(gone, byNumber)
	stand := len(o.nodes) - len(gone)
	for i, name := range gone {
		out[name] = cleared
		if i < want-stand {
			out[name] = remade
		}
	}
	rank := func(name string) int {
		rank := 0
		if slices.Contains(removeFirst, name) || slices.Contains(removeFirst, o.shortName(name)) {
			rank += 2
		}
		if s := o.nodes[name].State; s != cluster.NodeReady && s != cluster.NodeDrifted {
			rank++
		}
		return rank
	}
	slices.SortFunc(stay, func(a, b string) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), byNumber(a, b)) })
	for _, name := range stay[max(0, len(stay)-max(0, stand-want)):] {
		out[name] = removed
	}
	return out
}

// restrain leaves the unhealthy nodes alone that stay where there are more of them than may be.
func (o *outlook) restrain(most int) {
	var sick []string
	for _, name := range sortedNames(o.nodes) {
		if o.fates[name] == repaired {
			sick = append(sick, name)
		}
	}
	if len(sick) <= most {
		return
	}
	o.restrained = sick
	for _, name := range sick {
		delete(o.fates, name)
	}
}

// learn takes over what the engine's review says of nodes that stand: it knows more of them than the state does.
func (o *outlook) learn(r cluster.Review) {
	for name, n := range o.nodes {
		if n.State == cluster.NodeMissing || n.State == cluster.NodeCreating {
			continue
		}
		if _, stays := r.Assignment[o.shortName(name)]; r.Assignment != nil && !stays && n.State != cluster.NodeUnknown {
			o.fates[name] = removed
		} else if stays && o.fates[name] == removed {
			delete(o.fates, name)
		}
		if change, ok := r.Changes[name]; ok {
			o.fates[name] = fateOf[change]
		}
	}
}

// changes reports whether any node is made, changed or removed for what the state knows.
func (o outlook) changes() bool { return o.recount || len(o.drift()) > 0 }

// drift tells, for each node that the next apply mends, its state and what happens to it, and whether nodes lack or are too many.
func (o outlook) drift() []string {
	var lines []string
	for _, name := range sortedNames(o.nodes) {
		n := o.nodes[name]
		if !n.State.Drifted() || o.fates[name] == "" {
			continue
		}
		why := ""
		if n.Reason != "" && (n.State == cluster.NodeDrifted || n.State == cluster.NodeUnhealthy) {
			why = fmt.Sprintf(" (%s)", n.Reason)
		}
		lines = append(lines, fmt.Sprintf("%s on hypervisor %q is %s%s: %s", name, n.Hypervisor, n.State, why, o.fates[name]))
	}
	have := len(o.nodes)
	if have == o.was {
		return lines
	}
	count := fmt.Sprintf("the number of nodes is %d instead of %d: ", have, o.was)
	switch {
	case have < o.want:
		count += "the rest is made"
	case have > o.want:
		count += "the surplus is removed"
	default:
		count += "as many as are wanted now"
	}
	return append(lines, count)
}

// with lists the nodes with a fate.
func (o outlook) with(f fate) []string {
	var out []string
	for name, is := range o.fates {
		if is == f {
			out = append(out, name)
		}
	}
	slices.SortFunc(out, byNumber)
	return out
}

func (o outlook) shortName(name string) string { return shortName(o.group, name) }

// shortName is the name within its cluster of a node of a group.
func shortName(group, name string) string {
	return group + name[strings.LastIndexByte(name, '-'):]
}

// byNumber orders the names of the nodes of one group: <cluster>-<group>-<n>.
func byNumber(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }

// warnDrift tells why a plan changes nodes and add-ons although no attribute has changed. What else there is to say comes last.
func (o outlook) warnDrift(thing, name string, addons []string, more string, diags *diag.Diagnostics) {
	if lines := append(o.drift(), addons...); len(lines) > 0 {
		diags.AddWarning(fmt.Sprintf("%s %q has drifted", thing, name),
			paragraphs("The next apply brings it back:\n\n- "+strings.Join(lines, "\n- "), more))
	}
}

// warnRestrained tells of the nodes that are unhealthy and not touched.
func (o outlook) warnRestrained(pool string, most int, diags *diag.Diagnostics) {
	if len(o.restrained) == 0 {
		return
	}
	var lines []string
	for _, name := range o.restrained {
		lines = append(lines, fmt.Sprintf("%s on hypervisor %q: %s", name, o.nodes[name].Hypervisor, o.nodes[name].Reason))
	}
	diags.AddWarning(fmt.Sprintf("Node pool %q has unhealthy nodes that are not touched", pool), paragraphs(
		"- "+strings.Join(lines, "\n- "),
		fmt.Sprintf("Number of them: %d; repair.max_unhealthy is %d.", len(o.restrained), most),
		"Likely cause: where several nodes fail at once, what is wrong is rather the network, the CNI or a hypervisor than the nodes.",
		"What to do: look after what they have in common. A higher repair.max_unhealthy has all of them repaired."))
}

// warnRenewed tells which nodes are replaced, and what goes with them.
func (o outlook) warnRenewed(thing, name string, u record.Upgrade, diags *diag.Diagnostics) {
	names := o.with(renewed)
	if len(names) == 0 {
		return
	}
	how := "They are replaced one at a time"
	if size := u.MaxSurge + u.MaxUnavailable; size > 1 {
		how = fmt.Sprintf("They are replaced up to %d at a time", size)
	}
	switch extra := min(u.MaxSurge, len(names)); {
	case extra == 1:
		how += ", once an extra node stands in for them"
	case extra > 1:
		how += fmt.Sprintf(", once %d extra nodes stand in for them", extra)
	}
	if u.MaxSurge+u.MaxUnavailable > 1 {
		how += "; the first of them goes alone"
	}
	how += "."
	diags.AddWarning(fmt.Sprintf("%s %q replaces its nodes", thing, name), paragraphs(
		"New nodes take the place and the name of: "+strings.Join(names, ", ")+".", how,
		"What stands on their disks is lost: volumes of the local-path class, emptyDir volumes, and data disks."))
}

// warnMoved tells of those among servers whose address has changed. Their etcd, and the nodes that have joined, know the one before.
func warnMoved(before, now cluster.Nodes, diags *diag.Diagnostics) {
	for _, name := range sortedNames(now) {
		was, is := before[name], now[name]
		if was.UUID != is.UUID || was.IP == "" || is.IP == "" || was.IP == is.IP {
			continue
		}
		diags.AddWarning(fmt.Sprintf("The address of server %q has changed from %s to %s", name, was.IP, is.IP), fmt.Sprintf(
			"A server keeps the address with which it joined: etcd on the other servers, and agents, go on looking for %s.\n\n"+
				"What to do: in the DHCP server of the network reserve %s for the MAC address %s, and restart the VM.", was.IP, was.IP, is.MAC))
	}
}
