package provider

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/k3s"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// fakeEngine answers with what a test sets, and remembers what it was asked.
type fakeEngine struct {
	settings settings
	mu       sync.Mutex

	problems []cluster.Problem
	// changes are what reviews say of nodes that stand, warnings what applies and deletes tell.
	changes  map[string]cluster.Change
	warnings []error
	// works are the add-ons that reviews of clusters say an apply works on, addons those that are otherwise than by default: an
	// apply mends what is not deployed. With unseen nobody looks at them. faults are what is wrong with add-ons at once.
	works  []cluster.Addon
	addons cluster.AddonStatuses
	unseen bool
	faults []cluster.Problem
	// exports are the NFS exports of storage pools.
	exports map[string]machine.Export
	// hosts take the nodes of a group in turn; none stand for "default". blind reviews tell nothing of that.
	hosts []string
	blind bool
	// nodes, missing or failing, replace those that an apply makes; nil are those of the spec, all ready.
	nodes cluster.Nodes
	// states are those of nodes that are not ready when they are read; an apply mends them.
	states map[string]cluster.NodeState
	// err ends the next applies, reads, deletes and look-ups. With it, told is what an apply says of the spec.
	err  error
	told *cluster.PoolSpec
	// protected: the records of a cluster say that it is.
	protected bool
	// cluster and pool are what is there to be found.
	cluster cluster.Spec
	pool    cluster.PoolSpec
	kube    k3s.Kubeconfig

	calls       []string
	lastSpec    cluster.Spec
	lastPool    cluster.PoolSpec
	lastPrior   cluster.Nodes
	lastWaits   cluster.Waits
	lastTimeout time.Duration
}

func (e *fakeEngine) note(ctx context.Context, call string, prior cluster.Nodes) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls, e.lastPrior = append(e.calls, call), prior
	if deadline, ok := ctx.Deadline(); ok {
		e.lastTimeout = time.Until(deadline)
	}
}

func (e *fakeEngine) CheckCluster(ctx context.Context, spec cluster.Spec, before *cluster.State) (cluster.Review, error) {
	e.note(ctx, "check cluster", nodesBefore(before))
	e.lastSpec = spec
	r := e.review(record.ServerPool, spec.Servers, nodesBefore(before))
	r.Addons = e.works
	return r, nil
}

func (e *fakeEngine) CheckPool(ctx context.Context, spec cluster.PoolSpec, before *cluster.PoolState) (cluster.Review, error) {
	e.note(ctx, "check pool", poolNodesBefore(before))
	e.lastPool = spec
	return e.review(spec.Name, spec.Nodes, poolNodesBefore(before)), nil
}

// review keeps of the nodes of before as many as are wanted: those that are not ready go first, then those with the highest numbers.
func (e *fakeEngine) review(pool string, want int, before cluster.Nodes) cluster.Review {
	r := cluster.Review{Problems: slices.Clone(e.problems), Changes: e.changes}
	if e.blind {
		return r
	}
	r.Assignment = cluster.Assignment{}
	stay := slices.SortedFunc(maps.Keys(before), func(a, b string) int {
		unwell := func(name string) int {
			if s := before[name].State; s == cluster.NodeStopped || s == cluster.NodeNotReady {
				return 1
			}
			return 0
		}
		return cmp.Or(cmp.Compare(unwell(a), unwell(b)), byNumber(a, b))
	})
	for _, name := range stay[:min(want, len(stay))] {
		r.Assignment[shortName(pool, name)] = before[name].Hypervisor
	}
	for i := 1; len(r.Assignment) < want; i++ {
		if name := record.ShortName(pool, i); r.Assignment[name] == "" {
			r.Assignment[name] = e.host(i)
		}
	}
	return r
}

// host is where the node with an ordinal goes.
func (e *fakeEngine) host(ordinal int) string {
	if len(e.hosts) == 0 {
		return "default"
	}
	return e.hosts[(ordinal-1)%len(e.hosts)]
}

func (e *fakeEngine) FindCluster(ctx context.Context, idOrName string) (cluster.Spec, error) {
	e.note(ctx, "find cluster "+idOrName, nil)
	return e.cluster, e.err
}

func (e *fakeEngine) FindPool(ctx context.Context, id string) (cluster.PoolSpec, error) {
	e.note(ctx, "find pool "+id, nil)
	return e.pool, e.err
}

func (e *fakeEngine) ReadCluster(ctx context.Context, spec cluster.Spec, prior cluster.Nodes) (cluster.State, error) {
	e.note(ctx, "read cluster", prior)
	spec.Settings.DeletionProtection = spec.Settings.DeletionProtection || e.protected
	return e.state(spec), e.err
}

func (e *fakeEngine) ReadPool(ctx context.Context, spec cluster.PoolSpec, prior cluster.Nodes) (cluster.PoolState, error) {
	e.note(ctx, "read pool", prior)
	return e.poolState(spec), e.err
}

func (e *fakeEngine) ApplyCluster(ctx context.Context, spec cluster.Spec, before *cluster.State, waits cluster.Waits) (cluster.State, error) {
	e.note(ctx, "apply cluster", nodesBefore(before))
	if nfs := spec.Settings.CSI.NFS; nfs != nil && nfs.Server == "" {
		told := *nfs
		told.Server, told.Path = e.exports[nfs.Pool].Server, e.exports[nfs.Pool].Path
		spec.Settings.CSI.NFS = &told
	}
	if e.err == nil {
		e.addons = maps.Clone(e.addons)
		maps.DeleteFunc(e.addons, func(_ cluster.Addon, s cluster.AddonStatus) bool { return s.State != cluster.AddonDeployed })
	}
	e.states, e.changes = nil, nil
	e.lastSpec, e.lastWaits = spec, waits
	if e.err != nil && before != nil {
		spec = before.Spec
	}
	return e.state(spec), e.err
}

func (e *fakeEngine) ApplyPool(ctx context.Context, spec cluster.PoolSpec, before *cluster.PoolState, waits cluster.Waits) (cluster.PoolState, error) {
	e.note(ctx, "apply pool", poolNodesBefore(before))
	e.states, e.changes = nil, nil
	e.lastPool, e.lastWaits = spec, waits
	switch {
	case e.err != nil && e.told != nil:
		spec = *e.told
	case e.err != nil && before != nil:
		spec = before.Spec
	}
	return e.poolState(spec), e.err
}

func (e *fakeEngine) DeleteCluster(ctx context.Context, spec cluster.Spec, prior cluster.Nodes, waits cluster.Waits) (cluster.Nodes, error) {
	e.note(ctx, "delete cluster", prior)
	e.lastSpec, e.lastWaits = spec, waits
	return e.nodes, e.err
}

func (e *fakeEngine) DeletePool(ctx context.Context, spec cluster.PoolSpec, prior cluster.Nodes, waits cluster.Waits) (cluster.PoolState, error) {
	e.note(ctx, "delete pool", prior)
	e.lastPool, e.lastWaits = spec, waits
	return cluster.PoolState{Spec: spec, Nodes: e.nodes, Warnings: e.warnings}, e.err
}

// nodesBefore and poolNodesBefore are the nodes of a state of before, nil without one.
func nodesBefore(before *cluster.State) cluster.Nodes {
	if before == nil {
		return nil
	}
	return before.Nodes
}

func poolNodesBefore(before *cluster.PoolState) cluster.Nodes {
	if before == nil {
		return nil
	}
	return before.Nodes
}

func (e *fakeEngine) Kubeconfig(ctx context.Context, clusterID string) (k3s.Kubeconfig, error) {
	e.note(ctx, "kubeconfig "+clusterID, nil)
	return e.kube, e.err
}

// Export knows no pool but those of the test; without any, the hypervisors do not answer.
func (e *fakeEngine) Export(ctx context.Context, pool string) (machine.Export, error) {
	e.note(ctx, "export "+pool, nil)
	switch x, ok := e.exports[pool]; {
	case ok:
		return x, nil
	case e.exports == nil:
		return machine.Export{}, fmt.Errorf("dial: %w", machine.ErrUnreachable)
	}
	return machine.Export{}, fmt.Errorf("storage pool %q: %w", pool, machine.ErrNotFound)
}

func (e *fakeEngine) state(spec cluster.Spec) cluster.State {
	s := cluster.State{
		Spec: spec, Nodes: e.nodes, Endpoint: "https://192.0.2.10:6443", Status: cluster.Active,
		Conditions: []cluster.Condition{{Type: "NodesReady", Status: "True", Reason: "AllReady"}}, Warnings: e.warnings,
	}
	if spec.Settings.Endpoint != "" {
		s.Endpoint, _, _ = k3s.ServerURL(spec.Settings.Endpoint)
	}
	if s.Nodes == nil {
		s.Nodes = e.stand(spec.Name, record.ServerPool, record.Server, spec.Servers)
	}
	if !e.unseen {
		s.Addons = cluster.AddonStatuses{}
		for _, a := range addonsOfSpec(spec).Addons() {
			s.Addons[a] = cluster.AddonStatus{Chart: string(a), Version: "1.2.3", Namespace: "kube-system", State: cluster.AddonDeployed}
		}
		maps.Copy(s.Addons, e.addons)
	}
	e.disturb(s.Nodes)
	for _, n := range s.Nodes {
		if n.State != cluster.NodeReady {
			s.Status = cluster.Degraded
		}
	}
	return s
}

func (e *fakeEngine) poolState(spec cluster.PoolSpec) cluster.PoolState {
	s := cluster.PoolState{Spec: spec, Nodes: e.nodes, Warnings: e.warnings}
	if s.Nodes == nil {
		s.Nodes = e.stand("prod", spec.Name, record.Agent, spec.Nodes)
	}
	e.disturb(s.Nodes)
	return s
}

// stand are n ready nodes in their places.
func (e *fakeEngine) stand(clusterName, pool string, role record.Role, n int) cluster.Nodes {
	nodes := nodesNamed(clusterName, pool, role, n)
	for i := 1; i <= n; i++ {
		name := record.NodeName(clusterName, pool, i)
		node := nodes[name]
		node.Hypervisor = e.host(i)
		nodes[name] = node
	}
	return nodes
}

func (e *fakeEngine) disturb(nodes cluster.Nodes) {
	for name, state := range e.states {
		if _, ok := nodes[name]; ok {
			but(nodes, name, state)
		}
	}
}

// nodesNamed are n ready nodes.
func nodesNamed(clusterName, pool string, role record.Role, n int) cluster.Nodes {
	nodes := cluster.Nodes{}
	for i := 1; i <= n; i++ {
		name := record.NodeName(clusterName, pool, i)
		nodes[name] = cluster.NodeStatus{
			Name: name, Role: role, Hypervisor: "default", UUID: fmt.Sprintf("00000000-0000-4000-8000-%012d", i),
			MAC: fmt.Sprintf("52:54:00:00:00:%02d", i), IP: fmt.Sprintf("192.0.2.%d", 9+i), K3sVersion: "v1.36.1+k3s1",
			State: cluster.NodeReady,
		}
	}
	return nodes
}

// but returns nodes with the state of one of them changed.
func but(nodes cluster.Nodes, name string, state cluster.NodeState) cluster.Nodes {
	n := nodes[name]
	n.State, n.Reason = state, "for a test"
	nodes[name] = n
	return nodes
}

type fakeReleases struct {
	origin origin
	list   k3s.ReleaseList
	err    error
}

func (r *fakeReleases) List(context.Context) (k3s.ReleaseList, error) { return r.list, r.err }
