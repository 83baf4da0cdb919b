package lab

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// consolePoll is how often a followed console is looked at.
const consolePoll = 300 * time.Millisecond

// Node is a VM in the lab, whoever made it.
type Node struct {
	Name, State string
	// Address is what the LAN's DHCP gave to its first NIC, "" before that.
	Address string
}

// domain is what the lab reads of a domain's XML.
type domain struct {
	Serial []struct {
		Source struct {
			Path string `xml:"path,attr"`
		} `xml:"source"`
		Log struct {
			File string `xml:"file,attr"`
		} `xml:"log"`
		Type string `xml:"type,attr"`
	} `xml:"devices>serial"`
	MACs []struct {
		Address string `xml:"address,attr"`
	} `xml:"devices>interface>mac"`
}

// consoleFile is the file that a domain's serial console is logged to, "" without one.
func (d domain) consoleFile() string {
	for _, s := range d.Serial {
		if s.Log.File != "" {
			return s.Log.File
		}
		if s.Type == "file" {
			return s.Source.Path
		}
	}
	return ""
}

func (l *Lab) domain(ctx context.Context, hv, name string) (domain, error) {
	var d domain
	text, err := l.Virsh(ctx, hv, "dumpxml", "--domain", name)
	if err != nil {
		return d, err
	}
	if err := xml.Unmarshal([]byte(text), &d); err != nil {
		return d, fmt.Errorf("reading the definition of %s: %w", name, err)
	}
	return d, nil
}

// Nodes lists the VMs of a hypervisor.
func (l *Lab) Nodes(ctx context.Context, hv string) ([]Node, error) {
	list, err := l.Virsh(ctx, hv, "list", "--all", "--name")
	if err != nil {
		return nil, err
	}
	leases, err := l.leases()
	if err != nil {
		return nil, err
	}
	var nodes []Node
	for _, name := range strings.Fields(list) {
		d, err := l.domain(ctx, hv, name)
		if err != nil {
			return nil, err
		}
		state, err := l.Virsh(ctx, hv, "domstate", "--domain", name)
		if err != nil {
			return nil, err
		}
		n := Node{Name: name, State: state}
		if len(d.MACs) > 0 {
			n.Address = leases[d.MACs[0].Address]
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// leases are the addresses that the LAN's DHCP server gave out, by MAC.
func (l *Lab) leases() (map[string]string, error) {
	text, err := os.ReadFile(l.leaseFile())
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the LAN's leases: %w", err)
	}
	return parseLeases(string(text)), nil
}

// parseLeases reads dnsmasq's lease file: expiry, MAC, address, host name and client id on each line.
func parseLeases(text string) map[string]string {
	leases := map[string]string{}
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) >= 3 {
			leases[strings.ToLower(f[1])] = f[2]
		}
	}
	return leases
}

// Console writes what a node put out on its serial console; with follow it goes on until ctx ends.
func (l *Lab) Console(ctx context.Context, w io.Writer, node string, follow bool) error {
	var errs []error
	for _, h := range l.Hypervisors {
		d, err := l.domain(ctx, h.Name, node)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", h.Name, err))
			continue
		}
		path := d.consoleFile()
		if path == "" {
			return fmt.Errorf("the serial console of %s is not logged to a file; try: virsh -c '%s' console %s", node, h.URI, node)
		}
		host, err := l.HostPath(h.Name, path)
		if err != nil {
			return err
		}
		f, err := os.Open(host)
		if err != nil {
			return fmt.Errorf("opening the console of %s: %w", node, err)
		}
		defer f.Close()
		return copyAll(ctx, w, f, follow)
	}
	return fmt.Errorf("no hypervisor has a node %q: %w", node, errors.Join(errs...))
}

func copyAll(ctx context.Context, w io.Writer, f io.Reader, follow bool) error {
	tick := time.NewTicker(consolePoll)
	defer tick.Stop()
	for {
		if _, err := io.Copy(w, f); err != nil {
			return fmt.Errorf("reading the console: %w", err)
		}
		if !follow {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
