package provider

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// The number of servers changes in place, with the same id.
func TestServersComeAndGoInPlace(t *testing.T) {
	w := newFleet(t)
	state := w.create(clusterType, clusterConfig())
	id := state["id"]
	for _, n := range []int{3, 1} {
		config := servers(object{"node_count": n})
		before := len(state["nodes"].(object))
		w.engine.calls = nil
		p := w.plan(clusterType, state, config)
		wantDiags(t, p.diags)
		if p.action(state) != "update" || !slices.Equal(w.engine.calls, []string{"check cluster"}) || w.engine.lastSpec.ID != id {
			t.Errorf("%d servers: %s %v, asked %v for %q", n, p.action(state), p.replaces, w.engine.calls, w.engine.lastSpec.ID)
		}
		assignment := object{"cp-1": "hv-a", "cp-2": "hv-b", "cp-3": "hv-c"}
		if n == 1 {
			assignment = object{"cp-1": "hv-a"}
		}
		wantState(t, p.state, object{
			"id": id, "api_url": "https://192.0.2.10:6443", "assignment": assignment, "nodes": unknown, "status": unknown, "conditions": unknown,
		})
		after, diags := w.apply(clusterType, state, config, p)
		wantDiags(t, diags)
		if len(after["nodes"].(object)) != n || len(w.engine.lastPrior) != before || len(w.engine.lastSpec.Assignment) != n {
			t.Errorf("%d servers: got %v; the engine was told of %d and of %v", n, nodeNames(after), len(w.engine.lastPrior), w.engine.lastSpec.Assignment)
		}
		if state, _ = w.read(clusterType, after); w.plan(clusterType, state, config).action(state) != "no-op" {
			t.Errorf("%d servers: the next plan is not empty", n)
		}
	}
}

func TestMoreServersNeedATemplate(t *testing.T) {
	state := newWorld(t, someTemplate()).create(clusterType, clusterConfig())
	w := newWorld(t, object{})
	wantDiags(t, w.plan(clusterType, state, servers(object{"node_count": 3})).diags, `Unable to update cluster "prod"`, "names no template")
}

func TestServersUpdateFails(t *testing.T) {
	w := newFleet(t)
	state := w.create(clusterType, clusterConfig())
	three := servers(object{"node_count": 3})
	p := w.plan(clusterType, state, three)
	w.engine.err, w.engine.nodes = errors.New("server prod-cp-3 did not join"), w.engine.stand("prod", record.ServerPool, record.Server, 2)
	state, diags := w.apply(clusterType, state, three, p)
	wantDiags(t, diags, `Unable to update cluster "prod"`, "kept in the state")
	wantState(t, state, object{"assignment": object{"cp-1": "hv-a", "cp-2": "hv-b"}})
	w.engine.err, w.engine.nodes = nil, nil
	wantDiags(t, w.plan(clusterType, state, three).diags, "2 instead of 1: the rest is made")
	back := w.plan(clusterType, state, clusterConfig())
	wantDiags(t, back.diags, "2 instead of 1: the surplus is removed")
	wantState(t, back.state, object{"assignment": object{"cp-1": "hv-a"}})
}

// The URL of the API stays known in every plan that does not alter it.
func TestAPIURLStaysKnown(t *testing.T) {
	const first, second, third = "prod-cp-1", "prod-cp-2", "prod-cp-3"
	missing := func(names ...string) map[string]cluster.NodeState {
		states := map[string]cluster.NodeState{}
		for _, name := range names {
			states[name] = cluster.NodeMissing
		}
		return states
	}
	one, three := object{"node_count": 1}, object{"node_count": 3}
	for name, tt := range map[string]struct {
		before, after object
		endpoint      any
		states        map[string]cluster.NodeState
		known         bool
	}{
		"nothing":                           {one, one, nil, nil, true},
		"more servers":                      {one, three, nil, nil, true},
		"fewer servers":                     {three, one, nil, nil, true},
		"another number that is not known":  {three, object{"node_count": unknown}, nil, nil, true},
		"that number, and the first broken": {three, object{"node_count": unknown}, nil, map[string]cluster.NodeState{first: cluster.NodeStopped}, false},
		"its server made anew":              {three, three, nil, missing(first), false},
		"another one made anew":             {three, three, nil, missing(second), true},
		"both others made anew":             {three, three, nil, missing(second, third), true},
		"the only one made anew":            {one, one, nil, missing(first), false},
		"its server started":                {three, three, nil, map[string]cluster.NodeState{first: cluster.NodeStopped}, true},
		"its server removed":                {three, one, nil, map[string]cluster.NodeState{first: cluster.NodeStopped}, false},
		"its server not ready and removed":  {three, one, nil, map[string]cluster.NodeState{first: cluster.NodeNotReady}, false},
		"its server unknown":                {three, one, nil, map[string]cluster.NodeState{first: cluster.NodeUnknown}, true},
		"an endpoint, and a server anew":    {three, three, "k8s.example", missing(first), true},
		"an endpoint, and the only one":     {one, one, "k8s.example", missing(first), true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFleet(t)
			config := func(controlPlane object) object { return with(servers(controlPlane), object{"endpoint": tt.endpoint}) }
			state := w.create(clusterType, config(tt.before))
			url := state["api_url"]
			w.engine.states = tt.states
			state, _ = w.read(clusterType, state)
			p := w.plan(clusterType, state, config(tt.after))
			if failed(p.diags) {
				t.Fatal(render(p.diags))
			}
			want := url
			if !tt.known {
				want = any(unknown)
			}
			wantState(t, p.state, object{"api_url": want})
			if tt.after["node_count"] == any(unknown) {
				return
			}
			_, diags := w.apply(clusterType, state, config(tt.after), p)
			wantDiags(t, diags)
		})
	}
	for name, endpoints := range map[string][3]any{ // before and after, and what the plan says of the URL
		"a first endpoint":     {nil, "k8s.example", "https://k8s.example:6443"},
		"another endpoint":     {"k8s.example", "k8s.example:443", "https://k8s.example:443"},
		"no endpoint any more": {"k8s.example", nil, any(unknown)},
		"an unknown endpoint":  {nil, unknown, any(unknown)},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFleet(t)
			state := w.create(clusterType, with(clusterConfig(), object{"endpoint": endpoints[0]}))
			config := with(clusterConfig(), object{"endpoint": endpoints[1]})
			p := w.plan(clusterType, state, config)
			wantDiags(t, p.diags)
			wantState(t, p.state, object{"api_url": endpoints[2], "nodes": state["nodes"], "assignment": state["assignment"]})
			if p.action(state) != "update" {
				t.Errorf("the plan is %s because of %v", p.action(state), p.replaces)
			}
			if endpoints[1] == any(unknown) {
				return
			}
			after, diags := w.apply(clusterType, state, config, p)
			wantDiags(t, diags)
			if after["api_url"] == state["api_url"] || w.engine.lastSpec.Settings.Endpoint != stringOf(endpoints[1]) {
				t.Errorf("api_url %v, the engine was given %q", after["api_url"], w.engine.lastSpec.Settings.Endpoint)
			}
			if a := w.plan(clusterType, after, config).action(after); a != "no-op" {
				t.Errorf("the next plan is %s", a)
			}
		})
	}
}

func stringOf(v any) string {
	s, _ := v.(string)
	return s
}

// The hypervisor of the server that holds the URL's address is silent, and so is its address.
func TestAPIURLWithoutAKnownServer(t *testing.T) {
	w := newFleet(t)
	state := w.create(clusterType, servers(object{"node_count": 3}))
	for name := range state["nodes"].(object) {
		node := state["nodes"].(object)[name].(object)
		node["ip"] = nil
	}
	wantState(t, w.plan(clusterType, state, clusterConfig()).state, object{"api_url": unknown}) // One of those that go may have it.
	one := w.create(clusterType, clusterConfig())
	one["nodes"].(object)["prod-cp-1"].(object)["ip"] = nil
	wantState(t, w.plan(clusterType, one, servers(object{"node_count": 3})).state, object{"api_url": one["api_url"]}) // All stay.
}

// A server that is lost becomes a planned update. What that means for the data depends on how many are left.
func TestLostServers(t *testing.T) {
	const dataLost, dataSafe = "the data of the cluster is lost", "its data is safe with the servers that are left"
	for name, tt := range map[string]struct {
		servers int
		missing []string
		want    string
	}{
		"the only one":   {1, []string{"prod-cp-1"}, dataLost},
		"one of three":   {3, []string{"prod-cp-2"}, dataSafe},
		"two of three":   {3, []string{"prod-cp-2", "prod-cp-3"}, ""},
		"three of three": {3, []string{"prod-cp-1", "prod-cp-2", "prod-cp-3"}, dataLost},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFleet(t)
			config := servers(object{"node_count": tt.servers})
			state := w.create(clusterType, config)
			w.engine.states = map[string]cluster.NodeState{}
			for _, name := range tt.missing {
				w.engine.states[name] = cluster.NodeMissing
			}
			state, _ = w.read(clusterType, state)
			wantState(t, state, object{"status": "degraded"})
			p := w.plan(clusterType, state, config)
			if p.action(state) != "update" || p.state["nodes"] != any(unknown) {
				t.Errorf("the plan is %s: %v", p.action(state), p.state)
			}
			want := []string{`warning at : Cluster "prod" has drifted`}
			for _, name := range tt.missing {
				want = append(want, name+" on hypervisor", "is missing")
			}
			wantDiags(t, p.diags, append(want, tt.want)...)
			if text := render(p.diags); tt.want == "" && (strings.Contains(text, dataLost) || strings.Contains(text, dataSafe)) {
				t.Errorf("nothing is known of the data:\n%s", text)
			}
		})
	}
	t.Run("without quorum", func(t *testing.T) {
		w := newFleet(t)
		state := w.create(clusterType, servers(object{"node_count": 3}))
		w.engine.states = map[string]cluster.NodeState{"prod-cp-2": cluster.NodeMissing, "prod-cp-3": cluster.NodeMissing}
		state, _ = w.read(clusterType, state)
		w.engine.problems = []cluster.Problem{{Err: cluster.ErrNoQuorum}}
		// No error: the plan that replaces the cluster begins with this one.
		wantDiags(t, w.plan(clusterType, state, servers(object{"node_count": 3})).diags, `warning at : Cluster "prod" has drifted`,
			`warning at : The servers of cluster "prod" have no quorum`, "the apply will fail")
	})
}

// etcd knows a server by the address with which it joined.
func TestServerWithANewAddress(t *testing.T) {
	w := newFleet(t)
	state := w.create(clusterType, servers(object{"node_count": 3}))
	nodes := w.engine.stand("prod", record.ServerPool, record.Server, 3)
	moved := nodes["prod-cp-2"]
	moved.IP = "192.0.2.77"
	nodes["prod-cp-2"] = moved
	anew := nodes["prod-cp-3"]
	anew.UUID, anew.IP = "00000000-0000-4000-8000-000000000099", "192.0.2.78" // another VM: its address is its own
	nodes["prod-cp-3"] = anew
	w.engine.nodes = nodes
	state, diags := w.read(clusterType, state)
	wantDiags(t, diags, `warning at : The address of server "prod-cp-2" has changed from 192.0.2.11 to 192.0.2.77`,
		"What to do: ", "DHCP", "reserve 192.0.2.11 for the MAC address 52:54:00:00:00:02")
	if len(diags) != 1 {
		t.Errorf("%d diagnostics, want one:\n%s", len(diags), render(diags))
	}
	if a := w.plan(clusterType, state, servers(object{"node_count": 3})).action(state); a != "no-op" {
		t.Errorf("the plan is %s, want no VM to be touched", a)
	}
	// An agent asks for its address anew.
	pool := w.create(poolType, poolConfig())
	w.engine.nodes = workers(3)
	agent := w.engine.nodes["prod-workers-1"]
	agent.IP = "192.0.2.79"
	w.engine.nodes["prod-workers-1"] = agent
	_, diags = w.read(poolType, pool)
	wantDiags(t, diags)
}

// What others need of a cluster must not vanish while the provider waits for its own configuration.
func TestServersWhileProviderIsUnknown(t *testing.T) {
	state := newFleet(t).create(clusterType, clusterConfig())
	w := newWorld(t, with(someTemplate(), object{"hypervisors": object{"a": object{"uri": unknown}}}))
	config := servers(object{"node_count": 3, "placement": object{"strategy": "manual", "hosts": []any{"hv-x"}}})
	p := w.plan(clusterType, state, config)
	wantDiags(t, p.diags)
	wantState(t, p.state, object{"assignment": unknown, "footprint": unknown, "nodes": unknown, "api_url": state["api_url"]})
	if len(w.engine.calls) > 0 {
		t.Errorf("the engine was asked: %v", w.engine.calls)
	}
}

// A record without a rule, or with one that the configuration leaves out, imports as the default.
func TestImportFillsPlacement(t *testing.T) {
	shape := record.Shape{VCPUs: 2, MemoryMiB: 4096, DiskGiB: 40, StoragePool: "default", Clone: record.Overlay}
	for name, p := range map[string]record.Placement{"default": defaultServerPlacement, "by zero value": {AntiAffinity: record.Required}} {
		t.Run(name, func(t *testing.T) {
			w := newFleet(t)
			w.engine.cluster = cluster.Spec{
				ID: clusterID, Name: "prod", Servers: 1, Shape: shape, Placement: p,
				Settings: record.Cluster{K3sVersion: "v1.36.1+k3s1", Network: "default", CSI: defaultCSI()},
			}
			state, diags := w.importState(clusterType, "prod")
			wantDiags(t, diags)
			wantState(t, state, object{"assignment": object{"cp-1": "hv-a"}, "footprint": object{"hv-a": takes(2, 4, 40)}, "endpoint": nil, "tls_sans": nil})
			if plan := w.plan(clusterType, state, clusterConfig()); plan.action(state) != "no-op" || len(plan.diags) > 0 {
				t.Errorf("the plan is %s %v:\nstate %v\nplan  %v", plan.action(state), plan.replaces, state, plan.state)
			}
		})
	}
	t.Run("pool", func(t *testing.T) {
		w := newFleet(t)
		w.engine.pool = cluster.PoolSpec{
			ClusterID: clusterID, Name: "workers", Nodes: 2, Shape: shape,
			Placement: record.Placement{Strategy: record.Manual, Hosts: []string{"hv-a", "hv-b"}},
		}
		state, diags := w.importState(poolType, "prod/workers")
		wantDiags(t, diags)
		config := with(poolConfig(), object{"node_count": 2, "placement": object{"strategy": "manual", "hosts": []any{"hv-a", "hv-b"}}})
		if plan := w.plan(poolType, state, config); plan.action(state) != "no-op" {
			t.Errorf("the plan is %s %v:\nstate %v\nplan  %v", plan.action(state), plan.replaces, state, plan.state)
		}
	})
}

// A plan says what a hypervisor lacks where it is asked for.
func TestCapacityStandsOnTheShape(t *testing.T) {
	w := newFleet(t)
	state := w.create(clusterType, clusterConfig())
	w.engine.problems = []cluster.Problem{{Field: machine.FieldMemory, Err: errors.New("no hypervisor has 4 GiB left")}}
	wantDiags(t, w.plan(clusterType, state, servers(object{"node_count": 3})).diags,
		`error at control_plane.memory_gib: Unable to update cluster "prod"`, "The attribute is control_plane.memory_gib.")
}
