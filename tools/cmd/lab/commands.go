package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab"
	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/cache"
	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/image"
)

func commands() []command {
	return []command{
		{name: "up", args: "[flags]", short: "make a lab", run: up},
		{name: "status", args: "[flags]", short: "show the labs, their hypervisors and their VMs", run: status},
		{name: "console", args: "[flags] NODE", short: "print what a node wrote on its serial console", run: console},
		{name: "exec", args: "[flags] -- PROGRAM [ARGUMENT…]", short: "run a program inside a lab's LAN", run: execute},
		{name: "env", args: "[flags]", short: "print what a program inside a lab finds in its environment, as shell commands", run: env},
		{name: "hypervisor", args: "stop|start|cut|mend [flags] NAME", short: "kill or start a libvirtd, cut or mend its cable", run: hypervisor},
		{name: "down", args: "[flags]", short: "remove a lab", run: down},
		{name: "prepare", args: "[flags]", short: "make what labs need (image, programs) without making one", run: prepare},
		{name: "image", args: "build [flags]", short: "make a golden image and print its path", run: buildImage},
		{name: "deps", args: "", short: "install the Debian packages that labs need", run: deps},
		{name: lab.ServeCommand, hidden: true, run: serve},
	}
}

func nameFlag(flags *flag.FlagSet) *string {
	return flags.String("name", lab.DefaultName, "name of the lab")
}

// configFlags are the flags of up and prepare.
func configFlags(flags *flag.FlagSet) *lab.Config {
	c := &lab.Config{Log: progress()}
	flags.StringVar(&c.Artifacts, "artifacts", "", "serve the real k3s releases in this directory instead of the double")
	flags.BoolVar(&c.KVM, "kvm", false, "run the VMs with KVM, which must work here (the default emulates them)")
	flags.BoolVar(&c.BrokenTemplate, "broken-template", false, "add a golden image whose guest agent is masked")
	flags.BoolVar(&c.NFS, "nfs", false, "add an NFS server to the LAN, and a storage pool of its export to the hypervisors")
	return c
}

func up(ctx context.Context, flags *flag.FlagSet, args []string) error {
	c := configFlags(flags)
	flags.StringVar(&c.Name, "name", lab.DefaultName, "name of the lab")
	flags.IntVar(&c.Hypervisors, "hypervisors", 1, "how many hypervisors to make")
	install := flags.Bool("install-deps", false, "install missing Debian packages first")
	if err := parse(flags, args, 0, 0); err != nil {
		return err
	}
	if *install {
		if err := installDeps(ctx); err != nil {
			return err
		}
	}
	l, err := lab.Up(ctx, *c)
	if err != nil {
		return err
	}
	for _, h := range l.Hypervisors {
		fmt.Printf("%s  %s\n", h.Name, h.URI)
	}
	fmt.Printf("Use it:    lab exec%[1]s -- PROGRAM\nRemove it: lab down%[1]s\n", nameHint(l.Name))
	return nil
}

func nameHint(name string) string {
	if name == lab.DefaultName {
		return ""
	}
	return " -name " + name
}

func prepare(ctx context.Context, flags *flag.FlagSet, args []string) error {
	c := configFlags(flags)
	if err := parse(flags, args, 0, 0); err != nil {
		return err
	}
	if err := lab.Check(); err != nil {
		return err
	}
	_, err := lab.Prepare(ctx, *c)
	return err
}

func down(ctx context.Context, flags *flag.FlagSet, args []string) error {
	name := nameFlag(flags)
	all := flags.Bool("all", false, "remove every lab on this machine")
	if err := parse(flags, args, 0, 0); err != nil {
		return err
	}
	names := []string{*name}
	if *all {
		var err error
		if names, err = lab.Names(); err != nil {
			return err
		}
	}
	var errs []error
	for _, n := range names {
		errs = append(errs, lab.Down(ctx, n))
	}
	return errors.Join(errs...)
}

func execute(_ context.Context, flags *flag.FlagSet, args []string) error {
	name := nameFlag(flags)
	if err := parse(flags, args, 1, -1); err != nil {
		return err
	}
	l, err := lab.Open(*name)
	if err != nil {
		return err
	}
	argv := l.Enter(flags.Args()...)
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return err
	}
	// The program takes this one's place, so that signals, terminal and exit status are its own.
	return fmt.Errorf("running %s: %w", argv[0], syscall.Exec(path, argv, append(os.Environ(), l.Environ()...)))
}

func env(_ context.Context, flags *flag.FlagSet, args []string) error {
	name := nameFlag(flags)
	if err := parse(flags, args, 0, 0); err != nil {
		return err
	}
	l, err := lab.Open(*name)
	if err != nil {
		return err
	}
	for _, kv := range l.Environ() {
		name, value, _ := strings.Cut(kv, "=")
		// No value has a quote in it: they are names, paths and URLs of the lab's own making.
		fmt.Printf("export %s='%s'\n", name, value)
	}
	return nil
}

// hypervisor makes a hypervisor of a lab fail, and ends the failure.
func hypervisor(ctx context.Context, flags *flag.FlagSet, args []string) error {
	name := nameFlag(flags)
	changes := map[string]func(*lab.Lab, context.Context, string) error{
		"stop": (*lab.Lab).StopHypervisor, "start": (*lab.Lab).StartHypervisor,
		"cut": (*lab.Lab).CutCable, "mend": (*lab.Lab).MendCable,
	}
	change, rest, err := verb(flags, changes, args)
	if err != nil {
		return err
	}
	if err := parse(flags, rest, 1, 1); err != nil {
		return err
	}
	l, err := lab.Open(*name)
	if err != nil {
		return err
	}
	return change(l, ctx, flags.Arg(0))
}

func buildImage(ctx context.Context, flags *flag.FlagSet, args []string) error {
	var o image.Options
	flags.StringVar(&o.Distribution, "distribution", "debian", "debian, or ubuntu (which needs the package ubuntu-archive-keyring and was not booted by the project's tests)")
	flags.StringVar(&o.Suite, "suite", "", "release to take packages from (default bookworm, noble)")
	flags.StringVar(&o.Mirror, "mirror", "", "archive to take packages from (default the distribution's own)")
	flags.BoolVar(&o.Emulated, "emulated", false, "for guests without KVM: boots faster, is less hardened")
	flags.BoolVar(&o.MaskAgent, "mask-agent", false, "mask the guest agent (to test with)")
	output := flags.String("o", "", "copy the image to this file")
	_, rest, err := verb(flags, map[string]struct{}{"build": {}}, args)
	if err != nil {
		return err
	}
	if err := parse(flags, rest, 0, 0); err != nil {
		return err
	}
	if err := lab.Check(); err != nil {
		return err
	}
	dir, err := cache.Dir()
	if err != nil {
		return err
	}
	path, err := image.Build(ctx, dir, o, progress())
	if err != nil {
		return err
	}
	if *output == "" {
		fmt.Println(path)
		return nil
	}
	return exec.CommandContext(ctx, "cp", "--reflink=auto", "--sparse=always", path, *output).Run()
}

func deps(ctx context.Context, flags *flag.FlagSet, args []string) error {
	if err := parse(flags, args, 0, 0); err != nil {
		return err
	}
	return installDeps(ctx)
}

func installDeps(ctx context.Context) error {
	installed, err := lab.InstallMissing(ctx)
	if err != nil {
		return err
	}
	if len(installed) == 0 {
		fmt.Fprintln(os.Stderr, "every package that labs need is installed")
		return nil
	}
	fmt.Fprintln(os.Stderr, "installed:", strings.Join(installed, " "))
	return nil
}

func serve(ctx context.Context, _ *flag.FlagSet, args []string) error {
	s, err := lab.ServiceFrom(args)
	if err != nil {
		return err
	}
	return s.Run(ctx)
}
