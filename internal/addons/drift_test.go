package addons

import (
	"reflect"
	"slices"
	"testing"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestDiffering(t *testing.T) {
	have := map[string]any{"a": 1.0, "same": []any{"x"}, "m": map[string]any{"x": "1", "y": true, "gone": nil}, "list": []any{1.0}, "was": map[string]any{}}
	want := map[string]any{"a": 2.0, "same": []any{"x"}, "m": map[string]any{"x": "1", "y": false, "z": 1.0}, "list": []any{2.0}, "was": "text"}
	if got, keys := differing(have, want), []string{"a", "list", "m.gone", "m.y", "m.z", "was"}; !slices.Equal(got, keys) {
		t.Errorf("got %q", got)
	}
	if got := differing(nil, nil); len(got) != 0 {
		t.Errorf("nothing differs in %q", got)
	}
}

func TestValuesDriftNamesAFew(t *testing.T) {
	for want, keys := range map[string][]string{
		"values differ: a":                     {"a"},
		"values differ: a, b, c, d":            {"a", "b", "c", "d"},
		"values differ: a, b, c, d and 2 more": {"a", "b", "c", "d", "e", "f"},
	} {
		if got := valuesDrift(keys); !slices.Equal(got, []string{want}) {
			t.Errorf("%q: got %q", keys, got)
		}
	}
	if got := valuesDrift(nil); len(got) != 0 {
		t.Errorf("of none: %q", got)
	}
}

// A number that follows the nodes is raised, and not lowered; see growing.
func TestSettled(t *testing.T) {
	values := func(n float64, other string) map[string]any {
		return map[string]any{"p": map[string]any{"copies": n}, "other": other}
	}
	for name, tt := range map[string]struct {
		have, want map[string]any
		installed  float64
		differ     []string
		raisable   bool
	}{
		"equal":                    {have: values(2, ""), want: values(2, ""), installed: 2},
		"fewer":                    {have: values(1, ""), want: values(2, ""), installed: 2, raisable: true},
		"more":                     {have: values(3, ""), want: values(2, ""), installed: 3},
		"more than the user wants": {have: values(4, ""), want: values(2, ""), installed: 2, differ: []string{"p.copies"}},
		"none":                     {have: values(0, ""), want: values(2, ""), installed: 2, differ: []string{"p.copies"}},
		"missing":                  {have: map[string]any{"other": ""}, want: values(2, ""), installed: 2, differ: []string{"p"}},
		"fewer, and another value": {have: values(1, "x"), want: values(2, ""), installed: 2, differ: []string{"other"}, raisable: true},
	} {
		r := release{values: tt.want, growing: []growing{{key: "p.copies", most: 3}}}
		before := copyValues(tt.want)
		got, differ, raisable := r.settled(tt.have)
		n, _ := get(got.values, "p", "copies")
		if n != tt.installed || !slices.Equal(differ, tt.differ) || raisable != tt.raisable {
			t.Errorf("%s: %v, differ %q, raisable %t", name, got.values, differ, raisable)
		}
		if !reflect.DeepEqual(r.values, before) {
			t.Errorf("%s: the wanted values have become %v", name, r.values)
		}
	}
}

func TestChartDrift(t *testing.T) {
	have := revision{chart: "cilium", version: "1.20.2", digest: "d"}
	for name, tt := range map[string]struct {
		want   source
		bundle *bundle
		drifts bool
	}{
		"equal":                                  {want: source{chart: "cilium", version: "1.20.2"}},
		"with a v":                               {want: source{chart: "cilium", version: "v1.20.2"}},
		"another version":                        {want: source{chart: "cilium", version: "1.20.3"}, drifts: true},
		"another chart":                          {want: source{chart: "calico", version: "1.20.2"}, drifts: true},
		"an archive that is not on this machine": {want: source{archive: "x"}},
		"an archive":                             {want: source{archive: "x"}, bundle: &bundle{name: "cilium", version: "1.20.2", digest: "d"}},
		"an archive of another version":          {want: source{archive: "x"}, bundle: &bundle{name: "cilium", version: "1.21.0", digest: "d"}, drifts: true},
		"an archive with other files":            {want: source{archive: "x"}, bundle: &bundle{name: "cilium", version: "1.20.2", digest: "e"}, drifts: true},
		"the provider's with other files":        {want: source{chart: "cilium", version: "1.20.2"}, bundle: &bundle{name: "cilium", version: "1.20.2", digest: "e"}, drifts: true},
		"the provider's with those it had":       {want: source{chart: "cilium", version: "1.20.2"}, bundle: &bundle{name: "cilium", version: "1.20.2", digest: "d"}},
	} {
		if got := chartDrift(have, tt.want, tt.bundle); (len(got) > 0) != tt.drifts {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func TestClassDrift(t *testing.T) {
	wanted := class{name: "nfs", isDefault: true, provisioner: "p", parameters: map[string]string{"server": "a"}, mountOptions: []string{"hard"}}
	live := func(change func(*storagev1.StorageClass)) *storagev1.StorageClass {
		c := &storagev1.StorageClass{
			ObjectMeta:  metav1.ObjectMeta{Name: "nfs", Annotations: map[string]string{defaultClass: "true"}},
			Provisioner: "p", Parameters: map[string]string{"server": "a"}, MountOptions: []string{"hard"},
		}
		change(c)
		return c
	}
	itself := wanted
	itself.provisioner = ""
	for name, tt := range map[string]struct {
		want           *class
		live           *storagev1.StorageClass
		settings, mark string
	}{
		"none is wanted":                     {live: live(func(*storagev1.StorageClass) {})},
		"equal":                              {want: &wanted, live: live(func(*storagev1.StorageClass) {})},
		"gone":                               {want: &wanted, settings: `StorageClass "nfs" is gone`},
		"not there, and the add-on makes it": {want: &itself},
		"other parameters": {
			want: &wanted, live: live(func(c *storagev1.StorageClass) { c.Parameters = map[string]string{"server": "b", "share": "/"} }),
			settings: `StorageClass "nfs" has other settings: server, share`,
		},
		"other mount options": {
			want: &wanted, live: live(func(c *storagev1.StorageClass) { c.MountOptions = nil }),
			settings: `StorageClass "nfs" has other settings: mountOptions`,
		},
		"another provisioner": {
			want: &wanted, live: live(func(c *storagev1.StorageClass) { c.Provisioner = "q" }),
			settings: `StorageClass "nfs" has other settings: provisioner`,
		},
		"other parameters of a class that the add-on makes": {want: &itself, live: live(func(c *storagev1.StorageClass) { c.Parameters = nil })},
		"not default": {
			want: &wanted, live: live(func(c *storagev1.StorageClass) { c.Annotations = nil }), mark: `StorageClass "nfs" is not the default class`,
		},
		"default, and not to be": {
			want: &class{name: "nfs"}, live: live(func(*storagev1.StorageClass) {}), mark: `StorageClass "nfs" is a default class, and is not to be one`,
		},
	} {
		if settings, mark := classDrift(tt.want, tt.live); settings != tt.settings || mark != tt.mark {
			t.Errorf("%s: %q, %q", name, settings, mark)
		}
	}
}

func TestChartWorkloads(t *testing.T) {
	rev := revision{manifest: `---
# Source: a
apiVersion: apps/v1
kind: Deployment
metadata: {name: a}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: b, namespace: other}
---
# nothing
---
{{ this is no YAML`}
	workloads := []workload{{deployment, "ns", "a"}, {daemonSet, "ns", "b"}, {daemonSet, "other", "b"}, {daemonSet, "ns", "a"}}
	if got := chartWorkloads(workloads, rev, place{namespace: "ns"}); !slices.Equal(got, []workload{workloads[0], workloads[2]}) {
		t.Errorf("got %v", got)
	}
}
