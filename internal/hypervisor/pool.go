package hypervisor

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"
	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
)

// filePools are the types of storage pool that keep volumes as files in one directory, where a qcow2 image can stand
// with another behind it (https://libvirt.org/storage.html).
var filePools = []string{"dir", "fs", "netfs"}

// pool is an active storage pool, which its user frees.
type pool struct {
	*libvirt.StoragePool
	name string
	// path is the pool's directory.
	path string
	// source names the network storage that is mounted there, so that it can be recognised on other hypervisors; "" for a
	// pool of another type.
	source string
	host   *host
	gate   *semaphore.Weighted
}

func (p *pool) free() { _ = p.Free() }

// pool finds a storage pool by name and starts it if it is inactive, as after a restart of a hypervisor that does not
// start it by itself.
func (h *host) pool(conn *libvirt.Connect, name string) (*pool, error) {
	sp, err := conn.LookupStoragePoolByName(name)
	if err != nil {
		if errors.Is(err, libvirt.ERR_NO_STORAGE_POOL) {
			return nil, fmt.Errorf("storage pool %q: %w; %s", name, machine.ErrNotFound, offer(poolNames(conn)))
		}
		return nil, wrap(err, "look for the storage pool %q", name)
	}
	p := &pool{StoragePool: sp, name: name, host: h, gate: h.gate(name)}
	if err := p.open(); err != nil {
		p.free()
		return nil, fmt.Errorf("storage pool %q: %w", name, err)
	}
	return p, nil
}

// open starts the pool and learns its directory.
func (p *pool) open() error {
	text, err := p.GetXMLDesc(0)
	if err != nil {
		return wrap(err, "read its definition")
	}
	var def libvirtxml.StoragePool
	if err := def.Unmarshal(text); err != nil {
		return fmt.Errorf("read its definition: %w", err)
	}
	if !slices.Contains(filePools, def.Type) || def.Target == nil {
		return fmt.Errorf("it is of type %q, which cannot hold qcow2 files; a pool of type %s is needed", def.Type, strings.Join(filePools, ", "))
	}
	p.path, p.source = def.Target.Path, sourceOf(def)
	active, err := p.IsActive()
	if err != nil || active {
		return wrap(err, "ask whether it is active")
	}
	if err := p.Create(0); err != nil && !errors.Is(err, libvirt.ERR_OPERATION_INVALID) { // somebody else was faster
		return wrap(err, "it is inactive and cannot be started")
	}
	return nil
}

// sourceOf names the network storage of a pool, "" where it is of another type.
func sourceOf(def libvirtxml.StoragePool) string {
	if def.Type != "netfs" || def.Source == nil || len(def.Source.Host) == 0 || def.Source.Dir == nil {
		return ""
	}
	return strings.ToLower(def.Source.Host[0].Name) + ":" + path.Clean("/"+def.Source.Dir.Path)
}

// room is how many MiB are free in the pool, as libvirt counts it when it refreshes the pool.
func (p *pool) room() (int, error) {
	if err := p.glance(); err != nil {
		return 0, err
	}
	info, err := p.GetInfo()
	if err != nil {
		return 0, wrap(err, "ask for the free space of storage pool %q", p.name)
	}
	return int(info.Available / mib), nil //nolint:gosec // no storage is that large
}

// gateSize is larger than the number of builds that may be under way in one pool.
const gateSize = 1 << 10

// gate returns the gate of a pool. libvirt refuses to refresh a pool in which a volume is being built; the gate keeps
// this process from trying: builds hold one place, a refresh holds all.
func (h *host) gate(pool string) *semaphore.Weighted {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gates[pool] == nil {
		h.gates[pool] = semaphore.NewWeighted(gateSize)
	}
	return h.gates[pool]
}

// build runs what makes, changes or deletes a volume of the pool.
func (p *pool) build(ctx context.Context, work func() error) error { return p.pass(ctx, 1, work) }

// refresh makes libvirt look at the pool's directory again: it does not see by itself what others did there.
func (p *pool) refresh(ctx context.Context) error {
	return wrap(p.pass(ctx, gateSize, func() error { return p.Refresh(0) }), "refresh the storage pool %q", p.name)
}

// glance refreshes the pool if nothing keeps it busy: what a long job in the pool delays is worth less than an answer.
func (p *pool) glance() error {
	if !p.gate.TryAcquire(gateSize) {
		return nil
	}
	defer p.gate.Release(gateSize)
	if err := p.Refresh(0); err != nil && !busy(err) {
		return wrap(err, "refresh the storage pool %q", p.name)
	}
	return nil
}

// pass runs work with n places of the pool's gate, again and again while other processes keep the pool busy. Its caller
// is in a call of the host's, which steps aside while it waits.
func (p *pool) pass(ctx context.Context, n int64, work func() error) error {
	if !p.gate.TryAcquire(n) {
		var err error
		p.host.aside(ctx, func() { err = acquire(ctx, p.gate, n) })
		if err != nil {
			return err
		}
	}
	defer p.gate.Release(n)
	return p.host.whileBusy(ctx, work)
}

// The first and the longest pause between two attempts at a busy pool.
const (
	busyFirst = 100 * time.Millisecond
	busyMost  = 5 * time.Second
)

// whileBusy calls work until its error is another than that of a busy pool or volume, and not at all once ctx has
// ended.
func (h *host) whileBusy(ctx context.Context, work func() error) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	for pause := busyFirst; ; pause = min(2*pause, busyMost) {
		err := work()
		if !busy(err) {
			return err
		}
		h.aside(ctx, func() { _ = sleep(ctx, pause) })
		if ended := context.Cause(ctx); ended != nil {
			return fmt.Errorf("%w: %w", ended, plain(err))
		}
	}
}

// busy reports whether libvirt refused a call because another job is under way in the pool. There is no code for that.
func busy(err error) bool {
	text := message(err)
	return strings.Contains(text, "asynchronous jobs running") || strings.Contains(text, "is still being allocated")
}

// poolNames lists the storage pools.
func poolNames(conn *libvirt.Connect) []string {
	pools, err := conn.ListAllStoragePools(0)
	if err != nil {
		return nil
	}
	var names []string
	for _, p := range pools {
		if name, err := p.GetName(); err == nil {
			names = append(names, name)
		}
		_ = p.Free()
	}
	return names
}

// offer says what there is instead of what was looked for.
func offer(names []string) string {
	if len(names) == 0 {
		return "there is none at all"
	}
	slices.Sort(names)
	return "there are: " + strings.Join(names, ", ")
}
