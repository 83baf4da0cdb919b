package placement

import (
	"math"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// roomiest chooses among hosts that take one more node: the first that then leaves room for as many others as any of them.
func (s *search) roomiest(open []*host) *host {
	best, most, before := open[0], -1, s.most()
	for _, h := range open {
		s.put(h, 1)
		after := s.most()
		s.put(h, -1)
		if after > most {
			best, most = h, after
		}
		if most >= before-1 { // No host leaves more.
			break
		}
	}
	return best
}

// most is how many more nodes there is room for in all. A node is a unit of flow: from the store of its root disk, which
// bounds it, through its host, which does so too, to the store of its data disk. A store that does not mean the same to all
// its hosts counts for each meaning as if it had no other.
func (s *search) most() int {
	var n network
	source, sink := n.point(), n.point()
	roots, datas := map[*room]int{}, map[*room]int{} // Stores without a limit are one, nil.
	takes := map[*room]int{}                         // The least that a node takes of the store of its root disk.
	for _, h := range s.hosts {
		root, rest, size := h.rooms[disk], h.rooms[data], s.want[disk]
		if h.oneStore() {
			rest, size = nil, size+s.want[data]
		}
		if _, ok := roots[root]; !ok {
			roots[root], takes[root] = n.point(), size
		}
		if _, ok := datas[rest]; !ok {
			datas[rest] = n.point()
			n.pipe(datas[rest], sink, rest.fits(s.want[data]))
		}
		takes[root] = min(takes[root], size)
		n.pipe(roots[root], datas[rest], s.capacity(h))
	}
	for root, point := range roots {
		n.pipe(source, point, root.fits(takes[root]))
	}
	return n.flow(source, sink)
}

// capacity is how many more nodes a host can take, its stores aside.
func (s *search) capacity(h *host) int {
	if s.closed(h) {
		return 0
	}
	n := min(h.rooms[cpu].fits(s.want[cpu]), h.rooms[memory].fits(s.want[memory]))
	if s.Rule.AntiAffinity == record.Required {
		n = min(n, 1)
	}
	return n
}

// unlimited is more nodes than there ever are, and few enough to be added up.
const unlimited = math.MaxInt32

// fits is how many parts of a size there is room for.
func (r *room) fits(size int) int {
	switch {
	case r == nil, size == 0 && r.left >= 0:
		return unlimited
	case r.left < size:
		return 0
	}
	return min(r.left/size, unlimited)
}

// network is a network of pipes between points.
type network struct {
	// from holds for each point the pipes that begin there, as indices. Behind each pipe comes its reverse, by which flow
	// is taken back.
	from  [][]int
	pipes []pipe
}

// pipe leads to a point, and has room for so much more.
type pipe struct{ to, left int }

// point adds a point.
func (n *network) point() int {
	n.from = append(n.from, nil)
	return len(n.from) - 1
}

// pipe adds a pipe.
func (n *network) pipe(from, to, left int) {
	n.from[from] = append(n.from[from], len(n.pipes))
	n.from[to] = append(n.from[to], len(n.pipes)+1)
	n.pipes = append(n.pipes, pipe{to, left}, pipe{from, 0})
}

// flow fills the network and returns what flows. Each round takes a shortest way that has room left, which bounds the
// number of rounds by the size of the network (Edmonds and Karp, doi:10.1145/321694.321699).
func (n *network) flow(source, sink int) (sum int) {
	for {
		way := n.way(source, sink)
		if len(way) == 0 {
			return sum
		}
		least := unlimited
		for _, i := range way {
			least = min(least, n.pipes[i].left)
		}
		for _, i := range way {
			n.pipes[i].left -= least
			n.pipes[i^1].left += least
		}
		sum += least
	}
}

// way is a shortest way with room left, as pipes from its end to its beginning.
func (n *network) way(source, sink int) (way []int) {
	by := make([]int, len(n.from)) // The pipe by which a point was first reached, plus one.
	reached := []int{source}
	for len(reached) > 0 && by[sink] == 0 {
		point := reached[0]
		reached = reached[1:]
		for _, i := range n.from[point] {
			if to := n.pipes[i].to; n.pipes[i].left > 0 && to != source && by[to] == 0 {
				by[to] = i + 1
				reached = append(reached, to)
			}
		}
	}
	for point := sink; by[point] != 0; point = n.pipes[(by[point]-1)^1].to {
		way = append(way, by[point]-1)
	}
	return way
}
