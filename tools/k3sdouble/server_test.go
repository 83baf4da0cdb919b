package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/kubeapi"
	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/pki"
	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/wire"
)

func TestToken(t *testing.T) {
	hash := strings.Repeat("a", 64)
	for text, want := range map[string]token{
		"secret": {secret: "secret"}, "se:cret\n": {secret: "se:cret"}, "K10" + hash + "::server:x:y": {hash, "server", "x:y"},
		"K10" + hash + "::node:z": {hash, "node", "z"},
	} {
		if got, err := parseToken(text); err != nil || got != want {
			t.Errorf("%q: got %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, bad := range []string{"", "\n", "K10abc::server:x", "K10" + hash, "K10" + hash + "::server:", "K10" + hash + "::server"} {
		if got, err := parseToken(bad); err == nil {
			t.Errorf("%q was read as %+v", bad, got)
		}
	}
	if got := formatToken("abc", "server", "x"); got != "K10ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad::server:x" {
		t.Errorf("formatted %s", got)
	}
}

// newOptions makes options without looking at the host.
func newOptions(t *testing.T, command string, args ...string) *options {
	t.Helper()
	v, err := parseFlags(flagsOf(command), args)
	if err != nil {
		t.Fatal(err)
	}
	return &options{command: command, values: v, version: "v1.35.5+k3s1", dataDir: t.TempDir(), nodeName: "node-1", nodeIP: net.ParseIP("192.0.2.1"), url: v.str("server", ""), token: v.str("token", "")}
}

func authority(t *testing.T, name string) *pki.Authority {
	t.Helper()
	a, err := pki.NewAuthority(name)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func keyPair(t *testing.T, a *pki.Authority) wire.KeyPair {
	t.Helper()
	c, k, err := a.PEM()
	if err != nil {
		t.Fatal(err)
	}
	return wire.KeyPair{Cert: c, Key: k}
}

// behind starts a server in front of a stand-in for the native API server, which tells who it was asked by.
func behind(t *testing.T) (s *server, url string, client func(*tls.Certificate) *http.Client) {
	t.Helper()
	serverCA, clientCA, frontCA := authority(t, "server-ca"), authority(t, "client-ca"), authority(t, "front-ca")
	api := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/version" {
			_, _ = io.WriteString(w, `{"gitVersion":"v1.36.1","major":"1","minor":"36"}`)
			return
		}
		who := "anonymous"
		if len(r.TLS.PeerCertificates) > 0 {
			who = r.TLS.PeerCertificates[0].Subject.CommonName + " for " + r.Header.Get("X-Remote-User") + " of " + strings.Join(r.Header.Values("X-Remote-Group"), ",")
		} else if r.Header.Get("X-Remote-User") != "" {
			who = "spoofed"
		}
		_, _ = io.WriteString(w, who+" "+r.Header.Get("Authorization"))
	}))
	apiCert, apiKey, err := serverCA.Issue(pki.Leaf{CommonName: "api", IPs: []net.IP{net.ParseIP("127.0.0.1")}, Server: true})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair([]byte(apiCert), []byte(apiKey))
	if err != nil {
		t.Fatal(err)
	}
	api.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	api.StartTLS()
	t.Cleanup(api.Close)

	s = &server{o: newOptions(t, "server"), secret: "s3cret", agentSecret: "agents", serverCA: serverCA, clientCA: clientCA}
	s.cluster = wire.Cluster{ServerCA: keyPair(t, serverCA), ClientCA: keyPair(t, clientCA)}
	s.api.Store(&api.URL)
	s.verifier = &verifier{roots: pki.Pool(s.cluster.ClientCA.Cert), known: map[[32]byte]time.Time{}}
	proxyCert, proxyKey, err := frontCA.Issue(pki.Leaf{CommonName: "system:auth-proxy", Client: true})
	if err != nil {
		t.Fatal(err)
	}
	front, err := tls.X509KeyPair([]byte(proxyCert), []byte(proxyKey))
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewUnstartedServer(s.supervisor(s.newProxy(front)))
	web.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	web.StartTLS()
	t.Cleanup(web.Close)
	return s, web.URL, func(cert *tls.Certificate) *http.Client {
		cfg := &tls.Config{RootCAs: pki.Pool(s.cluster.ServerCA.Cert), MinVersion: tls.VersionTLS12}
		if cert != nil {
			cfg.Certificates = []tls.Certificate{*cert}
		}
		return &http.Client{Transport: &http.Transport{TLSClientConfig: cfg}}
	}
}

func clientCert(t *testing.T, ca *pki.Authority, user string, groups ...string) *tls.Certificate {
	t.Helper()
	c, k, err := ca.Issue(pki.Leaf{CommonName: user, Organization: groups, Client: true})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair([]byte(c), []byte(k))
	if err != nil {
		t.Fatal(err)
	}
	return &pair
}

func ask(t *testing.T, c *http.Client, url string, header map[string]string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range header {
		req.Header.Set(k, v)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func TestProxy(t *testing.T) {
	s, url, client := behind(t)
	if code, body := ask(t, client(nil), url+"/api", nil); code != http.StatusServiceUnavailable || !strings.Contains(body, "apiserver not ready") {
		t.Errorf("before the API is ready: %d %s", code, body)
	}
	s.ready.Store(true)
	spoof := map[string]string{"X-Remote-User": "system:admin", "X-Remote-Group": "system:masters"}
	for name, c := range map[string]struct {
		cert   *tls.Certificate
		header map[string]string
		code   int
		want   string
	}{
		"nobody":              {nil, nil, 200, "anonymous "},
		"spoofed by nobody":   {nil, spoof, 200, "anonymous "},
		"bearer":              {nil, map[string]string{"Authorization": "Bearer x"}, 200, "anonymous Bearer x"},
		"certificate":         {clientCert(t, s.clientCA, "system:node:a", "system:nodes"), nil, 200, "system:auth-proxy for system:node:a of system:nodes "},
		"spoofed by a node":   {clientCert(t, s.clientCA, "system:node:a", "system:nodes"), spoof, 200, "system:auth-proxy for system:node:a of system:nodes "},
		"foreign certificate": {clientCert(t, authority(t, "other"), "system:admin", "system:masters"), nil, 401, "Unauthorized"},
	} {
		for range 2 { // the second time from memory
			if code, body := ask(t, client(c.cert), url+"/api", c.header); code != c.code || !strings.Contains(body, c.want) {
				t.Errorf("%s: %d %q, want %d %q", name, code, body, c.code, c.want)
			}
		}
	}
	if _, body := ask(t, client(nil), url+"/version", nil); !strings.Contains(body, `"gitVersion": "v1.35.5+k3s1"`) || !strings.Contains(body, `"minor": "35"`) {
		t.Errorf("version %s", body)
	}
}

func TestSupervisor(t *testing.T) {
	s, url, client := behind(t)
	plain := client(nil)
	if code, body := ask(t, plain, url+"/ping", nil); code != 200 || body != "pong" {
		t.Errorf("ping: %d %q", code, body)
	}
	if _, body := ask(t, plain, url+"/cacerts", nil); hashHex(body) != hashHex(s.cluster.ServerCA.Cert) {
		t.Error("/cacerts is not the CA that the token is hashed over")
	}
	basic := func(user, secret string) func(*http.Request) {
		return func(r *http.Request) { r.SetBasicAuth(user, secret) }
	}
	for name, c := range map[string]struct {
		path string
		auth func(*http.Request)
		code int
	}{
		"nobody":                 {"config", nil, 401},
		"wrong token":            {"config", basic("node", "wrong"), 401},
		"server token":           {"config", basic("node", "s3cret"), 200},
		"agent token":            {"config", basic("node", "agents"), 200},
		"agent token, as server": {"config", basic("server", "agents"), 401},
		"agent token, bootstrap": {"server-bootstrap", basic("node", "agents"), 403},
		"server token, sqlite":   {"server-bootstrap", basic("server", "s3cret"), 400},
		"not ready":              {"readyz", basic("node", "s3cret"), 503},
		"without password":       {"client-kubelet.crt", basic("node", "s3cret"), 400},
	} {
		_, err := fetch(t.Context(), plain, http.MethodGet, url+"/v1-k3s/"+c.path, c.auth, nil)
		code := 200
		if status, ok := err.(statusError); ok { //nolint:errorlint // fetch returns it as it is
			code = status.code
		} else if err != nil {
			t.Fatal(err)
		}
		if code != c.code {
			t.Errorf("%s: %d, want %d", name, code, c.code)
		}
	}
	if code, _ := ask(t, client(clientCert(t, s.clientCA, "system:node:a", "system:nodes")), url+"/v1-k3s/config", nil); code != 200 {
		t.Errorf("a node's certificate: %d, want 200", code)
	}
}

func TestConnectChecksTheCA(t *testing.T) {
	s, url, _ := behind(t)
	full := formatToken(s.cluster.ServerCA.Cert, "server", "s3cret")
	a, err := connect(t.Context(), url, full, "node")
	if err != nil {
		t.Fatal(err)
	}
	var shared sharedConfig
	if err := a.get(t.Context(), "/v1-k3s/config", &shared); err != nil || shared.FlannelBackend != "vxlan" {
		t.Errorf("config %+v, %v", shared, err)
	}
	other := formatToken("another CA", "server", "s3cret")
	if _, err := connect(t.Context(), url, other, "node"); err == nil || !strings.Contains(err.Error(), "token CA hash does not match the Cluster CA certificate hash") {
		t.Errorf("another CA's token: %v", err)
	}
	if a, err = connect(t.Context(), url, "wrong", "node"); err != nil {
		t.Fatal(err)
	}
	if err := a.get(t.Context(), "/v1-k3s/config", &shared); err == nil || !strings.HasSuffix(err.Error(), "/v1-k3s/config: 401 Unauthorized") {
		t.Errorf("a wrong secret: %v", err)
	}
}

func TestSignNode(t *testing.T) {
	s, url, client := behind(t)
	secrets := map[string]kubeapi.Secret{}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, secretsPath+"/")
		switch r.Method {
		case http.MethodPost:
			var secret kubeapi.Secret
			if err := json.NewDecoder(r.Body).Decode(&secret); err != nil {
				t.Error(err)
			}
			secrets[secret.Metadata.Name] = secret
		case http.MethodGet:
			secret, ok := secrets[name]
			if !ok {
				http.NotFound(w, r)
				return
			}
			sendJSON(w, secret)
		}
	}))
	t.Cleanup(api.Close)
	s.admin = &kubeapi.Client{Base: func() string { return api.URL }, HTTP: api.Client()}
	a := &access{url: url, user: "node", secret: "s3cret", http: client(nil)}
	csr, _, err := pki.NewRequest("ignored")
	if err != nil {
		t.Fatal(err)
	}
	id := nodeIdentity{name: "w-1", password: "pw", ip: "192.0.2.8"}
	for range 2 {
		text, err := a.nodeCert(t.Context(), "/v1-k3s/client-kubelet.crt", id, csr)
		if err != nil {
			t.Fatal(err)
		}
		pool := pki.Pool(s.cluster.ClientCA.Cert)
		cert := firstCert(t, text)
		if _, err := cert.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil || cert.Subject.CommonName != "system:node:w-1" ||
			!slices.Equal(cert.Subject.Organization, []string{"system:nodes"}) {
			t.Errorf("client certificate of %s: %v", cert.Subject, err)
		}
	}
	text, err := a.nodeCert(t.Context(), "/v1-k3s/serving-kubelet.crt", id, csr)
	if err != nil {
		t.Fatal(err)
	}
	if err := firstCert(t, text).VerifyHostname("192.0.2.8"); err != nil {
		t.Error(err)
	}
	secret := secrets["w-1.node-password.k3s"]
	if secret.Type != "k3s.cattle.io/node-password" || !secret.Immutable || strings.Contains(string(secret.Data["hash"]), "pw") {
		t.Errorf("secret %+v", secret)
	}
	id.password = "another machine's"
	if _, err := a.nodeCert(t.Context(), "/v1-k3s/client-kubelet.crt", id, csr); err == nil || !strings.HasPrefix(err.Error(), "Node password rejected, duplicate hostname") {
		t.Errorf("a wrong password: %v", err)
	}
}

func firstCert(t *testing.T, text []byte) *x509.Certificate {
	t.Helper()
	certs := strings.SplitAfter(string(text), "-----END CERTIFICATE-----\n")
	if len(certs) != 3 {
		t.Fatalf("%d certificates, want the node's and the CA's", len(certs)-1)
	}
	return parsePEM(t, certs[0])
}

func TestServerFiles(t *testing.T) {
	out := t.TempDir() + "/k3s.yaml"
	s := &server{o: newOptions(t, "server", "--write-kubeconfig", out, "--write-kubeconfig-mode", "644"), secret: "s3cret", member: "node-1-0"}
	s.serverCA, s.clientCA = authority(t, "server-ca"), authority(t, "client-ca")
	s.cluster = wire.Cluster{ID: "1", Key: "2", ServerCA: keyPair(t, s.serverCA), ClientCA: keyPair(t, s.clientCA)}
	var first string
	for range 2 {
		if err := s.writeFiles(); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		if first != "" && first != string(b) {
			t.Error("the kubeconfig changed over a restart")
		}
		first = string(b)
	}
	for _, want := range []string{"server: https://127.0.0.1:6443\n", "current-context: default\n", "  name: default\n"} {
		if !strings.Contains(first, want) {
			t.Errorf("the kubeconfig lacks %q", want)
		}
	}
	for file, want := range map[string]os.FileMode{
		out: 0o644, s.o.path("server", "token"): 0o600, s.o.path("server", "tls", "server-ca.key"): 0o600,
	} {
		if st, err := os.Stat(file); err != nil || st.Mode().Perm() != want {
			t.Errorf("%s: %v, %v, want %v", file, st.Mode(), err, want)
		}
	}
	for _, link := range []string{"node-token", "agent-token"} {
		b, err := os.ReadFile(s.o.path("server", link))
		target, _ := os.Readlink(s.o.path("server", link))
		if want := formatToken(s.cluster.ServerCA.Cert, "server", "s3cret") + "\n"; err != nil || string(b) != want || target != s.o.path("server", "token") {
			t.Errorf("%s -> %s: %q, %v", link, target, b, err)
		}
	}
}
