package kubeapi

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

func client(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return &Client{Base: func() string { return s.URL }, HTTP: s.Client()}
}

func TestErrors(t *testing.T) {
	for name, c := range map[string]struct {
		code int
		body string
		is   func(error) bool
		text string
	}{
		"status": {404, `{"kind":"Status","message":"nodes \"a\" not found","reason":"NotFound"}`, IsNotFound, `nodes "a" not found (404)`},
		"exists": {409, `{"message":"already exists"}`, IsConflict, "already exists (409)"},
		"text":   {503, "apiserver not ready\n", func(err error) bool { return IsCode(err, 503) }, "GET /x: apiserver not ready (503)"},
	} {
		api := client(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.code)
			_, _ = io.WriteString(w, c.body)
		})
		err := api.Get(t.Context(), "/x", nil)
		if err == nil || !c.is(err) || err.Error() != c.text {
			t.Errorf("%s: got %v, want %s", name, err, c.text)
		}
	}
}

func TestPatchSendsItsType(t *testing.T) {
	api := client(t, func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil || r.Method != http.MethodPatch || r.Header.Get("Content-Type") != StrategicPatch || string(b) != `{"a":1}` {
			t.Errorf("got %s %s %q, %v", r.Method, r.Header.Get("Content-Type"), b, err)
		}
		_, _ = io.WriteString(w, `{"metadata":{"name":"n"}}`)
	})
	var n Node
	if err := api.Patch(t.Context(), "/n", StrategicPatch, map[string]int{"a": 1}, &n); err != nil || n.Metadata.Name != "n" {
		t.Errorf("got %+v, %v", n, err)
	}
}

func TestWatch(t *testing.T) {
	events := `{"type":"ADDED","object":{"metadata":{"name":"a"}}}{"type":"DELETED","object":{"metadata":{"name":"b"}}}`
	var got []string
	collect := func(e Event[Pod]) error {
		got = append(got, e.Type+" "+e.Object.Metadata.Name)
		return nil
	}
	api := client(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, events) })
	if err := Watch(t.Context(), api, "/pods", collect); !errors.Is(err, io.EOF) || len(got) != 2 || got[1] != "DELETED b" {
		t.Errorf("got %v, %v", got, err)
	}
	api = client(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"type":"ERROR","object":{"code":410,"message":"too old resource version"}}`)
	})
	if err := Watch(t.Context(), api, "/pods", collect); !IsCode(err, http.StatusGone) {
		t.Errorf("an expired watch: %v", err)
	}
}

func TestMicroTime(t *testing.T) {
	if got := MicroTime(time.Date(2026, 11, 30, 13, 4, 5, 6000, time.FixedZone("", 3600))); got != "2026-11-30T12:04:05.000006Z" {
		t.Errorf("got %s", got)
	}
}
