package placement

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

const gibibyte = 1024

var (
	required  = record.Placement{Strategy: record.Auto, AntiAffinity: record.Required}
	preferred = record.Placement{AntiAffinity: record.Preferred}
	manual    = func(hosts ...string) record.Placement { return record.Placement{Strategy: record.Manual, Hosts: hosts} }
)

// size takes vCPUs, and GiB of memory and disk.
func size(vcpus, memory, disk int) Size {
	return Size{VCPUs: vcpus, MemoryMiB: memory * gibibyte, DiskMiB: disk * gibibyte}
}

// testHost has 16 vCPUs, 64 GiB of memory and a store of its own.
func testHost(name string, with ...func(*Host)) Host {
	h := Host{Name: name, VCPUs: 16, MemoryMiB: 64 * gibibyte, Store: "store of " + name}
	for _, f := range with {
		f(&h)
	}
	return h
}

func used(vcpus, memory, disk int) func(*Host) {
	return func(h *Host) { h.Used = size(vcpus, memory, disk) }
}
func held(vcpus, memory, disk int) func(*Host) {
	return func(h *Host) { h.Held = size(vcpus, memory, disk) }
}
func members(n int) func(*Host)     { return func(h *Host) { h.Members = n } }
func store(name string) func(*Host) { return func(h *Host) { h.Store = name } }

func TestPlace(t *testing.T) {
	a, b, c, d := testHost("a"), testHost("b"), testHost("c"), testHost("d")
	for name, tc := range map[string]struct {
		rule   record.Placement
		nodes  []int
		hosts  []Host
		stores map[string]int
		want   map[int]string
	}{
		"no nodes need no hypervisor": {want: map[int]string{}},
		"servers stand alone": {
			rule: required, nodes: []int{1, 2, 3}, hosts: []Host{c, a, b}, want: map[int]string{1: "a", 2: "b", 3: "c"}},
		"preferred shares where it must": {
			rule: preferred, nodes: []int{1, 2, 3}, hosts: []Host{b, a}, want: map[int]string{1: "a", 2: "b", 3: "a"}},
		"preferred spreads, load or not": {
			rule: preferred, nodes: []int{1, 2}, hosts: []Host{a, testHost("b", used(11, 0, 0))}, want: map[int]string{1: "a", 2: "b"}},
		"preferred counts those that stand": {
			rule: preferred, nodes: []int{3}, hosts: []Host{testHost("a", members(2)), testHost("b", members(1), used(8, 0, 0))},
			want: map[int]string{3: "b"}},
		"preferred shares where another lacks room": {
			rule: preferred, nodes: []int{1, 2}, hosts: []Host{a, testHost("b", used(14, 0, 0))}, want: map[int]string{1: "a", 2: "a"}},
		"a new hypervisor moves no server": {
			rule: required, nodes: []int{4}, hosts: []Host{testHost("a", members(1)), testHost("b", members(1)), testHost("c", members(1)), d},
			want: map[int]string{4: "d"}},
		"a lost server's place is taken again": {
			rule: required, nodes: []int{2}, hosts: []Host{testHost("a", members(1)), b, testHost("c", members(1))},
			want: map[int]string{2: "b"}},
		"workers balance": {
			nodes: []int{5, 4, 2, 1}, hosts: []Host{b, a}, want: map[int]string{1: "a", 2: "b", 4: "a", 5: "b"}},
		"workers fill up the emptier": {
			nodes: []int{1, 2, 3}, hosts: []Host{testHost("a", used(8, 8, 0)), b}, want: map[int]string{1: "b", 2: "b", 3: "a"}},
		"memory counts where it is the scarcer": {
			nodes: []int{1}, hosts: []Host{testHost("a", used(0, 53, 0)), testHost("b", used(10, 0, 0))}, want: map[int]string{1: "b"}},
		"a larger hypervisor takes more": {
			nodes: []int{1, 2, 3}, hosts: []Host{a, testHost("b", func(h *Host) { h.VCPUs = 32 })},
			want: map[int]string{1: "b", 2: "a", 3: "b"}},
		"members are no matter to workers": {
			nodes: []int{1}, hosts: []Host{testHost("a", members(3)), b}, want: map[int]string{1: "a"}},
		"a promise is no load": {
			nodes: []int{1}, hosts: []Host{testHost("a", held(8, 8, 8)), testHost("b", used(1, 1, 0))}, want: map[int]string{1: "a"}},
		"a promise takes room": {
			nodes: []int{1}, hosts: []Host{testHost("a", held(13, 0, 0)), testHost("b", used(9, 0, 0))}, want: map[int]string{1: "b"}},
		"a promise takes room of a shared disk": {
			nodes:  []int{1},
			hosts:  []Host{testHost("a", store("nfs")), testHost("b", store("nfs"), held(0, 0, 10)), testHost("c", used(9, 0, 0))},
			stores: map[string]int{"nfs": 49 * gibibyte, "store of c": 40 * gibibyte},
			want:   map[int]string{1: "c"}},
		"a shared disk is counted once": {
			rule: required, nodes: []int{1, 2},
			hosts:  []Host{testHost("a", store("nfs")), testHost("b", store("nfs")), testHost("c", used(9, 0, 0))},
			stores: map[string]int{"nfs": 79 * gibibyte},
			want:   map[int]string{1: "a", 2: "c"}},
		"the last of the room is given": {
			nodes: []int{1}, hosts: []Host{testHost("a", used(12, 56, 0))}, stores: map[string]int{"store of a": 40 * gibibyte},
			want: map[int]string{1: "a"}},
		"manual, one for all": {
			rule: manual("b"), nodes: []int{1, 7}, hosts: []Host{a, b}, want: map[int]string{1: "b", 7: "b"}},
		"manual, one each": {
			rule: manual("c", "gone", "a"), nodes: []int{3, 1}, hosts: []Host{a, b, c}, want: map[int]string{1: "c", 3: "a"}},
		"manual knows no anti-affinity": {
			rule:  record.Placement{Strategy: record.Manual, AntiAffinity: record.Required, Hosts: []string{"a"}},
			nodes: []int{1, 2}, hosts: []Host{testHost("a", members(1)), b}, want: map[int]string{1: "a", 2: "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Place(Request{Nodes: tc.nodes, Size: size(4, 8, 40), Rule: tc.rule, Hosts: tc.hosts, Stores: tc.stores})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPlaceError(t *testing.T) {
	a, b := testHost("hv-a"), testHost("hv-b")
	for name, tc := range map[string]struct {
		rule   record.Placement
		nodes  []int
		hosts  []Host
		stores map[string]int
		field  machine.Field
		text   string
	}{
		"no hypervisor": {
			nodes: []int{1}, field: machine.FieldHypervisor, text: "there is no hypervisor that can take new nodes"},
		"too few hypervisors": {
			rule: required, nodes: []int{1, 2, 3}, hosts: []Host{b, a}, field: machine.FieldPlacement,
			text: `3 new servers need 3 hypervisors of their own, and 2 can take one: hv-a, hv-b; ` +
				`add a hypervisor, or let servers share one with anti_affinity = "preferred"`},
		"every hypervisor has one": {
			rule: required, nodes: []int{2}, hosts: []Host{testHost("hv-a", members(1))}, field: machine.FieldPlacement,
			text: `a new server needs a hypervisor of its own, and none can take one; hv-a has one already; ` +
				`add a hypervisor, or let servers share one with anti_affinity = "preferred"`},
		"too few hypervisors, and sharing is no way out": {
			rule: required, nodes: []int{1, 2}, hosts: []Host{testHost("hv-a", used(10, 0, 0))}, field: machine.FieldPlacement,
			text: `2 new servers need 2 hypervisors of their own, and 1 can take one: hv-a`},
		"enough hypervisors, one full": {
			rule: required, nodes: []int{1, 2}, hosts: []Host{a, testHost("hv-b", used(0, 60, 0))}, field: machine.FieldMemory,
			text: `2 new servers need 2 hypervisors of their own, and 1 can take one: hv-a; ` +
				`hv-b has too little memory (8 GiB wanted, 4 GiB of 64 GiB left, more with a higher memory_overcommit); ` +
				`add a hypervisor, or let servers share one with anti_affinity = "preferred"`},
		"room for some": {
			nodes: []int{1, 2, 3}, hosts: []Host{testHost("hv-a", used(6, 0, 0)), testHost("hv-b", used(2, 57, 0))},
			field: machine.FieldVCPUs,
			text: `there is room for 2 of 3 new nodes: ` +
				`hv-a has too few vCPUs (4 wanted, 2 of 16 left, more with a higher cpu_overcommit); ` +
				`hv-b has too little memory (8 GiB wanted, 7 GiB of 64 GiB left, more with a higher memory_overcommit)`},
		"a full disk": {
			nodes: []int{1}, hosts: []Host{testHost("hv-a", held(0, 0, 10))},
			stores: map[string]int{"store of hv-a": 49*gibibyte + 1023}, field: machine.FieldDisk,
			text: `there is room for 0 of 1 new nodes: ` +
				`hv-a has too little disk (40 GiB wanted, 39.9 GiB of 49.9 GiB left, more with a higher disk_overcommit)`},
		"more is taken than there is": {
			nodes: []int{1}, hosts: []Host{testHost("hv-a", used(15, 1, 0), held(5, 70, 0))},
			stores: map[string]int{"store of hv-a": -5}, field: machine.FieldVCPUs,
			text: `there is room for 0 of 1 new nodes: ` +
				`hv-a has too few vCPUs (4 wanted, 0 of 16 left, more with a higher cpu_overcommit) ` +
				`and too little memory (8 GiB wanted, 0 GiB of 64 GiB left, more with a higher memory_overcommit) ` +
				`and too little disk (40 GiB wanted, 0 GiB of 0 GiB left, more with a higher disk_overcommit)`},
		"most lack memory": {
			nodes: []int{1}, hosts: []Host{testHost("hv-a", used(13, 60, 0)), testHost("hv-b", used(0, 60, 0))},
			field: machine.FieldMemory,
			text: `there is room for 0 of 1 new nodes: ` +
				`hv-a has too few vCPUs (4 wanted, 3 of 16 left, more with a higher cpu_overcommit) ` +
				`and too little memory (8 GiB wanted, 4 GiB of 64 GiB left, more with a higher memory_overcommit); ` +
				`hv-b has too little memory (8 GiB wanted, 4 GiB of 64 GiB left, more with a higher memory_overcommit)`},
		"manual, unknown": {
			rule: manual("host-x"), nodes: []int{1}, hosts: []Host{b, a}, field: machine.FieldHosts,
			text: `node 1 cannot go to "host-x", which is none of the hypervisors that can take it: hv-a, hv-b`},
		"manual, too short": {
			rule: manual("hv-a", "hv-b"), nodes: []int{3}, hosts: []Host{a, b}, field: machine.FieldHosts,
			text: `the list has 2 hypervisors and none for node 3; name one for each node, or a single one for all`},
		"manual, empty": {
			rule: manual(), nodes: []int{1}, hosts: []Host{a, b}, field: machine.FieldHosts,
			text: `the list has 0 hypervisors and none for node 1; name one for each node, or a single one for all`},
		"manual, full": {
			rule: manual("hv-a"), nodes: []int{1, 2}, hosts: []Host{testHost("hv-a", used(10, 0, 0)), b}, field: machine.FieldVCPUs,
			text: `there is no room for node 2: hv-a has too few vCPUs (4 wanted, 2 of 16 left, more with a higher cpu_overcommit)`},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Place(Request{Nodes: tc.nodes, Size: size(4, 8, 40), Rule: tc.rule, Hosts: tc.hosts, Stores: tc.stores})
			var reason *Error
			if !errors.As(err, &reason) {
				t.Fatalf("placed %v, error %v", got, err)
			}
			if diff := cmp.Diff(Error{tc.field, tc.text}, *reason); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Data disks make the choice look ahead.
func TestPlaceDataDisks(t *testing.T) {
	stores := func(root, data string) func(*Host) {
		return func(h *Host) { h.Store, h.DataStore = root, data }
	}
	for name, tc := range map[string]struct {
		nodes  []int
		hosts  []Host
		stores map[string]int
		want   map[int]string
	}{
		"a full data store is no place": {
			nodes: []int{1}, hosts: []Host{testHost("a", stores("r", "d")), testHost("b", used(8, 0, 0), stores("r", "e"))},
			stores: map[string]int{"d": 9 * gibibyte, "e": 10 * gibibyte}, want: map[int]string{1: "b"}},
		"one store for both counts both": {
			nodes: []int{1, 2}, hosts: []Host{testHost("a", stores("r", "r")), testHost("b", used(12, 0, 0), stores("s", "s"))},
			stores: map[string]int{"r": 99 * gibibyte, "s": 50 * gibibyte}, want: map[int]string{1: "a", 2: "b"}},
		"a shared data store is counted once": {
			nodes: []int{1, 2}, hosts: []Host{testHost("a", stores("r", "nfs")), testHost("b", stores("s", "nfs")), testHost("c", used(9, 0, 0), stores("t", "d"))},
			stores: map[string]int{"nfs": 19 * gibibyte}, want: map[int]string{1: "a", 2: "c"}},
		"the emptiest is passed over where it takes the last of two stores": {
			nodes:  []int{1, 2},
			hosts:  []Host{testHost("a", stores("r", "d")), testHost("b", used(4, 0, 0), stores("r", "e")), testHost("c", used(8, 0, 0), stores("s", "d"))},
			stores: map[string]int{"r": 40 * gibibyte, "s": 40 * gibibyte, "d": 10 * gibibyte, "e": 10 * gibibyte},
			want:   map[int]string{1: "b", 2: "c"}},
	} {
		t.Run(name, func(t *testing.T) {
			want := size(4, 8, 40)
			want.DataMiB = 10 * gibibyte
			got, err := Place(Request{Nodes: tc.nodes, Size: want, Hosts: tc.hosts, Stores: tc.stores})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A data disk that lacks room is named, and so is what the root disk leaves of a store that takes both.
func TestPlaceDataDiskError(t *testing.T) {
	for name, tc := range map[string]struct {
		store, data string
		stores      map[string]int
		field       machine.Field
		text        string
	}{
		"a store of its own": {
			"r", "d", map[string]int{"r": 40 * gibibyte, "d": 9 * gibibyte}, machine.FieldDataDisk,
			`hv-a has too little disk for data (10 GiB wanted, 9 GiB of 9 GiB left, more with a higher disk_overcommit)`},
		"one store, room for one disk": {
			"r", "r", map[string]int{"r": 45 * gibibyte}, machine.FieldDataDisk,
			`hv-a has too little disk for data (10 GiB wanted, 5 GiB of 45 GiB left, more with a higher disk_overcommit)`},
		"one store, room for none": {
			"r", "r", map[string]int{"r": 35 * gibibyte}, machine.FieldDisk,
			`hv-a has too little disk (40 GiB wanted, 35 GiB of 35 GiB left, more with a higher disk_overcommit) ` +
				`and too little disk for data (10 GiB wanted, 0 GiB of 35 GiB left, more with a higher disk_overcommit)`},
	} {
		t.Run(name, func(t *testing.T) {
			want := size(4, 8, 40)
			want.DataMiB = 10 * gibibyte
			h := testHost("hv-a", store(tc.store))
			h.DataStore = tc.data
			got, err := Place(Request{Nodes: []int{1}, Size: want, Hosts: []Host{h}, Stores: tc.stores})
			var reason *Error
			if !errors.As(err, &reason) {
				t.Fatalf("placed %v, error %v", got, err)
			}
			if diff := cmp.Diff(Error{tc.field, "there is room for 0 of 1 new nodes: " + tc.text}, *reason); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func BenchmarkPlace(b *testing.B) {
	r := Request{Size: size(4, 8, 40), Rule: preferred, Stores: map[string]int{"nfs": 10_000 * gibibyte}}
	for i := range 100 {
		h := testHost(fmt.Sprintf("hv-%02d", i), used(i%7, i%11, 0))
		h.VCPUs, h.DataStore = 64, "nfs"
		r.Hosts, r.Stores[h.Store] = append(r.Hosts, h), 1000*gibibyte
	}
	for n := range 500 {
		r.Nodes = append(r.Nodes, n+1)
	}
	slices.Reverse(r.Nodes)
	for _, dataMiB := range []int{0, 10 * gibibyte} {
		b.Run(fmt.Sprintf("data=%dMiB", dataMiB), func(b *testing.B) {
			r.Size.DataMiB = dataMiB
			for b.Loop() {
				if _, err := Place(r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
