package cluster

import (
	"errors"
	"fmt"
	"testing"
)

func TestExplain(t *testing.T) {
	full := &Failure{Err: errors.New("the VM is paused"), Cause: "its pool is full.", Remedy: "make room.", Log: "a line\nanother\n"}
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"a plain error": {errors.New("no such pool"), "No such pool."},
		"a question":    {errors.New(`did you mean "a"?`), `Did you mean "a"?`},
		"a failure": {nodeError("w-1", "a", full),
			"Node \"w-1\" on hypervisor \"a\": the VM is paused.\n\nLikely cause: its pool is full.\n\nWhat to do: make room.\n\n" +
				"Last lines of the guest's log:\n  a line\n  another"},
		"several": {errors.Join(errors.New("one"), errors.Join(errors.New("two"), errors.New("three"))), "One.\n\nTwo.\n\nThree."},
		"one that wraps two is one": {
			fmt.Errorf("%w, while this was in the way: %w", errors.New("time is over"), errors.New("no answer")),
			"Time is over, while this was in the way: no answer."},
	} {
		if got := Explain(tc.err); got != tc.want {
			t.Errorf("%s:\n got %q\nwant %q", name, got, tc.want)
		}
	}
}
