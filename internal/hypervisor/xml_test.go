package hypervisor

import (
	"strings"
	"testing"

	"libvirt.org/go/libvirtxml"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

func TestDomainXML(t *testing.T) {
	tests := map[string]struct {
		bridge  string
		data    record.DataDisk
		devices []string
		layout  layout
	}{
		"domain-kvm.xml":     {layout: layout{virtType: "kvm", poolPath: "/var/lib/libvirt/images", logged: true}},
		"domain-bridge.xml":  {bridge: "br0", layout: layout{virtType: "qemu", poolPath: "/srv/vms", logged: true}},
		"domain-session.xml": {layout: layout{virtType: "qemu", poolPath: "/home/user/images"}},
		"domain-data.xml": {
			data: record.DataDisk{SizeGiB: 20, StoragePool: "ssd", MountPath: "/data"}, devices: []string{"0000:65:00.0", "0000:65:00.1"},
			layout: layout{virtType: "kvm", poolPath: "/var/lib/libvirt/images", dataPath: "/srv/ssd", logged: true}},
	}
	for file, tt := range tests {
		t.Run(file, func(t *testing.T) {
			s := serverSpec("hv-a")
			if tt.bridge != "" {
				s.Network, s.Bridge = "", tt.bridge
			}
			s.Record.Shape.Data, s.Record.HostDevices = tt.data, tt.devices
			got, err := domainXML(s, tt.layout)
			must(t, err)
			if strings.Contains(got, "type='volume'") || strings.Contains(got, `type="volume"`) {
				t.Error("a disk names a volume, which AppArmor's helper does not understand")
			}
			golden(t, file, got+"\n")
		})
	}
}

func TestVolumeXML(t *testing.T) {
	tests := map[string]struct {
		name, format string
		capacity     uint64
		backing      *template
	}{
		"volume-overlay.xml": {"k8s-test-cp-1-3f0c9f5e.qcow2", "qcow2", 8 * gib, &template{path: "/srv/templates/golden.qcow2", image: image{format: "qcow2"}}},
		"volume-raw.xml":     {"k8s-test-cp-1-3f0c9f5e.qcow2", "qcow2", 8 * gib, &template{path: "/srv/templates/golden.img", image: image{format: "raw"}}},
		"volume-data.xml":    {"k8s-test-cp-1-3f0c9f5e-data.qcow2", "qcow2", 20 * gib, nil},
		"volume-seed.xml":    {"k8s-test-cp-1-3f0c9f5e-seed.iso", "raw", seedSize, nil},
	}
	for file, tt := range tests {
		t.Run(file, func(t *testing.T) {
			got, err := volumeXML(tt.name, tt.format, privateMode, tt.capacity, tt.backing)
			must(t, err)
			golden(t, file, got+"\n")
		})
	}
}

func TestRecordSurvivesMetadata(t *testing.T) {
	want := serverSpec("hv-a").Record
	want.Cluster.SSHAuthorizedKeys = []string{`ssh-ed25519 AAAA <o'neil & "co"> ]]> é`}
	text, err := recordElement(want)
	must(t, err)
	got, err := parseRecord(text)
	must(t, err)
	if got.Cluster.SSHAuthorizedKeys[0] != want.Cluster.SSHAuthorizedKeys[0] || got.Shape != want.Shape {
		t.Errorf("got %+v", got)
	}

	metadata, err := recordMetadata(want)
	must(t, err)
	d := libvirtxml.Domain{Metadata: metadata}
	text, err = d.Marshal()
	must(t, err)
	if !strings.Contains(text, `<cockpit:node xmlns:cockpit="`+record.Namespace+`">`) {
		t.Errorf("the record has no element of its namespace in %s", text)
	}
}

func TestParseRecord(t *testing.T) {
	for name, text := range map[string]string{
		"no XML":  "{}",
		"no JSON": "<node>hello</node>",
		"empty":   "<node/>",
		"newer":   `<node>{"version":99,"cluster_id":"a"}</node>`,
	} {
		t.Run(name, func(t *testing.T) {
			if r, err := parseRecord(text); err == nil {
				t.Errorf("got %+v", r)
			}
		})
	}
}

func FuzzParseRecord(f *testing.F) {
	text, err := recordElement(serverSpec("hv-a").Record)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add("<node/>")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := parseRecord(text)
		if err == nil && (r.ClusterID == "" || r.Ordinal < 1) {
			t.Errorf("%q was taken for a record", text)
		}
	})
}
