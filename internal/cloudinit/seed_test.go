package cloudinit

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kdomanski/iso9660"
)

func TestNetworkConfig(t *testing.T) {
	const want = `version: 2
ethernets:
  primary:
    match:
      macaddress: "52:54:00:ab:cd:ef"
    dhcp4: true
    dhcp-identifier: "mac"
`
	for _, mac := range []string{"52:54:00:ab:cd:ef", "52:54:00:AB:CD:EF"} {
		if got := NetworkConfig(mac); string(got) != want {
			t.Errorf("%s:\n%s", mac, got)
		}
	}
	for _, mac := range []string{"", "eth0", "52:54:00:ab:cd"} {
		if got := NetworkConfig(mac); got != nil {
			t.Errorf("%q: accepted as\n%s", mac, got)
		}
	}
}

const token = "K10ab::server:5ec7e7"

func testSeed(t *testing.T) Seed {
	t.Helper()
	userData, err := UserData{
		Hostname: "prod-cp-1",
		Files:    []File{{Path: "/token", Content: []byte(token + "\n"), Mode: 0o600}, {Path: "/pad", Content: bytes.Repeat([]byte("x"), 9000)}},
	}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return Seed{InstanceID: "6f1c0a0e-1111-4222-8333-444455556666", LocalHostname: "prod-cp-1", UserData: userData, NetworkConfig: NetworkConfig("52:54:00:00:00:11")}
}

func mustISO(t *testing.T, s Seed) []byte {
	t.Helper()
	image, err := ISO(s)
	if err != nil {
		t.Fatal(err)
	}
	if len(image) != SeedSize {
		t.Errorf("the image has %d bytes", len(image))
	}
	return image
}

const metaData = `instance-id: "6f1c0a0e-1111-4222-8333-444455556666"
local-hostname: "prod-cp-1"
`

func TestISO(t *testing.T) {
	s := testSeed(t)
	image := mustISO(t, s)
	if !bytes.Equal(image, mustISO(t, s)) {
		t.Error("the same seed gives other bytes")
	}
	wantFiles(t, image, map[string]string{
		"user-data": string(s.UserData), "meta-data": metaData, "network-config": string(s.NetworkConfig),
	})
}

func TestScrubbed(t *testing.T) {
	s := testSeed(t)
	image := mustISO(t, s.Scrubbed())
	wantFiles(t, image, map[string]string{
		"user-data": "#cloud-config\n{}\n", "meta-data": metaData, "network-config": string(s.NetworkConfig),
	})
	disk := mustISO(t, s)
	if !bytes.Contains(disk, []byte(token)) {
		t.Fatal("the seed does not hold the token")
	}
	if copy(disk, image); bytes.Contains(disk, []byte(token)) || bytes.Contains(disk, []byte("xxxx")) {
		t.Error("the scrubbed seed leaves a part of the first")
	}
}

// wantFiles reads an image with a library.
func wantFiles(t *testing.T, image []byte, want map[string]string) {
	t.Helper()
	i, err := iso9660.OpenImage(bytes.NewReader(image))
	if err != nil {
		t.Fatal(err)
	}
	if label, err := i.Label(); err != nil || label != "cidata" {
		t.Errorf("label %q, %v", label, err)
	}
	root, err := i.RootDir()
	if err != nil {
		t.Fatal(err)
	}
	children, err := root.GetChildren()
	if err != nil {
		t.Fatal(err)
	}
	if len(children) != len(want) {
		t.Errorf("%d files, want %d", len(children), len(want))
	}
	for _, f := range children {
		b, err := io.ReadAll(f.Reader())
		if err != nil {
			t.Fatal(err)
		}
		if string(b) != want[f.Name()] {
			t.Errorf("%s holds\n%s\nwant\n%s", f.Name(), b, want[f.Name()])
		}
	}
}

func TestISOReadElsewhere(t *testing.T) {
	isoinfo, err := exec.LookPath("isoinfo")
	if err != nil {
		t.Skip("isoinfo is not installed")
	}
	s := testSeed(t)
	file := filepath.Join(t.TempDir(), "seed.iso")
	if err := os.WriteFile(file, mustISO(t, s), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		out, err := exec.CommandContext(t.Context(), isoinfo, append([]string{"-i", file}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("isoinfo %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	if out := run("-d"); !strings.Contains(out, "Volume id: cidata\n") || !strings.Contains(out, "Volume size is: 512\n") {
		t.Errorf("isoinfo -d says\n%s", out)
	}
	if out := run("-p"); !strings.Contains(out, "1:    1 14") { // the root is its own parent, at sector 20
		t.Errorf("isoinfo -p says\n%s", out)
	}
	if out := run("-x", "/user-data;1"); out != string(s.UserData) {
		t.Errorf("isoinfo -x gives\n%s", out)
	}
}

// Nothing of a seed touches a disk: with no directory for temporary files it is made all the same.
func TestISOStaysInMemory(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "absent"))
	mustISO(t, testSeed(t))
}

func TestISORefuses(t *testing.T) {
	good := testSeed(t)
	for name, change := range map[string]func(*Seed){
		"no instance id":  func(s *Seed) { s.InstanceID = "" },
		"no hostname":     func(s *Seed) { s.LocalHostname = "" },
		"no network":      func(s *Seed) { s.NetworkConfig = NetworkConfig("eth0") },
		"no header":       func(s *Seed) { s.UserData = s.UserData[1:] },
		"byte order mark": func(s *Seed) { s.UserData = append([]byte("\ufeff"), s.UserData...) },
		"too large":       func(s *Seed) { s.UserData = append(s.UserData, make([]byte, SeedSize)...) },
		"just a few bytes": func(s *Seed) {
			s.UserData = append(s.UserData, make([]byte, SeedSize-len(s.UserData)-sector*firstFileSector)...)
		},
	} {
		s := good
		s.UserData = bytes.Clone(s.UserData)
		change(&s)
		if _, err := ISO(s); err == nil {
			t.Errorf("%s: accepted", name)
		} else if strings.Contains(err.Error(), "5ec7e7") {
			t.Errorf("%s: the error holds the token", name)
		}
	}
}
