package provider

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/addons"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/hypervisor"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/k3s"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
)

// someCA is the certificate of an authority.
const someCA = `-----BEGIN CERTIFICATE-----
MIIBejCCASGgAwIBAgIUS/F5fHrFUWAnqxweg3WDQlH41j8wCgYIKoZIzj0EAwIw
EjEQMA4GA1UEAwwHZXhhbXBsZTAgFw0yNjEyMDEwNTMyMDhaGA8yMTI2MTEwNzA1
MzIwOFowEjEQMA4GA1UEAwwHZXhhbXBsZTBZMBMGByqGSM49AgEGCCqGSM49AwEH
A0IABFi9226QhAvYBfafejNUtamtx4bssREA4dHEOWkBcUdhsdf3MUwuYfSsunQn
LHjYVsgBRSTWAFKgomD3hkrKMb+jUzBRMB0GA1UdDgQWBBS1PLcHcD47TnQtlSx1
+S2MCsRmijAfBgNVHSMEGDAWgBS1PLcHcD47TnQtlSx1+S2MCsRmijAPBgNVHRMB
Af8EBTADAQH/MAoGCCqGSM49BAMCA0cAMEQCIC+MLF0Ec6GO/ZdIW+I01qNAV7fp
//iTMOK3jYUtkFdzAiAe294gzITR00nvYke/V3DmBqRtsxhbd+bwHBjeUUlMNA==
-----END CERTIFICATE-----
`

func TestConfigure(t *testing.T) {
	for name, tt := range map[string]struct {
		config object
		env    map[string]string
		want   settings
		origin origin
	}{
		"defaults": {object{}, nil, settings{
			hypervisors:      map[string]hypervisor.Config{"default": {URI: "qemu:///system", Schedulable: true, Overcommit: machine.DefaultOvercommit}},
			installScriptURL: "https://get.k3s.io", parallelism: 4,
		}, origin{}},
		"environment": {object{}, map[string]string{envURI: "qemu+ssh://hv/system", envGitHub: "t0ken"}, settings{
			hypervisors:      map[string]hypervisor.Config{"default": {URI: "qemu+ssh://hv/system", Schedulable: true, Overcommit: machine.DefaultOvercommit}},
			installScriptURL: "https://get.k3s.io", parallelism: 4,
		}, origin{token: k3s.Token{Secret: "t0ken", Origin: "the environment variable GITHUB_TOKEN"}}},
		"everything": {object{
			"hypervisors": object{
				"hv-a": object{"uri": "qemu+ssh://hv-a/system", "virt_type": "qemu", "schedulable": false, "cpu_overcommit": 2.5, "memory_overcommit": 0.9, "disk_overcommit": 3},
				"hv-b": object{"uri": "qemu+ssh://hv-b/system"},
			},
			"template":    object{"hypervisor": "hv-a", "pool": "templates", "volume": "v.qcow2", "shared": true},
			"k3s":         object{"install_script_url": "http://mirror/k3s.sh", "releases_url": "https://mirror/releases", "github_token": "own"},
			"parallelism": 2, "image_registry": "registry.example:5000/mirror",
			"charts": object{"repository": "https://mirror.example/charts", "username": "me", "password": "geheim", "ca_pem": someCA},
		}, map[string]string{envURI: "qemu+ssh://hv/system", envGitHub: "t0ken"}, settings{
			hypervisors: map[string]hypervisor.Config{
				"hv-a": {URI: "qemu+ssh://hv-a/system", VirtType: "qemu", Overcommit: machine.Overcommit{CPU: 2.5, Memory: 0.9, Disk: 3}}, "hv-b": {URI: "qemu+ssh://hv-b/system", Schedulable: true, Overcommit: machine.DefaultOvercommit},
			},
			template:         &hypervisor.TemplateRef{Hypervisor: "hv-a", Pool: "templates", Volume: "v.qcow2", Shared: true},
			installScriptURL: "http://mirror/k3s.sh", parallelism: 2,
			charts: addons.Options{Repository: "https://mirror.example/charts", Username: "me", Password: "geheim", CA: []byte(someCA)},
		}, origin{url: "https://mirror/releases", token: k3s.Token{Secret: "own", Origin: "the provider's k3s.github_token"}}},
		"template of the only hypervisor": {someTemplate(), nil, settings{
			hypervisors:      map[string]hypervisor.Config{"default": {URI: "qemu:///system", Schedulable: true, Overcommit: machine.DefaultOvercommit}},
			template:         &hypervisor.TemplateRef{Hypervisor: "default", Pool: "templates", Volume: "debian.qcow2"},
			installScriptURL: "https://get.k3s.io", parallelism: 4,
		}, origin{}},
		"the environment's token is not for another server": {object{"k3s": object{"releases_url": "https://mirror/releases"}}, map[string]string{envGitHub: "t0ken"}, settings{
			hypervisors:      map[string]hypervisor.Config{"default": {URI: "qemu:///system", Schedulable: true, Overcommit: machine.DefaultOvercommit}},
			installScriptURL: "https://get.k3s.io", parallelism: 4,
		}, origin{url: "https://mirror/releases"}},
		"a mirror without TLS": {object{"k3s": object{"releases_url": "http://mirror/releases"}}, map[string]string{envGitHub: "t0ken"}, settings{
			hypervisors:      map[string]hypervisor.Config{"default": {URI: "qemu:///system", Schedulable: true, Overcommit: machine.DefaultOvercommit}},
			installScriptURL: "https://get.k3s.io", parallelism: 4,
		}, origin{url: "http://mirror/releases"}},
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
			if w.releases.origin != tt.origin {
				t.Errorf("got  %+v\nwant %+v", w.releases.origin, tt.origin)
			}
		})
	}
}

// The password of the mirror for charts stands in no plan and no state.
func TestPasswordOfChartsStaysWithTheProvider(t *testing.T) {
	w := newWorld(t, with(threeHosts(), object{"charts": object{"repository": "https://mirror.example/charts", "username": "me", "password": "s3cr3t"}}))
	config := with(clusterConfig(), object{"cni": object{"plugin": "cilium"}})
	p := w.plan(clusterType, nil, config)
	state, diags := w.apply(clusterType, nil, config, p)
	for name, o := range map[string]object{"plan": p.state, "state": state} {
		if strings.Contains(fmt.Sprint(o), "s3cr3t") {
			t.Errorf("the %s holds the password: %v", name, o)
		}
	}
	if strings.Contains(string(p.private)+render(p.diags)+render(diags), "s3cr3t") {
		t.Error("private data or diagnostics hold the password")
	}
	if w.engine.settings.charts.Password != "s3cr3t" {
		t.Error("the catalogue does not get the password")
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
			[]string{"error at hypervisors.hv-a.uri: Unable to use hypervisor URI", "qemu+ssh://root@hv-a/system", `The attribute is hypervisors["hv-a"].uri.`},
		},
		"bad name": {object{"hypervisors": object{"hv a": object{"uri": "qemu:///system"}}}, nil, []string{`error at hypervisors.hv a: Unable to use hypervisor name "hv a"`, "It has to be of letters"}},
		"null for a hypervisor": {object{"hypervisors": object{"a": nil}}, nil,
			[]string{`error at hypervisors.a: Unable to use element "a"`, "It is null; leave it out"}},
		"no hypervisor":     {object{"hypervisors": object{}}, nil, []string{"error at hypervisors: "}},
		"unknown virt_type": {object{"hypervisors": object{"a": object{"uri": "qemu:///system", "virt_type": "xen"}}}, nil, []string{"error at hypervisors.a.virt_type: "}},
		"parallelism":       {object{"parallelism": 17}, nil, []string{`error at parallelism: Unable to use parallelism "17"`, "It has to be a whole number from 1 to 16."}},
		"half a node":       {object{"parallelism": 1.5}, nil, []string{`error at parallelism: Unable to use parallelism "1.5"`, "It has to be a whole number from 1 to 16."}},
		"no CPUs for VMs": {object{"hypervisors": object{"a": object{"uri": "qemu:///system", "cpu_overcommit": 0}}}, nil,
			[]string{`error at hypervisors.a.cpu_overcommit: Unable to use cpu_overcommit "0"`, "It has to be a number from 0.1 to 100.", `hypervisors["a"].cpu_overcommit`}},
		"much memory": {object{"hypervisors": object{"a": object{"uri": "qemu:///system", "memory_overcommit": 10.5}}}, nil,
			[]string{`error at hypervisors.a.memory_overcommit: Unable to use memory_overcommit "10.5"`, "It has to be a number from 0.1 to 10."}},
		"URL without scheme": {object{"k3s": object{"install_script_url": "get.k3s.io"}}, nil,
			[]string{"error at k3s.install_script_url: Unable to use URL\n", "It has to begin with https:// or http:// and a host.", "k3s.install_script_url"}},
		"token without TLS": {object{"k3s": object{"releases_url": "http://mirror/releases", "github_token": "s3cr3t"}}, nil,
			[]string{"error at k3s.github_token: Unable to use k3s.github_token\n", "unencrypted to releases_url", "What to do: "}},
		"charts over ftp": {object{"charts": object{"repository": "ftp://mirror.example/charts"}}, nil,
			[]string{"error at charts.repository: Unable to use charts.repository\n", "https://, http:// or oci://", "The attribute is charts.repository."}},
		"credentials in the URL of charts": {object{"charts": object{"repository": "https://me:s3cr3t@mirror.example/charts"}}, nil,
			[]string{"error at charts.repository: Unable to use charts.repository\n", "It holds credentials", "username and password"}},
		"registry without a place for charts": {object{"charts": object{"repository": "oci://registry.example/"}}, nil, []string{`"oci://registry.example/charts"`}},
		"user without a password": {object{"charts": object{"repository": "https://mirror.example/charts", "username": "me"}}, nil,
			[]string{"error at charts.username: Unable to use charts.username\n", "no password beside it"}},
		"password without a user": {object{"charts": object{"repository": "https://mirror.example/charts", "password": "s3cr3t"}}, nil,
			[]string{"error at charts.password: Unable to use charts.password\n", "no username beside it"}},
		"password without TLS": {object{"charts": object{"repository": "http://mirror.example/charts", "username": "me", "password": "s3cr3t"}}, nil,
			[]string{"error at charts.password: Unable to use charts.password\n", "unencrypted to charts.repository", "What to do: "}},
		"path of a certificate": {object{"charts": object{"repository": "https://mirror.example/charts", "ca_pem": "/etc/ssl/ca.pem"}}, nil,
			[]string{"error at charts.ca_pem: Unable to use charts.ca_pem\n", `file("ca.pem")`}},
		"key for a certificate": {object{"charts": object{"repository": "https://mirror.example/charts", "ca_pem": "-----BEGIN PRIVATE KEY-----\ns3cr3t\n"}}, nil,
			[]string{"error at charts.ca_pem: ", "private key"}},
		"URL of an image registry":         {object{"image_registry": "https://registry.example"}, nil, []string{"error at image_registry: Unable to use image_registry\n", "It is a URL"}},
		"end of an image registry":         {object{"image_registry": "registry.example:5000/mirror/"}, nil, []string{"error at image_registry: ", "The form is host[:port][/path]"}},
		"upper case in an image registry":  {object{"image_registry": "registry.example/Mirror"}, nil, []string{"error at image_registry: ", "The form is host[:port][/path]"}},
		"credentials in an image registry": {object{"image_registry": "me:s3cr3t@registry.example"}, nil, []string{"error at image_registry: ", "registries_yaml"}},
		"empty image registry":             {object{"image_registry": ""}, nil, []string{"error at image_registry: ", "The form is host[:port][/path]"}},
		"port of an image registry":        {object{"image_registry": "registry.example:https"}, nil, []string{"error at image_registry: ", "The form is host[:port][/path]"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, object{})
			for name, value := range tt.env {
				t.Setenv(name, value)
			}
			diags := w.validateProvider(tt.config)
			wantDiags(t, diags, tt.want...)
			if text := render(diags); len(diags) > 1 || strings.Contains(text, "s3cr3t") || strings.Contains(text, "types.") {
				t.Errorf("want one diagnostic, without a secret and without types of Go:\n%s", text)
			}
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

// The list of releases needs no hypervisor.
func TestVersionsWhileProviderIsUnknown(t *testing.T) {
	uri := object{"hypervisors": object{"a": object{"uri": unknown}}}
	for name, tt := range map[string]struct {
		k3s  any
		want []string
	}{
		"nothing of k3s":   {nil, nil},
		"a known mirror":   {object{"releases_url": "https://mirror/releases"}, nil},
		"an unknown URL":   {object{"releases_url": unknown}, []string{"Unable to list k3s versions", "not known yet"}},
		"an unknown token": {object{"github_token": unknown}, []string{"Unable to list k3s versions", "not known yet"}},
		"all unknown":      {unknown, []string{"Unable to list k3s versions", "not known yet"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, with(uri, object{"k3s": tt.k3s}))
			w.releases.list = releaseList(t, "v1.36.1+k3s1")
			_, diags := w.data("cockpit_k3s_versions", object{})
			wantDiags(t, diags, tt.want...)
		})
	}
}
