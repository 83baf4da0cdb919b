package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

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

// subjectKey keeps what a plan is about in the private data of that plan. Terraform plans a replacement twice, first as a change
// of what exists and then as a create without a prior state, and hands the private data of the first plan to the second: that is
// how the second knows that the namesake on the hypervisors goes first.
const subjectKey = "subject"

// subject is what a plan is about.
type subject struct {
	ID string `json:"id"`
	// Protected: it is not to be destroyed.
	Protected bool `json:"protected,omitempty"`
}

// mark notes what a plan would replace.
func (s subject) mark(ctx context.Context, private interface {
	SetKey(context.Context, string, []byte) diag.Diagnostics
}, diags *diag.Diagnostics,
) {
	if text, err := json.Marshal(s); err == nil {
		diags.Append(private.SetKey(ctx, subjectKey, text)...)
	}
}

// replaced is what a create replaces, zero where there is no such thing.
func replaced(ctx context.Context, private interface {
	GetKey(context.Context, string) ([]byte, diag.Diagnostics)
}, diags *diag.Diagnostics,
) subject {
	text, d := private.GetKey(ctx, subjectKey)
	diags.Append(d...)
	var s subject
	if text == nil || json.Unmarshal(text, &s) != nil {
		return subject{}
	}
	return s
}

// inUse reports whether a problem is that something of ours has the name already.
func inUse(p cluster.Problem) bool {
	return p.Field == machine.FieldName && !errors.Is(p.Err, machine.ErrForeign) && !errors.Is(p.Err, machine.ErrUnreachable)
}

// onceInUse leaves of several problems about a name in use the one that says it of the whole group, or else the first: each of its
// VMs has such a name too.
func onceInUse(problems []cluster.Problem) []cluster.Problem {
	first := slices.IndexFunc(problems, inUse)
	if whole := slices.IndexFunc(problems, func(p cluster.Problem) bool { return inUse(p) && p.Hypervisor == "" }); whole >= 0 {
		first = whole
	}
	var out []cluster.Problem
	for i, p := range problems {
		if i == first || !inUse(p) {
			out = append(out, p)
		}
	}
	return out
}

// report puts the problems of a review on the attributes that cause them. What has no attribute in the resource, such as
// the template, is a matter of the provider's configuration.
func report(t task, problems []cluster.Problem, paths map[machine.Field]path.Path, diags *diag.Diagnostics) {
	for _, p := range onceInUse(problems) {
		err := p.Err
		if p.Hypervisor != "" {
			err = fmt.Errorf("hypervisor %q: %w", p.Hypervisor, err)
		}
		at, ok := paths[p.Field]
		switch {
		case errors.Is(p.Err, machine.ErrUnreachable):
			diags.AddWarning(fmt.Sprintf("The plan of %s %q could not be checked against hypervisor %q", t.thing, t.name, p.Hypervisor),
				paragraphs(cluster.Explain(err), "Whether its nodes can be made there is checked during the apply. A plan that was saved while it answered has to be made anew."))
		case errors.Is(p.Err, cluster.ErrNoQuorum):
			// An error would also end the plan that replaces the cluster, which may be the only way on.
			diags.AddWarning(fmt.Sprintf("The servers of %s %q have no quorum", t.thing, t.name), paragraphs(cluster.Explain(err),
				"Unless this plan replaces the cluster, the apply will fail."))
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

// review asks the engine what it says of a plan, and reports whether there is an answer; there is none while the provider is not known.
func (b *backend) review(ctx context.Context, t task, diags *diag.Diagnostics, check func(context.Context) (cluster.Review, error)) (cluster.Review, bool) {
	if b == nil || !b.known || diags.HasError() {
		return cluster.Review{}, false
	}
	ctx, cancel := context.WithTimeout(ctx, cluster.DefaultReadTimeout)
	defer cancel()
	review, err := check(ctx)
	if err != nil {
		t.fail(diags, err)
		return cluster.Review{}, false
	}
	return review, true
}

// disturbs reports whether an apply does anything to nodes that stand after which they may not be as they were: their VMs are
// powered off, or replaced.
func disturbs(r cluster.Review) bool {
	for _, c := range r.Changes {
		if c != cluster.Adjusted && c != cluster.Restarted {
			return true
		}
	}
	return false
}

// makes reports whether an apply makes new VMs for those that stand, be it to stand in for them.
func makes(r cluster.Review, surge int) bool {
	for _, c := range r.Changes {
		if c == cluster.Replaced || c == cluster.Resized && surge > 0 {
			return true
		}
	}
	return false
}
