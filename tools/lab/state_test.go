package lab

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/internal/proc"
)

func testState() State {
	l := layout{"dev"}
	return State{
		Version: stateVersion, Name: "dev", BootID: "b", VirtType: "qemu", Template: "debian-12-k3s.qcow2",
		MirrorURL:   "http://10.77.0.1",
		Hypervisors: []Hypervisor{l.newHypervisor(0), l.newHypervisor(1)},
		Processes:   []Daemon{{Name: "dnsmasq", Process: proc.Process{PID: 7, Start: 99}}},
		Ready:       true,
	}
}

func TestStateRoundTrip(t *testing.T) {
	want := testState()
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeState(layout{"dev"}, text)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	d, ok := got.daemon("dnsmasq")
	if !ok || d.PID != 7 || d.Start != 99 {
		t.Errorf("daemon %+v, %v", d, ok)
	}
	if _, ok := got.daemon("none"); ok {
		t.Error("found a daemon that was never started")
	}
}

func TestStateOfAnotherVersion(t *testing.T) {
	for _, text := range []string{`{"version": 99, "name": "dev"}`, `{`, ``} {
		if _, err := decodeState(layout{"dev"}, []byte(text)); err == nil || !strings.Contains(err.Error(), `"dev"`) {
			t.Errorf("%q: got error %v", text, err)
		}
	}
}

func TestOpenWithoutLab(t *testing.T) {
	if _, err := Open("there-is-none"); !IsNoLab(err) {
		t.Errorf("got error %v", err)
	}
	t.Setenv(EnvName, "")
	if _, err := FromEnv(); !IsNoLab(err) {
		t.Errorf("outside of a lab: got error %v", err)
	}
	if _, err := Open("../etc"); err == nil || IsNoLab(err) {
		t.Errorf("a name that is none: got error %v", err)
	}
}

func TestEnviron(t *testing.T) {
	l := &Lab{State: testState(), layout: layout{"dev"}}
	env := strings.Join(l.Environ(), "\n") + "\n"
	for _, want := range []string{
		"LAB_NAME=dev\n", "LAB_TEMPLATE_HYPERVISOR=hv-a\n", "LAB_INSTALL_SCRIPT_URL=http://10.77.0.1/install.sh\n",
		"LAB_URI_HV_A=qemu+unix:///system?socket=/run/cockpit-lab/dev/hv-a/libvirt-sock\n",
		"LAB_URI_HV_B=qemu+unix:///system?socket=/run/cockpit-lab/dev/hv-b/libvirt-sock\n",
		"LIBVIRT_DEFAULT_URI=qemu+unix:///system?socket=/run/cockpit-lab/dev/hv-a/libvirt-sock\n",
	} {
		if !strings.Contains(env, want) {
			t.Errorf("lacks %q:\n%s", want, env)
		}
	}
	for _, kv := range l.Environ() {
		if strings.Contains(kv, "'") {
			t.Errorf("%q cannot stand in single quotes", kv)
		}
	}
}

func TestConfigValidate(t *testing.T) {
	c, err := Config{}.validate()
	if err != nil || c.Name != DefaultName || c.Hypervisors != 1 || c.Log == nil {
		t.Errorf("defaults: %+v, %v", c, err)
	}
	for name, c := range map[string]Config{
		"name":              {Name: "No"},
		"hypervisors":       {Hypervisors: maxHypervisors + 1},
		"minus hypervisors": {Hypervisors: -1},
		"no artifacts":      {Artifacts: "/there/is/none"},
		"artifacts a file":  {Artifacts: "state_test.go"},
	} {
		if _, err := c.validate(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestServiceArguments(t *testing.T) {
	want := Service{Name: "dev", ControlPlane: "/c", K3sDouble: "/d"}
	got, err := ServiceFrom(want.args()[1:])
	if err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if _, err := ServiceFrom(nil); err == nil {
		t.Error("no arguments: no error")
	}
}
