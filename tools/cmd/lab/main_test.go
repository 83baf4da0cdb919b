package main

import (
	"bytes"
	"errors"
	"flag"
	"io"
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
		{"hypervisor"},
		{"hypervisor", "burn", "hv-a"},
		{"hypervisor", "stop"},
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
		if err := dispatch(t.Context(), []string{c.name, "-h"}); err != nil {
			t.Errorf("lab %s -h: %v", c.name, err)
		}
	}
}

func TestVerb(t *testing.T) {
	flags := flag.NewFlagSet("x", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	v, rest, err := verb(flags, map[string]int{"stop": 1, "start": 2}, []string{"start", "-name", "x", "hv-a"})
	if err != nil || v != 2 || strings.Join(rest, " ") != "-name x hv-a" {
		t.Errorf("got %d, %v, %v", v, rest, err)
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
