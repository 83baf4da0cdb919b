package hypervisor

import (
	"errors"
	"fmt"
	"strings"

	"libvirt.org/go/libvirt"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
)

// fault is an error of libvirt with a text for people: the module's own text is its structure.
type fault struct{ cause libvirt.Error }

func (f *fault) Error() string { return f.cause.Message }

// Unwrap gives the error itself, whose code errors.Is compares.
func (f *fault) Unwrap() error { return f.cause }

// Is makes the codes for absent things machine.ErrNotFound. Only a hypervisor that answered sends them.
func (f *fault) Is(target error) bool {
	if target != machine.ErrNotFound {
		return false
	}
	switch f.cause.Code {
	case libvirt.ERR_NO_DOMAIN, libvirt.ERR_NO_STORAGE_POOL, libvirt.ERR_NO_STORAGE_VOL, libvirt.ERR_NO_NETWORK, libvirt.ERR_NO_INTERFACE,
		libvirt.ERR_NO_NODE_DEVICE:
		return true
	}
	return false
}

// wrap says what was being done when libvirt returned err; it returns nil for nil.
func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), plain(err))
}

// plain gives an error of libvirt a text for people.
func plain(err error) error {
	if e, ok := err.(libvirt.Error); ok { //nolint:errorlint // libvirt returns it bare
		return &fault{e}
	}
	return err
}

// message is the text of an error of libvirt, or "".
func message(err error) string {
	var e libvirt.Error
	if errors.As(err, &e) {
		return e.Message
	}
	return ""
}

// errBroken: the connection broke during a call.
var errBroken = errors.New("the connection broke")

// broken marks an error of a call during which the connection broke.
func broken(err error) error {
	return fmt.Errorf("%w: %w: %w", machine.ErrUnreachable, errBroken, err)
}

// libraryHint explains that the dynamic linker found no libvirt, which is loaded at its first use.
const libraryHint = "libvirt's client library (libvirt.so.0) is not installed on the machine that runs Terraform; install " +
	"the package libvirt0 (Debian, Ubuntu), libvirt-libs (RHEL, Fedora, openSUSE) or libvirt (Arch)"

// withoutLibrary reports whether err means that libvirt is not installed here.
func withoutLibrary(err error) bool {
	text := message(err)
	return strings.Contains(text, "libvirt.so.0") &&
		(strings.Contains(text, "cannot open shared object file") || strings.Contains(text, "Failed to open"))
}

// accessHint explains QEMU's "Permission denied" on a disk, which hypervisors give for three usual reasons.
const accessHint = "QEMU on the hypervisor may not open the disk or its template: look for AppArmor or SELinux denials in the " +
	"hypervisor's log, and where the storage pool is on NFS at root_squash and the ownership of the files"

// explainStart adds what helps to an error of starting a domain.
func explainStart(err error) error {
	if strings.Contains(message(err), "Permission denied") {
		return fmt.Errorf("%w (%s)", err, accessHint)
	}
	return err
}
