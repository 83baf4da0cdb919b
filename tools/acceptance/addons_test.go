package acceptance

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/storage"
	"helm.sh/helm/v3/pkg/storage/driver"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab"
	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/charts"
)

// The sources of charts that a lab has, each with those of all add-ons: a repository behind the URL of a mirror, one that asks for
// a password, and an OCI registry. The last two have certificates of the lab's own authority.
func openCharts(url string) attributes {
	return attributes{"repository": quote(url + charts.RepositoryPath)}
}

func privateCharts(l *lab.Lab) attributes {
	return attributes{
		"repository": quote(over(l, "https") + charts.PrivateRepositoryPath), "ca_pem": labCA(),
		"username": quote(charts.User), "password": quote(charts.Password),
	}
}

func registryCharts(l *lab.Lab) attributes {
	return attributes{"repository": quote(over(l, "oci") + "/" + charts.RegistryName), "ca_pem": labCA()}
}

// over is the address of the lab's service in another scheme.
func over(l *lab.Lab, scheme string) string {
	return scheme + "://" + strings.TrimPrefix(l.MirrorURL, "http://")
}

func labCA() string { return fmt.Sprintf("file(%q)", os.Getenv("LAB_CA_FILE")) }

// archive writes one of the lab's charts, in its newest version, to a file.
func archive(t *testing.T, name string) string {
	t.Helper()
	all, err := charts.Load()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(c charts.Chart) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("the lab has no chart %s", name)
	}
	file := filepath.Join(t.TempDir(), all[i].File())
	if err := os.WriteFile(file, all[i].Archive, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// addon is what a state holds of an add-on of a cluster.
type addon struct{ Chart, Version, Namespace, Status, Reason string }

// installed makes sure that the state has exactly these add-ons, all deployed, and that Helm says the same of each.
func (s *subject) installed(t *testing.T, want ...string) {
	t.Helper()
	state := s.c.state()[clusterAddr]
	if state.Status != "active" || len(state.Addons) != len(want) {
		t.Errorf("the cluster is %s, with the add-ons %+v, want %q", state.Status, state.Addons, want)
	}
	for _, name := range want {
		a, ok := state.Addons[name]
		if !ok || a.Status != "deployed" || a.Reason != "" {
			t.Errorf("in the state the add-on %s is %+v", name, a)
			continue
		}
		if r := s.deployed(t, name); r.Chart.Metadata.Name != a.Chart || r.Chart.Metadata.Version != a.Version || r.Namespace != a.Namespace {
			t.Errorf("the add-on %s is the release %s/%s of the chart %s %s, and in the state %+v",
				name, r.Namespace, r.Name, r.Chart.Metadata.Name, r.Chart.Metadata.Version, a)
		}
	}
}

// releases are where the releases of the add-ons stand, and their names.
var releases = map[string]struct{ namespace, name string }{
	"calico":     {"tigera-operator", "calico"},
	"cilium":     {"kube-system", "cilium"},
	"local-path": {"kube-system", "local-path"},
	"nfs":        {"kube-system", "csi-driver-nfs"},
	"longhorn":   {"longhorn-system", "longhorn"},
}

// helm is what Helm itself keeps of the release of an add-on.
func (s *subject) helm(name string) *storage.Storage {
	return storage.Init(driver.NewSecrets(s.api.CoreV1().Secrets(releases[name].namespace)))
}

// history lists the revisions of an add-on's release, the oldest first.
func (s *subject) history(t *testing.T, name string) []*release.Release {
	t.Helper()
	all, err := s.helm(name).History(releases[name].name)
	if err != nil {
		t.Fatalf("add-on %s: %v", name, err)
	}
	slices.SortFunc(all, func(a, b *release.Release) int { return a.Version - b.Version })
	return all
}

// deployed returns the last revision of an add-on's release, and makes sure that it is the one that is deployed, and that none
// is half-way.
func (s *subject) deployed(t *testing.T, name string) *release.Release {
	t.Helper()
	all := s.history(t, name)
	last := all[len(all)-1]
	for _, r := range all {
		if status := r.Info.Status; status.IsPending() || (status == release.StatusDeployed) != (r == last) {
			t.Errorf("revision %d of %d of the release of %s is %s", r.Version, last.Version, name, status)
		}
	}
	return last
}

// rewrite writes a revision of an add-on's release, as Helm does, that differs from the last one.
func (s *subject) rewrite(t *testing.T, name string, change func(next *release.Release)) {
	t.Helper()
	last := s.deployed(t, name)
	text, err := json.Marshal(last)
	if err != nil {
		t.Fatal(err)
	}
	next := new(release.Release)
	if err := json.Unmarshal(text, next); err != nil {
		t.Fatal(err)
	}
	next.Version++
	next.Labels = last.Labels // They are kept beside the text.
	change(next)
	if next.Info.Status == release.StatusDeployed {
		last.Info.Status = release.StatusSuperseded
		if err := s.helm(name).Update(last); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.helm(name).Create(next); err != nil {
		t.Fatal(err)
	}
}

// forget deletes all that Helm knows of an add-on; its objects stay.
func (s *subject) forget(t *testing.T, name string) {
	t.Helper()
	for _, r := range s.history(t, name) {
		if _, err := s.helm(name).Delete(r.Name, r.Version); err != nil {
			t.Fatal(err)
		}
	}
}

// value is that of a chart's key, nil where it is not set.
func value(r *release.Release, path ...string) any {
	var at any = r.Config
	for _, key := range path {
		m, ok := at.(map[string]any)
		if !ok {
			return nil
		}
		at = m[key]
	}
	return at
}

// hasValues makes sure that a release was made with these values: a path of keys, and the value that stands there.
func hasValues(t *testing.T, r *release.Release, want map[string]any) {
	t.Helper()
	for path, v := range want {
		if got := value(r, keys(path)...); fmt.Sprint(got) != fmt.Sprint(v) {
			t.Errorf("release %s: %s is %v, want %v", r.Name, path, got, v)
		}
	}
}

// flag is the value of a flag that the k3s of a node has, "" without it.
func (s *subject) flag(t *testing.T, node, name string) string {
	t.Helper()
	var args []string
	if err := json.Unmarshal([]byte(s.node(t, node).Annotations["k3s.io/node-args"]), &args); err != nil {
		t.Fatalf("node %s: its arguments: %v", node, err)
	}
	if i := slices.Index(args, "--"+name); i >= 0 && i+1 < len(args) {
		return args[i+1]
	}
	return ""
}

// hasFlags makes sure that the k3s of a node has these flags; "" is for one that it must not have.
func (s *subject) hasFlags(t *testing.T, node string, want map[string]string) {
	t.Helper()
	for name, v := range want {
		if got := s.flag(t, node, name); got != v {
			t.Errorf("node %s: the flag --%s of k3s is %q, want %q", node, name, got, v)
		}
	}
}

// classes are the StorageClasses of the cluster by name, of which exactly this one has to be the default; "" is for none.
func (s *subject) classes(t *testing.T, standard string) map[string]storagev1.StorageClass {
	t.Helper()
	list, err := s.api.StorageV1().StorageClasses().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]storagev1.StorageClass{}
	var defaults []string
	for _, class := range list.Items {
		all[class.Name] = class
		if class.Annotations["storageclass.kubernetes.io/is-default-class"] == "true" {
			defaults = append(defaults, class.Name)
		}
	}
	if want := slices.DeleteFunc([]string{standard}, func(s string) bool { return s == "" }); !slices.Equal(defaults, want) {
		t.Errorf("the default StorageClasses are %q, want %q", defaults, want)
	}
	return all
}

// vms are the UUIDs of all nodes, by name.
func (s *subject) vms() map[string]string {
	s.c.t.Helper()
	out := map[string]string{}
	for _, r := range s.c.state() {
		for name, n := range r.Nodes {
			out[name] = n.UUID
		}
	}
	return out
}
