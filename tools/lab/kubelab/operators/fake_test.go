package operators

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/kubeapi"
)

// world is an API server that keeps objects by their paths, merges every patch, and knows nothing of kinds.
type world struct {
	t       *testing.T
	mu      sync.Mutex
	objects map[string]object
}

// collections are the last parts of paths that list objects.
var collections = []string{
	"daemonsets", "deployments", "nodes", "persistentvolumeclaims", "persistentvolumes", "pods", "settings", "storageclasses",
}

func newWorld(t *testing.T) (*world, *Operators) {
	t.Helper()
	w := &world{t: t, objects: map[string]object{}}
	s := httptest.NewServer(w)
	t.Cleanup(s.Close)
	return w, New(&kubeapi.Client{Base: func() string { return s.URL }, HTTP: s.Client()})
}

func (w *world) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := strings.TrimSuffix(strings.TrimSuffix(r.URL.Path, "/status"), "/")
	var body object
	if b, err := io.ReadAll(r.Body); err != nil || len(b) > 0 && json.Unmarshal(b, &body) != nil {
		w.t.Errorf("%s %s: body %q, %v", r.Method, at, b, err)
	}
	have, ok := w.objects[at]
	switch {
	case r.Method == http.MethodPatch:
		if !ok {
			have = object{}
			w.objects[at] = have
		}
		merge(have, body)
	case r.Method == http.MethodPost:
		name, _ := body["metadata"].(object)["name"].(string)
		if at += "/" + name; w.objects[at] != nil {
			out.WriteHeader(http.StatusConflict)
			return
		}
		w.objects[at], have = body, body
	case r.Method == http.MethodGet && slices.Contains(collections, path.Base(at)):
		have = object{"items": w.list(at, r.URL.Query().Get("labelSelector"))}
	case !ok:
		out.WriteHeader(http.StatusNotFound)
		return
	case r.Method == http.MethodDelete:
		delete(w.objects, at)
	}
	if err := json.NewEncoder(out).Encode(have); err != nil {
		w.t.Error(err)
	}
}

// list returns the objects of a collection, in all namespaces where none is named.
func (w *world) list(at, selector string) []object {
	found := []object{}
	group, plural := path.Split(at)
	for _, key := range slices.Sorted(maps.Keys(w.objects)) {
		if !strings.HasPrefix(key, group) || path.Base(path.Dir(key)) != plural {
			continue
		}
		labels, _ := w.objects[key]["metadata"].(object)["labels"].(object)
		name, value, _ := strings.Cut(selector, "=")
		if selector == "" || labels[name] == value {
			found = append(found, w.objects[key])
		}
	}
	return found
}

func merge(into, from object) {
	for k, v := range from {
		inner, ok := v.(object)
		have, was := into[k].(object)
		if ok && was {
			merge(have, inner)
			continue
		}
		into[k] = v
	}
}

// put makes an object from JSON.
func (w *world) put(at, text string) {
	w.t.Helper()
	var o object
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		w.t.Fatal(err)
	}
	meta, _ := o["metadata"].(object)
	if meta == nil {
		meta = object{}
		o["metadata"] = meta
	}
	meta["name"] = path.Base(at)
	if _, rest, ok := strings.Cut(at, "/namespaces/"); ok {
		meta["namespace"], _, _ = strings.Cut(rest, "/")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.objects[at] = o
}

func (w *world) drop(at string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.objects, at)
}

// get returns a field of an object as JSON, "" where it is not there.
func (w *world) get(at string, field ...string) string {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	o, ok := w.objects[at]
	if !ok {
		return ""
	}
	var v any = o
	for _, f := range field {
		m, _ := v.(object)
		v = m[f]
	}
	b, err := json.Marshal(v)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(b)
}

// available makes a Deployment or DaemonSet that runs.
func (w *world) available(at string) {
	w.put(at, `{"status":{"replicas":1,"availableReplicas":1}}`)
}

func step(t *testing.T, o *Operators) {
	t.Helper()
	if err := o.step(t.Context()); err != nil {
		t.Fatal(err)
	}
}
