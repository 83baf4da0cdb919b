package addons

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"
	"go.yaml.in/yaml/v3"
)

// index is what a repository offers.
type index map[string][]offer

// offer is one version of a chart.
type offer struct {
	Version string   `yaml:"version"`
	URLs    []string `yaml:"urls"`
	// Digest is the SHA-256 of the archive, "" where the repository does not tell.
	Digest string `yaml:"digest"`
}

// fromRepository gets a chart from a repository, which is an index.yaml and archives
// (https://helm.sh/docs/topics/chart_repository/).
func (c *charts) fromRepository(ctx context.Context, repository string, s source) (*bundle, error) {
	in, err := once(ctx, c, c.indexes, repository, func() (*index, error) { return c.index(ctx, repository) })
	if err != nil {
		return nil, err
	}
	found, err := in.find(s)
	if err != nil {
		return nil, err
	}
	address, err := resolve(repository, found.URLs[0])
	if err != nil {
		return nil, fmt.Errorf("its archive: %w", err)
	}
	data, err := c.download(ctx, address, maxArchive)
	if err != nil {
		return nil, fmt.Errorf("its archive %s: %w", redacted(address), err)
	}
	if err := checkDigest(data, found.Digest); err != nil {
		return nil, err
	}
	return unpack(data, s)
}

// index reads what a repository offers.
func (c *charts) index(ctx context.Context, repository string) (*index, error) {
	address, err := resolve(repository, "index.yaml")
	if err != nil {
		return nil, err
	}
	data, err := c.download(ctx, address, maxIndex)
	var status statusError
	switch {
	case errors.As(err, &status) && status == http.StatusNotFound:
		return nil, errors.New("it has no index.yaml, so it is not a chart repository")
	case err != nil:
		return nil, err
	}
	var content struct {
		Entries index `yaml:"entries"`
	}
	if err := yaml.Unmarshal(data, &content); err != nil || content.Entries == nil {
		// The text of the error would be pages of somebody's HTML.
		return nil, errors.New("its index.yaml is not that of a chart repository; a proxy or a login page may have answered in its place")
	}
	return &content.Entries, nil
}

// resolve returns the URL of a thing that a repository names, relative to it or in full.
func resolve(repository, reference string) (string, error) {
	base, err := url.Parse(repository)
	if err != nil {
		return "", withoutURL(err)
	}
	ref, err := url.Parse(reference)
	if err != nil {
		return "", withoutURL(err)
	}
	if !ref.IsAbs() {
		ref = base.JoinPath("/").ResolveReference(ref)
		ref.RawQuery = base.RawQuery
	}
	if ref.Scheme != "http" && ref.Scheme != "https" {
		return "", fmt.Errorf("%s is not an http:// or https:// URL", ref.Redacted())
	}
	return ref.String(), nil
}

// find looks a chart up.
func (i index) find(s source) (offer, error) {
	offers := i[s.chart]
	if len(offers) == 0 {
		return offer{}, fmt.Errorf("it has no chart %q", s.chart)
	}
	versions := make([]string, 0, len(offers))
	for _, o := range offers {
		if sameVersion(o.Version, s.version) && len(o.URLs) > 0 {
			return o, nil
		}
		versions = append(versions, o.Version)
	}
	return offer{}, noVersion(s.version, versions)
}

// noVersion is the error of a version that is not to be had.
func noVersion(want string, versions []string) error {
	if near := nearest(want, versions, 5); len(near) > 0 {
		return fmt.Errorf("it has no version %q of the chart; the nearest are %s", want, strings.Join(near, ", "))
	}
	return fmt.Errorf("it has no version %q of the chart, nor any other", want)
}

// nearest picks the n versions that are the nearest to one, and returns them from the newest to the oldest.
func nearest(want string, versions []string, n int) []string {
	var all semver.Collection
	for _, v := range versions {
		if p, err := semver.NewVersion(v); err == nil {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b *semver.Version) int { return b.Compare(a) })
	first := 0
	if w, err := semver.NewVersion(want); err == nil {
		at := slices.IndexFunc(all, func(v *semver.Version) bool { return v.LessThan(w) })
		if at < 0 {
			at = len(all)
		}
		first = max(0, min(at-n/2, len(all)-n))
	}
	var out []string
	for _, v := range all[first:min(first+n, len(all))] {
		out = append(out, v.Original())
	}
	return out
}
