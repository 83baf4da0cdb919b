package charts

import (
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// User and Password are asked for where a repository or registry is private.
const (
	User     = "lab"
	Password = "lab-charts"
)

// Where Register puts what.
const (
	RepositoryPath        = "/charts"
	PrivateRepositoryPath = "/private/charts"
	// RegistryName is the part of an OCI reference before a chart's name.
	RegistryName        = "charts"
	PrivateRegistryName = "private"
)

// Register packs the charts and adds to mux a chart repository and a part of the OCI distribution API that is enough to pull
// charts, either in two places, of which the second asks for a password. Before every answer, fails may give one instead.
func Register(mux *http.ServeMux, fails func(http.ResponseWriter) bool) error {
	all, err := Load()
	if err != nil {
		return err
	}
	index, err := indexOf(all)
	if err != nil {
		return err
	}
	add := func(pattern string, private bool, h http.HandlerFunc) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if !fails(w) && (!private || allowed(w, r)) {
				h(w, r)
			}
		})
	}
	files := map[string][]byte{"index.yaml": index}
	for _, c := range all {
		files[c.File()] = c.Archive
	}
	for root, private := range map[string]bool{RepositoryPath: false, PrivateRepositoryPath: true} {
		add("GET "+root+"/{file}", private, func(w http.ResponseWriter, r *http.Request) {
			b, ok := files[r.PathValue("file")]
			if !ok {
				http.NotFound(w, r)
				return
			}
			kind := "application/gzip"
			if r.PathValue("file") == "index.yaml" {
				kind = "application/yaml"
			}
			send(w, kind, b)
		})
	}
	images, err := imagesOf(all)
	if err != nil {
		return err
	}
	// Clients ask here whether this is a registry. A challenge would make them send the password everywhere.
	add("GET /v2/{$}", false, func(w http.ResponseWriter, _ *http.Request) { send(w, "application/json", []byte("{}")) })
	for name, private := range map[string]bool{RegistryName: false, PrivateRegistryName: true} {
		add("GET /v2/"+name+"/{chart}/{what}/{reference}", private, images.serve)
	}
	return nil
}

// allowed asks for the password, and refuses who has not got it.
func allowed(w http.ResponseWriter, r *http.Request) bool {
	user, password, _ := r.BasicAuth()
	if subtle.ConstantTimeCompare([]byte(user+":"+password), []byte(User+":"+Password)) == 1 {
		return true
	}
	w.Header().Set("WWW-Authenticate", `Basic realm="charts"`)
	http.Error(w, http.StatusText(http.StatusUnauthorized), http.StatusUnauthorized)
	return false
}

func send(w http.ResponseWriter, kind string, b []byte) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", fmt.Sprint(len(b)))
	_, _ = w.Write(b) // a client that is gone needs no answer
}

// indexOf is the index.yaml of a repository, whose archives lie beside it.
func indexOf(all []Chart) ([]byte, error) {
	entries := map[string][]map[string]any{}
	for _, c := range all {
		entry := maps.Clone(c.metadata)
		entry["urls"], entry["digest"], entry["created"] = []string{c.File()}, digest(c.Archive), "2026-07-01T12:00:00Z"
		entries[c.Name] = append(entries[c.Name], entry)
	}
	return yaml.Marshal(map[string]any{"apiVersion": "v1", "generated": "2026-07-01T12:00:00Z", "entries": entries})
}

// Media types of a chart in a registry (helm.sh/docs/topics/registries).
const (
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	configType   = "application/vnd.cncf.helm.config.v1+json"
	layerType    = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// images are the charts as a registry has them.
type images struct {
	tags map[string][]string // by chart
	// manifests are by chart, colon, tag or digest; blobs are by digest.
	manifests, blobs map[string][]byte
}

type descriptor struct {
	MediaType string `json:"mediaType"`
	Digest    string `json:"digest"`
	Size      int    `json:"size"`
}

func imagesOf(all []Chart) (images, error) {
	out := images{tags: map[string][]string{}, manifests: map[string][]byte{}, blobs: map[string][]byte{}}
	blob := func(kind string, b []byte) descriptor {
		d := descriptor{MediaType: kind, Digest: "sha256:" + digest(b), Size: len(b)}
		out.blobs[d.Digest] = b
		return d
	}
	for _, c := range all {
		config, err := json.Marshal(c.metadata)
		if err != nil {
			return out, err
		}
		manifest, err := json.Marshal(map[string]any{
			"schemaVersion": 2, "mediaType": manifestType, "config": blob(configType, config),
			"layers": []descriptor{blob(layerType, c.Archive)},
		})
		if err != nil {
			return out, err
		}
		// A tag cannot have a plus.
		tag := strings.ReplaceAll(c.Version, "+", "_")
		out.tags[c.Name] = append(out.tags[c.Name], tag)
		out.manifests[c.Name+":"+tag], out.manifests[c.Name+":sha256:"+digest(manifest)] = manifest, manifest
	}
	return out, nil
}

// serve answers requests for manifests, blobs and the list of tags.
func (i images) serve(w http.ResponseWriter, r *http.Request) {
	chart, what, reference := r.PathValue("chart"), r.PathValue("what"), r.PathValue("reference")
	var b []byte
	kind := "application/octet-stream"
	switch what {
	case "manifests":
		b, kind = i.manifests[chart+":"+reference], manifestType
	case "blobs":
		b = i.blobs[reference]
	case "tags":
		if tags := i.tags[chart]; reference == "list" && tags != nil {
			list, err := json.Marshal(map[string]any{"name": chart, "tags": slices.Sorted(slices.Values(tags))})
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			b, kind = list, "application/json"
		}
	}
	if b == nil {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = fmt.Fprintf(w, `{"errors":[{"code":"MANIFEST_UNKNOWN","message":%q}]}`, chart+" "+reference+": not found")
		return
	}
	w.Header().Set("Docker-Content-Digest", "sha256:"+digest(b))
	send(w, kind, b)
}
