package kubelab

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/wire"
)

//go:embed install.sh
var installScript string

// stableTag is what the channel "stable" points to: it trails the newest release, as the real one does.
const stableTag = "v1.35.5+k3s1"

const binarySums = "sha256sum-amd64.txt"

// mirror serves releases in the layout of the real places: GitHub's release assets and list, the channel server, and
// the install script.
type mirror interface {
	// installScript returns the script; base is the mirror's own URL.
	script(base string) ([]byte, error)
	// tags lists the offered releases, newest first.
	tags() ([]string, error)
	// asset returns a file of a release; a missing one is os.ErrNotExist.
	asset(base, tag, name string) ([]byte, error)
}

// doubleMirror offers the double as every release.
type doubleMirror struct{ program string }

func (m doubleMirror) script(base string) ([]byte, error) {
	return []byte(strings.ReplaceAll(installScript, "@MIRROR@", base)), nil
}

func (m doubleMirror) tags() ([]string, error) { return Versions(), nil }

func (m doubleMirror) asset(base, tag, name string) ([]byte, error) {
	if !slices.Contains(Versions(), tag) || name != "k3s" && name != binarySums {
		return nil, os.ErrNotExist
	}
	b, err := os.ReadFile(m.program)
	if err != nil {
		return nil, fmt.Errorf("reading the k3s double: %v", err) //nolint:errorlint // a missing double is no missing asset
	}
	t, err := wire.Trailer{Version: tag, Commit: commitOf(tag), Control: base}.Encode()
	if err != nil {
		return nil, err
	}
	b = append(b, t...)
	if name == "k3s" {
		return b, nil
	}
	sum := sha256.Sum256(b)
	return fmt.Appendf(nil, "%s  k3s\n", hex.EncodeToString(sum[:])), nil
}

// serveMirror adds the mirror's paths.
func (s *server) serveMirror(mux *http.ServeMux) {
	mux.HandleFunc("GET /install.sh", func(w http.ResponseWriter, _ *http.Request) {
		if fail(w, s.currentFaults().InstallStatus) {
			return
		}
		b, err := s.mirror.script(s.base)
		s.send(w, "text/plain; charset=utf-8", b, err)
	})
	mux.HandleFunc("GET /releases/download/{tag}/{name}", func(w http.ResponseWriter, r *http.Request) {
		f := s.currentFaults()
		if fail(w, f.DownloadStatus) {
			return
		}
		b, err := s.mirror.asset(s.base, r.PathValue("tag"), r.PathValue("name"))
		if err == nil && f.CorruptDownload && r.PathValue("name") == "k3s" {
			b[len(b)/2] ^= 0xff
		}
		if err != nil {
			s.send(w, "", nil, err)
			return
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b))
	})
	mux.HandleFunc("GET /releases", s.releases)
	mux.HandleFunc("GET /releases/latest", func(w http.ResponseWriter, _ *http.Request) {
		list, err := s.releaseList()
		if err != nil || len(list) == 0 {
			s.send(w, "", nil, os.ErrNotExist)
			return
		}
		s.sendJSON(w, list[0])
	})
	mux.HandleFunc("GET /releases/tag/{tag}", func(w http.ResponseWriter, r *http.Request) {
		tags, err := s.mirror.tags()
		if err == nil && !slices.Contains(tags, r.PathValue("tag")) {
			err = os.ErrNotExist
		}
		s.send(w, "text/plain; charset=utf-8", []byte("Release "+r.PathValue("tag")+"\n"), err)
	})
	mux.HandleFunc("GET /v1-release/channels", s.channels)
	mux.HandleFunc("GET /v1-release/channels/{channel}", s.channel)
}

// release has the fields of GitHub's REST API that clients read.
type release struct {
	ID          int       `json:"id"`
	TagName     string    `json:"tag_name"`
	Name        string    `json:"name"`
	Draft       bool      `json:"draft"`
	Prerelease  bool      `json:"prerelease"`
	CreatedAt   time.Time `json:"created_at"`
	PublishedAt time.Time `json:"published_at"`
	HTMLURL     string    `json:"html_url"`
	Assets      []asset   `json:"assets"`
}

type asset struct {
	Name string `json:"name"`
	URL  string `json:"browser_download_url"`
}

func (s *server) releaseList() ([]release, error) {
	tags, err := s.mirror.tags()
	if err != nil {
		return nil, err
	}
	list := make([]release, len(tags))
	for i, tag := range tags {
		escaped := url.QueryEscape(tag)
		list[i] = release{
			ID: 1000 - i, TagName: tag, Name: tag, CreatedAt: publishedAt(i), PublishedAt: publishedAt(i),
			HTMLURL: s.base + "/releases/tag/" + escaped,
		}
		for _, name := range []string{"k3s", binarySums} {
			list[i].Assets = append(list[i].Assets, asset{name, s.base + "/releases/download/" + escaped + "/" + name})
		}
	}
	return list, nil
}

// releases is GitHub's list: pages of 30 unless asked for up to 100, a Link header, an ETag.
func (s *server) releases(w http.ResponseWriter, r *http.Request) {
	if fail(w, s.currentFaults().ReleasesStatus) {
		return
	}
	list, err := s.releaseList()
	if err != nil {
		s.send(w, "", nil, err)
		return
	}
	size := min(number(r, "per_page", 30), 100)
	page := number(r, "page", 1)
	from := min((page-1)*size, len(list))
	to := min(from+size, len(list))
	if to < len(list) {
		w.Header().Set("Link", fmt.Sprintf(`<%s/releases?per_page=%d&page=%d>; rel="next", <%s/releases?per_page=%d&page=%d>; rel="last"`,
			s.base, size, page+1, s.base, size, (len(list)+size-1)/size))
	}
	b, err := json.Marshal(list[from:to])
	if err != nil {
		s.send(w, "", nil, err)
		return
	}
	sum := sha256.Sum256(b)
	etag := `"` + hex.EncodeToString(sum[:]) + `"`
	w.Header().Set("ETag", etag)
	if r.Header.Get("If-None-Match") == etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	s.send(w, "application/json; charset=utf-8", b, nil)
}

func (s *server) channelMap() (names []string, latest map[string]string, err error) {
	tags, err := s.mirror.tags()
	if err != nil || len(tags) == 0 {
		return nil, nil, err
	}
	stable := tags[0]
	if slices.Contains(tags, stableTag) {
		stable = stableTag
	}
	names, latest = []string{"stable", "latest", "testing"}, map[string]string{"stable": stable, "latest": tags[0], "testing": tags[0]}
	for _, tag := range tags {
		if minor := minorOf(tag); latest[minor] == "" {
			names, latest[minor] = append(names, minor), tag
		}
	}
	return names, latest, nil
}

func (s *server) channels(w http.ResponseWriter, _ *http.Request) {
	if fail(w, s.currentFaults().ReleasesStatus) {
		return
	}
	names, latest, err := s.channelMap()
	if err != nil {
		s.send(w, "", nil, err)
		return
	}
	data := make([]map[string]any, len(names))
	for i, n := range names {
		data[i] = map[string]any{
			"id": n, "type": "channel", "name": n, "latest": latest[n],
			"links": map[string]string{"self": s.base + "/v1-release/channels/" + n},
		}
	}
	s.sendJSON(w, map[string]any{"type": "collection", "resourceType": "channels", "data": data})
}

func (s *server) channel(w http.ResponseWriter, r *http.Request) {
	if fail(w, s.currentFaults().ReleasesStatus) {
		return
	}
	_, latest, err := s.channelMap()
	tag, ok := latest[r.PathValue("channel")]
	if err == nil && !ok {
		err = os.ErrNotExist
	}
	if err != nil {
		s.send(w, "", nil, err)
		return
	}
	http.Redirect(w, r, s.base+"/releases/tag/"+url.QueryEscape(tag), http.StatusFound)
}

// fail plays a fault, if there is one.
func fail(w http.ResponseWriter, status int) bool {
	if status == 0 {
		return false
	}
	http.Error(w, http.StatusText(status), status)
	return true
}

func (s *server) sendJSON(w http.ResponseWriter, v any) {
	b, err := json.Marshal(v)
	s.send(w, "application/json; charset=utf-8", b, err)
}

func (s *server) send(w http.ResponseWriter, contentType string, b []byte, err error) {
	switch {
	case err == nil:
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Content-Length", strconv.Itoa(len(b)))
		if _, err := w.Write(b); err != nil {
			s.log.Debug("mirror: the client is gone", "error", err)
		}
	case isNotExist(err):
		http.Error(w, "Not Found", http.StatusNotFound)
	default:
		s.log.Error("mirror", "error", err)
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func number(r *http.Request, key string, otherwise int) int {
	if n, err := strconv.Atoi(r.URL.Query().Get(key)); err == nil && n > 0 {
		return n
	}
	return otherwise
}
