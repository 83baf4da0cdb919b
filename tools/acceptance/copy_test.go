package acceptance

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab"
)

// Two clusters in one apply need the template on a hypervisor that lacks it. Its copy is cut off half-way, first at the end
// that reads, then at the one that writes, and nothing remains that clones could be made from. The third apply makes both
// clusters from one copy.
func TestAccCopyCutOff(t *testing.T) {
	l := inFleet(t)
	names := []string{"left", "right"}
	var clusters []config
	for _, name := range names {
		clusters = append(clusters, config{name: name, label: name, hypervisors: fleet[:2], placement: on("hv-b")})
	}
	c := newCLI(t, l, names...)
	c.use(l, clusters...)

	for _, tc := range []struct {
		end string
		// left is how many unfinished copies the provider cannot remove.
		left int
	}{{"hv-a", 0}, {"hv-b", 1}} {
		t.Cleanup(func() { start(t, l, tc.end) })
		out := c.strike(l, tc.end, growing(t, l, "hv-b"), "apply", "-auto-approve")
		mentions(t, out, `hypervisor "`+tc.end+`"`)
		start(t, l, tc.end)
		if entries, data := copies(t, l, "hv-b"); len(entries) != 0 || len(data) != tc.left {
			t.Errorf("after hypervisor %s failed there are the copies %v and the data %v", tc.end, entries, data)
		}
	}

	c.run("apply", "-auto-approve")
	for _, name := range names {
		if err := stand(t, l, name, map[string]int{"hv-b": 1})(nil); err != nil {
			t.Error(err)
		}
	}
	if err := copied(t, l, map[string]int{"hv-b": 1})(nil); err != nil {
		t.Error(err)
	}
}

// growing tells whether a file in the pool of a hypervisor's nodes has become larger by a MiB: no seed is so large.
func growing(t *testing.T, l *lab.Lab, hv string) func() bool {
	dir := hostPath(t, l, hv, "/var/lib/libvirt/images")
	first := map[string]int64{}
	return func() bool {
		files, _ := filepath.Glob(filepath.Join(dir, "*"))
		for _, file := range files {
			info, err := os.Stat(file)
			if err != nil {
				continue
			}
			if _, known := first[file]; !known {
				first[file] = info.Size()
			}
			if info.Size() > first[file]+1<<20 {
				return true
			}
		}
		return false
	}
}
