package hypervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
)

// checkDevices says why VMs of a request cannot have the devices of the host that it names.
func (h *host) checkDevices(ctx context.Context, r machine.Request) (problems []machine.Problem, err error) {
	owners, err := h.owners(ctx, r)
	if err != nil {
		return nil, err
	}
	err = h.do(ctx, func(conn *libvirt.Connect) error {
		problems = nil
		find := func(address string) (pciDevice, error) { return findDevice(conn, address) }
		others := sync.OnceValue(func() string { return h.offerDevices(ctx, conn) })
		for _, address := range r.HostDevices {
			err := checkDevice(address, r.HostDevices, find)
			switch owner := owners[address]; {
			case err == nil && owner != "":
				err = fmt.Errorf("the PCI device %s belongs to the VM %q already", address, owner)
			case errors.Is(err, machine.ErrNotFound):
				err = fmt.Errorf("PCI device %s: %w; %s", address, machine.ErrNotFound, others())
			}
			if err != nil {
				problems = append(problems, machine.Problem{Field: machine.FieldHostDevices, Err: err})
			}
			if blind(err) {
				break // as for all others
			}
		}
		if len(problems) == 0 {
			return nil
		}
		_, err := conn.GetLibVersion() // which a connection that broke meanwhile does not answer
		return wrap(err, "ask for the version")
	})
	return problems, err
}

// checkDevice looks at one device. wanted are all that the same VM gets.
func checkDevice(address string, wanted []string, find func(string) (pciDevice, error)) error {
	d, err := find(address)
	if err != nil {
		return err
	}
	if len(d.group) == 0 {
		return fmt.Errorf("the PCI device %s cannot be given to a VM, because the host has no IOMMU at work: enable VT-d or AMD-Vi in its "+
			"firmware and, with Intel, intel_iommu=on on its kernel's command line", d)
	}
	for _, other := range d.group {
		if slices.Contains(wanted, other) {
			continue
		}
		o, err := find(other)
		if err != nil && !errors.Is(err, machine.ErrNotFound) {
			return err
		}
		if !o.apart() {
			return fmt.Errorf("the PCI device %s shares its IOMMU group with %s, which the host uses (driver %s): they can be given only "+
				"to the same VM, and together", d, o, o.driver)
		}
	}
	return nil
}

// findDevice finds a PCI device. The error is machine.ErrNotFound where there is none.
func findDevice(conn *libvirt.Connect, address string) (pciDevice, error) {
	a, err := parsePCI(address)
	if err != nil {
		return pciDevice{}, err
	}
	d, err := conn.LookupDeviceByName(a.nodeDevice())
	if err != nil {
		return pciDevice{}, explainDevice(wrap(err, "look for the PCI device %s", address))
	}
	defer func() { _ = d.Free() }()
	return pciDeviceOf(d)
}

// explainDevice adds what helps to an error of looking for a device.
func explainDevice(err error) error {
	if blind(err) {
		return fmt.Errorf("%w (the hypervisor's libvirt does not see the devices of its host: it lacks the driver for node devices, in some "+
			"distributions the package libvirt-daemon-driver-nodedev, or the daemon virtnodedevd does not run)", err)
	}
	return err
}

// blind reports whether libvirt lacks its driver for node devices, which may be a daemon of its own.
func blind(err error) bool {
	return errors.Is(err, libvirt.ERR_NO_SUPPORT) || strings.Contains(message(err), "virtnodedevd")
}

// owners tells which domains have the devices of a request, by address; those that the request is about do not count.
func (h *host) owners(ctx context.Context, r machine.Request) (map[string]string, error) {
	type owner struct {
		name      string
		addresses []string
	}
	all := func(*domain) bool { return true }
	found, err := readEach(ctx, h, all, func(d *domain) (owner, error) {
		def, err := d.definition()
		if err != nil {
			return owner{}, err
		}
		o := owner{name: d.name}
		for _, a := range devicesOf(def) {
			if slices.Contains(r.HostDevices, a) {
				o.addresses = append(o.addresses, a)
			}
		}
		if len(o.addresses) > 0 && slices.Contains(r.Names, d.name) && d.claim(r.ClusterID) == nil {
			o.addresses = nil
		}
		return o, nil
	})
	owners := map[string]string{}
	for _, o := range found {
		for _, a := range o.addresses {
			owners[a] = max(owners[a], o.name) // of several always the same
		}
	}
	return owners, err
}

// devicesOf lists the PCI devices of the host that a domain has, as devices or as NICs.
func devicesOf(def *libvirtxml.Domain) []string {
	var sources []*libvirtxml.DomainHostdevSubsysPCISource
	for _, d := range def.Devices.Hostdevs {
		if d.SubsysPCI != nil {
			sources = append(sources, d.SubsysPCI.Source)
		}
	}
	for _, nic := range def.Devices.Interfaces {
		if nic.Source != nil && nic.Source.Hostdev != nil {
			sources = append(sources, nic.Source.Hostdev.PCI)
		}
	}
	var list []string
	for _, s := range sources {
		if s != nil && s.Address != nil {
			list = append(list, addressOf(s.Address.Domain, s.Address.Bus, s.Address.Slot, s.Address.Function))
		}
	}
	return list
}

// maxOffer bounds the list of other devices.
const maxOffer = 5

// offerDevices says which PCI devices there are.
func (h *host) offerDevices(ctx context.Context, conn *libvirt.Connect) string {
	list, err := conn.ListAllNodeDevices(libvirt.CONNECT_LIST_NODE_DEVICES_CAP_PCI_DEV)
	if err != nil {
		return "and the others cannot be listed: " + plain(err).Error()
	}
	defer func() {
		for i := range list {
			_ = list[i].Free()
		}
	}()
	devices := make([]pciDevice, len(list))
	err = h.sideBySide(ctx, len(list), func(i int) (err error) {
		devices[i], err = pciDeviceOf(&list[i])
		return err
	})
	if err != nil {
		return "and the others cannot be listed: " + err.Error()
	}
	return offerOf(devices)
}

// offerOf names a few of a host's PCI devices, and first those that VMs are given mostly, by their class: displays with 3D
// controllers, other accelerators, NICs.
func offerOf(devices []pciDevice) string {
	devices = slices.DeleteFunc(devices, func(d pciDevice) bool { return strings.HasPrefix(d.class, bridge) })
	usual := []string{"0x03", "0x12", "0x02"}
	rank := func(d pciDevice) int {
		i := slices.IndexFunc(usual, func(class string) bool { return strings.HasPrefix(d.class, class) })
		return cmp.Or(i+1, len(usual)+1)
	}
	slices.SortFunc(devices, func(a, b pciDevice) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(a.address, b.address))
	})
	var names []string
	for _, d := range devices[:min(maxOffer, len(devices))] {
		names = append(names, d.String())
	}
	if more := len(devices) - len(names); more > 0 {
		return fmt.Sprintf("there are: %s and %d more", strings.Join(names, ", "), more)
	}
	return offer(names)
}
