package charts

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

func files(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	r := tar.NewReader(zip)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		out[h.Name] = string(b)
	}
}

func TestLoad(t *testing.T) {
	all, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range all {
		if !bytes.Equal(c.Archive, again[i].Archive) {
			t.Errorf("%s: another archive each time", c.File())
		}
		content := files(t, c.Archive)
		var meta struct{ Name, Version, AppVersion string }
		if err := yaml.Unmarshal([]byte(strings.ReplaceAll(content[c.Name+"/Chart.yaml"], "appVersion", "appversion")), &meta); err != nil {
			t.Fatal(err)
		}
		if meta.Name != c.Name || meta.Version != c.Version || strings.TrimPrefix(meta.AppVersion, "v") != strings.TrimPrefix(c.Version, "v") {
			t.Errorf("%s: Chart.yaml has %+v", c.File(), meta)
		}
		if content[c.Name+"/values.yaml"] == "" {
			t.Errorf("%s: no values.yaml", c.File())
		}
	}
	if c, ok := find(all, "cilium", "1.20.1"); !ok || files(t, c.Archive)["cilium/templates/_helpers.tpl"] == "" {
		t.Error("cilium 1.20.1 is not there, or lacks its helpers")
	}
}

// The provider installs the versions of its matrix, and so the lab has to have those.
func TestVersionsAreThoseOfTheProvider(t *testing.T) {
	text, err := os.ReadFile(filepath.FromSlash("../../../internal/addons/matrix.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var matrix map[string]struct{ Repository, Chart, CRDs, Version string }
	if err := yaml.Unmarshal(text, &matrix); err != nil {
		t.Fatal(err)
	}
	all, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	for addon, pin := range matrix {
		for _, name := range []string{pin.Chart, pin.CRDs} {
			if name == "" || pin.Repository == "" {
				continue // none, or part of the provider
			}
			i := slices.IndexFunc(all, func(c Chart) bool { return c.Name == name })
			if i < 0 || all[i].Version != pin.Version {
				t.Errorf("%s needs the chart %s in version %s: change sources/%[2]s/Chart.yaml", addon, name, pin.Version)
			}
		}
	}
}

func serve(t *testing.T, fails func(http.ResponseWriter) bool) func(path string, login bool) (int, http.Header, []byte) {
	t.Helper()
	mux := http.NewServeMux()
	if err := Register(mux, fails); err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return func(path string, login bool) (int, http.Header, []byte) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if login {
			req.SetBasicAuth(User, Password)
		}
		resp, err := s.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, resp.Header, b
	}
}

func healthy(http.ResponseWriter) bool { return false }

// Every archive that the index names is there, with the digest that it says.
func TestRepository(t *testing.T) {
	get := serve(t, healthy)
	for root, login := range map[string]bool{RepositoryPath: false, PrivateRepositoryPath: true} {
		code, _, text := get(root+"/index.yaml", login)
		var index struct {
			Entries map[string][]struct {
				Version, Digest string
				URLs            []string `yaml:"urls"`
			}
		}
		if err := yaml.Unmarshal(text, &index); code != http.StatusOK || err != nil {
			t.Fatalf("%s: %d, %v", root, code, err)
		}
		if len(index.Entries) != len(predecessors) {
			t.Errorf("%s: the index has %d charts", root, len(index.Entries))
		}
		for name, versions := range index.Entries {
			if len(versions) != 2 {
				t.Errorf("%s has %d versions", name, len(versions))
			}
			for _, v := range versions {
				if code, _, b := get(root+"/"+v.URLs[0], login); code != http.StatusOK || digest(b) != v.Digest {
					t.Errorf("%s: status %d, digest %s, want %s", v.URLs[0], code, digest(b), v.Digest)
				}
			}
		}
	}
	if code, _, _ := get(RepositoryPath+"/cilium-0.1.0.tgz", false); code != http.StatusNotFound {
		t.Errorf("a version that is not there: %d", code)
	}
}

func TestPrivatePlacesAskForThePassword(t *testing.T) {
	get := serve(t, healthy)
	for _, path := range []string{PrivateRepositoryPath + "/index.yaml", "/v2/" + PrivateRegistryName + "/cilium/tags/list"} {
		if code, header, _ := get(path, false); code != http.StatusUnauthorized || header.Get("WWW-Authenticate") == "" {
			t.Errorf("%s without a password: %d", path, code)
		}
		if code, _, _ := get(path, true); code != http.StatusOK {
			t.Errorf("%s with the password: %d", path, code)
		}
	}
}

func TestRegistry(t *testing.T) {
	get := serve(t, healthy)
	if code, _, _ := get("/v2/", false); code != http.StatusOK {
		t.Errorf("/v2/: %d", code)
	}
	const base = "/v2/" + RegistryName + "/longhorn/"
	_, _, tags := get(base+"tags/list", false)
	if !bytes.Contains(tags, []byte(`"1.12.0","1.12.1"`)) {
		t.Errorf("tags: %s", tags)
	}
	code, header, text := get(base+"manifests/1.12.1", false)
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	if err := json.Unmarshal(text, &manifest); code != http.StatusOK || err != nil || header.Get("Content-Type") != manifestType {
		t.Fatalf("manifest: %d, %v, %v", code, header, err)
	}
	if code, _, same := get(base+"manifests/"+header.Get("Docker-Content-Digest"), false); code != http.StatusOK || !bytes.Equal(same, text) {
		t.Errorf("the manifest by its digest: %d", code)
	}
	for _, d := range append(slices.Clone(manifest.Layers), manifest.Config) {
		if code, _, b := get(base+"blobs/"+d.Digest, false); code != http.StatusOK || "sha256:"+digest(b) != d.Digest || len(b) != d.Size {
			t.Errorf("%s: %d, %d bytes", d.MediaType, code, len(b))
		}
	}
	for _, path := range []string{"manifests/1.0.0", "blobs/sha256:00", "tags/other"} {
		if code, _, _ := get(base+path, false); code != http.StatusNotFound {
			t.Errorf("%s: %d", path, code)
		}
	}
}

func TestFaults(t *testing.T) {
	get := serve(t, func(w http.ResponseWriter) bool {
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	for _, path := range []string{RepositoryPath + "/index.yaml", "/v2/", "/v2/" + RegistryName + "/cilium/tags/list"} {
		if code, _, _ := get(path, false); code != http.StatusServiceUnavailable {
			t.Errorf("%s: %d", path, code)
		}
	}
}
