package lab

import (
	"fmt"
	"path/filepath"
	"strings"
)

// libvirtdConf gives a daemon an identity of its own. Its socket is root's only, so it needs no authentication.
func libvirtdConf(h Hypervisor) string {
	return fmt.Sprintf(`host_uuid = %q
auth_unix_rw = "none"
auth_unix_ro = "none"
log_level = 3
`, h.HostUUID)
}

// qemuConf does without what a lab daemon has not: a user of its own, a security driver, cgroups, virtlogd.
const qemuConf = `user = "root"
group = "root"
dynamic_ownership = 0
remember_owner = 0
security_driver = "none"
namespaces = []
cgroup_controllers = []
stdio_handler = "file"
`

// networkXML is the network "default" of every hypervisor: its bridge onto the LAN, where the lab's DHCP answers.
const networkXML = `<network>
  <name>` + Network + `</name>
  <forward mode='bridge'/>
  <bridge name='` + bridgeName + `'/>
</network>
`

func poolXML(name, path string) string {
	return fmt.Sprintf(`<pool type='dir'>
  <name>%s</name>
  <target><path>%s</path></target>
</pool>
`, name, path)
}

// dnsmasqConf serves addresses and the nodes' names to the LAN. Every shortcut is taken: it is alone there, so it need not
// probe an address before it gives it, which takes three seconds.
func dnsmasqConf(l layout) string {
	mask := "255.255.255.0"
	lines := []string{
		"interface=" + lanBridge,
		"bind-interfaces",
		"no-hosts",
		"no-resolv",
		"no-ping",
		"user=root",
		"pid-file=",
		"log-facility=-",
		"domain=lab.internal",
		"dhcp-authoritative",
		"dhcp-rapid-commit",
		"dhcp-leasefile=" + l.leaseFile(),
		fmt.Sprintf("dhcp-range=%s,%s,%s,12h", dhcpFirst, dhcpLast, mask),
		fmt.Sprintf("dhcp-option=option:router,%s", lanGateway),
		fmt.Sprintf("dhcp-option=option:dns-server,%s", lanGateway),
	}
	return strings.Join(lines, "\n") + "\n"
}

// hypervisorScript turns a fresh mount and UTS namespace into a machine of its own and becomes its libvirtd.
func hypervisorScript(l layout, h Hypervisor, kvm bool) string {
	var b strings.Builder
	for _, m := range l.mounts(h.Name) {
		fmt.Fprintf(&b, "mount --bind %s %s\n", m.from, m.at)
	}
	// libvirt looks its default user up before it reads that another one is configured; the account comes with a
	// package that would also set up a libvirtd of the machine's own.
	for _, file := range []string{"/etc/passwd", "/etc/group"} {
		fmt.Fprintf(&b, "mount --bind /etc/libvirt/lab/%[2]s %[1]s\n", file, filepath.Base(file))
	}
	// libvirt looks the host's own name up at every start of a VM, which without an answer takes ten seconds.
	b.WriteString("mount --bind /etc/libvirt/lab/hosts /etc/hosts\n")
	fmt.Fprintf(&b, "hostname %s\n", h.Name)
	if !kvm {
		// Where the device cannot be used, libvirt must not offer it. It must not be writable either, or libvirt takes it
		// for usable and, finding that QEMU disagrees, probes QEMU anew at every call.
		b.WriteString("if [ -e /dev/kvm ]; then\n" +
			"  mount --bind /etc/libvirt/lab/no-kvm /dev/kvm\n" +
			"  mount -o remount,bind,ro /dev/kvm\n" +
			"fi\n")
	}
	b.WriteString("exec libvirtd --pid-file /run/libvirt/libvirtd.pid\n")
	return b.String()
}

// withAccount adds libvirt's account to the text of /etc/passwd or /etc/group, unless it is there.
func withAccount(text, line string) string {
	name, _, _ := strings.Cut(line, ":")
	if strings.HasPrefix(text, name+":") || strings.Contains(text, "\n"+name+":") {
		return text
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text + line + "\n"
}

// The ids are those that Debian reserves for the account.
const (
	qemuUser  = "libvirt-qemu:x:64055:64055::/nonexistent:/usr/sbin/nologin"
	qemuGroup = "libvirt-qemu:x:64055:"
)
