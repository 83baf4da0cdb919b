package hypervisor

import (
	"slices"
	"testing"
	"time"
)

func TestCacheNames(t *testing.T) {
	const id = "0123456789ab"
	tests := map[string]struct {
		want cached
		ok   bool
	}{
		"cockpit-golden.qcow2-" + id:                        {cached{cacheKey{"golden.qcow2", id}, 0}, true},
		"cockpit-golden.qcow2-" + id + ".data1":             {cached{cacheKey{"golden.qcow2", id}, 1}, true},
		"cockpit-golden.qcow2-" + id + ".data12":            {cached{cacheKey{"golden.qcow2", id}, 12}, true},
		"cockpit-golden-" + id + ".data1-" + id:             {cached{cacheKey{"golden-" + id + ".data1", id}, 0}, true},
		"cockpit-golden.qcow2-" + id + ".data0":             {},
		"cockpit-golden.qcow2-" + id + ".data01":            {},
		"cockpit-golden.qcow2-" + id + ".qcow2":             {},
		"cockpit-golden.qcow2-0123456789abc":                {},
		"cockpit-golden.qcow2-0123456789aB":                 {},
		"cockpit-" + id:                                     {},
		"cockpit-cp-1-3f0c9f5e.qcow2":                       {}, // a node of a cluster of that name
		"golden.qcow2":                                      {},
		"my-cockpit-golden.qcow2-" + id:                     {},
		"cockpit-golden.qcow2-" + id + ".data1\n":           {},
		"cockpit-golden.qcow2-" + id + ".data" + id + "777": {},
	}
	for name, tt := range tests {
		got, ok := parseCached(name)
		if got != tt.want || ok != tt.ok {
			t.Errorf("%q is %+v, %t", name, got, ok)
		}
		if !ok {
			continue
		}
		if made := got.entry(); got.n == 0 && made != name {
			t.Errorf("%q becomes %q", name, made)
		}
		if made := got.data(got.n); got.n > 0 && made != name {
			t.Errorf("%q becomes %q", name, made)
		}
	}
}

func TestIdentity(t *testing.T) {
	i := image{physical: 1 << 20, modified: "1796077571.712467634"}
	if _, ok := parseCached(cacheKey{"v", i.identity("v")}.entry()); !ok {
		t.Errorf("the identity %q does not fit into a name", i.identity("v"))
	}
	same := i
	same.allocation, same.mode = 4096, "0644"
	if same.identity("v") != i.identity("v") {
		t.Error("what is no content alters the identity")
	}
	larger, later := i, i
	larger.physical++
	later.modified = "1796077571.712467635"
	seen := []string{i.identity("v"), larger.identity("v"), later.identity("v"), i.identity("w")}
	slices.Sort(seen)
	if len(slices.Compact(seen)) != 4 {
		t.Errorf("the identities are %q", seen)
	}
}

func TestSuperfluous(t *testing.T) {
	const now, old, fresh = "1000.5", "900", "990"
	present := cacheKey{"golden.qcow2", "aaaaaaaaaaaa"}
	past := cacheKey{"golden.qcow2", "bbbbbbbbbbbb"}
	other := cacheKey{"other.qcow2", "cccccccccccc"}
	volume := func(name, behind, modified string) chained {
		return chained{name: name, behind: behind, image: image{modified: modified}}
	}
	mine := []chained{volume(present.entry(), present.data(1), now), volume(present.data(1), "", now)}
	tests := map[string]struct {
		also []chained
		want []string
	}{
		"nothing": {},
		"an outdated copy": {
			[]chained{volume(past.data(1), "", fresh), volume(past.entry(), past.data(1), fresh)},
			[]string{past.entry(), past.data(1)},
		},
		"a clone on it": {also: []chained{
			volume(past.data(1), "", old), volume(past.entry(), past.data(1), old), volume("n-1.qcow2", past.entry(), now),
		}},
		"a clone on its data": {
			[]chained{volume(past.data(1), "", old), volume(past.entry(), past.data(1), old), volume("n-1.qcow2", past.data(1), now)},
			[]string{past.entry()},
		},
		"abandoned": {[]chained{volume(past.data(3), "", old)}, []string{past.data(3)}},
		"under way": {also: []chained{volume(past.data(3), "", fresh)}},
		"of unknown age": {also: []chained{
			volume(past.data(3), "", ""),
		}},
		"overtaken by the present copy": {[]chained{volume(present.data(2), "", fresh)}, []string{present.data(2)}},
		"of another template":           {also: []chained{volume(other.entry(), other.data(1), old), volume(other.data(1), "", old)}},
		"of another name":               {also: []chained{volume("golden.qcow2", "", old), volume("cockpit-cp-1-3f0c9f5e.qcow2", "golden.qcow2", old)}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := superfluous(slices.Concat(tt.also, mine), present, mine[1].image, 40*time.Second)
			if !slices.Equal(got, tt.want) {
				t.Errorf("%q go, want %q", got, tt.want)
			}
		})
	}
}

func TestCopyIsChecked(t *testing.T) {
	f := filling{image: image{format: "qcow2", capacity: 4 * gib, physical: 100, allocation: 90}}
	tests := map[string]struct {
		data image
		ok   bool
	}{
		"the same":               {image{format: "qcow2", capacity: 4 * gib, physical: 100, allocation: 100}, true},
		"a part":                 {image{format: "qcow2", capacity: 4 * gib, physical: 99}, false},
		"no qcow2":               {image{format: "raw", capacity: 4 * gib, physical: 100}, false},
		"a disk of another size": {image{format: "qcow2", capacity: 3 * gib, physical: 100}, false},
	}
	for name, tt := range tests {
		if err := f.check(&template{image: tt.data}); (err == nil) != tt.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
