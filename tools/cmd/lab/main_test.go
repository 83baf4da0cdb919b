package main

import (
	"bytes"
	"errors"
	"flag"
	"strings"
	"testing"
)

func TestDispatchRefusesWrongCommandLines(t *testing.T) {
	for _, args := range [][]string{
		nil,
		{"bogus"},
		{"up", "--no-such-flag"},
		{"up", "surplus"},
		{"console"},
		{"console", "a", "b"},
		{"exec"},
		{"image"},
		{"image", "burn"},
	} {
		if err := dispatch(t.Context(), args); !errors.Is(err, errUsage) {
			t.Errorf("lab %s: got error %v", strings.Join(args, " "), err)
		}
	}
}

func TestHelpOfEveryCommand(t *testing.T) {
	var text bytes.Buffer
	usage(&text)
	for _, c := range commands() {
		if listed := strings.Contains(text.String(), "  "+c.name+" "); listed == c.hidden {
			t.Errorf("%s: hidden %v, listed %v", c.name, c.hidden, listed)
		}
		if c.hidden {
			continue
		}
		args := []string{c.name, "-h"}
		if c.name == "image" {
			args = []string{c.name, "build", "-h"}
		}
		if err := dispatch(t.Context(), args); err != nil {
			t.Errorf("lab %s: %v", strings.Join(args, " "), err)
		}
	}
}

func TestExecKeepsFlagsOfTheProgram(t *testing.T) {
	flags := flag.NewFlagSet("exec", flag.ContinueOnError)
	name := nameFlag(flags)
	if err := parse(flags, []string{"-name", "x", "--", "ls", "-l", "--", "a"}, 1, -1); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(flags.Args(), " "); *name != "x" || got != "ls -l -- a" {
		t.Errorf("name %q, program %q", *name, got)
	}
}
