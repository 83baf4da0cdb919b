package cloudinit

import (
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

var mergedUser = UserData{
	Hostname: "w-1", Files: []File{{Path: "/etc/ours", Mode: 0o600, Content: []byte("x\n")}}, Commands: [][]string{{"/bin/ours"}},
	SSHAuthorizedKeys: []string{"ssh-ed25519 ours"},
}

func TestMerge(t *testing.T) {
	u := mergedUser
	u.Extra = []byte(`#cloud-config
packages: [jq]
runcmd: [[echo, theirs]]
write_files:
- {path: /etc/theirs, permissions: 0644, content: "yes"}
ssh_authorized_keys: [ssh-ed25519 theirs]
apt: {http_proxy: "http://proxy"}
ntp: {enabled: yes}
`)
	got, err := u.Encode()
	if err != nil {
		t.Fatal(err)
	}
	text := string(got)
	if !strings.HasPrefix(text, "#cloud-config\n") {
		t.Errorf("it begins with %.20q", text)
	}
	// What a reader of YAML 1.1 takes for a number or a truth value stays as it was written.
	for _, want := range []string{"permissions: 0644", "enabled: yes", `content: "yes"`, "preserve_sources_list: true", "http_proxy:"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	for _, order := range [][2]string{{"theirs]]", "/bin/ours"}, {"/etc/theirs", "/etc/ours"}, {"ed25519 theirs", "ed25519 ours"}} {
		if a, b := strings.Index(text, strings.TrimSuffix(order[0], "]]")), strings.Index(text, order[1]); a < 0 || b < 0 || a > b {
			t.Errorf("%s does not come before %s in\n%s", order[0], order[1], text)
		}
	}
}

func TestCheckExtra(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"empty":               {"", ""},
		"only a header":       {"#cloud-config\n", ""},
		"without a header":    {"packages: [jq]\n", ""},
		"a script":            {"#!/bin/sh\necho\n", "another kind"},
		"a template":          {"## template: jinja\n#cloud-config\n", "another kind"},
		"an include":          {"#include\nhttp://x\n", "another kind"},
		"a boothook":          {"#cloud-boothook\n", "another kind"},
		"MIME":                {"Content-Type: multipart/mixed\n", "another kind"},
		"a list":              {"- a\n", "no cloud-config"},
		"a text":              {"hunter2", "no cloud-config"},
		"no YAML":             {"a: [hunter2\n", "no YAML: at line"},
		"a tab":               {"a:\n\tb: hunter2\n", "no YAML"},
		"two documents":       {"a: 1\n---\nb: 2\n", "several"},
		"the hostname":        {"hostname: x\n", "sets hostname"},
		"a reboot":            {"power_state: {mode: reboot}\n", "power_state"},
		"a key twice":         {"a: 1\na: 2\n", "a second time"},
		"a key twice, inside": {"a: {b: 1, b: 2}\n", "a second time"},
		"an alias":            {"a: &x [1]\nb: *x\n", "alias"},
		"a conflict":          {"package_update: true\n", "sets package_update"},
		"no conflict":         {"package_update: false\n", ""},
		"a conflict inside":   {"apt: {preserve_sources_list: false}\n", "apt.preserve_sources_list"},
		"another kind":        {"ssh_genkeytypes: rsa\n", "ssh_genkeytypes"},
		"a file without path": {"write_files: [{content: x}]\n", "no path"},
		"a file twice":        {"write_files: [{path: /a}, {path: /a}]\n", "there already"},
		"no entry":            {"write_files: [x]\n", "no path"},
		"more than has room":  {"# " + strings.Repeat("x", extraLimit), "bytes"},
	} {
		err := CheckExtra(tc.text)
		if (err == nil) != (tc.want == "") || err != nil && (!strings.Contains(err.Error(), tc.want) || strings.Contains(err.Error(), "hunter2")) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
	u := mergedUser
	u.Extra = []byte("write_files: [{path: /etc/ours}]\n")
	if _, err := u.Encode(); err == nil || !strings.Contains(err.Error(), "/etc/ours") {
		t.Errorf("a file of ours: %v", err)
	}
	for text, refused := range map[string]bool{"users: [{name: x}]\n": true, "users: [default, {name: x}]\n": false} {
		u.Extra = []byte(text)
		if _, err := u.Encode(); (err != nil) != refused {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestDisks(t *testing.T) {
	got, err := UserData{Hostname: "n", Disks: []Disk{{Serial: "cockpit-data", MountPath: "/data"}}}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		FSSetup []map[string]any `yaml:"fs_setup"`
		Mounts  [][]string       `yaml:"mounts"`
	}
	if err := yaml.Unmarshal(got, &doc); err != nil {
		t.Fatal(err)
	}
	const device = "/dev/disk/by-id/virtio-cockpit-data"
	if len(doc.FSSetup) != 1 || doc.FSSetup[0]["device"] != device || doc.FSSetup[0]["overwrite"] != false || doc.FSSetup[0]["partition"] != "none" {
		t.Errorf("%v", doc.FSSetup)
	}
	if len(doc.Mounts) != 1 || doc.Mounts[0][0] != device || doc.Mounts[0][1] != "/data" || !strings.Contains(doc.Mounts[0][3], "x-systemd.growfs") {
		t.Errorf("%v", doc.Mounts)
	}
	if _, err := (UserData{Hostname: "n", Disks: []Disk{{Serial: "x", MountPath: "data"}}}).Encode(); err == nil {
		t.Error("a path that is not absolute")
	}
}

// Whatever is merged is one YAML document with all that the provider sets.
func FuzzMerge(f *testing.F) {
	for _, seed := range []string{"", "a: 1", "runcmd: [ls]", "write_files: [{path: /x}]", "apt: {}", "? [a]\n: b", "a: !!binary x", "<<: {a: 1}", "users: x", "write_files: {a: b}", "\ufeffa: 1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u := mergedUser
		u.Extra = []byte(text)
		got, err := u.Encode()
		if err != nil {
			return
		}
		var doc map[string]any
		if err := yaml.Unmarshal(got, &doc); err != nil || doc["hostname"] != "w-1" {
			t.Errorf("%q became %q: %v", text, got, err)
		}
		if commands, ok := doc["runcmd"].([]any); !ok || len(commands) == 0 {
			t.Errorf("%q lost the commands: %q", text, got)
		}
	})
}
