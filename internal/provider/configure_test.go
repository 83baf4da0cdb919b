package provider

import (
	"reflect"
	"testing"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/hypervisor"
)

func TestConfigure(t *testing.T) {
	for name, tt := range map[string]struct {
		config object
		env    map[string]string
		want   settings
	}{
		"defaults": {object{}, nil, settings{
			hypervisors:      map[string]hypervisor.Config{"default": {URI: "qemu:///system", Schedulable: true}},
			installScriptURL: "https://get.k3s.io", parallelism: 4,
		}},
		"environment": {object{}, map[string]string{envURI: "qemu+ssh://hv/system", envGitHub: "t0ken"}, settings{
			hypervisors:      map[string]hypervisor.Config{"default": {URI: "qemu+ssh://hv/system", Schedulable: true}},
			installScriptURL: "https://get.k3s.io", parallelism: 4, githubToken: "t0ken",
		}},
		"everything": {object{
			"hypervisors": object{
				"hv-a": object{"uri": "qemu+ssh://hv-a/system", "virt_type": "qemu", "schedulable": false},
				"hv-b": object{"uri": "qemu+ssh://hv-b/system"},
			},
			"template":    object{"hypervisor": "hv-a", "pool": "templates", "volume": "v.qcow2"},
			"k3s":         object{"install_script_url": "http://mirror/k3s.sh", "releases_url": "http://mirror/releases", "github_token": "own"},
			"parallelism": 2,
		}, map[string]string{envURI: "qemu+ssh://hv/system", envGitHub: "t0ken"}, settings{
			hypervisors: map[string]hypervisor.Config{
				"hv-a": {URI: "qemu+ssh://hv-a/system", VirtType: "qemu"}, "hv-b": {URI: "qemu+ssh://hv-b/system", Schedulable: true},
			},
			template:         &hypervisor.TemplateRef{Hypervisor: "hv-a", Pool: "templates", Volume: "v.qcow2"},
			installScriptURL: "http://mirror/k3s.sh", releasesURL: "http://mirror/releases", githubToken: "own", parallelism: 2,
		}},
		"template of the only hypervisor": {someTemplate(), nil, settings{
			hypervisors:      map[string]hypervisor.Config{"default": {URI: "qemu:///system", Schedulable: true}},
			template:         &hypervisor.TemplateRef{Hypervisor: "default", Pool: "templates", Volume: "debian.qcow2"},
			installScriptURL: "https://get.k3s.io", parallelism: 4,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, object{})
			for name, value := range tt.env {
				t.Setenv(name, value)
			}
			wantDiags(t, w.validateProvider(tt.config))
			wantDiags(t, w.configure(tt.config))
			if !reflect.DeepEqual(w.engine.settings, tt.want) {
				t.Errorf("got  %+v\nwant %+v", w.engine.settings, tt.want)
			}
		})
	}
}

func TestConfigureRefuses(t *testing.T) {
	two := object{"hv-a": object{"uri": "qemu+ssh://hv-a/system"}, "hv-b": object{"uri": "qemu+ssh://hv-b/system"}}
	for name, tt := range map[string]struct {
		config object
		env    map[string]string
		want   []string
	}{
		"template on no hypervisor": {
			object{"hypervisors": two, "template": object{"hypervisor": "hv-c", "pool": "p", "volume": "v"}}, nil,
			[]string{`error at template.hypervisor: Unable to use template "v"`, `no hypervisor "hv-c"`, "hv-a, hv-b"},
		},
		"template on one of several": {
			object{"hypervisors": two, "template": object{"pool": "p", "volume": "v"}}, nil,
			[]string{`error at template.hypervisor: Unable to use template "v"`, "hv-a, hv-b"},
		},
		"bad URI in the environment": {
			object{}, map[string]string{envURI: "hv-a"},
			[]string{`Unable to use environment variable "LIBVIRT_DEFAULT_URI"`, "qemu+ssh://hv-a/system"},
		},
		"bad URI": {
			object{"hypervisors": object{"hv-a": object{"uri": "root@hv-a"}}}, nil,
			[]string{"error at hypervisors.hv-a.uri: Unable to use hypervisor URI", "qemu+ssh://root@hv-a/system"},
		},
		"bad name":          {object{"hypervisors": object{"hv a": object{"uri": "qemu:///system"}}}, nil, []string{"error at hypervisors.hv a: "}},
		"no hypervisor":     {object{"hypervisors": object{}}, nil, []string{"error at hypervisors: "}},
		"unknown virt_type": {object{"hypervisors": object{"a": object{"uri": "qemu:///system", "virt_type": "xen"}}}, nil, []string{"error at hypervisors.a.virt_type: "}},
		"parallelism":       {object{"parallelism": 17}, nil, []string{"error at parallelism: "}},
		"URL without scheme": {object{"k3s": object{"install_script_url": "get.k3s.io"}}, nil,
			[]string{"error at k3s.install_script_url: "}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, object{})
			for name, value := range tt.env {
				t.Setenv(name, value)
			}
			wantDiags(t, w.validateProvider(tt.config), tt.want...)
		})
	}
}

// While a value of the provider's configuration is unknown nothing is asked: resources plan without their checks and keep
// their state.
func TestUnknownProviderConfiguration(t *testing.T) {
	for name, config := range map[string]object{
		"uri":      with(someTemplate(), object{"hypervisors": object{"a": object{"uri": unknown}}}),
		"template": {"template": unknown},
		"k3s":      with(someTemplate(), object{"k3s": object{"install_script_url": unknown}}),
	} {
		t.Run(name, func(t *testing.T) {
			before := newWorld(t, someTemplate()).create(poolType, poolConfig())
			w := newWorld(t, config)

			wantDiags(t, w.plan(clusterType, nil, clusterConfig()).diags)
			p := w.plan(poolType, before, with(poolConfig(), object{"node_count": 5}))
			wantDiags(t, p.diags)
			if p.state["nodes"] != any(unknown) {
				t.Errorf("nodes: got %v, want them unknown", p.state["nodes"])
			}
			after, diags := w.read(poolType, before)
			wantDiags(t, diags)
			if contradiction("", before, after) != "" {
				t.Errorf("the state changed: got %v, want %v", after, before)
			}
			_, diags = w.data("cockpit_kubeconfig", object{"cluster_id": clusterID})
			wantDiags(t, diags, "Unable to read kubeconfig of cluster", "not known yet", "depends_on")
			if len(w.engine.calls) > 0 {
				t.Errorf("the engine was asked: %v", w.engine.calls)
			}
		})
	}
}
