package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
)

// Action is one idempotent step in the life of a node.
type Action string

// The actions, in the order in which a node meets them.
const (
	// Leave takes a server's member out of the cluster's etcd.
	Leave Action = "leave"
	// Forget deletes the Node object and the node-password secret of that name.
	Forget Action = "forget"
	// Define writes the domain with its record, Clone makes its disk, Seed its cloud-init seed.
	Define Action = "define"
	Clone  Action = "clone"
	Seed   Action = "seed"
	// Start powers the VM on.
	Start Action = "start"
	// Admit gives a server that has been prepared its configuration, and lets it join.
	Admit Action = "admit"
	// Agent waits for the guest agent and an address, Bootstrap for the end of the bootstrap in the guest, Ready for
	// the Node object to be Ready at the wanted version.
	Agent     Action = "agent"
	Bootstrap Action = "bootstrap"
	Ready     Action = "ready"
	// Seal takes the secrets off the seed and records that the node has joined.
	Seal Action = "seal"
	// Network installs the cluster's network plugin, without which no node becomes Ready. Storage brings all add-ons to what is
	// wanted and waits until they run; in an apply of a pool it does so as far as more nodes make a difference.
	Network Action = "network"
	Storage Action = "storage"
	// Configure gives a server that runs its changed settings, and restarts k3s in it.
	Configure Action = "configure"
	// Cordon keeps new pods off a node while it is changed, which also marks it as one that is. Drain cordons a node, evicts its pods and waits until no volume is attached to it; Release takes the cordon back.
	Cordon  Action = "cordon"
	Drain   Action = "drain"
	Release Action = "release"
	// Label gives the Node object the labels and taints of its pool.
	Label Action = "label"
	// Stop powers the VM off, Resize gives it its new size meanwhile, Delete removes it with its volumes.
	Stop   Action = "stop"
	Resize Action = "resize"
	Delete Action = "delete"
)

// Lane is what happens to one node, one action after the other.
type Lane struct {
	// Machine is the node's; one without a name stands for the cluster as a whole.
	Machine machine.Machine
	Actions []Action
	// Then is what happens next in its place, once all that is done.
	Then *Lane
	// Else is tried where the node does not come up.
	Else *Lane
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
			who := "the cluster"
			if l.Machine.Name != "" {
				who = l.Machine.Name + "@" + l.Machine.Hypervisor
			}
			fmt.Fprintf(&b, "  %s:%s", who, l.steps())
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// steps lists the actions of a lane, and of those that come after it.
func (l Lane) steps() string {
	var b strings.Builder
	for _, a := range l.Actions {
		fmt.Fprintf(&b, " %s", a)
	}
	if l.Then != nil {
		b.WriteString(", then" + l.Then.steps())
	}
	if l.Else != nil {
		b.WriteString(", else" + l.Else.steps())
	}
	return b.String()
}

// side adds a stage whose lanes run side by side; file adds a stage for each lane.
func (p *Plan) side(name string, lanes []Lane) {
	if len(lanes) == 0 {
		return
	}
	slices.SortFunc(lanes, byOrdinal)
	*p = append(*p, Stage{name, lanes})
}

func (p *Plan) file(name string, lanes []Lane) {
	for _, l := range lanes {
		*p = append(*p, Stage{name, []Lane{l}})
	}
}

func byOrdinal(a, b Lane) int { return cmp.Compare(a.Machine.Record.Ordinal, b.Machine.Record.Ordinal) }
