package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab"
)

func status(ctx context.Context, flags *flag.FlagSet, args []string) error {
	if err := parse(flags, args, 0, 0); err != nil {
		return err
	}
	names, err := lab.Names()
	if err != nil {
		return err
	}
	if len(names) == 0 {
		fmt.Println("There is no lab. Make one: lab up")
		return nil
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, name := range names {
		l, err := lab.Open(name)
		if err != nil {
			fmt.Fprintf(out, "lab %s\tdoes not stand: %v\n", name, err)
			continue
		}
		fmt.Fprintf(out, "lab %s\tmirror %s\ttemplate %s\n", name, l.MirrorURL, l.Template)
		for _, h := range l.Hypervisors {
			fmt.Fprintf(out, "  %s\t%s\t%s\n", h.Name, h.Address, h.URI)
			if !l.Runs(h.Name) {
				fmt.Fprintf(out, "    ?\tits libvirtd is stopped\n")
				continue
			}
			nodes, err := l.Nodes(ctx, h.Name)
			if err != nil {
				fmt.Fprintf(out, "    ?\t%v\n", err)
			}
			for _, n := range nodes {
				fmt.Fprintf(out, "    %s\t%s\t%s\n", n.Name, n.Address, n.State)
			}
		}
	}
	return out.Flush()
}

func console(ctx context.Context, flags *flag.FlagSet, args []string) error {
	name := nameFlag(flags)
	follow := flags.Bool("f", false, "go on printing until interrupted")
	if err := parse(flags, args, 1, 1); err != nil {
		return err
	}
	l, err := lab.Open(*name)
	if err != nil {
		return err
	}
	return l.Console(ctx, os.Stdout, flags.Arg(0), *follow)
}
