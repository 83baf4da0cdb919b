package hypervisor

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// Define writes the domain with its record, and nothing else of the VM. Where the record names no template yet, the one
// that the VM's disk is going to be made from is written into it. A VM that has joined already is left as it is.
func (f *Fleet) Define(ctx context.Context, s machine.Spec) error {
	return f.on(ctx, s.Hypervisor, "define the VM", func(ctx context.Context, h *host) error {
		return h.do(ctx, func(conn *libvirt.Connect) error { return f.define(ctx, h, conn, s) })
	})
}

func (f *Fleet) define(ctx context.Context, h *host, conn *libvirt.Connect, s machine.Spec) error {
	if (s.Network == "") == (s.Bridge == "") {
		return errors.New("a VM needs either a network or a bridge")
	}
	switch joined, err := checkName(conn, s); {
	case err != nil:
		return err
	case joined:
		return nil
	}
	pool, err := h.pool(conn, s.Record.Shape.StoragePool)
	if err != nil {
		return err
	}
	defer pool.free()
	if s.Record.Template == (record.Template{}) {
		template, err := f.findTemplate(ctx, h, conn, pool)
		if err != nil {
			return err
		}
		s.Record.Template = template.ref
	}
	l := layout{poolPath: pool.path}
	if data := s.Record.Shape.Data; data.SizeGiB > 0 {
		p, err := h.pool(conn, data.StoragePool)
		if err != nil {
			return err
		}
		defer p.free()
		l.dataPath = p.path
	}
	if l.virtType, err = h.domainType(conn); err != nil {
		return err
	}
	if l.logged, err = isSystem(conn); err != nil {
		return err
	}
	text, err := domainXML(s, l)
	if err != nil {
		return err
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	d, err := conn.DomainDefineXML(text)
	if err != nil {
		return wrap(err, "define the domain")
	}
	defer func() { _ = d.Free() }()
	return wrap(d.SetAutostart(true), "let it start with the hypervisor")
}

// checkName makes sure that the name of a new domain is free or taken by this very VM, and reports whether that VM has
// joined already. libvirt itself refuses a second domain of one name.
func checkName(conn *libvirt.Connect, s machine.Spec) (joined bool, err error) {
	d, err := lookup(conn.LookupDomainByName(s.Name()))
	switch {
	case errors.Is(err, machine.ErrNotFound):
		return false, nil
	case err != nil:
		return false, err
	}
	defer d.free()
	if err := d.claim(s.Record.ClusterID); err != nil {
		return false, err
	}
	if d.uuid != s.UUID {
		return false, fmt.Errorf("the name %q is taken by another VM of the same cluster (UUID %s)", d.name, d.uuid)
	}
	return d.record.Phase == record.Joined, nil
}

// domainType is the libvirt type of new domains. Without a wish it is what libvirt itself would take: KVM where the
// host can do that, and emulation otherwise.
func (h *host) domainType(conn *libvirt.Connect) (string, error) {
	if h.config.VirtType != "" {
		return h.config.VirtType, nil
	}
	h.mu.Lock()
	known := h.virtType
	h.mu.Unlock()
	if known != "" {
		return known, nil
	}
	text, err := conn.GetDomainCapabilities("", "", "q35", "", 0)
	if err != nil {
		return "", wrap(err, "ask what the host can do")
	}
	var caps libvirtxml.DomainCaps
	if err := caps.Unmarshal(text); err != nil {
		return "", fmt.Errorf("read what the host can do: %w", err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.virtType = caps.Domain
	return h.virtType, nil
}

// isSystem reports whether the connection is to the system's libvirt, rather than to that of one user.
func isSystem(conn *libvirt.Connect) (bool, error) {
	text, err := conn.GetURI()
	if err != nil {
		return false, wrap(err, "ask for the URI")
	}
	u, err := url.Parse(text)
	return err == nil && u.Path == "/system", nil
}
