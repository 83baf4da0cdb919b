package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/internal/run"
)

// hypervisorStart bounds a daemon's start. It asks QEMU for its abilities first, which on a busy machine takes long.
const hypervisorStart = 3 * time.Minute

// startPoll is how often a starting daemon is looked at.
const startPoll = 200 * time.Millisecond

// prepareDirs makes a hypervisor's directories and configuration.
func (l layout) prepareDirs(h Hypervisor) error {
	for _, m := range l.mounts(h.Name) {
		// The mount point is the package's own directory, which some packages make only when their daemon starts.
		for _, dir := range []string{m.from, m.at} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return fmt.Errorf("preparing hypervisor %s: %w", h.Name, err)
			}
		}
	}
	write := func(at, content string) error {
		path, _ := l.host(h.Name, at)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("preparing hypervisor %s: %w", h.Name, err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return fmt.Errorf("preparing hypervisor %s: %w", h.Name, err)
		}
		return nil
	}
	// A machine's package makes these, libvirt itself does not.
	paths := []string{"/var/log/libvirt/qemu"}
	for _, p := range l.pools(h.Name) {
		paths = append(paths, p.path)
	}
	for _, path := range paths {
		dir, _ := l.host(h.Name, path)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("preparing hypervisor %s: %w", h.Name, err)
		}
	}
	users, err := os.ReadFile("/etc/passwd")
	if err != nil {
		return fmt.Errorf("preparing hypervisor %s: %w", h.Name, err)
	}
	groups, err := os.ReadFile("/etc/group")
	if err != nil {
		return fmt.Errorf("preparing hypervisor %s: %w", h.Name, err)
	}
	for _, p := range l.pools(h.Name) {
		if err := write(poolFile(p.name), poolXML(p.name, p.path)); err != nil {
			return err
		}
	}
	return errors.Join(
		write("/etc/libvirt/lab/passwd", withAccount(string(users), qemuUser)),
		write("/etc/libvirt/lab/group", withAccount(string(groups), qemuGroup)),
		write("/etc/libvirt/lab/no-kvm", ""),
		write("/etc/libvirt/lab/hosts", fmt.Sprintf("127.0.0.1 localhost\n%s %s\n", h.Address, h.Name)),
		write("/etc/libvirt/libvirtd.conf", libvirtdConf(h)),
		write("/etc/libvirt/qemu.conf", qemuConf),
		write(networkFile, networkXML),
		write(poolFile(NFSPool), nfsPoolXML()),
	)
}

// networkFile is where a hypervisor keeps the definition of its network.
const networkFile = "/etc/libvirt/lab/network.xml"

// poolFile is where a hypervisor keeps the definition of a storage pool.
func poolFile(name string) string { return "/etc/libvirt/lab/pool-" + name + ".xml" }

// placeImages lays the images into the first hypervisor's pool of templates, and the golden one into the shared pool too.
func (l layout) placeImages(ctx context.Context, p Parts) error {
	templates, _ := l.host(hypervisorName(0), templatesPoolPath)
	images := map[string]string{
		filepath.Join(templates, p.Volume):     p.Image,
		filepath.Join(l.sharedDir(), p.Volume): p.Image,
	}
	if p.BrokenImage != "" {
		images[filepath.Join(templates, p.BrokenVolume)] = p.BrokenImage
	}
	for to, image := range images {
		// A copy, not a link: a test may write to the volume, and the cache must not change.
		if err := run.Do(run.Command(ctx, "cp", "--reflink=auto", "--sparse=always", image, to)); err != nil {
			return fmt.Errorf("placing the golden image: %w", err)
		}
	}
	return nil
}

// startHypervisor starts the daemon of h in its namespaces.
func (l layout) startHypervisor(h Hypervisor, kvm bool) (Daemon, error) {
	return l.start(daemonName(h.Name),
		"ip", "netns", "exec", h.Netns,
		"unshare", "--mount", "--uts", "--ipc", "--propagation", "private", "--",
		"sh", "-eu", "-c", hypervisorScript(l, h, kvm))
}

// setUpHypervisor waits until the daemon answers, then makes its network and pools.
func (l layout) setUpHypervisor(ctx context.Context, h Hypervisor, d Daemon, s State) error {
	ctx, cancel := context.WithTimeout(ctx, hypervisorStart)
	defer cancel()
	if err := l.awaitHypervisor(ctx, h, d); err != nil {
		return fmt.Errorf("starting libvirtd of %s: %w%s", h.Name, err, l.logTail(d.Name))
	}
	// virsh runs in the machine's own mount namespace, so it is given the files' paths there.
	network, _ := l.host(h.Name, networkFile)
	commands := fmt.Sprintf("net-define %s; net-autostart %[2]s; net-start %[2]s", network, Network)
	for _, p := range l.pools(h.Name) {
		file, _ := l.host(h.Name, poolFile(p.name))
		commands += fmt.Sprintf("; pool-define %s; pool-autostart %[2]s; pool-start %[2]s", file, p.name)
	}
	if s.NFS {
		file, _ := l.host(h.Name, poolFile(NFSPool))
		commands += "; pool-define " + file
	}
	if _, err := Virsh(ctx, h.URI, commands); err != nil {
		return fmt.Errorf("setting up hypervisor %s: %w", h.Name, err)
	}
	// The first question about a domain's abilities makes the daemon probe QEMU. Let that be now, not in a test's time.
	if _, err := Virsh(ctx, h.URI, "domcapabilities", "--virttype", s.VirtType); err != nil {
		return fmt.Errorf("asking hypervisor %s what QEMU can do: %w", h.Name, err)
	}
	return nil
}

func (l layout) awaitHypervisor(ctx context.Context, h Hypervisor, d Daemon) error {
	tick := time.NewTicker(startPoll)
	defer tick.Stop()
	for {
		_, err := Virsh(ctx, h.URI, "uri")
		if err == nil {
			return nil
		}
		if !d.Alive() {
			return errors.New("it ended")
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it does not answer: %w", err)
		case <-tick.C:
		}
	}
}

// Virsh runs a virsh command on the hypervisor at uri and returns what it prints.
func Virsh(ctx context.Context, uri string, args ...string) (string, error) {
	return run.Output(run.Command(ctx, "virsh", append([]string{"--quiet", "--connect", uri}, args...)...))
}
