package placement

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// TestMain has more requests drawn than the 100 that rapid takes by default; -rapid.checks on the command line still
// wins. What breaks a rule is rare among them, and one costs microseconds.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "2000"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	m.Run()
}

// requests draws small and tight requests: not quite half can be met, with one resource or another just enough. Small
// numbers are the likely ones with rapid, so that what makes a request hard is what is drawn.
func requests(t *rapid.T) Request {
	upTo := func(n int, label string) int { return rapid.IntRange(0, n).Draw(t, label) }
	sizes := func(n int, label string) Size {
		return Size{upTo(n, label+" vCPUs"), upTo(n, label+" memory"), upTo(n, label+" disk"), upTo(n, label+" data disk")}
	}
	r := Request{
		Nodes:  rapid.SliceOfNDistinct(rapid.IntRange(1, 6), 1, 5, rapid.ID[int]).Draw(t, "nodes"),
		Size:   Size{1, 1, 1, 0}.Plus(sizes(2, "size")),
		Stores: map[string]int{},
	}
	for _, name := range []string{"x", "y", "p", "q"} { // "z" and "r" are never measured.
		if upTo(3, "not measured") < 3 {
			r.Stores[name] = 11 - upTo(12, "room missing")
		}
	}
	together := upTo(2, "one store for both disks") == 2
	names := []string{"a", "b", "c", "d"}
	for _, name := range names[upTo(len(names)-1, "hosts missing"):] {
		r.Hosts = append(r.Hosts, Host{
			Name: name, VCPUs: 10 - upTo(8, "vCPUs missing"), MemoryMiB: 10 - upTo(8, "memory missing"),
			Used: sizes(2, "used"), Held: sizes(1, "held"),
			Store:     rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "store"),
			DataStore: rapid.SampledFrom([]string{"p", "q", "r"}).Draw(t, "data store"),
			Members:   rapid.SampledFrom([]int{0, 0, 0, 0, 1, 2}).Draw(t, "members"),
		})
	}
	if together {
		r = with(r, func(h *Host) { h.DataStore = h.Store })
	}
	r.Rule.AntiAffinity = rapid.SampledFrom([]record.AntiAffinity{"", record.Required, record.Preferred}).Draw(t, "anti-affinity")
	r.Rule.Strategy = rapid.SampledFrom([]record.Strategy{"", record.Auto, record.Auto, record.Manual}).Draw(t, "strategy")
	if r.Rule.Strategy == record.Manual {
		r.Rule.Hosts = rapid.SliceOfN(rapid.SampledFrom([]string{"d", "c", "b", "a", "unknown"}), 0, 6).Draw(t, "manual hosts")
	}
	return r
}

func auto(r Request) Request {
	r.Rule.Strategy, r.Rule.Hosts = record.Auto, nil
	return r
}

// after is what stands once an assignment has been carried out: nodes become load and members.
func after(r Request, placed map[int]string) Request {
	return with(r, func(h *Host) {
		for _, name := range placed {
			if name == h.Name {
				h.Used = h.Used.Plus(r.Size)
				h.Members++
			}
		}
	})
}

// with changes each host of a request.
func with(r Request, change func(*Host)) Request {
	r.Hosts = slices.Clone(r.Hosts)
	for i := range r.Hosts {
		change(&r.Hosts[i])
	}
	return r
}

// broken says which limit an assignment breaks on the hosts that it uses, "" if none. It is the specification, written
// without regard to how Place works.
func broken(r Request, placed map[int]string) string {
	stores := maps.Clone(r.Stores)
	touched := map[string]bool{}
	known := map[string]bool{}
	for _, h := range r.Hosts {
		known[h.Name] = true
		n := 0
		for _, name := range placed {
			if name == h.Name {
				n++
			}
		}
		stores[h.Store] -= h.Used.DiskMiB + h.Held.DiskMiB + n*r.Size.DiskMiB
		if r.Size.DataMiB > 0 {
			stores[h.DataStore] -= h.Used.DataMiB + h.Held.DataMiB + n*r.Size.DataMiB
		}
		if n == 0 {
			continue
		}
		touched[h.Store] = true
		touched[h.DataStore] = touched[h.DataStore] || r.Size.DataMiB > 0
		if h.Used.VCPUs+h.Held.VCPUs+n*r.Size.VCPUs > h.VCPUs {
			return "vCPUs of " + h.Name
		}
		if h.Used.MemoryMiB+h.Held.MemoryMiB+n*r.Size.MemoryMiB > h.MemoryMiB {
			return "memory of " + h.Name
		}
		if r.Rule.Strategy != record.Manual && r.Rule.AntiAffinity == record.Required && h.Members+n > 1 {
			return "anti-affinity on " + h.Name
		}
	}
	for name, yes := range touched {
		if _, measured := r.Stores[name]; yes && measured && stores[name] < 0 {
			return "store " + name
		}
	}
	for node, name := range placed {
		if !known[name] {
			return "unknown host " + name
		}
		if hosts := r.Rule.Hosts; r.Rule.Strategy == record.Manual &&
			(len(hosts) == 1 && hosts[0] != name || len(hosts) != 1 && (node > len(hosts) || hosts[node-1] != name)) {
			return fmt.Sprintf("manual rule for node %d", node)
		}
	}
	return ""
}

// feasible tries every assignment.
func feasible(r Request, nodes []int, placed map[int]string) bool {
	if len(nodes) == 0 {
		return broken(r, placed) == ""
	}
	defer delete(placed, nodes[0])
	for _, h := range r.Hosts {
		placed[nodes[0]] = h.Name
		if feasible(r, nodes[1:], placed) {
			return true
		}
	}
	return false
}

// TestComplete compares Place with a search through all assignments: it errs if and only if there is none, and what it
// returns keeps every limit.
func TestComplete(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := requests(t)
		placed, err := Place(r)
		if err != nil {
			var reason *Error
			if !errors.As(err, &reason) || reason.Field == "" || reason.Text == "" {
				t.Fatalf("error without a reason: %#v", err)
			}
			if feasible(r, r.Nodes, map[int]string{}) {
				t.Fatalf("an assignment exists: %v", err)
			}
			return
		}
		if got, want := slices.Sorted(maps.Keys(placed)), slices.Sorted(slices.Values(r.Nodes)); !slices.Equal(got, want) {
			t.Fatalf("placed nodes %v, want %v", got, want)
		}
		if limit := broken(r, placed); limit != "" {
			t.Fatalf("%v exceeds %s", placed, limit)
		}
	})
}

// TestManyMeanings: where a store takes root disks of some hosts and data disks of others, Place may give up too soon, but
// what it returns keeps every limit.
func TestManyMeanings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := requests(t)
		stores := rapid.SampledFrom([]string{"x", "y", "p"})
		r = with(r, func(h *Host) { h.Store, h.DataStore = stores.Draw(t, "store"), stores.Draw(t, "data store") })
		if placed, err := Place(r); err == nil {
			if limit := broken(r, placed); limit != "" {
				t.Fatalf("%v exceeds %s", placed, limit)
			}
		}
	})
}

// TestDeterministic: the order of hosts and nodes does not matter, to errors neither, and the request is left alone.
func TestDeterministic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := requests(t)
		shuffled := r
		shuffled.Hosts = rapid.Permutation(r.Hosts).Draw(t, "hosts in another order")
		shuffled.Nodes = rapid.Permutation(r.Nodes).Draw(t, "nodes in another order")
		before := r
		before.Hosts, before.Nodes, before.Stores = slices.Clone(r.Hosts), slices.Clone(r.Nodes), maps.Clone(r.Stores)

		placed, err := Place(r)
		again, errAgain := Place(shuffled)
		if !maps.Equal(placed, again) || fmt.Sprint(err) != fmt.Sprint(errAgain) {
			t.Fatalf("%v %v, and in another order %v %v", placed, err, again, errAgain)
		}
		if diff := cmp.Diff(before, r); diff != "" {
			t.Fatalf("the request was changed:\n%s", diff)
		}
	})
}

// TestGrowth: nodes that stand stay where they are. Some nodes placed now and the others later, when the first stand,
// go where all of them would have gone at once, and an error comes then or never.
func TestGrowth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := requests(t)
		slices.Sort(r.Nodes)
		cut := rapid.IntRange(0, len(r.Nodes)).Draw(t, "first nodes")
		want, wantErr := Place(r)

		first := r
		first.Nodes = r.Nodes[:cut]
		got, err := Place(first)
		if err == nil {
			second := after(r, got)
			second.Nodes = r.Nodes[cut:]
			var rest map[int]string
			rest, err = Place(second)
			maps.Copy(got, rest)
		}
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("at once: %v; in two steps: %v", wantErr, err)
		}
		if err == nil && !maps.Equal(got, want) {
			t.Fatalf("at once: %v; in two steps: %v", want, got)
		}
	})
}

// TestNewHost: a hypervisor that is added empty never makes a request impossible.
func TestNewHost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := requests(t)
		if _, err := Place(r); err != nil {
			return
		}
		r.Hosts = append(r.Hosts, Host{
			Name: rapid.SampledFrom([]string{"0", "zz"}).Draw(t, "name"), VCPUs: rapid.IntRange(0, 9).Draw(t, "vCPUs"),
			MemoryMiB: rapid.IntRange(0, 9).Draw(t, "memory"), Store: rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "store"),
			DataStore: rapid.SampledFrom([]string{"p", "q", "r"}).Draw(t, "data store"),
		})
		if _, err := Place(r); err != nil {
			t.Fatal(err)
		}
	})
}

// TestPromises: what others were promised alters nothing as long as there is room enough for both.
func TestPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := requests(t)
		r.Stores = nil
		r = with(r, func(h *Host) { h.VCPUs, h.MemoryMiB = h.VCPUs+100, h.MemoryMiB+100 })
		free := with(r, func(h *Host) { h.Held = Size{} })
		placed, err := Place(r)
		want, errFree := Place(free)
		if !maps.Equal(placed, want) || fmt.Sprint(err) != fmt.Sprint(errFree) {
			t.Fatalf("%v %v, and without promises %v %v", placed, err, want, errFree)
		}
	})
}

// TestBalance: no new node would stand better on another host that could take it, as long as stores nest. Better is, with
// anti-affinity, fewer nodes of the group on the fuller of the two hosts, and else less load there.
func TestBalance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := auto(requests(t))
		if common := rapid.SampledFrom([]string{"p", ""}).Draw(t, "common data store"); common != "" {
			r = with(r, func(h *Host) { h.DataStore = common })
		} else {
			r = with(r, func(h *Host) { h.DataStore = h.Store })
		}
		placed, err := Place(r)
		if err != nil {
			return
		}
		rank := func(r Request, host string) []float64 {
			h := r.Hosts[slices.IndexFunc(r.Hosts, func(h Host) bool { return h.Name == host })]
			load := max(float64(h.Used.VCPUs)/float64(h.VCPUs), float64(h.Used.MemoryMiB)/float64(h.MemoryMiB))
			if r.Rule.AntiAffinity == "" {
				return []float64{load}
			}
			return []float64{float64(h.Members), load}
		}
		for node, from := range placed {
			for _, to := range r.Hosts {
				moved := maps.Clone(placed)
				moved[node] = to.Name
				if broken(r, moved) != "" {
					continue
				}
				is, would := rank(after(r, placed), from), rank(after(r, moved), to.Name)
				if slices.Compare(would, is) < 0 {
					t.Fatalf("%v: node %d would stand better on %s: %v instead of %v", placed, node, to.Name, would, is)
				}
			}
		}
	})
}

// TestWayOut: anti_affinity = "preferred" is named exactly where it helps, and too few hosts are a matter of placement.
func TestWayOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := auto(requests(t))
		r.Rule.AntiAffinity = record.Required
		_, err := Place(r)
		var reason *Error
		if !errors.As(err, &reason) || len(r.Hosts) == 0 {
			return
		}
		relaxed := r
		relaxed.Rule.AntiAffinity = record.Preferred
		if named, helps := strings.Contains(reason.Text, "preferred"), feasible(relaxed, r.Nodes, map[int]string{}); named != helps {
			t.Fatalf("named %t, helps %t: %v", named, helps, reason)
		}
		vacant := 0
		for _, h := range r.Hosts {
			if h.Members == 0 {
				vacant++
			}
		}
		if few := vacant < len(r.Nodes); few != (reason.Field == machine.FieldPlacement) {
			t.Fatalf("%d hosts without a member for %d nodes, field %s: %v", vacant, len(r.Nodes), reason.Field, reason)
		}
	})
}
