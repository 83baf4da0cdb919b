package hypervisor

import (
	"reflect"
	"slices"
	"testing"

	"libvirt.org/go/libvirt"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
)

func TestParsePCI(t *testing.T) {
	for text, valid := range map[string]bool{
		"0000:65:00.0": true, "0000:00:1f.6": true, "10000:e1:00.0": true,
		"": false, "65:00.0": false, "0000:65:00": false, "0000:65:00.0 ": false, " 0000:65:00.0": false, "0000:6A:00.0": false,
		"0:65:0.0": false, "0000:65:00.0.1": false, "pci_0000_65_00_0": false, "0000:-1:00.0": false, "0x00:65:00.0": false,
	} {
		a, err := parsePCI(text)
		if (err == nil) != valid || valid && a.String() != text {
			t.Errorf("%q: %v, %v", text, a, err)
		}
	}
}

func TestPCIDeviceOf(t *testing.T) {
	f := mockFleet(t, "hv-a")
	want := pciDevice{
		address: "0000:65:00.0", class: "0x030000", product: "GA102GL [RTX A5000]", group: []string{"0000:65:00.0", "0000:65:00.1"},
	}
	with(t, f, "hv-a", func(conn *libvirt.Connect) error {
		got, err := findDevice(conn, want.address)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v", got)
		}
		return err
	})
}

func TestCheckDevices(t *testing.T) {
	const gpu, audio, nic, onboard = "0000:65:00.0", "0000:65:00.1", "0000:3b:00.0", "0000:00:1f.6"
	f := mockFleet(t, "hv-a")
	owner := serverSpec("hv-a")
	owner.Record.HostDevices = []string{nic}
	must(t, f.Define(t.Context(), owner))
	for name, tt := range map[string]struct {
		devices   []string
		names     []string
		clusterID string
		target    error
		words     []string
	}{
		"none":              {},
		"a whole group":     {devices: []string{gpu, audio}},
		"none that works":   {devices: []string{gpu}}, // nothing of the host's uses the other
		"not an address":    {devices: []string{"65:00.0"}, words: []string{`"65:00.0" is not the address`, "0000:65:00.0"}},
		"without an IOMMU":  {devices: []string{onboard}, words: []string{"0000:00:1f.6 (8086:15b9)", "no IOMMU", "VT-d"}},
		"another VM has it": {devices: []string{nic}, words: []string{nic, `belongs to the VM "k8s-test-cp-1"`}},
		"the VM has it that is made anew": {
			devices: []string{nic}, names: []string{owner.Name()}, clusterID: clusterID},
		"a namesake of another cluster has it": {
			devices: []string{nic}, names: []string{"k8s-test-cp-1"}, clusterID: "another", words: []string{`belongs to the VM "k8s-test-cp-1"`}},
		"unknown": {devices: []string{"0000:99:00.0"}, target: machine.ErrNotFound, words: []string{
			"PCI device 0000:99:00.0: not found; there are: 0000:00:1f.6 (8086:15b9), 0000:3b:00.0 (MT27800 Family [ConnectX-5]), " +
				"0000:65:00.0 (GA102GL [RTX A5000]), 0000:65:00.1 (GA102 High Definition Audio Controller)"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, problems, err := f.Check(t.Context(), machine.Request{
				Hypervisor: "hv-a", StoragePool: "vms", DiskGiB: 4, HostDevices: tt.devices, Names: tt.names, ClusterID: tt.clusterID,
			})
			must(t, err)
			problems = slices.DeleteFunc(problems, func(p machine.Problem) bool { return p.Field == machine.FieldName })
			if len(tt.words) == 0 {
				if len(problems) != 0 {
					t.Errorf("problems %+v", problems)
				}
				return
			}
			if len(problems) != 1 || problems[0].Field != machine.FieldHostDevices {
				t.Fatalf("problems %+v", problems)
			}
			wantError(t, problems[0].Err, tt.target, tt.words...)
		})
	}
}

// VFIO gives a device to a VM only if none of its IOMMU group is in the hands of the host.
func TestCheckDeviceOfAGroup(t *testing.T) {
	const gpu, audio, gone = "0000:65:00.0", "0000:65:00.1", "0000:65:00.2"
	for name, tt := range map[string]struct {
		other  pciDevice
		wanted []string
		words  []string
	}{
		"the host uses the other": {pciDevice{driver: "snd_hda_intel", class: "0x040300", product: "Audio"}, nil, []string{
			"0000:65:00.0 (A100) shares its IOMMU group with 0000:65:00.1 (Audio)", "driver snd_hda_intel", "together"}},
		"the VM gets both":           {pciDevice{driver: "snd_hda_intel", class: "0x040300"}, []string{audio}, nil},
		"the other has no driver":    {pciDevice{class: "0x040300"}, nil, nil},
		"the other is set aside":     {pciDevice{driver: "pci-stub", class: "0x040300"}, nil, nil},
		"the other is bound to VFIO": {pciDevice{driver: "vfio-pci", class: "0x040300"}, nil, nil},
		"the other is a bridge":      {pciDevice{driver: "pcieport", class: "0x060400"}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			tt.other.address = audio
			devices := map[string]pciDevice{
				gpu:   {address: gpu, driver: "nvidia", product: "A100", group: []string{gpu, audio, gone}},
				audio: tt.other,
			}
			err := checkDevice(gpu, append(tt.wanted, gpu), func(address string) (pciDevice, error) {
				d, ok := devices[address]
				if !ok {
					return d, machine.ErrNotFound
				}
				return d, nil
			})
			if len(tt.words) > 0 {
				wantError(t, err, nil, tt.words...)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

// The list of other devices is short, and prefers what VMs are given mostly.
func TestOfferOf(t *testing.T) {
	device := func(address, class, product string) pciDevice {
		return pciDevice{address: address, class: class, product: product}
	}
	few := []pciDevice{
		device("0000:00:00.0", "0x060000", "Host bridge"), device("0000:01:00.0", "0x010802", "NVMe"),
		device("0000:65:00.0", "0x030200", "A100"), device("0000:3b:00.0", "0x020000", "NIC"),
	}
	many := slices.Clone(few)
	for _, a := range []string{"0000:02:00.0", "0000:03:00.0", "0000:04:00.0"} {
		many = append(many, device(a, "0x010802", "NVMe"))
	}
	for name, tt := range map[string]struct {
		devices []pciDevice
		want    string
	}{
		"none": {nil, "there is none at all"},
		"few":  {few, "there are: 0000:01:00.0 (NVMe), 0000:3b:00.0 (NIC), 0000:65:00.0 (A100)"},
		"many": {many, "there are: 0000:65:00.0 (A100), 0000:3b:00.0 (NIC), 0000:01:00.0 (NVMe), 0000:02:00.0 (NVMe), 0000:03:00.0 (NVMe) and 1 more"},
	} {
		if got := offerOf(slices.Clone(tt.devices)); got != tt.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}
