// Command k3sdouble stands in for k3s in the guests of the lab, where the real one cannot be had.
//
// It is one static program that the lab's mirror serves as every release; a trailer behind it tells it which one it
// is. It takes the real one's commands, flags and config file, leaves the real one's files, answers on the real one's
// ports, and registers a Node that behaves as a real one's. No container runs. Behind the API stands a control plane
// that the lab runs natively (package kubelab, whose README tells how the double differs from k3s).
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/wire"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args)
	stop()
	if err != nil {
		log.line("fatal", "%v", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	t, err := ownTrailer()
	if err != nil {
		return err
	}
	command, rest := "", args[1:]
	switch name := filepath.Base(args[0]); name {
	case "kubectl", "crictl", "ctr":
		command = name
	default:
		if len(rest) > 0 {
			command, rest = rest[0], rest[1:]
		}
	}
	switch command {
	case "--version", "-v":
		fmt.Printf("k3s version %s (%s)\ngo version %s\n", t.Version, t.Commit, runtime.Version())
		return nil
	case "server", "agent":
		o, err := readOptions(command, rest, t.Version)
		if err != nil {
			return err
		}
		log.infof("Starting k3s %s %s (%s)", command, t.Version, t.Commit)
		setProcessName("k3s-" + command)
		if command == "server" {
			return ended(ctx, runServer(ctx, o, t.Control))
		}
		return ended(ctx, runAgent(ctx, o))
	case "kubectl":
		return kubectl(ctx, rest, os.Stdout)
	case "etcd-snapshot":
		return etcdSnapshot(ctx, rest, t.Control, os.Stdout)
	case "token":
		return tokenCommand(rest, os.Stdout)
	case "", "help", "--help", "-h":
		fmt.Print(usage)
		return nil
	default:
		return fmt.Errorf("k3s %s: not part of the lab's stand-in for k3s", command)
	}
}

const usage = `NAME:
   k3s - Kubernetes, but small and simple

USAGE:
   k3s [global options] command [command options]

COMMANDS:
   server         Run management server
   agent          Run node agent
   kubectl        Run kubectl (in the lab's stand-in: get nodes, get --raw)
   token          Manage tokens (generate)
   etcd-snapshot  Manage etcd snapshots (save, ls)

GLOBAL OPTIONS:
   --help, -h     show help
   --version, -v  print the version
`

// ended tells the end that a signal asked for from one of its own.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil && (err == nil || errors.Is(err, context.Canceled)) {
		return nil
	}
	if err == nil {
		return errors.New("ended without a reason")
	}
	return err
}

// ownTrailer reads the trailer of the running program.
func ownTrailer() (wire.Trailer, error) {
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		return wire.Trailer{}, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return wire.Trailer{}, err
	}
	t, err := wire.ReadTrailer(f, st.Size())
	if err != nil {
		return t, fmt.Errorf("this program works only as served by the lab's mirror: %w", err)
	}
	return t, nil
}

// setProcessName sets the short name by which process lists show this one; where that is not possible, the old one stays.
func setProcessName(name string) {
	_ = os.WriteFile("/proc/self/comm", []byte(name), 0)
}

// legacyMaster reports whether a version's servers carry the label node-role.kubernetes.io/master: up to 1.33.
func legacyMaster(version string) bool {
	parts := strings.SplitN(version, ".", 3)
	if len(parts) < 2 {
		return false
	}
	minor, err := strconv.Atoi(parts[1])
	return err == nil && minor <= 33
}
