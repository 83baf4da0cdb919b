package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

const (
	// releaseTimeout bounds the giving back of a node whose drain did not come to its end.
	releaseTimeout = 30 * time.Second
	// detachTimeout bounds the wait for volumes after the pods of a node are gone.
	detachTimeout = 5 * time.Minute
	// farewellTimeout bounds the attempts to reach an API that may be on its way out.
	farewellTimeout = 30 * time.Second
)

// drain cordons a node, evicts its pods and waits until no volume is attached to it. A node whose kubelet does not answer is
// not waited for, and one without a Node object has no pods. Where pods are left when the time is over, the rule of the pool
// decides whether that is an error; where the whole pool goes it never is.
func (r *run) drain(ctx context.Context, m machine.Machine) error {
	rule := m.Record.Drain
	if r.base.Pool == m.Record.Pool {
		rule = r.base.Drain // The record may not be up to date.
	}
	bound := time.Duration(cmp.Or(rule.TimeoutSeconds, DefaultDrain.TimeoutSeconds)) * time.Second
	var err error
	if r.apiOptional {
		if bound = min(bound, time.Until(r.drainEnd(ctx, bound))); bound <= 0 {
			err = errors.New("there was no time left to drain it")
		}
	}
	if err == nil {
		err = r.empty(ctx, m, rule, bound)
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() == nil && (rule.Force || r.apiOptional):
		tflog.Warn(ctx, "the node goes although it was not drained", r.fields(m, map[string]any{"error": err.Error()}))
		r.warn(fmt.Errorf("node %q goes without a complete drain: %w", m.Name, err))
		return nil
	}
	return fmt.Errorf("drain it: %w", err)
}

// drainEnd is when a destroy ends its drains, those of all nodes together: what comes after them must not be left behind.
func (r *run) drainEnd(ctx context.Context, bound time.Duration) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.drainBy.IsZero() {
		if end, ok := ctx.Deadline(); ok {
			bound = min(bound, time.Until(end)/2)
		}
		r.drainBy = time.Now().Add(bound)
	}
	return r.drainBy
}

// cordon keeps new pods off a node that is changed. Of several servers none is touched that etcd cannot do without.
func (r *run) cordon(ctx context.Context, m machine.Machine) error {
	err := r.insist(ctx, func(ctx context.Context) error {
		_, err := r.close(ctx, m)
		return err
	})
	if err != nil {
		return fmt.Errorf("cordon it: %w", err)
	}
	return nil
}

// close cordons a node and returns what the API knows of it, nil where it has no Node object.
func (r *run) close(ctx context.Context, m machine.Machine) (*Node, error) {
	var node *Node
	err := r.withAPI(ctx, func(k Kube) error {
		nodes, err := k.Nodes(ctx)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(nodes, func(n Node) bool { return n.Name == m.Name })
		if i < 0 {
			return nil
		}
		node = &nodes[i]
		if err := spare(nodes, m.Name); err != nil && !errors.Is(err, errLastMember) {
			return err
		}
		return k.Cordon(ctx, m.Name)
	})
	return node, err
}

// empty takes the pods and the volumes off a node.
func (r *run) empty(ctx context.Context, m machine.Machine, rule record.Drain, bound time.Duration) error {
	cctx, cancel := ctx, context.CancelFunc(func() {})
	if r.apiOptional {
		if err := r.lostAPI(nil); err != nil {
			return err
		}
		cctx, cancel = within(ctx, farewellTimeout)
	}
	defer cancel()
	var node *Node
	err := r.insist(cctx, func(ctx context.Context) (err error) {
		node, err = r.close(ctx, m)
		return err
	})
	if err != nil {
		return r.lostAPI(err)
	}
	if node == nil {
		return nil
	}
	o := DrainOptions{Dead: !node.Ready || m.Power != machine.Running}
	if rule.GraceSeconds != nil {
		grace := time.Duration(*rule.GraceSeconds) * time.Second
		o.GracePeriod = &grace
	}
	dctx, end := within(ctx, bound)
	defer end()
	// A moment's trouble of the API is no reason to end; the time for that is short, the one for the pods is theirs.
	err = r.insist(dctx, func(context.Context) error {
		o.Timeout = max(remaining(dctx), time.Second)
		err := r.withAPI(dctx, func(k Kube) error { return k.Drain(dctx, m.Name, o) })
		var u *Undrained
		if errors.As(err, &u) {
			return &Failure{
				Err:    fmt.Errorf("the drain, for which there are %s, did not come to its end: %w", bound, err),
				Cause:  "its pods may not be moved now: a budget protects them, or they take long to end.",
				Remedy: `make room for them elsewhere or scale their workloads, and apply again; drain.timeout gives more time, drain.on_timeout = "force" goes on without them.`,
			}
		}
		return err
	})
	if err != nil || o.Dead {
		return err
	}
	return r.detach(ctx, m.Name, min(bound, detachTimeout))
}

// lostAPI keeps the first reason why the API of a cluster could not be reached, and returns it: while a pool is being
// destroyed, not every node has to wait for an API that is gone.
func (r *run) lostAPI(err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.apiErr == nil {
		r.apiErr = err
	}
	if err != nil {
		return err
	}
	return r.apiErr
}

// remaining is how long a context lasts; without a bound of its own, as long as a drain does.
func remaining(ctx context.Context) time.Duration {
	end, ok := ctx.Deadline()
	if !ok {
		return time.Duration(DefaultDrain.TimeoutSeconds) * time.Second
	}
	return time.Until(end)
}

// detach waits until no volume is attached to a node any more: one that is stays blocked for minutes elsewhere.
func (r *run) detach(ctx context.Context, node string, patience time.Duration) error {
	wctx, cancel := within(ctx, patience)
	defer cancel()
	var left []string
	var last error
	err := poll(wctx, func(ctx context.Context) (bool, error) {
		last = r.withAPI(ctx, func(k Kube) (err error) {
			left, err = k.Attached(ctx, node)
			return err
		})
		return last == nil && len(left) == 0, nil
	})
	switch {
	case errors.Is(err, errWait) && len(left) > 0:
		return fmt.Errorf("waited %s, and these volumes are still attached to it: %s", patience, strings.Join(left, ", "))
	case errors.Is(err, errWait):
		return fmt.Errorf("waited %s for its volumes to be detached: %w", patience, last)
	}
	return err
}

// giveBack lets pods on a node again that keeps running although it was to go.
func (r *run) giveBack(ctx context.Context, m machine.Machine) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	if err := r.withAPI(ctx, func(k Kube) error { return k.Release(ctx, m.Name) }); err != nil {
		tflog.Warn(ctx, "the node stays cordoned", r.fields(m, map[string]any{"error": err.Error()}))
	}
}

// release takes back the cordon of a node that is there again, and label gives it its labels and taints.
func (r *run) release(ctx context.Context, m machine.Machine) error {
	err := r.insist(ctx, func(ctx context.Context) error {
		return r.withAPI(ctx, func(k Kube) error { return k.Release(ctx, m.Name) })
	})
	if err != nil {
		return fmt.Errorf("take its cordon back: %w", err)
	}
	return nil
}

func (r *run) label(ctx context.Context, m machine.Machine) error {
	err := r.insist(ctx, func(ctx context.Context) error {
		return r.withAPI(ctx, func(k Kube) error { return k.Label(ctx, m.Name, r.base.Labels, r.base.Taints) })
	})
	if err != nil {
		return fmt.Errorf("give it its labels and taints: %w", err)
	}
	return nil
}

// DrainOptions say how the pods of a node are evicted.
type DrainOptions struct {
	// Timeout bounds the drain; it has to be positive.
	Timeout time.Duration
	// GracePeriod is what pods get to end in place of their own; nil leaves them that.
	GracePeriod *time.Duration
	// Dead: the node's kubelet does not answer, so that nobody would confirm the end of a pod.
	Dead bool
}

// Pod is a pod that a drain has left on a node.
type Pod struct {
	Namespace, Name string
	// Terminating: it has been evicted, and has not ended yet.
	Terminating bool
	// Budgets are the PodDisruptionBudgets that forbid its eviction. With more than one it can never be evicted.
	Budgets []string
	// Reason is what the API said where no budget forbids its eviction; it is "" where the pod is Terminating.
	Reason string
}

// Undrained is the error of a drain that has left pods: its time was over, or they can never be evicted.
type Undrained struct{ Pods []Pod }

// longhorn is the namespace of Longhorn, whose instance managers a budget protects while a volume has its last replica on
// their node (https://longhorn.io/docs/latest/maintenance/maintenance/).
const longhorn = "longhorn-system"

// Error names the pods that are left, and what protects them.
func (u *Undrained) Error() string {
	var parts []string
	for _, p := range u.Pods {
		text := p.Namespace + "/" + p.Name
		switch {
		case p.Terminating:
			text += " does not end"
		case p.Namespace == longhorn && strings.HasPrefix(p.Name, "instance-manager") && len(p.Budgets) > 0:
			text += fmt.Sprintf(" holds the last replica of a Longhorn volume (PodDisruptionBudget %s)", strings.Join(p.Budgets, ", "))
		case len(p.Budgets) > 1:
			text += fmt.Sprintf(" has more than one PodDisruptionBudget, with which Kubernetes evicts no pod: %s", strings.Join(p.Budgets, ", "))
		case len(p.Budgets) > 0:
			text += fmt.Sprintf(" is protected by the PodDisruptionBudget %s", p.Budgets[0])
		default:
			text += fmt.Sprintf(" could not be evicted: %s", p.Reason)
		}
		parts = append(parts, text)
	}
	return "pods are left on it: " + strings.Join(parts, "; ")
}
