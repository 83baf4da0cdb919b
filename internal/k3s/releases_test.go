package k3s

import (
	"slices"
	"strings"
	"testing"
)

func tags(releases []Release) string {
	var out []string
	for _, r := range releases {
		out = append(out, r.Version.String())
	}
	return strings.Join(out, " ")
}

func list(t *testing.T, tags ...string) []Release {
	t.Helper()
	var out []Release
	for _, tag := range tags {
		out = append(out, Release{Version: mustVersion(t, tag), Arches: []string{"amd64", "arm64"}})
	}
	return out
}

func TestFilter(t *testing.T) {
	releases := list(t, "v1.36.2-rc1+k3s1", "v1.36.1+k3s1", "v1.36.0+k3s1", "v1.35.5+k3s1", "v1.3.6+k3s1")
	releases[2].Arches = []string{"amd64", "s390x"}
	for _, tt := range []struct {
		filter Filter
		want   string
	}{
		{Filter{}, "v1.36.1+k3s1 v1.36.0+k3s1 v1.35.5+k3s1 v1.3.6+k3s1"},
		{Filter{Minor: "1.36"}, "v1.36.1+k3s1 v1.36.0+k3s1"},
		{Filter{Minor: "1.36", Prereleases: true}, "v1.36.2-rc1+k3s1 v1.36.1+k3s1 v1.36.0+k3s1"},
		{Filter{Minor: "1.3"}, "v1.3.6+k3s1"},
		{Filter{Minor: "1.99"}, ""},
		{Filter{Arch: "aarch64", Minor: "1.36"}, "v1.36.1+k3s1"},
		{Filter{Arch: "x86_64", Minor: "1.36"}, "v1.36.1+k3s1 v1.36.0+k3s1"},
		{Filter{Arch: "s390x"}, "v1.36.0+k3s1"},
		{Filter{Arch: "riscv64"}, ""},
	} {
		if got := tags(tt.filter.Apply(releases)); got != tt.want {
			t.Errorf("%+v: %s; want %s", tt.filter, got, tt.want)
		}
	}
}

func TestLatest(t *testing.T) {
	if got, ok := Latest(list(t, "v1.37.0-rc1+k3s1", "v1.36.1+k3s2", "v1.36.1+k3s10", "v1.35.9+k3s1")); !ok || got.Version.String() != "v1.36.1+k3s10" {
		t.Errorf("got %v, %v", got.Version, ok)
	}
	for _, releases := range [][]Release{nil, list(t, "v1.37.0-rc1+k3s1")} {
		if got, ok := Latest(releases); ok {
			t.Errorf("of %s: %v", tags(releases), got.Version)
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
	if !slices.IsSortedFunc(l.Releases, func(a, b Release) int { return b.Version.Compare(a.Version) }) {
		t.Error("the list is not in descending order")
	}
	if !l.Contains(mustVersion(t, "v1.31.0+k3s1")) || l.Contains(mustVersion(t, "v1.34.0+k3s1")) {
		t.Error("the list lacks v1.31.0+k3s1 or has v1.34.0+k3s1, which never was")
	}
	if len(Filter{Arch: "arm64"}.Apply(l.Releases)) != len(l.Releases) {
		t.Error("the list lacks arm64")
	}
}
