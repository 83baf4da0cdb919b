package cloudinit

import (
	"fmt"
	"path"
	"regexp"
	"strings"
)

// Disk is a disk for data, with one file system on all of it, ext4.
//
// It is made only where there is none: a disk that holds anything that udev knows, a file system of another kind or a
// partition, stays as it is, and is not mounted unless it is ext4. The file system grows with its disk, at the boot after
// that did.
//
// A VM whose disk is missing or damaged boots without it, so that one can look at it; what must not run then is Unit.
type Disk struct {
	// Serial is the serial number of the virtio disk: letters, digits, dashes and underscores, of which virtio takes 20.
	Serial string
	// MountPath is the directory where it is mounted, at this boot before the Commands run and at each later one. It is
	// made where it is missing. None of the Files may be below it: they are written before.
	MountPath string
	// Unit is the systemd unit that does not start while the disk is not mounted, "" for none.
	Unit string
}

var (
	diskSerial = regexp.MustCompile(`^[A-Za-z0-9_-]{1,20}$`)
	mountPath  = regexp.MustCompile(`^(/[A-Za-z0-9._-]+)+$`)
	unitName   = regexp.MustCompile(`^[A-Za-z0-9_.@-]*$`)
)

func (d Disk) check(files []File) error {
	switch {
	case !diskSerial.MatchString(d.Serial):
		return fmt.Errorf("the serial number %q of a disk is not of 1 to 20 letters, digits, dashes and underscores", d.Serial)
	case !mountPath.MatchString(d.MountPath), path.Clean(d.MountPath) != d.MountPath:
		return fmt.Errorf("a disk cannot be mounted at %q: that is no absolute path of letters, digits, dots, dashes and underscores", d.MountPath)
	case !unitName.MatchString(d.Unit):
		return fmt.Errorf("%q is not the name of a systemd unit", d.Unit)
	}
	for _, f := range files {
		if below(f.Path, d.MountPath) {
			return fmt.Errorf("a disk cannot be mounted at %s: %s would be hidden below it", d.MountPath, f.Path)
		}
	}
	return nil
}

// below reports whether a path is a directory or in it.
func below(p, directory string) bool {
	return p == directory || strings.HasPrefix(p, strings.TrimSuffix(directory, "/")+"/")
}

// device is the name that udev gives to the disk, however many others the VM has. It has no dot, behind which cloud-init
// would look for the number of a partition.
func (d Disk) device() text { return text("/dev/disk/by-id/virtio-" + d.Serial) }

// fileSystem is an entry of fs_setup (https://docs.cloud-init.io/en/latest/reference/modules.html#disk-setup).
type fileSystem struct {
	Device     text `yaml:"device"`
	FileSystem text `yaml:"filesystem"`
	// Partition "any" takes a file system of this kind that is there, and makes one only on a disk that has nothing: "none"
	// would make it on any disk, whatever overwrite says.
	Partition text `yaml:"partition"`
	Overwrite bool `yaml:"overwrite"`
}

func (d Disk) fileSystem() fileSystem {
	return fileSystem{Device: d.device(), FileSystem: "ext4", Partition: "any"}
}

// mount is an entry of mounts, which become lines of the fstab. systemd grows the file system
// (https://www.freedesktop.org/software/systemd/man/latest/systemd.mount.html#x-systemd.growfs).
func (d Disk) mount() []text {
	return []text{d.device(), text(d.MountPath), "ext4", "defaults,nofail,x-systemd.growfs", "0", "2"}
}

// requirement is the file by which systemd does not start the unit without the disk.
func (d Disk) requirement() File {
	return File{
		Path:    "/etc/systemd/system/" + strings.TrimSuffix(d.Unit, ".service") + ".service.d/10-" + d.Serial + ".conf",
		Content: fmt.Appendf(nil, "[Unit]\nRequiresMountsFor=%s\nAssertPathIsMountPoint=%[1]s\n", d.MountPath),
		Mode:    0o644,
	}
}
