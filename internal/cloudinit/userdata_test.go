package cloudinit

import (
	"encoding/base64"
	"fmt"
	"io/fs"
	"reflect"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

func TestEncode(t *testing.T) {
	u := UserData{
		Hostname: "prod-workers-1",
		Files: []File{
			{Path: "/etc/rancher/k3s/config.yaml", Content: []byte("token: 'a#b: c'\nserver: x\n"), Mode: 0o600},
			{Path: "/var/lib/cockpit/bootstrap.sh", Content: []byte("#!/bin/sh\n\techo hi\n"), Mode: 0o700},
			{Path: "/etc/blob", Content: []byte{0, 1, 0xff}, Mode: 0o644},
		},
		Commands:          [][]string{{"/bin/sh", "/var/lib/cockpit/bootstrap.sh"}, {"echo", "a: b", "#"}},
		SSHAuthorizedKeys: []string{"ssh-ed25519 AAAA me@host: #1"},
	}
	const want = `#cloud-config
hostname: "prod-workers-1"
preserve_hostname: false
manage_etc_hosts: "localhost"
package_update: false
apt:
  preserve_sources_list: true
ssh_genkeytypes:
- "ed25519"
- "ecdsa"
ssh_authorized_keys:
- "ssh-ed25519 AAAA me@host: #1"
write_files:
- path: "/etc/rancher/k3s/config.yaml"
  permissions: "0600"
  content: |
    token: 'a#b: c'
    server: x
- path: "/var/lib/cockpit/bootstrap.sh"
  permissions: "0700"
  content: |
    #!/bin/sh
    	echo hi
- path: "/etc/blob"
  permissions: "0644"
  encoding: "b64"
  content: |-
    AAH/
runcmd:
- - "/bin/sh"
  - "/var/lib/cockpit/bootstrap.sh"
- - "echo"
  - "a: b"
  - "#"
`
	got, err := u.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestEncodeNothing(t *testing.T) {
	got, err := UserData{}.Encode()
	if err != nil || string(got) != "#cloud-config\n{}\n" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestEncodeRefuses(t *testing.T) {
	const secret = "5ec7e7"
	for name, u := range map[string]UserData{
		"no hostname":   {Commands: [][]string{{"true"}}},
		"relative path": {Hostname: "n", Files: []File{{Path: "etc/x", Content: []byte(secret)}}},
		"file type":     {Hostname: "n", Files: []File{{Path: "/etc/x", Content: []byte(secret), Mode: fs.ModeDir | 0o700}}},
		"setuid":        {Hostname: "n", Files: []File{{Path: "/etc/x", Content: []byte(secret), Mode: fs.ModeSetuid | 0o700}}},
		"empty command": {Hostname: "n", Commands: [][]string{{}}},
	} {
		b, err := u.Encode()
		if err == nil {
			t.Errorf("%s: accepted as\n%s", name, b)
		} else if strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the error holds the content", name)
		}
	}
}

// decode reads user-data as cloud-init does, far enough to see files and commands.
func decode(t *testing.T, userData []byte) (files map[string]string, commands [][]string) {
	t.Helper()
	if !strings.HasPrefix(string(userData), "#cloud-config\n") {
		t.Fatalf("user-data begins %.20q", userData)
	}
	var d struct {
		WriteFiles []struct{ Path, Content, Encoding string } `yaml:"write_files"`
		RunCmd     [][]string                                 `yaml:"runcmd"`
	}
	if err := yaml.Unmarshal(userData, &d); err != nil {
		t.Fatalf("%v in\n%s", err, userData)
	}
	files = map[string]string{}
	for _, f := range d.WriteFiles {
		if f.Encoding == "b64" {
			b, err := base64.StdEncoding.DecodeString(f.Content)
			if err != nil {
				t.Fatal(err)
			}
			f.Content = string(b)
		}
		files[f.Path] = f.Content
	}
	return files, d.RunCmd
}

func FuzzEncode(f *testing.F) {
	for _, s := range []string{
		"", "a", "a\n", "a\n\n", "\n", "\na", " a\n b", "\ta", "a \nb", "a\n \n", "a\r\nb", "# a", "---\n", "...\n", "%YAML", "- a",
		"a: b #c", "\x00", "\xff", "ü", "\u2028", "\ufeff", "yes", "12:30", "1_0", "=", "<<", "'", `"\n`, "{}", "|", "a\n\tb\n", "no newline",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		u := UserData{Hostname: "n", Files: []File{{Path: "/f", Content: []byte(s)}}}
		// A command's arguments hold text alone; what is not UTF-8 has no YAML.
		if strings.ToValidUTF8(s, "") == s && !strings.Contains(s, "\x00") {
			u.Commands = [][]string{{"echo", s}}
		}
		b, err := u.Encode()
		if err != nil {
			t.Fatal(err)
		}
		files, commands := decode(t, b)
		if files["/f"] != s {
			t.Errorf("the file comes back as %q", files["/f"])
		}
		if fmt.Sprintf("%q", commands) != fmt.Sprintf("%q", u.Commands) && !reflect.DeepEqual(commands, u.Commands) {
			t.Errorf("the command comes back as %q", commands)
		}
	})
}
