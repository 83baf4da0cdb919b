package guestagent

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// status is an answer to guest-exec-status.
func status(body string) step { return step{command: cmdExecStatus, reply: `{"return":` + body + `}`} }

var (
	started = step{command: cmdExec, reply: `{"return":{"pid":42}}`}
	runs    = status(`{"exited":false}`)
	silent  = step{command: cmdExecStatus, err: ErrNotConnected}
)

func TestRun(t *testing.T) {
	tests := map[string]struct {
		steps []step
		want  string
	}{
		"no output":         {steps: []step{started, runs, runs, runs, status(`{"exited":true,"exitcode":0}`)}},
		"output and errors": {steps: []step{started, status(`{"exited":true,"exitcode":0,"out-data":"b3V0","err-data":"ZXJy"}`)}, want: "outerr"},
		"answers too late":  {steps: []step{started, silent, runs, silent, status(`{"exited":true,"exitcode":0,"out-data":"b3V0"}`)}, want: "out"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				agent, script := play(t, tt.steps...)
				got, err := agent.Run(t.Context(), "/usr/bin/cloud-init", "status", "--wait")
				if err != nil || string(got) != tt.want {
					t.Errorf("got %q and %v, want %q", got, err, tt.want)
				}
				want := `{"path":"/usr/bin/cloud-init","arg":["status","--wait"],"capture-output":true}`
				if script.arguments[0] != want || script.arguments[1] != `{"pid":42}` {
					t.Errorf("arguments %q", script.arguments)
				}
			})
		})
	}
}

func TestRunErrors(t *testing.T) {
	tests := map[string]struct {
		steps  []step
		target error
		text   string
	}{
		"disabled":          {steps: []step{{command: cmdExec, err: refused("Command guest-exec has been disabled: the command is not allowed")}}, target: ErrDisabled, text: "guest-exec"},
		"program absent":    {steps: []step{{command: cmdExec, err: refused("Guest agent failed to execute '/x': No such file or directory")}}, text: "failed to execute"},
		"no process":        {steps: []step{{command: cmdExec, reply: `{"return":{}}`}}, text: "names no process"},
		"output cut":        {steps: []step{started, status(`{"exited":true,"exitcode":0,"out-data":"b3V0","out-truncated":true}`)}, text: "was cut"},
		"error output cut":  {steps: []step{started, status(`{"exited":true,"exitcode":0,"err-truncated":true}`)}, text: "was cut"},
		"result handed out": {steps: []step{started, silent, {command: cmdExecStatus, err: refused("Invalid parameter 'pid'")}}, target: ErrForgotten},
		"agent restarted":   {steps: []step{started, runs, {command: cmdExecStatus, err: refused("PID 42 does not exist")}}, target: ErrForgotten},
		"VM powered off":    {steps: []step{started, {command: cmdExecStatus, err: ErrNotRunning}}, target: ErrNotRunning},
		"agent gone":        {steps: append([]step{started}, slices.Repeat([]step{silent}, maxSilence+1)...), target: ErrNotConnected},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				agent, _ := play(t, tt.steps...)
				got, err := agent.Run(t.Context(), "/x")
				if err == nil || got != nil {
					t.Fatalf("got %q and error %v", got, err)
				}
				if tt.target != nil {
					wantIs(t, err, tt.target)
				}
				if !strings.Contains(err.Error(), "run /x") || !strings.Contains(err.Error(), tt.text) {
					t.Errorf("error %q does not mention the program and %q", err, tt.text)
				}
			})
		})
	}
}

func TestRunExit(t *testing.T) {
	tests := map[string]struct {
		body string
		want ExitError
		text string
	}{
		"code":   {body: `{"exited":true,"exitcode":3,"err-data":"bm8="}`, want: ExitError{Path: "/x", Code: 3}, text: "run: /x exited with code 3"},
		"signal": {body: `{"exited":true,"signal":9,"out-data":"bm8="}`, want: ExitError{Path: "/x", Signal: 9}, text: "run: /x was ended by signal 9"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			agent, _ := play(t, started, status(tt.body))
			got, err := agent.Run(t.Context(), "/x")
			var exit *ExitError
			if !errors.As(err, &exit) || *exit != tt.want {
				t.Fatalf("error %v, want %+v", err, tt.want)
			}
			if err.Error() != tt.text || string(got) != "no" {
				t.Errorf("error %q with output %q", err, got)
			}
		})
	}
}

func TestRunEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		agent, _ := play(t, started, runs)
		ctx, cancel := context.WithTimeout(t.Context(), pollFirst/2)
		defer cancel()
		began := time.Now()
		_, err := agent.Run(ctx, "/x")
		wantIs(t, err, context.DeadlineExceeded)
		if waited := time.Since(began); waited != pollFirst/2 {
			t.Errorf("waited %s", waited)
		}
	})
}
