package addons

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// packed packs a chart of these files.
func packed(t *testing.T, name, version string, files map[string]string) []byte {
	t.Helper()
	all := map[string]string{"Chart.yaml": fmt.Sprintf("apiVersion: v2\nname: %s\nversion: %s\n", name, version)}
	maps.Copy(all, files)
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	archive := tar.NewWriter(zip)
	for _, path := range slices.Sorted(maps.Keys(all)) {
		if err := archive.WriteHeader(&tar.Header{Name: name + "/" + path, Mode: 0o600, Size: int64(len(all[path]))}); err != nil {
			t.Fatal(err)
		}
		if _, err := archive.Write([]byte(all[path])); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// chartRepository is a chart repository.
type chartRepository struct {
	charts map[string][]byte
	// before answers in its place, if it does.
	before func(w http.ResponseWriter, r *http.Request) bool

	mu sync.Mutex
	// asked are the paths that were asked for, logins the names in the credentials.
	asked, logins []string
}

// add adds a packed chart.
func (c *chartRepository) add(name, version string, data []byte) {
	if c.charts == nil {
		c.charts = map[string][]byte{}
	}
	c.charts[name+" "+version] = data
}

// ServeHTTP serves the repository under /charts.
func (c *chartRepository) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user, _, _ := r.BasicAuth()
	c.mu.Lock()
	c.asked, c.logins = append(c.asked, r.URL.Path), append(c.logins, user)
	c.mu.Unlock()
	if c.before != nil && c.before(w, r) {
		return
	}
	if r.URL.Path == "/charts/index.yaml" {
		fmt.Fprint(w, "apiVersion: v1\nentries:\n")
		for _, key := range slices.Sorted(maps.Keys(c.charts)) {
			name, version, _ := strings.Cut(key, " ")
			fmt.Fprintf(w, "  %s:\n  - version: %s\n    digest: %x\n    urls: [%[1]s-%[2]s.tgz]\n", name, version, sha256.Sum256(c.charts[key]))
		}
		return
	}
	for key, data := range c.charts {
		if r.URL.Path == "/charts/"+strings.Replace(key, " ", "-", 1)+".tgz" {
			_, _ = w.Write(data)
			return
		}
	}
	http.NotFound(w, r)
}

// serve serves a repository, and returns its URL.
func serve(t *testing.T, c *chartRepository) string {
	t.Helper()
	s := httptest.NewServer(c)
	t.Cleanup(s.Close)
	return s.URL + "/charts"
}

// redirect makes all connections to registries lead to one address.
func redirect(c *charts, address string) {
	t := c.bare.Transport.(*transport)
	for _, one := range []http.RoundTripper{t.plain, t.trusted} {
		one.(*http.Transport).DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}
	}
}
