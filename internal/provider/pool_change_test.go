package provider

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

const registries = "mirrors:\n  docker.io: {}\n"

// fullPool is a pool with everything, and fullSpec what it means.
func fullPool() object {
	return pool(object{
		"node_count": 2, "vcpus": 4, "memory_gib": 16, "disk_gib": 80, "storage_pool": "ssd", "clone": "full",
		"data_disk":        object{"size_gib": 100, "storage_pool": "hdd", "mount_path": "/srv/data"},
		"placement":        object{"strategy": "manual", "hosts": []any{"hv-a", "hv-b"}},
		"host_devices":     object{"hv-a": []any{"0000:65:00.0"}, "hv-b": []any{"0000:b3:00.0"}},
		"labels":           object{"tier": "web", "example.com/rack": ""},
		"taints":           []any{object{"key": "dedicated", "value": "db", "effect": "NoSchedule"}, object{"key": "soft", "effect": "PreferNoSchedule"}},
		"drain":            object{"timeout": "5m", "grace_period_seconds": 0, "on_timeout": "force", "on_destroy": false},
		"upgrade_settings": object{"max_surge": 0, "max_unavailable": 2},
		"repair":           object{"not_ready_after": "1h", "max_unhealthy": 0},
		"remove_first":     []any{"workers-1"},
		"agent_args":       []any{"--kubelet-arg=max-pods=50"},
		"registries_yaml":  registries,
		"extra_user_data":  "packages: [nfs-common]\n",
	})
}

func fullSpec() cluster.PoolSpec {
	grace := 0
	return cluster.PoolSpec{
		ClusterID: clusterID, Name: "workers", Nodes: 2,
		Shape: record.Shape{
			VCPUs: 4, MemoryMiB: 16384, DiskGiB: 80, StoragePool: "ssd", Clone: record.Full,
			Data: record.DataDisk{SizeGiB: 100, StoragePool: "hdd", MountPath: "/srv/data"},
		},
		Placement:   record.Placement{Strategy: record.Manual, Hosts: []string{"hv-a", "hv-b"}},
		HostDevices: map[string][]string{"hv-a": {"0000:65:00.0"}, "hv-b": {"0000:b3:00.0"}},
		Labels:      map[string]string{"tier": "web", "example.com/rack": ""},
		Taints:      []record.Taint{{Key: "dedicated", Value: "db", Effect: "NoSchedule"}, {Key: "soft", Effect: "PreferNoSchedule"}},
		Drain:       record.Drain{TimeoutSeconds: 300, GraceSeconds: &grace, Force: true, KeepOnDestroy: true},
		Upgrade:     record.Upgrade{MaxUnavailable: 2},
		Repair:      record.Repair{NotReadySeconds: 3600},
		RemoveFirst: []string{"workers-1"},
		Extra:       cluster.Extra{Args: []string{"--kubelet-arg=max-pods=50"}, Registries: registries, UserData: "packages: [nfs-common]\n"},
	}
}

// Everything that is configured reaches the engine, and comes back from it as it was written.
func TestPoolWithEverything(t *testing.T) {
	w := newFleet(t)
	wantDiags(t, w.validate(poolType, fullPool()))
	state := w.create(poolType, fullPool())
	want := fullSpec()
	want.Assignment = cluster.Assignment{"workers-1": "hv-a", "workers-2": "hv-b"}
	if !reflect.DeepEqual(w.engine.lastPool, want) {
		t.Errorf("the engine was given\n%+v, want\n%+v", w.engine.lastPool, want)
	}
	wantState(t, state, object{"footprint": object{"hv-a": takes(4, 16, 180), "hv-b": takes(4, 16, 180)}})
	state, diags := w.read(poolType, state)
	wantDiags(t, diags)
	w.engine.calls = nil
	if p := w.plan(poolType, state, fullPool()); p.action(state) != "no-op" || len(p.diags) > 0 || len(w.engine.calls) > 0 {
		t.Errorf("the same configuration is %s, asks %v:\n%s", p.action(state), w.engine.calls, render(p.diags))
	}
}

// An import finds all but what no record holds; the plan of the same configuration brings that into the state alone.
func TestPoolImportWithEverything(t *testing.T) {
	w := newFleet(t)
	w.engine.pool = fullSpec()
	w.engine.pool.Extra.Registries, w.engine.pool.Extra.UserData, w.engine.pool.RemoveFirst = "", "", nil
	state, diags := w.importState(poolType, "prod/workers")
	wantDiags(t, diags)
	wantState(t, state, object{"registries_yaml": nil, "extra_user_data": nil, "remove_first": nil})
	inRecords := with(fullPool(), object{"registries_yaml": nil, "extra_user_data": nil, "remove_first": nil})
	if p := w.plan(poolType, state, inRecords); p.action(state) != "no-op" {
		t.Errorf("import and plan is %s %v:\nstate %v\nplan  %v", p.action(state), p.replaces, state, p.state)
	}
	p := w.plan(poolType, state, fullPool())
	wantDiags(t, p.diags)
	wantState(t, p.state, object{"nodes": state["nodes"], "assignment": state["assignment"], "footprint": state["footprint"]})
	after, diags := w.apply(poolType, state, fullPool(), p)
	wantDiags(t, diags)
	wantState(t, after, object{"registries_yaml": registries, "remove_first": []any{"workers-1"}})
}

// Wishes that can be written in several ways stay as they are written, and no plan finds a change in them.
func TestPoolWithTheSameSaidOtherwise(t *testing.T) {
	for name, config := range map[string]object{
		"empty":         {"labels": object{}, "taints": []any{}, "remove_first": []any{}, "agent_args": []any{}, "host_devices": object{}, "extra_user_data": "", "drain": object{}, "upgrade_settings": object{}, "repair": object{}},
		"lengths":       {"drain": object{"timeout": "90m"}, "repair": object{"not_ready_after": "3600s"}},
		"empty values":  {"taints": []any{object{"key": "a", "value": "", "effect": "NoSchedule"}}, "labels": object{"a": ""}},
		"a data disk":   {"storage_pool": "ssd", "data_disk": object{"size_gib": 10}},
		"a part of one": {"upgrade_settings": object{"max_unavailable": 1}, "drain": object{"on_destroy": false}, "repair": object{"max_unhealthy": 3}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFleet(t)
			state := w.create(poolType, pool(config))
			state, diags := w.read(poolType, state)
			wantDiags(t, diags)
			if p := w.plan(poolType, state, pool(config)); p.action(state) != "no-op" {
				t.Errorf("the plan is %s:\nstate %v\nplan  %v", p.action(state), state, p.state)
			}
		})
	}
	w := newFleet(t)
	state := w.create(poolType, pool(object{"storage_pool": "ssd", "data_disk": object{"size_gib": 10}}))
	wantState(t, state, object{"data_disk": object{"size_gib": 10, "storage_pool": "ssd", "mount_path": "/data"}})
	p := w.plan(poolType, state, pool(object{"storage_pool": "hdd", "data_disk": object{"size_gib": 10}}))
	wantState(t, p.state, object{"data_disk": object{"size_gib": 10, "storage_pool": "hdd", "mount_path": "/data"}})
}

// What changes in place, and what the plan leaves open meanwhile.
func TestPoolChanges(t *testing.T) {
	all := func(c cluster.Change) map[string]cluster.Change {
		return map[string]cluster.Change{"prod-workers-1": c, "prod-workers-2": c, "prod-workers-3": c}
	}
	for name, tt := range map[string]struct {
		change object
		// changes are what the review says.
		changes map[string]cluster.Change
		open    bool
		calls   []string
		want    []string
	}{
		"labels":            {object{"labels": object{"tier": "web"}}, all(cluster.Adjusted), false, []string{"check pool"}, nil},
		"taints":            {object{"taints": []any{object{"key": "a", "effect": "NoSchedule"}}}, all(cluster.Adjusted), false, []string{"check pool"}, nil},
		"drain":             {object{"drain": object{"timeout": "1m"}}, all(cluster.Adjusted), false, []string{"check pool"}, nil},
		"upgrade settings":  {object{"upgrade_settings": object{"max_unavailable": 1}}, all(cluster.Adjusted), false, []string{"check pool"}, nil},
		"repair":            {object{"repair": object{"max_unhealthy": 2}}, all(cluster.Adjusted), false, []string{"check pool"}, nil},
		"arguments":         {object{"agent_args": []any{"--kubelet-arg=max-pods=50"}}, all(cluster.Restarted), false, []string{"check pool"}, nil},
		"registries":        {object{"registries_yaml": registries}, all(cluster.Restarted), false, []string{"check pool"}, nil},
		"CPUs":              {object{"vcpus": 4}, all(cluster.Resized), true, []string{"check pool"}, nil},
		"disk":              {object{"disk_gib": 80}, all(cluster.Resized), true, []string{"check pool"}, nil},
		"smaller disk":      {object{"disk_gib": 20}, all(cluster.Replaced), true, []string{"check pool"}, replacesWorkers},
		"storage pool":      {object{"storage_pool": "ssd"}, all(cluster.Replaced), true, []string{"check pool"}, replacesWorkers},
		"clone":             {object{"clone": "full"}, all(cluster.Replaced), true, []string{"check pool"}, replacesWorkers},
		"data disk":         {object{"data_disk": object{"size_gib": 10}}, all(cluster.Replaced), true, []string{"check pool"}, replacesWorkers},
		"user data":         {object{"extra_user_data": "packages: [nfs-common]"}, all(cluster.Replaced), true, []string{"check pool"}, replacesWorkers},
		"unknown labels":    {object{"labels": unknown}, nil, false, []string{"check pool"}, nil},
		"unknown user data": {object{"extra_user_data": unknown}, nil, true, []string{"check pool"}, nil},
		"unknown repair":    {object{"repair": unknown}, nil, true, []string{"check pool"}, nil},
		"who goes first":    {object{"remove_first": []any{"workers-1"}}, nil, false, nil, nil},
		"timeouts":          {object{"timeouts": object{"update": "2h"}}, nil, false, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFleet(t)
			state := w.create(poolType, poolConfig())
			config := pool(tt.change)
			w.engine.calls, w.engine.changes = nil, tt.changes
			p := w.plan(poolType, state, config)
			wantDiags(t, p.diags, tt.want...)
			if p.action(state) != "update" || !slices.Equal(w.engine.calls, tt.calls) {
				t.Errorf("the plan is %s %v, and asks %v", p.action(state), p.replaces, w.engine.calls)
			}
			wantNodes := state["nodes"]
			if tt.open {
				wantNodes = any(unknown)
			}
			wantState(t, p.state, object{"nodes": wantNodes, "assignment": state["assignment"]})
			if name == "data disk" {
				wantState(t, p.state, object{"footprint": object{"hv-a": takes(2, 4, 50), "hv-b": takes(2, 4, 50), "hv-c": takes(2, 4, 50)}})
			}
			if p.action(state) != "update" || strings.HasPrefix(name, "unknown") {
				return
			}
			after, diags := w.apply(poolType, state, config, p)
			wantDiags(t, diags)
			if applied := slices.Contains(w.engine.calls, "apply pool"); applied != (tt.calls != nil) {
				t.Errorf("the engine was asked %v", w.engine.calls)
			}
			if a := w.plan(poolType, after, config).action(after); a != "no-op" {
				t.Errorf("the next plan is %s", a)
			}
		})
	}
}

var replacesWorkers = []string{
	`warning at : Node pool "workers" replaces its nodes`, "prod-workers-1, prod-workers-2, prod-workers-3.", "replaced one at a time, once an extra node stands in for them.", "is lost: ", "data disks",
}

func TestReplacementTellsHowMany(t *testing.T) {
	w := newFleet(t)
	state := w.create(poolType, poolConfig())
	w.engine.changes = map[string]cluster.Change{"prod-workers-3": cluster.Replaced, "prod-workers-1": cluster.Replaced, "prod-workers-2": cluster.Adjusted}
	p := w.plan(poolType, state, pool(object{"clone": "full", "upgrade_settings": object{"max_surge": 3, "max_unavailable": 2}}))
	wantDiags(t, p.diags, "the name of: prod-workers-1, prod-workers-3.", "up to 5 at a time, once 2 extra nodes stand in")
	for unavailable, want := range map[int]string{1: "They are replaced one at a time.\n", 2: "They are replaced up to 2 at a time; the first of them goes alone.\n"} {
		p = w.plan(poolType, state, pool(object{"clone": "full", "upgrade_settings": object{"max_surge": 0, "max_unavailable": unavailable}}))
		wantDiags(t, p.diags, want)
	}
}

// Nodes that were made from another template are drifted; what becomes of them the review knows.
func TestDriftedNodesAreReplaced(t *testing.T) {
	w := newFleet(t)
	state := w.create(poolType, poolConfig())
	w.engine.states = map[string]cluster.NodeState{"prod-workers-2": cluster.NodeDrifted}
	state, _ = w.read(poolType, state)
	w.engine.changes = map[string]cluster.Change{"prod-workers-2": cluster.Replaced}
	p := w.plan(poolType, state, poolConfig())
	wantDiags(t, p.diags, `warning at : Node pool "workers" has drifted`, `prod-workers-2 on hypervisor "hv-b" is drifted (for a test): a new node takes its place`,
		`warning at : Node pool "workers" replaces its nodes`, "prod-workers-2.")
	if p.state["nodes"] != any(unknown) {
		t.Errorf("nodes: got %v", p.state["nodes"])
	}
}

// New VMs are cloned from a template, be it in the place of others.
func TestChangesThatNeedATemplate(t *testing.T) {
	state := newWorld(t, someTemplate()).create(poolType, poolConfig())
	for name, tt := range map[string]struct {
		config object
		change cluster.Change
		want   []string
	}{
		"replaced":                {object{"clone": "full"}, cluster.Replaced, []string{"replaces its nodes", `error at : Unable to update node pool "workers"`, "names no template"}},
		"resized":                 {object{"vcpus": 4, "upgrade_settings": object{"max_surge": 0, "max_unavailable": 1}}, cluster.Resized, nil},
		"resized, with stand-ins": {object{"vcpus": 4}, cluster.Resized, []string{`error at : Unable to update node pool "workers"`, "names no template"}},
		"restarted":               {object{"agent_args": []any{"--v=2"}}, cluster.Restarted, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, object{})
			w.engine.changes = map[string]cluster.Change{"prod-workers-1": tt.change}
			wantDiags(t, w.plan(poolType, state, pool(tt.config)).diags, tt.want...)
		})
	}
}

// While the provider is not known, nobody can tell what becomes of nodes; labels alone alter none.
func TestPoolChangesWhileProviderIsUnknown(t *testing.T) {
	state := newFleet(t).create(poolType, poolConfig())
	w := newWorld(t, with(someTemplate(), object{"hypervisors": object{"a": object{"uri": unknown}}}))
	for name, tt := range map[string]struct {
		change object
		open   bool
	}{
		"labels": {object{"labels": object{"a": "b"}}, false},
		"args":   {object{"agent_args": []any{"--v=2"}}, false},
		"shape":  {object{"vcpus": 4}, true},
		"data":   {object{"data_disk": object{"size_gib": 1}}, true},
		"user":   {object{"extra_user_data": "packages: [a]"}, true},
	} {
		p := w.plan(poolType, state, pool(tt.change))
		wantDiags(t, p.diags)
		for _, attribute := range []string{"nodes", "assignment", "footprint"} {
			if open := p.state[attribute] == any(unknown); open != tt.open {
				t.Errorf("%s: %s is open: %t", name, attribute, open)
			}
		}
	}
}

func TestProblemsOfPoolsStandOnTheirAttributes(t *testing.T) {
	for at, field := range map[string]machine.Field{
		"clone": machine.FieldClone, "data_disk.size_gib": machine.FieldDataDisk, "data_disk.storage_pool": machine.FieldDataPool,
		"host_devices": machine.FieldHostDevices, "upgrade_settings": machine.FieldUpgrade, "extra_user_data": machine.FieldUserData,
	} {
		w := newFleet(t)
		state := w.create(poolType, fullPool())
		w.engine.problems = []cluster.Problem{{Field: field, Hypervisor: "hv-a", Err: machine.ErrNotFound}}
		wantDiags(t, w.plan(poolType, state, with(fullPool(), object{"labels": nil})).diags, "error at "+at+`: Unable to update node pool "workers"`, `Hypervisor "hv-a"`)
	}
	w := newFleet(t)
	wantDiags(t, w.plan(poolType, nil, with(fullPool(), object{"host_devices": object{"hv-a": []any{"0000:65:00.0"}, "hv-b": []any{"0000:b3:00.0"}, "hv-x": []any{"0000:b3:00.0"}}})).diags,
		`error at host_devices.hv-x: Unable to create node pool "workers"`, `There is no hypervisor "hv-x"`)
}

// After an update that failed the state has what was done, and the next plan shows the rest.
func TestPoolUpdateFailsInPart(t *testing.T) {
	w := newFleet(t)
	state := w.create(poolType, pool(object{"registries_yaml": registries, "labels": object{}}))
	config := pool(object{
		"registries_yaml": "mirrors: {}\n", "vcpus": 4, "labels": object{"tier": "web"}, "timeouts": object{"update": "2h"}, "remove_first": []any{"workers-1"},
	})
	p := w.plan(poolType, state, config)
	told := w.engine.lastPool // The labels were given, and then something failed.
	told.Shape.VCPUs, told.Extra.Registries = 2, registries
	w.engine.told, w.engine.err, w.engine.warnings = &told, errors.New("node prod-workers-2 did not come back"), []error{errors.New("node prod-workers-1 went without a drain")}
	state, diags := w.apply(poolType, state, config, p)
	wantDiags(t, diags, `warning at : Unable to update node pool "workers" as asked`, "Node prod-workers-1 went without a drain.",
		`error at : Unable to update node pool "workers"`, "Node prod-workers-2 did not come back.", "kept in the state")
	wantState(t, state, object{
		"labels": object{"tier": "web"}, "vcpus": 2, "registries_yaml": registries, "timeouts": object{"create": nil, "read": nil, "update": "2h", "delete": nil}, "remove_first": []any{"workers-1"},
	})
}

func TestPoolWarnings(t *testing.T) {
	w := newFleet(t)
	p := w.plan(poolType, nil, poolConfig())
	w.engine.warnings = []error{
		errors.New("first"), &cluster.Failure{Err: errors.New("second"), Cause: "a budget.", Remedy: "make room."},
	}
	text := []string{"First.", "Second.", "Likely cause: a budget.", "What to do: make room."}
	state, diags := w.apply(poolType, nil, poolConfig(), p)
	wantDiags(t, diags, append([]string{`warning at : Unable to create node pool "workers" as asked`}, text...)...)
	config := pool(object{"labels": object{"a": "b"}})
	state, diags = w.apply(poolType, state, config, w.plan(poolType, state, config))
	wantDiags(t, diags, append([]string{`warning at : Unable to update node pool "workers" as asked`}, text...)...)
	state, diags = w.apply(poolType, state, nil, planned{})
	wantDiags(t, diags, append([]string{`warning at : Unable to delete node pool "workers" as asked`}, text...)...)
	if state != nil || len(diags) != 1 {
		t.Errorf("after the delete the state has %v", state)
	}
}

// The defaults hold the waits inside: each batch of a rolling change with its drain, and the drains of a destroy.
func TestTimeoutsOfPools(t *testing.T) {
	w := newFleet(t)
	near := func(what string, want time.Duration) {
		t.Helper()
		if got := w.engine.lastTimeout; got > want || got < want-time.Minute {
			t.Errorf("%s had %s, want %s", what, got, want)
		}
	}
	config := pool(object{"node_count": 5, "drain": object{"timeout": "10m"}, "upgrade_settings": object{"max_surge": 1, "max_unavailable": 1}})
	state := w.create(poolType, config)
	near("the create", 75*time.Minute)
	smaller := with(config, object{"node_count": 2})
	state, _ = w.apply(poolType, state, smaller, w.plan(poolType, state, smaller))
	near("the update of five nodes, two at a time", 75*time.Minute+5*30*time.Minute)
	if w.engine.lastWaits != cluster.WaitsWithin(75*time.Minute) {
		t.Errorf("the update had the waits %+v", w.engine.lastWaits)
	}
	w.apply(poolType, state, nil, planned{})
	near("the destroy", 30*time.Minute)
	state = w.create(poolType, with(config, object{"drain": object{"timeout": "10m", "on_destroy": false}}))
	w.apply(poolType, state, nil, planned{})
	near("the destroy without drains", 20*time.Minute)
}

func TestWaitsScaleWithTheTimeout(t *testing.T) {
	const h = cluster.DefaultCreateTimeout
	for name, tt := range map[string]struct {
		span    span
		timeout time.Duration
		want    time.Duration
	}{
		"create":                      {createSpan(1), h, h},
		"short create":                {createSpan(1), h / 2, h / 2},
		"long create":                 {createSpan(1), 3 * h, 3 * h},
		"three servers":               {createSpan(3), 3 * h, h},
		"three servers, short":        {createSpan(3), h, h / 3},
		"rolling change":              {updateSpan(1, 3, h/2-roundTime), 5 * h / 2, h},
		"rolling change, less":        {updateSpan(1, 3, h/2-roundTime), h, h},
		"rolling change, short":       {updateSpan(1, 3, h/2-roundTime), h / 2, h / 2},
		"rolling change, twice":       {updateSpan(1, 3, h/2-roundTime), 5 * h, 2 * h},
		"destroy":                     {deleteSpan(0), h / 3, h / 3},
		"destroy, which has no waits": {deleteSpan(3*h/2 - cluster.DefaultDeleteTimeout), 2 * h, h * 4 / 3},
	} {
		want := cluster.WaitsWithin(tt.want)
		if got := tt.span.waits(tt.timeout); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}
