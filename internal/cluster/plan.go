package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// Action is one idempotent step in the life of a node.
type Action string

// The actions, in the order in which a node meets them.
const (
	// Forget deletes the Node object and the node-password secret of that name.
	Forget Action = "forget"
	// Define writes the domain with its record, Clone makes its disk, Seed its cloud-init seed.
	Define Action = "define"
	Clone  Action = "clone"
	Seed   Action = "seed"
	// Start powers the VM on.
	Start Action = "start"
	// Agent waits for the guest agent and an address, Bootstrap for the end of the bootstrap in the guest, Ready for
	// the Node object to be Ready at the wanted version.
	Agent     Action = "agent"
	Bootstrap Action = "bootstrap"
	Ready     Action = "ready"
	// Seal takes the secrets off the seed and records that the node has joined.
	Seal Action = "seal"
	// Stop powers the VM off, Delete removes it with its volumes.
	Stop   Action = "stop"
	Delete Action = "delete"
)

// Lane is what happens to one node, one action after the other.
type Lane struct {
	Machine machine.Machine
	Actions []Action
}

// Stage is a set of lanes that run side by side.
type Stage struct {
	Name  string
	Lanes []Lane
}

// Plan is a list of stages that run one after another.
type Plan []Stage

// String renders the plan for logs and golden tests, a line for each lane.
func (p Plan) String() string {
	var b strings.Builder
	for _, s := range p {
		fmt.Fprintf(&b, "%s\n", s.Name)
		for _, l := range s.Lanes {
			fmt.Fprintf(&b, "  %s@%s:", l.Machine.Name, l.Machine.Hypervisor)
			for _, a := range l.Actions {
				fmt.Fprintf(&b, " %s", a)
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// group is what the planner knows of one group of equal nodes: the servers of a cluster, or a node pool.
type group struct {
	// want is the wanted number of nodes.
	want int
	// base is the record of a new node; its ordinal and volumes are filled in.
	base record.Record
	// machines are the VMs of the group that were observed.
	machines []machine.Machine
	// prior is what the state knew of the group.
	prior Nodes
	// silence is what nothing can be said of.
	silence silence
	// registered are the names of the cluster's Node objects.
	registered []string
	// ready tells which nodes are Ready; nil where the API was not asked.
	ready map[string]bool
	// hosts are the hypervisors that can take a new node, with the number of nodes of the cluster there.
	hosts map[string]int
	// identity makes the UUID of a new VM.
	identity func() string
}

// plan compares what is wanted with what is, and lists what has to be done.
//
// A VM that is still in phase creating was left by an apply that failed or was killed: it is made anew, since nothing
// tells how far its guest came. Nodes of which nothing can be said count as present and are not touched.
func (g group) plan() (Plan, error) {
	var clean, remove, nodes []Lane
	taken := map[int]bool{}

	var keep []machine.Machine
	for _, m := range g.machines {
		switch {
		case m.Record.Phase == record.Joined:
			keep = append(keep, m)
		case m.Power == machine.Stopped:
			clean = append(clean, Lane{m, g.removal()})
		default:
			// It is stopped first, or its guest could still register after its Node object was deleted.
			clean = append(clean, Lane{m, g.removal(Stop)})
		}
	}
	held, lost := g.withheld()
	for _, name := range held {
		taken[g.ordinal(name)] = true
	}
	for _, n := range lost {
		actions := []Action{Delete}
		if !g.stands(n.Name) && g.base.Role == record.Agent {
			// A successor's Node object must stay. The volumes go first: if the VM turns out to be there and not ours,
			// nothing else was touched.
			actions = append(actions, Forget)
		}
		clean = append(clean, Lane{g.leftover(n), actions})
	}

	surplus := len(keep) + len(held) - g.want
	if surplus > len(keep) {
		return nil, fmt.Errorf("%d nodes have to go, but nothing can be said of %s: their hypervisors do not answer, or their records cannot be read",
			surplus, strings.Join(held, ", "))
	}
	g.sortForRemoval(keep)
	for ; surplus > 0; surplus-- {
		remove = append(remove, Lane{keep[0], g.removal(Stop)})
		keep = keep[1:]
	}

	for _, m := range keep {
		taken[m.Record.Ordinal] = true
		switch {
		case m.Power != machine.Running:
			nodes = append(nodes, Lane{m, []Action{Start, Agent, Ready}})
		case g.ready != nil && !g.ready[m.Name]:
			nodes = append(nodes, Lane{m, []Action{Ready}})
		}
	}
	fresh, err := g.fresh(g.want-len(keep)-len(held), taken)
	if err != nil {
		return nil, err
	}
	nodes = append(nodes, fresh...)

	var p Plan
	for _, s := range []Stage{{"clean", clean}, {"remove", remove}, {"nodes", nodes}} {
		if len(s.Lanes) == 0 {
			continue
		}
		slices.SortFunc(s.Lanes, func(a, b Lane) int {
			return cmp.Compare(a.Machine.Record.Ordinal, b.Machine.Record.Ordinal)
		})
		p = append(p, s)
	}
	return p, nil
}

// removal lists the actions that end a node. A server is the API itself: there is nobody to forget it.
func (g group) removal(before ...Action) []Action {
	if g.base.Role == record.Agent {
		before = append(before, Forget)
	}
	return append(before, Delete)
}

// withheld lists the nodes that were not seen: those that may stand where nobody answered, by name, and those that are
// lost. While a hypervisor is silent, a node that only the cluster's API knows may stand there too.
func (g group) withheld() (held []string, lost []NodeStatus) {
	for _, name := range sortedKeys(g.prior) {
		n := g.prior[name]
		switch seen := slices.ContainsFunc(g.machines, func(m machine.Machine) bool { return m.UUID == n.UUID }); {
		case seen || n.UUID == "":
		case g.silence.of(n) != nil:
			held = append(held, name)
		default:
			lost = append(lost, n)
		}
	}
	if len(g.silence.hosts) == 0 {
		return held, lost
	}
	for _, name := range g.registered {
		_, known := g.prior[name]
		if !known && g.ordinal(name) > 0 && !g.stands(name) {
			held = append(held, name)
		}
	}
	return held, lost
}

// stands reports whether a VM of that name was observed.
func (g group) stands(name string) bool {
	return slices.ContainsFunc(g.machines, func(m machine.Machine) bool { return m.Name == name })
}

// leftover is the machine of a node whose domain is gone: its volumes may still be there.
func (g group) leftover(n NodeStatus) machine.Machine {
	r := g.base
	r.Ordinal = g.ordinal(n.Name)
	r.Volumes = volumes(n.Name, n.UUID, r.Shape.StoragePool)
	return machine.Machine{Hypervisor: n.Hypervisor, Name: n.Name, UUID: n.UUID, MAC: n.MAC, Power: machine.Stopped, Record: r}
}

// ordinal is the number in the name of one of the group's nodes, and 0 for another name.
func (g group) ordinal(name string) int {
	number, ok := strings.CutPrefix(name, fmt.Sprintf("%s-%s-", g.base.ClusterName, g.base.Pool))
	n, err := strconv.Atoi(number)
	if !ok || err != nil || n < 1 || strconv.Itoa(n) != number {
		return 0
	}
	return n
}

// sortForRemoval puts first what goes first: nodes that do not run or are not Ready, then the highest ordinal.
func (g group) sortForRemoval(ms []machine.Machine) {
	healthy := func(m machine.Machine) int {
		if m.Power == machine.Running && (g.ready == nil || g.ready[m.Name]) {
			return 1
		}
		return 0
	}
	slices.SortFunc(ms, func(a, b machine.Machine) int {
		return cmp.Or(cmp.Compare(healthy(a), healthy(b)), cmp.Compare(b.Record.Ordinal, a.Record.Ordinal))
	})
}

// fresh makes n new nodes on the lowest free ordinals.
func (g group) fresh(n int, taken map[int]bool) ([]Lane, error) {
	if n <= 0 {
		return nil, nil
	}
	if len(g.hosts) == 0 {
		return nil, fmt.Errorf("no hypervisor can take a new node")
	}
	var lanes []Lane
	hosts := spread(g.hosts, n)
	for ordinal := 1; len(lanes) < n; ordinal++ {
		if taken[ordinal] {
			continue
		}
		lanes = append(lanes, Lane{g.newMachine(ordinal, hosts[len(lanes)]), creation(g.base.Role)})
	}
	return lanes, nil
}

// newMachine gives a node that does not exist yet its identity.
func (g group) newMachine(ordinal int, host string) machine.Machine {
	r := g.base
	r.Ordinal, r.Phase = ordinal, record.Creating
	id := g.identity()
	name := r.NodeName()
	r.Volumes = volumes(name, id, r.Shape.StoragePool)
	return machine.Machine{Hypervisor: host, Name: name, UUID: id, MAC: macOf(id), Power: machine.Stopped, Record: r}
}

// creation lists the actions of a new node. A new agent may meet the Node object of a namesake, which would refuse its
// node password; a first server meets no API.
func creation(role record.Role) []Action {
	actions := []Action{Define, Clone, Seed, Start, Agent, Bootstrap, Ready, Seal}
	if role == record.Agent {
		return append([]Action{Forget}, actions...)
	}
	return actions
}

func volumes(node, uuid, pool string) []record.Volume {
	return []record.Volume{
		{Pool: pool, Name: machine.RootVolume(node, uuid)},
		{Pool: pool, Name: machine.SeedVolume(node, uuid)},
	}
}

// macOf derives a VM's MAC address from its UUID, in the range that QEMU uses for its guests.
func macOf(uuid string) string {
	hex := strings.ReplaceAll(uuid, "-", "")
	tail := hex[len(hex)-6:]
	return fmt.Sprintf("52:54:00:%s:%s:%s", tail[0:2], tail[2:4], tail[4:6])
}

// spread puts n nodes on hosts, each on the one that has the fewest, ties by name.
func spread(hosts map[string]int, n int) []string {
	load := map[string]int{}
	names := make([]string, 0, len(hosts))
	for name, nodes := range hosts {
		load[name] = nodes
		names = append(names, name)
	}
	slices.Sort(names)
	out := make([]string, 0, n)
	for range n {
		best := slices.MinFunc(names, func(a, b string) int { return cmp.Compare(load[a], load[b]) })
		load[best]++
		out = append(out, best)
	}
	return out
}
