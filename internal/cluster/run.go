package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// run carries a plan out.
type run struct {
	engine   *Engine
	settings record.Cluster
	waits    Waits
	// apiOptional: a cluster that is being taken away may not answer any more.
	apiOptional bool

	mu sync.Mutex
	// machines are the cluster's machines as they are by now.
	machines []machine.Machine
	// addresses maps an address to the node that reported it.
	addresses map[string]string

	joinOnce sync.Once
	join     join
	joinErr  error
}

// plan runs the stages one after another. Within a stage a node that fails does not stop the others: what comes up
// stays. A stage that failed ends the plan.
func (r *run) plan(ctx context.Context, p Plan) error {
	for _, stage := range p {
		errs := make([]error, len(stage.Lanes))
		var wg sync.WaitGroup
		for i, lane := range stage.Lanes {
			wg.Go(func() { errs[i] = r.bounded(ctx, lane) })
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	return nil
}

// bounded runs a lane once its hypervisor has a free place.
func (r *run) bounded(ctx context.Context, lane Lane) error {
	m := lane.Machine
	if places := r.engine.lanes[m.Hypervisor]; places != nil {
		if err := places.Acquire(ctx, 1); err != nil {
			return nodeError(m.Name, m.Hypervisor, fmt.Errorf("wait for its turn: %w", context.Cause(ctx)))
		}
		defer places.Release(1)
	}
	for attempt := 1; ; attempt++ {
		err := r.lane(ctx, lane)
		if err == nil {
			return nil
		}
		var f *Failure
		replace := attempt < attempts && errors.As(err, &f) && f.replaceable && slices.Contains(lane.Actions, Define) && ctx.Err() == nil
		if !replace {
			return nodeError(lane.Machine.Name, lane.Machine.Hypervisor, err)
		}
		tflog.Warn(ctx, "node failed, replacing it once", r.fields(lane.Machine, map[string]any{"error": err.Error()}))
		if err := r.lane(ctx, Lane{lane.Machine, []Action{Delete}}); err != nil {
			return nodeError(lane.Machine.Name, lane.Machine.Hypervisor, err)
		}
		g := group{base: lane.Machine.Record, identity: NewID}
		lane.Machine = g.newMachine(lane.Machine.Record.Ordinal, lane.Machine.Hypervisor)
	}
}

// lane runs one node's actions in order.
func (r *run) lane(ctx context.Context, lane Lane) error {
	for _, action := range lane.Actions {
		start := time.Now()
		if err := r.action(ctx, action, &lane.Machine); err != nil {
			return err
		}
		tflog.Info(ctx, "phase done", r.fields(lane.Machine, map[string]any{
			"phase": string(action), "elapsed_ms": time.Since(start).Milliseconds(),
		}))
	}
	return nil
}

func (r *run) fields(m machine.Machine, more map[string]any) map[string]any {
	out := map[string]any{"cluster": m.Record.ClusterName, "node": m.Name, "hypervisor": m.Hypervisor}
	maps.Copy(out, more)
	return out
}

// action runs one action and keeps r.machines true.
func (r *run) action(ctx context.Context, action Action, m *machine.Machine) error {
	fleet := r.engine.fleet
	switch action {
	case Forget:
		return r.forget(ctx, *m)
	case Define:
		err := fleet.Define(ctx, r.spec(*m))
		if err == nil {
			r.put(*m)
		}
		return err
	case Clone:
		return fleet.CloneDisk(ctx, r.spec(*m))
	case Seed:
		return r.seed(ctx, *m)
	case Start:
		if err := fleet.Start(ctx, *m); err != nil {
			return err
		}
		m.Power = machine.Running
		r.put(*m)
		return nil
	case Agent:
		return r.awaitAgent(ctx, *m)
	case Bootstrap:
		return r.awaitBootstrap(ctx, *m)
	case Ready:
		return r.awaitReady(ctx, *m)
	case Seal:
		return r.seal(ctx, m)
	case Stop:
		if err := fleet.Stop(ctx, *m, r.waits.Stop); err != nil {
			return err
		}
		m.Power = machine.Stopped
		r.put(*m)
		return nil
	case Delete:
		if err := fleet.Delete(ctx, *m); err != nil {
			return err
		}
		r.drop(m.UUID)
		return nil
	}
	return fmt.Errorf("unknown action %q", action)
}

func (r *run) spec(m machine.Machine) machine.Spec {
	return machine.Spec{
		Hypervisor: m.Hypervisor, UUID: m.UUID, MAC: m.MAC, Network: r.settings.Network, Bridge: r.settings.Bridge, Record: m.Record,
	}
}

// forget deletes the Node object and node password of a name, so that a new node may come under it.
func (r *run) forget(ctx context.Context, m machine.Machine) error {
	err := r.withAPI(ctx, func(k Kube) error { return k.DeleteNode(ctx, m.Name) })
	if err != nil && r.apiOptional && ctx.Err() == nil {
		tflog.Warn(ctx, "the cluster's API did not take the node's removal", r.fields(m, map[string]any{"error": err.Error()}))
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove its Node object: %w", err)
	}
	return nil
}

// seal takes the token off the seed and marks the node as joined.
func (r *run) seal(ctx context.Context, m *machine.Machine) error {
	iso, err := sealedSeed(*m)
	if err != nil {
		return err
	}
	if err := r.engine.fleet.WriteSeed(ctx, *m, iso); err != nil {
		return fmt.Errorf("take the join token off the seed: %w", err)
	}
	rec := m.Record
	rec.Phase = record.Joined
	if err := r.engine.fleet.SetRecord(ctx, *m, rec); err != nil {
		return fmt.Errorf("record that the node has joined: %w", err)
	}
	m.Record = rec
	r.put(*m)
	return nil
}

// put and drop keep the list of the cluster's machines.
func (r *run) put(m machine.Machine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.machines {
		if r.machines[i].UUID == m.UUID {
			r.machines[i] = m
			return
		}
	}
	r.machines = append(r.machines, m)
}

func (r *run) drop(uuid string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.machines = slices.DeleteFunc(r.machines, func(m machine.Machine) bool { return m.UUID == uuid })
}

// all returns the cluster's machines as they are by now.
func (r *run) all() []machine.Machine {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.machines)
}

// group returns the machines of one pool.
func (r *run) group(pool string) []machine.Machine {
	return slices.DeleteFunc(r.all(), func(m machine.Machine) bool { return m.Record.Pool != pool })
}

// withAPI calls f with the cluster's API, and once more with a newly read kubeconfig where that may help.
func (r *run) withAPI(ctx context.Context, f func(Kube) error) error {
	var last error
	for _, fresh := range []bool{false, true} {
		d, err := r.engine.open(ctx, r.all(), fresh)
		if err != nil {
			return err
		}
		if last = f(d.kube); last == nil || errors.Is(last, errNotReady) || ctx.Err() != nil {
			return last
		}
	}
	return last
}

// joining returns what agents need to join; it is read once for a run.
func (r *run) joining(ctx context.Context) (join, error) {
	r.joinOnce.Do(func() { r.join, r.joinErr = r.engine.joinInfo(ctx, r.all()) })
	return r.join, r.joinErr
}
