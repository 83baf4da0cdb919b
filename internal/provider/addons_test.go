package provider

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// The defaults of networks and storage in full, as specs have them.
func flannelVXLAN() record.CNI {
	return record.CNI{Plugin: record.Flannel, Routing: record.VXLAN, PodCIDR: "10.42.0.0/16", ServiceCIDR: "10.43.0.0/16"}
}

func localPathOnly() record.CSI {
	return record.CSI{LocalPath: &record.LocalPath{Path: "/opt/local-path-provisioner"}, DefaultClass: "local-path"}
}

// What is left out and what is written out are the same cluster: specs are complete, going from one way of writing to another plans
// nothing or touches the state alone, and what is imported is as it was made.
func TestWaysToWriteAddons(t *testing.T) {
	cilium := flannelVXLAN()
	cilium.Plugin, cilium.Routing = record.Cilium, record.Tunnel
	ownChart := cilium
	ownChart.Chart = record.Chart{Repository: "oci://registry.example/charts", Version: "1.20.2", Values: "a: b\n"}
	calico := flannelVXLAN()
	calico.Plugin, calico.Routing = record.Calico, record.IPIP
	longhorn := record.CSI{Longhorn: &record.Longhorn{Replicas: 3, DataPath: "/var/lib/longhorn", DrainPolicy: "block-if-contains-last-replica"}, DefaultClass: "longhorn"}
	nfs := record.CSI{NFS: &record.NFS{Server: "192.0.2.5", Path: "/export", Version: "4.1", MountOptions: []string{"hard"}}, DefaultClass: "nfs"}
	both := record.CSI{LocalPath: localPathOnly().LocalPath, NFS: &record.NFS{Server: "nas.example", Path: "/export"}, DefaultClass: "local-path"}
	for name, tt := range map[string]struct {
		// ways say the same; the last of them writes everything out.
		ways []object
		cni  record.CNI
		csi  record.CSI
	}{
		"default": {[]object{
			{}, {"cni": object{}}, {"cni": object{"plugin": "flannel", "values_yaml": ""}, "csi": object{"local_path": object{}}},
			{"cni": object{"plugin": "flannel", "routing": "vxlan", "pod_cidr": "10.42.0.0/16", "service_cidr": "10.43.0.0/16", "hubble": false, "kube_proxy_replacement": false},
				"csi": object{"local_path": object{"path": "/opt/local-path-provisioner"}, "default_class": "local-path"}},
		}, flannelVXLAN(), localPathOnly()},
		"no storage": {[]object{{"csi": object{}}}, flannelVXLAN(), record.CSI{}},
		"calico":     {[]object{{"cni": object{"plugin": "calico"}}, {"cni": object{"plugin": "calico", "routing": "ipip"}}}, calico, localPathOnly()},
		"cilium": {[]object{
			{"cni": object{"plugin": "cilium", "chart": object{}}}, {"cni": object{"plugin": "cilium", "routing": "tunnel", "hubble": false}},
		}, cilium, localPathOnly()},
		"chart": {[]object{
			{"cni": object{"plugin": "cilium", "values_yaml": "a: b\n", "chart": object{"repository": "oci://registry.example/charts", "version": "1.20.2"}}},
		}, ownChart, localPathOnly()},
		"longhorn": {[]object{
			{"csi": object{"longhorn": object{}}},
			{"csi": object{"longhorn": object{"replica_count": 3, "data_path": "/var/lib/longhorn", "drain_policy": "block-if-contains-last-replica"}, "default_class": "longhorn"}},
		}, flannelVXLAN(), longhorn},
		"nfs": {[]object{
			{"csi": object{"nfs": object{"server": "192.0.2.5", "path": "/export", "nfs_version": "4.1", "mount_options": []any{"hard"}}}},
		}, flannelVXLAN(), nfs},
		"two tiers": {[]object{
			{"csi": object{"local_path": object{}, "nfs": object{"server": "nas.example", "path": "/export", "mount_options": []any{}}}},
			{"csi": object{"local_path": object{}, "nfs": object{"server": "nas.example", "path": "/export"}, "default_class": "local-path"}},
		}, flannelVXLAN(), both},
	} {
		t.Run(name, func(t *testing.T) {
			for i, way := range tt.ways {
				w := newWorld(t, someTemplate())
				config := with(clusterConfig(), way)
				state := w.create(clusterType, config)
				is := w.engine.lastSpec.Settings
				if !reflect.DeepEqual(is.CNI, tt.cni) || !reflect.DeepEqual(is.CSI, tt.csi) {
					t.Errorf("way %d: the engine was given %+v, %+v; want %+v, %+v", i, is.CNI, is.CSI, tt.cni, tt.csi)
				}
				state, diags := w.read(clusterType, state)
				wantDiags(t, diags)
				w.engine.calls = nil
				if p := w.plan(clusterType, state, config); p.action(state) != "no-op" || len(p.diags) > 0 {
					t.Errorf("way %d: the same configuration is %s:\n%s", i, p.action(state), render(p.diags))
				}
				for j, other := range tt.ways {
					p := w.plan(clusterType, state, with(clusterConfig(), other))
					wantDiags(t, p.diags)
					if len(p.replaces) > 0 || contradiction("", state["addons"], p.state["addons"]) != "" || contradiction("", state["nodes"], p.state["nodes"]) != "" {
						t.Errorf("from way %d to %d: the plan replaces %v, or alters addons or nodes: %v", i, j, p.replaces, p.state)
					}
					_, diags := w.apply(clusterType, state, with(clusterConfig(), other), p)
					wantDiags(t, diags)
				}
				if len(w.engine.calls) > 0 {
					t.Errorf("way %d: the engine was asked %v", i, w.engine.calls)
				}
			}

			w := newWorld(t, someTemplate())
			w.engine.cluster = cluster.Spec{
				ID: clusterID, Name: "prod", Servers: 1, Shape: defaultShape, Placement: defaultServerPlacement,
				Settings: record.Cluster{K3sVersion: "v1.36.1+k3s1", Network: "default", CNI: tt.cni, CSI: tt.csi},
			}
			imported, diags := w.importState(clusterType, "prod")
			wantDiags(t, diags)
			last := with(clusterConfig(), tt.ways[len(tt.ways)-1])
			if p := w.plan(clusterType, imported, last); p.action(imported) != "no-op" || len(p.diags) > 0 {
				t.Errorf("import and plan of the same configuration is %s %v:\nstate %v\nplan  %v\n%s", p.action(imported), p.replaces, imported, p.state, render(p.diags))
			}
		})
	}
}

// Records may leave the network to the defaults.
func TestImportOfARecordWithoutANetwork(t *testing.T) {
	w := newWorld(t, someTemplate())
	w.engine.cluster = cluster.Spec{
		ID: clusterID, Name: "prod", Servers: 1, Shape: defaultShape, Placement: defaultServerPlacement,
		Settings: record.Cluster{K3sVersion: "v1.36.1+k3s1", Network: "default", CSI: record.CSI{LocalPath: localPathOnly().LocalPath}},
	}
	state, diags := w.importState(clusterType, "prod")
	wantDiags(t, diags)
	if p := w.plan(clusterType, state, clusterConfig()); p.action(state) != "no-op" {
		t.Errorf("the plan is %s %v: %v", p.action(state), p.replaces, p.state)
	}
	state["cni"], state["csi"] = nil, nil // as of a state from before there were these attributes
	if p := w.plan(clusterType, state, clusterConfig()); len(p.replaces) > 0 || len(p.diags) > 0 {
		t.Errorf("the plan replaces %v\n%s", p.replaces, render(p.diags))
	}
}

// A cluster keeps its network for life; what is in a chart changes in place.
func TestChangesOfTheNetwork(t *testing.T) {
	for name, tt := range map[string]struct {
		before, after any
		replaces      []string
	}{
		"plugin":                    {nil, object{"plugin": "cilium"}, []string{"cni.plugin", "cni.routing"}},
		"back to the default":       {object{"plugin": "calico"}, nil, []string{"cni.plugin", "cni.routing"}},
		"routing":                   {object{}, object{"routing": "host-gw"}, []string{"cni.routing"}},
		"routing by default":        {object{"plugin": "calico", "routing": "vxlan"}, object{"plugin": "calico"}, []string{"cni.routing"}},
		"same routing, same plugin": {object{"plugin": "cilium", "routing": "tunnel"}, object{"plugin": "cilium"}, nil},
		"pods":                      {nil, object{"pod_cidr": "10.44.0.0/16"}, []string{"cni.pod_cidr"}},
		"services":                  {nil, object{"service_cidr": "10.45.0.0/16"}, []string{"cni.service_cidr"}},
		"kube-proxy":                {object{"plugin": "cilium"}, object{"plugin": "cilium", "kube_proxy_replacement": true}, []string{"cni.kube_proxy_replacement"}},
		"nothing known":             {nil, unknown, []string{"cni"}},
		"plugin to be known":        {nil, object{"plugin": unknown}, []string{"cni.plugin", "cni.routing"}},
		"hubble":                    {object{"plugin": "cilium"}, object{"plugin": "cilium", "hubble": true}, nil},
		"values":                    {object{"plugin": "cilium"}, object{"plugin": "cilium", "values_yaml": "debug: {enabled: true}"}, nil},
		"values to be known":        {object{"plugin": "cilium"}, object{"plugin": "cilium", "values_yaml": unknown}, nil},
		"chart":                     {object{"plugin": "cilium"}, object{"plugin": "cilium", "chart": object{"version": "1.20.3"}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, someTemplate())
			state := w.create(clusterType, with(clusterConfig(), object{"cni": tt.before}))
			p := w.plan(clusterType, state, with(clusterConfig(), object{"cni": tt.after}))
			if !slices.Equal(p.replaces, tt.replaces) {
				t.Fatalf("the plan replaces the cluster because of %v, want %v", p.replaces, tt.replaces)
			}
			if len(tt.replaces) == 0 {
				wantDiags(t, p.diags)
				wantState(t, p.state, object{"nodes": state["nodes"], "api_url": state["api_url"], "id": state["id"], "image_registry": nil})
				return
			}
			wantDiags(t, p.diags, `warning at : Cluster "prod" is replaced by one with another network`, strings.Join(tt.replaces, ", ")+".", "deletion_protection = true refuses")

			guarded := w.create(clusterType, with(clusterConfig(), object{"cni": tt.before, "deletion_protection": true}))
			p = w.plan(clusterType, guarded, with(clusterConfig(), object{"cni": tt.after, "deletion_protection": true}))
			wantDiags(t, p.diags, `error at deletion_protection: Unable to replace cluster "prod"`)
			if len(p.diags) > 1 {
				t.Errorf("want one diagnostic:\n%s", render(p.diags))
			}
		})
	}
}

// What changes add-ons leaves nodes and the API's address known, and add-ons and status open.
func TestChangesOfAddons(t *testing.T) {
	for name, tt := range map[string]struct {
		before, after object
		works         []cluster.Addon
		open          bool
		addons        []string
	}{
		"a tier more": {object{}, object{"csi": object{"local_path": object{}, "longhorn": object{}}}, []cluster.Addon{cluster.LocalPath, cluster.Longhorn}, true, []string{"local-path", "longhorn"}},
		"a tier less": {object{"csi": object{"local_path": object{}, "longhorn": object{}}}, object{}, []cluster.Addon{cluster.LocalPath, cluster.Longhorn}, true, []string{"local-path"}},
		"no tier":     {object{}, object{"csi": object{}}, []cluster.Addon{cluster.LocalPath}, true, []string{}},
		"the default": {object{"csi": object{"local_path": object{}, "longhorn": object{}}}, object{"csi": object{"local_path": object{}, "longhorn": object{}, "default_class": "local-path"}},
			[]cluster.Addon{cluster.LocalPath, cluster.Longhorn}, true, []string{"local-path", "longhorn"}},
		"hubble":                            {object{"cni": object{"plugin": "cilium"}}, object{"cni": object{"plugin": "cilium", "hubble": true}}, []cluster.Addon{cluster.Cilium}, true, []string{"cilium", "local-path"}},
		"hubble, and nobody knows the rest": {object{"cni": object{"plugin": "cilium"}}, object{"cni": object{"plugin": "cilium", "hubble": true}}, nil, true, []string{"cilium", "local-path"}},
		"keys":                              {object{}, object{"ssh_authorized_keys": []any{sshKey}}, nil, false, []string{"local-path"}},
		"keys, and what the engine finds":   {object{}, object{"ssh_authorized_keys": []any{sshKey}}, []cluster.Addon{cluster.LocalPath}, true, []string{"local-path"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFleet(t)
			state := w.create(clusterType, with(clusterConfig(), tt.before))
			config := with(clusterConfig(), tt.after)
			w.engine.works, w.engine.calls = tt.works, nil
			p := w.plan(clusterType, state, config)
			wantDiags(t, p.diags)
			want := object{"id": state["id"], "api_url": state["api_url"], "nodes": state["nodes"], "assignment": state["assignment"], "addons": state["addons"], "status": state["status"], "conditions": state["conditions"]}
			if tt.open {
				want = with(want, object{"addons": unknown, "status": unknown, "conditions": unknown})
			}
			wantState(t, p.state, want)
			if p.action(state) != "update" || !slices.Equal(w.engine.calls, []string{"check cluster"}) {
				t.Errorf("the plan is %s; asked %v", p.action(state), w.engine.calls)
			}
			after, diags := w.apply(clusterType, state, config, p)
			wantDiags(t, diags)
			if got := slices.Sorted(maps.Keys(after["addons"].(object))); !slices.Equal(got, tt.addons) {
				t.Errorf("addons: got %v, want %v", got, tt.addons)
			}
			w.engine.works = nil
			after, _ = w.read(clusterType, after)
			if next := w.plan(clusterType, after, config); next.action(after) != "no-op" {
				t.Errorf("the next plan is %s: %v", next.action(after), next.state)
			}
		})
	}
}

// The engine refuses to take away a tier with volumes, and to change what its volumes depend on.
func TestTiersWithVolumesStay(t *testing.T) {
	for field, tt := range map[machine.Field]struct {
		at            string
		before, after any
	}{
		machine.FieldLocalPath: {"csi.local_path", nil, object{}},
		machine.FieldNFS:       {"csi.nfs", object{"nfs": object{"server": "192.0.2.5", "path": "/a"}}, object{"nfs": object{"server": "192.0.2.5", "path": "/b"}}},
		machine.FieldLonghorn:  {"csi.longhorn", object{"longhorn": object{}}, object{"local_path": object{}}},
	} {
		w := newFleet(t)
		state := w.create(clusterType, storage(tt.before))
		w.engine.problems = []cluster.Problem{{Field: field, Err: &cluster.Failure{
			Err: errors.New("it cannot be removed while it has volumes: pvc-1 (claim default/data)"), Remedy: "delete the claims, and apply again.",
		}}}
		wantDiags(t, w.plan(clusterType, state, storage(tt.after)).diags, "error at "+tt.at+`: Unable to update cluster "prod"`, "pvc-1 (claim default/data).", "What to do: delete the claims",
			"The attribute is "+tt.at+".")
	}
}

func TestAddonDrift(t *testing.T) {
	cilium := network(object{"plugin": "cilium"})
	status := func(s cluster.AddonState, reason string) cluster.AddonStatus {
		return cluster.AddonStatus{Chart: "cilium", Version: "1.20.2", Namespace: "kube-system", State: s, Reason: reason}
	}
	for name, tt := range map[string]struct {
		config object
		addons cluster.AddonStatuses
		// want is the warning; none means that nothing is planned.
		want []string
	}{
		"deployed": {cilium, nil, nil},
		"unknown":  {cilium, cluster.AddonStatuses{cluster.Cilium: status(cluster.AddonUnknown, "no answer")}, nil},
		"missing": {cilium, cluster.AddonStatuses{cluster.Cilium: {State: cluster.AddonMissing, Reason: "there is no release"}},
			[]string{`warning at : Cluster "prod" has drifted`, "The next apply brings it back", "- add-on cilium is missing (there is no release): it is installed\n"}},
		"failed": {cilium, cluster.AddonStatuses{cluster.Cilium: status(cluster.AddonFailed, "an upgrade was interrupted")},
			[]string{"- add-on cilium is failed (an upgrade was interrupted): it is brought to what is configured\n"}},
		"drifted": {cilium, cluster.AddonStatuses{cluster.Cilium: status(cluster.AddonDrifted, "other values"), cluster.LocalPath: status(cluster.AddonDrifted, "no default class")},
			[]string{"- add-on cilium is drifted (other values): it is brought", "- add-on local-path is drifted (no default class): it is brought"}},
		"unwanted":                 {clusterConfig(), cluster.AddonStatuses{cluster.Longhorn: status(cluster.AddonUnwanted, "")}, []string{"- add-on longhorn is unwanted: it is removed\n"}},
		"missing, and not missed":  {clusterConfig(), cluster.AddonStatuses{cluster.Longhorn: {State: cluster.AddonMissing}}, nil},
		"of no interest to nobody": {clusterConfig(), cluster.AddonStatuses{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFleet(t)
			state := w.create(clusterType, tt.config)
			w.engine.addons = tt.addons
			state, diags := w.read(clusterType, state)
			wantDiags(t, diags)
			for addon, s := range tt.addons {
				wantState(t, state["addons"].(object)[string(addon)].(object), object{"status": string(s.State), "reason": orNil(s.Reason), "version": orNil(s.Version)})
			}
			w.engine.calls = nil
			p := w.plan(clusterType, state, tt.config)
			wantDiags(t, p.diags, tt.want...)
			if len(tt.want) == 0 {
				if p.action(state) != "no-op" || len(w.engine.calls) > 0 {
					t.Errorf("the plan is %s; asked %v", p.action(state), w.engine.calls)
				}
				return
			}
			wantState(t, p.state, object{"addons": unknown, "status": unknown, "conditions": unknown, "nodes": state["nodes"], "api_url": state["api_url"], "assignment": state["assignment"]})
			if len(p.diags) != 1 {
				t.Errorf("want one warning:\n%s", render(p.diags))
			}
			state, diags = w.apply(clusterType, state, tt.config, p)
			wantDiags(t, diags)
			if p := w.plan(clusterType, state, tt.config); p.action(state) != "no-op" {
				t.Errorf("mended, the next plan is %s", p.action(state))
			}
		})
	}
}

// Nodes and add-ons that have drifted share a warning.
func TestDriftOfNodesAndAddons(t *testing.T) {
	w := newFleet(t)
	state := w.create(clusterType, clusterConfig())
	w.engine.states = map[string]cluster.NodeState{"prod-cp-1": cluster.NodeStopped}
	w.engine.addons = cluster.AddonStatuses{cluster.LocalPath: {State: cluster.AddonMissing}}
	state, _ = w.read(clusterType, state)
	p := w.plan(clusterType, state, clusterConfig())
	wantDiags(t, p.diags, `Cluster "prod" has drifted`, "- prod-cp-1 on hypervisor", "- add-on local-path is missing: it is installed")
	wantState(t, p.state, object{"addons": unknown, "nodes": unknown, "status": unknown})
	if len(p.diags) != 1 {
		t.Errorf("want one warning:\n%s", render(p.diags))
	}
}

// What nobody has looked at keeps its last value, and is looked at by the next apply.
func TestAddonsThatWereNotLookedAt(t *testing.T) {
	w := newFleet(t)
	state := w.create(clusterType, clusterConfig())
	w.engine.unseen = true
	after, diags := w.read(clusterType, state)
	wantDiags(t, diags)
	wantState(t, after, object{"addons": state["addons"]})

	w = newFleet(t)
	p := w.plan(clusterType, nil, clusterConfig())
	w.engine.unseen, w.engine.err, w.engine.nodes = true, errors.New("no agent"), nodesNamed("prod", "cp", record.Server, 1)
	state, _ = w.apply(clusterType, nil, clusterConfig(), p)
	wantState(t, state, object{"addons": nil})
	w.engine.unseen, w.engine.err = false, nil
	if p = w.plan(clusterType, state, clusterConfig()); p.action(state) != "no-op" {
		t.Errorf("nothing is known to be amiss, and the plan is %s", p.action(state))
	}
	p = w.plan(clusterType, state, with(clusterConfig(), object{"tls_sans": []any{"k8s.example"}}))
	wantState(t, p.state, object{"addons": unknown, "nodes": state["nodes"]})
}

// What an apply that failed leaves of add-ons stands in the state, and the wish of before, too, so that the next plan shows all.
func TestApplyOfAddonsFails(t *testing.T) {
	w := newFleet(t)
	state := w.create(clusterType, clusterConfig())
	config := storage(object{"local_path": object{}, "longhorn": object{}})
	p := w.plan(clusterType, state, config)
	w.engine.err = errors.New("longhorn is not available: DaemonSet longhorn-system/longhorn-manager: 0 of 1 available")
	w.engine.addons = cluster.AddonStatuses{cluster.Longhorn: {State: cluster.AddonUnwanted}}
	after, diags := w.apply(clusterType, state, config, p)
	wantDiags(t, diags, `error at : Unable to update cluster "prod"`, "0 of 1 available")
	wantState(t, after, object{"csi": state["csi"]})
	wantState(t, after["addons"].(object)["longhorn"].(object), object{"status": "unwanted"})
	w.engine.err = nil
	p = w.plan(clusterType, after, config)
	wantDiags(t, p.diags, "add-on longhorn is unwanted: it is brought to what is configured")
	if p.action(after) != "update" {
		t.Errorf("the next plan is %s", p.action(after))
	}
}

// Longhorn has fewer copies than asked for where there are fewer nodes; the engine tells so.
func TestWarningsOfAddons(t *testing.T) {
	w := newFleet(t)
	config := storage(object{"longhorn": object{}})
	p := w.plan(clusterType, nil, config)
	w.engine.warnings = []error{errors.New("volumes of longhorn have 1 copy instead of 3, since 1 node takes pods")}
	_, diags := w.apply(clusterType, nil, config, p)
	wantDiags(t, diags, `warning at : Unable to create cluster "prod" as asked`, "1 copy instead of 3")
}

// What is not known yet is left open, and alters nothing that it does not decide over.
func TestAddonsToBeKnown(t *testing.T) {
	for name, tt := range map[string]struct {
		change object
		class  any
		// review is what the review of a new cluster is told.
		review record.CSI
	}{
		"storage":                              {object{"csi": unknown}, nil, record.CSI{}},
		"a tier":                               {object{"csi": object{"longhorn": unknown, "local_path": object{}}}, unknown, localPathOnly()},
		"values of a tier":                     {object{"csi": object{"longhorn": object{"values_yaml": unknown}, "local_path": object{}}}, "longhorn", localPathOnly()},
		"values of a tier that is the default": {object{"csi": object{"longhorn": object{"values_yaml": unknown}, "local_path": object{}, "default_class": "longhorn"}}, "longhorn", localPathOnly()},
		"class":                                {object{"csi": object{"local_path": object{}, "default_class": unknown}}, unknown, localPathOnly()},
		"server":                               {object{"csi": object{"local_path": object{}, "nfs": object{"server": unknown, "path": "/export"}}}, "local-path", localPathOnly()},
	} {
		t.Run(name, func(t *testing.T) {
			for _, exists := range []bool{false, true} {
				w := newFleet(t)
				var state object
				if exists {
					state = w.create(clusterType, clusterConfig())
				}
				p := w.plan(clusterType, state, with(clusterConfig(), tt.change))
				wantDiags(t, p.diags)
				if len(p.replaces) > 0 {
					t.Errorf("the plan replaces %v", p.replaces)
				}
				if csi, ok := p.state["csi"].(object); ok && csi["default_class"] != tt.class {
					t.Errorf("default_class: got %v, want %v", csi["default_class"], tt.class)
				}
				wantState(t, p.state, object{"addons": unknown, "assignment": object{"cp-1": "hv-a"}})
				if want, got := tt.review, w.engine.lastSpec.Settings.CSI; !exists && !reflect.DeepEqual(got, want) {
					t.Errorf("the review was told %+v, want %+v", got, want)
				}
				if exists {
					wantState(t, p.state, object{"nodes": state["nodes"], "api_url": state["api_url"]})
				}
			}
		})
	}
}

// orNil is a text as a state has it, nil where it is empty.
func orNil(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// What cannot be looked at keeps what was known of it.
func TestRememberedAddons(t *testing.T) {
	was := cluster.AddonStatuses{cluster.Cilium: {Chart: "cilium", Version: "1.20.2", Namespace: "kube-system", State: cluster.AddonDeployed}}
	got := remembered(cluster.AddonStatuses{
		cluster.Cilium:    {State: cluster.AddonUnknown, Reason: "no answer"},
		cluster.LocalPath: {State: cluster.AddonUnknown, Reason: "no answer"},
	}, was)
	want := cluster.AddonStatuses{
		cluster.Cilium:    {Chart: "cilium", Version: "1.20.2", Namespace: "kube-system", State: cluster.AddonUnknown, Reason: "no answer"},
		cluster.LocalPath: {State: cluster.AddonUnknown, Reason: "no answer"},
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %+v", got)
	}
}
