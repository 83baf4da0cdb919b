package provider

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// threeHosts is the configuration of a provider with three hypervisors.
func threeHosts() object {
	hypervisors := object{}
	for _, name := range []string{"hv-a", "hv-b", "hv-c"} {
		hypervisors[name] = object{"uri": "qemu+ssh://" + name + "/system"}
	}
	return object{"hypervisors": hypervisors, "template": object{"hypervisor": "hv-a", "pool": "templates", "volume": "debian.qcow2"}}
}

// newFleet is a world with three hypervisors, which take nodes in turn.
func newFleet(t *testing.T) *world {
	w := newWorld(t, threeHosts())
	w.engine.hosts = []string{"hv-a", "hv-b", "hv-c"}
	return w
}

func takes(vcpus, memory, disk int) object {
	return object{"vcpus": vcpus, "memory_gib": memory, "disk_gib": disk}
}

// wantState compares attributes of a plan or state.
func wantState(t *testing.T, state object, want object) {
	t.Helper()
	for attribute, value := range want {
		if got := state[attribute]; !reflect.DeepEqual(got, value) {
			t.Errorf("%s: got %v, want %v", attribute, got, value)
		}
	}
}

func TestPlanKnowsWhereNodesGo(t *testing.T) {
	w := newFleet(t)
	p := w.plan(clusterType, nil, servers(object{"node_count": 3}))
	wantDiags(t, p.diags)
	wantState(t, p.state, object{
		"assignment": object{"cp-1": "hv-a", "cp-2": "hv-b", "cp-3": "hv-c"},
		"footprint":  object{"hv-a": takes(2, 4, 40), "hv-b": takes(2, 4, 40), "hv-c": takes(2, 4, 40)},
		"nodes":      unknown,
	})
	state := w.create(clusterType, servers(object{"node_count": 3}))
	wantState(t, state, object{"assignment": p.state["assignment"], "footprint": p.state["footprint"]})
	if want := (cluster.Assignment{"cp-1": "hv-a", "cp-2": "hv-b", "cp-3": "hv-c"}); !reflect.DeepEqual(w.engine.lastSpec.Assignment, want) {
		t.Errorf("the engine was told of the promise %v, want %v", w.engine.lastSpec.Assignment, want)
	}

	pool := with(poolConfig(), object{"node_count": 4, "vcpus": 4, "memory_gib": 16, "disk_gib": 80})
	p = w.plan(poolType, nil, pool)
	wantDiags(t, p.diags)
	wantState(t, p.state, object{
		"assignment": object{"workers-1": "hv-a", "workers-2": "hv-b", "workers-3": "hv-c", "workers-4": "hv-a"},
		"footprint":  object{"hv-a": takes(8, 32, 160), "hv-b": takes(4, 16, 80), "hv-c": takes(4, 16, 80)},
	})
	standing := w.create(poolType, pool)
	p = w.plan(poolType, standing, with(pool, object{"node_count": 0}))
	wantDiags(t, p.diags)
	wantState(t, p.state, object{"assignment": object{}, "footprint": object{}})
}

// A new cluster may go where its plan could not tell; the state then tells where its nodes stand.
func TestPlanDoesNotKnowWhereNodesGo(t *testing.T) {
	for typeName, config := range map[string]object{clusterType: servers(object{"node_count": 3}), poolType: poolConfig()} {
		for name, blind := range map[string]func(*world) object{
			"the engine cannot tell": func(w *world) object {
				w.engine.blind = true
				return config
			},
			"a part is unknown": func(*world) object {
				placement := object{"strategy": "manual", "hosts": []any{unknown}}
				if typeName == poolType {
					return with(config, object{"placement": placement})
				}
				return servers(object{"node_count": 3, "placement": placement})
			},
		} {
			t.Run(typeName+"/"+name, func(t *testing.T) {
				w := newFleet(t)
				p := w.plan(typeName, nil, blind(w))
				wantDiags(t, p.diags)
				wantState(t, p.state, object{"assignment": unknown, "footprint": unknown})
				state, diags := w.apply(typeName, nil, config, planned{state: with(config, p.state), private: p.private})
				wantDiags(t, diags)
				if w.engine.lastSpec.Assignment != nil || w.engine.lastPool.Assignment != nil {
					t.Errorf("the engine was told of a promise: %v %v", w.engine.lastSpec.Assignment, w.engine.lastPool.Assignment)
				}
				if len(state["assignment"].(object)) != 3 || len(state["footprint"].(object)) != 3 {
					t.Errorf("the state has %v and %v", state["assignment"], state["footprint"])
				}
			})
		}
	}
}

// What was promised and made stands in the state, whatever a last look has seen.
func TestStateHoldsWhatWasPromised(t *testing.T) {
	w := newFleet(t)
	p := w.plan(poolType, nil, poolConfig())
	w.engine.nodes = workers(3) // on "default"
	state, diags := w.apply(poolType, nil, poolConfig(), p)
	wantDiags(t, diags)
	wantState(t, state, object{"assignment": p.state["assignment"]})
	state, _ = w.read(poolType, state)
	wantState(t, state, object{"assignment": object{"workers-1": "default", "workers-2": "default", "workers-3": "default"}, "footprint": object{"default": takes(6, 12, 120)}})

	p = w.plan(poolType, nil, poolConfig())
	w.engine.err, w.engine.nodes = fmt.Errorf("node prod-workers-3 did not join"), workers(2)
	state, _ = w.apply(poolType, nil, poolConfig(), p)
	wantState(t, state, object{"assignment": object{"workers-1": "default", "workers-2": "default"}, "footprint": object{"default": takes(4, 8, 80)}})
	state, _ = w.apply(poolType, state, nil, planned{})
	wantState(t, state, object{"assignment": object{"workers-1": "default", "workers-2": "default"}})
}

func TestPlacementOfNodesThatStand(t *testing.T) {
	w := newFleet(t)
	state := w.create(poolType, poolConfig())
	manual := with(poolConfig(), object{"placement": object{"strategy": "manual", "hosts": []any{"hv-b"}}})
	w.engine.calls = nil
	p := w.plan(poolType, state, manual)
	wantDiags(t, p.diags)
	if p.action(state) != "update" || !slices.Equal(w.engine.calls, []string{"check pool"}) {
		t.Errorf("a new rule alone is %s because of %v, and asks %v", p.action(state), p.replaces, w.engine.calls)
	}
	wantState(t, p.state, object{"nodes": state["nodes"], "assignment": state["assignment"], "footprint": state["footprint"]})
	w.engine.err = fmt.Errorf("hv-c does not answer")
	failed, _ := w.apply(poolType, state, manual, p)
	if a := w.plan(poolType, failed, manual).action(failed); a != "update" {
		t.Errorf("after a failure the plan is %s, want the change again", a)
	}
	w.engine.err = nil
	after, diags := w.apply(poolType, state, manual, p)
	wantDiags(t, diags)
	if want := (record.Placement{Strategy: record.Manual, Hosts: []string{"hv-b"}}); !reflect.DeepEqual(w.engine.lastPool.Placement, want) {
		t.Errorf("the engine was given %v, want %v", w.engine.lastPool.Placement, want)
	}
	if p = w.plan(poolType, after, manual); p.action(after) != "no-op" {
		t.Errorf("the next plan is %s: %v", p.action(after), p.state)
	}
}

func TestPlacementDefaults(t *testing.T) {
	type placement = object
	for name, tt := range map[string]struct {
		typeName         string
		placement, want  any
		planned          record.Placement
		unknownToReviews bool
	}{
		"servers":              {clusterType, nil, placement{"strategy": "auto", "anti_affinity": "required", "hosts": nil}, defaultServerPlacement, false},
		"servers, empty":       {clusterType, placement{}, placement{"strategy": "auto", "anti_affinity": "required", "hosts": nil}, defaultServerPlacement, false},
		"servers, preferred":   {clusterType, placement{"anti_affinity": "preferred"}, placement{"strategy": "auto", "anti_affinity": "preferred", "hosts": nil}, record.Placement{Strategy: record.Auto, AntiAffinity: record.Preferred}, false},
		"servers by hand":      {clusterType, placement{"strategy": "manual", "hosts": []any{"hv-b"}}, placement{"strategy": "manual", "anti_affinity": nil, "hosts": []any{"hv-b"}}, record.Placement{Strategy: record.Manual, Hosts: []string{"hv-b"}}, false},
		"servers, unknown":     {clusterType, placement{"strategy": unknown}, placement{"strategy": unknown, "anti_affinity": unknown, "hosts": nil}, record.Placement{}, true},
		"servers, all unknown": {clusterType, unknown, unknown, record.Placement{}, true},
		"pool":                 {poolType, nil, placement{"strategy": "auto", "hosts": nil}, defaultPoolPlacement, false},
		"pool by hand":         {poolType, placement{"strategy": "manual", "hosts": []any{"hv-b"}}, placement{"strategy": "manual", "hosts": []any{"hv-b"}}, record.Placement{Strategy: record.Manual, Hosts: []string{"hv-b"}}, false},
		"pool, unknown":        {poolType, unknown, unknown, record.Placement{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFleet(t)
			config := with(poolConfig(), object{"placement": tt.placement})
			if tt.typeName == clusterType {
				config = servers(object{"placement": tt.placement})
			}
			p := w.plan(tt.typeName, nil, config)
			wantDiags(t, p.diags)
			got, asked := p.state["placement"], w.engine.lastPool.Placement
			if tt.typeName == clusterType {
				got, asked = p.state["control_plane"].(object)["placement"], w.engine.lastSpec.Placement
			}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("planned %v, want %v", got, tt.want)
			}
			if !reflect.DeepEqual(asked, tt.planned) || (len(w.engine.calls) == 0) != tt.unknownToReviews {
				t.Errorf("asked %v with %v, want %v", w.engine.calls, asked, tt.planned)
			}
		})
	}
}

func TestPlacementNamesConfiguredHypervisors(t *testing.T) {
	w := newFleet(t)
	byHand := object{"strategy": "manual", "hosts": []any{"hv-a", unknown, "hv-x"}}
	pool := with(poolConfig(), object{"placement": byHand})
	want := []string{`Unable to create node pool "workers"`, `There is no hypervisor "hv-x" in the provider's configuration; there are: hv-a, hv-b, hv-c.`, "placement.hosts[2]"}
	wantDiags(t, w.plan(poolType, nil, pool).diags, append([]string{"error at placement.hosts.2: "}, want...)...)
	wantDiags(t, w.plan(clusterType, nil, servers(object{"node_count": 3, "placement": byHand})).diags,
		"error at control_plane.placement.hosts.2: ", `Unable to create cluster "prod"`, `no hypervisor "hv-x"`)

	byHand = object{"strategy": "manual", "hosts": []any{"hv-x"}}
	w.engine.problems = []cluster.Problem{{Field: machine.FieldHosts, Err: fmt.Errorf("no hypervisor hv-x")}}
	for name, config := range map[string]object{
		"a change of the rule": with(poolConfig(), object{"placement": byHand}),
		"more nodes":           with(poolConfig(), object{"placement": byHand, "node_count": 4}),
	} {
		state := newFleet(t).create(poolType, poolConfig())
		if diags := w.plan(poolType, state, config).diags; len(diags) != 1 || !strings.Contains(render(diags), `no hypervisor "hv-x"`) {
			t.Errorf("%s: want one error, which names hv-x:\n%s", name, render(diags))
		}
	}
	state := newFleet(t).create(clusterType, clusterConfig())
	wantDiags(t, w.plan(clusterType, state, servers(object{"placement": byHand})).diags, `Unable to update cluster "prod"`, `no hypervisor "hv-x"`)
}

func TestValidatePlacement(t *testing.T) {
	manual := func(hosts ...any) object { return object{"strategy": "manual", "hosts": hosts} }
	pool := func(placement object) object { return with(poolConfig(), object{"placement": placement}) }
	for name, tt := range map[string]struct {
		typeName string
		config   object
		want     []string
	}{
		"auto":               {poolType, pool(object{"strategy": "auto"}), nil},
		"none":               {poolType, pool(object{}), nil},
		"one for all":        {poolType, pool(manual("hv-a")), nil},
		"one for each":       {poolType, pool(manual("hv-a", "hv-b", "hv-a")), nil},
		"unknown hosts":      {poolType, pool(object{"strategy": "manual", "hosts": unknown}), nil},
		"unknown strategy":   {poolType, pool(object{"strategy": unknown, "hosts": []any{"hv-a"}}), nil},
		"an unknown host":    {poolType, pool(manual("hv-a", unknown, "hv-b")), nil},
		"unknown node_count": {poolType, with(pool(manual("hv-a", "hv-b")), object{"node_count": unknown}), nil},
		"another strategy": {poolType, pool(object{"strategy": "spread"}),
			[]string{"error at placement.strategy: ", "manual"}},
		"no hosts": {poolType, pool(object{"strategy": "manual"}),
			[]string{`error at placement.hosts: Unable to use placement.strategy "manual"`, "needs hosts"}},
		"empty hosts": {poolType, pool(manual()),
			[]string{`error at placement.hosts: Unable to use placement.strategy "manual"`, "needs hosts"}},
		"hosts without a strategy": {poolType, pool(object{"hosts": []any{"hv-a"}}),
			[]string{"error at placement.hosts: Unable to use placement.hosts\n", `set strategy = "manual"`}},
		"hosts with auto": {clusterType, servers(object{"placement": object{"strategy": "auto", "hosts": []any{"hv-a"}}}),
			[]string{"error at control_plane.placement.hosts: ", "chooses the hypervisors itself"}},
		"two hosts for three nodes": {poolType, pool(manual("hv-a", "hv-b")),
			[]string{"error at placement.hosts: ", "names 2 hypervisors for a node_count of 3"}},
		"three hosts for one server": {clusterType, servers(object{"placement": manual("hv-a", "hv-b", "hv-c")}),
			[]string{"error at control_plane.placement.hosts: ", "names 3 hypervisors for a node_count of 1"}},
		"null for a host": {poolType, pool(manual("hv-a", nil, "hv-b")),
			[]string{`error at placement.hosts.1: Unable to use element "1"`, "It is null"}},
		"anti-affinity by hand": {clusterType, servers(object{"placement": object{"strategy": "manual", "anti_affinity": "required", "hosts": []any{"hv-a"}}}),
			[]string{`error at control_plane.placement.anti_affinity: Unable to use placement.anti_affinity "required"`, "leave anti_affinity out"}},
		"another anti-affinity": {clusterType, servers(object{"placement": object{"anti_affinity": "none"}}),
			[]string{"error at control_plane.placement.anti_affinity: ", "preferred"}},
		"three servers on three hosts": {clusterType, servers(object{"node_count": 3, "placement": manual("hv-a", "hv-b", "hv-c")}), nil},
		"two servers on one host": {clusterType, servers(object{"node_count": 3, "placement": manual("hv-a", "hv-b", "hv-a")}),
			[]string{`warning at control_plane.placement.hosts: The control plane hangs on hypervisor "hv-a"`, "It holds 2 of 3 servers."}},
		"three servers on one host": {clusterType, servers(object{"node_count": 3, "placement": manual("hv-a")}),
			[]string{`warning at control_plane.placement.hosts: The control plane hangs on hypervisor "hv-a"`, "It holds 3 of 3 servers."}},
		"one server on one host": {clusterType, servers(object{"placement": manual("hv-a")}), nil},
	} {
		t.Run(name, func(t *testing.T) {
			diags := newWorld(t, someTemplate()).validate(tt.typeName, tt.config)
			wantDiags(t, diags, tt.want...)
			if len(diags) > 1 {
				t.Errorf("%d diagnostics, want one:\n%s", len(diags), render(diags))
			}
		})
	}
}
