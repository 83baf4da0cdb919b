package cluster

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// newMachine gives a node that does not exist yet its identity.
func (g group) newMachine(ordinal int, host string) machine.Machine {
	r := g.base
	r.Ordinal, r.Phase = ordinal, record.Creating
	id := g.identity()
	name := r.NodeName()
	r.Volumes = volumes(name, id, r.Shape)
	r.HostDevices = g.hostDevices[host]
	return machine.Machine{Hypervisor: host, Name: name, UUID: id, MAC: macOf(id), Power: machine.Stopped, Record: r}
}

// creation lists the actions of a new node. One that comes to a cluster that lives may meet the Node object of a
// namesake, which would refuse its node password, and a server the member of a namesake.
func creation(role record.Role, living bool) []Action {
	if role == record.Agent {
		return []Action{Forget, Define, Clone, Seed, Start, Agent, Bootstrap, Ready, Label, Seal}
	}
	actions := []Action{Define, Clone, Seed, Start, Agent, Bootstrap, Ready, Seal}
	if living {
		return append([]Action{Leave, Forget}, actions...)
	}
	return actions
}

func volumes(node, uuid string, s record.Shape) []record.Volume {
	out := []record.Volume{
		{Pool: s.StoragePool, Name: machine.RootVolume(node, uuid)},
		{Pool: s.StoragePool, Name: machine.SeedVolume(node, uuid)},
	}
	if s.Data.SizeGiB > 0 {
		out = append(out, record.Volume{Pool: s.Data.StoragePool, Name: machine.DataVolume(node, uuid)})
	}
	return out
}

// macOf derives a VM's MAC address from its UUID, in the range that QEMU uses for its guests.
func macOf(uuid string) string {
	hex := strings.ReplaceAll(uuid, "-", "")
	tail := hex[len(hex)-6:]
	return fmt.Sprintf("52:54:00:%s:%s:%s", tail[0:2], tail[2:4], tail[4:6])
}

// namesOf lists the names of nodes.
func namesOf(nodes []NodeStatus) []string {
	out := make([]string, 0, len(nodes))
	for _, n := range nodes {
		out = append(out, n.Name)
	}
	return out
}

// leftover is the machine of a node whose domain is gone: its volumes may still be there.
func (g group) leftover(n NodeStatus) machine.Machine {
	r := g.base
	r.Ordinal = ordinalOf(g.base, n.Name)
	r.Shape = cmp.Or(g.was, r.Shape)
	r.Volumes = volumes(n.Name, n.UUID, r.Shape)
	return machine.Machine{Hypervisor: n.Hypervisor, Name: n.Name, UUID: n.UUID, MAC: n.MAC, Power: machine.Stopped, Record: r}
}

// ordinalOf is the number in the name of one of the nodes of a group, and 0 for another name.
func ordinalOf(base record.Record, name string) int {
	number, ok := strings.CutPrefix(name, fmt.Sprintf("%s-%s-", base.ClusterName, base.Pool))
	n, err := strconv.Atoi(number)
	if !ok || err != nil || n < 1 || strconv.Itoa(n) != number {
		return 0
	}
	return n
}
