package provider

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
)

// span is the time of an operation: what it usually has, and how much of that is for nodes that are made one after another, as
// servers are. The rest is for drains and the like, whose length does not depend on how fast nodes come up.
type span struct{ usual, making time.Duration }

// roundTime is for what is done to the nodes of one batch of a rolling change beside their drain: they are powered off and on again,
// or made anew, and are Ready.
const roundTime = 20 * time.Minute

var readSpan = span{usual: cluster.DefaultReadTimeout, making: cluster.DefaultReadTimeout}

// createSpan is for so many nodes, one after another.
func createSpan(turns int) span {
	d := time.Duration(turns) * cluster.DefaultCreateTimeout
	return span{usual: d, making: d}
}

// updateSpan is for so many nodes that are made one after another, and for rounds of a rolling change with a drain in each.
func updateSpan(turns, rounds int, drain time.Duration) span {
	making := time.Duration(turns) * cluster.DefaultUpdateTimeout
	return span{usual: making + time.Duration(rounds)*(roundTime+drain), making: making}
}

// deleteSpan holds the drain of nodes that go side by side.
func deleteSpan(drain time.Duration) span {
	return span{usual: cluster.DefaultDeleteTimeout + drain, making: cluster.DefaultCreateTimeout}
}

// spanOfServers is how long an update of so many servers takes. They are drained by the default rule.
func spanOfServers(turns int) span {
	return updateSpan(turns, turns, seconds(cluster.DefaultDrain.TimeoutSeconds))
}

// spanOfPool is how long an update of a pool with so many nodes takes.
func spanOfPool(spec cluster.PoolSpec, before int) span {
	size := max(1, spec.Upgrade.MaxSurge+spec.Upgrade.MaxUnavailable)
	rounds := (max(spec.Nodes, before) + size - 1) / size
	return updateSpan(1, rounds+2, seconds(spec.Drain.TimeoutSeconds)) // Extra nodes come before the others, and the first goes alone.
}

// waits divides a timeout into the waits inside. One that is shorter than what making nodes usually takes shortens each of them;
// one that is longer than usual lengthens each, for machines that are slow.
func (s span) waits(timeout time.Duration) cluster.Waits {
	scale := min(1, float64(timeout)/float64(s.making))
	if timeout > s.usual && s.usual >= s.making {
		scale = float64(timeout) / float64(s.usual)
	}
	return cluster.WaitsWithin(time.Duration(scale * float64(cluster.DefaultCreateTimeout)))
}

// within has a task of a resource done by the engine, within the time that the resource gives it, and reports its failure.
// Nothing is done where diags holds an error already. What do returns beside its error tells how to go on.
func (b *backend) within(ctx context.Context, t task, limits timeouts.Value, s span, diags *diag.Diagnostics,
	do func(ctx context.Context, waits cluster.Waits) (advice string, err error),
) {
	timeout := t.timeout(ctx, limits, s.usual, diags)
	if diags.HasError() || !b.ready(t, diags) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if advice, err := do(ctx, s.waits(timeout)); err != nil {
		t.fail(diags, err, timeoutAdvice(ctx, t.verb, timeout), advice)
	}
}

// refresh has a resource read by the engine. Only where every hypervisor answered and nothing of it is left, it leaves the state.
func (b *backend) refresh(ctx context.Context, t task, limits timeouts.Value, resp *resource.ReadResponse, read func(context.Context) error) {
	b.within(ctx, t, limits, readSpan, &resp.Diagnostics, func(opCtx context.Context, _ cluster.Waits) (string, error) {
		err := read(opCtx)
		if errors.Is(err, cluster.ErrGone) {
			resp.State.RemoveResource(ctx)
			return "", nil
		}
		return "", err
	})
}

// timeout is how long a task may take. Its verb is the name of the timeout too.
func (t task) timeout(ctx context.Context, limits timeouts.Value, usual time.Duration, diags *diag.Diagnostics) time.Duration {
	limit := limits.Read
	switch t.verb {
	case "create":
		limit = limits.Create
	case "update":
		limit = limits.Update
	case "delete":
		limit = limits.Delete
	}
	timeout, d := limit(ctx, usual)
	diags.Append(d...)
	return timeout
}
