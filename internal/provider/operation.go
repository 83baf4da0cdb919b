package provider

import (
	"context"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
)

// within has a task of a resource done by the engine, within the time that the resource gives it, and reports its failure.
// Nothing is done where diags holds an error already. Turns is how many nodes are made one after another, as servers are:
// they share the time. What do returns beside its error tells how to go on.
func (b *backend) within(ctx context.Context, t task, limits timeouts.Value, turns int, diags *diag.Diagnostics,
	do func(ctx context.Context, waits cluster.Waits) (advice string, err error),
) {
	timeout := t.timeout(ctx, limits, turns, diags)
	if diags.HasError() || !b.ready(t, diags) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if advice, err := do(ctx, cluster.WaitsWithin(timeout/time.Duration(turns))); err != nil {
		t.fail(diags, err, timeoutAdvice(ctx, t.verb, timeout), advice)
	}
}

// timeout is how long a task may take. Its verb is the name of the timeout too.
func (t task) timeout(ctx context.Context, limits timeouts.Value, turns int, diags *diag.Diagnostics) time.Duration {
	limit, usual := limits.Read, cluster.DefaultReadTimeout
	switch t.verb {
	case "create":
		limit, usual = limits.Create, time.Duration(turns)*cluster.DefaultCreateTimeout
	case "update":
		limit, usual = limits.Update, time.Duration(turns)*cluster.DefaultUpdateTimeout
	case "delete":
		limit, usual = limits.Delete, cluster.DefaultDeleteTimeout
	}
	timeout, d := limit(ctx, usual)
	diags.Append(d...)
	return timeout
}
