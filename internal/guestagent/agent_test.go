package guestagent

import (
	"strings"
	"testing"
)

func TestPing(t *testing.T) {
	agent, _ := play(t, step{command: cmdPing, reply: `{"return":{}}`})
	if err := agent.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestCommandErrors(t *testing.T) {
	tests := map[string]struct {
		step   step
		target error
		texts  []string
	}{
		"not connected": {
			step:   step{err: ErrNotConnected},
			target: ErrNotConnected,
			texts:  []string{cmdPing},
		},
		"disabled on RHEL": {
			step:   step{err: refused("Command guest-ping has been disabled: the command is not allowed")},
			target: ErrDisabled,
			texts:  []string{cmdPing, "FILTER_RPC_ARGS", "/etc/sysconfig/qemu-ga", "block-rpcs", "/etc/qemu/qemu-ga.conf"},
		},
		"unknown to an old agent": {
			step:   step{err: refused("The command guest-ping has not been found")},
			target: ErrDisabled,
		},
		"an error that the transport hands through": {
			step:   step{reply: `{"error":{"class":"CommandNotFound","desc":"The command guest-ping has not been found"}}`},
			target: ErrDisabled,
		},
		"cut":       {step: step{reply: `{"return":`}, texts: []string{"not JSON"}},
		"empty":     {step: step{reply: `{}`}, texts: []string{"no result"}},
		"null":      {step: step{reply: `{"return":null}`}, texts: []string{"no result"}},
		"no object": {step: step{reply: `[]`}, texts: []string{"not JSON"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.step.command = cmdPing
			agent, _ := play(t, tt.step)
			err := agent.Ping(t.Context())
			if err == nil {
				t.Fatal("no error")
			}
			if tt.target != nil {
				wantIs(t, err, tt.target)
			}
			for _, text := range tt.texts {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("error %q does not mention %q", err, text)
				}
			}
		})
	}
}
