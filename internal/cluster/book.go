package cluster

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/placement"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// book holds what this process has promised, made and removed, so that groups of nodes that are planned or made in one
// run see each other.
//
// Terraform plans each resource again when its turn comes in the apply, in another process, and takes it for a bug if a
// value that was known comes out otherwise. So where a node goes may depend on nothing that the run itself alters in the
// meantime: what other groups were promised, or have made since, lessens the room and is no load; what was removed in
// the run still counts. Only the servers of a group's own cluster are load in both: they are planned, and made, before
// it.
type book struct {
	mu sync.Mutex
	// promised are the places of new nodes by group.
	promised map[groupKey]promise
	// made are the VMs that this process defined, by UUID, removed those that it deleted.
	made    map[string]groupKey
	removed []machine.Machine
	// strangers counts the groups whose cluster is not known yet.
	strangers int
}

// groupKey names a group of nodes: the cluster's name and the pool.
type groupKey struct{ cluster, pool string }

// promise is where the new nodes of a group are to go.
type promise struct {
	size  placement.Size
	hosts Assignment
	// stores is the store of each host, and data that of the data disks.
	stores, data map[string]string
	// settings are those of the cluster, where the group is that of its servers.
	settings *record.Cluster
	// instead: the group's cluster takes the place of one of the same name, which goes first.
	instead bool
}

func newBook() book {
	return book{promised: map[groupKey]promise{}, made: map[string]groupKey{}}
}

func keyOf(r record.Record) groupKey { return groupKey{r.ClusterName, r.Pool} }

func sizeOf(s record.Shape) placement.Size {
	return placement.Size{VCPUs: s.VCPUs, MemoryMiB: s.MemoryMiB, DiskMiB: s.DiskGiB << 10, DataMiB: s.Data.SizeGiB << 10}
}

// atWork is a size without the disks, which count against stores.
func atWork(s placement.Size) placement.Size {
	s.DiskMiB, s.DataMiB = 0, 0
	return s
}

// madeVM and removedVM keep account of what this process does.
func (b *book) madeVM(m machine.Machine) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.made[m.UUID] = keyOf(m.Record)
}

func (b *book) removedVM(m machine.Machine) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, own := b.made[m.UUID]; own {
		delete(b.made, m.UUID) // It was not there when the run was planned.
		return
	}
	b.removed = append(b.removed, m)
}

// settle forgets a promise that was kept, or is not needed.
func (b *book) settle(k groupKey) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.promised, k)
}

// stranger is the key of a pool whose cluster is planned in the same run: its name is that of the only such cluster, or
// one of its own where there are several to choose from.
func (b *book) stranger(pool string) groupKey {
	b.mu.Lock()
	defer b.mu.Unlock()
	var clusters []string
	for k := range b.promised {
		if k.pool == record.ServerPool {
			clusters = append(clusters, k.cluster)
		}
	}
	if len(clusters) == 1 {
		return groupKey{clusters[0], pool}
	}
	b.strangers++
	return groupKey{fmt.Sprintf("?%d", b.strangers), pool}
}

// settings are those of a cluster that is planned in the same run; they are zero where none of that name is.
func (b *book) settings(cluster string) record.Cluster {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.promised[groupKey{cluster, record.ServerPool}].settings; s != nil {
		return *s
	}
	return record.Cluster{}
}

// ambiguous reports whether a key stands for a cluster that is not known.
func (k groupKey) ambiguous() bool { return k.cluster != "" && k.cluster[0] == '?' }

// promise finds places for the new nodes of a group among the hypervisors that fit, and keeps them. sure tells whether the
// same places would be found if nobody else had been promised any: only then will a later look find them again.
func (b *book) promise(g group, c choice, o machine.Observation, fit map[string]machine.Site) (places Assignment, sure bool, err error) {
	k := keyOf(g.base)
	b.mu.Lock()
	defer b.mu.Unlock()
	anew := g.prior == nil
	if g.base.Role == record.Server {
		delete(b.promised, k)
		if anew && slices.ContainsFunc(o.Machines, func(m machine.Machine) bool { return m.Record.ClusterName == k.cluster }) {
			b.promised[k] = promise{instead: true}
		}
	}
	instead := b.promised[k].instead
	a := b.accountFor(k, g.base.ClusterID, anew, c, g.base.Shape, o)
	r := g.request(c, c.fresh, o, fit, a)
	found, err := placement.Place(r)
	if err != nil {
		return nil, false, err
	}
	for i := range r.Hosts {
		r.Hosts[i].Held = placement.Size{}
	}
	for store := range r.Stores {
		r.Stores[store] += a.stores[store]
	}
	alone, err := placement.Place(r)
	sure = err == nil && maps.Equal(found, alone) && !k.ambiguous()
	p := g.promise(found, fit)
	p.settings, p.instead = g.base.Cluster, instead
	b.promised[k] = p
	return p.hosts, sure, nil
}

// promise writes down the places that were found for a group's new nodes.
func (g group) promise(found map[int]string, fit map[string]machine.Site) promise {
	p := promise{size: sizeOf(g.base.Shape), hosts: Assignment{}, stores: map[string]string{}, data: map[string]string{}}
	for ordinal, host := range found {
		p.hosts[record.ShortName(g.base.Pool, ordinal)] = host
		p.stores[host], p.data[host] = fit[host].Store, fit[host].DataStore
	}
	return p
}

// take finds places for the new nodes of a group that is about to be made: those that a plan promised, or else, as
// everything that is promised or made counts now, the least loaded. It fails where a promise cannot be kept any more.
func (b *book) take(g group, c choice, o machine.Observation, fit map[string]machine.Site) (Assignment, error) {
	k := keyOf(g.base)
	b.mu.Lock()
	defer b.mu.Unlock()
	r := g.request(c, c.fresh, o, fit, b.accountFor(k, g.base.ClusterID, false, c, g.base.Shape, o))
	for i := range r.Hosts {
		h := &r.Hosts[i]
		h.Used, h.Held = h.Used.Plus(h.Held), placement.Size{}
	}
	found, err := placement.Place(r)
	if err != nil {
		return nil, err
	}
	p := g.promise(found, fit)
	b.promised[k] = p
	return p.hosts, nil
}

// look finds places for nodes that stand in for others, beside everything that was promised and the group's own new nodes.
// They go to any hypervisor that fits.
func (b *book) look(g group, c choice, o machine.Observation, fit map[string]machine.Site) (Assignment, error) {
	k := keyOf(g.base)
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.accountFor(k, g.base.ClusterID, false, c, g.base.Shape, o)
	if len(c.fresh) > 0 {
		if fresh, err := placement.Place(g.request(c, c.fresh, o, fit, a)); err == nil {
			p := g.promise(fresh, fit)
			for _, host := range p.hosts {
				add(a.used, host, atWork(p.size))
				a.stores[p.stores[host]] += p.size.DiskMiB
				a.stores[p.data[host]] += p.size.DataMiB
			}
		}
	}
	r := g.request(c, c.surge, o, fit, a)
	r.Rule = record.Placement{}
	found, err := placement.Place(r)
	if err != nil {
		return nil, err
	}
	return g.promise(found, fit).hosts, nil
}

// request puts the question to package placement.
func (g group) request(c choice, nodes []int, o machine.Observation, fit map[string]machine.Site, a account) placement.Request {
	r := placement.Request{Nodes: nodes, Size: sizeOf(g.base.Shape), Rule: g.rule(nodes), Stores: map[string]int{}}
	for _, name := range sortedKeys(fit) {
		have, site, over := o.Hosts[name], fit[name], g.overcommit[name]
		r.Hosts = append(r.Hosts, placement.Host{
			Name: name, VCPUs: int(float64(have.CPUs) * over.CPU), MemoryMiB: int(float64(have.MemoryMiB) * over.Memory),
			Used: a.used[name], Held: a.held[name], Store: site.Store, DataStore: site.DataStore, Members: c.on(name),
		})
		limit := func(store string, room int) {
			if least, shared := r.Stores[store]; !shared || room < least {
				r.Stores[store] = room
			}
		}
		limit(site.Store, int(float64(site.FreeMiB)*over.Disk)-site.CopyMiB-a.stores[site.Store])
		if r.Size.DataMiB > 0 {
			limit(site.DataStore, int(float64(site.DataFreeMiB)*over.Disk)-a.stores[site.DataStore])
		}
	}
	return r
}

// account sums up, for each hypervisor, what counts as load for a group (used) and what only lessens its room (held),
// and what was promised of each store.
type account struct {
	used, held map[string]placement.Size
	stores     map[string]int
}

// accountFor sums up the fleet for the new nodes of a group, of the cluster with that id ("" while it has none). What goes by
// its choice makes room for them, and what is changed to the shape counts with that. anew: the group's present nodes go
// before the new ones come. The caller holds b.mu.
func (b *book) accountFor(k groupKey, clusterID string, anew bool, c choice, shape record.Shape, o machine.Observation) account {
	going, grown := c.going(), c.grown()
	a := account{used: map[string]placement.Size{}, held: map[string]placement.Size{}, stores: map[string]int{}}
	ours := map[string]record.Record{}
	for _, m := range o.Machines {
		ours[m.UUID] = m.Record
	}
	servers := groupKey{k.cluster, record.ServerPool}
	instead := b.promised[servers].instead
	// standing are the VMs that were seen, by UUID; kept are the places where a promise was kept, and taken those where a
	// namesake stands.
	standing, kept, taken := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for host, h := range o.Hosts {
		for _, d := range h.Domains {
			size := placement.Size{VCPUs: d.VCPUs, MemoryMiB: d.MemoryMiB}
			if grown[d.UUID] {
				size = atWork(sizeOf(shape))
			}
			r, known := ours[d.UUID]
			maker, made := b.made[d.UUID]
			standing[d.UUID], taken[host+"/"+d.Name] = true, true
			kept[host+"/"+d.Name] = kept[host+"/"+d.Name] || made
			switch {
			case going[d.UUID]:
			case made && maker != k && maker != servers:
				add(a.held, host, size)
			case made:
				add(a.used, host, size)
			case known && r.ClusterName == k.cluster && (instead || anew && r.Pool == k.pool):
				// It is gone by then.
			default:
				add(a.used, host, size)
			}
		}
	}
	for _, m := range b.removed {
		r := m.Record
		if standing[m.UUID] || r.ClusterName == k.cluster && (r.Pool == k.pool || r.ClusterID != clusterID) {
			continue // A survey from before it went has it still.
		}
		add(a.used, m.Hypervisor, atWork(sizeOf(r.Shape)))
	}
	for key, p := range b.promised {
		if key == k {
			continue
		}
		for short, host := range p.hosts {
			a.stores[p.stores[host]] += p.size.DiskMiB
			a.stores[p.data[host]] += p.size.DataMiB
			size := atWork(p.size)
			place := host + "/" + key.cluster + "-" + short
			switch {
			case kept[place]:
			case key == servers:
				add(a.used, host, size)
			case taken[place]: // by its predecessor, which counts
			default:
				add(a.held, host, size)
			}
		}
	}
	return a
}

func add(to map[string]placement.Size, host string, s placement.Size) { to[host] = to[host].Plus(s) }
