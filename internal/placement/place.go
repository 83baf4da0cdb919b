package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// Place returns the name of the hypervisor of each new node, by ordinal; its error is an *Error.
//
// With the strategy auto each node, in the order of the ordinals, goes to the host that is then loaded least, by the
// scarcer of CPU and memory, and of equals to the first by name. Anti-affinity comes before load. While nodes have one
// disk, the choice never looks ahead and need not: the nodes are alike, and each counts against one host, which counts
// against one store. Limits that nest like this form a matroid, where every start leads as far as any other.
//
// A data disk counts against a second store. That nests still where each host has stores of its own, or all hosts share
// one. But where some share the one store and others the other, a host may take the last room of two stores that would
// have done for a node each; so a host is passed over where another leaves room for more nodes (see search.most). How
// many are left to place has no say in that.
//
// So there is an error only where no assignment at all meets the request, and placing some nodes now and others later
// gives the same as all at once. The one exception is a store that does not mean the same to all its hosts, because it
// takes the root disks of some and the data disks of others: how many of both fit there is a knapsack problem, which is
// not solved. Limits are kept there too, but an error may come although there is an assignment.
//
// With the strategy manual the nodes go where the rule says, as far as there is room. Anti-affinity does not apply.
func Place(r Request) (map[int]string, error) {
	s := newSearch(r)
	for _, node := range slices.Sorted(slices.Values(r.Nodes)) {
		h, err := s.choose(node)
		if err != nil {
			return nil, err
		}
		s.put(h, 1)
		h.load.add(s.want)
		s.placed[node] = h.Name
	}
	return s.placed, nil
}

// The kinds of resources, as indices.
const (
	cpu = iota
	memory
	disk
	data
	kinds
)

// amounts is a Size by kind of resource.
type amounts [kinds]int

func (s Size) amounts() amounts {
	return amounts{cpu: s.VCPUs, memory: s.MemoryMiB, disk: s.DiskMiB, data: s.DataMiB}
}

func (a *amounts) add(b amounts) {
	for i := range a {
		a[i] += b[i]
	}
}

// room is how much of a resource there is to hand out, and how much of that is left.
type room struct{ total, left int }

// host is a Host with what has been placed there.
type host struct {
	Host
	// rooms are by kind of resource. Those of disks are shared with other hosts, may be one for both kinds, and are nil
	// where there is no limit.
	rooms [kinds]*room
	load  amounts
	// new is the number of new nodes.
	new int
}

// take lessens the room by n times an amount.
func (h *host) take(a amounts, n int) {
	for i, r := range h.rooms {
		if r != nil {
			r.left -= n * a[i]
		}
	}
}

// left is what one more node finds of a resource that has a limit. Of a store that takes both its disks it finds for the
// data disk what the root disk leaves.
func (h *host) left(kind int, want amounts) int {
	left := h.rooms[kind].left
	if kind == data && h.oneStore() {
		left -= want[disk]
	}
	return left
}

// oneStore reports whether both disks of a node go to one store, which has a limit.
func (h *host) oneStore() bool { return h.rooms[data] != nil && h.rooms[data] == h.rooms[disk] }

// short lists the kinds of resources that are too little for one more node.
func (h *host) short(want amounts) []int {
	var short []int
	for i, r := range h.rooms {
		if r != nil && h.left(i, want) < want[i] {
			short = append(short, i)
		}
	}
	return short
}

// filled is the share of the scarcer of CPU and memory that is taken once one more node is there.
func (h *host) filled(want amounts) float64 {
	share := func(i int) float64 { return float64(h.load[i]+want[i]) / float64(h.rooms[i].total) }
	return max(share(cpu), share(memory))
}

// search is a request that is being met.
type search struct {
	Request
	want   amounts
	hosts  []*host // By name.
	placed map[int]string
}

func newSearch(r Request) *search {
	s := &search{Request: r, want: r.Size.amounts(), placed: make(map[int]string, len(r.Nodes))}
	stores := make(map[string]*room, len(r.Stores))
	for name, mib := range r.Stores {
		stores[name] = &room{total: mib, left: mib}
	}
	for _, h := range r.Hosts {
		n := &host{Host: h, load: h.Used.amounts(), rooms: [kinds]*room{
			cpu:    {total: h.VCPUs, left: h.VCPUs},
			memory: {total: h.MemoryMiB, left: h.MemoryMiB},
			disk:   stores[h.Store],
		}}
		if s.want[data] > 0 {
			n.rooms[data] = stores[h.DataStore]
		}
		n.take(h.Used.amounts(), 1)
		n.take(h.Held.amounts(), 1)
		s.hosts = append(s.hosts, n)
	}
	slices.SortFunc(s.hosts, func(a, b *host) int { return strings.Compare(a.Name, b.Name) })
	return s
}

// choose finds the host for one node.
func (s *search) choose(node int) (*host, error) {
	switch {
	case len(s.hosts) == 0:
		return nil, &Error{machine.FieldHypervisor, "there is no hypervisor that can take new nodes"}
	case s.Rule.Strategy == record.Manual:
		return s.named(node)
	}
	var open []*host
	for _, h := range s.hosts {
		if s.takes(h) {
			open = append(open, h)
		}
	}
	if len(open) == 0 {
		return nil, s.full()
	}
	slices.SortStableFunc(open, s.compare)
	if s.want[data] == 0 {
		return open[0], nil
	}
	return s.roomiest(open), nil
}

// named finds the host that a manual rule gives to a node.
func (s *search) named(node int) (*host, error) {
	names, i := s.Rule.Hosts, node-1
	if len(names) == 1 {
		i = 0
	}
	if i >= len(names) {
		return nil, &Error{machine.FieldHosts, fmt.Sprintf(
			"the list has %d hypervisors and none for node %d; name one for each node, or a single one for all", len(names), node)}
	}
	at := slices.IndexFunc(s.hosts, func(h *host) bool { return h.Name == names[i] })
	if at < 0 {
		return nil, &Error{machine.FieldHosts, fmt.Sprintf("node %d cannot go to %q, which is none of the hypervisors that can take it: %s",
			node, names[i], strings.Join(namesOf(s.hosts), ", "))}
	}
	h := s.hosts[at]
	if short := h.short(s.want); len(short) > 0 {
		return nil, &Error{resources[short[0]].field, fmt.Sprintf("there is no room for node %d: %s", node, s.lack(h, short))}
	}
	return h, nil
}

// takes reports whether one more node may go to a host.
func (s *search) takes(h *host) bool { return !s.closed(h) && len(h.short(s.want)) == 0 }

// put counts n new nodes on a host, as far as room and anti-affinity go.
func (s *search) put(h *host, n int) {
	h.take(s.want, n)
	h.new += n
}

// closed reports whether anti-affinity keeps another node off the host.
func (s *search) closed(h *host) bool {
	return s.Rule.AntiAffinity == record.Required && h.Members+h.new > 0
}

// compare orders hosts by how well one more node would stand there, the better first.
func (s *search) compare(a, b *host) int {
	var members int
	if s.Rule.AntiAffinity == record.Preferred {
		members = cmp.Compare(a.Members+a.new, b.Members+b.new)
	}
	return cmp.Or(members, cmp.Compare(a.filled(s.want), b.filled(s.want)))
}
