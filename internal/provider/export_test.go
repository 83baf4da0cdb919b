package provider

import (
	"errors"
	"slices"
	"testing"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// nfsOf is the tier nfs of a state or plan.
func nfsOf(t *testing.T, state object) object {
	t.Helper()
	csi, _ := state["csi"].(object)
	nfs, ok := csi["nfs"].(object)
	if !ok {
		t.Fatalf("there is no tier nfs: %v", state["csi"])
	}
	return nfs
}

// The pool of the hypervisors tells where the export is, once: when it is set or changed.
func TestExportOfAPool(t *testing.T) {
	w := newFleet(t)
	w.engine.exports = map[string]machine.Export{"nfs-ds": {Server: "192.0.2.5", Path: "/export"}, "other": {Server: "nas.example", Path: "/srv"}}
	of := func(pool any, more object) object {
		return storage(object{"nfs": with(object{"pool": pool}, more)})
	}
	p := w.plan(clusterType, nil, of("nfs-ds", nil))
	wantDiags(t, p.diags)
	wantState(t, nfsOf(t, p.state), object{"pool": "nfs-ds", "server": "192.0.2.5", "path": "/export"})
	state, diags := w.apply(clusterType, nil, of("nfs-ds", nil), p)
	wantDiags(t, diags)
	if nfs := w.engine.lastSpec.Settings.CSI.NFS; nfs == nil || nfs.Pool != "nfs-ds" || nfs.Server != "192.0.2.5" || nfs.Path != "/export" {
		t.Errorf("the engine was given %+v", nfs)
	}
	w.engine.cluster = w.engine.lastSpec
	imported, diags := w.importState(clusterType, "prod")
	wantDiags(t, diags)
	if p := w.plan(clusterType, imported, of("nfs-ds", nil)); p.action(imported) != "no-op" {
		t.Errorf("import and plan of the same configuration is %s", p.action(imported))
	}

	// It is not asked again, whatever else changes and whatever becomes of the pool.
	w.engine.exports, w.engine.calls = map[string]machine.Export{"other": {Server: "nas.example", Path: "/srv"}}, nil
	for _, config := range []object{of("nfs-ds", nil), of("nfs-ds", object{"nfs_version": "4.1"}), with(of("nfs-ds", nil), object{"ssh_authorized_keys": []any{sshKey}})} {
		p = w.plan(clusterType, state, config)
		wantDiags(t, p.diags)
		wantState(t, nfsOf(t, p.state), object{"server": "192.0.2.5", "path": "/export"})
	}
	if slices.Contains(w.engine.calls, "export nfs-ds") {
		t.Errorf("asked %v", w.engine.calls)
	}

	p = w.plan(clusterType, state, of("other", nil))
	wantDiags(t, p.diags)
	wantState(t, nfsOf(t, p.state), object{"pool": "other", "server": "nas.example", "path": "/srv"})
	wantState(t, p.state, object{"nodes": state["nodes"], "addons": unknown})
	wantDiags(t, w.plan(clusterType, state, of("lost", nil)).diags, `error at csi.nfs.pool: Unable to update cluster "prod"`, `Storage pool "lost": not found.`, "The attribute is csi.nfs.pool.")
	wantDiags(t, w.plan(clusterType, nil, of("lost", nil)).diags, `error at csi.nfs.pool: Unable to create cluster "prod"`)

	// The same export, told by hand.
	p = w.plan(clusterType, state, storage(object{"nfs": object{"server": "192.0.2.5", "path": "/export"}}))
	wantDiags(t, p.diags)
	wantState(t, nfsOf(t, p.state), object{"pool": nil, "server": "192.0.2.5", "path": "/export"})
}

// While nobody can tell, the plan leaves the export open and the apply finds it out.
func TestExportOfASilentPool(t *testing.T) {
	config := storage(object{"local_path": object{}, "nfs": object{"pool": "nfs-ds"}})
	for name, provider := range map[string]object{"silent hypervisors": threeHosts(), "unknown provider": with(threeHosts(), object{"parallelism": unknown})} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, provider)
			p := w.plan(clusterType, nil, config)
			wantDiags(t, p.diags)
			wantState(t, nfsOf(t, p.state), object{"pool": "nfs-ds", "server": unknown, "path": unknown})
			wantState(t, p.state["csi"].(object), object{"default_class": "local-path"})
			if name != "silent hypervisors" {
				return
			}
			if nfs := w.engine.lastSpec.Settings.CSI.NFS; nfs == nil || nfs.Pool != "nfs-ds" || nfs.Server != "" {
				t.Errorf("the review was given %+v", nfs)
			}
			w.engine.exports = map[string]machine.Export{"nfs-ds": {Server: "192.0.2.5", Path: "/export"}}
			state, diags := w.apply(clusterType, nil, config, p)
			wantDiags(t, diags)
			wantState(t, nfsOf(t, state), object{"server": "192.0.2.5", "path": "/export"})
			if p := w.plan(clusterType, state, config); p.action(state) != "no-op" {
				t.Errorf("the next plan is %s", p.action(state))
			}
		})
	}

	// A create that fails leaves nothing unknown in the state, and the next plan asks again.
	w := newFleet(t)
	p := w.plan(clusterType, nil, config)
	w.engine.err, w.engine.nodes = errors.New("no agent"), nodesNamed("prod", "cp", record.Server, 1)
	state, _ := w.apply(clusterType, nil, config, p)
	wantState(t, nfsOf(t, state), object{"pool": "nfs-ds", "server": nil, "path": nil})
	w.engine.err = nil
	wantState(t, nfsOf(t, w.plan(clusterType, state, config).state), object{"server": unknown, "path": unknown})
	w.engine.exports = map[string]machine.Export{"nfs-ds": {Server: "192.0.2.5", Path: "/export"}}
	p = w.plan(clusterType, state, config)
	wantDiags(t, p.diags)
	wantState(t, nfsOf(t, p.state), object{"server": "192.0.2.5", "path": "/export"})

	// A tier that comes later is reviewed as far as it is known.
	w = newFleet(t)
	state = w.create(clusterType, clusterConfig())
	p = w.plan(clusterType, state, config)
	wantDiags(t, p.diags)
	wantState(t, nfsOf(t, p.state), object{"server": unknown, "path": unknown})
	wantState(t, p.state, object{"nodes": state["nodes"], "addons": unknown})
	if nfs := w.engine.lastSpec.Settings.CSI.NFS; nfs == nil || nfs.Pool != "nfs-ds" {
		t.Errorf("the review was given %+v", nfs)
	}
}

// The registry of images is the provider's, and another one is taken over in place.
func TestImageRegistry(t *testing.T) {
	at := func(registry any) object { return with(threeHosts(), object{"image_registry": registry}) }
	w := newWorld(t, at("registry.example:5000"))
	state := w.create(clusterType, clusterConfig())
	wantState(t, state, object{"image_registry": "registry.example:5000"})
	if got := w.engine.lastSpec.Settings.ImageRegistry; got != "registry.example:5000" {
		t.Errorf("the engine was given %q", got)
	}
	state, _ = w.read(clusterType, state)
	if p := w.plan(clusterType, state, clusterConfig()); p.action(state) != "no-op" {
		t.Errorf("the same configuration is %s", p.action(state))
	}
	for _, registry := range []any{"other.example", nil} {
		w := newWorld(t, at(registry))
		p := w.plan(clusterType, state, clusterConfig())
		wantDiags(t, p.diags)
		if p.action(state) != "update" {
			t.Errorf("to %v: the plan is %s %v", registry, p.action(state), p.replaces)
		}
		wantState(t, p.state, object{"image_registry": registry, "nodes": state["nodes"], "api_url": state["api_url"], "addons": unknown, "status": unknown})
		after, diags := w.apply(clusterType, state, clusterConfig(), p)
		wantDiags(t, diags)
		if got := w.engine.lastSpec.Settings.ImageRegistry; orNil(got) != registry {
			t.Errorf("the engine was given %q", got)
		}
		if p := w.plan(clusterType, after, clusterConfig()); p.action(after) != "no-op" {
			t.Errorf("the next plan is %s", p.action(after))
		}
	}
	t.Run("with a provider of which other things are not known", func(t *testing.T) {
		w := newWorld(t, with(at("registry.example:5000"), object{"hypervisors": object{"a": object{"uri": unknown}}}))
		if p := w.plan(clusterType, state, clusterConfig()); p.action(state) != "no-op" || len(p.diags) > 0 {
			t.Errorf("the plan is %s\n%s", p.action(state), render(p.diags))
		}
	})
	t.Run("to be known", func(t *testing.T) {
		p := newWorld(t, at(unknown)).plan(clusterType, state, clusterConfig())
		wantDiags(t, p.diags)
		wantState(t, p.state, object{"image_registry": unknown, "nodes": state["nodes"], "addons": unknown})
	})
	t.Run("import", func(t *testing.T) {
		w := newWorld(t, at("registry.example:5000"))
		w.engine.cluster.ID, w.engine.cluster.Name, w.engine.cluster.Servers, w.engine.cluster.Shape, w.engine.cluster.Placement = clusterID, "prod", 1, defaultShape, defaultServerPlacement
		w.engine.cluster.Settings = record.Cluster{K3sVersion: "v1.36.1+k3s1", Network: "default", CNI: flannelVXLAN(), CSI: localPathOnly(), ImageRegistry: "registry.example:5000"}
		state, diags := w.importState(clusterType, "prod")
		wantDiags(t, diags)
		if p := w.plan(clusterType, state, clusterConfig()); p.action(state) != "no-op" {
			t.Errorf("import and plan of the same configuration is %s: %v", p.action(state), p.state)
		}
	})
}
