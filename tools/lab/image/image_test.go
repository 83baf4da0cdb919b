package image

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestVolume(t *testing.T) {
	tests := []struct {
		options Options
		want    string
	}{
		{Options{}, "debian-12-k3s.qcow2"},
		{Options{Emulated: true}, "debian-12-k3s.qcow2"},
		{Options{MaskAgent: true}, "debian-12-k3s-no-agent.qcow2"},
		{Options{Distribution: "debian", Suite: "forky"}, "debian-forky-k3s.qcow2"},
		{Options{Distribution: "ubuntu"}, "ubuntu-24.04-k3s.qcow2"},
		{Options{Distribution: "ubuntu", Suite: "jammy"}, "ubuntu-22.04-k3s.qcow2"},
	}
	for _, tt := range tests {
		if got := tt.options.Volume(); got != tt.want {
			t.Errorf("%+v: %s, want %s", tt.options, got, tt.want)
		}
	}
}

// Each option that changes what is in the image has an entry of its own in the cache.
func TestPathTellsImagesApart(t *testing.T) {
	seen := map[string]Options{}
	for _, o := range []Options{
		{}, {Emulated: true}, {MaskAgent: true}, {Emulated: true, MaskAgent: true},
		{Suite: "trixie"}, {Distribution: "ubuntu"}, {Mirror: "http://mirror.example/debian"},
	} {
		path, err := Path("/cache", o.filled())
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[path]; ok {
			t.Errorf("%+v and %+v share %s", o, other, path)
		}
		seen[path] = o
	}
}

func TestBuildRefusesUnknownDistribution(t *testing.T) {
	_, err := Build(t.Context(), t.TempDir(), Options{Distribution: "plan9"}, t.Logf)
	if err == nil || !strings.Contains(err.Error(), `"plan9"`) {
		t.Errorf("got error %v", err)
	}
}

func TestKernelCommandLine(t *testing.T) {
	hardened := strings.Fields(kernelCommandLine(Options{}))
	if slices.ContainsFunc(hardened, func(arg string) bool {
		return strings.HasPrefix(arg, "mitigations") || strings.HasPrefix(arg, "apparmor")
	}) {
		t.Errorf("an image for real use gives up hardening: %v", hardened)
	}
	for _, o := range []Options{{}, {Emulated: true}} {
		args := strings.Fields(kernelCommandLine(o))
		for _, want := range []string{"root=LABEL=root", "net.ifnames=0", "console=ttyS0,115200"} {
			if !slices.Contains(args, want) {
				t.Errorf("%+v lacks %s: %v", o, want, args)
			}
		}
	}
}

func TestPackagesFitForK3s(t *testing.T) {
	args := strings.Join(bootstrapArgs(Options{}.filled(), "out"), " ")
	for _, pkg := range []string{"cloud-init", "qemu-guest-agent", "nfs-common", "open-iscsi", "conntrack", "iptables", "cloud-guest-utils"} {
		if !strings.Contains(args, pkg) {
			t.Errorf("the image lacks %s", pkg)
		}
	}
}

func TestExtractMakesScriptsExecutable(t *testing.T) {
	dir := t.TempDir()
	if err := extract("files/emulated", dir); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]os.FileMode{
		"etc/initramfs-tools/hooks/without-udev":     0o755,
		"etc/initramfs-tools/scripts/init-top/udev":  0o755,
		"etc/cloud/cloud.cfg":                        0o644,
		"etc/systemd/system/warm-cloud-init.service": 0o644,
	} {
		info, err := os.Stat(filepath.Join(dir, path))
		if err != nil {
			t.Error(err)
			continue
		}
		if info.Mode().Perm() != want {
			t.Errorf("%s has mode %o, want %o", path, info.Mode().Perm(), want)
		}
	}
}
