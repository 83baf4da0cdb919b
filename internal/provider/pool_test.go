package provider

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

func workers(n int) cluster.Nodes { return nodesNamed("prod", "workers", record.Agent, n) }

func nodeNames(state object) []string {
	return slices.Sorted(maps.Keys(state["nodes"].(object)))
}

func TestPoolLife(t *testing.T) {
	w := newWorld(t, someTemplate())
	state := w.create(poolType, poolConfig())
	want := cluster.PoolSpec{
		ClusterID: clusterID, Name: "workers", Nodes: 3,
		Shape:      record.Shape{VCPUs: 2, MemoryMiB: 4096, DiskGiB: 40, StoragePool: "default", Clone: record.Overlay},
		Placement:  record.Placement{Strategy: record.Auto},
		Drain:      record.Drain{TimeoutSeconds: 900},
		Upgrade:    record.Upgrade{MaxSurge: 1},
		Repair:     record.Repair{NotReadySeconds: 600, MaxUnhealthy: 1},
		Assignment: cluster.Assignment{"workers-1": "default", "workers-2": "default", "workers-3": "default"},
	}
	if !reflect.DeepEqual(w.engine.lastPool, want) {
		t.Errorf("the engine was given %+v, want %+v", w.engine.lastPool, want)
	}
	if id := clusterID + "/workers"; state["id"] != id {
		t.Errorf("id: got %v, want %q", state["id"], id)
	}

	for _, n := range []int{5, 1, 0} {
		config := with(poolConfig(), object{"node_count": n})
		before := len(state["nodes"].(object))
		p := w.plan(poolType, state, config)
		wantDiags(t, p.diags)
		if p.action(state) != "update" || p.state["nodes"] != any(unknown) || p.state["id"] != state["id"] {
			t.Errorf("%d nodes: %s, planned %v", n, p.action(state), p.state)
		}
		var diags any
		state, diags = w.apply(poolType, state, config, p)
		if fmt.Sprint(diags) != "[]" || len(state["nodes"].(object)) != n || len(w.engine.lastPrior) != before {
			t.Errorf("%d nodes: got %v, %v; the engine was told of %d", n, state, diags, len(w.engine.lastPrior))
		}
		state, _ = w.read(poolType, state)
		if a := w.plan(poolType, state, config).action(state); a != "no-op" {
			t.Errorf("%d nodes: the next plan is %s", n, a)
		}
	}
}

func TestPoolPlan(t *testing.T) {
	t.Run("of a cluster that does not exist yet", func(t *testing.T) {
		w := newWorld(t, someTemplate())
		p := w.plan(poolType, nil, with(poolConfig(), object{"cluster_id": unknown}))
		wantDiags(t, p.diags)
		if p.state["id"] != any(unknown) || w.engine.lastPool.ClusterID != "" || len(w.engine.calls) != 1 {
			t.Errorf("id %v; the engine was asked %v for %+v", p.state["id"], w.engine.calls, w.engine.lastPool)
		}
	})
	t.Run("knows the id", func(t *testing.T) {
		p := newWorld(t, someTemplate()).plan(poolType, nil, poolConfig())
		if p.state["id"] != clusterID+"/workers" {
			t.Errorf("id: got %v", p.state["id"])
		}
	})
	t.Run("with an unknown node_count", func(t *testing.T) {
		w := newWorld(t, someTemplate())
		state := w.create(poolType, poolConfig())
		w.engine.calls = nil
		p := w.plan(poolType, state, with(poolConfig(), object{"node_count": unknown}))
		wantDiags(t, p.diags)
		if p.state["nodes"] != any(unknown) || len(w.engine.calls) > 0 {
			t.Errorf("nodes %v, asked %v", p.state["nodes"], w.engine.calls)
		}
	})
	t.Run("without nodes needs no template", func(t *testing.T) {
		w := newWorld(t, object{})
		wantDiags(t, w.plan(poolType, nil, with(poolConfig(), object{"node_count": 0})).diags)
		wantDiags(t, w.plan(poolType, nil, poolConfig()).diags, `Unable to create node pool "workers"`, "names no template")
	})
	t.Run("to more nodes needs a template", func(t *testing.T) {
		state := newWorld(t, someTemplate()).create(poolType, poolConfig())
		w := newWorld(t, object{})
		for n, want := range map[int][]string{2: nil, 3: nil, 4: {`Unable to update node pool "workers"`, "names no template"}} {
			wantDiags(t, w.plan(poolType, state, with(poolConfig(), object{"node_count": n})).diags, want...)
		}
	})
	t.Run("to start a node needs none", func(t *testing.T) {
		state := newWorld(t, someTemplate()).create(poolType, poolConfig())
		w := newWorld(t, object{})
		w.engine.states = map[string]cluster.NodeState{"prod-workers-2": cluster.NodeStopped}
		state, _ = w.read(poolType, state)
		p := w.plan(poolType, state, poolConfig())
		if failed(p.diags) || p.action(state) != "update" {
			t.Errorf("%s\n%s", p.action(state), render(p.diags))
		}
	})
	t.Run("of a name that is in use", func(t *testing.T) {
		w := newWorld(t, someTemplate())
		w.engine.problems = []cluster.Problem{{Field: machine.FieldName, Hypervisor: "hv-a", Err: errors.New("the pool exists")}}
		wantDiags(t, w.plan(poolType, nil, poolConfig()).diags, `warning at name: The name of node pool "workers" is in use`)
	})
	for attribute, field := range map[string]machine.Field{
		"storage_pool": machine.FieldStoragePool, "vcpus": machine.FieldVCPUs, "memory_gib": machine.FieldMemory, "disk_gib": machine.FieldDisk,
		"cluster_id": machine.FieldCluster, "placement": machine.FieldPlacement, "placement.hosts": machine.FieldHosts,
	} {
		t.Run("puts a problem on "+attribute, func(t *testing.T) {
			w := newWorld(t, someTemplate())
			w.engine.problems = []cluster.Problem{{Field: field, Hypervisor: "hv-a", Err: machine.ErrNotFound}}
			wantDiags(t, w.plan(poolType, nil, poolConfig()).diags, "error at "+attribute+`: Unable to create node pool "workers"`, `Hypervisor "hv-a"`)
		})
	}
	for attribute, value := range map[string]any{"cluster_id": "11111111-d9cb-469f-a165-70867728950e", "name": "other"} {
		t.Run("replaces for "+attribute, func(t *testing.T) {
			w := newWorld(t, someTemplate())
			state := w.create(poolType, poolConfig())
			if p := w.plan(poolType, state, with(poolConfig(), object{attribute: value})); !slices.Equal(p.replaces, []string{attribute}) {
				t.Errorf("got %s because of %v", p.action(state), p.replaces)
			}
		})
	}
}

// A replacement that the user asks for is planned a second time as a create, when the pool of that name still stands.
func TestPoolReplacementKnowsWhatItReplaces(t *testing.T) {
	w := newWorld(t, someTemplate())
	state := w.create(poolType, poolConfig())
	w.engine.calls = nil
	first := w.plan(poolType, state, poolConfig())
	w.engine.problems = []cluster.Problem{
		{Field: machine.FieldName, Hypervisor: "hv-a", Err: errors.New("the pool exists")},
		{Field: machine.FieldName, Hypervisor: "hv-a", Err: fmt.Errorf("domain prod-workers-4 %w", machine.ErrForeign)},
	}
	second := w.plan(poolType, nil, poolConfig(), first.private...)
	wantDiags(t, second.diags, "error at name: ", "prod-workers-4")
	if len(second.diags) != 1 || len(w.engine.calls) != 1 || w.engine.lastPrior != nil {
		t.Errorf("asked %v with the nodes %v:\n%s", w.engine.calls, w.engine.lastPrior, render(second.diags))
	}
	// Under another name it meets a pool that stays.
	wantDiags(t, w.plan(poolType, nil, with(poolConfig(), object{"name": "other"}), first.private...).diags, "warning at name: ", "error at name: ")
}

// To the engine nil nodes are a new pool.
func TestPoolTellsNewFromEmpty(t *testing.T) {
	w := newWorld(t, someTemplate())
	state := w.create(poolType, with(poolConfig(), object{"node_count": 0}))
	if w.engine.lastPrior != nil {
		t.Errorf("a create has the nodes %v", w.engine.lastPrior)
	}
	for name, nodes := range map[string]any{"empty": object{}, "null": nil} {
		state = with(state, object{"nodes": nodes})
		p := w.plan(poolType, state, poolConfig())
		if w.engine.lastPrior == nil {
			t.Errorf("%s nodes: the review takes the pool for a new one", name)
		}
		if _, diags := w.apply(poolType, state, poolConfig(), p); w.engine.lastPrior == nil {
			t.Errorf("%s nodes: the update takes the pool for a new one\n%s", name, render(diags))
		}
	}
}

func TestPoolUpdateOfTheStateOnly(t *testing.T) {
	w := newWorld(t, someTemplate())
	state := w.create(poolType, poolConfig())
	config := with(poolConfig(), object{"timeouts": object{"update": "2h"}})
	p := w.plan(poolType, state, config)
	w.engine.calls = nil
	state, diags := w.apply(poolType, state, config, p)
	wantDiags(t, diags)
	if len(w.engine.calls) > 0 || p.action(state) != "no-op" {
		t.Errorf("the engine was asked %v; the state is %v", w.engine.calls, state)
	}
}

func TestPoolCreateFails(t *testing.T) {
	w := newWorld(t, someTemplate())
	p := w.plan(poolType, nil, poolConfig())
	w.engine.err, w.engine.nodes = errors.New("node prod-workers-3 did not join"), workers(2)
	state, diags := w.apply(poolType, nil, poolConfig(), p)
	wantDiags(t, diags, `Unable to create node pool "workers"`, "prod-workers-1 (ready), prod-workers-2 (ready)", "terraform untaint")
	if got := nodeNames(state); !slices.Equal(got, []string{"prod-workers-1", "prod-workers-2"}) {
		t.Errorf("the state has %v", got)
	}
	w.engine.err, w.engine.nodes = nil, nil
	p = w.plan(poolType, state, poolConfig())
	wantDiags(t, p.diags, "2 instead of 3")
	state, diags = w.apply(poolType, state, poolConfig(), p)
	wantDiags(t, diags)
	if len(w.engine.lastPrior) != 2 || len(nodeNames(state)) != 3 {
		t.Errorf("resumed with %v to %v", w.engine.lastPrior, nodeNames(state))
	}
}

func TestPoolCreateFailsBeforeAnythingExists(t *testing.T) {
	w := newWorld(t, someTemplate())
	p := w.plan(poolType, nil, poolConfig())
	w.engine.err, w.engine.nodes = errors.New("the cluster has no server"), cluster.Nodes{}
	state, diags := w.apply(poolType, nil, poolConfig(), p)
	wantDiags(t, diags, `Unable to create node pool "workers"`, "Nothing was made")
	if state != nil {
		t.Errorf("state: got %v, want none, so that nothing is tainted", state)
	}
}

func TestPoolUpdateFails(t *testing.T) {
	w := newWorld(t, someTemplate())
	state := w.create(poolType, poolConfig())
	config := with(poolConfig(), object{"node_count": 5})
	p := w.plan(poolType, state, config)
	w.engine.err, w.engine.nodes = errors.New("node prod-workers-5 did not join"), workers(4)
	state, diags := w.apply(poolType, state, config, p)
	wantDiags(t, diags, `Unable to update node pool "workers"`, "kept in the state")
	if len(nodeNames(state)) != 4 {
		t.Errorf("the state has %v", nodeNames(state))
	}
	wantDiags(t, w.plan(poolType, state, config).diags, "4 instead of 3: the rest is made")
	reverted := w.plan(poolType, state, poolConfig())
	if reverted.action(state) != "update" {
		t.Errorf("back to 3 nodes: the plan is %s", reverted.action(state))
	}
}

func TestPoolDeleteFails(t *testing.T) {
	w := newWorld(t, someTemplate())
	state := w.create(poolType, poolConfig())
	w.engine.err, w.engine.nodes = errors.New("hv-b does not answer"), workers(1)
	left, diags := w.apply(poolType, state, nil, planned{})
	wantDiags(t, diags, `Unable to delete node pool "workers"`)
	if got := nodeNames(left); !slices.Equal(got, []string{"prod-workers-1"}) {
		t.Errorf("the state has %v", got)
	}
	w.engine.err, w.engine.nodes = nil, nil
	if gone, diags := w.apply(poolType, left, nil, planned{}); gone != nil || failed(diags) {
		t.Errorf("after the second delete: %v\n%s", gone, render(diags))
	}
}

func TestPoolReadErrors(t *testing.T) {
	w := newWorld(t, someTemplate())
	state := w.create(poolType, poolConfig())
	w.engine.err = machine.ErrUnreachable
	after, diags := w.read(poolType, state)
	wantDiags(t, diags, `Unable to read node pool "workers"`)
	if after == nil {
		t.Error("an error has removed the pool from the state")
	}
	w.engine.err = fmt.Errorf("pool: %w", cluster.ErrGone)
	if after, diags = w.read(poolType, state); after != nil || failed(diags) {
		t.Errorf("a pool that is gone: %v\n%s", after, render(diags))
	}
}

func TestPoolImport(t *testing.T) {
	w := newWorld(t, someTemplate())
	w.engine.pool = cluster.PoolSpec{
		ClusterID: clusterID, Name: "workers", Nodes: 2,
		Shape: record.Shape{VCPUs: 4, MemoryMiB: 16384, DiskGiB: 80, StoragePool: "fast-ssd", Clone: record.Overlay},
	}
	state, diags := w.importState(poolType, "prod/workers")
	wantDiags(t, diags)
	config := with(poolConfig(), object{"node_count": 2, "vcpus": 4, "memory_gib": 16, "disk_gib": 80, "storage_pool": "fast-ssd"})
	p := w.plan(poolType, state, config)
	wantDiags(t, p.diags)
	if a := p.action(state); a != "no-op" || w.engine.calls[0] != "find pool prod/workers" {
		t.Errorf("import and plan of the same configuration is %s %v:\nstate %v\nplan  %v", a, p.replaces, state, p.state)
	}
	w.engine.err = errors.New(`"prod" does not name a node pool`)
	_, diags = w.importState(poolType, "prod")
	wantDiags(t, diags, `Unable to import node pool "prod"`)
}

// Scaling a pool leaves the cluster as it is, and what is configured from it known.
func TestScalingAPoolLeavesTheClusterAlone(t *testing.T) {
	w := newWorld(t, someTemplate())
	state := w.create(clusterType, clusterConfig())
	pool := w.create(poolType, poolConfig())
	config := with(poolConfig(), object{"node_count": 4})
	if _, diags := w.apply(poolType, pool, config, w.plan(poolType, pool, config)); failed(diags) {
		t.Fatal(render(diags))
	}
	state, _ = w.read(clusterType, state)
	if a := w.plan(clusterType, state, clusterConfig()).action(state); a != "no-op" {
		t.Errorf("the plan of the cluster is %s", a)
	}
}
