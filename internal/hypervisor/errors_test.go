package hypervisor

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"libvirt.org/go/libvirt"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/guestagent"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
)

func TestWrap(t *testing.T) {
	if wrap(nil, "x") != nil {
		t.Error("an error came out of none")
	}
	err := wrap(libvirt.Error{Code: libvirt.ERR_NO_STORAGE_VOL, Message: "no volume 'a'"}, "look for %q", "a")
	if got := err.Error(); got != `look for "a": no volume 'a'` {
		t.Errorf("text %q", got)
	}
	if !errors.Is(err, libvirt.ERR_NO_STORAGE_VOL) || !errors.Is(err, machine.ErrNotFound) || errors.Is(err, machine.ErrUnreachable) {
		t.Error("its kind is lost")
	}
}

func TestNotFound(t *testing.T) {
	for code, want := range map[libvirt.ErrorNumber]bool{
		libvirt.ERR_NO_DOMAIN: true, libvirt.ERR_NO_STORAGE_POOL: true, libvirt.ERR_NO_STORAGE_VOL: true,
		libvirt.ERR_NO_NETWORK: true, libvirt.ERR_NO_INTERFACE: true, libvirt.ERR_NO_NODE_DEVICE: true,
		libvirt.ERR_NO_CONNECT: false, libvirt.ERR_SYSTEM_ERROR: false, libvirt.ERR_INTERNAL_ERROR: false, libvirt.ERR_RPC: false,
		libvirt.ERR_AUTH_FAILED: false, libvirt.ERR_NO_SUPPORT: false, libvirt.ERR_OPERATION_INVALID: false,
	} {
		if got := errors.Is(wrap(libvirt.Error{Code: code}, "x"), machine.ErrNotFound); got != want {
			t.Errorf("code %d: got %t", code, got)
		}
	}
}

func TestWithoutLibrary(t *testing.T) {
	for text, want := range map[string]bool{
		"Failed to open libvirt.so.0": true,
		"libvirt.so.0: cannot open shared object file: No such file or directory": true,
		"Failed to connect socket to '/run/libvirt/libvirt-sock'":                 false,
	} {
		if got := withoutLibrary(wrap(libvirt.Error{Code: libvirt.ERR_INTERNAL_ERROR, Message: text}, "start")); got != want {
			t.Errorf("%q: got %t", text, got)
		}
	}
	if !strings.Contains(libraryHint, "libvirt0 (Debian") || !strings.Contains(libraryHint, "libvirt-libs (RHEL") {
		t.Errorf("the hint %q names no package", libraryHint)
	}
}

func TestExplainStart(t *testing.T) {
	denied := wrap(libvirt.Error{Code: libvirt.ERR_INTERNAL_ERROR, Message: "Could not open '/srv/a.qcow2': Permission denied"}, "start the domain")
	wantError(t, explainStart(denied), libvirt.ERR_INTERNAL_ERROR, "/srv/a.qcow2", "AppArmor", "root_squash")
	other := wrap(libvirt.Error{Message: "no memory"}, "start the domain")
	if explainStart(other) != other { //nolint:errorlint // it is to stay the same
		t.Error("another error was altered")
	}
	if explainStart(nil) != nil {
		t.Error("an error came out of none")
	}
}

func TestExplainDevice(t *testing.T) {
	for text, code := range map[string]libvirt.ErrorNumber{
		"this function is not supported by the connection driver: virNodeDeviceLookupByName":      libvirt.ERR_NO_SUPPORT,
		"Failed to connect socket to '/run/libvirt/virtnodedevd-sock': No such file or directory": libvirt.ERR_SYSTEM_ERROR,
	} {
		err := explainDevice(wrap(libvirt.Error{Code: code, Message: text}, "look"))
		wantError(t, err, code, text, "does not see the devices of its host", "libvirt-daemon-driver-nodedev")
	}
	other := wrap(libvirt.Error{Code: libvirt.ERR_NO_NODE_DEVICE, Message: "no node device"}, "look")
	if explainDevice(other) != other { //nolint:errorlint // it is to stay the same
		t.Error("another error was altered")
	}
}

func TestAgentError(t *testing.T) {
	tests := map[string]struct {
		code   libvirt.ErrorNumber
		text   string
		power  machine.Power
		target error
		// refused is the agent's own answer, where there was one.
		refused string
	}{
		"not connected":              {code: 86, text: "QEMU guest agent is not connected", target: guestagent.ErrNotConnected},
		"timeout":                    {code: 112, text: "timed out", target: guestagent.ErrNotConnected},
		"sync lost":                  {code: 97, text: "sync", target: guestagent.ErrNotConnected},
		"domain off":                 {code: 55, text: "domain is not running", power: machine.Stopped, target: guestagent.ErrNotRunning},
		"domain paused":              {code: 55, text: "paused", power: machine.Paused, target: guestagent.ErrPaused},
		"domain resumed meanwhile":   {code: 55, text: "domain is not running", power: machine.Running, target: guestagent.ErrNotConnected},
		"domain removed meanwhile":   {code: 55, text: "Domain not found", target: machine.ErrNotFound},
		"no channel":                 {code: 74, text: "QEMU guest agent is not configured", target: guestagent.ErrNotConfigured},
		"domain gone":                {code: 42, text: "Domain not found", target: machine.ErrNotFound},
		"refused until libvirt 11.1": {code: 1, text: "internal error: unable to execute QEMU agent command 'guest-exec': Command guest-exec has been disabled: the command is not allowed", refused: "Command guest-exec has been disabled: the command is not allowed"},
		"refused since libvirt 11.2": {code: 113, text: "unable to execute QEMU agent command 'guest-file-open': failed to open file '/a' (mode: 'r'): No such file or directory", refused: "failed to open file '/a' (mode: 'r'): No such file or directory"},
		"refused in other words":     {code: 113, text: "the agent said no", refused: "the agent said no"},
		"another error":              {code: 1, text: "internal error: out of cheese"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := agentError(libvirt.Error{Code: tt.code, Message: tt.text}, func() (machine.Power, error) {
				if tt.power == "" {
					return "", wrap(libvirt.Error{Code: libvirt.ERR_NO_DOMAIN, Message: "Domain not found"}, "read its state")
				}
				return tt.power, nil
			})
			var refused *guestagent.RefusedError
			switch is := errors.As(err, &refused); {
			case is != (tt.refused != ""):
				t.Fatalf("got %v", err)
			case is && refused.Text != tt.refused:
				t.Errorf("answer %q, want %q", refused.Text, tt.refused)
			case !is:
				wantError(t, err, tt.target, tt.text)
			}
		})
	}
	if agentError(nil, nil) != nil {
		t.Error("an error came out of none")
	}
}

func TestWithinLeavesHangingCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := answering(t.Context())
		defer cancel()
		hangs := make(chan struct{})
		_, err := within(ctx, func() (int, error) { <-hangs; return 1, nil })
		wantError(t, err, machine.ErrUnreachable, "1m30s")
		close(hangs)
	})
}
