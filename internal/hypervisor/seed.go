package hypervisor

import (
	"context"
	"errors"
	"fmt"

	"libvirt.org/go/libvirt"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
)

const (
	// seedSize is the size of every seed volume, in bytes. It is fixed, so that a seed written over another one, while
	// the VM has it as a disk, leaves no byte of the older one behind.
	seedSize = 1 << 20
	// sendSize is how much is handed to a stream at once.
	sendSize = 256 << 10
)

// WriteSeed writes the cloud-init seed, over an older one if there is one, also while the VM runs. What follows the
// image in the volume is zeros.
func (f *Fleet) WriteSeed(ctx context.Context, m machine.Machine, iso []byte) error {
	return f.on(ctx, m.Hypervisor, "write the seed", func(ctx context.Context, h *host) error {
		if len(iso) > seedSize {
			return fmt.Errorf("the seed has %d bytes, more than the %d that its volume holds", len(iso), seedSize)
		}
		return h.do(ctx, func(conn *libvirt.Connect) error {
			p, err := h.pool(conn, m.Record.Shape.StoragePool)
			if err != nil {
				return err
			}
			defer p.free()
			return p.writeSeed(ctx, conn, machine.SeedVolume(m.Name, m.UUID), iso)
		})
	})
}

func (p *pool) writeSeed(ctx context.Context, conn *libvirt.Connect, name string, iso []byte) error {
	text, err := volumeXML(name, "raw", privateMode, seedSize, nil)
	if err != nil {
		return err
	}
	vol, err := p.create(ctx, text)
	if errors.Is(err, libvirt.ERR_STORAGE_VOL_EXIST) {
		vol, err = p.LookupStorageVolByName(name)
	}
	if err != nil {
		return wrap(err, "make the volume %q", name)
	}
	defer func() { _ = vol.Free() }()
	info, err := vol.GetInfo()
	if err != nil {
		return wrap(err, "ask for the size of the volume %q", name)
	}
	// A volume of another size is padded to its own end.
	content := make([]byte, max(seedSize, info.Capacity))
	copy(content, iso)
	if err := p.build(ctx, func() error { return upload(ctx, conn, vol, content) }); err != nil {
		return wrap(err, "write the volume %q", name)
	}
	if info, err = vol.GetInfo(); err != nil {
		return wrap(err, "ask for the size of the volume %q", name)
	}
	if info.Capacity != uint64(len(content)) {
		return fmt.Errorf("the volume %q has %d bytes after %d were written", name, info.Capacity, len(content))
	}
	return nil
}

// upload writes content from the start of a volume.
func upload(ctx context.Context, conn *libvirt.Connect, vol *libvirt.StorageVol, content []byte) error {
	stream, err := conn.NewStream(0)
	if err != nil {
		return err
	}
	defer func() { _ = stream.Free() }()
	if err := vol.Upload(stream, 0, uint64(len(content)), 0); err != nil {
		return err
	}
	if err := send(ctx, stream, content); err != nil {
		_ = stream.Abort()
		return err
	}
	return stream.Finish()
}

// send hands data to a stream.
func send(ctx context.Context, stream writer, content []byte) error {
	for len(content) > 0 {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		n, err := stream.Send(content[:min(sendSize, len(content))])
		if err != nil {
			return err
		}
		if n <= 0 {
			return errors.New("the stream takes no more")
		}
		content = content[n:]
	}
	return nil
}
