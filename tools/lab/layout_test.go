package lab

import (
	"slices"
	"strings"
	"testing"
)

func TestCheckName(t *testing.T) {
	for name, ok := range map[string]bool{
		"dev": true, "a": true, "test-2": true, "abcdefghijklmnopqrst": true,
		"": false, "2fast": false, "-a": false, "a-": false, "Dev": false, "a b": false, "../x": false, "a.b": false,
		"abcdefghijklmnopqrstu": false,
	} {
		if err := checkName(name); (err == nil) != ok {
			t.Errorf("%q: error %v, fit for a name: %v", name, err, ok)
		}
	}
}

// The path of a Unix socket has at most 107 bytes, whatever the lab is called.
func TestSocketPathsFit(t *testing.T) {
	l := layout{strings.Repeat("x", 20)}
	h := l.newHypervisor(maxHypervisors - 1)
	_, socket, _ := strings.Cut(h.URI, "socket=")
	// libvirt puts QEMU's own sockets deeper into the same directory.
	deepest := strings.TrimSuffix(socket, "libvirt-sock") + "virtqemud-admin-sock-and-more"
	if len(deepest) > 107 {
		t.Errorf("%s has %d bytes", deepest, len(deepest))
	}
}

func TestHypervisorsDiffer(t *testing.T) {
	a, b := layout{"dev"}.newHypervisor(0), layout{"dev"}.newHypervisor(1)
	other := layout{"other"}.newHypervisor(0)
	if a.Name != "hv-a" || b.Name != "hv-b" {
		t.Errorf("names %s, %s", a.Name, b.Name)
	}
	if a.HostUUID == b.HostUUID || a.HostUUID == other.HostUUID {
		t.Error("two hypervisors share a host UUID")
	}
	if a.HostUUID != (layout{"dev"}).newHypervisor(0).HostUUID {
		t.Error("a hypervisor has another host UUID each time")
	}
	if a.Address == b.Address || !lanPrefix.Contains(a.Address) || !lanPrefix.Contains(b.Address) {
		t.Errorf("addresses %s, %s", a.Address, b.Address)
	}
	last := layout{"dev"}.newHypervisor(maxHypervisors - 1)
	if !last.Address.Less(dhcpFirst) {
		t.Errorf("hypervisor address %s is one that DHCP may give away", last.Address)
	}
	if a.Netns == b.Netns || a.Netns == other.Netns {
		t.Error("two hypervisors share a network namespace")
	}
}

func TestOwns(t *testing.T) {
	l := layout{"a"}
	for netns, want := range map[string]bool{
		l.lanNetns(): true, l.newHypervisor(0).Netns: true,
		layout{"a-b"}.lanNetns(): false, layout{"b"}.lanNetns(): false,
		"cklab-a-hv-ab": false, "cklab-a-": false, "a": false,
	} {
		if got := l.owns(netns); got != want {
			t.Errorf("%s: %v, want %v", netns, got, want)
		}
	}
}

func TestHost(t *testing.T) {
	l := layout{"dev"}
	tests := []struct{ hv, path, want string }{
		{"hv-a", "/var/lib/libvirt/images/a.qcow2", "/var/lib/cockpit-lab/dev/hv-a/lib/images/a.qcow2"},
		{"hv-a", "/var/log/libvirt/qemu/a.log", "/var/lib/cockpit-lab/dev/hv-a/log/qemu/a.log"},
		{"hv-a", "/run/libvirt/libvirt-sock", "/run/cockpit-lab/dev/hv-a/libvirt-sock"},
		{"hv-a", "/var/lib/libvirt-other/a", ""},
		{"hv-a", "/home/a", ""},
		{"hv-b", "/var/lib/cockpit-lab/dev/shared/a.qcow2", "/var/lib/cockpit-lab/dev/shared/a.qcow2"},
		{"hv-b", "/var/lib/cockpit-lab/dev/shared", "/var/lib/cockpit-lab/dev/shared"},
		{"hv-b", "/var/lib/cockpit-lab/dev/shared-other/a", ""},
		{"hv-c", "/var/lib/cockpit-lab/dev/shared/a.qcow2", ""},
	}
	for _, tt := range tests {
		got, ok := l.host(tt.hv, tt.path)
		if got != tt.want || ok != (tt.want != "") {
			t.Errorf("%s on %s: %q, %v, want %q", tt.path, tt.hv, got, ok, tt.want)
		}
	}
}

// The first two hypervisors share a pool, whose directory is one and the same for both.
func TestPools(t *testing.T) {
	l := layout{"dev"}
	own := []pool{{DefaultPool, defaultPoolPath}, {TemplatesPool, templatesPoolPath}}
	both := append(slices.Clone(own), pool{SharedPool, "/var/lib/cockpit-lab/dev/shared"})
	for hv, want := range map[string][]pool{"hv-a": both, "hv-b": both, "hv-c": own} {
		if got := l.pools(hv); !slices.Equal(got, want) {
			t.Errorf("%s has %v, want %v", hv, got, want)
		}
	}
}
