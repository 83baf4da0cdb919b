package k3s

import (
	_ "embed" // for the list of known releases
	"fmt"
	"slices"
	"strings"
)

// Source is where a list of releases is from.
type Source string

// The sources of a list of releases.
const (
	// SourceGitHub: the releases API answered.
	SourceGitHub Source = "github"
	// SourceEmbedded: it did not, and the list is the one that this build knows.
	SourceEmbedded Source = "embedded"
)

// ReleaseList is what is known of the releases of k3s, newest version first.
type ReleaseList struct {
	Versions []Version
	Source   Source
	// Partial: the API failed half-way, and old releases are missing.
	Partial bool
	// Reason says why the list is embedded or partial, fit for one warning; it is empty for a good list.
	Reason string
}

// Lacks reports whether the list shows that there is no such release. An embedded or partial list shows nothing, and
// neither does any list of what is older than its end.
func (l ReleaseList) Lacks(v Version) bool {
	if l.Source != SourceGitHub || l.Partial || len(l.Versions) == 0 || v.Compare(l.Versions[len(l.Versions)-1]) < 0 {
		return false
	}
	return !slices.Contains(l.Versions, v)
}

// Nearest returns the two releases next to a version that is not in the list; fewer where the list is shorter.
func (l ReleaseList) Nearest(v Version) []Version {
	listed := Filter{Prereleases: v.Prerelease()}.Apply(l.Versions)
	older, _ := slices.BinarySearchFunc(listed, v, func(a, b Version) int { return b.Compare(a) })
	first := max(0, min(older-1, len(listed)-2))
	return listed[first:min(first+2, len(listed))]
}

// Filter narrows a list of releases. Its zero value keeps every release proper.
type Filter struct {
	// Minor keeps one minor version, in the form of Version.Minor; empty keeps all.
	Minor string
	// Prereleases keeps release candidates too.
	Prereleases bool
}

// Apply returns the versions that pass the filter, in the same order.
func (f Filter) Apply(versions []Version) []Version {
	var out []Version
	for _, v := range versions {
		if (f.Minor == "" || v.Minor() == f.Minor) && (f.Prereleases || !v.Prerelease()) {
			out = append(out, v)
		}
	}
	return out
}

// Latest returns the newest version that is no candidate; false where there is none.
func Latest(versions []Version) (Version, bool) {
	proper := Filter{}.Apply(versions)
	if len(proper) == 0 {
		return Version{}, false
	}
	return slices.MaxFunc(proper, Version.Compare), true
}

//go:embed releases.txt
var releasesText string

// embedded is the list that this build knows.
func embedded(reason string) (ReleaseList, error) {
	list := ReleaseList{Source: SourceEmbedded, Reason: reason}
	for _, tag := range strings.Fields(releasesText) {
		v, err := ParseVersion(tag)
		if err != nil {
			return ReleaseList{}, fmt.Errorf("embedded list of releases: %w", err)
		}
		list.Versions = append(list.Versions, v)
	}
	newestFirst(list.Versions)
	return list, nil
}

func newestFirst(versions []Version) {
	slices.SortStableFunc(versions, func(a, b Version) int { return b.Compare(a) })
}
