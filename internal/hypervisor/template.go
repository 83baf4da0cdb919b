package hypervisor

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// image is what is known of a template's file.
type image struct {
	// format is qcow2 or raw.
	format string
	// capacity is the size of the disk that the guest sees, physical that of the file and allocation what the file takes
	// of its storage, in bytes.
	capacity, physical, allocation uint64
	// modified is when the file was last written to, in seconds since 1970 by the clock of its storage; "" where the
	// hypervisor does not tell.
	modified string
	// mode are the file's permissions, in octal digits.
	mode string
	// backing is the file behind this one, "" for none.
	backing string
}

// identity tells one state of a template's file from others that had the same name: it is made of name, size and time of
// the last change, as 12 hexadecimal digits.
func (i image) identity(name string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%s", name, i.physical, i.modified))
	return hex.EncodeToString(sum[:identitySize])
}

// writtenAt is modified as a number. It is meant for differences between files of one storage.
func (i image) writtenAt() (seconds float64, known bool) {
	seconds, err := strconv.ParseFloat(i.modified, 64)
	return seconds, err == nil
}

// fits makes sure that a disk of that size can hold the image.
func (i image) fits(diskGiB int, name string) error {
	if inBytes(diskGiB) < i.capacity {
		return fmt.Errorf("a disk of %d GiB is smaller than the template %q, which needs %d GiB", diskGiB, name, (i.capacity+gib-1)/gib)
	}
	return nil
}

// template is a golden image, or a copy of it, in a storage pool; its user frees it.
type template struct {
	*libvirt.StorageVol
	ref  record.Template
	path string
	image
}

func (t *template) free() { _ = t.Free() }

// openTemplate finds a golden image in a pool.
func openTemplate(p *pool, name string) (*template, error) {
	vol, err := p.LookupStorageVolByName(name)
	if err != nil {
		return nil, wrap(err, "template %q in storage pool %q", name, p.name)
	}
	t := &template{StorageVol: vol, ref: record.Template{Pool: p.name, Volume: name}}
	if err := t.inspect(); err != nil {
		t.free()
		return nil, fmt.Errorf("template %q in storage pool %q: %w", name, p.name, err)
	}
	return t, nil
}

// inspect reads the volume's definition, for which libvirt looks at the file itself.
func (t *template) inspect() error {
	def, err := definition(t.StorageVol)
	if err != nil {
		return err
	}
	if def.Target == nil || def.Target.Format == nil {
		return errors.New("its format is unknown")
	}
	t.path, t.image = def.Target.Path, imageOf(def)
	if t.format != "qcow2" && t.format != "raw" {
		return fmt.Errorf("it is of format %q, but must be qcow2 or raw", t.format)
	}
	return nil
}

// imageOf takes what is known of a file from its volume's definition.
func imageOf(def libvirtxml.StorageVolume) image {
	var i image
	for _, size := range []struct {
		from *libvirtxml.StorageVolumeSize
		to   *uint64
	}{{def.Capacity, &i.capacity}, {def.Physical, &i.physical}, {def.Allocation, &i.allocation}} {
		if size.from != nil { // libvirt counts in bytes, and leaves zeros out
			*size.to = size.from.Value
		}
	}
	if t := def.Target; t != nil {
		if t.Format != nil {
			i.format = t.Format.Type
		}
		if t.Timestamps != nil {
			i.modified = t.Timestamps.Mtime
		}
		if t.Permissions != nil {
			i.mode = t.Permissions.Mode
		}
	}
	if def.BackingStore != nil {
		i.backing = def.BackingStore.Path
	}
	return i
}

// definition reads the XML of a volume.
func definition(vol *libvirt.StorageVol) (def libvirtxml.StorageVolume, err error) {
	text, err := vol.GetXMLDesc(0)
	if err != nil {
		return def, wrap(err, "read its definition")
	}
	if err := def.Unmarshal(text); err != nil {
		return def, fmt.Errorf("read its definition: %w", err)
	}
	return def, nil
}
