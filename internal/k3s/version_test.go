package k3s

import (
	"slices"
	"strings"
	"testing"
)

func mustVersion(t testing.TB, s string) Version {
	t.Helper()
	v, err := ParseVersion(s)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestParseVersion(t *testing.T) {
	for _, tag := range []string{"v1.36.1+k3s1", "v1.34.3+k3s3", "v1.31.0+k3s1", "v1.36.0-rc1+k3s1", "v1.36.10-rc12+k3s10"} {
		if got := mustVersion(t, tag).String(); got != tag {
			t.Errorf("ParseVersion(%q).String() = %q", tag, got)
		}
	}
}

func TestParseVersionNearMiss(t *testing.T) {
	for in, want := range map[string]string{
		"1.36.1+k3s1":          `did you mean "v1.36.1+k3s1"?`,
		"v1.36.1-k3s1":         `did you mean "v1.36.1+k3s1"?`,
		"v1.36.1":              `did you mean "v1.36.1+k3s1"?`,
		"1.36.1":               `did you mean "v1.36.1+k3s1"?`,
		"v1.36.1%2Bk3s2":       `did you mean "v1.36.1+k3s2"?`,
		"V1.36.1+K3S1":         `did you mean "v1.36.1+k3s1"?`,
		" v1.36.1+k3s1\n":      `did you mean "v1.36.1+k3s1"?`,
		"v1.36.1 +k3s1":        `did you mean "v1.36.1+k3s1"?`,
		"v1.36.1.k3s1":         `did you mean "v1.36.1+k3s1"?`,
		"v1.36.0-rc1":          `did you mean "v1.36.0-rc1+k3s1"?`,
		"v1.36.0-rc1-k3s2":     `did you mean "v1.36.0-rc1+k3s2"?`,
		"v1.36":                `it names a minor version, which has many releases: name one, for example "v1.36.1+k3s1"`,
		"1.36.x":               `it names a minor version, which has many releases: name one, for example "v1.36.1+k3s1"`,
		"stable":               "a channel moves on by itself",
		"latest":               "a channel moves on by itself",
		"":                     "the form is vX.Y.Z+k3sN",
		"v1.36.1+rke2r1":       "the form is vX.Y.Z+k3sN",
		"v1.036.1+k3s1":        "the form is vX.Y.Z+k3sN",
		"v1.36.1+k3s0":         "the form is vX.Y.Z+k3sN",
		"v1.36.1+k3s":          "the form is vX.Y.Z+k3sN",
		"v1.36.1+k3s1 or so":   "the form is vX.Y.Z+k3sN",
		"v1.36.9999999+k3s1":   "the form is vX.Y.Z+k3sN",
		"v1.36.0-alpha.1+k3s1": "the form is vX.Y.Z+k3sN",
	} {
		v, err := ParseVersion(in)
		if err == nil {
			t.Errorf("ParseVersion(%q) = %v, want an error", in, v)
			continue
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("ParseVersion(%q): %v; want %s", in, err, want)
		}
	}
}

func TestVersionOrder(t *testing.T) {
	ascending := []string{
		"v1.9.9+k3s1", "v1.34.3+k3s1", "v1.34.3+k3s3", "v1.34.3+k3s10", "v1.34.10+k3s1",
		"v1.36.0-rc1+k3s1", "v1.36.0-rc2+k3s1", "v1.36.0-rc2+k3s2", "v1.36.0-rc10+k3s1", "v1.36.0+k3s1", "v2.0.0+k3s1",
	}
	for i, a := range ascending {
		for j, b := range ascending {
			got := mustVersion(t, a).Compare(mustVersion(t, b))
			if want := sign(i - j); sign(got) != want {
				t.Errorf("%s compared with %s: %d, want %d", a, b, got, want)
			}
		}
	}
}

func sign(n int) int { return min(max(n, -1), 1) }

func TestVersionParts(t *testing.T) {
	if got := mustVersion(t, "v1.36.2+k3s1").Minor(); got != "1.36" {
		t.Errorf("Minor() = %q", got)
	}
	if mustVersion(t, "v1.36.2+k3s1").Prerelease() || !mustVersion(t, "v1.36.2-rc1+k3s1").Prerelease() {
		t.Error("Prerelease does not tell a candidate from a release")
	}
}

func TestHasCloudControllerRace(t *testing.T) {
	for tag, want := range map[string]bool{
		"v1.36.0+k3s1": true, "v1.36.1+k3s1": true, "v1.36.2+k3s1": false, "v1.36.2-rc1+k3s1": false,
		"v1.35.5+k3s1": true, "v1.35.6+k3s1": false,
		"v1.34.8+k3s1": true, "v1.34.9+k3s1": false,
		"v1.33.12+k3s1": true, "v1.33.13+k3s1": false,
		"v1.32.13+k3s1": true, "v1.31.0+k3s1": true, "v1.9.0+k3s1": true,
		"v1.37.0+k3s1": false, "v2.36.0+k3s1": false, "v2.0.0+k3s1": false,
	} {
		if got := mustVersion(t, tag).HasCloudControllerRace(); got != want {
			t.Errorf("%s: %v, want %v", tag, got, want)
		}
	}
}

func TestParseMinor(t *testing.T) {
	for in, want := range map[string]string{"1.36": "1.36", "v1.36": "1.36", "1.36.1": "", "1.36.x": "", "1": "", "": "", "stable": ""} {
		got, err := ParseMinor(in)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("ParseMinor(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
}

func FuzzParseVersion(f *testing.F) {
	for _, s := range []string{"v1.36.1+k3s1", "v1.36.0-rc1+k3s1", "1.36.1-k3s1", "stable", "v1.36", "v1.36.1%2Bk3s1", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, err := ParseVersion(s)
		if err != nil {
			if v != (Version{}) {
				t.Errorf("%q: a version beside an error", s)
			}
			return
		}
		if v.String() != s {
			t.Errorf("%q turns into %q", s, v)
		}
		if v.Compare(v) != 0 {
			t.Errorf("%q differs from itself", s)
		}
	})
}

// Every tag that an error suggests must be one.
func FuzzSpelling(f *testing.F) {
	for _, s := range []string{"1.36.1+k3s1", "v1.36.1-k3s1", "v1.36", "1.036", "v1.36.0-rc01"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if _, err := ParseVersion(s); err != nil {
			parts := strings.Split(spelling(s), `"`)
			if i := slices.IndexFunc(parts, func(p string) bool { return strings.Contains(p, "+k3s") && p[0] == 'v' }); i >= 0 {
				mustVersion(t, parts[i])
			}
		}
	})
}
