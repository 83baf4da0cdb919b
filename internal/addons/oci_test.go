package addons

import (
	"crypto/sha256"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// ociRegistry is an OCI registry with one chart under charts/a.
type ociRegistry struct {
	tag, mediaType string
	data           []byte
	password       string
	failures       int
}

func digest(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }

// ServeHTTP serves what a pull asks for (https://github.com/opencontainers/distribution-spec/blob/main/spec.md).
func (g *ociRegistry) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, password, _ := r.BasicAuth(); password != g.password {
		w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if g.failures > 0 {
		g.failures--
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	layer := map[string]any{"mediaType": g.mediaType, "digest": digest(g.data), "size": len(g.data)}
	manifest, _ := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "layers": []any{layer},
		"config": map[string]any{"mediaType": "application/vnd.cncf.helm.config.v1+json", "digest": digest(nil), "size": 0},
	})
	what, ok := strings.CutPrefix(r.URL.Path, "/v2/charts/a/")
	switch {
	case !ok:
		http.NotFound(w, r)
	case what == "manifests/"+g.tag || what == "manifests/"+digest(manifest):
		w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
		w.Header().Set("Docker-Content-Digest", digest(manifest))
		w.Header().Set("Content-Length", fmt.Sprint(len(manifest)))
		_, _ = w.Write(manifest)
	case what == "blobs/"+digest(g.data):
		_, _ = w.Write(g.data)
	case what == "tags/list":
		_ = json.NewEncoder(w).Encode(map[string]any{"name": "charts/a", "tags": []string{g.tag}})
	default:
		http.NotFound(w, r)
	}
}

func TestFetchFromRegistry(t *testing.T) {
	for name, tt := range map[string]struct {
		registry ociRegistry
		chart    string
		version  string
		password string
		text     string
	}{
		"there":                {},
		"with a build":         {registry: ociRegistry{tag: "1.0.0_x1"}, version: "1.0.0+x1"},
		"fails twice":          {registry: ociRegistry{failures: 2}},
		"fails on":             {registry: ociRegistry{failures: 9}, text: "it answers 502 Bad Gateway"},
		"with a login":         {registry: ociRegistry{password: "canary"}, password: "canary"},
		"with a wrong login":   {registry: ociRegistry{password: "right"}, password: "canary", text: "it answers 401 Unauthorized"},
		"no such version":      {version: "2.0.0", text: `it has no version "2.0.0" of the chart; the nearest are 1.0.0`},
		"no such chart":        {chart: "b", text: "it has no such chart"},
		"an image":             {registry: ociRegistry{mediaType: "application/vnd.oci.image.layer.v1.tar+gzip"}, text: "it is not a chart, but something else"},
		"a chart that is none": {registry: ociRegistry{data: []byte("hello")}, text: "it is not a chart"},
	} {
		t.Run(name, func(t *testing.T) {
			g := tt.registry
			s := source{chart: "a", version: "1.0.0"}
			if tt.version != "" {
				s.version = tt.version
			}
			if tt.chart != "" {
				s.chart = tt.chart
			}
			if g.tag == "" {
				g.tag = "1.0.0"
			}
			if g.mediaType == "" {
				g.mediaType = chartLayer
			}
			if g.data == nil {
				g.data = packed(t, "a", s.version, nil)
			}
			server := httptest.NewTLSServer(&g)
			t.Cleanup(server.Close)
			plain := httptest.NewServer(&g)
			t.Cleanup(plain.Close)
			ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
			o := Options{Repository: ociScheme + strings.TrimPrefix(plain.URL, "http://") + "/charts", Username: "me", Password: tt.password, CA: ca}
			b, err := newTestCharts(o).fetch(t.Context(), s)
			switch {
			case tt.text == "" && (err != nil || b.name != "a"):
				t.Errorf("got %+v, %v", b, err)
			case tt.text != "" && (err == nil || !strings.Contains(err.Error(), tt.text) || strings.Contains(err.Error(), "canary")):
				t.Errorf("got %v", err)
			}
		})
	}
}

// A registry that is not on this machine has to speak TLS, with a certificate that is trusted.
func TestRegistriesSpeakTLS(t *testing.T) {
	g := &ociRegistry{tag: "1.0.0", mediaType: chartLayer, data: packed(t, "a", "1.0.0", nil), password: "canary"}
	server := httptest.NewTLSServer(g)
	t.Cleanup(server.Close)
	for host, plain := range map[string]bool{"localhost:5000": true, "127.0.0.1": true, "[::1]:5000": true, "registry.example": false, "10.0.0.1:5000": false} {
		if plainRegistry(host) != plain {
			t.Errorf("%s: TLS is %t", host, plain)
		}
	}
	// example.com is what the server's certificate is for; it stands for a host elsewhere.
	c := newTestCharts(Options{
		Repository: "oci://example.com/charts", Username: "me", Password: "canary",
		CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	})
	redirect(c, server.Listener.Addr().String())
	if _, err := c.fetch(t.Context(), source{chart: "a", version: "1.0.0"}); err != nil {
		t.Error(err)
	}
	c = newTestCharts(Options{Repository: "oci://example.com/charts", Username: "me", Password: "canary"})
	redirect(c, server.Listener.Addr().String())
	if _, err := c.fetch(t.Context(), source{chart: "a", version: "1.0.0"}); !errors.Is(err, errUnreachable) {
		t.Errorf("without its CA: %v", err)
	}
}
