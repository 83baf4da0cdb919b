package hypervisor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
)

// nfsFormats are the formats of a pool of type netfs that NFS is mounted with; with auto it is the protocol that mount finds
// (https://libvirt.org/storage.html#network-filesystem-pool).
var nfsFormats = []string{"", "auto", "nfs"}

// Export tells what NFS export the storage pool of that name is, from its definition: nothing is started or mounted. All
// hypervisors are asked in parallel. Those that have no such pool do not matter, nor do those that do not answer, where
// another one has it; all that have it must mean the same export. The error is machine.ErrUnreachable where nobody has it
// and somebody does not answer, and machine.ErrNotFound where all answer and nobody has it.
func (f *Fleet) Export(ctx context.Context, pool string) (machine.Export, error) {
	found, err := f.exports(ctx, pool)
	if err != nil {
		return machine.Export{}, fmt.Errorf("storage pool %q: %w", pool, err)
	}
	names := slices.Sorted(maps.Keys(found))
	first := names[0]
	for _, name := range names[1:] {
		if a, b := found[first], found[name]; a != b {
			return machine.Export{}, fmt.Errorf("storage pool %q: it is %s:%s on hypervisor %q, and %s:%s on hypervisor %q",
				pool, a.Server, a.Path, first, b.Server, b.Path, name)
		}
	}
	return found[first], nil
}

// exports is what a pool is on each hypervisor that has it; at least one has, where there is no error.
func (f *Fleet) exports(ctx context.Context, pool string) (map[string]machine.Export, error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	found, without, failed := map[string]machine.Export{}, map[string]bool{}, map[string]error{}
	for name, h := range f.hosts {
		wg.Go(func() {
			export, err := h.export(ctx, pool)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				found[name] = export
			case errors.Is(err, machine.ErrNotFound):
				without[name] = true
			default:
				failed[name] = err
			}
		})
	}
	wg.Wait()
	silent := ""
	for _, name := range slices.Sorted(maps.Keys(failed)) {
		if !errors.Is(failed[name], machine.ErrUnreachable) {
			return nil, fmt.Errorf("hypervisor %q: %w", name, failed[name])
		}
		silent = name
	}
	switch {
	case len(found) > 0:
		return found, nil
	case silent != "":
		return nil, fmt.Errorf("hypervisor %q, which may have it: %w", silent, failed[silent])
	}
	return nil, fmt.Errorf("%w on any hypervisor; asked were %s", machine.ErrNotFound, strings.Join(slices.Sorted(maps.Keys(without)), ", "))
}

// export reads the definition of a pool, whether it is active or not.
func (h *host) export(ctx context.Context, name string) (machine.Export, error) {
	ctx, cancel := answering(ctx)
	defer cancel()
	return within(ctx, func() (export machine.Export, err error) {
		err = h.look(ctx, func(conn *libvirt.Connect) error {
			p, err := conn.LookupStoragePoolByName(name)
			if err != nil {
				return wrap(err, "look for it")
			}
			defer func() { _ = p.Free() }()
			text, err := p.GetXMLDesc(0)
			if err != nil {
				return wrap(err, "read its definition")
			}
			var def libvirtxml.StoragePool
			if err := def.Unmarshal(text); err != nil {
				return fmt.Errorf("read its definition: %w", err)
			}
			export, err = exportOf(def)
			return err
		})
		return export, err
	})
}

// exportOf is the NFS export that a pool mounts. A server's name is in lower case, and an IPv6 address without its brackets.
func exportOf(def libvirtxml.StoragePool) (machine.Export, error) {
	if def.Type != "netfs" {
		return machine.Export{}, fmt.Errorf("it is of type %q, and no NFS, which is a pool of type netfs", def.Type)
	}
	if def.Source == nil || len(def.Source.Host) == 0 || def.Source.Dir == nil {
		return machine.Export{}, errors.New("its definition names no server or no directory")
	}
	if format := def.Source.Format; format != nil && !slices.Contains(nfsFormats, format.Type) {
		return machine.Export{}, fmt.Errorf("its format is %q, and no NFS", format.Type)
	}
	return machine.Export{
		Server: strings.ToLower(strings.Trim(def.Source.Host[0].Name, "[]")), Path: path.Clean("/" + def.Source.Dir.Path),
	}, nil
}
