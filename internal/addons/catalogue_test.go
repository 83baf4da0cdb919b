package addons

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	helmyaml "sigs.k8s.io/yaml"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestReleases compares every variant with a golden file, so that a change of what clusters get is seen for what it is.
func TestReleases(t *testing.T) {
	for _, v := range variants() {
		t.Run(v.name, func(t *testing.T) {
			r, err := releaseOf(v.spec, v.addon)
			if err != nil {
				t.Fatal(err)
			}
			var again map[string]any
			if b, err := json.Marshal(r.values); err != nil || json.Unmarshal(b, &again) != nil || !reflect.DeepEqual(again, r.values) {
				t.Errorf("the values are not JSON's types: %v", r.values)
			}
			got, err := helmyaml.Marshal(picture(r))
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", "releases", v.name+".yaml")
			if *update {
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != string(want) {
				t.Errorf("%s differs; -update writes it anew. It is:\n%s", file, got)
			}
		})
	}
}

// picture is a release as a golden file has it.
func picture(r release) map[string]any {
	out := map[string]any{
		"release": r.namespace + "/" + r.name,
		"chart":   r.source.String() + " from " + r.source.origin,
		"values":  r.values,
	}
	if r.crds != nil {
		out["crds"] = r.crds.String() + " from " + r.crds.origin
	}
	if r.source.files != nil {
		out["chart"] = r.source.String()
	}
	if r.class != nil {
		out["class"] = map[string]any{
			"name": r.class.name, "default": r.class.isDefault, "provisioner": r.class.provisioner,
			"parameters": r.class.parameters, "mountOptions": r.class.mountOptions,
		}
	}
	var growing []string
	for _, g := range r.growing {
		growing = append(growing, g.key)
	}
	if growing != nil {
		out["growing"] = growing
	}
	var workloads []string
	for _, w := range r.workloads {
		workloads = append(workloads, string(w.kind)+" "+w.namespace+"/"+w.name)
	}
	out["workloads"] = workloads
	return out
}

// TestDefaultClass has exactly one tier make its class the default one, whatever tiers there are.
func TestDefaultClass(t *testing.T) {
	tiers := func(bits int, chosen string) record.CSI {
		c := record.CSI{DefaultClass: chosen}
		if bits&1 != 0 {
			c.LocalPath = &record.LocalPath{Path: "/opt/local"}
		}
		if bits&2 != 0 {
			c.NFS = &record.NFS{Server: "nfs.example", Path: "/export"}
		}
		if bits&4 != 0 {
			c.Longhorn = &record.Longhorn{Replicas: 1, DataPath: "/var/lib/longhorn"}
		}
		return c
	}
	for bits := 1; bits < 8; bits++ {
		for _, chosen := range []string{"", record.LocalPathClass, record.NFSClass, record.LonghornClass} {
			s := cluster.AddonSpec{CSI: tiers(bits, chosen), Servers: 1, Nodes: 1}
			if len((&Catalogue{}).Check(s)) > 0 {
				continue // The class of a tier that is not on.
			}
			var defaults []string
			for _, a := range s.Addons() {
				r, err := releaseOf(s, a)
				if err != nil {
					t.Fatal(err)
				}
				if r.class.isDefault {
					defaults = append(defaults, r.class.name)
				}
			}
			if len(defaults) != 1 || chosen != "" && defaults[0] != chosen {
				t.Errorf("tiers %03b, chosen %q: default classes %v", bits, chosen, defaults)
			}
		}
	}
}

// TestReleaseOfUnwanted has no release for what a cluster does not have.
func TestReleaseOfUnwanted(t *testing.T) {
	for a := range places {
		if _, err := releaseOf(cluster.AddonSpec{CNI: record.CNI{Plugin: record.Flannel}}, a); err == nil {
			t.Errorf("a release of %s", a)
		}
	}
}

// TestUserValues merges what the user says, and keeps to it in what follows from the values.
func TestUserValues(t *testing.T) {
	s := cluster.AddonSpec{Servers: 1, Nodes: 1, CSI: record.CSI{
		NFS: &record.NFS{Server: "nfs.example", Path: "/export", Chart: record.Chart{
			Values: "storageClass:\n  parameters:\n    subDir: ${pvc.metadata.name}\n    mountPermissions: 0755\n",
		}},
		Longhorn: &record.Longhorn{Replicas: 3, DataPath: "/data", Chart: record.Chart{Values: "csi:\n  attacherReplicaCount: 2\nlonghornUI: null\n"}},
	}}
	r, err := releaseOf(s, cluster.NFS)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"server": "nfs.example", "share": "/export", "subDir": "${pvc.metadata.name}", "mountPermissions": "493"}
	if !reflect.DeepEqual(r.class.parameters, want) {
		t.Errorf("parameters %v", r.class.parameters)
	}
	if r, err = releaseOf(s, cluster.Longhorn); err != nil {
		t.Fatal(err)
	}
	for _, g := range r.growing {
		if g.key == "csi.attacherReplicaCount" {
			t.Error("a number that the user set follows the nodes")
		}
	}
	if len(r.growing) != 5 {
		t.Errorf("growing %v", r.growing)
	}
	if ui, ok := r.values["longhornUI"]; !ok || ui != nil {
		t.Errorf("the null is gone: %v", ui)
	}
}

func TestCheck(t *testing.T) {
	local := func(path string) *record.LocalPath { return &record.LocalPath{Path: path} }
	copies := func(path string) *record.Longhorn { return &record.Longhorn{Replicas: 3, DataPath: path} }
	cilium := func(c record.Chart) cluster.AddonSpec {
		return cluster.AddonSpec{CNI: record.CNI{Plugin: record.Cilium, Routing: record.Tunnel, Chart: c}}
	}
	share := func(n record.NFS) cluster.AddonSpec { return cluster.AddonSpec{CSI: record.CSI{NFS: &n}} }
	tests := map[string]struct {
		spec  cluster.AddonSpec
		field machine.Field
		want  string
	}{
		"nothing wrong":    {spec: cluster.AddonSpec{CSI: record.CSI{LocalPath: local("/opt/x"), Longhorn: copies("/opt/xy")}}},
		"nothing at all":   {},
		"a newer version":  {spec: cilium(record.Chart{Version: "1.21.3"})},
		"a tag's version":  {spec: cilium(record.Chart{Version: "v1.19.0"})},
		"an old version":   {cilium(record.Chart{Version: "1.17.9"}), machine.FieldCNIChart, "from version 1.18.0 on"},
		"no version":       {cilium(record.Chart{Version: "latest"}), machine.FieldCNIChart, "a form such as"},
		"no archive":       {spec: cilium(record.Chart{Archive: "testdata/none.tgz"})}, // It may be on the machine that installs.
		"another chart":    {cilium(record.Chart{Archive: "charts/local-path"}), machine.FieldCNIChart, `"local-path"`},
		"values":           {cilium(record.Chart{Values: "a: [\n"}), machine.FieldCNIValues, "line "},
		"a conflict":       {cilium(record.Chart{Values: "routingMode: native\n"}), machine.FieldCNIValues, "line 1: the provider sets routingMode: use cni.routing"},
		"default class":    {cluster.AddonSpec{CSI: record.CSI{LocalPath: local("/x"), DefaultClass: "nfs"}}, machine.FieldDefaultClass, "choose one of local-path"},
		"class of no tier": {cluster.AddonSpec{CSI: record.CSI{DefaultClass: "nfs"}}, machine.FieldDefaultClass, "no storage tier"},
		"relative path":    {cluster.AddonSpec{CSI: record.CSI{LocalPath: local("opt/x")}}, machine.FieldLocalPath, "no absolute path"},
		"path with dots":   {cluster.AddonSpec{CSI: record.CSI{LocalPath: local("/opt/../x")}}, machine.FieldLocalPath, "shortest form"},
		"the root":         {cluster.AddonSpec{CSI: record.CSI{Longhorn: copies("/")}}, machine.FieldLonghorn, "/ itself"},
		"one in another":   {cluster.AddonSpec{CSI: record.CSI{LocalPath: local("/data/l"), Longhorn: copies("/data")}}, machine.FieldLonghorn, "lie in one another"},
		"no copies":        {cluster.AddonSpec{CSI: record.CSI{Longhorn: &record.Longhorn{DataPath: "/d"}}}, machine.FieldLonghorn, "0 copies"},
		"no server":        {share(record.NFS{Path: "/e"}), machine.FieldNFSServer, "neither a server nor a pool"},
		"a pool":           {spec: share(record.NFS{Pool: "nfs-ds"})},
		"a URL":            {share(record.NFS{Server: "nfs://x", Path: "/e"}), machine.FieldNFSServer, "neither a name nor an address"},
		"relative export":  {share(record.NFS{Server: "x", Path: "e"}), machine.FieldNFS, "no absolute one"},
		"two options":      {share(record.NFS{Server: "x", Path: "/e", MountOptions: []string{"hard,noatime"}}), machine.FieldNFS, "not one option"},
		"version twice":    {share(record.NFS{Server: "x", Path: "/e", MountOptions: []string{"vers=3"}}), machine.FieldNFS, "use nfs_version"},
		"short version":    {share(record.NFS{Server: "x", Path: "/e", MountOptions: []string{"v4.2"}}), machine.FieldNFS, "use nfs_version"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.spec.Servers, test.spec.Nodes = 1, 1
			problems := (&Catalogue{}).Check(test.spec)
			switch {
			case test.want == "" && len(problems) > 0:
				t.Errorf("problems: %v", problems)
			case test.want != "" && (len(problems) != 1 || problems[0].Field != test.field || !strings.Contains(problems[0].Err.Error(), test.want)):
				t.Errorf("problems %v, want one of %s with %q", problems, test.field, test.want)
			}
		})
	}
}

// TestCalicoArchives needs the chart of the CRDs beside the archive.
func TestCalicoArchives(t *testing.T) {
	directory := t.TempDir()
	write := func(name, chart, version string) string {
		path := filepath.Join(directory, name)
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(path, "Chart.yaml"), []byte("apiVersion: v2\nname: "+chart+"\nversion: "+version+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	archive := write("tigera-operator-v3.32.9", "tigera-operator", "v3.32.9")
	s := cluster.AddonSpec{CNI: record.CNI{Plugin: record.Calico, Chart: record.Chart{Archive: archive}}, Servers: 1, Nodes: 1}
	check := func(want string) {
		t.Helper()
		problems := (&Catalogue{}).Check(s)
		if want == "" && len(problems) == 0 {
			return
		}
		if want == "" || len(problems) != 1 || !strings.Contains(problems[0].Err.Error(), want) {
			t.Errorf("problems %v, want %q", problems, want)
		}
	}
	check("needed beside")
	write("crd.projectcalico.org.v1-v3.32.9", "crd.projectcalico.org.v1", "v3.32.1")
	check("has version v3.32.1")
	write("crd.projectcalico.org.v1-v3.32.9", "crd.projectcalico.org.v1", "v3.32.9")
	check("")
	r, err := releaseOf(s, cluster.Calico)
	if err != nil || r.source.version != "" || r.crds == nil || filepath.Base(r.crds.archive) != "crd.projectcalico.org.v1-v3.32.9" {
		t.Errorf("sources %v %v, error %v", r.source, r.crds, err)
	}
	write("tigera-operator-v3.32.9", "tigera-operator", "v3.31.0")
	check("from version v3.32.0 on")
}
