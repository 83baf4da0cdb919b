package provider

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/k3s"
)

func TestKubeconfig(t *testing.T) {
	w := newWorld(t, object{})
	end := time.Now().Add(300 * 24 * time.Hour).UTC().Truncate(time.Second)
	w.engine.kube = k3s.Kubeconfig{
		Name: "prod", Raw: []byte("raw"), Endpoint: "https://192.0.2.10:6443", Host: "192.0.2.10",
		CACertificate: []byte("ca"), ClientCertificate: []byte("cert"), ClientKey: []byte("key"), ExpiresAt: end,
	}
	got, diags := w.data("cockpit_kubeconfig", object{"cluster_id": clusterID})
	wantDiags(t, diags)
	want := object{
		"cluster_id": clusterID, "raw": "raw", "filename": "kubeconfig-prod.yaml", "endpoint": "https://192.0.2.10:6443", "host": "192.0.2.10",
		"cluster_ca_certificate": "ca", "client_certificate": "cert", "client_key": "key", "expires_at": end.Format(time.RFC3339),
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}

	for _, tt := range []struct {
		left time.Duration
		want string
	}{
		{10*24*time.Hour + time.Hour, `The client certificate of cluster "prod" expires on `},
		{-time.Hour, `The client certificate of cluster "prod" expired on `},
	} {
		w.engine.kube.ExpiresAt = time.Now().Add(tt.left)
		got, diags = w.data("cockpit_kubeconfig", object{"cluster_id": clusterID})
		wantDiags(t, diags, "warning at : "+tt.want, "Restart k3s")
		if got["raw"] != "raw" {
			t.Errorf("a certificate that ends hides the kubeconfig: %v", got)
		}
	}

	w.engine.err = errors.New("server prod-cp-1 is stopped")
	_, diags = w.data("cockpit_kubeconfig", object{"cluster_id": clusterID})
	wantDiags(t, diags, `Unable to read kubeconfig of cluster "`+clusterID, "Server prod-cp-1 is stopped.", "-target")
}

// releaseList is what GitHub would answer.
func releaseList(t *testing.T, tags ...string) k3s.ReleaseList {
	t.Helper()
	l := k3s.ReleaseList{Source: k3s.SourceGitHub}
	for _, tag := range tags {
		v, err := k3s.ParseVersion(tag)
		if err != nil {
			t.Fatal(err)
		}
		l.Versions = append(l.Versions, v)
	}
	return l
}

func TestVersions(t *testing.T) {
	full := releaseList(t, "v1.37.0-rc1+k3s1", "v1.36.1+k3s1", "v1.36.0+k3s1", "v1.35.5+k3s1")
	embedded := releaseList(t, "v1.36.1+k3s1")
	embedded.Source, embedded.Reason = k3s.SourceEmbedded, "the rate limit is used up"
	partial := releaseList(t, "v1.36.1+k3s1")
	partial.Partial, partial.Reason = true, "api.github.com answered 502"

	for name, tt := range map[string]struct {
		list     k3s.ReleaseList
		config   object
		versions []any
		latest   any
		source   string
		want     []string
	}{
		"all":                {full, object{}, []any{"v1.36.1+k3s1", "v1.36.0+k3s1", "v1.35.5+k3s1"}, "v1.36.1+k3s1", "github", nil},
		"minor":              {full, object{"minor": "v1.35"}, []any{"v1.35.5+k3s1"}, "v1.35.5+k3s1", "github", nil},
		"release candidates": {full, object{"minor": "1.37", "include_prereleases": true}, []any{"v1.37.0-rc1+k3s1"}, nil, "github", nil},
		"embedded": {embedded, object{}, []any{"v1.36.1+k3s1"}, "v1.36.1+k3s1", "embedded",
			[]string{"warning at : The list of k3s versions is the one that came with the provider\nWhy: the rate limit is used up."}},
		"partial": {partial, object{}, []any{"v1.36.1+k3s1"}, "v1.36.1+k3s1", "github",
			[]string{"warning at : The list of k3s versions is not complete\nWhy: api.github.com answered 502."}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, object{})
			w.releases.list = tt.list
			got, diags := w.data("cockpit_k3s_versions", tt.config)
			wantDiags(t, diags, tt.want...)
			if fmt.Sprint(got["versions"]) != fmt.Sprint(tt.versions) || got["latest"] != tt.latest || got["source"] != tt.source {
				t.Errorf("got %v", got)
			}
		})
	}
	t.Run("none", func(t *testing.T) {
		w := newWorld(t, object{})
		w.releases.list = full
		_, diags := w.data("cockpit_k3s_versions", object{"minor": "1.20"})
		wantDiags(t, diags, `Unable to list k3s versions "1.20"`, "The list has no release of k3s 1.20.")
		w.releases.list = embedded
		_, diags = w.data("cockpit_k3s_versions", object{"minor": "v1.99"})
		wantDiags(t, diags, `Unable to list k3s versions "v1.99"`, "The list that came with the provider has no release of k3s 1.99.")
	})
}
