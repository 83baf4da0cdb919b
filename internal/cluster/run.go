package cluster

import (
	"cmp"
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
	// base is the record of a new node of the group, extra what the user gives to its guests.
	base  record.Record
	extra Extra
	// apiOptional: a cluster that is being taken away may not answer any more. apiErr is why it did not.
	apiOptional bool
	apiErr      error
	// drainBy is when a destroy ends its drains.
	drainBy time.Time
	// servers is how many servers the cluster is to have, networks the plugin that was installed or changed before nodes were waited
	// for.
	servers  int
	networks []Addon

	mu sync.Mutex
	// machines are the cluster's machines as they are by now.
	machines []machine.Machine
	// up holds the UUIDs of the nodes that were seen Ready, over those of the VMs that were removed to the end, restarted
	// those of nodes that had joined before they were started.
	up, over, restarted map[string]bool
	// addresses maps an address to the node that has it.
	addresses map[string]string
	// warnings tell of what was done otherwise than asked.
	warnings []error

	// joining lets one lane read what agents need to join.
	joining sync.Mutex
	join    *join
}

// plan runs the stages one after another. Within a stage a node that fails does not stop the others: what comes up
// stays. A stage that failed ends the plan.
func (r *run) plan(ctx context.Context, p Plan) error {
	for _, stage := range p {
		errs := make([]error, len(stage.Lanes))
		var wg sync.WaitGroup
		for i, lane := range stage.Lanes {
			lane.Machine = r.present(lane.Machine)
			wg.Go(func() { errs[i] = r.inTurn(ctx, lane) })
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	return nil
}

// inTurn runs a lane, and what comes after it, once its hypervisor has a free place.
func (r *run) inTurn(ctx context.Context, lane Lane) error {
	m := lane.Machine
	if places := r.engine.lanes[m.Hypervisor]; places != nil {
		if err := places.Acquire(ctx, 1); err != nil {
			return nodeError(m.Name, m.Hypervisor, fmt.Errorf("wait for its turn: %w", context.Cause(ctx)))
		}
		defer places.Release(1)
	}
	for next := &lane; next != nil; next = next.Then {
		action, err := r.tries(ctx, next)
		if err == nil {
			continue
		}
		if next.Machine.Name == "" {
			return err // It is the cluster's.
		}
		m = r.present(next.Machine)
		// What the VM lacks may be cured by another one; what the hypervisor lacks is not.
		var f *Failure
		curable := action == Agent || action == Ready && errors.As(err, &f) && f.replaceable
		if next.Else == nil || ctx.Err() != nil || !curable {
			return nodeError(m.Name, m.Hypervisor, err)
		}
		tflog.Warn(ctx, "node did not come up again, replacing it", r.fields(m, map[string]any{"error": err.Error()}))
		next = &Lane{Then: next.Else}
		next.Then.Machine = m
	}
	return nil
}

// tries runs a lane. A new node that fails in a way that another VM may not is replaced once. It returns the action that
// failed.
func (r *run) tries(ctx context.Context, lane *Lane) (Action, error) {
	for attempt := 1; ; attempt++ {
		action, err := r.lane(ctx, lane)
		if err == nil {
			return "", nil
		}
		if m := r.present(lane.Machine); m.Power == machine.Running && (slices.Contains(lane.Actions, Drain) || slices.Contains(lane.Actions, Cordon)) {
			r.giveBack(ctx, m)
		}
		var f *Failure
		old := lane.Machine
		replace := attempt < attempts && errors.As(err, &f) && f.replaceable && slices.Contains(lane.Actions, Bootstrap) && ctx.Err() == nil
		if !replace {
			return action, err
		}
		tflog.Warn(ctx, "node failed, replacing it once", r.fields(old, map[string]any{"error": err.Error()}))
		last := []Action{Delete}
		if slices.Contains(lane.Actions, Leave) {
			last = farewell(old.Record.Role) // It may have become a member of etcd.
		}
		if action, err := r.lane(ctx, &Lane{Machine: old, Actions: last}); err != nil {
			return action, err
		}
		g := group{base: old.Record, identity: NewID}
		lane.Machine = g.newMachine(old.Record.Ordinal, old.Hypervisor)
		lane.Machine.Record.HostDevices = old.Record.HostDevices
		if slices.Contains(lane.Actions, Admit) {
			lane.Actions = creation(old.Record.Role, true) // Its turn is now.
		}
	}
}

// present returns a machine as it is by now: an earlier stage may have changed or replaced it.
func (r *run) present(m machine.Machine) machine.Machine {
	all := r.all()
	if i := slices.IndexFunc(all, func(p machine.Machine) bool { return p.UUID == m.UUID }); i >= 0 {
		return all[i]
	}
	for _, p := range all {
		if p.Name == m.Name && p.Record.ClusterID == m.Record.ClusterID && m.Record.Phase == record.Creating {
			return p
		}
	}
	return m
}

// living reports whether the cluster has a server that has joined: without one there is no API, and the next server
// starts the cluster.
func (r *run) living() bool {
	return slices.ContainsFunc(r.all(), func(m machine.Machine) bool {
		return m.Record.Role == record.Server && m.Record.Phase == record.Joined
	})
}

// lane runs one node's actions in order, and returns the one that failed.
func (r *run) lane(ctx context.Context, lane *Lane) (Action, error) {
	for _, action := range lane.Actions {
		start := time.Now()
		if err := r.action(ctx, action, lane); err != nil {
			var f *Failure
			if ctx.Err() != nil && !errors.As(err, &f) {
				err = fmt.Errorf("stopped in phase %q: %w", action, err)
			}
			return action, err
		}
		tflog.Info(ctx, "phase done", r.fields(lane.Machine, map[string]any{
			"phase": string(action), "elapsed_ms": time.Since(start).Milliseconds(),
		}))
	}
	if slices.Contains(lane.Actions, Delete) {
		mark(&r.mu, &r.over, lane.Machine.UUID)
	}
	return "", nil
}

// warn keeps what the user should know of although the task goes on.
func (r *run) warn(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.warnings = append(r.warnings, err)
}

// mark puts an id into a set.
func mark(mu *sync.Mutex, set *map[string]bool, id string) {
	mu.Lock()
	defer mu.Unlock()
	if *set == nil {
		*set = map[string]bool{}
	}
	(*set)[id] = true
}

func (r *run) fields(m machine.Machine, more map[string]any) map[string]any {
	out := map[string]any{"cluster": m.Record.ClusterName, "node": m.Name, "hypervisor": m.Hypervisor}
	maps.Copy(out, more)
	return out
}

// action runs one action and keeps r.machines true.
func (r *run) action(ctx context.Context, action Action, lane *Lane) error {
	fleet, m := r.engine.fleet, &lane.Machine
	switch action {
	case Leave:
		return r.leave(ctx, *m)
	case Forget:
		return r.forget(ctx, *m)
	case Define:
		err := fleet.Define(ctx, r.spec(*m))
		if err == nil || ctx.Err() != nil {
			// A call that was given up may still come to its end.
			r.put(*m)
			r.engine.book.madeVM(*m)
		}
		return err
	case Clone:
		return fleet.CloneDisk(ctx, r.spec(*m))
	case Seed:
		return r.seed(ctx, *m, lane.waits())
	case Start:
		if err := fleet.Start(ctx, *m); err != nil {
			return err
		}
		if m.Record.Phase == record.Joined {
			mark(&r.mu, &r.restarted, m.UUID)
		}
		m.Power = machine.Running
		r.put(*m)
		return nil
	case Agent:
		return r.awaitAgent(ctx, *m)
	case Admit:
		return r.admit(ctx, *m)
	case Bootstrap:
		return r.awaitBootstrap(ctx, *m, lane.waits())
	case Ready:
		err := r.awaitReady(ctx, *m)
		if err == nil {
			mark(&r.mu, &r.up, m.UUID)
		}
		return err
	case Network:
		return r.installNetwork(ctx)
	case Storage:
		return r.settleAddons(ctx)
	case Seal:
		return r.seal(ctx, m)
	case Configure:
		return r.configure(ctx, m)
	case Cordon:
		return r.cordon(ctx, *m)
	case Drain:
		return r.drain(ctx, *m)
	case Release:
		return r.release(ctx, *m)
	case Label:
		return r.label(ctx, *m)
	case Resize:
		if err := fleet.Resize(ctx, *m, r.base.Shape); err != nil {
			return err
		}
		m.Record.Shape = r.base.Shape
		r.put(*m)
		return nil
	case Stop:
		if err := fleet.Stop(ctx, *m, r.waits.Stop); err != nil {
			return err
		}
		m.Power = machine.Stopped
		r.put(*m)
		return nil
	case Delete:
		if err := fleet.Delete(ctx, *m); err != nil {
			// What is left of it is no node any more.
			m.Record.Phase = record.Creating
			r.replace(*m)
			return err
		}
		if r.drop(*m) {
			r.engine.book.removedVM(*m)
		}
		return nil
	}
	return fmt.Errorf("unknown action %q", action)
}

func (r *run) spec(m machine.Machine) machine.Spec {
	return machine.Spec{
		Hypervisor: m.Hypervisor, UUID: m.UUID, MAC: m.MAC, Network: r.settings.Network, Bridge: r.settings.Bridge, Record: m.Record,
	}
}

// forget deletes the Node object and node password of a name, so that a new node may come under it. A cluster that is
// being taken away may not answer any more, which is no reason to wait.
func (r *run) forget(ctx context.Context, m machine.Machine) error {
	forget := func(ctx context.Context) error {
		return r.withAPI(ctx, func(k Kube) error { return k.DeleteNode(ctx, m.Name) })
	}
	if r.apiOptional {
		if err := cmp.Or(r.lostAPI(nil), forget(ctx)); err != nil && ctx.Err() == nil {
			tflog.Warn(ctx, "the cluster's API did not take the node's removal", r.fields(m, map[string]any{"error": err.Error()}))
		}
		return nil
	}
	if err := r.insist(ctx, forget); err != nil {
		return fmt.Errorf("remove its Node object: %w", err)
	}
	return nil
}

// leave takes a server's member out of etcd, unless etcd could not go on without it.
func (r *run) leave(ctx context.Context, m machine.Machine) error {
	err := r.insist(ctx, func(ctx context.Context) error {
		out := false
		err := r.withAPI(ctx, func(k Kube) error {
			nodes, err := k.Nodes(ctx)
			if err != nil {
				return err
			}
			if err := spare(nodes, m.Name); err != nil {
				return err
			}
			out, err = k.LeaveEtcd(ctx, m.Name)
			return err
		})
		if err == nil && !out {
			err = fmt.Errorf("waited %s, and etcd has not let it go", r.waits.Agent)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("take it out of etcd: %w", err)
	}
	return nil
}

// seal takes the token off the seed and marks the node as joined.
//
// What the guest has written so far has to be on its disk by then. Without that, a power cut in the next half minute leaves
// empty files, such as the password by which the servers know the node, and a node that counts as done never comes up again.
func (r *run) seal(ctx context.Context, m *machine.Machine) error {
	if err := r.insist(ctx, func(ctx context.Context) error { return r.flush(ctx, *m) }); err != nil {
		return fmt.Errorf("have the guest write everything to its disk: %w", explainAgent(err))
	}
	iso, err := sealedSeed(*m)
	if err != nil {
		return err
	}
	if err := r.engine.fleet.WriteSeed(ctx, *m, iso); err != nil {
		return fmt.Errorf("take the join token off the seed: %w", err)
	}
	rec := m.Record
	rec.Phase = record.Joined
	if err := r.setRecord(ctx, m, rec); err != nil {
		return fmt.Errorf("record that the node has joined: %w", err)
	}
	return nil
}

// setRecord replaces a VM's record.
func (r *run) setRecord(ctx context.Context, m *machine.Machine, rec record.Record) error {
	if err := r.engine.fleet.SetRecord(ctx, *m, rec); err != nil {
		return err
	}
	m.Record = rec
	r.put(*m)
	return nil
}

// put, replace and drop keep the list of the cluster's machines.
func (r *run) put(m machine.Machine) {
	if r.replace(m) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.machines = append(r.machines, m)
}

// replace changes a machine of the list, and reports whether it is there.
func (r *run) replace(m machine.Machine) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.machines {
		if r.machines[i].UUID == m.UUID {
			r.machines[i] = m
			return true
		}
	}
	return false
}

// drop reports whether there was a VM: of a lost node only volumes may be left.
func (r *run) drop(gone machine.Machine) (stood bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := len(r.machines)
	r.machines = slices.DeleteFunc(r.machines, func(m machine.Machine) bool { return m.UUID == gone.UUID })
	maps.DeleteFunc(r.addresses, func(_, node string) bool { return node == gone.Name })
	return len(r.machines) < before
}

// nodes tells what a pool consists of as far as the run itself knows: the VMs that stand, and of the nodes that the state
// knew all that were not removed to the end.
func (r *run) nodes(prior Nodes, pool string) Nodes {
	out := Nodes{}
	machines := r.group(pool)
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, n := range prior {
		if !r.over[n.UUID] {
			out[name] = n
		}
	}
	for _, m := range machines {
		n := statusOf(m)
		if p, ok := prior[m.Name]; ok && p.UUID == m.UUID && m.Record.Phase == record.Joined {
			n = p
		}
		if r.up[m.UUID] {
			n.State, n.Reason, n.K3sVersion = NodeReady, "", r.settings.K3sVersion
		}
		for address, node := range r.addresses {
			if node == m.Name {
				n.IP = address
			}
		}
		out[m.Name] = n
	}
	return out
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

// withAPI calls f with the cluster's API; see withDoor.
func (r *run) withAPI(ctx context.Context, f func(Kube) error) error {
	return r.withDoor(ctx, func(d *door) error { return f(d.kube) })
}

// withDoor calls f with the way into the cluster, and once more with one that is newly read where that may help.
func (r *run) withDoor(ctx context.Context, f func(*door) error) error {
	var last error
	for _, fresh := range []bool{false, true} {
		d, err := r.engine.open(ctx, r.all(), fresh)
		if err != nil {
			return err
		}
		if last = f(d); last == nil || answered(last) || ctx.Err() != nil {
			return last
		}
	}
	return last
}

// answered reports whether an error is the answer of an API that works.
func answered(err error) bool {
	var left *Undrained
	var down *Unavailable
	var known *Failure
	return errors.Is(err, errNotReady) || errors.As(err, &left) || errors.As(err, &down) || errors.As(err, &known)
}

// joinInfo returns what nodes need to join; it is read once for a run.
func (r *run) joinInfo(ctx context.Context) (join, error) {
	r.joining.Lock()
	defer r.joining.Unlock()
	if r.join != nil {
		return *r.join, nil
	}
	err := r.insist(ctx, func(ctx context.Context) error {
		j, err := r.engine.joinInfo(ctx, r.all(), r.settings)
		if err == nil {
			r.join = &j
		}
		return err
	})
	if err != nil {
		return join{}, err
	}
	return *r.join, nil
}
