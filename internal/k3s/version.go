package k3s

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// Version names one release of k3s: vX.Y.Z+k3sN, or vX.Y.Z-rcN+k3sM for a release candidate. It is comparable with ==;
// the zero Version is no release.
type Version struct {
	major, minor, patch int
	// rc is the number of the release candidate, 0 for a release proper.
	rc int
	// k3s is the number of the build of one and the same Kubernetes release.
	k3s int
}

// Numbers have at most five digits: more than any release will need, and few enough for an int everywhere.
var (
	tagForm = regexp.MustCompile(
		`^v(0|[1-9]\d{0,4})\.(0|[1-9]\d{0,4})\.(0|[1-9]\d{0,4})(?:-rc([1-9]\d{0,4}))?\+k3s([1-9]\d{0,4})$`)
	looseForm = regexp.MustCompile(
		`(?i)^v?\.?(\d{1,5}\.\d{1,5}\.\d{1,5})(?:-(rc\d{1,5}))?(?:(?:\+|-|_|\.|\s|%2b)*k3s[-.]?(\d{1,5}))?$`)
	lineForm    = regexp.MustCompile(`(?i)^v?((?:0|[1-9]\d{0,4})\.(?:0|[1-9]\d{0,4}))(\.x)?$`)
	channelForm = regexp.MustCompile(`(?i)^(stable|latest|testing)$`)
)

// ParseVersion reads a release tag in exactly the form that k3s gives it. The error for anything else says how the tag
// is spelt, as far as that can be told.
func ParseVersion(s string) (Version, error) {
	m := tagForm.FindStringSubmatch(s)
	if m == nil {
		return Version{}, fmt.Errorf("%q is not a k3s release tag: %s", s, spelling(s))
	}
	var n [5]int
	for i, digits := range m[1:] {
		if digits == "" {
			continue
		}
		var err error
		if n[i], err = strconv.Atoi(digits); err != nil {
			return Version{}, fmt.Errorf("%q is not a k3s release tag: %w", s, err)
		}
	}
	return Version{major: n[0], minor: n[1], patch: n[2], rc: n[3], k3s: n[4]}, nil
}

// spelling tells what is wrong with a text that is no release tag.
func spelling(s string) string {
	s = strings.TrimSpace(s)
	if channelForm.MatchString(s) {
		return "a channel moves on by itself, so nodes made later would differ: " +
			`name one release, for example "v1.36.2+k3s1"`
	}
	if m := lineForm.FindStringSubmatch(s); m != nil {
		return fmt.Sprintf("it names a minor version, which has many releases: name one, for example %q", "v"+m[1]+".1+k3s1")
	}
	if m := looseForm.FindStringSubmatch(s); m != nil {
		tag := "v" + m[1]
		if m[2] != "" {
			tag += "-" + strings.ToLower(m[2])
		}
		tag += "+k3s" + cmp.Or(m[3], "1")
		if tagForm.MatchString(tag) {
			return fmt.Sprintf("did you mean %q?", tag)
		}
	}
	return `the form is vX.Y.Z+k3sN, for example "v1.36.2+k3s1"`
}

// String is the release tag, which is also the kubelet version of a node that runs it.
func (v Version) String() string {
	var rc string
	if v.rc > 0 {
		rc = fmt.Sprintf("-rc%d", v.rc)
	}
	return fmt.Sprintf("v%d.%d.%d%s+k3s%d", v.major, v.minor, v.patch, rc, v.k3s)
}

// Compare orders versions: negative where v is older than w, 0 where both are the same, positive where v is newer.
// Release candidates stand before their release. Semantic versioning gives the part after the plus sign no rank and
// compares rc10 with rc2 as text; both are compared as numbers here.
func (v Version) Compare(w Version) int {
	return cmp.Or(
		cmp.Compare(v.major, w.major),
		cmp.Compare(v.minor, w.minor),
		cmp.Compare(v.patch, w.patch),
		cmp.Compare(v.candidate(), w.candidate()),
		cmp.Compare(v.k3s, w.k3s),
	)
}

// candidate ranks the release proper behind its candidates.
func (v Version) candidate() int {
	if v.rc == 0 {
		return math.MaxInt
	}
	return v.rc
}

// Minor is the minor version, for example "1.36".
func (v Version) Minor() string { return fmt.Sprintf("%d.%d", v.major, v.minor) }

// Prerelease reports whether the version is a release candidate. GitHub's flag of that name does not tell: every k3s
// release is published with it and promoted days later.
func (v Version) Prerelease() bool { return v.rc > 0 }

// lastRace is, by minor version of Kubernetes 1, the last patch with the race of HasCloudControllerRace.
var lastRace = map[int]int{33: 12, 34: 8, 35: 5, 36: 1}

// HasCloudControllerRace reports whether a server of this version can lose a race between its embedded cloud controller
// manager and the API's first start, which ends the whole process and, on slow machines, may do so for ever
// (https://github.com/k3s-io/k3s/issues/7328, mended by https://github.com/k3s-io/k3s/pull/14201).
func (v Version) HasCloudControllerRace() bool {
	last, listed := lastRace[v.minor]
	if !listed {
		return v.major == 1 && v.minor < 33
	}
	return v.major == 1 && v.patch <= last
}

// ParseMinor reads a minor version, "1.36" or "v1.36", and returns it in the form of Version.Minor.
func ParseMinor(s string) (string, error) {
	m := lineForm.FindStringSubmatch(s)
	if m == nil || m[2] != "" {
		return "", fmt.Errorf(`%q is not a minor version: the form is X.Y, for example "1.36"`, s)
	}
	return m[1], nil
}
