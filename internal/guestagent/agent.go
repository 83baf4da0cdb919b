// Package guestagent speaks the QEMU guest agent's protocol with one VM.
//
// It knows the protocol's traps so that its callers need not: files come in pieces, handles leak unless closed, the
// result of a program is handed out once, and an agent that answers may still know no address.
// The protocol: https://qemu-project.gitlab.io/qemu/interop/qemu-ga-ref.html.
package guestagent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Transport carries one request to the agent of one VM.
type Transport interface {
	// Command sends a request in JSON and returns the agent's answer in JSON. Both are bound to 4 MiB by libvirt's
	// protocol. The timeout, in whole seconds, is the agent's; ctx bounds the call as a whole. The error is one of the
	// sentinel errors of this package, a *RefusedError, or one of the road to the VM.
	Command(ctx context.Context, request string, timeout time.Duration) (string, error)
}

// Agent is the guest agent of one VM. It holds no state and is safe for concurrent use.
type Agent struct{ transport Transport }

// New makes an Agent; it does no I/O.
func New(t Transport) *Agent { return &Agent{transport: t} }

// The commands in use.
const (
	cmdPing       = "guest-ping"
	cmdInterfaces = "guest-network-get-interfaces"
	cmdFileOpen   = "guest-file-open"
	cmdFileRead   = "guest-file-read"
	cmdFileWrite  = "guest-file-write"
	cmdFileFlush  = "guest-file-flush"
	cmdFileClose  = "guest-file-close"
	cmdExec       = "guest-exec"
	cmdExecStatus = "guest-exec-status"
)

// answerTimeout bounds each command: none of them does more in the guest than a few system calls, yet a guest that
// emulates its CPU and is busy booting may be slow to come to them.
const answerTimeout = 20 * time.Second

// Ping asks the agent whether it is there.
func (a *Agent) Ping(ctx context.Context) error {
	return a.command(ctx, cmdPing, nil, nil)
}

// request is a command on the wire.
type request struct {
	Execute   string `json:"execute"`
	Arguments any    `json:"arguments,omitempty"`
}

// command runs one command and decodes what it returned into result, if that is not nil.
func (a *Agent) command(ctx context.Context, name string, arguments, result any) error {
	req, err := json.Marshal(request{Execute: name, Arguments: arguments})
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	reply, err := a.transport.Command(ctx, string(req), answerTimeout)
	if err == nil {
		err = decode([]byte(reply), result)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, explain(name, err))
	}
	return nil
}

// decode reads an answer: {"return": …} or {"error": …}.
func decode(reply []byte, result any) error {
	var envelope struct {
		Return json.RawMessage `json:"return"`
		Error  *struct {
			Desc string `json:"desc"`
		} `json:"error"`
	}
	if err := json.Unmarshal(reply, &envelope); err != nil {
		return fmt.Errorf("the answer is not JSON: %w", err)
	}
	switch {
	case envelope.Error != nil:
		return &RefusedError{Text: envelope.Error.Desc}
	case envelope.Return == nil || bytes.Equal(envelope.Return, []byte("null")):
		return errors.New("the answer holds no result")
	case result == nil:
		return nil
	}
	if err := json.Unmarshal(envelope.Return, result); err != nil {
		return fmt.Errorf("the answer has an unknown form: %w", err)
	}
	return nil
}
