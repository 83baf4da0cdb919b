package hypervisor

import (
	"context"
	"errors"
	"fmt"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// domain is a domain with its identity, which its user frees: libvirt's objects are not collected.
type domain struct {
	*libvirt.Domain
	name, uuid string
	// record is set by claim.
	record record.Record
}

func (d *domain) free() { _ = d.Free() }

// lookup completes a look-up of a domain. The error is machine.ErrNotFound where there is none.
func lookup(found *libvirt.Domain, err error) (*domain, error) {
	if err != nil {
		return nil, wrap(err, "look for its domain")
	}
	d, err := identify(found)
	if err != nil {
		_ = found.Free()
	}
	return d, err
}

// identify reads the identity of a domain, without a call to the hypervisor.
func identify(found *libvirt.Domain) (*domain, error) {
	d := &domain{Domain: found}
	var err error
	if d.name, err = found.GetName(); err == nil {
		d.uuid, err = found.GetUUIDString()
	}
	if err != nil {
		return nil, wrap(err, "read its name and UUID")
	}
	return d, nil
}

// claim reads the record and makes sure that the domain belongs to the cluster.
func (d *domain) claim(clusterID string) (err error) {
	d.record, err = readRecord(d.Domain)
	switch {
	case errors.Is(err, errNoRecord):
		return fmt.Errorf("a VM named %q %w", d.name, machine.ErrForeign)
	case err != nil:
		return fmt.Errorf("the VM %q: %w", d.name, err)
	case d.record.ClusterID != clusterID:
		return fmt.Errorf("the VM %q belongs to another cluster, %q (id %s)", d.name, d.record.ClusterName, d.record.ClusterID)
	}
	return nil
}

// withDomain calls fn with the domain of a VM, which was seen to belong to the VM's cluster. The error is
// machine.ErrNotFound where there is no such domain. fn may be called twice, see host.do.
func (h *host) withDomain(ctx context.Context, m machine.Machine, fn func(*libvirt.Connect, *domain) error) error {
	return h.do(ctx, func(conn *libvirt.Connect) error {
		d, err := lookup(conn.LookupDomainByUUIDString(m.UUID))
		if err != nil {
			return err
		}
		defer d.free()
		if err := d.claim(m.Record.ClusterID); err != nil {
			return err
		}
		return fn(conn, d)
	})
}

// power is the power state.
func (d *domain) power() (machine.Power, error) {
	state, _, err := d.GetState()
	if err != nil {
		return "", wrap(err, "read its state")
	}
	return powerOf(state), nil
}

// powerOf is the power state that libvirt's state of a domain stands for.
func powerOf(state libvirt.DomainState) machine.Power {
	switch state {
	case libvirt.DOMAIN_RUNNING, libvirt.DOMAIN_BLOCKED, libvirt.DOMAIN_SHUTDOWN: // the last is on its way down
		return machine.Running
	case libvirt.DOMAIN_PAUSED, libvirt.DOMAIN_PMSUSPENDED:
		return machine.Paused
	}
	return machine.Stopped
}

// definition reads the XML; of a running domain, the live XML.
func (d *domain) definition() (*libvirtxml.Domain, error) {
	text, err := d.GetXMLDesc(0)
	if err != nil {
		return nil, wrap(err, "read its definition")
	}
	def := &libvirtxml.Domain{Devices: &libvirtxml.DomainDeviceList{}}
	if err := def.Unmarshal(text); err != nil {
		return nil, fmt.Errorf("read its definition: %w", err)
	}
	return def, nil
}

// networks lists the libvirt networks that the domain is attached to.
func (d *domain) networks() ([]string, error) {
	def, err := d.definition()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, nic := range def.Devices.Interfaces {
		if nic.Source != nil && nic.Source.Network != nil {
			names = append(names, nic.Source.Network.Network)
		}
	}
	return names, nil
}

// SetRecord replaces the record, of the running and of the stored domain. A template that the new one does not name
// stays.
func (f *Fleet) SetRecord(ctx context.Context, m machine.Machine, r record.Record) error {
	return f.on(ctx, m.Hypervisor, "write the record", func(ctx context.Context, h *host) error {
		return h.withDomain(ctx, m, func(_ *libvirt.Connect, d *domain) error {
			if r.Template == (record.Template{}) {
				r.Template = d.record.Template
			}
			return d.setRecord(ctx, r)
		})
	})
}

// setRecord replaces the record of the stored domain, and of the running one where it runs.
func (d *domain) setRecord(ctx context.Context, r record.Record) error {
	text, err := recordElement(r)
	if err != nil {
		return err
	}
	flags := libvirt.DOMAIN_AFFECT_CONFIG
	active, err := d.IsActive()
	if err != nil {
		return wrap(err, "ask whether it runs")
	}
	if active {
		flags |= libvirt.DOMAIN_AFFECT_LIVE
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return wrap(d.SetMetadata(libvirt.DOMAIN_METADATA_ELEMENT, text, record.Prefix, record.Namespace, flags), "write its metadata")
}
