package cloudinit

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// node has everything that a user's cloud-config can meet.
func node(extra string) UserData {
	return UserData{
		Hostname:          "prod-w-1",
		Files:             []File{{Path: "/etc/ours", Content: []byte("ours\n"), Mode: 0o600}},
		Commands:          [][]string{{"/bin/sh", "/ours.sh"}},
		SSHAuthorizedKeys: []string{"ssh-ed25519 OURS"},
		Disks:             []Disk{{Serial: "cockpit-data", MountPath: "/data", Unit: "k3s-agent"}},
		Extra:             []byte(extra),
	}
}

func TestMerge(t *testing.T) {
	const extra = `#cloud-config
# A comment.
packages: [nfs-common, 'open-iscsi']
package_update: yes
apt:
  sources: {mine: {source: "deb https://apt.example stable main"}}
users:
  - default
  - name: me
    sudo: ALL=(ALL) NOPASSWD:ALL
    lock_passwd: on
ssh_authorized_keys: ["ssh-ed25519 THEIRS"]
mounts: [[nas:/export, /data/nas, nfs]]
write_files:
- path: /etc/theirs
  permissions: 0644
  content: |
    a: b
      # c
- {path: /data/later, defer: true, content: 12:30}
runcmd:
- exit 1
- [echo, 1, "a: b"]
- # nothing
ntp: {enabled: true}
`
	const want = `#cloud-config
hostname: "prod-w-1"
preserve_hostname: false
manage_etc_hosts: "localhost"
package_update: yes
apt:
  "sources":
    "mine":
      "source": "deb https://apt.example stable main"
  preserve_sources_list: true
ssh_genkeytypes:
- "ed25519"
- "ecdsa"
ssh_authorized_keys:
- "ssh-ed25519 THEIRS"
- "ssh-ed25519 OURS"
fs_setup:
- device: "/dev/disk/by-id/virtio-cockpit-data"
  filesystem: "ext4"
  partition: "any"
  overwrite: false
mounts:
- - "/dev/disk/by-id/virtio-cockpit-data"
  - "/data"
  - "ext4"
  - "defaults,nofail,x-systemd.growfs"
  - "0"
  - "2"
- - "nas:/export"
  - "/data/nas"
  - "nfs"
write_files:
- "path": "/etc/theirs"
  "permissions": 0644
  "content": |
    a: b
      # c
- "path": "/data/later"
  "defer": true
  "content": 12:30
- path: "/etc/ours"
  permissions: "0600"
  content: |
    ours
- path: "/etc/systemd/system/k3s-agent.service.d/10-cockpit-data.conf"
  permissions: "0644"
  content: |
    [Unit]
    RequiresMountsFor=/data
    AssertPathIsMountPoint=/data
runcmd:
- "( :"
- "exit 1"
- - "echo"
  - 1
  - "a: b"
- null
- ")"
- - "/bin/sh"
  - "/ours.sh"
"packages":
- "nfs-common"
- "open-iscsi"
"users":
- "default"
- "name": "me"
  "sudo": "ALL=(ALL) NOPASSWD:ALL"
  "lock_passwd": on
"ntp":
  "enabled": true
`
	got, err := node(extra).Encode()
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// What is empty changes nothing, and what is null is not there.
func TestMergeNothing(t *testing.T) {
	without, err := node("").Encode()
	if err != nil {
		t.Fatal(err)
	}
	for _, extra := range []string{
		"\n", "#cloud-config", "#cloud-config\n", "#cloud-config\r\n", "# nothing\n", "---\n", "{}", "null", "~\n", "\ufeff#cloud-config\n",
		"runcmd:\nwrite_files: ~\napt:\nmounts: null\nfs_setup:\nssh_authorized_keys:\npackage_update:\n", "runcmd: []\nwrite_files: []\nmounts: []\n", "apt: {}\n",
	} {
		got, err := node(extra).Encode()
		if err != nil || string(got) != string(without) {
			t.Errorf("%q: %v\n%s", extra, err, got)
		}
	}
}

func TestMergeDefaults(t *testing.T) {
	for extra, want := range map[string]string{
		"ssh_genkeytypes: [rsa]":                                   "ssh_genkeytypes:\n- \"rsa\"\n",
		"package_update: true":                                     "package_update: true\n",
		"apt: {preserve_sources_list: false}":                      "apt:\n  \"preserve_sources_list\": false\nssh",
		"apt: {proxy: x}":                                          "apt:\n  \"proxy\": \"x\"\n  preserve_sources_list: true\nssh",
		"a: &a {proxy: x}\napt: *a":                                "apt:\n  \"proxy\": \"x\"\n  preserve_sources_list: true\nssh",
		"<<: {package_update: true}":                               "package_update: true\n",
		"growpart: {mode: off}":                                    "\"growpart\":\n  \"mode\": off\n",
		"a: &a {proxy: x}\napt: {<<: *a, preserve_sources_list: }": "apt:\n  \"preserve_sources_list\": null\n  \"proxy\": \"x\"\nssh",
	} {
		got, err := node(extra).Encode()
		if err != nil || !strings.Contains(string(got), want) || strings.Count(string(got), "preserve_sources_list") != 1 || strings.Count(string(got), "package_update") != 1 {
			t.Errorf("%q: %v\n%s\nwant %q in it", extra, err, got, want)
		}
	}
}

func TestMergeClashes(t *testing.T) {
	for extra, want := range map[string]string{
		"write_files: [{path: /etc/other}, {path: /etc/ours/x}]":    "",
		"write_files: [{path: /etc/ours}]":                          "line 1: the file /etc/ours is written already",
		"write_files: [{path: /etc/./ours/}]":                       "/etc/ours is written already",
		"write_files: [{path: //etc/x/../ours}]":                    "/etc/ours is written already",
		"write_files: [{path: etc/ours, defer: true}]":              "/etc/ours is written already",
		"a: &f {path: /etc/ours}\nwrite_files: [*f]":                "/etc/ours is written already",
		"write_files:\n- path: /data/x":                             "line 2: the file /data/x is written before the disk is mounted",
		"write_files: [{path: /data}]":                              "before the disk is mounted",
		"write_files: [{path: /data/x, defer: false}]":              "before the disk is mounted",
		"write_files: [{path: /data/x, defer: true}]":               "",
		"write_files: [{path: /data/x, defer: \"true\"}]":           "",
		"write_files: [{path: /database}]":                          "",
		"mounts: [[/dev/vdz, /data]]":                               "line 1: a disk is mounted at /data already",
		"mounts: [[/dev/vdz, /data/]]":                              "mounted at /data already",
		"mounts: [[/dev/disk/by-id/virtio-cockpit-data, /x]]":       "mounted at /data already",
		"mounts: [[/dev/vdz, /data/x], [swap, null]]":               "",
		"fs_setup: [{device: /dev/disk/by-id/virtio-cockpit-data}]": "has a file system already",
		"fs_setup: [{device: /dev/vdz}, {cmd: x}]":                  "",
		"disk_setup: {/dev/disk/by-id/virtio-cockpit-data: {}}":     "not to be parted",
		"disk_setup: {/dev/vdz: {}}":                                "",
		"users: [default, me]":                                      "",
		"users: [me]":                                               "line 1: users lacks default",
		"users: []":                                                 "users lacks default",
		"users:":                                                    "users lacks default",
		"users: [{name: me}]":                                       "users lacks default",
		"users: [{name: default}]":                                  "",
		"users: [{shell: /bin/sh}]":                                 "", // which changes the default user
		"users: [me, 'you, default']":                               "",
		"users: me,default":                                         "",
		"users: me":                                                 "users lacks default",
		"users: {default: true, me: {}}":                            "",
		"users: {default: {shell: /bin/sh}}":                        "",
		"users: {default: no, me: {}}":                              "users lacks default",
		"users: {me: {}}":                                           "users lacks default",
		"users: [me]\nuser: {name: me}":                             "",
		"user: {name: me}":                                          "",
		"hostname: prod-w-1":                                        "cannot set hostname",
		"write_files: [{path: /etc/systemd/system/k3s-agent.service.d/10-cockpit-data.conf}]": "is written already",
	} {
		_, err := node(extra).Encode()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), "the user's cloud-config: ") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", extra, err, want)
		}
	}
	// Without keys of ours nobody needs the default user, and without a disk nothing hides a file.
	if _, err := (UserData{Hostname: "n", Extra: []byte("users: [me]\nwrite_files: [{path: /data/x}]")}).Encode(); err != nil {
		t.Error(err)
	}
}

// Whatever the user's commands do to their shell, ours run afterwards.
func TestMergedCommandsRunApart(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("there is no shell")
	}
	for _, theirs := range []string{
		`[true]`, `["exit 3"]`, `["set -e", "false", "echo theirs"]`, `["cd /nowhere || exit"]`, `["# nothing"]`, `[[exit]]`, `[[sh, -c, "exit 3"]]`, `["exec true"]`,
		`["cat <<END\n)\nEND"]`, `["echo a \\"]`, `["trap 'exit 3' EXIT"]`, `["f() { exit 3; }; f"]`, `["alias echo=false; set -u; echo $nothing"]`, `[~]`,
	} {
		theirs = strings.Replace(theirs, "[true]", `["true"]`, 1)
		u := UserData{Hostname: "n", Commands: [][]string{{"echo", "ours"}}, Extra: []byte("runcmd: " + theirs)}
		b, err := u.Encode()
		if err != nil {
			t.Fatal(err)
		}
		out, _ := exec.CommandContext(t.Context(), sh, "-c", script(t, b)).CombinedOutput()
		if !strings.HasSuffix(string(out), "ours\n") {
			t.Errorf("%s: the output is\n%s", theirs, out)
		}
	}
}

// script makes one of runcmd as cloud-init does: texts are lines, and lists are words in quotes.
func script(t *testing.T, userData []byte) string {
	t.Helper()
	var d struct {
		RunCmd []any `yaml:"runcmd"`
	}
	if err := yaml.Unmarshal(userData, &d); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, c := range d.RunCmd {
		switch c := c.(type) {
		case string:
			out.WriteString(c + "\n")
		case []any:
			for _, word := range c {
				out.WriteString("'" + strings.ReplaceAll(word.(string), "'", `'\''`) + "' ")
			}
			out.WriteString("\n")
		case nil:
		default:
			t.Fatalf("cloud-init takes no %T for a command", c)
		}
	}
	return out.String()
}

// The order of what is ours must not depend on the user's.
func TestMergeKeepsOurs(t *testing.T) {
	b, err := node("runcmd: [a, b]\nwrite_files: [{path: /x, content: x}]\nssh_authorized_keys: [k]").Encode()
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Keys  []string         `yaml:"ssh_authorized_keys"`
		Files []map[string]any `yaml:"write_files"`
	}
	if err := yaml.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(d.Keys, []string{"k", "ssh-ed25519 OURS"}) || len(d.Files) != 3 || d.Files[0]["path"] != "/x" || d.Files[1]["path"] != "/etc/ours" {
		t.Errorf("%v, %v", d.Keys, d.Files)
	}
}
