package guestagent

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// Sentinel errors of a guest agent.
var (
	// ErrNotConnected: nothing answers at the other end of the channel yet, or it answered too late. The guest may still
	// be booting, or rebooting: worth a retry.
	ErrNotConnected = errors.New("the guest agent does not answer")
	// ErrNotRunning: the VM is powered off.
	ErrNotRunning = errors.New("the VM is not running")
	// ErrPaused: the VM is powered on but halted, by somebody or by the hypervisor (for example on a full disk).
	ErrPaused = errors.New("the VM is paused")
	// ErrNotConfigured: the VM has no channel for a guest agent.
	ErrNotConfigured = errors.New("the VM has no guest agent channel (org.qemu.guest_agent.0)")
	// ErrDisabled: the agent answers, but refuses the command or does not know it.
	ErrDisabled = errors.New("the guest agent refuses the command")
	// ErrForgotten: the agent knows no such program any more. It was restarted, or the result was handed out already in
	// an answer that never arrived: how the program ended cannot be known.
	ErrForgotten = errors.New("the guest agent has lost the result of the program")
)

// RefusedError is what a Transport returns when the agent itself answered a request with an error.
type RefusedError struct {
	// Text is the agent's own description.
	Text string
}

func (e *RefusedError) Error() string { return e.Text }

// ExitError is a program that ended without success.
type ExitError struct {
	Path string
	// Code is the exit code; it counts only where Signal is zero.
	Code int
	// Signal is the signal that ended the program, or zero.
	Signal int
}

func (e *ExitError) Error() string {
	if e.Signal != 0 {
		return fmt.Sprintf("%s was ended by signal %d", e.Path, e.Signal)
	}
	return fmt.Sprintf("%s exited with code %d", e.Path, e.Code)
}

// blockListHint says where distributions keep the list of commands that their agent refuses: Debian and Ubuntu ship
// none, Fedora and its family have filtered guest-exec and guest-file-* since EL 9.4.
const blockListHint = "look at FILTER_RPC_ARGS, BLOCK_RPCS or BLACKLIST_RPC in /etc/sysconfig/qemu-ga (RHEL, AlmaLinux, " +
	"Rocky Linux, Fedora) or at block-rpcs and allow-rpcs in /etc/qemu/qemu-ga.conf (Debian, Ubuntu) of the image"

// explain turns the agent's own answer to a command into one of the sentinel errors where it means one; every other
// error passes as it is.
//
// The texts are those of QEMU's qga/main.c and qga/commands-posix.c (with glibc's strerror in the C locale). The only
// thing wrong with a request for a status can be the process id.
func explain(command string, err error) error {
	var refused *RefusedError
	if !errors.As(err, &refused) {
		return err
	}
	text := refused.Text
	switch {
	case strings.Contains(text, "has been disabled"), strings.Contains(text, "has not been found"):
		return fmt.Errorf("%w %s: %w; %s", ErrDisabled, command, err, blockListHint)
	case command == cmdFileOpen && strings.HasSuffix(text, "No such file or directory"):
		return fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	case command == cmdExecStatus:
		return fmt.Errorf("%w: %w", ErrForgotten, err)
	}
	return err
}
