package addons

import (
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
)

// newTestCharts does not pause.
func newTestCharts(o Options) *charts {
	c := newCharts(o)
	c.pause = 0
	return c
}

func TestFetchFromRepository(t *testing.T) {
	good := packed(t, "cilium", "1.20.2", nil)
	fails := func(times, status int) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, _ *http.Request) bool {
			times--
			if times >= 0 {
				w.WriteHeader(status)
			}
			return times >= 0
		}
	}
	for name, tt := range map[string]struct {
		chart   string
		version string
		data    []byte
		before  func(http.ResponseWriter, *http.Request) bool
		// text is what the error says, "" where there is none; requests is how many were made.
		text     string
		requests int
	}{
		"there":                     {requests: 2},
		"written with a v":          {version: "v1.20.2", requests: 2},
		"fails twice":               {before: fails(2, 500), requests: 4},
		"too many requests":         {before: fails(1, 429), requests: 3},
		"fails on":                  {before: fails(9, 503), text: "it answers 503 Service Unavailable", requests: 3},
		"is no repository":          {before: fails(9, 404), text: "it has no index.yaml, so it is not a chart repository", requests: 1},
		"wants a login":             {before: fails(9, 401), text: "it answers 401 Unauthorized", requests: 1},
		"has no such chart":         {chart: "calico", text: `it has no chart "calico"`, requests: 1},
		"has no such version":       {version: "1.20.3", text: `it has no version "1.20.3" of the chart; the nearest are 1.20.2`, requests: 1},
		"what it has is no archive": {data: []byte("hello"), text: "it is not a chart: ", requests: 2},
		"holds another chart":       {data: packed(t, "calico", "1.20.2", nil), text: `it is the chart "calico", and not "cilium"`, requests: 2},
		"holds another version":     {data: packed(t, "cilium", "1.0.0", nil), text: `it is version "1.0.0" of the chart, and not "1.20.2"`, requests: 2},
		"lacks what it depends on": {
			data: packed(t, "cilium", "1.20.2", map[string]string{
				"Chart.yaml": "apiVersion: v2\nname: cilium\nversion: 1.20.2\ndependencies: [{name: x, version: 1.0.0, repository: 'https://x'}]\n",
			}),
			text: "it lacks the charts that it depends on: x", requests: 2,
		},
		"a login page": {
			before: func(w http.ResponseWriter, _ *http.Request) bool {
				_, _ = w.Write([]byte("<!DOCTYPE html><html><body>Sign in</body></html>"))
				return true
			},
			text: "its index.yaml is not that of a chart repository", requests: 1,
		},
		"the archive is gone": {
			before: func(w http.ResponseWriter, r *http.Request) bool {
				if strings.HasSuffix(r.URL.Path, ".tgz") {
					http.NotFound(w, r)
					return true
				}
				return false
			},
			text: "cilium-1.20.2.tgz: it answers 404 Not Found", requests: 2,
		},
		"the archive is another than promised": {
			before: func(w http.ResponseWriter, r *http.Request) bool {
				if strings.HasSuffix(r.URL.Path, ".tgz") {
					_, _ = w.Write(packed(t, "cilium", "1.20.2", map[string]string{"templates/x.yaml": "evil"}))
					return true
				}
				return false
			},
			text: "which the repository promises", requests: 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := &chartRepository{before: tt.before}
			if tt.data == nil {
				tt.data = good
			}
			r.add("cilium", "1.20.2", tt.data)
			s := source{chart: "cilium", version: "1.20.2", origin: serve(t, r)}
			if tt.chart != "" {
				s.chart = tt.chart
			}
			if tt.version != "" {
				s.version = tt.version
			}
			c := newTestCharts(Options{})
			b, err := c.fetch(t.Context(), s)
			switch {
			case tt.text == "" && err != nil:
				t.Error(err)
			case tt.text == "" && (b.name != "cilium" || b.version != "1.20.2"):
				t.Errorf("got %s %s", b.name, b.version)
			case tt.text != "" && (err == nil || !strings.Contains(err.Error(), tt.text)):
				t.Errorf("got %v", err)
			case tt.text != "" && !strings.Contains(err.Error(), "chart "+s.String()+" from "+s.origin+": "):
				t.Errorf("the error does not tell the chart and its source: %v", err)
			}
			if len(r.asked) != tt.requests {
				t.Errorf("asked for %q", r.asked)
			}
		})
	}
}

func TestNearest(t *testing.T) {
	all := []string{"1.0.0", "1.10.0", "1.9.0", "2.0.0-rc1", "nonsense", "1.11.0", "v3.0.0"}
	for want, near := range map[string][]string{
		"1.9.5":  {"1.10.0", "1.9.0", "1.0.0"},
		"0.1.0":  {"1.10.0", "1.9.0", "1.0.0"},
		"9.0.0":  {"v3.0.0", "2.0.0-rc1", "1.11.0"},
		"latest": {"v3.0.0", "2.0.0-rc1", "1.11.0"},
	} {
		if got := nearest(want, all, 3); !slices.Equal(got, near) {
			t.Errorf("%s: %q", want, got)
		}
	}
	if got := nearest("1.0.0", nil, 3); len(got) != 0 {
		t.Errorf("of none: %q", got)
	}
}

// The provider's mirror stands in for the project's repository, and an add-on's own repository for both.
func TestWhereChartsComeFrom(t *testing.T) {
	mirror, own, project := &chartRepository{}, &chartRepository{}, &chartRepository{}
	urls := map[*chartRepository]string{}
	for _, r := range []*chartRepository{mirror, own, project} {
		r.add("cilium", "1.20.2", packed(t, "cilium", "1.20.2", nil))
		urls[r] = serve(t, r)
	}
	for name, tt := range map[string]struct {
		options Options
		source  source
		from    *chartRepository
	}{
		"project": {Options{}, source{}, project},
		"mirror":  {Options{Repository: urls[mirror]}, source{}, mirror},
		"own":     {Options{Repository: urls[mirror]}, source{repository: urls[own]}, own},
	} {
		mirror.asked, own.asked, project.asked = nil, nil, nil
		tt.source.chart, tt.source.version, tt.source.origin = "cilium", "1.20.2", urls[project]
		if _, err := newTestCharts(tt.options).fetch(t.Context(), tt.source); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for r, url := range urls {
			if (len(r.asked) > 0) != (r == tt.from) {
				t.Errorf("%s: %s was asked for %q", name, url, r.asked)
			}
		}
	}
}

// A directory of the chart's name beside the configuration is none of the repository's.
func TestFetchIgnoresTheWorkingDirectory(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.Mkdir("longhorn", 0o700); err != nil {
		t.Fatal(err)
	}
	r := &chartRepository{}
	r.add("longhorn", "1.12.1", packed(t, "longhorn", "1.12.1", nil))
	if _, err := newTestCharts(Options{}).fetch(t.Context(), source{chart: "longhorn", version: "1.12.1", origin: serve(t, r)}); err != nil {
		t.Error(err)
	}
}

func TestFetchOnce(t *testing.T) {
	r := &chartRepository{}
	r.add("a", "1.0.0", packed(t, "a", "1.0.0", nil))
	r.add("b", "1.0.0", packed(t, "b", "1.0.0", nil))
	url := serve(t, r)
	c := newTestCharts(Options{})
	var all sync.WaitGroup
	for range 4 {
		for _, chart := range []string{"a", "b"} {
			all.Go(func() {
				if _, err := c.fetch(t.Context(), source{chart: chart, version: "1.0.0", origin: url}); err != nil {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	slices.Sort(r.asked)
	if want := []string{"/charts/a-1.0.0.tgz", "/charts/b-1.0.0.tgz", "/charts/index.yaml"}; !slices.Equal(r.asked, want) {
		t.Errorf("asked for %q", r.asked)
	}
}

// What failed once is not remembered.
func TestFetchAgainAfterAFailure(t *testing.T) {
	broken := true
	r := &chartRepository{before: func(w http.ResponseWriter, _ *http.Request) bool {
		if broken {
			w.WriteHeader(http.StatusForbidden)
		}
		return broken
	}}
	r.add("a", "1.0.0", packed(t, "a", "1.0.0", nil))
	c, s := newTestCharts(Options{}), source{chart: "a", version: "1.0.0", origin: serve(t, r)}
	if _, err := c.fetch(t.Context(), s); err == nil {
		t.Error("a refusal is no error")
	}
	broken = false
	if _, err := c.fetch(t.Context(), s); err != nil {
		t.Error(err)
	}
}

// What was meant for the mirror is sent to nobody else: neither to where its index points, nor to where it redirects.
func TestCredentialsStayWithTheMirror(t *testing.T) {
	data := packed(t, "a", "1.0.0", nil)
	for _, how := range []string{"index", "redirect"} {
		other := &chartRepository{}
		other.add("a", "1.0.0", data)
		elsewhere := serve(t, other)
		mirror := &chartRepository{before: func(w http.ResponseWriter, r *http.Request) bool {
			switch {
			case how == "index":
				_, _ = w.Write([]byte("entries: {a: [{version: 1.0.0, urls: ['" + elsewhere + "/a-1.0.0.tgz']}]}"))
				return true
			case strings.HasSuffix(r.URL.Path, ".tgz"):
				http.Redirect(w, r, elsewhere+"/a-1.0.0.tgz", http.StatusFound)
				return true
			}
			return false
		}}
		mirror.add("a", "1.0.0", data)
		c := newTestCharts(Options{Repository: serve(t, mirror), Username: "me", Password: "canary"})
		if _, err := c.fetch(t.Context(), source{chart: "a", version: "1.0.0"}); err != nil {
			t.Errorf("%s: %v", how, err)
		}
		if slices.Contains(mirror.logins, "") || len(other.logins) != 1 || other.logins[0] != "" {
			t.Errorf("%s: the mirror heard from %q, the other one from %q", how, mirror.logins, other.logins)
		}
	}
}

func TestMirrorWithItsOwnCA(t *testing.T) {
	r := &chartRepository{}
	r.add("a", "1.0.0", packed(t, "a", "1.0.0", nil))
	server := httptest.NewTLSServer(r)
	t.Cleanup(server.Close)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	s := source{chart: "a", version: "1.0.0"}
	if _, err := newTestCharts(Options{Repository: server.URL + "/charts", CA: ca}).fetch(t.Context(), s); err != nil {
		t.Error(err)
	}
	began := len(r.asked)
	_, err := newTestCharts(Options{Repository: server.URL + "/charts"}).fetch(t.Context(), s)
	if !errors.Is(err, errUnreachable) || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("without its CA: %v", err)
	}
	// An add-on's own repository on another host is not trusted for the mirror's CA.
	s.repository = strings.Replace(server.URL, "127.0.0.1", "localhost", 1) + "/charts"
	if _, err := newTestCharts(Options{Repository: server.URL + "/charts", CA: ca}).fetch(t.Context(), s); !errors.Is(err, errUnreachable) {
		t.Errorf("another host with the mirror's CA: %v", err)
	}
	if len(r.asked) != began {
		t.Errorf("asked for %q", r.asked[began:])
	}
}

func TestUnreachableRepository(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	c := newTestCharts(Options{Repository: server.URL, Username: "me", Password: "canary"})
	_, _, err := c.get(t.Context(), release{source: source{chart: "a", version: "1.0.0"}})
	var failure *cluster.Failure
	if !errors.As(err, &failure) || !errors.Is(err, errUnreachable) || !strings.Contains(failure.Remedy, "mirror") {
		t.Errorf("got %v", err)
	}
	if text := cluster.Explain(err); strings.Contains(text, "canary") || !strings.Contains(text, "hart a 1.0.0 from "+server.URL) {
		t.Errorf("got %s", text)
	}
}

func TestDownloadHasALimit(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 2<<20)) }))
	t.Cleanup(server.Close)
	if _, err := newTestCharts(Options{}).download(t.Context(), server.URL, 1<<20); err == nil || !strings.Contains(err.Error(), "larger than 1 MiB") {
		t.Errorf("got %v", err)
	}
}

func TestLocalCharts(t *testing.T) {
	dir := t.TempDir()
	archive := filepath.Join(dir, "a.tgz")
	if err := os.WriteFile(archive, packed(t, "a", "1.0.0", map[string]string{"templates/x.yaml": "a: b"}), 0o600); err != nil {
		t.Fatal(err)
	}
	unpacked := filepath.Join(dir, "chart")
	if err := os.MkdirAll(filepath.Join(unpacked, "templates"), 0o700); err != nil {
		t.Fatal(err)
	}
	files := fstest.MapFS{}
	for name, text := range map[string]string{"Chart.yaml": "apiVersion: v2\nname: a\nversion: 1.0.0\n", "templates/x.yaml": "a: b"} {
		if err := os.WriteFile(filepath.Join(unpacked, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		files[name] = &fstest.MapFile{Data: []byte(text)}
	}
	digests := map[string]bool{}
	for name, s := range map[string]source{
		"archive": {archive: archive}, "directory": {archive: unpacked}, "embedded": {files: files},
		"archive, named": {archive: archive, chart: "a", version: "1.0.0"},
	} {
		b, err := newTestCharts(Options{Repository: "https://unused.invalid"}).fetch(t.Context(), s)
		if err != nil || b.name != "a" || b.version != "1.0.0" || len(b.files) != 2 {
			t.Errorf("%s: %+v, %v", name, b, err)
			continue
		}
		digests[b.digest] = true
	}
	if len(digests) != 1 {
		t.Errorf("one chart has the digests %v", digests)
	}
	for path, text := range map[string]string{
		filepath.Join(dir, "none.tgz"): "no such file or directory",
		dir:                            "it is not a chart: Chart.yaml file is missing",
	} {
		if _, err := newTestCharts(Options{}).fetch(t.Context(), source{archive: path, chart: "a"}); err == nil || !strings.Contains(err.Error(), "from "+path+": "+text) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// Values that do not fit a chart are found before anything is installed, and the error holds none of them.
func TestValuesHaveToFit(t *testing.T) {
	files := fstest.MapFS{}
	for name, text := range map[string]string{
		"Chart.yaml":         "apiVersion: v2\nname: a\nversion: 1.0.0\nkubeVersion: '>=99.0.0'\n",
		"values.schema.json": `{"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": false}`,
		"templates/x.yaml": `{{ if eq (int .Values.n) 13 }}{{ fail "unlucky" }}{{ end -}}
{{ if and (eq (int .Values.n) 14) (not (.Capabilities.APIVersions.Has "monitoring.coreos.com/v1")) }}{{ fail "no monitoring" }}{{ end }}`,
	} {
		files[name] = &fstest.MapFile{Data: []byte(text)}
	}
	for name, tt := range map[string]struct {
		values map[string]any
		text   string
	}{
		"fit":                     {map[string]any{"n": 1.0}, ""},
		"ask for an optional API": {map[string]any{"n": 14.0}, ""},
		"against the schema":      {map[string]any{"n": "canary"}, "n"},
		"unknown":                 {map[string]any{"m": 1.0}, "additional properties 'm' not allowed"},
		"against the template":    {map[string]any{"n": 13.0}, "unlucky"},
	} {
		for _, r := range []release{
			{place: places[cluster.NFS], source: source{files: files}, values: tt.values},
			{place: places[cluster.NFS], source: source{files: files}, values: map[string]any{"n": 1.0}, crds: &source{files: files}, crdValues: tt.values},
		} {
			_, _, err := newTestCharts(Options{}).get(t.Context(), r)
			switch {
			case tt.text == "" && err != nil, tt.text != "" && (err == nil || !strings.Contains(err.Error(), tt.text)):
				t.Errorf("%s: %v", name, err)
			case err != nil && strings.Contains(err.Error(), "canary"):
				t.Errorf("%s: the error holds a value: %v", name, err)
			}
		}
	}
}
