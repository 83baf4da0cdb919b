package cluster

import (
	"errors"
	"fmt"
	"strings"
)

// Failure is an error that knows its likely cause and what helps. Its text never holds a secret.
type Failure struct {
	// Err says what happened.
	Err error
	// Cause is the likely cause and Remedy what to do, as sentences.
	Cause  string
	Remedy string
	// Log holds the last lines of the guest's own log, where it could be read.
	Log string
	// replaceable: a new VM in the node's place may well come up.
	replaceable bool
}

// Error returns what happened, without cause and remedy.
func (f *Failure) Error() string { return f.Err.Error() }

// Unwrap returns what happened.
func (f *Failure) Unwrap() error { return f.Err }

// Explain renders an error for a person: each failure in err with its cause, its remedy and the guest's log.
func Explain(err error) string {
	var b strings.Builder
	for i, e := range failures(err) {
		if i > 0 {
			b.WriteString("\n\n")
		}
		b.WriteString(sentence(e.Error()))
		var f *Failure
		if !errors.As(e, &f) {
			continue
		}
		if f.Cause != "" {
			b.WriteString("\n\nLikely cause: " + f.Cause)
		}
		if f.Remedy != "" {
			b.WriteString("\n\nWhat to do: " + f.Remedy)
		}
		if f.Log != "" {
			b.WriteString("\n\nLast lines of the guest's log:\n" + indent(f.Log))
		}
	}
	return b.String()
}

// failures flattens joined errors. An error that wraps several in one sentence is no list.
func failures(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var out []error
	var lines []string
	for _, e := range joined.Unwrap() {
		out = append(out, failures(e)...)
		lines = append(lines, e.Error())
	}
	if strings.Join(lines, "\n") != err.Error() {
		return []error{err}
	}
	return out
}

func sentence(s string) string {
	if s == "" {
		return s
	}
	s = strings.ToUpper(s[:1]) + s[1:]
	if !strings.ContainsAny(s[len(s)-1:], ".?!") {
		s += "."
	}
	return s
}

func indent(s string) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return "  " + strings.Join(lines, "\n  ")
}

// nodeError puts the node's name before an error, and keeps a Failure's cause and remedy.
func nodeError(node, hypervisor string, err error) error {
	return fmt.Errorf("node %q on hypervisor %q: %w", node, hypervisor, err)
}
