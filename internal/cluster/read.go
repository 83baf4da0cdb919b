package cluster

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/k3s"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// apiReadTimeout bounds what a refresh waits for a cluster's API: a cluster that is down must not hold up a plan.
const apiReadTimeout = 20 * time.Second

// FindCluster returns the spec of the one cluster with that id or name.
func (e *Engine) FindCluster(ctx context.Context, idOrName string) (Spec, error) {
	o, err := e.observe(ctx, scope{})
	if err != nil {
		return Spec{}, err
	}
	if len(o.Unreachable) > 0 {
		// Nodes that are not seen now would be made a second time later.
		return Spec{}, fmt.Errorf("a cluster can be imported only while all hypervisors answer: %w", unreachable(o.Unreachable))
	}
	servers := serversOf(o.OfCluster(idOrName))
	if len(servers) == 0 {
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
	o, err := e.observe(ctx, ofCluster(spec.Name))
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
// number of servers. The error is ErrGone where every hypervisor answered and none has a server of the cluster.
func (e *Engine) ReadCluster(ctx context.Context, spec Spec, prior Nodes) (State, error) {
	return e.readCluster(ctx, spec, prior, ofGroups(spec.Name, record.ServerPool).vouch(prior, e.serverGroup(spec, prior, machine.Observation{})))
}

func (e *Engine) readCluster(ctx context.Context, spec Spec, prior Nodes, within scope) (State, error) {
	o, err := e.observe(ctx, within)
	if err != nil {
		return State{Spec: spec, Nodes: prior}, err
	}
	machines := o.OfCluster(spec.ID)
	servers := serversOf(machines)
	quiet := e.silenceOf(o)
	if len(servers) == 0 && !quiet.covers(prior) {
		return State{Spec: spec, Nodes: prior}, fmt.Errorf("cluster %q: %w", spec.Name, ErrGone)
	}
	g := e.serverGroup(spec, prior, o)
	if len(servers) > 0 && (spec.Settings.K3sVersion == "" || g.agree()) {
		wanted, extra := spec.Servers, spec.Extra
		spec = specOf(servers)
		spec.Servers, spec.Extra = wanted, extra.known(spec.ID, servers[0].Record.Setup)
		g = e.serverGroup(spec, prior, o)
	}
	a := e.askAPI(ctx, machines)
	s := State{Spec: spec, Nodes: nodesOf(servers, prior, quiet, a)}
	e.locate(ctx, servers, s.Nodes)
	g.api = a.nodes
	g.judge(s.Nodes, time.Now())
	if a.door != nil || spec.Settings.Endpoint != "" {
		s.Endpoint = e.apiURL(spec.ID, spec.Settings)
	}
	s.Status, s.Conditions = summarise(s.Nodes, quiet, a)
	if e.options.Catalogue != nil {
		s.lookedAt(e.lookAtAddons(ctx, spec, a))
	}
	return s, nil
}

// lookedAt takes over what was seen of the add-ons.
func (s *State) lookedAt(addons AddonStatuses, c Condition) {
	s.Addons, s.Conditions = addons, append(s.Conditions, c)
	for _, a := range addons {
		if a.State != AddonDeployed && a.State != AddonUnknown && s.Status == Active {
			s.Status = Degraded
		}
	}
}

// locateTimeout bounds the question where a server is that the API does not tell of.
const locateTimeout = 5 * time.Second

// locate asks servers for their address that run and are not Ready: k3s does not come up on one whose address has changed,
// so the API cannot tell the new one.
func (e *Engine) locate(ctx context.Context, servers []machine.Machine, nodes Nodes) {
	ctx, cancel := context.WithTimeout(ctx, locateTimeout)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, m := range servers {
		wg.Go(func() {
			mu.Lock()
			n := nodes[m.Name]
			mu.Unlock()
			if m.Power != machine.Running || m.Record.Phase != record.Joined || n.State == NodeReady {
				return
			}
			addresses, err := e.fleet.Guest(m).Addresses(ctx, m.MAC)
			if err != nil || len(addresses) == 0 || slices.Contains(addresses, n.IP) {
				return
			}
			n.IP = addresses[0]
			mu.Lock()
			defer mu.Unlock()
			nodes[m.Name] = n
		})
	}
	wg.Wait()
}

// ReadPool returns a node pool as it is; see ReadCluster. The error is ErrGone where nothing is left of the cluster.
func (e *Engine) ReadPool(ctx context.Context, spec PoolSpec, prior Nodes) (PoolState, error) {
	name := cmp.Or(e.nameOf(spec.ClusterID), clusterOf(prior, spec.Name))
	return e.readPool(ctx, spec, prior, ofGroups(name, record.ServerPool, spec.Name).vouch(prior, e.poolGroup(spec, name, prior, machine.Observation{})))
}

func (e *Engine) readPool(ctx context.Context, spec PoolSpec, prior Nodes, within scope) (PoolState, error) {
	o, err := e.observe(ctx, within)
	if err != nil {
		return PoolState{Spec: spec, Nodes: prior}, err
	}
	machines := o.OfCluster(spec.ClusterID)
	quiet := e.silenceOf(o)
	if len(machines) == 0 && !quiet.covers(prior) {
		return PoolState{Spec: spec, Nodes: prior}, fmt.Errorf("node pool %q: %w", spec.Name, ErrGone)
	}
	g := e.poolGroup(spec, "", prior, o)
	if spec.Shape == (record.Shape{}) || g.agree() {
		wanted := spec.Nodes
		spec = poolSpecOf(spec, o)
		spec.Nodes = wanted
		g = e.poolGroup(spec, "", prior, o)
	}
	a := e.askAPI(ctx, machines)
	nodes := nodesOf(g.machines, prior, quiet, a)
	g.api = a.nodes
	g.judge(nodes, time.Now())
	return PoolState{Spec: spec, Nodes: nodes}, nil
}

// agree reports whether the records of all nodes of a group that have joined say the same of it. What they say counts then,
// whatever the state says; while they differ, the state tells which of them are as they should be.
func (g group) agree() bool {
	var first *record.Record
	for _, m := range g.machines {
		r := m.Record
		if r.Phase != record.Joined {
			continue
		}
		r.Ordinal, r.Temporary, r.Volumes, r.HostDevices, r.Template, r.Image = 1, false, nil, nil, record.Template{}, record.Template{}
		if first == nil {
			first = &r
		}
		if r.Setup.Changing || !record.Same(r, *first) {
			return false
		}
	}
	return first != nil
}

// clusterOf is the name of a cluster as the nodes of one of its pools have it, "" where there are none.
func clusterOf(nodes Nodes, pool string) string {
	for name := range nodes {
		if i := strings.LastIndex(name, "-"+pool+"-"); i > 0 {
			return name[:i]
		}
	}
	return ""
}

// specOf reads a cluster's spec from the records of its servers.
func specOf(servers []machine.Machine) Spec {
	r := servers[0].Record
	return Spec{
		ID: r.ClusterID, Name: r.ClusterName, Settings: clusterSettings(servers), Servers: len(servers), Shape: r.Shape, Placement: r.Placement,
		Extra: Extra{Args: r.Setup.Args},
	}
}

// poolSpecOf reads a pool's spec from the record of its first node; without one it stays as it is. The devices of hypervisors
// on which no node stands are not known to any record.
func poolSpecOf(spec PoolSpec, o machine.Observation) PoolSpec {
	spec.Nodes = 0
	first := 0
	devices := maps.Clone(spec.HostDevices)
	for _, m := range o.OfCluster(spec.ClusterID) {
		r := m.Record
		if r.Pool != spec.Name {
			continue
		}
		spec.Nodes++
		if len(r.HostDevices) > 0 {
			if devices == nil {
				devices = map[string][]string{}
			}
			devices[m.Hypervisor] = r.HostDevices
		}
		if first == 0 || r.Ordinal < first {
			first, spec.Shape, spec.Placement, spec.Labels, spec.Taints = r.Ordinal, r.Shape, r.Placement, r.Labels, r.Taints
			spec.Drain, spec.Upgrade, spec.Repair = cmp.Or(r.Drain, DefaultDrain), cmp.Or(r.Upgrade, DefaultUpgrade), cmp.Or(r.Repair, DefaultRepair)
			spec.Extra = spec.Extra.known(r.ClusterID, r.Setup)
		}
	}
	spec.HostDevices = devices
	return spec
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

// nodesOf merges what the hypervisors, the API and the state know of a group's nodes.
func nodesOf(machines []machine.Machine, prior Nodes, quiet silence, a answer) Nodes {
	out := Nodes{}
	for _, m := range machines {
		n := statusOf(m)
		if p, ok := prior[m.Name]; ok && p.UUID == m.UUID {
			n.IP, n.K3sVersion = p.IP, p.K3sVersion
		}
		out[m.Name] = a.stateOf(n, m)
	}
	for name, p := range prior {
		if _, ok := out[name]; ok {
			continue
		}
		p.State, p.Reason = NodeMissing, fmt.Sprintf("hypervisor %q has no such VM", p.Hypervisor)
		if err := quiet.of(p); err != nil {
			p.State, p.Reason = NodeUnknown, err.Error()
		}
		out[name] = p
	}
	return out
}

func statusOf(m machine.Machine) NodeStatus {
	return NodeStatus{
		Name: m.Name, Role: m.Record.Role, Hypervisor: m.Hypervisor, UUID: m.UUID, MAC: m.MAC,
		Template: imageText(m.Record.Image), State: NodeCreating, Reason: "its making did not come to an end",
	}
}

// stateOf sets the state of a node whose VM was seen.
func (a answer) stateOf(n NodeStatus, m machine.Machine) NodeStatus {
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

// summarise sums a cluster up.
func summarise(nodes Nodes, quiet silence, a answer) (Status, []Condition) {
	status := Active
	var bad []string
	for _, name := range sortedKeys(nodes) {
		switch state := nodes[name].State; {
		case state == NodeReady, state == NodeDrifted && a.nodes[name].Ready:
			continue
		case state == NodeCreating:
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
		condition("HypervisorsReachable", len(quiet.hosts) == 0, "AllAnswered", "NoAnswer", strings.Join(sortedKeys(quiet.hosts), ", ")),
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
	s := scope{}
	if name := e.nameOf(clusterID); name != "" {
		s = ofGroups(name, record.ServerPool)
	}
	o, err := e.observe(ctx, s)
	if err != nil {
		return k3s.Kubeconfig{}, err
	}
	machines := o.OfCluster(clusterID)
	if len(machines) == 0 {
		return k3s.Kubeconfig{}, noServers(clusterID, o)
	}
	// The agent of a server that has just been restarted may need a moment.
	wctx, cancel := within(ctx, apiReadTimeout)
	defer cancel()
	var d *door
	var last error
	err = poll(wctx, func(ctx context.Context) (bool, error) {
		d, last = e.open(ctx, machines, true)
		return last == nil, transient(last)
	})
	if errors.Is(err, errWait) {
		err = last
	}
	if err != nil {
		return k3s.Kubeconfig{}, explainAgent(err)
	}
	servers := serversOf(machines)
	exported, err := d.export(servers[0].Record.ClusterName, clusterSettings(servers))
	if err != nil {
		return k3s.Kubeconfig{}, err
	}
	return exported, e.checkCertificate(ctx, exported)
}

// checkCertificate makes sure that the API's certificate is valid for the address in the kubeconfig. An API that does
// not answer now is no error: the kubeconfig is right all the same.
func (e *Engine) checkCertificate(ctx context.Context, kubeconfig k3s.Kubeconfig) error {
	var bad x509.HostnameError
	if !errors.As(e.answers(ctx, kubeconfig), &bad) {
		return nil
	}
	names := slices.Clone(bad.Certificate.DNSNames)
	for _, ip := range bad.Certificate.IPAddresses {
		names = append(names, ip.String())
	}
	return &Failure{
		Err:    fmt.Errorf("the certificate of the cluster's API is not valid for %s; it is for %s", bad.Host, strings.Join(names, ", ")),
		Cause:  "the server has another address than when k3s was started in it, or something else answers at the cluster's endpoint.",
		Remedy: "give the servers fixed addresses in the network's DHCP and restart k3s in them, or correct endpoint and tls_sans.",
	}
}
