package hypervisor

import (
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"slices"

	"libvirt.org/go/libvirt"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// Describe reads the records of VMs on one hypervisor, with one call for each and two for all. VMs that are not ours, or
// are gone by then, are left out. What it returns is in the order of their names.
func (f *Fleet) Describe(ctx context.Context, hypervisor string, uuids []string) ([]machine.Machine, []machine.Unreadable, error) {
	h, err := f.host(hypervisor)
	if err != nil || len(uuids) == 0 {
		return nil, nil, err
	}
	ctx, cancel := answering(ctx)
	defer cancel()
	seen, err := within(ctx, func() ([]description, error) { return h.describe(ctx, uuids) })
	if err != nil {
		return nil, nil, err
	}
	var machines []machine.Machine
	var unreadable []machine.Unreadable
	for _, d := range seen {
		if d.err != nil {
			unreadable = append(unreadable, machine.Unreadable{Hypervisor: h.name, Name: d.Name, UUID: d.UUID, Err: d.err})
			continue
		}
		machines = append(machines, d.Machine)
	}
	return machines, unreadable, nil
}

// description is a VM of ours, or one whose record cannot be read because of err.
type description struct {
	machine.Machine
	err error
}

// describe reads VMs, of those that have a record.
func (h *host) describe(ctx context.Context, uuids []string) ([]description, error) {
	powers, err := h.powers(ctx)
	if err != nil {
		return nil, err
	}
	wanted := make(map[string]bool, len(uuids))
	for _, uuid := range uuids {
		wanted[uuid] = true
	}
	seen, err := readEach(ctx, h, func(d *domain) bool { return wanted[d.uuid] }, func(d *domain) (seen description, err error) {
		if seen, err = d.describe(); err != nil {
			return seen, err
		}
		seen.Hypervisor = h.name
		var ok bool
		if seen.Power, ok = powers[d.uuid]; !ok {
			seen.Power, err = d.power()
		}
		return seen, err
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(seen, func(a, b description) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.UUID, b.UUID))
	})
	return seen, nil
}

// describe reads all but the power state. The error is errNoRecord where the domain is not ours.
func (d *domain) describe() (description, error) {
	seen := description{Machine: machine.Machine{Name: d.name, UUID: d.uuid}}
	text, err := d.GetXMLDesc(0)
	if err != nil {
		return seen, wrap(err, "read its definition")
	}
	var def vmXML
	if err := xml.Unmarshal([]byte(text), &def); err != nil {
		return seen, fmt.Errorf("read its definition: %w", err)
	}
	seen.MAC = def.mac()
	if seen.Record, err = def.record(); err != nil && !errors.Is(err, errNoRecord) {
		seen.err, err = err, nil
	}
	return seen, err
}

// vmXML is what is read of a domain's definition.
type vmXML struct {
	Metadata struct {
		Elements []element `xml:",any"`
	} `xml:"metadata"`
	NICs []struct {
		MAC struct {
			Address string `xml:"address,attr"`
		} `xml:"mac"`
	} `xml:"devices>interface"`
}

// record decodes the record, from the element that libvirt's metadata call would find. The error is errNoRecord where
// there is none.
func (x vmXML) record() (record.Record, error) {
	for _, e := range x.Metadata.Elements {
		if e.XMLName.Space == record.Namespace {
			return e.record()
		}
	}
	return record.Record{}, errNoRecord
}

// mac is the MAC address of the first NIC.
func (x vmXML) mac() string {
	for _, nic := range x.NICs {
		if nic.MAC.Address != "" {
			return nic.MAC.Address
		}
	}
	return ""
}

// powers returns the power states of all domains, by UUID; none where the driver cannot list them.
func (h *host) powers(ctx context.Context) (map[string]machine.Power, error) {
	powers := map[string]machine.Power{}
	err := h.look(ctx, func(conn *libvirt.Connect) error {
		domains, err := domainStats(conn, powerStats)
		for _, d := range domains {
			powers[d.UUID] = d.Power
		}
		return err
	})
	if err != nil && (ctx.Err() != nil || errors.Is(err, machine.ErrUnreachable)) {
		return nil, err
	}
	return powers, nil
}

// readEach lists the domains with one call and reads those that are wanted, side by side and in no order. One that goes
// away meanwhile, or turns out to have no record where that is read, is left out.
func readEach[T any](ctx context.Context, h *host, wanted func(*domain) bool, read func(*domain) (T, error)) ([]T, error) {
	var out []T
	err := h.look(ctx, func(conn *libvirt.Connect) error {
		found, err := conn.ListAllDomains(0)
		if err != nil {
			return wrap(err, "list the domains")
		}
		var domains []*domain
		for i := range found {
			defer func() { _ = found[i].Free() }()
			d, err := identify(&found[i])
			if err != nil {
				return err
			}
			if wanted(d) {
				domains = append(domains, d)
			}
		}
		seen := make([]*T, len(domains))
		err = h.sideBySide(ctx, len(domains), func(i int) error {
			value, err := read(domains[i])
			switch {
			case err == nil:
				seen[i] = &value
			case !errors.Is(err, machine.ErrNotFound) && !errors.Is(err, errNoRecord):
				return fmt.Errorf("VM %q: %w", domains[i].name, err)
			}
			return nil
		})
		out = nil
		for _, value := range seen {
			if value != nil {
				out = append(out, *value)
			}
		}
		return err
	})
	return out, err
}
