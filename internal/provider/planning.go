package provider

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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

// hasTemplate reports whether nodes can be cloned, and fails the task where it is known that they cannot.
func (b *backend) hasTemplate(t task, diags *diag.Diagnostics) bool {
	if b == nil || !b.known || b.settings.template != nil {
		return true
	}
	t.fail(diags, errNoTemplate)
	return false
}

// replacedKey keeps the id of what a plan is about in the private data of that plan. Terraform plans a replacement twice,
// first as a change of what exists and then as a create without a prior state, and hands the private data of the first
// plan to the second: that is how the second knows that the namesake on the hypervisors goes first.
const replacedKey = "id"

// markReplaced notes what a plan would replace.
func markReplaced(ctx context.Context, private interface {
	SetKey(context.Context, string, []byte) diag.Diagnostics
}, id string, diags *diag.Diagnostics,
) {
	if text, err := json.Marshal(id); err == nil {
		diags.Append(private.SetKey(ctx, replacedKey, text)...)
	}
}

// replaced is the id of what a create replaces, "" where there is no such thing.
func replaced(ctx context.Context, private interface {
	GetKey(context.Context, string) ([]byte, diag.Diagnostics)
}, diags *diag.Diagnostics,
) string {
	text, d := private.GetKey(ctx, replacedKey)
	diags.Append(d...)
	var id string
	if text == nil || json.Unmarshal(text, &id) != nil {
		return ""
	}
	return id
}

// inUse reports whether a problem is that something of ours has the name already.
func inUse(p cluster.Problem) bool {
	return p.Field == machine.FieldName && !errors.Is(p.Err, machine.ErrForeign) && !errors.Is(p.Err, machine.ErrUnreachable)
}

// report puts the problems of a review on the attributes that cause them. What has no attribute in the resource, such as
// the template, is a matter of the provider's configuration.
func report(t task, problems []cluster.Problem, paths map[machine.Field]path.Path, diags *diag.Diagnostics) {
	for _, p := range problems {
		err := p.Err
		if p.Hypervisor != "" {
			err = fmt.Errorf("hypervisor %q: %w", p.Hypervisor, err)
		}
		at, ok := paths[p.Field]
		switch {
		case errors.Is(p.Err, machine.ErrUnreachable):
			diags.AddWarning(fmt.Sprintf("The plan of %s %q could not be checked against hypervisor %q", t.thing, t.name, p.Hypervisor),
				paragraphs(cluster.Explain(err), "Whether its nodes can be made there is checked during the apply."))
		case inUse(p):
			// A tainted one of that name would be deleted first, which a plan cannot see.
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
	count := fmt.Sprintf("there are %d nodes of %d: ", have, was)
	if have > was {
		count = fmt.Sprintf("there are %d nodes in place of %d: ", have, was)
	}
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

// fates tells what the next apply does to each node that has drifted. Where nodes have to go, those that are not well go
// first, in the order of their numbers from the highest.
func fates(nodes cluster.Nodes, want int) map[string]string {
	var gone, unwell []string
	for name, n := range nodes {
		switch n.State {
		case cluster.NodeMissing, cluster.NodeCreating:
			gone = append(gone, name)
		case cluster.NodeStopped, cluster.NodeNotReady:
			unwell = append(unwell, name)
		}
	}
	slices.SortFunc(gone, byNumber)
	slices.SortFunc(unwell, byNumber)
	stand := len(nodes) - len(gone)
	out := map[string]string{}
	for i, name := range gone {
		out[name] = "what is left of it is removed"
		if i < want-stand {
			out[name] += ", and a new node is made"
		}
	}
	for i, name := range unwell {
		out[name] = "it is started"
		if len(unwell)-i <= stand-want {
			out[name] = "it is removed"
		}
	}
	return out
}

// byNumber orders the names of the nodes of one pool: <cluster>-<pool>-<n>.
func byNumber(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }

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
