package guestagent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"
)

// step is one expected request and the answer to it.
type step struct {
	command string
	// reply is the JSON answer, err the failure of the transport instead.
	reply string
	err   error
}

// script is a Transport that plays steps in order and fails the test on any other request.
type script struct {
	t     *testing.T
	steps []step
	// arguments are those of the requests so far, in JSON.
	arguments []string
}

func (s *script) Command(ctx context.Context, req string, timeout time.Duration) (string, error) {
	s.t.Helper()
	if timeout <= 0 {
		s.t.Errorf("request %s has no timeout", req)
	}
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	var parsed struct {
		Execute   string          `json:"execute"`
		Arguments json.RawMessage `json:"arguments"`
	}
	if err := json.Unmarshal([]byte(req), &parsed); err != nil {
		s.t.Fatalf("request %q is not JSON: %v", req, err)
	}
	s.arguments = append(s.arguments, string(parsed.Arguments))
	if len(s.steps) == 0 {
		s.t.Fatalf("unexpected request %s", req)
	}
	next := s.steps[0]
	s.steps = s.steps[1:]
	if parsed.Execute != next.command {
		s.t.Fatalf("request %s, want %s", parsed.Execute, next.command)
	}
	return next.reply, next.err
}

// play makes an Agent on a script and checks at the end of the test that every step was asked for.
func play(t *testing.T, steps ...step) (*Agent, *script) {
	t.Helper()
	s := &script{t: t, steps: steps}
	t.Cleanup(func() {
		if len(s.steps) > 0 {
			t.Errorf("never asked for: %v", s.steps)
		}
	})
	return New(s), s
}

// refused is the transport's error for an answer of the agent that is an error.
func refused(format string, args ...any) error {
	return fmt.Errorf("hypervisor: %w", &RefusedError{Text: fmt.Sprintf(format, args...)})
}

func wantIs(t *testing.T, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("error %v, want %v", err, target)
	}
}
