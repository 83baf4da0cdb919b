package guestagent

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// pollFirst and pollMost bound the pause between two looks at a program: short ones are answered at once, long ones
	// do not keep the channel busy.
	pollFirst = 100 * time.Millisecond
	pollMost  = 2 * time.Second
	// maxSilence is how often in a row a look may go unanswered before Run gives up.
	maxSilence = 10
)

// execStatus is the answer to guest-exec-status.
type execStatus struct {
	Exited       bool   `json:"exited"`
	ExitCode     int    `json:"exitcode"`
	Signal       int    `json:"signal"`
	Out          []byte `json:"out-data"`
	Err          []byte `json:"err-data"`
	OutTruncated bool   `json:"out-truncated"`
	ErrTruncated bool   `json:"err-truncated"`
}

// Run executes a program, without a shell, waits for its end and returns its standard output followed by its standard
// error. A program that exits with another code than zero or is ended by a signal is an *ExitError, beside its output.
//
// Output beyond 7 MiB breaks the agent's channel until the VM restarts (libvirt takes answers of up to 10 MiB): let
// such a program write to a file. When ctx ends, the program goes on: the agent has no way to stop it.
func (a *Agent) Run(ctx context.Context, path string, args ...string) ([]byte, error) {
	start := struct {
		Path    string   `json:"path"`
		Arg     []string `json:"arg,omitempty"`
		Capture bool     `json:"capture-output"`
	}{path, args, true}
	var started struct {
		PID *int64 `json:"pid"`
	}
	if err := a.command(ctx, cmdExec, start, &started); err != nil {
		return nil, fmt.Errorf("run %s: %w", path, err)
	}
	if started.PID == nil {
		return nil, fmt.Errorf("run %s: %s: the answer names no process", path, cmdExec)
	}
	status, err := a.wait(ctx, *started.PID)
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", path, err)
	}
	output := append(status.Out, status.Err...)
	switch {
	case status.ExitCode != 0 || status.Signal != 0:
		return output, fmt.Errorf("run: %w", &ExitError{Path: path, Code: status.ExitCode, Signal: status.Signal})
	case status.OutTruncated || status.ErrTruncated:
		return nil, fmt.Errorf("run %s: its output is too long and was cut", path)
	}
	return output, nil
}

// wait looks at a program until it has ended. A look that went unanswered is repeated.
func (a *Agent) wait(ctx context.Context, pid int64) (execStatus, error) {
	ask := struct {
		PID int64 `json:"pid"`
	}{pid}
	silence := 0
	for pause := pollFirst; ; pause = min(2*pause, pollMost) {
		var status execStatus
		switch err := a.command(ctx, cmdExecStatus, ask, &status); {
		case errors.Is(err, ErrNotConnected) && silence < maxSilence:
			silence++
		case err != nil:
			return execStatus{}, err
		case status.Exited:
			return status, nil
		default:
			silence = 0
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return execStatus{}, fmt.Errorf("it has not ended: %w", context.Cause(ctx))
		}
	}
}
