package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/internal/run"
)

// programs are what the lab is made with, each with the Debian package that has it.
var programs = []struct{ file, pkg string }{
	{"libvirtd", "libvirt-daemon"},
	{"virsh", "libvirt-clients"},
	{"qemu-system-x86_64", "qemu-system-x86"},
	{"qemu-img", "qemu-utils"},
	{"mmdebstrap", "mmdebstrap"},
	{"extlinux", "extlinux"},
	{"/usr/lib/EXTLINUX/mbr.bin", "extlinux"},
	{"sfdisk", "fdisk"},
	{"mkfs.ext4", "e2fsprogs"},
	{"mount", "mount"},
	{"unshare", "util-linux"},
	{"nsenter", "util-linux"},
	{"hostname", "hostname"},
	{"ip", "iproute2"},
	{"dnsmasq", "dnsmasq-base"},
	// libvirt sets the firewall of the networks that it makes itself, here inside a hypervisor's namespace.
	{"iptables", "iptables"},
	{"curl", "curl"},
	{"/usr/lib/x86_64-linux-gnu/libvirt/connection-driver/libvirt_driver_qemu.so", "libvirt-daemon-driver-qemu"},
}

// Missing lists the Debian packages that the lab needs and this machine has not.
func Missing() []string {
	var missing []string
	for _, p := range programs {
		if _, err := exec.LookPath(p.file); err == nil {
			continue
		}
		// A path is there whether or not it can be executed.
		if _, err := os.Stat(p.file); err == nil && strings.HasPrefix(p.file, "/") {
			continue
		}
		missing = append(missing, p.pkg)
	}
	slices.Sort(missing)
	return slices.Compact(missing)
}

// Check says why no lab can be made on this machine, if that is so.
func Check() error {
	if os.Geteuid() != 0 {
		return errors.New("a lab is made by root: it needs namespaces, mounts and real libvirtd daemons")
	}
	if missing := Missing(); len(missing) > 0 {
		return fmt.Errorf("this machine lacks packages: apt-get install --no-install-recommends %s (or: lab deps)", strings.Join(missing, " "))
	}
	return nil
}

// InstallMissing installs what Missing lists by apt-get and returns it. None of these packages starts a service.
func InstallMissing(ctx context.Context) ([]string, error) {
	missing := Missing()
	if len(missing) == 0 {
		return nil, nil
	}
	if os.Geteuid() != 0 {
		return missing, fmt.Errorf("packages are installed by root; missing: %s", strings.Join(missing, " "))
	}
	for _, args := range [][]string{
		{"update", "--quiet"},
		append([]string{"install", "--quiet", "--yes", "--no-install-recommends"}, missing...),
	} {
		cmd := run.Command(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if err := run.Do(cmd); err != nil {
			return missing, fmt.Errorf("installing the lab's packages: %w", err)
		}
	}
	return missing, nil
}
