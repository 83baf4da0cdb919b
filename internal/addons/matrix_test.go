package addons

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// TestMatrix has every add-on in the matrix, with all that is needed, and for the newest k3s that the provider knows.
func TestMatrix(t *testing.T) {
	pins, err := matrix()
	if err != nil {
		t.Fatal(err)
	}
	if len(pins) != len(places) || len(recipes) != len(places) {
		t.Errorf("%d charts and %d recipes for %d add-ons", len(pins), len(recipes), len(places))
	}
	releases, err := os.ReadFile(filepath.Join("..", "k3s", "releases.txt")) // The newest one comes first.
	if err != nil {
		t.Fatal(err)
	}
	newest := regexp.MustCompile(`\d+\.\d+`).FindString(string(releases))
	for a := range places {
		p := pins[a]
		if p.Chart == "" || p.Version == "" || a != cluster.LocalPath && (p.Repository == "" || p.Oldest == "") {
			t.Errorf("%s: %+v", a, p)
		}
		if p.Oldest != "" {
			if err := p.checkVersion(p.Version); err != nil {
				t.Errorf("%s: %v", a, err)
			}
		}
		if !slices.Contains(p.Kubernetes, newest) {
			t.Errorf("%s is not said to work with Kubernetes %s", a, newest)
		}
		for _, minor := range p.Kubernetes {
			if !regexp.MustCompile(`^1\.\d\d$`).MatchString(minor) {
				t.Errorf("%s: %q is no minor of Kubernetes", a, minor)
			}
		}
	}
}

// TestOwnChart has the embedded chart be what the matrix says, with the images that the provider knows.
func TestOwnChart(t *testing.T) {
	pins, err := matrix()
	if err != nil {
		t.Fatal(err)
	}
	r, err := releaseOf(localPathSpec("/opt/x", ""), cluster.LocalPath)
	if err != nil {
		t.Fatal(err)
	}
	if p := pins[cluster.LocalPath]; r.source.chart != p.Chart || r.source.version != p.Version {
		t.Errorf("the chart is %s", r.source)
	}
	b, err := embedded(r.source)
	if err != nil {
		t.Fatal(err)
	}
	c, err := b.load()
	if err != nil {
		t.Fatal(err)
	}
	for key, repository := range localPathImages {
		if have, _ := get(c.Values, key, "repository"); have != repository {
			t.Errorf("%s is %v in the chart, and %s here", key, have, repository)
		}
	}
	if tag, _ := get(c.Values, "image", "tag"); tag != c.Metadata.AppVersion {
		t.Errorf("the chart is for %s and has the image %v", c.Metadata.AppVersion, tag)
	}
}

func TestSources(t *testing.T) {
	pins, err := matrix()
	if err != nil {
		t.Fatal(err)
	}
	p := pins[cluster.Calico]
	tests := map[string]struct {
		user        record.Chart
		chart, crds source
	}{
		"the project's": {
			chart: source{chart: "tigera-operator", version: p.Version, origin: p.Repository},
			crds:  source{chart: "crd.projectcalico.org.v1", version: p.Version, origin: p.Repository},
		},
		"a version and a repository": {
			user:  record.Chart{Repository: "oci://r.example/charts", Version: "v3.33.0"},
			chart: source{chart: "tigera-operator", version: "v3.33.0", repository: "oci://r.example/charts", origin: p.Repository},
			crds:  source{chart: "crd.projectcalico.org.v1", version: "v3.33.0", repository: "oci://r.example/charts", origin: p.Repository},
		},
		"a packed chart": {
			user:  record.Chart{Archive: "/c/tigera-operator-v3.33.0.tgz"},
			chart: source{chart: "tigera-operator", archive: "/c/tigera-operator-v3.33.0.tgz", origin: p.Repository},
			crds:  source{chart: "crd.projectcalico.org.v1", archive: "/c/crd.projectcalico.org.v1-v3.33.0.tgz", origin: p.Repository},
		},
		"a directory": {
			user:  record.Chart{Archive: "c/tigera-operator/"},
			chart: source{chart: "tigera-operator", archive: "c/tigera-operator/", origin: p.Repository},
			crds:  source{chart: "crd.projectcalico.org.v1", archive: "c/crd.projectcalico.org.v1", origin: p.Repository},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			chart, crds := p.sources(test.user)
			if chart != test.chart || *crds != test.crds {
				t.Errorf("%+v and %+v", chart, *crds)
			}
		})
	}
	if _, crds := pins[cluster.Cilium].sources(record.Chart{}); crds != nil {
		t.Errorf("CRDs of Cilium: %v", crds)
	}
}

func TestUntested(t *testing.T) {
	for version, want := range map[string]int{"v1.36.1+k3s1": 0, "v1.33.4+k3s1": 2, "v1.31.0+k3s1": 3, "": 0, "1.36": 0} {
		s := cluster.AddonSpec{K3sVersion: version, CNI: record.CNI{Plugin: record.Cilium}, CSI: record.CSI{
			LocalPath: &record.LocalPath{}, NFS: &record.NFS{Chart: record.Chart{Version: "4.12.0"}}, Longhorn: &record.Longhorn{},
		}}
		if version == "v1.33.4+k3s1" {
			s.CNI.Plugin = record.Calico
		}
		if version == "v1.31.0+k3s1" {
			s.CSI.NFS.Chart, want = record.Chart{}, 2
		}
		if got := (&Catalogue{}).Untested(s); len(got) != want {
			t.Errorf("%s: %q", version, got)
		}
	}
}
