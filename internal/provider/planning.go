package provider

import (
	"errors"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
)

// errNoTemplate is why a provider without a template makes no nodes.
var errNoTemplate = &cluster.Failure{
	Err:    errors.New("the provider's configuration names no template, and nodes are cloned from one"),
	Remedy: `add template = { pool = "…", volume = "….qcow2" } to the provider "cockpit" block.`,
}

// hasTemplate reports whether nodes can be cloned, and fails the task where they cannot.
func (b *backend) hasTemplate(t task, diags *diag.Diagnostics) bool {
	if b.settings.template == nil {
		t.fail(diags, errNoTemplate)
		return false
	}
	return true
}

// report puts the problems of a review on the attributes that cause them. What has no attribute in the resource, such as
// the template, is a matter of the provider's configuration.
func report(t task, problems []cluster.Problem, err error, paths map[machine.Field]path.Path, diags *diag.Diagnostics) {
	if err != nil {
		t.fail(diags, err)
		return
	}
	for _, p := range problems {
		err := p.Err
		if p.Hypervisor != "" {
			err = fmt.Errorf("hypervisor %q: %w", p.Hypervisor, err)
		}
		at, ok := paths[p.Field]
		switch {
		case errors.Is(p.Err, machine.ErrUnreachable):
			diags.AddWarning(fmt.Sprintf("The plan of %s %q is not reviewed", t.thing, t.name), paragraphs(cluster.Explain(err),
				"Whether its nodes can be made there is checked during the apply."))
		case p.Field == machine.FieldName && !errors.Is(p.Err, machine.ErrForeign):
			// A tainted cluster of that name would be deleted first, which a plan cannot see.
			diags.AddAttributeWarning(at, fmt.Sprintf("The name of %s %q is in use", t.thing, t.name), paragraphs(cluster.Explain(err),
				"Unless this plan deletes what has that name, the apply will fail."))
		case ok:
			t.failAt(diags, at, err)
		case p.Field == machine.FieldTemplate:
			t.fail(diags, err, `The template is set in the provider "cockpit" block.`)
		default:
			t.fail(diags, err)
		}
	}
}

// drift tells, for each node that the next apply mends, its state and what happens to it, and whether nodes lack or are
// too many. Want is the number of nodes that the state says were wanted.
func drift(nodes cluster.Nodes, want int) []string {
	var lines []string
	for _, name := range sortedNames(nodes) {
		if n := nodes[name]; n.State.Drifted() {
			lines = append(lines, fmt.Sprintf("%s on hypervisor %q is %s: %s", name, n.Hypervisor, n.State, mending(n)))
		}
	}
	switch have := len(nodes); {
	case have < want:
		lines = append(lines, fmt.Sprintf("there are %d nodes of %d: the rest is made", have, want))
	case have > want:
		lines = append(lines, fmt.Sprintf("there are %d nodes in place of %d: the surplus is removed", have, want))
	}
	return lines
}

func mending(n cluster.NodeStatus) string {
	switch {
	case n.State == cluster.NodeStopped:
		return "it is started, or removed if it is one too many"
	default:
		return "what is left of it is removed, and a new node is made if one is wanted"
	}
}

// madeAnew reports whether healing replaces one of the nodes.
func madeAnew(nodes cluster.Nodes) bool {
	for _, n := range nodes {
		if n.State == cluster.NodeMissing || n.State == cluster.NodeCreating {
			return true
		}
	}
	return len(nodes) == 0
}

// warnDrift tells why a plan changes nodes although no attribute has changed.
func warnDrift(summary string, lines []string, diags *diag.Diagnostics) {
	diags.AddWarning(summary, "The next apply brings it back:\n\n- "+strings.Join(lines, "\n- "))
}
