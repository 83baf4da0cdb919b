package provider

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
)

// task is something that was asked for. Its text is the summary of every error: Unable to <verb> <thing> "<name>".
type task struct{ verb, thing, name string }

// The things that tasks are about.
const (
	theCluster    = "cluster"
	thePool       = "node pool"
	theKubeconfig = "kubeconfig of cluster"
)

// String returns the summary of the task's failure.
func (t task) String() string {
	summary := fmt.Sprintf("Unable to %s %s", t.verb, t.thing)
	if t.name == "" {
		return summary
	}
	return fmt.Sprintf("%s %q", summary, t.name)
}

// fail adds the task's failure; advice adds paragraphs, of which empty ones are left out.
func (t task) fail(diags *diag.Diagnostics, err error, advice ...string) {
	diags.AddError(t.String(), paragraphs(append([]string{cluster.Explain(err)}, advice...)...))
}

// failAt adds the task's failure at the attribute that causes it. A nested attribute is named in the text, since Terraform
// shows no line of the configuration for it.
func (t task) failAt(diags *diag.Diagnostics, p path.Path, err error) {
	var where string
	if len(p.Steps()) > 1 {
		where = fmt.Sprintf("The attribute is %s.", p)
	}
	diags.AddAttributeError(p, t.String(), paragraphs(cluster.Explain(err), where))
}

// warn tells what was done otherwise than asked, although the task as a whole went on.
func (t task) warn(diags *diag.Diagnostics, warnings []error) {
	if len(warnings) > 0 {
		diags.AddWarning(t.String()+" as asked", cluster.Explain(errors.Join(warnings...)))
	}
}

// paragraphs joins texts, of which empty ones are left out.
func paragraphs(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(s string) bool { return s == "" }), "\n\n")
}

// timeoutAdvice tells, where an operation ran out of its time, how to give it more.
func timeoutAdvice(ctx context.Context, operation string, timeout time.Duration) string {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return ""
	}
	return fmt.Sprintf("The time for it, %s, is over; timeouts.%s sets another.", timeout, operation)
}

// resumeAdvice tells how to go on after a create that failed. Terraform taints what it could not create to the end.
func resumeAdvice(nodes cluster.Nodes) string {
	if len(nodes) == 0 {
		return "Nothing was made; apply again when the cause is mended."
	}
	return fmt.Sprintf("What exists is kept in the state: %s. Terraform has marked it as tainted, so that the next apply would delete it and begin anew. "+
		"To go on where this one stopped, mend the cause, run `terraform untaint` with the address above, and apply again.", describe(nodes))
}

// What an update and a delete that failed leave behind.
const (
	resumeUpdate = "What exists is kept in the state; the next apply goes on from there."
	resumeDelete = "What is left is kept in the state; the next destroy goes on from there."
)

// describe lists nodes with their states.
func describe(nodes cluster.Nodes) string {
	var out []string
	for _, name := range sortedNames(nodes) {
		out = append(out, fmt.Sprintf("%s (%s)", name, nodes[name].State))
	}
	return strings.Join(out, ", ")
}
