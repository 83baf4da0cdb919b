package provider

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
)

// What is configured for the guests of servers reaches the engine, and an import finds all but the texts that no record holds.
func TestServersWithEverything(t *testing.T) {
	config := with(servers(object{
		"server_args": []any{"--kube-apiserver-arg=v=2"}, "registries_yaml": registries, "extra_user_data": "packages: [nfs-common]\n",
	}), object{"deletion_protection": true})
	w := newFleet(t)
	state := w.create(clusterType, config)
	want := cluster.Extra{Args: []string{"--kube-apiserver-arg=v=2"}, Registries: registries, UserData: "packages: [nfs-common]\n"}
	if spec := w.engine.lastSpec; !reflect.DeepEqual(spec.Extra, want) || !spec.Settings.DeletionProtection {
		t.Errorf("the engine was given %+v", spec)
	}
	state, _ = w.read(clusterType, state)
	if a := w.plan(clusterType, state, config).action(state); a != "no-op" {
		t.Errorf("the same configuration is %s", a)
	}

	w.engine.cluster = w.engine.lastSpec
	w.engine.cluster.Extra.Registries, w.engine.cluster.Extra.UserData = "", ""
	state, diags := w.importState(clusterType, "prod")
	wantDiags(t, diags)
	wantState(t, state, object{"deletion_protection": true})
	p := w.plan(clusterType, state, config)
	wantDiags(t, p.diags)
	wantState(t, p.state, object{"nodes": state["nodes"], "api_url": state["api_url"], "status": state["status"], "control_plane": with(state["control_plane"].(object), object{
		"registries_yaml": registries, "extra_user_data": "packages: [nfs-common]\n",
	})})
	_, diags = w.apply(clusterType, state, config, p)
	wantDiags(t, diags)
}

// Changes of servers are in place or roll through them. While one is replaced whose address the URL has, that is not known.
func TestServersChange(t *testing.T) {
	const urlStays, urlOpen = "https://192.0.2.10:6443", "open"
	for name, tt := range map[string]struct {
		count    int
		endpoint any
		change   object
		changes  map[string]cluster.Change
		open     bool
		url      string
		want     []string
	}{
		"protection": {3, nil, object{}, map[string]cluster.Change{"prod-cp-1": cluster.Adjusted}, false, urlStays, nil},
		"arguments":  {3, nil, object{"server_args": []any{"--v=2"}}, map[string]cluster.Change{"prod-cp-1": cluster.Restarted}, false, urlStays, nil},
		"memory":     {3, nil, object{"memory_gib": 8}, map[string]cluster.Change{"prod-cp-1": cluster.Resized, "prod-cp-2": cluster.Resized}, true, urlStays, nil},
		"memory of the only one": {1, nil, object{"memory_gib": 8}, map[string]cluster.Change{"prod-cp-1": cluster.Resized}, true, urlStays,
			[]string{`warning at : The API of cluster "prod" will not answer for a while`, "prod-cp-1 is its only server"}},
		"storage pool": {3, nil, object{"storage_pool": "ssd"}, map[string]cluster.Change{"prod-cp-1": cluster.Replaced, "prod-cp-2": cluster.Replaced}, true, urlOpen,
			[]string{`warning at : Cluster "prod" replaces its nodes`, "prod-cp-1, prod-cp-2.", "one at a time.\n"}},
		"others alone": {3, nil, object{"storage_pool": "ssd"}, map[string]cluster.Change{"prod-cp-2": cluster.Replaced}, true, urlStays, []string{"prod-cp-2."}},
		"with an endpoint": {3, "k8s.example", object{"clone": "full"}, map[string]cluster.Change{"prod-cp-1": cluster.Replaced}, true, "https://k8s.example:6443",
			[]string{"prod-cp-1."}},
		"unknown user data": {3, nil, object{"extra_user_data": unknown}, nil, true, urlStays, nil},
		"unknown arguments": {3, nil, object{"server_args": unknown}, nil, false, urlStays, nil},
		"unknown shape":     {3, nil, object{"vcpus": unknown}, nil, true, urlStays, nil},
		"unknown pool":      {3, nil, object{"storage_pool": unknown}, nil, true, urlOpen, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFleet(t)
			config := func(changes object) object {
				return with(servers(with(object{"node_count": tt.count}, changes)), object{"endpoint": tt.endpoint})
			}
			state := w.create(clusterType, config(nil))
			w.engine.changes = tt.changes
			changed := with(config(tt.change), object{"deletion_protection": name == "protection"})
			p := w.plan(clusterType, state, changed)
			wantDiags(t, p.diags, tt.want...)
			if p.action(state) != "update" {
				t.Fatalf("the plan is %s %v", p.action(state), p.replaces)
			}
			wantNodes, wantURL := state["nodes"], any(tt.url)
			if tt.open {
				wantNodes = any(unknown)
			}
			if tt.url == urlOpen {
				wantURL = any(unknown)
			}
			wantState(t, p.state, object{"nodes": wantNodes, "api_url": wantURL, "id": state["id"]})
			if strings.HasPrefix(name, "unknown") {
				return
			}
			after, diags := w.apply(clusterType, state, changed, p)
			wantDiags(t, diags)
			if a := w.plan(clusterType, after, changed).action(after); a != "no-op" {
				t.Errorf("the next plan is %s", a)
			}
		})
	}
	t.Run("all unknown", func(t *testing.T) {
		w := newFleet(t)
		state := w.create(clusterType, clusterConfig())
		p := w.plan(clusterType, state, with(clusterConfig(), object{"control_plane": unknown}))
		wantDiags(t, p.diags)
		wantState(t, p.state, object{"nodes": unknown, "api_url": unknown, "id": state["id"]})
		if len(p.replaces) > 0 {
			t.Errorf("the plan replaces the cluster because of %v", p.replaces)
		}
	})
}

// A single server cannot be replaced: the engine says so on what would have to be changed.
func TestProblemsOfServersStandOnTheirAttributes(t *testing.T) {
	for at, field := range map[string]machine.Field{
		"storage_pool": machine.FieldStoragePool, "clone": machine.FieldClone, "disk_gib": machine.FieldDisk, "extra_user_data": machine.FieldUserData,
	} {
		w := newFleet(t)
		state := w.create(clusterType, clusterConfig())
		w.engine.problems = []cluster.Problem{{Field: field, Err: &cluster.Failure{Err: errors.New("the data of the cluster would be lost"), Remedy: "take it back."}}}
		wantDiags(t, w.plan(clusterType, state, servers(object{"storage_pool": "ssd"})).diags,
			"error at control_plane."+at+`: Unable to update cluster "prod"`, "The data of the cluster would be lost.", "What to do: take it back.")
	}
}

// Each VM of a cluster whose name is in use has a name that is in use, too; that is said once.
func TestNameInUseIsSaidOnce(t *testing.T) {
	w := newFleet(t)
	w.engine.problems = []cluster.Problem{
		{Field: machine.FieldName, Hypervisor: "hv-a", Err: errors.New("the VM prod-cp-1 belongs to another cluster")},
		{Field: machine.FieldName, Hypervisor: "hv-b", Err: errors.New("the VM prod-cp-2 belongs to another cluster")},
		{Field: machine.FieldName, Err: errors.New("a cluster named prod exists already")},
	}
	diags := w.plan(clusterType, nil, clusterConfig()).diags
	wantDiags(t, diags, `warning at name: The name of cluster "prod" is in use`, "A cluster named prod exists already.")
	if len(diags) != 1 {
		t.Errorf("%d diagnostics, want one:\n%s", len(diags), render(diags))
	}
	w.engine.problems = w.engine.problems[:2]
	if diags = w.plan(clusterType, nil, clusterConfig()).diags; len(diags) != 1 || !strings.Contains(render(diags), "prod-cp-1 belongs") {
		t.Errorf("want one diagnostic:\n%s", render(diags))
	}
}

// A protected cluster is neither destroyed nor replaced, whichever way that is asked for.
func TestDeletionProtection(t *testing.T) {
	w := newFleet(t)
	guarded := with(clusterConfig(), object{"deletion_protection": true})
	state := w.create(clusterType, guarded)
	wantDiags(t, w.planDestroy(clusterType, state), `error at deletion_protection: Unable to destroy cluster "prod"`, "deletion_protection is true", "What to do: ", "apply that first")

	for _, config := range []object{with(guarded, object{"network": "lab"}), with(clusterConfig(), object{"network": "lab"})} {
		wantDiags(t, w.plan(clusterType, state, config).diags, `error at deletion_protection: Unable to replace cluster "prod"`)
	}
	asked := w.plan(clusterType, state, guarded) // -replace
	wantDiags(t, asked.diags)
	wantDiags(t, w.plan(clusterType, nil, guarded, asked.private...).diags, `error at deletion_protection: Unable to replace cluster "prod"`)

	w.engine.calls = nil
	left, diags := w.apply(clusterType, state, nil, planned{})
	wantDiags(t, diags, `error at deletion_protection: Unable to delete cluster "prod"`)
	if left == nil || len(w.engine.calls) > 0 {
		t.Errorf("the state is %v; the engine was asked %v", left, w.engine.calls)
	}

	// It is taken off in place.
	p := w.plan(clusterType, state, clusterConfig())
	wantDiags(t, p.diags)
	wantState(t, p.state, object{"deletion_protection": false, "nodes": state["nodes"], "api_url": state["api_url"], "status": state["status"]})
	state, diags = w.apply(clusterType, state, clusterConfig(), p)
	wantDiags(t, diags)
	if w.engine.lastSpec.Settings.DeletionProtection {
		t.Error("the engine was not told")
	}
	wantDiags(t, w.planDestroy(clusterType, state))
	w.engine.nodes = cluster.Nodes{}
	if gone, diags := w.apply(clusterType, state, nil, planned{}); gone != nil || failed(diags) {
		t.Errorf("after the destroy: %v\n%s", gone, render(diags))
	}
}

// Nobody is left with a cluster that is broken and cannot be destroyed.
func TestProtectionOfBrokenClusters(t *testing.T) {
	guarded := with(clusterConfig(), object{"deletion_protection": true})
	w := newFleet(t)
	p := w.plan(clusterType, nil, guarded)
	w.engine.err = errors.New("no agent")
	state, _ := w.apply(clusterType, nil, guarded, p)
	wantState(t, state, object{"deletion_protection": false})
	wantDiags(t, w.planDestroy(clusterType, state))

	// Untainted and made to the end it is protected.
	w.engine.err = nil
	state, diags := w.apply(clusterType, state, guarded, w.plan(clusterType, state, guarded))
	wantDiags(t, diags)
	wantState(t, state, object{"deletion_protection": true})

	w.engine.err = errors.New("hv-a does not answer")
	state, _ = w.apply(clusterType, state, clusterConfig(), w.plan(clusterType, state, clusterConfig()))
	wantState(t, state, object{"deletion_protection": false})
	w.engine.err = nil
	w.engine.protected = true // The records still say so.
	state, diags = w.read(clusterType, state)
	wantDiags(t, diags)
	wantDiags(t, w.planDestroy(clusterType, state))
}

// planDestroy plans the end of a resource.
func (w *world) planDestroy(typeName string, prior object) []*tfprotov6.Diagnostic {
	w.t.Helper()
	typ := w.resourceType(typeName)
	null := w.encodeOrNull(typ, nil)
	resp, err := w.server.PlanResourceChange(w.t.Context(), &tfprotov6.PlanResourceChangeRequest{
		TypeName: typeName, Config: null, PriorState: w.encode(typ, prior), ProposedNewState: null,
	})
	w.must(err)
	return resp.Diagnostics
}

func TestClusterUpdateFailsInPart(t *testing.T) {
	w := newFleet(t)
	state := w.create(clusterType, servers(object{"registries_yaml": registries}))
	config := with(servers(object{"registries_yaml": "mirrors: {}\n", "server_args": []any{"--v=2"}}), object{"timeouts": object{"update": "2h"}})
	p := w.plan(clusterType, state, config)
	w.engine.err, w.engine.warnings = errors.New("k3s did not come back"), []error{errors.New("something else")}
	after, diags := w.apply(clusterType, state, config, p)
	wantDiags(t, diags, `warning at : Unable to update cluster "prod" as asked`, "Something else.", `error at : Unable to update cluster "prod"`)
	wantState(t, after, object{"control_plane": state["control_plane"], "timeouts": object{"create": nil, "read": nil, "update": "2h", "delete": nil}})
}

func TestTimeoutsOfClusters(t *testing.T) {
	w := newFleet(t)
	state := w.create(clusterType, clusterConfig())
	three := servers(object{"node_count": 3})
	w.apply(clusterType, state, three, w.plan(clusterType, state, three))
	if got, want := w.engine.lastTimeout, 3*110*time.Minute; got > want || got < want-time.Minute {
		t.Errorf("the update had %s, want %s", got, want)
	}
	if w.engine.lastWaits != cluster.WaitsWithin(75*time.Minute) {
		t.Errorf("the waits are %+v", w.engine.lastWaits)
	}
}

// A server whose making did not come to its end holds no data.
func TestLostServersAmongHalfMadeOnes(t *testing.T) {
	r, m, c := cluster.NodeReady, cluster.NodeMissing, cluster.NodeCreating
	const lost, safe = "With its last server the data of the cluster is lost.", "The cluster works on"
	for name, tt := range map[string]struct {
		states []cluster.NodeState
		want   string
	}{
		"none":                            {[]cluster.NodeState{r, r, c}, ""},
		"one of three":                    {[]cluster.NodeState{r, r, m}, safe},
		"the only one beside half-made":   {[]cluster.NodeState{m, c, c}, lost},
		"one of two beside a half-made":   {[]cluster.NodeState{r, m, c}, ""},
		"the only one":                    {[]cluster.NodeState{m}, lost},
		"half-made ones and nothing else": {[]cluster.NodeState{c}, ""},
	} {
		nodes := cluster.Nodes{}
		for i, s := range tt.states {
			nodes[fmt.Sprint(i)] = cluster.NodeStatus{State: s}
		}
		if got := lostServers(nodes); (got == "") != (tt.want == "") || !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}
