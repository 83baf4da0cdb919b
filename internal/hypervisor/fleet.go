// Package hypervisor speaks libvirt with one or more hypervisors: it finds, makes, changes and removes VMs and their
// volumes, and knows nothing of what runs in them.
//
// A VM is ours if its domain's metadata holds a record (package record). No other domain is changed or removed, and of
// the volumes only those that a record lists or that carry the name and UUID of one of our VMs.
package hypervisor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// Config is how one hypervisor is reached and used.
type Config struct {
	// URI is libvirt's (https://libvirt.org/uri.html).
	URI string
	// VirtType is the libvirt type of new domains: "kvm" or "qemu" (emulated); "" is the best that the host can do.
	VirtType string
	// Schedulable says whether new nodes may go there.
	Schedulable bool
	// Overcommit says how much more may be handed out than there is; zero fields mean machine.DefaultOvercommit.
	Overcommit machine.Overcommit
}

// overcommit is Overcommit with its defaults.
func (c Config) overcommit() machine.Overcommit {
	return machine.Overcommit{
		CPU:    cmp.Or(c.Overcommit.CPU, machine.DefaultOvercommit.CPU),
		Memory: cmp.Or(c.Overcommit.Memory, machine.DefaultOvercommit.Memory),
		Disk:   cmp.Or(c.Overcommit.Disk, machine.DefaultOvercommit.Disk),
	}
}

// TemplateRef says where the golden image is kept. A hypervisor that neither keeps it nor shares the storage it is kept in
// gets a copy of it when it is first needed, in the storage pool of the VM.
type TemplateRef struct {
	Hypervisor string
	Pool       string
	Volume     string
	// Shared: the pool is one storage that every hypervisor with a pool of that name sees. Network storage (pools of type
	// netfs) is recognised without it.
	Shared bool
}

// Fleet is the set of configured hypervisors. It is safe for concurrent use, and does nothing before it is asked to. Its
// connections last as long as the process, as Terraform's use of a provider does.
type Fleet struct {
	hosts    map[string]*host
	template TemplateRef
	// fills are the copies of the template that are being made, by hypervisor and pool.
	fills shares
	// stall is how long a copy that somebody else makes may stand still before it counts as abandoned.
	stall time.Duration
}

// New makes a Fleet. parallelism bounds the copying of whole disks on each hypervisor.
func New(configs map[string]Config, template TemplateRef, parallelism int) *Fleet {
	f := &Fleet{hosts: make(map[string]*host, len(configs)), template: template, stall: defaultStall}
	for name, c := range configs {
		f.hosts[name] = newHost(name, c, parallelism)
	}
	return f
}

// Hypervisors lists the configured hypervisors by name.
func (f *Fleet) Hypervisors() []machine.Hypervisor {
	list := make([]machine.Hypervisor, 0, len(f.hosts))
	for _, name := range slices.Sorted(maps.Keys(f.hosts)) {
		c := f.hosts[name].config
		list = append(list, machine.Hypervisor{Name: name, Schedulable: c.Schedulable, Overcommit: c.overcommit()})
	}
	return list
}

// Template is the golden image as it is configured; zero where none is. Where a VM's disk is made from a copy of it, the
// template in the VM's record is that copy.
func (f *Fleet) Template() record.Template {
	return record.Template{Pool: f.template.Pool, Volume: f.template.Volume}
}

// host returns a hypervisor by name. What stands on one that is not configured is unknown.
func (f *Fleet) host(name string) (*host, error) {
	if h, ok := f.hosts[name]; ok {
		return h, nil
	}
	return nil, fmt.Errorf("%w: the provider's configuration does not name it", machine.ErrUnreachable)
}

// on carries work out on a hypervisor. Errors say what was being done, but not where: the caller knows.
func (f *Fleet) on(ctx context.Context, hypervisor, doing string, work func(context.Context, *host) error) error {
	h, err := f.host(hypervisor)
	if err == nil {
		_, err = within(ctx, func() (struct{}, error) { return struct{}{}, work(ctx, h) })
	}
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}

// within runs work in a goroutine of its own and returns when it is done or ctx is, whichever comes first: a call into
// libvirt cannot be cancelled. Work that was left behind ends soon after the call that it is in, because what waits, or
// changes something, looks at ctx first. Where the hypervisor has fallen silent, keep-alive ends that call; where it
// lives, the call takes as long as its work does, which for the copy of a disk can be many minutes. An attempt to
// connect is no part of the work (see host.connect): how long that may take is up to ssh and the kernel.
func within[T any](ctx context.Context, work func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := work()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, fmt.Errorf("libvirt has not answered: %w", context.Cause(ctx))
	}
}
