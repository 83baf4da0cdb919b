// Package lab makes a data centre on one machine: real libvirtd daemons, each a hypervisor of its own in its own
// namespaces, on a LAN with DHCP, with a golden image to clone nodes from and a mirror to install k3s from.
//
// Up makes a lab and Down removes it, from any process and after any crash. Programs that use it run inside its LAN
// (Lab.Command, "lab exec"), where FromEnv finds it.
package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/charts"
	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/internal/run"
)

// DefaultName is the lab that is meant when none is named.
const DefaultName = "dev"

// EnvName tells a program that runs inside a lab which one it is.
const EnvName = "LAB_NAME"

// errNoLab says that there is nothing of that name.
var errNoLab = errors.New("there is no such lab")

// IsNoLab says whether Open or FromEnv failed because there is no lab, and not because one is broken.
func IsNoLab(err error) bool { return errors.Is(err, errNoLab) }

// Lab is a lab that stands.
type Lab struct {
	State
	layout
}

// Open finds the lab of that name. One that was never finished, or whose machine was restarted since, is not there.
func Open(name string) (*Lab, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	l := layout{name}
	s, err := readState(l)
	if err != nil {
		return nil, err
	}
	if !s.Ready {
		return nil, fmt.Errorf("lab %q was not brought up to its end; take it down", name)
	}
	for _, d := range s.Processes {
		if !d.Alive() {
			return nil, fmt.Errorf("lab %q is broken, %s does not run any more; take it down and up again", name, d.Name)
		}
	}
	return &Lab{State: s, layout: l}, nil
}

// FromEnv finds the lab inside which this process runs ("lab exec").
func FromEnv() (*Lab, error) {
	name := os.Getenv(EnvName)
	if name == "" {
		return nil, fmt.Errorf("%s is not set: run this inside a lab, by lab exec: %w", EnvName, errNoLab)
	}
	return Open(name)
}

// Names lists the labs of this machine, whatever their condition.
func Names() ([]string, error) { return names() }

// Hypervisor returns the hypervisor of that name.
func (l *Lab) Hypervisor(name string) (Hypervisor, error) {
	i := slices.IndexFunc(l.Hypervisors, func(h Hypervisor) bool { return h.Name == name })
	if i < 0 {
		return Hypervisor{}, fmt.Errorf("lab %q has no hypervisor %q", l.Name, name)
	}
	return l.Hypervisors[i], nil
}

// InstallScriptURL is where nodes get the k3s install script.
func (l *Lab) InstallScriptURL() string { return l.MirrorURL + "/install.sh" }

// ReleasesURL lists the releases of k3s.
func (l *Lab) ReleasesURL() string { return l.MirrorURL + "/releases" }

// HostPath returns where a path as hypervisor hv sees it (a volume, a console log) lies on this machine.
func (l *Lab) HostPath(hv, path string) (string, error) {
	host, ok := l.host(hv, path)
	if !ok {
		return "", fmt.Errorf("%s of hypervisor %s is no path of the lab", path, hv)
	}
	return host, nil
}

// Environ is what a program inside the lab gets to know of it, as NAME=value.
func (l *Lab) Environ() []string {
	first := l.Hypervisors[0]
	env := []string{
		EnvName + "=" + l.Name,
		"LAB_VIRT_TYPE=" + l.VirtType,
		"LAB_NETWORK=" + Network,
		"LAB_POOL=" + DefaultPool,
		"LAB_TEMPLATE_HYPERVISOR=" + first.Name,
		"LAB_TEMPLATE_POOL=" + TemplatesPool,
		"LAB_TEMPLATE_VOLUME=" + l.Template,
		"LAB_MIRROR_URL=" + l.MirrorURL,
		"LAB_INSTALL_SCRIPT_URL=" + l.InstallScriptURL(),
		"LAB_RELEASES_URL=" + l.ReleasesURL(),
		"LAB_CHARTS_URL=" + l.MirrorURL + charts.RepositoryPath,
		"LAB_CHARTS_OCI=oci://" + lanGateway.String() + "/" + charts.RegistryName,
		"LAB_CA_FILE=" + l.caFile(),
		"LIBVIRT_DEFAULT_URI=" + first.URI,
	}
	if l.NFS {
		env = append(env, "LAB_NFS_SERVER="+nfsAddress.String(), "LAB_NFS_PATH="+NFSPath, "LAB_NFS_POOL="+NFSPool)
	}
	for _, h := range l.Hypervisors {
		env = append(env, "LAB_URI_"+envForm(h.Name)+"="+h.URI)
	}
	return env
}

func envForm(name string) string { return strings.ToUpper(strings.ReplaceAll(name, "-", "_")) }

// Enter returns the command line that runs argv inside the lab's LAN.
func (l *Lab) Enter(argv ...string) []string {
	return append([]string{"nsenter", "--net=" + netnsPath(l.lanNetns()), "--"}, argv...)
}

// Command is a program to run inside the lab's LAN, with Environ.
func (l *Lab) Command(ctx context.Context, argv ...string) *exec.Cmd {
	full := l.Enter(argv...)
	cmd := run.Command(ctx, full[0], full[1:]...)
	cmd.Env = append(os.Environ(), l.Environ()...)
	return cmd
}

// Virsh runs a virsh command on a hypervisor and returns what it prints.
func (l *Lab) Virsh(ctx context.Context, hv string, args ...string) (string, error) {
	h, err := l.Hypervisor(hv)
	if err != nil {
		return "", err
	}
	return Virsh(ctx, h.URI, args...)
}

// Down removes the lab.
func (l *Lab) Down(ctx context.Context) error { return Down(ctx, l.Name) }
