package k3s

import (
	"slices"
	"strings"
	"testing"
)

func tags(versions []Version) string {
	var out []string
	for _, v := range versions {
		out = append(out, v.String())
	}
	return strings.Join(out, " ")
}

func list(t *testing.T, tags ...string) []Version {
	t.Helper()
	var out []Version
	for _, tag := range tags {
		out = append(out, mustVersion(t, tag))
	}
	return out
}

func TestFilter(t *testing.T) {
	releases := list(t, "v1.36.2-rc1+k3s1", "v1.36.1+k3s1", "v1.36.0+k3s1", "v1.35.5+k3s1", "v1.3.6+k3s1")
	for _, tt := range []struct {
		filter Filter
		want   string
	}{
		{Filter{}, "v1.36.1+k3s1 v1.36.0+k3s1 v1.35.5+k3s1 v1.3.6+k3s1"},
		{Filter{Minor: "1.36"}, "v1.36.1+k3s1 v1.36.0+k3s1"},
		{Filter{Minor: "1.36", Prereleases: true}, "v1.36.2-rc1+k3s1 v1.36.1+k3s1 v1.36.0+k3s1"},
		{Filter{Minor: "1.3"}, "v1.3.6+k3s1"},
		{Filter{Minor: "1.99"}, ""},
	} {
		if got := tags(tt.filter.Apply(releases)); got != tt.want {
			t.Errorf("%+v: %s; want %s", tt.filter, got, tt.want)
		}
	}
}

func TestLatest(t *testing.T) {
	if got, ok := Latest(list(t, "v1.37.0-rc1+k3s1", "v1.36.1+k3s2", "v1.36.1+k3s10", "v1.35.9+k3s1")); !ok || got.String() != "v1.36.1+k3s10" {
		t.Errorf("got %v, %v", got, ok)
	}
	for _, releases := range [][]Version{nil, list(t, "v1.37.0-rc1+k3s1")} {
		if got, ok := Latest(releases); ok {
			t.Errorf("of %s: %v", tags(releases), got)
		}
	}
}

func TestEmbedded(t *testing.T) {
	l, err := embedded("why")
	if err != nil {
		t.Fatal(err)
	}
	if l.Source != SourceEmbedded || l.Reason != "why" || l.Partial {
		t.Errorf("source %q, reason %q, partial %v", l.Source, l.Reason, l.Partial)
	}
	if !slices.IsSortedFunc(l.Versions, func(a, b Version) int { return b.Compare(a) }) {
		t.Error("the list is not in descending order")
	}
	if !slices.Contains(l.Versions, mustVersion(t, "v1.31.0+k3s1")) || slices.Contains(l.Versions, mustVersion(t, "v1.34.0+k3s1")) {
		t.Error("the list lacks v1.31.0+k3s1 or has v1.34.0+k3s1, which never was")
	}
}

func TestLacks(t *testing.T) {
	whole := ReleaseList{Source: SourceGitHub, Versions: list(t, "v1.37.0-rc1+k3s1", "v1.36.2+k3s1", "v1.36.1+k3s1", "v1.35.5+k3s1")}
	embedded, partial := whole, whole
	embedded.Source, partial.Partial = SourceEmbedded, true
	for name, tt := range map[string]struct {
		list    ReleaseList
		version string
		lacks   bool
		nearest string
	}{
		"listed":                {whole, "v1.36.1+k3s1", false, ""},
		"between":               {whole, "v1.36.1+k3s2", true, "v1.36.2+k3s1 v1.36.1+k3s1"},
		"newer than all":        {whole, "v1.99.0+k3s1", true, "v1.36.2+k3s1 v1.36.1+k3s1"},
		"candidate":             {whole, "v1.37.0-rc2+k3s1", true, "v1.37.0-rc1+k3s1 v1.36.2+k3s1"},
		"near the end":          {whole, "v1.35.9+k3s1", true, "v1.36.1+k3s1 v1.35.5+k3s1"},
		"older than all":        {whole, "v1.28.0+k3s1", false, ""},
		"in an embedded list":   {embedded, "v1.36.9+k3s1", false, ""},
		"in a partial list":     {partial, "v1.36.9+k3s1", false, ""},
		"in an empty list":      {ReleaseList{Source: SourceGitHub}, "v1.36.9+k3s1", false, ""},
		"in a list of just one": {ReleaseList{Source: SourceGitHub, Versions: list(t, "v1.36.2+k3s1")}, "v1.36.9+k3s1", true, "v1.36.2+k3s1"},
	} {
		v := mustVersion(t, tt.version)
		if got := tt.list.Lacks(v); got != tt.lacks {
			t.Errorf("%s: %t", name, got)
		}
		if got := tags(tt.list.Nearest(v)); tt.lacks && got != tt.nearest {
			t.Errorf("%s: nearest are %s, want %s", name, got, tt.nearest)
		}
	}
}
