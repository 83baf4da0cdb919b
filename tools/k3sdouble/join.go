package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/pki"
)

const supervisorTimeout = 10 * time.Second

// access is a validated way to a supervisor: its URL, its CA and the credentials of a token.
type access struct {
	url, caPEM   string
	user, secret string
	http         *http.Client
}

// connect fetches the CA of the server at url and checks it against the token. The user of the short form is given.
func connect(ctx context.Context, url, tok, user string) (*access, error) {
	t, err := parseToken(tok)
	if err != nil {
		return nil, err
	}
	if t.user == "" {
		t.user = user
	}
	insecure := &http.Client{Timeout: supervisorTimeout, Transport: &http.Transport{
		// The CA is what is being fetched; the token's hash vouches for it.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
	}}
	defer insecure.CloseIdleConnections()
	ca, err := fetch(ctx, insecure, http.MethodGet, url+"/cacerts", nil, nil)
	if err != nil {
		return nil, fmt.Errorf("failed to get CA certs: %w", err)
	}
	if t.caHash == "" {
		log.warnf("Cluster CA certificate is not trusted by the host CA bundle, but the token does not include a CA hash. " +
			"Use the full token from the server's node-token file to enable Cluster CA validation.")
	} else if got := hashHex(string(ca)); got != t.caHash {
		return nil, fmt.Errorf("token CA hash does not match the Cluster CA certificate hash: %s != %s", t.caHash, got)
	}
	a := &access{url: url, caPEM: string(ca), user: t.user, secret: t.secret, http: &http.Client{
		Timeout: supervisorTimeout, Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: pki.Pool(string(ca)), MinVersion: tls.VersionTLS12}, IdleConnTimeout: 30 * time.Second,
		},
	}}
	if _, err := fetch(ctx, a.http, http.MethodGet, url+"/cacerts", nil, nil); err != nil {
		return nil, fmt.Errorf("CA cert validation failed: %w", err)
	}
	return a, nil
}

// get reads a supervisor path as JSON.
func (a *access) get(ctx context.Context, path string, out any) error {
	b, err := fetch(ctx, a.http, http.MethodGet, a.url+path, a.authorize, nil)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("decoding %s: %w", path, err)
	}
	return nil
}

// nodeCert asks for a certificate of the node over a signing request, proving to be the node by its password.
func (a *access) nodeCert(ctx context.Context, path string, n nodeIdentity, csr []byte) ([]byte, error) {
	b, err := fetch(ctx, a.http, http.MethodPost, a.url+path, func(r *http.Request) {
		a.authorize(r)
		r.Header.Set("k3s-Node-Name", n.name)
		r.Header.Set("k3s-Node-Password", n.password)
		r.Header.Set("k3s-Node-IP", n.ip)
	}, csr)
	var status statusError
	if errors.As(err, &status) && status.code == http.StatusForbidden {
		return nil, fmt.Errorf("Node password rejected, duplicate hostname or contents of '%s' may not match server node-passwd entry, "+ //nolint:staticcheck // k3s's own words
			"try enabling a unique node name with the --with-node-id flag", passwordFile)
	}
	return b, err
}

func (a *access) authorize(r *http.Request) { r.SetBasicAuth(a.user, a.secret) }

// statusError is an answer that is no success.
type statusError struct {
	url, status string
	code        int
}

func (e statusError) Error() string { return e.url + ": " + e.status }

func fetch(ctx context.Context, c *http.Client, method, url string, prepare func(*http.Request), body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if prepare != nil {
		prepare(req)
	}
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return nil, statusError{url, resp.Status, resp.StatusCode}
	}
	return io.ReadAll(resp.Body)
}

// hostPort returns the host and port of an https URL.
func hostPort(url string) string {
	h := strings.TrimPrefix(url, "https://")
	h, _, _ = strings.Cut(h, "/")
	if i := strings.LastIndexByte(h, ':'); i < 0 || strings.HasSuffix(h, "]") {
		h += ":443"
	}
	return h
}
