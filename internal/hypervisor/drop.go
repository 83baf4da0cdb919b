package hypervisor

import (
	"context"
	"errors"
	"path"
	"slices"
	"time"

	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
)

// drop removes what the cache has of the template besides the copy that was just made, with this data, and nobody needs.
// That it fails costs room and nothing else.
func (f *filling) drop(ctx context.Context, p *pool, data *template) {
	names, err := p.superfluous(f.key, data, f.stall)
	if err != nil {
		tflog.Warn(ctx, "outdated copies of the template are not removed", f.fields(map[string]any{"error": err.Error()}))
	}
	for _, name := range names {
		fields := f.fields(map[string]any{"volume": name})
		if err := p.remove(ctx, name); err != nil {
			fields["error"] = err.Error()
			tflog.Warn(ctx, "an outdated copy of the template is not removed", fields)
			continue
		}
		tflog.Info(ctx, "outdated copy of the template removed", fields)
	}
}

// superfluous lists what the cache has of a template and nobody needs besides the copy of that key with this data.
func (p *pool) superfluous(k cacheKey, data *template, stall time.Duration) ([]string, error) {
	names, err := p.ListStorageVolumes()
	if err != nil {
		return nil, wrap(err, "list the volumes of storage pool %q", p.name)
	}
	if !slices.ContainsFunc(names, func(name string) bool {
		c, ok := parseCached(name)
		return ok && c.volume == k.volume && name != k.entry() && name != data.ref.Volume
	}) {
		return nil, nil // as mostly, which spares a look at each volume
	}
	volumes, err := p.chain()
	if err != nil {
		return nil, err
	}
	return superfluous(volumes, k, data.image, stall), nil
}

// chained is a volume with the name of the file behind it, "" for none.
type chained struct {
	name, behind string
	image        image
}

// chain lists the volumes of a pool with what is behind them. It fails where one cannot be read, because that may
// depend on any other.
func (p *pool) chain() ([]chained, error) {
	volumes, err := p.ListAllStorageVolumes(0)
	if err != nil {
		return nil, wrap(err, "list the volumes of storage pool %q", p.name)
	}
	defer func() {
		for i := range volumes {
			_ = volumes[i].Free()
		}
	}()
	var list []chained
	for i := range volumes {
		def, err := definition(&volumes[i])
		if errors.Is(err, machine.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		c := chained{name: def.Name, image: imageOf(def)}
		if c.image.backing != "" {
			c.behind = path.Base(c.image.backing) // the directory has another path where another hypervisor has mounted it
		}
		list = append(list, c)
	}
	return list, nil
}

// superfluous chooses among the volumes of a pool. Entries are needed as long as clones stand on them, and data as long
// as an entry does. Data without an entry is a copy that was given up, or under way still: the clock of the storage
// tells, by which the latest copy was made just now.
func superfluous(volumes []chained, k cacheKey, latest image, stall time.Duration) []string {
	users := map[string]int{}
	for _, v := range volumes {
		users[v.behind]++
	}
	var entries, data []string
	released := map[string]bool{}
	for _, v := range volumes {
		if c, ok := parseCached(v.name); ok && c.volume == k.volume && c.cacheKey != k && c.n == 0 && users[v.name] == 0 {
			entries = append(entries, v.name)
			users[v.behind]--
			released[v.behind] = true
		}
	}
	for _, v := range volumes {
		c, ok := parseCached(v.name)
		if !ok || c.volume != k.volume || c.n == 0 || users[v.name] > 0 {
			continue
		}
		if c.cacheKey == k || released[v.name] || v.image.idle(latest, stall) {
			data = append(data, v.name)
		}
	}
	return append(entries, data...)
}

// idle reports whether a file was written to for the last time so long before another one.
func (i image) idle(latest image, stall time.Duration) bool {
	then, ok := i.writtenAt()
	now, known := latest.writtenAt()
	return ok && known && now-then > stall.Seconds()
}
