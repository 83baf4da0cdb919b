package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/placement"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// outgrown reviews the hypervisors of the nodes that are changed where they stand: what new nodes there would have to meet,
// and whether there is room for what the nodes are to take more.
func (e *Engine) outgrown(ctx context.Context, g group, c choice, o machine.Observation, settings record.Cluster) ([]Problem, error) {
	changed := map[string][]machine.Machine{}
	for _, m := range c.keep {
		if c.needs[m.Name].disrupts() {
			changed[m.Hypervisor] = append(changed[m.Hypervisor], m)
		}
	}
	hosts := sortedKeys(changed)
	found := make([][]Problem, len(hosts))
	var wg sync.WaitGroup
	for i, host := range hosts {
		wg.Go(func() { found[i] = e.outgrownOn(ctx, g, c, o, host, changed[host], settings) })
	}
	wg.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return slices.Concat(found...), nil
}

func (e *Engine) outgrownOn(ctx context.Context, g group, c choice, o machine.Observation, host string, ms []machine.Machine, settings record.Cluster) []Problem {
	var anew []string
	var more growth
	for _, m := range ms {
		if c.needs[m.Name].change == Replaced {
			anew = append(anew, m.Name)
		}
		more.add(m, g.base.Shape)
	}
	site, problems := e.checkHost(ctx, o, g.requestTo(host, anew, settings))
	if len(anew) == 0 { // A node that is resized needs neither a template nor a network.
		problems = slices.DeleteFunc(problems, func(p Problem) bool { return p.Field != machine.FieldHypervisor })
	}
	if len(problems) > 0 {
		return problems
	}
	var used placement.Size
	going := c.going()
	for _, d := range o.Hosts[host].Domains {
		if !going[d.UUID] {
			used = used.Plus(placement.Size{VCPUs: d.VCPUs, MemoryMiB: d.MemoryMiB})
		}
	}
	have, over := o.Hosts[host], g.overcommit[host]
	data, root := more.dataMiB, more.diskMiB
	if site.DataStore == site.Store {
		data, root = 0, root+data
	}
	for _, r := range []struct {
		field      machine.Field
		what       string
		more, room int
	}{
		{machine.FieldVCPUs, "vCPUs", more.vcpus, int(float64(have.CPUs)*over.CPU) - used.VCPUs},
		{machine.FieldMemory, "MiB of memory", more.memoryMiB, int(float64(have.MemoryMiB)*over.Memory) - used.MemoryMiB},
		{machine.FieldDisk, "MiB of disk", root, int(float64(site.FreeMiB)*over.Disk) - site.CopyMiB},
		{machine.FieldDataDisk, "MiB of data disk", data, int(float64(site.DataFreeMiB) * over.Disk)},
	} {
		if r.more > 0 && r.more > r.room {
			problems = append(problems, Problem{Field: r.field, Hypervisor: host, Err: fmt.Errorf(
				"there is no room for the change of %s: it takes %d %s more, and %d are left", strings.Join(shortNames(ms), ", "), r.more, r.what, max(r.room, 0))})
		}
	}
	return problems
}

// growth is what nodes of a hypervisor take more than before.
type growth struct{ vcpus, memoryMiB, diskMiB, dataMiB int }

// add counts a node that gets a shape. A disk in another storage pool is there before the old one goes.
func (w *growth) add(m machine.Machine, s record.Shape) {
	is := m.Record.Shape
	w.vcpus += s.VCPUs - is.VCPUs
	w.memoryMiB += s.MemoryMiB - is.MemoryMiB
	disk, data := s.DiskGiB, s.Data.SizeGiB
	if is.StoragePool == s.StoragePool {
		disk = max(0, disk-is.DiskGiB)
	}
	if is.Data.StoragePool == s.Data.StoragePool {
		data = max(0, data-is.Data.SizeGiB)
	}
	w.diskMiB += disk << 10
	w.dataMiB += data << 10
}

func shortNames(ms []machine.Machine) []string {
	names := make([]string, 0, len(ms))
	for _, m := range ms {
		names = append(names, m.Record.ShortName())
	}
	return names
}

// surgePlaces finds places for the nodes that stand in while others are changed: with a manual rule on the hypervisors that it
// names. They are gone in the end, so no plan promises them; that there is room for them is told beforehand.
func (e *Engine) surgePlaces(ctx context.Context, g group, c choice, o machine.Observation, settings record.Cluster) (Assignment, []Problem, error) {
	var rule record.Placement
	if g.base.Placement.Strategy == record.Manual {
		rule = record.Placement{Strategy: record.Manual, Hosts: slices.Compact(slices.Sorted(slices.Values(g.base.Placement.Hosts)))}
	}
	fit, problems, err := e.candidatesBy(ctx, g, rule, c.surge, o, settings)
	if err != nil || len(fit) == 0 {
		return nil, problems, err
	}
	places, err := e.book.look(g, c, o, fit)
	if err != nil {
		return nil, []Problem{{Field: machine.FieldUpgrade, Err: &Failure{
			Err:    fmt.Errorf("there is no place for %s, which would stand in while other nodes are changed: %w", strings.Join(surgeNames(g, c), ", "), placementProblem(err, problems).Err),
			Remedy: "make room, or let nodes be changed without others to stand in: upgrade_settings = { max_surge = 0, max_unavailable = 1 }.",
		}}}, nil
	}
	return places, nil, nil
}

func surgeNames(g group, c choice) []string {
	names := make([]string, 0, len(c.surge))
	for _, ordinal := range slices.SortedFunc(slices.Values(c.surge), cmp.Compare[int]) {
		names = append(names, record.ShortName(g.base.Pool, ordinal))
	}
	return names
}
