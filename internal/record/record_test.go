package record

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func example() Record {
	return Record{
		Version: version, ClusterID: "6b1f0ab4-8d0c-4f4f-9c0c-000000000001", ClusterName: "prod", Pool: ServerPool, Role: Server, Ordinal: 1,
		Phase: Joined, Shape: Shape{VCPUs: 2, MemoryMiB: 4096, DiskGiB: 40, StoragePool: "ssd", Clone: Overlay},
		Template: Template{Pool: "templates", Volume: "debian-12.qcow2"}, Volumes: []Volume{{Pool: "ssd", Name: "prod-cp-1-6b1f0ab4.qcow2"}},
		Placement: Placement{Strategy: Auto, AntiAffinity: Required},
		Cluster: &Cluster{
			K3sVersion: "v1.36.2+k3s1", Network: "default", SSHAuthorizedKeys: []string{"ssh-ed25519 AAAA me"}, Endpoint: "lb.example", TLSSANs: []string{"x.example"},
		},
	}
}

// The wire form must not change by accident: records written today are read by every later release.
const wire = `{"version":1,"cluster_id":"6b1f0ab4-8d0c-4f4f-9c0c-000000000001","cluster_name":"prod","pool":"cp","role":"server",` +
	`"ordinal":1,"phase":"joined","shape":{"vcpus":2,"memory_mib":4096,"disk_gib":40,"storage_pool":"ssd","clone":"overlay"},` +
	`"template":{"pool":"templates","volume":"debian-12.qcow2"},"placement":{"strategy":"auto","anti_affinity":"required"},"volumes":[{"pool":"ssd","name":"prod-cp-1-6b1f0ab4.qcow2"}],` +
	`"cluster":{"k3s_version":"v1.36.2+k3s1","network":"default","ssh_authorized_keys":["ssh-ed25519 AAAA me"],` +
	`"endpoint":"lb.example","tls_sans":["x.example"]}}`

func TestEncode(t *testing.T) {
	got, err := Encode(example())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wire, string(got)); diff != "" {
		t.Errorf("wire form (-want +got):\n%s", diff)
	}
}

// No list and an empty one are the same, and nothing else is.
func TestSame(t *testing.T) {
	a, b := example(), example()
	a.Cluster.TLSSANs, b.Cluster.TLSSANs = nil, []string{}
	if !Same(a, b) {
		t.Error("an empty list makes a difference")
	}
	b.Placement = Placement{Strategy: Manual, Hosts: []string{"hv-a"}}
	if Same(a, b) {
		t.Error("another placement makes none")
	}
}

func TestDecode(t *testing.T) {
	got, err := Decode([]byte(wire))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(example(), got); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
	if got.NodeName() != "prod-cp-1" || got.ShortName() != "cp-1" {
		t.Errorf("the node is called %s", got.NodeName())
	}
}

func TestDecodeRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":       ``,
		"a half":        wire[:len(wire)/2],
		"no version":    strings.Replace(wire, `"version":1`, `"version":0`, 1),
		"no cluster":    strings.Replace(wire, `"cluster_name":"prod"`, `"cluster_name":""`, 1),
		"no ordinal":    strings.Replace(wire, `"ordinal":1`, `"ordinal":0`, 1),
		"a third role":  strings.Replace(wire, `"role":"server"`, `"role":"witness"`, 1),
		"a third phase": strings.Replace(wire, `"phase":"joined"`, `"phase":"upgrading"`, 1),
		"another thing": `[]`,
	} {
		if r, err := Decode([]byte(text)); err == nil {
			t.Errorf("%s: got %+v", name, r)
		}
	}
	if _, err := Decode([]byte(strings.Replace(wire, `"version":1`, `"version":2`, 1))); !errors.Is(err, ErrNewer) {
		t.Errorf("a newer record: got %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(wire))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Decode(b)
		if err != nil {
			return
		}
		again, err := Encode(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Decode(again); err != nil {
			t.Errorf("what was read cannot be read again: %v", err)
		}
	})
}
