package lab

import (
	"encoding/xml"
	"strings"
	"testing"
)

func TestHypervisorScript(t *testing.T) {
	l := layout{"dev"}
	script := hypervisorScript(l, l.newHypervisor(1), false)
	want := `mount --bind /var/lib/cockpit-lab/dev/hv-b/etc /etc/libvirt
mount --bind /var/lib/cockpit-lab/dev/hv-b/lib /var/lib/libvirt
mount --bind /var/lib/cockpit-lab/dev/hv-b/cache /var/cache/libvirt
mount --bind /var/lib/cockpit-lab/dev/hv-b/log /var/log/libvirt
mount --bind /run/cockpit-lab/dev/hv-b /run/libvirt
mount --bind /etc/libvirt/lab/passwd /etc/passwd
mount --bind /etc/libvirt/lab/group /etc/group
mount --bind /etc/libvirt/lab/hosts /etc/hosts
hostname hv-b
if [ -e /dev/kvm ]; then
  mount --bind /etc/libvirt/lab/no-kvm /dev/kvm
  mount -o remount,bind,ro /dev/kvm
fi
exec libvirtd --pid-file /run/libvirt/libvirtd.pid
`
	if script != want {
		t.Errorf("got\n%s\nwant\n%s", script, want)
	}
	if kvm := hypervisorScript(l, l.newHypervisor(1), true); strings.Contains(kvm, "/dev/kvm") {
		t.Errorf("a lab with KVM hides it:\n%s", kvm)
	}
}

func TestXML(t *testing.T) {
	for name, text := range map[string]string{
		"network": networkXML, "pool": poolXML(TemplatesPool, templatesPoolPath),
	} {
		var any struct {
			Name string `xml:"name"`
		}
		if err := xml.Unmarshal([]byte(text), &any); err != nil || any.Name == "" {
			t.Errorf("%s: name %q, error %v", name, any.Name, err)
		}
	}
}

func TestDnsmasqConf(t *testing.T) {
	conf := dnsmasqConf(layout{"dev"})
	for _, want := range []string{
		"interface=lan0\n", "bind-interfaces\n", "dhcp-range=10.77.0.100,10.77.0.250,255.255.255.0,12h\n",
		"dhcp-option=option:router,10.77.0.1\n", "dhcp-leasefile=/var/lib/cockpit-lab/dev/leases\n", "no-ping\n",
	} {
		if !strings.Contains(conf, want) {
			t.Errorf("lacks %q:\n%s", want, conf)
		}
	}
}

// Everything that "ip" is told happens inside a namespace: the veth's far end is made in the hypervisor's at once.
func TestCableNeverCrossesTheMachine(t *testing.T) {
	h := layout{"dev"}.newHypervisor(0)
	want := "link add hv-a type veth peer name lan netns cklab-dev-hv-a\nlink set hv-a master lan0 up\n"
	if got := cableScript(h); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestWithAccount(t *testing.T) {
	const line = "libvirt-qemu:x:64055:"
	tests := []struct{ name, text, want string }{
		{"absent", "root:x:0:\n", "root:x:0:\n" + line + "\n"},
		{"no last newline", "root:x:0:", "root:x:0:\n" + line + "\n"},
		{"empty", "", line + "\n"},
		{"there", "root:x:0:\nlibvirt-qemu:x:1:\n", "root:x:0:\nlibvirt-qemu:x:1:\n"},
		{"there at the start", "libvirt-qemu:x:1:\n", "libvirt-qemu:x:1:\n"},
		{"as a member only", "kvm:x:1:libvirt-qemu\n", "kvm:x:1:libvirt-qemu\n" + line + "\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := withAccount(tt.text, line); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
