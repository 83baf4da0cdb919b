package main

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"io"
	stdlog "log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/pki"
)

// apiProxy passes requests on to the native kube-apiserver. Holders of a client certificate are passed on under their
// name by the front-proxy method; bearer tokens go through as they are, over a connection without a certificate.
type apiProxy struct {
	verifier   *verifier
	named      http.Handler
	namedOld   http.Handler // HTTP/1.1, for upgraded connections
	plain      http.Handler
	plainOld   http.Handler
	unverified func(w http.ResponseWriter)
}

// frontProxy adds an identity to requests: what the native API server believes from the holder of the front-proxy
// certificate.
type frontProxy struct {
	base http.RoundTripper
	id   identity
}

// RoundTrip implements http.RoundTripper.
func (f frontProxy) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	setIdentity(r.Header, f.id)
	return f.base.RoundTrip(r)
}

func setIdentity(h http.Header, id identity) {
	h.Set("X-Remote-User", id.user)
	h["X-Remote-Group"] = id.groups
}

// apiTransport connects to the native API server; with a certificate it is the front proxy.
func apiTransport(caPEM string, cert *tls.Certificate, http2 bool) *http.Transport {
	cfg := &tls.Config{RootCAs: pki.Pool(caPEM), MinVersion: tls.VersionTLS12}
	if cert != nil {
		cfg.Certificates = []tls.Certificate{*cert}
	}
	return &http.Transport{
		TLSClientConfig: cfg, ForceAttemptHTTP2: http2, IdleConnTimeout: 90 * time.Second, MaxIdleConnsPerHost: 8,
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
}

func (s *server) newProxy(cert tls.Certificate) *apiProxy {
	ca := s.cluster.ServerCA.Cert
	return &apiProxy{
		verifier: s.verifier,
		named:    s.reverse(apiTransport(ca, &cert, true)), namedOld: s.reverse(apiTransport(ca, &cert, false)),
		plain: s.reverse(apiTransport(ca, nil, true)), plainOld: s.reverse(apiTransport(ca, nil, false)),
		unverified: func(w http.ResponseWriter) { sendStatus(w, http.StatusUnauthorized, "Unauthorized", "Unauthorized") },
	}
}

func (s *server) reverse(t http.RoundTripper) http.Handler {
	return &httputil.ReverseProxy{
		Transport: t, FlushInterval: -1, ErrorLog: stdlog.New(io.Discard, "", 0),
		Rewrite: func(r *httputil.ProxyRequest) {
			target, err := url.Parse(*s.api.Load())
			if err != nil {
				return // the URL is the lab's own
			}
			r.SetURL(target)
			r.Out.Host = ""
		},
		ModifyResponse: s.rewriteVersion,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			sendStatus(w, http.StatusServiceUnavailable, "ServiceUnavailable", "apiserver not ready")
		},
	}
}

// ServeHTTP implements http.Handler.
func (p *apiProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Remote-") {
			r.Header.Del(name)
		}
	}
	id, err := p.verifier.identify(r)
	if err != nil {
		p.unverified(w)
		return
	}
	upgrade := r.Header.Get("Upgrade") != ""
	switch {
	case id != nil:
		r.Header.Del("Authorization")
		setIdentity(r.Header, *id)
		choose(upgrade, p.namedOld, p.named).ServeHTTP(w, r)
	default:
		choose(upgrade, p.plainOld, p.plain).ServeHTTP(w, r)
	}
}

func choose(first bool, a, b http.Handler) http.Handler {
	if first {
		return a
	}
	return b
}

// rewriteVersion makes /version tell this k3s's version instead of that of the control plane behind it.
func (s *server) rewriteVersion(resp *http.Response) error {
	if resp.Request.URL.Path != "/version" || resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Encoding") != "" {
		return nil
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err != nil {
		return err
	}
	info := map[string]any{}
	if err := json.Unmarshal(b, &info); err != nil {
		return err
	}
	info["gitVersion"] = s.o.version
	if parts := strings.SplitN(strings.TrimPrefix(s.o.version, "v"), ".", 3); len(parts) == 3 {
		info["major"], info["minor"] = parts[0], parts[1]
	}
	if b, err = json.MarshalIndent(info, "", "  "); err != nil {
		return err
	}
	resp.Body = io.NopCloser(bytes.NewReader(b))
	resp.ContentLength = int64(len(b))
	resp.Header.Set("Content-Length", strconv.Itoa(len(b)))
	return nil
}

// sendStatus answers with a Kubernetes Status.
func sendStatus(w http.ResponseWriter, code int, reason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	// A caller that is gone needs no answer.
	_ = json.NewEncoder(w).Encode(map[string]any{
		"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{}, "status": "Failure", "message": message, "reason": reason, "code": code,
	})
}
