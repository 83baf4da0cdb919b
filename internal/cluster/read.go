package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/k3s"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// apiReadTimeout bounds what a refresh waits for a cluster's API: a cluster that is down must not hold up a plan.
const apiReadTimeout = 20 * time.Second

// errUnconfigured is why nodes on a hypervisor that left the provider's configuration are unknown.
var errUnconfigured = errors.New("it is not in the provider's configuration")

// FindCluster returns the spec of the one cluster with that id or name.
func (e *Engine) FindCluster(ctx context.Context, idOrName string) (Spec, error) {
	o, err := e.observe(ctx)
	if err != nil {
		return Spec{}, err
	}
	servers := serversOf(o.OfCluster(idOrName))
	if len(servers) == 0 {
		if len(o.Unreachable) > 0 {
			return Spec{}, fmt.Errorf("no hypervisor that answers has a server of a cluster %q: %w", idOrName, unreachable(o.Unreachable))
		}
		return Spec{}, fmt.Errorf("no hypervisor has a server of a cluster %q", idOrName)
	}
	spec := specOf(servers)
	for _, s := range servers {
		if s.Record.ClusterID != spec.ID {
			return Spec{}, fmt.Errorf("two clusters are named %q (%s and %s); name the one you mean by its id", idOrName, spec.ID, s.Record.ClusterID)
		}
	}
	return spec, nil
}

// FindPool returns the spec of the node pool "<cluster name or id>/<pool>".
func (e *Engine) FindPool(ctx context.Context, id string) (PoolSpec, error) {
	clusterID, name, ok := strings.Cut(id, "/")
	if !ok || clusterID == "" || name == "" || name == record.ServerPool {
		return PoolSpec{}, fmt.Errorf("%q does not name a node pool: the form is <cluster>/<pool>", id)
	}
	spec, err := e.FindCluster(ctx, clusterID)
	if err != nil {
		return PoolSpec{}, err
	}
	o, err := e.observe(ctx)
	if err != nil {
		return PoolSpec{}, err
	}
	pool := poolSpecOf(PoolSpec{ClusterID: spec.ID, Name: name}, o)
	if pool.Nodes == 0 {
		return PoolSpec{}, fmt.Errorf("the cluster %q has no node pool %q", spec.Name, name)
	}
	return pool, nil
}

// ReadCluster returns a cluster as it is. What cannot be asked keeps the values of spec and prior, and so does the wanted
// number of servers. The error is ErrGone
// where every hypervisor answered and none has a server of the cluster.
func (e *Engine) ReadCluster(ctx context.Context, spec Spec, prior Nodes) (State, error) {
	o, err := e.observe(ctx)
	if err != nil {
		return State{Spec: spec, Nodes: prior}, err
	}
	machines := o.OfCluster(spec.ID)
	servers := serversOf(machines)
	silent := e.silent(o, prior)
	if len(servers) == 0 && len(silent) == 0 {
		return State{Spec: spec}, fmt.Errorf("cluster %q: %w", spec.Name, ErrGone)
	}
	if len(servers) > 0 {
		wanted := spec.Servers
		spec = specOf(servers)
		spec.Servers = wanted
	}
	a := e.askAPI(ctx, machines)
	s := State{Spec: spec, Nodes: nodesOf(servers, prior, silent, a)}
	if a.door != nil {
		s.Endpoint = a.door.kubeconfig.Endpoint
	}
	s.Status, s.Conditions = judge(s.Nodes, silent, a)
	return s, nil
}

// ReadPool returns a node pool as it is; see ReadCluster. The error is ErrGone where nothing is left of the cluster.
func (e *Engine) ReadPool(ctx context.Context, spec PoolSpec, prior Nodes) (PoolState, error) {
	o, err := e.observe(ctx)
	if err != nil {
		return PoolState{Spec: spec, Nodes: prior}, err
	}
	machines := o.OfCluster(spec.ClusterID)
	silent := e.silent(o, prior)
	if len(machines) == 0 && len(silent) == 0 {
		return PoolState{Spec: spec}, fmt.Errorf("node pool %q: %w", spec.Name, ErrGone)
	}
	var pool []machine.Machine
	for _, m := range machines {
		if m.Record.Pool == spec.Name {
			pool = append(pool, m)
		}
	}
	wanted := spec.Nodes
	spec = poolSpecOf(spec, o)
	spec.Nodes = wanted
	return PoolState{Spec: spec, Nodes: nodesOf(pool, prior, silent, e.askAPI(ctx, machines))}, nil
}

// specOf reads a cluster's spec from the records of its servers.
func specOf(servers []machine.Machine) Spec {
	r := servers[0].Record
	return Spec{ID: r.ClusterID, Name: r.ClusterName, Settings: clusterSettings(servers), Servers: len(servers), Shape: r.Shape}
}

// poolSpecOf reads a pool's shape from the record of its first node; without one it stays as it is.
func poolSpecOf(spec PoolSpec, o machine.Observation) PoolSpec {
	spec.Nodes = 0
	first := 0
	for _, m := range o.OfCluster(spec.ClusterID) {
		if m.Record.Pool != spec.Name {
			continue
		}
		spec.Nodes++
		if first == 0 || m.Record.Ordinal < first {
			first, spec.Shape = m.Record.Ordinal, m.Record.Shape
		}
	}
	return spec
}

// silent lists the hypervisors whose nodes are unknown: those that did not answer, and those that nodes of the state
// stand on but the configuration does not name any more.
func (e *Engine) silent(o machine.Observation, prior Nodes) map[string]error {
	out := maps.Clone(o.Unreachable)
	if out == nil {
		out = map[string]error{}
	}
	configured := map[string]bool{}
	for _, h := range e.fleet.Hypervisors() {
		configured[h.Name] = true
	}
	for _, n := range prior {
		if n.Hypervisor != "" && !configured[n.Hypervisor] {
			out[n.Hypervisor] = errUnconfigured
		}
	}
	return out
}

// answer is what a cluster's API said.
type answer struct {
	door  *door
	nodes map[string]Node
	// err is why there is no answer.
	err error
}

// askAPI lists the nodes of a cluster through its API.
func (e *Engine) askAPI(ctx context.Context, machines []machine.Machine) answer {
	ctx, cancel := context.WithTimeout(ctx, apiReadTimeout)
	defer cancel()
	var a answer
	for _, fresh := range []bool{false, true} {
		d, err := e.open(ctx, machines, fresh)
		if err != nil {
			a.err = err
			return a
		}
		a.door = d
		nodes, err := d.kube.Nodes(ctx)
		if a.err = err; err != nil {
			continue
		}
		a.nodes = map[string]Node{}
		for _, n := range nodes {
			a.nodes[n.Name] = n
		}
		return a
	}
	return a
}

// readiness tells which nodes are Ready, nil where the API does not answer.
func (e *Engine) readiness(ctx context.Context, machines []machine.Machine) map[string]bool {
	a := e.askAPI(ctx, machines)
	if a.nodes == nil {
		return nil
	}
	ready := map[string]bool{}
	for name, n := range a.nodes {
		ready[name] = n.Ready
	}
	return ready
}

// nodesOf merges what the hypervisors, the API and the state know of a group's nodes.
func nodesOf(machines []machine.Machine, prior Nodes, silent map[string]error, a answer) Nodes {
	out := Nodes{}
	for _, m := range machines {
		n := statusOf(m)
		if p, ok := prior[m.Name]; ok && p.UUID == m.UUID {
			n.IP, n.K3sVersion = p.IP, p.K3sVersion
		}
		out[m.Name] = a.judge(n, m)
	}
	for name, p := range prior {
		if _, ok := out[name]; ok {
			continue
		}
		p.State, p.Reason = NodeMissing, fmt.Sprintf("hypervisor %q has no such VM", p.Hypervisor)
		if err := silent[p.Hypervisor]; err != nil {
			p.State, p.Reason = NodeUnknown, fmt.Sprintf("hypervisor %q: %v", p.Hypervisor, err)
		}
		out[name] = p
	}
	return out
}

func statusOf(m machine.Machine) NodeStatus {
	return NodeStatus{
		Name: m.Name, Role: m.Record.Role, Hypervisor: m.Hypervisor, UUID: m.UUID, MAC: m.MAC,
		State: NodeCreating, Reason: "its making did not come to an end",
	}
}

// judge sets the state of a node whose VM was seen.
func (a answer) judge(n NodeStatus, m machine.Machine) NodeStatus {
	if m.Record.Phase != record.Joined {
		return n
	}
	if m.Power != machine.Running {
		n.State, n.Reason = NodeStopped, fmt.Sprintf("the VM is %s", m.Power)
		return n
	}
	if a.nodes == nil {
		n.State, n.Reason = NodeUnknown, fmt.Sprintf("the cluster's API does not answer: %v", a.err)
		return n
	}
	k, ok := a.nodes[m.Name]
	if !ok {
		n.State, n.Reason = NodeNotReady, "the cluster has no Node object for it"
		return n
	}
	n.IP, n.K3sVersion = cmp.Or(k.InternalIP, n.IP), k.K3sVersion
	n.State, n.Reason = NodeReady, ""
	if !k.Ready {
		n.State, n.Reason = NodeNotReady, strings.TrimSuffix(k.Reason+": "+k.Message, ": ")
	}
	return n
}

// judge sums a cluster up.
func judge(nodes Nodes, silent map[string]error, a answer) (Status, []Condition) {
	status := Active
	var bad []string
	for _, name := range sortedKeys(nodes) {
		switch nodes[name].State {
		case NodeReady:
			continue
		case NodeCreating:
			status = Provisioning
		default:
			if status == Active {
				status = Degraded
			}
		}
		bad = append(bad, fmt.Sprintf("%s is %s", name, nodes[name].State))
	}
	conditions := []Condition{
		condition("NodesReady", len(bad) == 0, "AllReady", "NotReady", strings.Join(bad, ", ")),
		condition("APIReachable", a.nodes != nil, "Answered", "NoAnswer", textOf(a.err)),
		condition("HypervisorsReachable", len(silent) == 0, "AllAnswered", "NoAnswer", strings.Join(sortedKeys(silent), ", ")),
	}
	if a.nodes == nil && status == Active {
		status = Degraded
	}
	return status, conditions
}

func condition(name string, good bool, yes, no, message string) Condition {
	if good {
		return Condition{Type: name, Status: "True", Reason: yes}
	}
	return Condition{Type: name, Status: "False", Reason: no, Message: message}
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// Kubeconfig reads the kubeconfig of a cluster anew from one of its servers.
func (e *Engine) Kubeconfig(ctx context.Context, clusterID string) (k3s.Kubeconfig, error) {
	o, err := e.observe(ctx)
	if err != nil {
		return k3s.Kubeconfig{}, err
	}
	machines := o.OfCluster(clusterID)
	if len(machines) == 0 {
		return k3s.Kubeconfig{}, noServers(clusterID, o)
	}
	d, err := e.open(ctx, machines, true)
	if err != nil {
		return k3s.Kubeconfig{}, explainAgent(err)
	}
	return d.kubeconfig, nil
}
