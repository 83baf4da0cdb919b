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
)

// outlook is what the next apply means for the nodes of a group that stands.
type outlook struct {
	nodes cluster.Nodes
	// was is the number of nodes that the state says were wanted, want that which is wanted now. While it is unknown, it is
	// taken to stay.
	was, want int
	// drifted tells of the nodes that are not as they should be, changes whether any node is made, started or removed.
	drifted []string
	changes bool
	fates   map[string]fate
}

func outlookFor(ctx context.Context, state membersModel, was, want types.Number, diags *diag.Diagnostics) outlook {
	o := outlook{nodes: nodesOf(ctx, state.Nodes, diags), was: integer(was), want: integer(was)}
	least := 1
	if known(want) {
		o.want, least = integer(want), integer(want)
	}
	o.drifted = drift(o.nodes, o.was, o.want)
	o.changes = len(o.drifted) > 0 || !want.Equal(was)
	o.fates = fates(o.nodes, least)
	return o
}

// drift tells, for each node that the next apply mends, its state and what happens to it, and whether nodes lack or are
// too many. Was is the number of nodes that the state says were wanted, and want the one that is wanted now.
func drift(nodes cluster.Nodes, was, want int) []string {
	var lines []string
	fate := fates(nodes, want)
	for _, name := range sortedNames(nodes) {
		if n := nodes[name]; n.State.Drifted() {
			lines = append(lines, fmt.Sprintf("%s on hypervisor %q is %s: %s", name, n.Hypervisor, n.State, fate[name]))
		}
	}
	have := len(nodes)
	if have == was {
		return lines
	}
	count := fmt.Sprintf("the number of nodes is %d instead of %d: ", have, was)
	switch {
	case have < want:
		count += "the rest is made"
	case have > want:
		count += "the surplus is removed"
	default:
		count += "as many as are wanted now"
	}
	return append(lines, count)
}

// fate is what the next apply does to a node; it leaves most alone, which is "".
type fate string

const (
	started fate = "it is started"
	removed fate = "it is removed"
	cleared fate = "what is left of it is removed"
	remade  fate = "what is left of it is removed, and a new node is made"
)

// leaves reports whether the VM is not there any more afterwards.
func (f fate) leaves() bool { return f != "" && f != started }

// fates tells what the next apply does to each node. Where nodes have to go, those that are not well go first, then the
// others, each in the order of their numbers from the highest. Those of which nothing is known are left alone.
func fates(nodes cluster.Nodes, want int) map[string]fate {
	var gone, unwell, well []string
	for name, n := range nodes {
		switch n.State {
		case cluster.NodeMissing, cluster.NodeCreating:
			gone = append(gone, name)
		case cluster.NodeStopped, cluster.NodeNotReady:
			unwell = append(unwell, name)
		case cluster.NodeReady:
			well = append(well, name)
		}
	}
	slices.SortFunc(gone, byNumber)
	slices.SortFunc(unwell, byNumber)
	slices.SortFunc(well, byNumber)
	stand := len(nodes) - len(gone)
	out := map[string]fate{}
	for i, name := range gone {
		out[name] = cleared
		if i < want-stand {
			out[name] = remade
		}
	}
	for _, name := range unwell {
		out[name] = started
	}
	order := slices.Concat(well, unwell)
	for _, name := range order[max(0, len(order)-max(0, stand-want)):] {
		out[name] = removed
	}
	return out
}

// byNumber orders the names of the nodes of one pool: <cluster>-<pool>-<n>.
func byNumber(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }

// warnDrift tells why a plan changes nodes although no attribute has changed. What else there is to say comes last.
func warnDrift(summary string, lines []string, more string, diags *diag.Diagnostics) {
	diags.AddWarning(summary, paragraphs("The next apply brings it back:\n\n- "+strings.Join(lines, "\n- "), more))
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
