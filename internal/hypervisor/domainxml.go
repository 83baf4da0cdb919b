package hypervisor

import (
	"fmt"
	"path"

	"libvirt.org/go/libvirtxml"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
)

// agentChannel is the name of the guest agent's virtio channel: the guest's service waits for the port of that name.
const agentChannel = "org.qemu.guest_agent.0"

// logDir is where the system's libvirt keeps the logs of its domains. The serial console is logged there too: it is the
// one directory that virtlogd may write to under SELinux, and virtlogd rotates what stands in it, so that the log of a
// VM that is gone stays small, as libvirt's own does.
const logDir = "/var/log/libvirt/qemu"

// The disks, as libvirt names them.
const (
	rootDevice = "vda"
	seedDevice = "vdb"
	dataDevice = "vdc"
)

// layout is what a domain's XML depends on besides its Spec.
type layout struct {
	// virtType is libvirt's domain type.
	virtType string
	// poolPath is the directory of the storage pool, dataPath that of the data disk's.
	poolPath, dataPath string
	// logged says whether the serial console is logged: libvirt instances of users other than root may not.
	logged bool
}

// domainXML renders the domain of a Spec.
func domainXML(s machine.Spec, l layout) (string, error) {
	metadata, err := recordMetadata(s.Record)
	if err != nil {
		return "", err
	}
	devices, err := hostDevices(s.Record.HostDevices)
	if err != nil {
		return "", err
	}
	shape := s.Record.Shape
	name := s.Name()
	d := libvirtxml.Domain{
		Type:     l.virtType,
		Name:     name,
		UUID:     s.UUID,
		Metadata: metadata,
		Memory:   &libvirtxml.DomainMemory{Value: uint(shape.MemoryMiB), Unit: "MiB"},
		VCPU:     &libvirtxml.DomainVCPU{Placement: "static", Value: uint(shape.VCPUs)},
		// The alias: which versions of the machine there are differs between hypervisors.
		OS:         &libvirtxml.DomainOS{Type: &libvirtxml.DomainOSType{Machine: "q35", Type: "hvm"}},
		Features:   &libvirtxml.DomainFeatureList{ACPI: &libvirtxml.DomainFeature{}, APIC: &libvirtxml.DomainFeatureAPIC{}},
		CPU:        cpu(l.virtType),
		Clock:      &libvirtxml.DomainClock{Offset: "utc"},
		OnPoweroff: "destroy",
		OnReboot:   "restart",
		OnCrash:    "restart",
		PM: &libvirtxml.DomainPM{
			SuspendToMem:  &libvirtxml.DomainPMPolicy{Enabled: "no"},
			SuspendToDisk: &libvirtxml.DomainPMPolicy{Enabled: "no"},
		},
		Devices: &libvirtxml.DomainDeviceList{
			Disks:       []libvirtxml.DomainDisk{rootDisk(s, l), seedDisk(s, l)},
			Controllers: []libvirtxml.DomainController{{Type: "usb", Model: "none"}},
			Interfaces:  []libvirtxml.DomainInterface{nic(s)},
			Serials:     []libvirtxml.DomainSerial{serial(name, l)},
			Channels: []libvirtxml.DomainChannel{{
				Source: &libvirtxml.DomainChardevSource{UNIX: &libvirtxml.DomainChardevSourceUNIX{}},
				Target: &libvirtxml.DomainChannelTarget{VirtIO: &libvirtxml.DomainChannelTargetVirtIO{Name: agentChannel}},
			}},
			Hostdevs:   devices,
			MemBalloon: &libvirtxml.DomainMemBalloon{Model: "virtio"},
			RNGs: []libvirtxml.DomainRNG{{
				Model:   "virtio",
				Backend: &libvirtxml.DomainRNGBackend{Random: &libvirtxml.DomainRNGBackendRandom{Device: "/dev/urandom"}},
			}},
		},
	}
	if shape.Data.SizeGiB > 0 {
		d.Devices.Disks = append(d.Devices.Disks, dataDisk(s, l))
	}
	text, err := d.Marshal()
	if err != nil {
		return "", fmt.Errorf("render the domain: %w", err)
	}
	return text, nil
}

// cpu gives guests what the host can do: programs built for x86-64-v2 refuse QEMU's default. Without KVM there is no
// host's CPU to pass through.
func cpu(virtType string) *libvirtxml.DomainCPU {
	switch virtType {
	case "kvm":
		return &libvirtxml.DomainCPU{Mode: "host-passthrough"}
	case "qemu":
		return &libvirtxml.DomainCPU{Mode: "maximum"}
	}
	return nil
}

// rootDisk is the first disk, which the VM boots from. A disk that names its file, rather than its pool and volume, is
// one that libvirt's AppArmor helper understands, with the template behind it. The host's page cache stays on, because
// all clones of a template read the same blocks; flushes still reach the disk.
func rootDisk(s machine.Spec, l layout) libvirtxml.DomainDisk {
	d := disk(path.Join(l.poolPath, machine.RootVolume(s.Name(), s.UUID)), rootDevice)
	d.Driver = qcow2Driver()
	d.Boot = &libvirtxml.DomainDeviceBoot{Order: 1}
	return d
}

// seedDisk carries cloud-init's seed. It is a virtio disk, because not every cloud kernel has a driver for an emulated
// CD-ROM.
func seedDisk(s machine.Spec, l layout) libvirtxml.DomainDisk {
	d := disk(path.Join(l.poolPath, machine.SeedVolume(s.Name(), s.UUID)), seedDevice)
	d.Driver = &libvirtxml.DomainDiskDriver{Name: "qemu", Type: "raw"}
	d.ReadOnly = &libvirtxml.DomainDiskReadOnly{}
	return d
}

// dataDisk is an empty disk, which the guest finds by its serial number.
func dataDisk(s machine.Spec, l layout) libvirtxml.DomainDisk {
	d := disk(path.Join(l.dataPath, machine.DataVolume(s.Name(), s.UUID)), dataDevice)
	d.Driver = qcow2Driver()
	d.Serial = machine.DataSerial
	return d
}

func qcow2Driver() *libvirtxml.DomainDiskDriver {
	return &libvirtxml.DomainDiskDriver{Name: "qemu", Type: "qcow2", Cache: "writeback", Discard: "unmap"}
}

func disk(file, device string) libvirtxml.DomainDisk {
	return libvirtxml.DomainDisk{
		Device: "disk",
		Source: &libvirtxml.DomainDiskSource{File: &libvirtxml.DomainDiskSourceFile{File: file}},
		Target: &libvirtxml.DomainDiskTarget{Dev: device, Bus: "virtio"},
	}
}

func nic(s machine.Spec) libvirtxml.DomainInterface {
	source := &libvirtxml.DomainInterfaceSource{Network: &libvirtxml.DomainInterfaceSourceNetwork{Network: s.Network}}
	if s.Bridge != "" {
		source = &libvirtxml.DomainInterfaceSource{Bridge: &libvirtxml.DomainInterfaceSourceBridge{Bridge: s.Bridge}}
	}
	return libvirtxml.DomainInterface{
		MAC:    &libvirtxml.DomainInterfaceMAC{Address: s.MAC},
		Source: source,
		Model:  &libvirtxml.DomainInterfaceModel{Type: "virtio"},
	}
}

// serial is the console that cloud images write to. Its log goes on over restarts: what a VM said last before it died
// is what one looks for.
func serial(name string, l layout) libvirtxml.DomainSerial {
	s := libvirtxml.DomainSerial{
		Source: &libvirtxml.DomainChardevSource{Pty: &libvirtxml.DomainChardevSourcePty{}},
	}
	if l.logged {
		s.Log = &libvirtxml.DomainChardevLog{File: path.Join(logDir, name+"-console.log"), Append: "on"}
	}
	return s
}
