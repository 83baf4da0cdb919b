package provider

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/k3s"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

func TestClusterLife(t *testing.T) {
	w := newWorld(t, someTemplate())
	config := with(clusterConfig(), object{"ssh_authorized_keys": []any{sshKey}})
	state := w.create(clusterType, config)

	spec := w.engine.lastSpec
	want := cluster.Spec{
		ID: spec.ID, Name: "prod", Servers: 1,
		Settings: record.Cluster{
			K3sVersion: "v1.36.1+k3s1", Network: "default", SSHAuthorizedKeys: []string{sshKey},
			CNI: record.CNI{Plugin: record.Flannel, Routing: record.VXLAN, PodCIDR: "10.42.0.0/16", ServiceCIDR: "10.43.0.0/16"},
			CSI: record.CSI{LocalPath: &record.LocalPath{Path: "/opt/local-path-provisioner"}, DefaultClass: record.LocalPathClass},
		},
		Shape:      record.Shape{VCPUs: 2, MemoryMiB: 4096, DiskGiB: 40, StoragePool: "default", Clone: record.Overlay},
		Placement:  record.Placement{Strategy: record.Auto, AntiAffinity: record.Required},
		Assignment: cluster.Assignment{"cp-1": "default"},
	}
	if !reflect.DeepEqual(spec, want) {
		t.Errorf("the engine was given %+v, want %+v", spec, want)
	}
	if len(spec.ID) != 36 || state["id"] != spec.ID {
		t.Errorf("id: got %v in the state, %q in the spec", state["id"], spec.ID)
	}
	if state["api_url"] != "https://192.0.2.10:6443" || state["status"] != "active" {
		t.Errorf("api_url %v, status %v", state["api_url"], state["status"])
	}
	node := state["nodes"].(object)["prod-cp-1"].(object)
	if node["role"] != "server" || node["state"] != "ready" || node["hypervisor"] != "default" || node["reason"] != nil {
		t.Errorf("node: got %v", node)
	}

	refreshed, diags := w.read(clusterType, state)
	wantDiags(t, diags)
	w.engine.calls = nil
	p := w.plan(clusterType, refreshed, config)
	wantDiags(t, p.diags)
	if a := p.action(state); a != "no-op" {
		t.Errorf("the same configuration plans %s: %v", a, p.state)
	}
	if len(w.engine.calls) > 0 {
		t.Errorf("a plan without changes asks %v", w.engine.calls)
	}

	w.engine.nodes = cluster.Nodes{}
	gone, diags := w.apply(clusterType, refreshed, nil, planned{})
	wantDiags(t, diags)
	if gone != nil || len(w.engine.lastPrior) != 1 || w.engine.lastSpec.ID != spec.ID {
		t.Errorf("after the delete: state %v, prior nodes %v, id %q", gone, w.engine.lastPrior, w.engine.lastSpec.ID)
	}
}

func TestClusterNetworkDefault(t *testing.T) {
	for name, tt := range map[string]struct{ config, want object }{
		"neither":        {object{}, object{"network": "default", "bridge": nil}},
		"network":        {object{"network": "lab"}, object{"network": "lab", "bridge": nil}},
		"bridge":         {object{"bridge": "br0"}, object{"network": nil, "bridge": "br0"}},
		"unknown bridge": {object{"bridge": unknown}, object{"network": unknown, "bridge": unknown}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, someTemplate())
			p := w.plan(clusterType, nil, with(clusterConfig(), tt.config))
			wantDiags(t, p.diags)
			for attribute, want := range tt.want {
				if got := p.state[attribute]; got != want {
					t.Errorf("%s: got %v, want %v", attribute, got, want)
				}
			}
		})
	}
}

func TestClusterPlanPutsProblemsOnAttributes(t *testing.T) {
	for name, tt := range map[string]struct {
		provider, config object
		problem          cluster.Problem
		want             []string
	}{
		"network": {someTemplate(), clusterConfig(),
			cluster.Problem{Field: machine.FieldNetwork, Hypervisor: "hv-a", Err: fmt.Errorf(`network "default": %w`, machine.ErrNotFound)},
			[]string{`error at network: Unable to create cluster "prod"`, `Hypervisor "hv-a": network "default": not found.`}},
		"bridge": {someTemplate(), with(clusterConfig(), object{"bridge": "br0"}),
			cluster.Problem{Field: machine.FieldBridge, Hypervisor: "hv-a", Err: machine.ErrNotFound}, []string{"error at bridge: "}},
		"storage pool": {someTemplate(), clusterConfig(),
			cluster.Problem{Field: machine.FieldStoragePool, Hypervisor: "hv-a", Err: machine.ErrNotFound}, []string{"error at control_plane.storage_pool: ", "The attribute is control_plane.storage_pool."}},
		"disk": {someTemplate(), clusterConfig(),
			cluster.Problem{Field: machine.FieldDisk, Hypervisor: "hv-a", Err: errors.New("smaller than the template")}, []string{"error at control_plane.disk_gib: "}},
		"CPUs": {someTemplate(), clusterConfig(),
			cluster.Problem{Field: machine.FieldVCPUs, Err: errors.New("no hypervisor has 2 virtual CPUs left")}, []string{"error at control_plane.vcpus: ", "No hypervisor has"}},
		"memory": {someTemplate(), clusterConfig(),
			cluster.Problem{Field: machine.FieldMemory, Err: errors.New("too little")}, []string{"error at control_plane.memory_gib: "}},
		"anti-affinity": {someTemplate(), clusterConfig(),
			cluster.Problem{Field: machine.FieldPlacement, Err: errors.New(`2 hypervisors for 3 servers`)}, []string{"error at control_plane.placement: "}},
		"hypervisor of a manual placement": {someTemplate(), clusterConfig(),
			cluster.Problem{Field: machine.FieldHosts, Err: errors.New("not schedulable")}, []string{"error at control_plane.placement.hosts: ", "The attribute is control_plane.placement.hosts."}},
		"foreign VM of the name": {someTemplate(), clusterConfig(),
			cluster.Problem{Field: machine.FieldName, Hypervisor: "hv-a", Err: fmt.Errorf("domain prod-cp-1 %w", machine.ErrForeign)}, []string{"error at name: "}},
		"cluster of the name, which may be tainted": {someTemplate(), clusterConfig(),
			cluster.Problem{Field: machine.FieldName, Hypervisor: "hv-a", Err: errors.New("a cluster named prod exists")},
			[]string{`warning at name: The name of cluster "prod" is in use`, "the apply will fail"}},
		"template": {someTemplate(), clusterConfig(),
			cluster.Problem{Field: machine.FieldTemplate, Hypervisor: "hv-a", Err: machine.ErrNotFound},
			[]string{`error at : Unable to create cluster "prod"`, `provider "cockpit" block`}},
		"hypervisor that does not answer": {someTemplate(), clusterConfig(),
			cluster.Problem{Field: machine.FieldHypervisor, Hypervisor: "hv-a", Err: fmt.Errorf("dial: %w", machine.ErrUnreachable)},
			[]string{`warning at : The plan of cluster "prod" could not be checked against hypervisor "hv-a"`, `Hypervisor "hv-a": dial`, "during the apply"}},
		"no template": {object{}, clusterConfig(), cluster.Problem{},
			[]string{`error at : Unable to create cluster "prod"`, "names no template", "What to do: ", `provider "cockpit" block`}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tt.provider)
			w.engine.problems = []cluster.Problem{tt.problem}
			wantDiags(t, w.plan(clusterType, nil, tt.config).diags, tt.want...)
		})
	}
}

// What is needed for the review comes from elsewhere: it moves to apply.
func TestClusterPlanDefersReview(t *testing.T) {
	for _, attribute := range []string{"name", "network", "control_plane"} {
		t.Run(attribute, func(t *testing.T) {
			w := newWorld(t, someTemplate())
			wantDiags(t, w.plan(clusterType, nil, with(clusterConfig(), object{attribute: unknown})).diags)
			if len(w.engine.calls) > 0 {
				t.Errorf("the engine was asked: %v", w.engine.calls)
			}
		})
	}
	t.Run("but not for what it does not look at", func(t *testing.T) {
		w := newWorld(t, someTemplate())
		wantDiags(t, w.plan(clusterType, nil, with(clusterConfig(), object{"k3s_version": unknown, "ssh_authorized_keys": unknown})).diags)
		if len(w.engine.calls) != 1 {
			t.Errorf("the engine was asked: %v, want one review", w.engine.calls)
		}
	})
}

func TestClusterChanges(t *testing.T) {
	for name, tt := range map[string]struct {
		change   object
		action   string
		replaces string
	}{
		"keys":                   {object{"ssh_authorized_keys": []any{sshKey}}, "update", ""},
		"timeouts":               {object{"timeouts": object{"create": "2h"}}, "update", ""},
		"name":                   {object{"name": "other"}, "replace", "name"},
		"network":                {object{"network": "lab"}, "replace", "network"},
		"bridge":                 {object{"bridge": "br0"}, "replace", "bridge"},
		"protection":             {object{"deletion_protection": true}, "update", ""},
		"arguments":              {object{"control_plane": object{"server_args": []any{"--kubelet-arg=max-pods=50"}}}, "update", ""},
		"names":                  {object{"tls_sans": []any{"k8s.example"}}, "update", ""},
		"placement":              {object{"control_plane": object{"placement": object{"anti_affinity": "preferred"}}}, "update", ""},
		"manual placement":       {object{"control_plane": object{"placement": object{"strategy": "manual", "hosts": []any{"default"}}}}, "update", ""},
		"the default said aloud": {object{"control_plane": object{"vcpus": 2, "placement": object{"strategy": "auto"}}, "network": "default"}, "no-op", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, someTemplate())
			state := w.create(clusterType, clusterConfig())
			config := with(clusterConfig(), tt.change)
			p := w.plan(clusterType, state, config)
			wantDiags(t, p.diags)
			if a := p.action(state); a != tt.action || !strings.Contains(strings.Join(p.replaces, " "), tt.replaces) {
				t.Errorf("got %s %v, want %s because of %q", a, p.replaces, tt.action, tt.replaces)
			}
			if tt.action == "replace" {
				return
			}
			for _, attribute := range []string{"id", "api_url", "status", "conditions", "nodes", "assignment", "footprint"} {
				if at := contradiction(attribute, state[attribute], p.state[attribute]); at != "" {
					t.Errorf("the plan alters %s", at)
				}
			}
			// The engine may find more than was planned; the state holds what was planned until the next refresh.
			w.engine.nodes = but(nodesNamed("prod", "cp", record.Server, 1), "prod-cp-1", cluster.NodeNotReady)
			w.engine.addons = cluster.AddonStatuses{cluster.LocalPath: {Version: "9.9.9", State: cluster.AddonDeployed}}
			_, diags := w.apply(clusterType, state, config, p)
			wantDiags(t, diags)
		})
	}
}

func TestClusterVersionChangeIsAnError(t *testing.T) {
	w := newWorld(t, someTemplate())
	state := w.create(clusterType, clusterConfig())
	p := w.plan(clusterType, state, with(clusterConfig(), object{"k3s_version": "v1.36.2+k3s1"}))
	wantDiags(t, p.diags, `error at k3s_version: Unable to change k3s_version of cluster "prod"`, "was made with v1.36.1+k3s1", "What to do: ")
	if len(p.replaces) > 0 {
		t.Errorf("the plan replaces the cluster because of %v", p.replaces)
	}
}

func TestClusterPlanLooksTheVersionUp(t *testing.T) {
	known := releaseList(t, "v1.36.2+k3s1", "v1.36.1+k3s1", "v1.35.5+k3s1")
	embedded := known
	embedded.Source = k3s.SourceEmbedded
	for name, tt := range map[string]struct {
		list    k3s.ReleaseList
		err     error
		version any
		want    []string
	}{
		"listed": {known, nil, "v1.36.1+k3s1", nil},
		"not listed": {known, nil, "v1.36.1+k3s7",
			[]string{"warning at k3s_version: The list of k3s releases has no v1.36.1+k3s7", "v1.36.2+k3s1, v1.36.1+k3s1."}},
		"unknown":            {known, nil, unknown, nil},
		"only embedded list": {embedded, nil, "v1.36.1+k3s7", nil},
		"no list":            {known, context.Canceled, "v1.36.1+k3s7", nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, someTemplate())
			w.releases.list, w.releases.err = tt.list, tt.err
			wantDiags(t, w.plan(clusterType, nil, with(clusterConfig(), object{"k3s_version": tt.version})).diags, tt.want...)
		})
	}
	t.Run("and not for a cluster that exists", func(t *testing.T) {
		w := newWorld(t, someTemplate())
		config := with(clusterConfig(), object{"k3s_version": "v1.36.1+k3s7"})
		state := w.create(clusterType, config)
		w.releases.list = known
		wantDiags(t, w.plan(clusterType, state, config).diags)
	})
}

// Charts that were not tested with the cluster's Kubernetes are a warning.
func TestClusterPlanWarnsOfUntestedCharts(t *testing.T) {
	w := newWorld(t, someTemplate())
	config := with(clusterConfig(), object{"k3s_version": "v1.31.0+k3s1", "cni": object{"plugin": "cilium"}})
	wantDiags(t, w.plan(clusterType, nil, config).diags,
		"warning at k3s_version: Add-ons were not tested with this version of Kubernetes", "cilium 1.20.2 was tested with Kubernetes 1.33", "the cluster gets 1.31.")
}

// What has no meaning outside the state touches nothing outside it.
func TestClusterUpdateOfTheStateOnly(t *testing.T) {
	for name, tt := range map[string]struct {
		before, after object
		applies       bool
	}{
		"timeouts":               {object{}, object{"timeouts": object{"create": "2h"}}, false},
		"no timeouts":            {object{"timeouts": object{"create": "2h"}}, object{}, false},
		"an empty list":          {object{}, object{"ssh_authorized_keys": []any{}}, false},
		"no list":                {object{"ssh_authorized_keys": []any{}}, object{}, false},
		"an empty list of names": {object{}, object{"tls_sans": []any{}}, false},
		"names":                  {object{}, object{"tls_sans": []any{"k8s.example"}}, true},
		"placement":              {object{}, object{"control_plane": object{"placement": object{"anti_affinity": "preferred"}}}, true},
		"unknown keys":           {object{}, object{"ssh_authorized_keys": unknown}, true},
		"keys":                   {object{}, object{"ssh_authorized_keys": []any{sshKey}}, true},
		"no keys any more":       {object{"ssh_authorized_keys": []any{sshKey}}, object{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, someTemplate())
			state := w.create(clusterType, with(clusterConfig(), tt.before))
			config := with(clusterConfig(), tt.after)
			p := w.plan(clusterType, state, config)
			w.engine.calls = nil
			if tt.after["ssh_authorized_keys"] == any(unknown) {
				p.state["ssh_authorized_keys"] = []any{sshKey} // known by the time of the apply
			}
			state, diags := w.apply(clusterType, state, config, p)
			wantDiags(t, diags)
			if applies := len(w.engine.calls) > 0; applies != tt.applies {
				t.Errorf("the engine was asked %v", w.engine.calls)
			}
			if p.action(state) != "no-op" {
				t.Errorf("the state is not what was planned: %v", state)
			}
		})
	}
}

// A replacement is planned a second time as a create, when the namesake still stands.
func TestClusterReplacementKnowsWhatItReplaces(t *testing.T) {
	w := newWorld(t, someTemplate())
	state := w.create(clusterType, clusterConfig())
	config := with(clusterConfig(), object{"network": "lab"})
	first := w.plan(clusterType, state, config)
	second := w.plan(clusterType, nil, config, first.private...)
	wantDiags(t, second.diags)
	if w.engine.lastSpec.ID != state["id"] {
		t.Errorf("the review was told the id %q, want that of the cluster that goes: %v", w.engine.lastSpec.ID, state["id"])
	}
	if second.state["id"] != any(unknown) {
		t.Errorf("id: got %v, want a new one", second.state["id"])
	}
	w.plan(clusterType, nil, config)
	if w.engine.lastSpec.ID != "" {
		t.Errorf("the review of a new cluster was told the id %q", w.engine.lastSpec.ID)
	}
}

func TestClusterDrift(t *testing.T) {
	for name, tt := range map[string]struct {
		state cluster.NodeState
		// open lists what the plan leaves open; none means that nothing is planned.
		open    string
		warning []string
	}{
		"missing":   {cluster.NodeMissing, "api_url status conditions nodes", []string{`warning at : Cluster "prod" has drifted`, "prod-cp-1", `"default" is missing`, "what is left of it is removed, and a new node is made\n"}},
		"creating":  {cluster.NodeCreating, "api_url status conditions nodes", []string{"prod-cp-1", "is creating"}},
		"stopped":   {cluster.NodeStopped, "status conditions nodes", []string{"prod-cp-1", "is stopped: it is started\n"}},
		"not ready": {cluster.NodeNotReady, "", nil},
		"unknown":   {cluster.NodeUnknown, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, someTemplate())
			state := w.create(clusterType, clusterConfig())
			w.engine.nodes = but(nodesNamed("prod", "cp", record.Server, 1), "prod-cp-1", tt.state)
			state, diags := w.read(clusterType, state)
			wantDiags(t, diags)
			w.engine.calls = nil
			p := w.plan(clusterType, state, clusterConfig())
			wantDiags(t, p.diags, tt.warning...)
			for _, attribute := range []string{"id", "api_url", "status", "conditions", "nodes"} {
				open := p.state[attribute] == any(unknown)
				if want := strings.Contains(tt.open, attribute); open != want {
					t.Errorf("%s: open is %t, want %t", attribute, open, want)
				}
			}
			if reviewed := len(w.engine.calls) > 0; reviewed != (tt.open != "") {
				t.Errorf("asked: %v", w.engine.calls)
			}
			w.engine.nodes = nil
			if _, diags := w.apply(clusterType, state, clusterConfig(), p); tt.open != "" {
				wantDiags(t, diags)
			}
		})
	}
}

func TestClusterCreateFails(t *testing.T) {
	w := newWorld(t, someTemplate())
	p := w.plan(clusterType, nil, clusterConfig())
	w.engine.err = &cluster.Failure{Err: errors.New("no agent"), Cause: "it is not installed.", Remedy: "install it."}
	w.engine.nodes = but(nodesNamed("prod", "cp", record.Server, 1), "prod-cp-1", cluster.NodeCreating)
	state, diags := w.apply(clusterType, nil, clusterConfig(), p)
	wantDiags(t, diags, `error at : Unable to create cluster "prod"`, "No agent.", "Likely cause: it is not installed.", "What to do: install it.",
		"prod-cp-1 (creating)", "terraform untaint")
	if state == nil || state["nodes"].(object)["prod-cp-1"] == nil || state["id"] != w.engine.lastSpec.ID {
		t.Fatalf("state: got %v, want the node that exists", state)
	}

	// Untainted, the next apply goes on with the same cluster.
	w.engine.err, w.engine.nodes = nil, nil
	p = w.plan(clusterType, state, clusterConfig())
	wantDiags(t, p.diags, "has drifted", "prod-cp-1")
	resumed, diags := w.apply(clusterType, state, clusterConfig(), p)
	wantDiags(t, diags)
	if resumed["id"] != state["id"] || resumed["status"] != "active" {
		t.Errorf("resumed: got %v", resumed)
	}
}

func TestClusterCreateFailsBeforeAnythingExists(t *testing.T) {
	w := newWorld(t, someTemplate())
	p := w.plan(clusterType, nil, clusterConfig())
	w.engine.err, w.engine.nodes = errors.New("no hypervisor answers"), cluster.Nodes{}
	state, diags := w.apply(clusterType, nil, clusterConfig(), p)
	wantDiags(t, diags, `Unable to create cluster "prod"`, "No hypervisor answers.", "Nothing was made")
	if state != nil {
		t.Errorf("state: got %v, want none, so that nothing is tainted", state)
	}
}

func TestClusterUpdateFails(t *testing.T) {
	w := newWorld(t, someTemplate())
	state := w.create(clusterType, clusterConfig())
	config := with(clusterConfig(), object{"ssh_authorized_keys": []any{sshKey}})
	p := w.plan(clusterType, state, config)
	w.engine.err = errors.New("libvirtd went away")
	state, diags := w.apply(clusterType, state, config, p)
	wantDiags(t, diags, `Unable to update cluster "prod"`, "Libvirtd went away.", "kept in the state")
	w.engine.err = nil
	if a := w.plan(clusterType, state, config).action(state); a != "update" {
		t.Errorf("after the failure the plan is %s, want the change again", a)
	}
}

func TestClusterDeleteFails(t *testing.T) {
	w := newWorld(t, someTemplate())
	state := w.create(clusterType, servers(object{"node_count": 3}))
	w.engine.err, w.engine.nodes = errors.New("hv-b does not answer"), nodesNamed("prod", "cp", record.Server, 1)
	left, diags := w.apply(clusterType, state, nil, planned{})
	wantDiags(t, diags, `Unable to delete cluster "prod"`, "What is left is kept in the state")
	if left == nil || len(left["nodes"].(object)) != 1 {
		t.Fatalf("state: got %v, want the node that is left", left)
	}
	wantState(t, left, object{"assignment": object{"cp-1": "default"}, "footprint": object{"default": takes(2, 4, 40)}})
}

func TestClusterReadErrors(t *testing.T) {
	w := newWorld(t, someTemplate())
	state := w.create(clusterType, clusterConfig())
	for name, tt := range map[string]struct {
		err  error
		gone bool
		want []string
	}{
		"gone":        {fmt.Errorf("cluster: %w", cluster.ErrGone), true, nil},
		"unreachable": {machine.ErrUnreachable, false, []string{`Unable to read cluster "prod"`}},
		"not found":   {machine.ErrNotFound, false, []string{`Unable to read cluster "prod"`}},
		"interrupted": {context.Canceled, false, []string{`Unable to read cluster "prod"`}},
	} {
		t.Run(name, func(t *testing.T) {
			w.t = t
			w.engine.err = tt.err
			after, diags := w.read(clusterType, state)
			wantDiags(t, diags, tt.want...)
			if (after == nil) != tt.gone {
				t.Errorf("state: got %v, want gone: %t", after, tt.gone)
			}
		})
	}
}

func TestClusterImport(t *testing.T) {
	w := newWorld(t, someTemplate())
	config := with(clusterConfig(), object{
		"bridge": "br0", "ssh_authorized_keys": []any{sshKey}, "endpoint": "k8s.example", "tls_sans": []any{"api.example", "192.0.2.9"},
		"control_plane": object{
			"node_count": 3, "vcpus": 4, "memory_gib": 8, "disk_gib": 20, "storage_pool": "ssd", "clone": "full",
			"placement": object{"strategy": "manual", "hosts": []any{"default"}},
		},
	})
	w.engine.cluster = cluster.Spec{
		ID: clusterID, Name: "prod", Servers: 3,
		Settings: record.Cluster{
			K3sVersion: "v1.36.1+k3s1", Bridge: "br0", SSHAuthorizedKeys: []string{sshKey},
			Endpoint: "k8s.example", TLSSANs: []string{"api.example", "192.0.2.9"}, CSI: defaultCSI(),
		},
		Shape:     record.Shape{VCPUs: 4, MemoryMiB: 8192, DiskGiB: 20, StoragePool: "ssd", Clone: record.Full},
		Placement: record.Placement{Strategy: record.Manual, Hosts: []string{"default"}},
	}
	state, diags := w.importState(clusterType, "prod")
	wantDiags(t, diags)
	if w.engine.calls[0] != "find cluster prod" {
		t.Errorf("asked: %v", w.engine.calls)
	}
	p := w.plan(clusterType, state, config)
	wantDiags(t, p.diags)
	if a := p.action(state); a != "no-op" {
		t.Errorf("import and plan of the same configuration is %s %v:\nstate %v\nplan  %v", a, p.replaces, state, p.state)
	}

	w.engine.err = errors.New(`no hypervisor has a server of a cluster "test"`)
	_, diags = w.importState(clusterType, "test")
	wantDiags(t, diags, `Unable to import cluster "test"`)
}

func TestTimeoutsBoundOperations(t *testing.T) {
	w := newWorld(t, someTemplate())
	config := with(clusterConfig(), object{"timeouts": object{"create": "40m"}})
	w.create(clusterType, config)
	if d := w.engine.lastTimeout; d > 40*time.Minute || d < 39*time.Minute {
		t.Errorf("the create had %s, want 40m", d)
	}
	if w.engine.lastWaits != cluster.WaitsWithin(40*time.Minute) {
		t.Errorf("waits: got %+v", w.engine.lastWaits)
	}
}
