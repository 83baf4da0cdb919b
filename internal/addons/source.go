package addons

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	"helm.sh/helm/v3/pkg/chart/loader"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
)

// bundle is a chart in memory.
type bundle struct {
	name, version string
	// digest tells charts of one version apart.
	digest string
	files  []*loader.BufferedFile
}

// charts fetches charts, and keeps what it has fetched.
type charts struct {
	options Options
	// web speaks to repositories; registries are asked through bare, which adds no credentials by itself.
	web, bare *http.Client
	// pause is how long a repository that failed is left alone at first.
	pause time.Duration

	mu      sync.Mutex
	bundles map[string]*kept[bundle]
	indexes map[string]*kept[index]
}

// kept is a thing that is fetched once.
type kept[T any] struct {
	turn *semaphore.Weighted
	got  *T
}

func newCharts(o Options) *charts {
	return &charts{
		options: o,
		web:     &http.Client{Transport: newTransport(o, true)},
		bare:    &http.Client{Transport: newTransport(o, false)},
		pause:   firstPause,
		bundles: map[string]*kept[bundle]{},
		indexes: map[string]*kept[index]{},
	}
}

// once returns what is kept under a key, and fetches it where it is not there. What failed is tried again by the next caller.
func once[T any](ctx context.Context, c *charts, m map[string]*kept[T], key string, fetch func() (*T, error)) (*T, error) {
	c.mu.Lock()
	k := m[key]
	if k == nil {
		k = &kept[T]{turn: semaphore.NewWeighted(1)}
		m[key] = k
	}
	c.mu.Unlock()
	if err := k.turn.Acquire(ctx, 1); err != nil {
		return nil, context.Cause(ctx)
	}
	defer k.turn.Release(1)
	if k.got != nil {
		return k.got, nil
	}
	got, err := fetch()
	if err == nil {
		k.got = got
	}
	return got, err
}

// where is the repository, archive or the like that a chart comes from, for messages and as a part of keys.
func (c *charts) where(s source) string {
	return cmp.Or(s.archive, s.repository, c.options.Repository, s.origin)
}

// fetch returns a chart.
func (c *charts) fetch(ctx context.Context, s source) (*bundle, error) {
	if s.files != nil {
		return embedded(s)
	}
	where := c.where(s)
	key := strings.Join([]string{where, s.chart, s.version}, "\n")
	b, err := once(ctx, c, c.bundles, key, func() (*bundle, error) {
		switch {
		case s.archive != "":
			return local(s)
		case strings.HasPrefix(where, ociScheme):
			return c.fromRegistry(ctx, where, s)
		}
		return c.fromRepository(ctx, where, s)
	})
	if err != nil {
		return nil, fmt.Errorf("chart %s from %s: %w", s, redacted(where), err)
	}
	return b, nil
}

// String names the chart.
func (s source) String() string { return strings.TrimSpace(s.chart + " " + s.version) }

// embedded reads a chart that is part of the provider.
func embedded(s source) (*bundle, error) {
	var files []*loader.BufferedFile
	err := fs.WalkDir(s.files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(s.files, path)
		files = append(files, &loader.BufferedFile{Name: path, Data: data})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the embedded chart %s: %w", s, err)
	}
	return newBundle(files, s)
}

// local reads a chart from an archive or a directory of this machine.
func local(s source) (*bundle, error) {
	info, err := os.Stat(s.archive)
	switch {
	case err != nil:
		return nil, unwrapPath(err)
	case info.IsDir():
		c, err := loader.LoadDir(s.archive)
		if err != nil {
			return nil, notAChart(err)
		}
		files := make([]*loader.BufferedFile, 0, len(c.Raw))
		for _, f := range c.Raw {
			files = append(files, &loader.BufferedFile{Name: f.Name, Data: f.Data})
		}
		return newBundle(files, s)
	case info.Size() > maxArchive:
		return nil, fmt.Errorf("it is larger than %d MiB", maxArchive>>20)
	}
	data, err := os.ReadFile(s.archive)
	if err != nil {
		return nil, unwrapPath(err)
	}
	return unpack(data, s)
}

// unwrapPath leaves out the path, which the message has already.
func unwrapPath(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

func notAChart(err error) error { return fmt.Errorf("it is not a chart: %w", err) }

// unpack reads a packed chart.
func unpack(data []byte, s source) (*bundle, error) {
	files, err := loader.LoadArchiveFiles(bytes.NewReader(data))
	if err != nil {
		return nil, notAChart(err)
	}
	return newBundle(files, s)
}

// newBundle makes sure that files are the chart that was asked for, with all that it depends on.
func newBundle(files []*loader.BufferedFile, s source) (*bundle, error) {
	b := &bundle{files: files}
	c, err := b.load()
	if err != nil {
		return nil, notAChart(err)
	}
	b.name, b.version = c.Name(), c.Metadata.Version
	if s.chart != "" && b.name != s.chart {
		return nil, fmt.Errorf("it is the chart %q, and not %q", b.name, s.chart)
	}
	if s.version != "" && !sameVersion(b.version, s.version) {
		return nil, fmt.Errorf("it is version %q of the chart, and not %q", b.version, s.version)
	}
	if lacks := lackingDependencies(c); len(lacks) > 0 {
		return nil, fmt.Errorf("it lacks the charts that it depends on: %s", strings.Join(lacks, ", "))
	}
	sum := sha256.New()
	for _, f := range slices.SortedFunc(slices.Values(files), func(a, b *loader.BufferedFile) int { return strings.Compare(a.Name, b.Name) }) {
		sum.Write(fmt.Appendf(nil, "%s\n%d\n", f.Name, len(f.Data)))
		sum.Write(f.Data)
	}
	b.digest = hex.EncodeToString(sum.Sum(nil))[:16]
	return b, nil
}

// sameVersion compares versions; projects write them with a "v" in front or without.
func sameVersion(a, b string) bool { return strings.TrimPrefix(a, "v") == strings.TrimPrefix(b, "v") }

// fetchAll fetches the charts of add-ons and checks that the values fit them.
func (c *charts) fetchAll(ctx context.Context, s cluster.AddonSpec, addons []cluster.Addon) error {
	for _, a := range addons {
		r, err := releaseOf(s, a)
		if err != nil {
			return fmt.Errorf("%s: %w", a, err)
		}
		if _, _, err := c.get(ctx, r); err != nil {
			return fmt.Errorf("%s: %w", a, err)
		}
	}
	return nil
}

// get returns the chart of a release, and the one with what has to be there before, if there is one. Values that do not fit
// them are an error.
func (c *charts) get(ctx context.Context, r release) (chart, before *bundle, err error) {
	if r.crds != nil {
		if before, err = c.fetch(ctx, *r.crds); err != nil {
			return nil, nil, unreachable(err)
		}
		if _, err := render(before, r.place, r.crdValues); err != nil {
			return nil, nil, fmt.Errorf("chart %s: %w", *r.crds, err)
		}
	}
	if chart, err = c.fetch(ctx, r.source); err != nil {
		return nil, nil, unreachable(err)
	}
	if _, err := render(chart, r.place, r.values); err != nil {
		return nil, nil, &cluster.Failure{
			Err:    fmt.Errorf("chart %s %s: %w", chart.name, chart.version, err),
			Cause:  "the values do not fit this version of the chart.",
			Remedy: "correct values_yaml, or leave the version to the provider, which knows one that fits its own values.",
		}
	}
	return chart, before, nil
}

// unreachable adds what helps where a chart's repository cannot be asked.
func unreachable(err error) error {
	if !errors.Is(err, errUnreachable) {
		return err
	}
	return &cluster.Failure{
		Err:    err,
		Cause:  "this machine, which runs Terraform, does not reach the repository; the cluster need not.",
		Remedy: "see to it that it does, or name a mirror in the provider's charts, or an archive in the add-on's chart.",
	}
}
