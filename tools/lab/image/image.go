// Package image makes the golden image that nodes are cloned from: a bootable qcow2 with cloud-init (NoCloud), the QEMU
// guest agent and everything that k3s, NFS and iSCSI need of a host, put together from a distribution's packages alone.
package image

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/cache"
	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/internal/run"
)

// DiskMiB is the virtual size of the image. A clone is made larger and grows its root at the first boot; none can be
// smaller.
const DiskMiB = 3 << 10

// files holds what is laid over the packages: base for every image, emulated for those that run without KVM, and the two
// scripts that assemble the disk and finish the system inside it.
//
//go:embed all:files assemble.sh customize.sh
var files embed.FS

// Options say which image to make.
type Options struct {
	// Distribution is debian or ubuntu; Suite its release (bookworm, noble). Ubuntu images come out of the same recipe
	// but were never booted by the project's own tests, whose machines have no Ubuntu archive.
	Distribution, Suite string
	// Mirror is the archive to take packages from; empty means the distribution's own.
	Mirror string
	// Emulated makes an image for guests without KVM: it trades hardening, hardware that a lab VM has not, and
	// cloud-init's rarer modules for a boot that is several times faster under emulation.
	Emulated bool
	// MaskAgent leaves the guest agent installed but masked: an image with the fault that users make most often.
	MaskAgent bool
}

// filled fills what was left out.
func (o Options) filled() Options {
	o.Distribution = cmp.Or(o.Distribution, "debian")
	o.Suite = cmp.Or(o.Suite, distributions[o.Distribution].suite)
	return o
}

// Volume is the name that the image gets in a storage pool, for example debian-12-k3s.qcow2.
func (o Options) Volume() string {
	o = o.filled()
	release, ok := releases[o.Suite]
	if !ok {
		release = o.Suite
	}
	name := o.Distribution + "-" + release + "-k3s"
	if o.MaskAgent {
		name += "-no-agent"
	}
	return name + ".qcow2"
}

// Build returns the path of the image in the cache at dir, making it if it is not there. log gets a line for each step
// that takes long. It needs root: the disk is mounted while it is put together.
func Build(ctx context.Context, dir string, o Options, log func(format string, args ...any)) (string, error) {
	o = o.filled()
	if _, ok := distributions[o.Distribution]; !ok {
		return "", fmt.Errorf("unknown distribution %q: the recipe knows debian and ubuntu", o.Distribution)
	}
	dir = filepath.Join(dir, "images")
	path, err := Path(dir, o)
	if err != nil {
		return "", err
	}
	err = cache.File(ctx, path, func(ctx context.Context, work, out string) error {
		packages, err := bootstrap(ctx, dir, o, log)
		if err != nil {
			return err
		}
		log("assembling the disk")
		return assemble(ctx, o, packages, work, out)
	})
	if err != nil {
		return "", fmt.Errorf("building the golden image %s: %w", o.Volume(), err)
	}
	return path, nil
}

// Path is where the image with these options lies in dir once it is built: its name carries the hash of the recipe.
func Path(dir string, o Options) (string, error) {
	tree, err := cache.Tree(files, func(string) bool { return true })
	if err != nil {
		return "", err
	}
	key := cache.Key(bootstrapKey(o), tree, fmt.Sprint(DiskMiB, o.Emulated, o.MaskAgent))
	return filepath.Join(dir, strings.TrimSuffix(o.Volume(), ".qcow2")+"-"+key+".qcow2"), nil
}

// bootstrap makes the archive of the installed packages, which images with different options share.
func bootstrap(ctx context.Context, dir string, o Options, log func(string, ...any)) (string, error) {
	path := filepath.Join(dir, o.Distribution+"-"+o.Suite+"-"+bootstrapKey(o)+".tar")
	err := cache.File(ctx, path, func(ctx context.Context, work, out string) error {
		log("installing packages of %s %s", o.Distribution, o.Suite)
		cmd := run.Command(ctx, "mmdebstrap", bootstrapArgs(o, out)...)
		// Only what is said here reaches the maintainer scripts, so that the image is the same from every shell.
		cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive", "TMPDIR=" + work}
		for _, name := range []string{"http_proxy", "https_proxy", "no_proxy"} {
			if v, ok := os.LookupEnv(name); ok {
				cmd.Env = append(cmd.Env, name+"="+v)
			}
		}
		return run.Do(cmd)
	})
	return path, err
}

func bootstrapKey(o Options) string {
	return cache.Key(strings.Join(bootstrapArgs(o, ""), "\n"))
}

func bootstrapArgs(o Options, out string) []string {
	d := distributions[o.Distribution]
	args := []string{
		"--mode=root", "--variant=minbase", "--format=tar", "--quiet",
		"--components=" + d.components,
		"--include=" + strings.Join(slices.Concat(common, d.packages), ","),
		"--dpkgopt=path-exclude=/usr/share/doc/*",
		"--dpkgopt=path-exclude=/usr/share/man/*",
		"--dpkgopt=path-exclude=/usr/share/locale/*",
		o.Suite, out,
	}
	if o.Mirror != "" {
		args = append(args, o.Mirror)
	}
	return args
}

// assemble lays the packages and our files on a disk and converts it. It all happens in a mount namespace of its own: the
// mounts and the loop device end with the script, however it ends.
func assemble(ctx context.Context, o Options, packages, work, out string) error {
	layers := []string{"files/base"}
	if o.Emulated {
		layers = append(layers, "files/emulated")
	}
	overlay := filepath.Join(work, "overlay")
	for _, layer := range layers {
		if err := extract(layer, overlay); err != nil {
			return err
		}
	}
	for _, script := range []string{"assemble.sh", "customize.sh"} {
		content, err := files.ReadFile(script)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(work, script), content, 0o600); err != nil {
			return err
		}
	}
	cmd := run.Command(ctx, "unshare", "--mount", "--propagation", "private", "--", "sh", "-eu", "assemble.sh")
	cmd.Dir = work
	cmd.Env = []string{
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8",
		"PACKAGES=" + packages, "OUT=" + out, fmt.Sprintf("DISK_MIB=%d", DiskMiB),
		"CMDLINE=" + kernelCommandLine(o), "EMULATED=" + flag(o.Emulated), "MASK_AGENT=" + flag(o.MaskAgent),
	}
	return run.Do(cmd)
}

// extract writes a directory of files below dir.
func extract(from, dir string) error {
	return fs.WalkDir(files, from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(dir, rel)
		if d.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		content, err := files.ReadFile(path)
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if bytes.HasPrefix(content, []byte("#!")) {
			mode = 0o755 // an embedded file has no mode of its own
		}
		return os.WriteFile(target, content, mode)
	})
}

// kernelCommandLine is what the boot loader gives the kernel. Interfaces keep the kernel's names, so that the one NIC of a
// node is eth0 on every machine type.
func kernelCommandLine(o Options) string {
	args := []string{"root=LABEL=root", "net.ifnames=0"}
	if !o.Emulated {
		return strings.Join(append(args, "ro", "console=tty0", "console=ttyS0,115200"), " ")
	}
	return strings.Join(append(args,
		"rw", "rootflags=noatime,noinit_itable", "console=ttyS0,115200", "quiet",
		// Under emulation these protect nobody and cost a flush of the translated code at every system call.
		"mitigations=off", "nokaslr", "audit=0", "apparmor=0", "selinux=0",
		// Nothing here measures time by the emulated TSC, whose calibration takes long, or watches for lock-ups that
		// a starved host makes by itself.
		"no_timer_check", "nowatchdog", "cryptomgr.notests", "random.trust_cpu=on", "init_on_alloc=0",
		"fsck.mode=skip",
	), " ")
}

func flag(on bool) string {
	if on {
		return "1"
	}
	return ""
}
