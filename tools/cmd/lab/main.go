// Command lab makes and removes labs: real hypervisors on this machine to develop and test the provider against.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// command is one of the tool's commands.
type command struct {
	name, args, short string
	// run gets the flag set to add its flags to and the arguments behind the command's name.
	run func(ctx context.Context, flags *flag.FlagSet, args []string) error
	// hidden commands are for the tool itself.
	hidden bool
}

// errUsage says that the command line was wrong and that the user was told so.
var errUsage = errors.New("usage")

func main() {
	// A shell that became root may not have these, where half of the lab's tools are.
	_ = os.Setenv("PATH", os.Getenv("PATH")+":/usr/local/sbin:/usr/sbin:/sbin")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := dispatch(ctx, os.Args[1:])
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case errors.Is(err, errUsage):
		os.Exit(2)
	case err != nil && interrupted:
		fmt.Fprintln(os.Stderr, "lab: interrupted:", err)
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "lab:", err)
		os.Exit(1)
	}
}

func dispatch(ctx context.Context, args []string) error {
	if len(args) == 0 {
		usage(os.Stderr)
		return errUsage
	}
	switch args[0] {
	case "help", "-h", "-help", "--help":
		usage(os.Stdout)
		return nil
	}
	for _, c := range commands() {
		if c.name != args[0] {
			continue
		}
		flags := flag.NewFlagSet("lab "+c.name, flag.ContinueOnError)
		flags.Usage = func() {
			fmt.Fprintf(flags.Output(), "%s\n\nUsage: lab %s %s\n", c.short, c.name, c.args)
			flags.PrintDefaults()
		}
		err := c.run(ctx, flags, args[1:])
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	fmt.Fprintf(os.Stderr, "lab: there is no command %q\n\n", args[0])
	usage(os.Stderr)
	return errUsage
}

func usage(w io.Writer) {
	fmt.Fprint(w, `lab makes real libvirt hypervisors on this machine, on a LAN of their own, to develop and test against.

Usage: lab COMMAND [flags]

`)
	for _, c := range commands() {
		if !c.hidden {
			fmt.Fprintf(w, "  %-10s  %s\n", c.name, c.short)
		}
	}
	fmt.Fprint(w, `
"lab COMMAND -h" tells more of a command. For a start:

  lab up                              one hypervisor, a golden image, a mirror of k3s
  lab exec -- terraform apply         runs inside the lab, with its addresses in the environment
  lab console k8s-prod-cp-1           what a node writes on its serial console
  lab down                            removes everything
`)
}

// verb takes the first argument for one of the verbs of a command, and returns what it stands for and the rest.
func verb[T any](flags *flag.FlagSet, verbs map[string]T, args []string) (T, []string, error) {
	var none T
	if len(args) > 0 {
		if v, ok := verbs[args[0]]; ok {
			return v, args[1:], nil
		}
		// The flag set tells help from a wrong argument.
		if err := parse(flags, args[:1], 0, 0); err != nil {
			return none, nil, err
		}
	}
	flags.Usage()
	return none, nil, errUsage
}

// parse parses flags; a wrong one was reported by the flag set itself.
func parse(flags *flag.FlagSet, args []string, least, most int) error {
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return errUsage
	}
	if n := flags.NArg(); n < least || most >= 0 && n > most {
		fmt.Fprintf(flags.Output(), "lab: wrong number of arguments\n\n")
		flags.Usage()
		return errUsage
	}
	return nil
}

// progress prints a line to standard error with the time since the program's start.
func progress() func(format string, args ...any) {
	began := time.Now()
	return func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "%6.1f s  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
}
