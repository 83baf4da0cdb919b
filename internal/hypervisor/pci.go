package hypervisor

import (
	"cmp"
	"fmt"
	"strings"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"
)

// pciAddress is the address of a PCI device, which is written as by lspci -D and under /sys/bus/pci/devices.
type pciAddress struct{ domain, bus, slot, function uint }

func (a pciAddress) String() string {
	return fmt.Sprintf("%04x:%02x:%02x.%x", a.domain, a.bus, a.slot, a.function)
}

// parsePCI reads an address. Devices are told apart by its text, so that there is one form for each.
func parsePCI(text string) (pciAddress, error) {
	var a pciAddress
	_, err := fmt.Sscanf(text, "%x:%x:%x.%x", &a.domain, &a.bus, &a.slot, &a.function)
	if err != nil || a.String() != text {
		return a, fmt.Errorf("%q is not the address of a PCI device, such as 0000:65:00.0 in lower case", text)
	}
	return a, nil
}

// nodeDevice is the name of the device among libvirt's node devices.
func (a pciAddress) nodeDevice() string {
	return fmt.Sprintf("pci_%04x_%02x_%02x_%x", a.domain, a.bus, a.slot, a.function)
}

// addressOf is an address as it stands in libvirt's XML, "" where it is incomplete.
func addressOf(domain, bus, slot, function *uint) string {
	if bus == nil || slot == nil || function == nil {
		return ""
	}
	a := pciAddress{bus: *bus, slot: *slot, function: *function}
	if domain != nil {
		a.domain = *domain
	}
	return a.String()
}

// hostDevices renders devices of the host that a VM gets. libvirt takes them from the host's drivers when the VM starts,
// and gives them back when it stops.
func hostDevices(addresses []string) ([]libvirtxml.DomainHostdev, error) {
	devices := make([]libvirtxml.DomainHostdev, 0, len(addresses))
	for _, text := range addresses {
		a, err := parsePCI(text)
		if err != nil {
			return nil, err
		}
		devices = append(devices, libvirtxml.DomainHostdev{
			Managed: "yes",
			SubsysPCI: &libvirtxml.DomainHostdevSubsysPCI{Source: &libvirtxml.DomainHostdevSubsysPCISource{
				Address: &libvirtxml.DomainAddressPCI{Domain: &a.domain, Bus: &a.bus, Slot: &a.slot, Function: &a.function},
			}},
		})
	}
	return devices, nil
}

// pciDevice is a PCI device of a host.
type pciDevice struct {
	address string
	// class is the PCI class code, such as 0x030000, product the device's name or else its ids, and driver the one of the
	// host that works with it, "" for none.
	class, product, driver string
	// group are the devices of its IOMMU group, itself among them; none where the host has no IOMMU at work.
	group []string
}

// pciDeviceOf reads a node device.
func pciDeviceOf(d *libvirt.NodeDevice) (pciDevice, error) {
	text, err := d.GetXMLDesc(0)
	if err != nil {
		return pciDevice{}, wrap(err, "read a node device")
	}
	var def libvirtxml.NodeDevice
	if err := def.Unmarshal(text); err != nil {
		return pciDevice{}, fmt.Errorf("read a node device: %w", err)
	}
	pci := def.Capability.PCI
	if pci == nil {
		return pciDevice{}, fmt.Errorf("the node device %q is no PCI device", def.Name)
	}
	ids := strings.TrimPrefix(pci.Vendor.ID, "0x") + ":" + strings.TrimPrefix(pci.Product.ID, "0x") // as lspci -n writes them
	found := pciDevice{
		address: addressOf(pci.Domain, pci.Bus, pci.Slot, pci.Function),
		class:   pci.Class,
		product: cmp.Or(strings.TrimSpace(pci.Product.Name), ids),
	}
	if def.Driver != nil {
		found.driver = def.Driver.Name
	}
	if pci.IOMMUGroup != nil {
		for _, a := range pci.IOMMUGroup.Address {
			found.group = append(found.group, addressOf(a.Domain, a.Bus, a.Slot, a.Function))
		}
	}
	return found, nil
}

func (d pciDevice) String() string { return d.address + " (" + d.product + ")" }

// bridge is the PCI base class of what other devices stand behind.
const bridge = "0x06"

// apart reports whether a device does not keep others of its IOMMU group from being given to a VM: none of the host's own
// drivers works with it (https://docs.kernel.org/driver-api/vfio.html).
func (d pciDevice) apart() bool {
	return d.driver == "" || strings.HasPrefix(d.driver, "vfio") || d.driver == "pci-stub" || strings.HasPrefix(d.class, bridge)
}
