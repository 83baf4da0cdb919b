package kubelab

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/pki"
	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/wire"
)

// newMirror serves the double's mirror with a program of our own making.
func newMirror(t *testing.T, m mirror) (*server, string) {
	t.Helper()
	s := &server{mirror: m, log: slog.New(slog.DiscardHandler), registry: &registry{clusters: map[string]*cluster{}}}
	handler, err := s.handler()
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(handler)
	t.Cleanup(web.Close)
	s.base = web.URL
	return s, web.URL
}

// doubleOf writes a program to serve.
func doubleOf(t *testing.T, text string) doubleMirror {
	t.Helper()
	file := filepath.Join(t.TempDir(), "k3sdouble")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return doubleMirror{program: file}
}

func get(t *testing.T, url string) (*http.Response, string) {
	t.Helper()
	c := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

func TestVersions(t *testing.T) {
	v := Versions()
	if len(v) != 62 {
		t.Errorf("%d versions, want 62", len(v))
	}
	if v[0] != "v1.36.1+k3s1" || v[len(v)-1] != "v1.31.0+k3s1" {
		t.Errorf("from %s to %s", v[0], v[len(v)-1])
	}
	for tag, want := range map[string]bool{
		"v1.35.0+k3s3": true, "v1.35.0+k3s1": true, "v1.34.3+k3s3": true, "v1.34.1+k3s1": true, "v1.34.0+k3s1": false,
		"v1.33.7+k3s3": true, "v1.32.11+k3s3": true, "v1.36.2+k3s1": false, "v1.33.12+k3s2": false,
	} {
		if slices.Contains(v, tag) != want {
			t.Errorf("%s offered: %v, want %v", tag, !want, want)
		}
	}
	if !slices.IsSortedFunc(v, func(a, b string) int { return compareTags(b, a) }) {
		t.Error("versions are not in order")
	}
}

func TestCompareTags(t *testing.T) {
	order := []string{"v1.9.0+k3s1", "v1.36.0-rc1+k3s1", "v1.36.0-rc2+k3s1", "v1.36.0+k3s1", "v1.36.0+k3s10", "v1.36.10+k3s1"}
	for i := 1; i < len(order); i++ {
		if compareTags(order[i-1], order[i]) >= 0 {
			t.Errorf("%s does not come before %s", order[i-1], order[i])
		}
	}
}

func TestDownload(t *testing.T) {
	s, base := newMirror(t, doubleOf(t, "program"))
	for _, path := range []string{"/releases/download/v1.36.1%2Bk3s1", "/releases/download/v1.36.1+k3s1"} {
		_, program := get(t, base+path+"/k3s")
		tr, err := wire.ReadTrailer(strings.NewReader(program), int64(len(program)))
		if err != nil || tr.Version != "v1.36.1+k3s1" || tr.Control != base || !strings.HasPrefix(program, "program") {
			t.Errorf("%s: trailer %+v, %v", path, tr, err)
		}
		_, sums := get(t, base+path+"/sha256sum-amd64.txt")
		sum := sha256.Sum256([]byte(program))
		if want := hex.EncodeToString(sum[:]) + "  k3s\n"; sums != want {
			t.Errorf("%s: sums %q, want %q", path, sums, want)
		}
	}
	for _, path := range []string{"/v1.36.2%2Bk3s1/k3s", "/v1.36.1%2Bk3s1/k3s-arm64", "/v1.36.1/k3s"} {
		if resp, _ := get(t, base+"/releases/download"+path); resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s, want 404", path, resp.Status)
		}
	}
	s.setFaults(wire.Faults{DownloadStatus: 503})
	if resp, _ := get(t, base+"/releases/download/v1.36.1%2Bk3s1/k3s"); resp.StatusCode != 503 {
		t.Errorf("with a fault: %s, want 503", resp.Status)
	}
}

func TestReleaseList(t *testing.T) {
	_, base := newMirror(t, doubleOf(t, "program"))
	page := func(query string) ([]release, *http.Response) {
		resp, body := get(t, base+"/releases"+query)
		var list []release
		if err := json.Unmarshal([]byte(body), &list); err != nil {
			t.Fatal(err)
		}
		return list, resp
	}
	first, resp := page("")
	if len(first) != 30 || first[0].TagName != "v1.36.1+k3s1" || !strings.Contains(resp.Header.Get("Link"), `page=2>; rel="next"`) {
		t.Errorf("first page: %d releases from %s, Link %q", len(first), first[0].TagName, resp.Header.Get("Link"))
	}
	last, resp := page("?per_page=100&page=1")
	if len(last) != 62 || resp.Header.Get("Link") != "" {
		t.Errorf("a page of 100: %d releases, Link %q", len(last), resp.Header.Get("Link"))
	}
	if past, _ := page("?page=9"); len(past) != 0 {
		t.Errorf("past the end: %d releases", len(past))
	}
	if url := last[0].Assets[0].URL; url != base+"/releases/download/v1.36.1%2Bk3s1/k3s" {
		t.Errorf("asset URL %s", url)
	}
}

func TestChannels(t *testing.T) {
	s, base := newMirror(t, doubleOf(t, "program"))
	for channel, want := range map[string]string{"latest": "v1.36.1%2Bk3s1", "stable": "v1.35.5%2Bk3s1", "v1.34": "v1.34.8%2Bk3s1"} {
		resp, _ := get(t, base+"/v1-release/channels/"+channel)
		if got := resp.Header.Get("Location"); resp.StatusCode != http.StatusFound || got != base+"/releases/tag/"+want {
			t.Errorf("%s: %s, %s", channel, resp.Status, got)
		}
	}
	if resp, _ := get(t, base+"/v1-release/channels/v1.99"); resp.StatusCode != http.StatusNotFound {
		t.Errorf("unknown channel: %s", resp.Status)
	}
	s.setFaults(wire.Faults{ReleasesStatus: 403})
	if resp, _ := get(t, base+"/v1-release/channels"); resp.StatusCode != 403 {
		t.Errorf("with a fault: %s, want 403", resp.Status)
	}
}

func TestFaultsOverHTTP(t *testing.T) {
	_, base := newMirror(t, doubleOf(t, "program"))
	c := wire.NewClient(base)
	for _, f := range []struct {
		faults wire.Faults
		want   int
	}{{wire.Faults{InstallStatus: 500}, 500}, {wire.Faults{}, 200}} {
		if err := c.SetFaults(t.Context(), f.faults); err != nil {
			t.Fatal(err)
		}
		if resp, _ := get(t, base+"/install.sh"); resp.StatusCode != f.want {
			t.Errorf("%+v: %s, want %d", f.faults, resp.Status, f.want)
		}
	}
}

func TestCharts(t *testing.T) {
	s, base := newMirror(t, doubleOf(t, "program"))
	if resp, _ := get(t, base+"/charts/index.yaml"); resp.StatusCode != http.StatusOK {
		t.Errorf("the index: %s", resp.Status)
	}
	s.setFaults(wire.Faults{ChartsStatus: 500})
	for _, path := range []string{"/charts/index.yaml", "/v2/charts/cilium/tags/list"} {
		if resp, _ := get(t, base+path); resp.StatusCode != http.StatusInternalServerError {
			t.Errorf("%s with a fault: %s", path, resp.Status)
		}
	}
}

func TestArtifacts(t *testing.T) {
	dir := t.TempDir()
	for file, text := range map[string]string{
		"install.sh": "#!/bin/sh\necho real\n", "v1.36.3+k3s1/k3s": "binary", "v1.36.3+k3s1/k3s-airgap-images-amd64.tar.zst": "images",
		"v1.35.0%2Bk3s1/k3s": "older", "notes/readme": "x",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m := artifactMirror{dir: dir}
	tags, err := m.tags()
	if err != nil || !slices.Equal(tags, []string{"v1.36.3+k3s1", "v1.35.0+k3s1"}) {
		t.Errorf("tags %v, %v", tags, err)
	}
	_, base := newMirror(t, m)
	for path, want := range map[string]string{
		"/v1.36.3%2Bk3s1/k3s": "binary", "/v1.35.0%2Bk3s1/k3s": "older", "/v1.36.3%2Bk3s1/k3s-airgap-images-amd64.tar.zst": "images",
	} {
		if _, got := get(t, base+"/releases/download"+path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	if _, sums := get(t, base+"/releases/download/v1.36.3%2Bk3s1/sha256sum-amd64.txt"); strings.Count(sums, "\n") != 2 || !strings.Contains(sums, "  k3s\n") {
		t.Errorf("sums %q", sums)
	}
	if _, script := get(t, base+"/install.sh"); !strings.Contains(script, base+"/releases/download") || !strings.HasSuffix(script, "echo real\n") {
		t.Errorf("script %q", script)
	}
	if resp, _ := get(t, base+"/releases/download/v1.36.3%2Bk3s1/%2e%2e%2finstall.sh"); resp.StatusCode != http.StatusNotFound {
		t.Errorf("a path out of the directory: %s", resp.Status)
	}
}

// By HTTPS there is the same, with a certificate of the CA that is in the file.
func TestTLS(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.crt")
	listener, err := listenTLS(t.Context(), "127.0.0.1:0", file)
	if err != nil {
		t.Fatal(err)
	}
	web := newWeb(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- serve(ctx, web, listener) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	ca, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pki.Pool(string(ca)), MinVersion: tls.VersionTLS12}}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Get("https://" + listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusNoContent {
		t.Errorf("got %s, %v", resp.Status, err)
	}
}
