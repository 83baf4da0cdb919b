package k3s

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// serve makes a client of a releases API that the handler plays. Retries do not wait.
func serve(t *testing.T, token string, handler http.HandlerFunc) (*Client, *httptest.Server) {
	t.Helper()
	server := httptest.NewTLSServer(handler)
	t.Cleanup(server.Close)
	c, err := NewClient(server.URL+"/releases", Token{Secret: token, Origin: "the test"})
	if err != nil {
		t.Fatal(err)
	}
	c.http.HTTPClient.Transport = server.Client().Transport
	c.http.RetryWaitMin, c.http.RetryWaitMax = time.Millisecond, time.Millisecond
	return c, server
}

func mustList(t *testing.T, c *Client) ReleaseList {
	t.Helper()
	l, err := c.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// release is an entry of the API's answer. Every release is flagged as a pre-release, as k3s publishes them.
func release(tag string) string {
	return fmt.Sprintf(`{"tag_name":%q,"draft":false,"prerelease":true,"published_at":"2026-06-24T18:00:00Z","body":"notes","assets":[]}`, tag)
}

func answer(w http.ResponseWriter, releases ...string) {
	fmt.Fprintf(w, "[%s]", strings.Join(releases, ","))
}

func TestListPages(t *testing.T) {
	const token = "ghp_s3cr3t"
	var requests atomic.Int32
	c, server := serve(t, token, nil)
	server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		if r.URL.Query().Get("per_page") != "100" || r.Header.Get("Authorization") != "Bearer "+token ||
			r.Header.Get("Accept") != "application/vnd.github+json" {
			t.Errorf("asked for %s with %v", r.URL, r.Header)
		}
		switch r.URL.Query().Get("page") {
		case "":
			w.Header().Set("Link", `</releases?per_page=100&page=2>; rel="next", </releases?per_page=100&page=2>; rel="last"`)
			answer(w, release("v1.36.1+k3s1"), release("v1.36.2+k3s1"),
				strings.Replace(release("v1.36.3+k3s1"), `"draft":false`, `"draft":true`, 1), release("v1.36.3-rc1+k3s1"))
		case "2":
			w.Header().Set("Link", `</releases?per_page=100>; rel="prev", </releases?per_page=100>; rel="first"`)
			answer(w, release("v1.36.1+k3s1"), release("v1.31.9+k3s1"), release("v0.1.0"))
		default:
			t.Errorf("asked for %s", r.URL)
		}
	})
	l := mustList(t, c)
	if got, want := tags(l.Versions), "v1.36.3-rc1+k3s1 v1.36.2+k3s1 v1.36.1+k3s1 v1.31.9+k3s1"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if l.Source != SourceGitHub || l.Partial || l.Reason != "" {
		t.Errorf("source %q, partial %v, reason %q", l.Source, l.Partial, l.Reason)
	}
	if got := tags(Filter{}.Apply(l.Versions)); strings.Contains(got, "rc") || !strings.Contains(got, "v1.36.2+k3s1") {
		t.Errorf("the flag decides instead of the tag: %s", got)
	}

	l.Versions[0] = Version{}
	if again := mustList(t, c); requests.Load() != 2 || again.Versions[0] == (Version{}) {
		t.Errorf("a second List made %d requests in all, or shares its slice", requests.Load())
	}
}

func TestTokenStaysWithItsServer(t *testing.T) {
	var shown []string
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown = append(shown, r.Header.Get("Authorization"))
		answer(w, release("v1.36.2+k3s1"))
	}))
	t.Cleanup(elsewhere.Close)
	c, _ := serve(t, "ghp_s3cr3t", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/releases" {
			http.Redirect(w, r, "/moved", http.StatusFound)
			return
		}
		shown = append(shown, r.Header.Get("Authorization"))
		http.Redirect(w, r, elsewhere.URL, http.StatusFound)
	})
	if l := mustList(t, c); tags(l.Versions) != "v1.36.2+k3s1" || !slices.Equal(shown, []string{"Bearer ghp_s3cr3t", ""}) {
		t.Errorf("got %s; the servers were shown %q", tags(l.Versions), shown)
	}
}

func TestListFallsBack(t *testing.T) {
	for name, tt := range map[string]struct {
		token    string
		handler  http.HandlerFunc
		reason   []string
		requests int32
	}{
		"rate limit": {
			handler: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("X-Ratelimit-Remaining", "0")
				w.Header().Set("X-Ratelimit-Reset", "1796065200")
				w.WriteHeader(http.StatusForbidden)
				fmt.Fprint(w, `{"message":"API rate limit exceeded"}`)
			},
			reason: []string{"rate limit", "used up until 2026-11-30T19:00:00Z", "with a token"}, requests: 1,
		},
		"secondary limit": {
			token: "ghp_s3cr3t",
			handler: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "3600")
				w.WriteHeader(http.StatusTooManyRequests)
			},
			reason: []string{"rate limit"}, requests: 1,
		},
		"forbidden for another reason": {
			handler: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) },
			reason:  []string{"403 Forbidden"}, requests: 1,
		},
		"bad token": {
			token:   "ghp_s3cr3t",
			handler: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) },
			reason:  []string{"refuses the token of the test"}, requests: 1,
		},
		"server trouble": {
			handler: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Retry-After", "3600")
				w.WriteHeader(http.StatusServiceUnavailable)
			},
			reason: []string{"503 Service Unavailable"}, requests: 3,
		},
		"a page of a proxy": {
			handler: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>please log in</html>") },
			reason:  []string{"did not answer with a list of releases"}, requests: 1,
		},
		"cut": {
			handler: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "["+release("v1.36.1+k3s1")+",") },
			reason:  []string{"did not answer with a list of releases"}, requests: 1,
		},
		"nothing": {
			handler: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "[]") },
			reason:  []string{"lists no release of k3s"}, requests: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int32
			c, _ := serve(t, tt.token, func(w http.ResponseWriter, r *http.Request) {
				requests.Add(1)
				tt.handler(w, r)
			})
			l := mustList(t, c)
			if l.Source != SourceEmbedded || !slices.Contains(l.Versions, mustVersion(t, "v1.36.1+k3s1")) || len(l.Versions) < 60 {
				t.Errorf("source %q, %d releases", l.Source, len(l.Versions))
			}
			for _, part := range tt.reason {
				if !strings.Contains(l.Reason, part) {
					t.Errorf("reason %q lacks %q", l.Reason, part)
				}
			}
			if strings.Contains(l.Reason, "s3cr3t") || name == "bad token" && strings.Contains(l.Reason, "limit") {
				t.Errorf("reason %q", l.Reason)
			}
			if requests.Load() != tt.requests {
				t.Errorf("%d requests, want %d", requests.Load(), tt.requests)
			}
		})
	}
}

func TestListNoServer(t *testing.T) {
	c, server := serve(t, "ghp_s3cr3t", nil)
	server.Close()
	if l := mustList(t, c); l.Source != SourceEmbedded || l.Reason == "" || strings.Contains(l.Reason, "s3cr3t") {
		t.Errorf("source %q, reason %q", l.Source, l.Reason)
	}
}

// silence is a handler that never answers.
func silence(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

func TestListIsBounded(t *testing.T) {
	c, _ := serve(t, "", silence)
	if c.timeout > 15*time.Second {
		t.Errorf("List may take %s", c.timeout)
	}
	c.timeout = time.Millisecond
	if l := mustList(t, c); l.Source != SourceEmbedded || !strings.Contains(l.Reason, "did not answer within 1ms") {
		t.Errorf("source %q, reason %q", l.Source, l.Reason)
	}
}

func TestListEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c, _ := serve(t, "", func(w http.ResponseWriter, r *http.Request) {
		cancel()
		silence(w, r)
	})
	for _, call := range []string{"first", "second"} {
		if _, err := c.List(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%s call: %v", call, err)
		}
	}
}

func TestListPartial(t *testing.T) {
	for name, tt := range map[string]struct {
		second http.HandlerFunc
		reason string
		link   string
	}{
		"the second page fails": {
			link:   `</releases?page=2>; rel="next"`,
			second: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) },
			reason: "502 Bad Gateway",
		},
		"the second page is elsewhere": {
			link:   `<https://elsewhere.example.test/releases?page=2>; rel="next"`,
			second: func(http.ResponseWriter, *http.Request) {},
			reason: "not its own",
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, _ := serve(t, "", func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Get("page") == "2" {
					tt.second(w, r)
					return
				}
				w.Header().Set("Link", tt.link)
				answer(w, release("v1.36.2+k3s1"))
			})
			l := mustList(t, c)
			if l.Source != SourceGitHub || !l.Partial || tags(l.Versions) != "v1.36.2+k3s1" || !strings.Contains(l.Reason, tt.reason) {
				t.Errorf("got %s from %q, partial %v, reason %q", tags(l.Versions), l.Source, l.Partial, l.Reason)
			}
		})
	}
}

func TestListStopsAtCap(t *testing.T) {
	var requests atomic.Int32
	c, _ := serve(t, "", func(w http.ResponseWriter, _ *http.Request) {
		n := requests.Add(1)
		w.Header().Set("Link", fmt.Sprintf(`</releases?page=%d>; rel="next"`, n+1))
		answer(w, release(fmt.Sprintf("v1.%d.0+k3s1", 90-n)))
	})
	if l := mustList(t, c); len(l.Versions) != maxPages || requests.Load() != maxPages || l.Partial {
		t.Errorf("%d releases from %d requests, partial %v", len(l.Versions), requests.Load(), l.Partial)
	}
}

func TestNewClient(t *testing.T) {
	c, err := NewClient("", Token{})
	if err != nil || c.url.String() != DefaultReleasesURL+"?per_page=100" {
		t.Errorf("got %v, %v", c, err)
	}
	for _, u := range []string{"releases", "ftp://example.test/", "https://", "http://[::1", "https://user:s3cr3t@ example.test"} {
		if _, err := NewClient(u, Token{}); err == nil || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %v", u, err)
		}
	}
	if _, err := NewClient("http://mirror.example.test/releases", Token{Secret: "s3cr3t"}); err == nil || strings.Contains(err.Error(), "s3cr3t") {
		t.Errorf("a token for a plain URL: %v", err)
	}
}
