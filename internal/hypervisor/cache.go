package hypervisor

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"strconv"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
)

// The template cache. A storage pool whose hypervisor does not see the template's own pool gets a copy, which is two
// volumes: the data, which is the template's file byte for byte, and the entry, a qcow2 image of no content with the data
// behind it, which clones are made from. The entry is made last, when the data was checked: libvirt cannot rename a
// volume, and this way what stands under the entry's name was never half a copy.
//
// Both names hold the template's identity, so that a template that was changed has another entry.

// identitySize is the size of a template's identity in bytes.
const identitySize = 6

// cacheKey names one state of a template.
type cacheKey struct{ volume, identity string }

// entry is the name of the volume that clones are made from.
func (k cacheKey) entry() string { return fmt.Sprintf("cockpit-%s-%s", k.volume, k.identity) }

// data is the name of the volume with the content of a copy that was begun as the nth, from 1: whoever gives a copy up
// that somebody else has begun makes the next, so that nobody ever writes to, trusts or deletes a volume that has become
// another one under the same name.
func (k cacheKey) data(n int) string { return fmt.Sprintf("%s.data%d", k.entry(), n) }

var cacheForm = regexp.MustCompile(fmt.Sprintf(`^cockpit-(.+)-([0-9a-f]{%d})(?:\.data([1-9][0-9]{0,5}))?$`, 2*identitySize))

// cached is a volume of the cache, going by its name: the nth data of a key, or its entry where n is zero.
type cached struct {
	cacheKey
	n int
}

// parseCached reads the name of a volume. Those of any other form are not the cache's.
func parseCached(name string) (c cached, ok bool) {
	m := cacheForm.FindStringSubmatch(name)
	if m == nil {
		return c, false
	}
	c.cacheKey = cacheKey{volume: m[1], identity: m[2]}
	c.n, _ = strconv.Atoi(m[3]) // none is zero, as it should be
	return c, true
}

// openEntry finds the entry of a key. It is machine.ErrNotFound where there is none, and as well where its data is
// missing or of another size than the template, because somebody has laid hands on it. The size 0 is any.
func openEntry(p *pool, k cacheKey, size uint64) (*template, error) {
	entry, err := openTemplate(p, k.entry())
	if err != nil {
		return nil, err
	}
	if err := sound(p, entry, k, size); err != nil {
		entry.free()
		return nil, err
	}
	return entry, nil
}

func sound(p *pool, entry *template, k cacheKey, size uint64) error {
	behind, ok := parseCached(path.Base(entry.backing))
	if !ok || behind.cacheKey != k || behind.n == 0 {
		return fmt.Errorf("%q is no copy of a template: %w", entry.ref.Volume, machine.ErrNotFound)
	}
	data, err := openTemplate(p, k.data(behind.n))
	if err != nil {
		return err
	}
	defer data.free()
	if size != 0 && data.physical != size {
		return fmt.Errorf("the data of %q has %d bytes instead of %d: %w", entry.ref.Volume, data.physical, size, machine.ErrNotFound)
	}
	return nil
}

// openSource finds what a disk is made from: an entry with its data, or another volume.
func openSource(p *pool, name string) (*template, error) {
	if c, ok := parseCached(name); ok && c.n == 0 {
		return openEntry(p, c.cacheKey, 0)
	}
	return openTemplate(p, name)
}

// entries lists the entries of a template in a pool, of whatever identity.
func (p *pool) entries(volume string) ([]cacheKey, error) {
	names, err := p.ListStorageVolumes()
	if err != nil {
		return nil, wrap(err, "list the volumes of storage pool %q", p.name)
	}
	var keys []cacheKey
	for _, name := range names {
		if c, ok := parseCached(name); ok && c.volume == volume && c.n == 0 {
			keys = append(keys, c.cacheKey)
		}
	}
	return keys, nil
}

// onlyEntry finds the entry of a template whose present identity cannot be learnt. It is machine.ErrNotFound unless there
// is exactly one.
func (p *pool) onlyEntry(volume string) (*template, error) {
	keys, err := p.entries(volume)
	if err != nil {
		return nil, err
	}
	var found []*template
	for _, k := range keys {
		entry, err := openEntry(p, k, 0)
		if err == nil {
			found = append(found, entry)
		} else if !errors.Is(err, machine.ErrNotFound) {
			return nil, err
		}
	}
	if len(found) == 1 {
		return found[0], nil
	}
	for _, entry := range found {
		entry.free()
	}
	return nil, fmt.Errorf("%d copies of the template are there: %w", len(found), machine.ErrNotFound)
}
