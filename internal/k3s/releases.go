package k3s

import (
	_ "embed" // for the list of known releases
	"fmt"
	"slices"
	"strings"
	"time"
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

// Release is one release of k3s.
type Release struct {
	Version Version
	// PublishedAt is zero where it is not known, as in the embedded list.
	PublishedAt time.Time
	// Arches are the architectures that there is a k3s program for, in Go's names.
	Arches []string
}

// ReleaseList is what is known of the releases of k3s, newest version first.
type ReleaseList struct {
	Releases []Release
	Source   Source
	// Partial: the API failed half-way, and old releases are missing.
	Partial bool
	// Reason says why the list is embedded or partial, fit for one warning; it is empty for a good list.
	Reason string
}

// Contains reports whether the list has the version. That it has not proves little where the list is embedded or
// partial.
func (l ReleaseList) Contains(v Version) bool {
	return slices.ContainsFunc(l.Releases, func(r Release) bool { return r.Version == v })
}

// Filter narrows a list of releases. Its zero value keeps every release proper.
type Filter struct {
	// Minor keeps one minor version, in the form of Version.Minor; empty keeps all.
	Minor string
	// Arch keeps releases with a program for an architecture, in the name that Go or uname has for it; empty keeps all.
	Arch string
	// Prereleases keeps release candidates too.
	Prereleases bool
}

// Apply returns the releases that pass the filter, in the same order.
func (f Filter) Apply(releases []Release) []Release {
	arch := goArch(f.Arch)
	var out []Release
	for _, r := range releases {
		switch {
		case f.Minor != "" && r.Version.Minor() != f.Minor:
		case arch != "" && !slices.Contains(r.Arches, arch):
		case r.Version.Prerelease() && !f.Prereleases:
		default:
			out = append(out, r)
		}
	}
	return out
}

// Latest returns the newest release that is no candidate; false where there is none.
func Latest(releases []Release) (Release, bool) {
	var latest Release
	found := false
	for _, r := range releases {
		if !r.Version.Prerelease() && (!found || r.Version.Compare(latest.Version) > 0) {
			latest, found = r, true
		}
	}
	return latest, found
}

// unameArch maps what uname -m says to Go's names.
var unameArch = map[string]string{"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "armhf": "arm"}

func goArch(arch string) string {
	if goName, ok := unameArch[arch]; ok {
		return goName
	}
	return arch
}

// assetArch maps the names of the programs among a release's assets to the architecture that each is for.
var assetArch = map[string]string{"k3s": "amd64", "k3s-arm64": "arm64", "k3s-armhf": "arm", "k3s-s390x": "s390x"}

//go:embed releases.txt
var releasesText string

// embedded is the list that this build knows. Every release in it has programs for these three architectures.
func embedded(reason string) (ReleaseList, error) {
	list := ReleaseList{Source: SourceEmbedded, Reason: reason}
	for _, tag := range strings.Fields(releasesText) {
		v, err := ParseVersion(tag)
		if err != nil {
			return ReleaseList{}, fmt.Errorf("embedded list of releases: %w", err)
		}
		list.Releases = append(list.Releases, Release{Version: v, Arches: []string{"amd64", "arm", "arm64"}})
	}
	sortReleases(list.Releases)
	return list, nil
}

func sortReleases(releases []Release) {
	slices.SortStableFunc(releases, func(a, b Release) int { return b.Version.Compare(a.Version) })
}
