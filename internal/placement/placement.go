// Package placement decides on which hypervisor new nodes go. It is pure: the same input always gives the same result,
// nodes that stand are never moved, and nothing is asked of anybody.
package placement

import (
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// Size is what one node takes.
type Size struct {
	VCPUs     int
	MemoryMiB int
	DiskMiB   int
	// DataMiB is the size of the data disk, 0 where a node has none.
	DataMiB int
}

// Plus is what two together take.
func (s Size) Plus(o Size) Size {
	return Size{VCPUs: s.VCPUs + o.VCPUs, MemoryMiB: s.MemoryMiB + o.MemoryMiB, DiskMiB: s.DiskMiB + o.DiskMiB, DataMiB: s.DataMiB + o.DataMiB}
}

// Host is a hypervisor that can take nodes of the group. All amounts are of what may be handed out, with overcommit
// counted in.
type Host struct {
	Name      string
	VCPUs     int
	MemoryMiB int
	// Used is what stands on it takes. It counts as load and lessens the room, that of the stores too: its DiskMiB and
	// DataMiB are only what Request.Stores does not leave out already.
	Used Size
	// Held is what others were promised in the same run. It lessens the room, but is no load: which promise was made
	// first must not alter where a node goes.
	Held Size
	// Store is the storage that root disks go to and DataStore the one that data disks go to, keys of Request.Stores. Hosts
	// with the same store share its room, and so do the two disks of a node where both are the same. DataStore does not
	// matter where nodes have no data disk.
	Store     string
	DataStore string
	// Members is how many nodes of the same group stand there already, for anti-affinity.
	Members int
}

// Request asks for places for new nodes of one group, which are all alike.
type Request struct {
	// Nodes are the ordinals of the new nodes, from 1, in any order and each once.
	Nodes []int
	Size  Size
	Rule  record.Placement
	// Hosts are the hypervisors that can be chosen, in any order and each once. One that a manual rule names and that is
	// not among them is an error; the caller tells beforehand why a hypervisor cannot be chosen.
	Hosts []Host
	// Stores is the room in each store, for disks of either kind, in MiB, less what hypervisors that are not among Hosts hold
	// of it. A store that is missing here has room for everything: what nobody could measure stops nobody.
	Stores map[string]int
}

// Error is why a node finds no place.
type Error struct {
	// Field is what the reason is about: machine.FieldVCPUs, FieldMemory, FieldDisk or FieldDataDisk for the resource that
	// most hosts lack, FieldPlacement for anti-affinity, FieldHosts for the names of a manual rule, FieldHypervisor where there is no host.
	Field machine.Field
	// Text says it in a sentence without its end, with the numbers.
	Text string
}

// Error returns the reason.
func (e *Error) Error() string { return e.Text }
