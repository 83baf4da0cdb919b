package run

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
)

func TestDo(t *testing.T) {
	if err := Do(Command(t.Context(), "true")); err != nil {
		t.Error(err)
	}
	err := Do(Command(t.Context(), "sh", "-c", "echo reason; echo cause >&2; exit 3"))
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Fatalf("got error %v", err)
	}
	for _, want := range []string{"sh: ", "reason", "cause"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
}

func TestDoKeepsTheEndOfLongOutput(t *testing.T) {
	err := Do(Command(t.Context(), "sh", "-c", "seq 1 100000; exit 1"))
	if err == nil || !strings.HasSuffix(err.Error(), "100000") || len(err.Error()) > 2*tail {
		t.Errorf("got an error of %d bytes", len(err.Error()))
	}
}

func TestOutput(t *testing.T) {
	got, err := Output(Command(t.Context(), "sh", "-c", "echo noise >&2; echo ' text '"))
	if err != nil || got != "text" {
		t.Errorf("got %q, %v", got, err)
	}
}

// The children of a program end with it.
func TestCommandEndsTheGroup(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cmd := Command(ctx, "sh", "-c", "sleep 600 & echo started; wait")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	cancel()
	// The sleeping child holds the pipe: its end is the child's.
	if _, err := out.Read(make([]byte, 16)); err == nil {
		t.Error("the child still writes")
	}
	if err := cmd.Wait(); err == nil {
		t.Error("no error from a program that was ended")
	}
}
