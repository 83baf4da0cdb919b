package k3s

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"time"
)

// access is a CA with a client certificate, all PEM.
type access struct{ ca, cert, key []byte }

var expiry = time.Date(2027, 11, 30, 12, 0, 0, 0, time.UTC)

func newAccess(t testing.TB) access {
	t.Helper()
	caKey, clientKey := newKey(t), newKey(t)
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "k3s-server-ca@1"},
		NotAfter: expiry.AddDate(9, 0, 0), IsCA: true, BasicConstraintsValid: true,
	}
	client := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "system:admin"}, NotAfter: expiry}
	caPEM := newCertificate(t, ca, ca, caKey, caKey)
	// k3s puts the CA of clients behind the client's certificate.
	certPEM := append(newCertificate(t, client, ca, clientKey, caKey), caPEM...)
	der, err := x509.MarshalECPrivateKey(clientKey)
	if err != nil {
		t.Fatal(err)
	}
	return access{caPEM, certPEM, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newCertificate(t testing.TB, c, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), parentKey)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// file is a k3s.yaml as k3s writes it.
func (a access) file(server, name string) []byte {
	b64 := base64.StdEncoding.EncodeToString
	return fmt.Appendf(nil, `apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: %s
    server: %s
  name: %[3]s
contexts:
- context:
    cluster: %[3]s
    user: %[3]s
  name: %[3]s
current-context: %[3]s
kind: Config
preferences: {}
users:
- name: %[3]s
  user:
    client-certificate-data: %[4]s
    client-key-data: %[5]s
`, b64(a.ca), server, name, b64(a.cert), b64(a.key))
}

func TestParseKubeconfig(t *testing.T) {
	a := newAccess(t)
	raw := a.file("https://127.0.0.1:6443", "default")
	k, err := ParseKubeconfig(raw, "prod", "192.0.2.10")
	if err != nil {
		t.Fatal(err)
	}
	if k.Endpoint != "https://192.0.2.10:6443" || k.Host != "192.0.2.10" || !k.ExpiresAt.Equal(expiry) {
		t.Errorf("endpoint %q, host %q, expires %v", k.Endpoint, k.Host, k.ExpiresAt)
	}
	if !bytes.Equal(k.CACertificate, a.ca) || !bytes.Equal(k.ClientCertificate, a.cert) || !bytes.Equal(k.ClientKey, a.key) {
		t.Error("certificates or key differ from the file's")
	}
	// The golden layout: as kubectl writes it.
	want := strings.ReplaceAll(string(a.file("https://192.0.2.10:6443", "prod")), "preferences: {}\n", "")
	if string(k.Raw) != want {
		t.Errorf("got\n%s\nwant\n%s", k.Raw, want)
	}
	again, err := ParseKubeconfig(k.Raw, "prod", "192.0.2.99")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(again.Raw, k.Raw) {
		t.Errorf("parsed again it is\n%s", again.Raw)
	}
}

func TestKubeconfigServer(t *testing.T) {
	a := newAccess(t)
	tests := []struct{ server, host, endpoint, bare string }{
		{"https://127.0.0.1:6443", "192.0.2.10", "https://192.0.2.10:6443", "192.0.2.10"},
		{"https://127.1.2.3:6443", "192.0.2.10", "https://192.0.2.10:6443", "192.0.2.10"},
		{"https://localhost:6443", "192.0.2.10", "https://192.0.2.10:6443", "192.0.2.10"},
		{"https://LOCALHOST.:6443", "192.0.2.10", "https://192.0.2.10:6443", "192.0.2.10"},
		{`"https://[::1]:6443"`, "2001:db8::10", "https://[2001:db8::10]:6443", "2001:db8::10"},
		{`"https://[0:0:0:0:0:0:0:1]:6443"`, "[2001:db8::10]", "https://[2001:db8::10]:6443", "2001:db8::10"},
		{`"https://[::ffff:127.0.0.1]:6443"`, "192.0.2.10", "https://192.0.2.10:6443", "192.0.2.10"},
		{"https://0.0.0.0:6443", "192.0.2.10", "https://192.0.2.10:6443", "192.0.2.10"},
		{`"https://[::]:6443"`, "192.0.2.10", "https://192.0.2.10:6443", "192.0.2.10"},
		{"https://127.0.0.1:7443", "k3s.example.test", "https://k3s.example.test:7443", "k3s.example.test"},
		{"https://127.0.0.1:6443/", "k3s.example.test:443", "https://k3s.example.test:443", "k3s.example.test"},
		{"https://127.0.0.1:6443", "[2001:db8::10]:8443", "https://[2001:db8::10]:8443", "2001:db8::10"},
		{"https://127.0.0.1", "2001:db8::10", "https://[2001:db8::10]", "2001:db8::10"},
		{"https://192.0.2.77:6443", "192.0.2.10", "https://192.0.2.77:6443", "192.0.2.77"},
		{`"https://[2001:db8::77]:6443"`, "192.0.2.10", "https://[2001:db8::77]:6443", "2001:db8::77"},
	}
	for _, tt := range tests {
		k, err := ParseKubeconfig(a.file(tt.server, "default"), "prod", tt.host)
		if err != nil || k.Endpoint != tt.endpoint || k.Host != tt.bare {
			t.Errorf("%s to %s: %q, %q, %v; want %q, %q", tt.server, tt.host, k.Endpoint, k.Host, err, tt.endpoint, tt.bare)
		}
	}
	for _, host := range []string{"", "fe80::1%eth0", "a/b", "a b", "https://192.0.2.10", "user@host", "192.0.2.10:x", "192.0.2.10:99999", "[", "a:b:c"} {
		if k, err := ParseKubeconfig(a.file("https://127.0.0.1:6443", "default"), "prod", host); err == nil {
			t.Errorf("host %q: accepted as %q", host, k.Endpoint)
		}
	}
	for _, server := range []string{"http://127.0.0.1:6443", "127.0.0.1:6443", `""`, `"https://:6443"`, `"https://[::1"`} {
		if k, err := ParseKubeconfig(a.file(server, "default"), "prod", "192.0.2.10"); err == nil {
			t.Errorf("server %s: accepted as %q", server, k.Endpoint)
		}
	}
}

// However much of a file arrives, less than all of it never passes for a kubeconfig.
func TestKubeconfigCut(t *testing.T) {
	a := newAccess(t)
	raw := a.file("https://127.0.0.1:6443", "default")
	for n := range len(raw) - 1 { // without the last newline it is whole
		k, err := ParseKubeconfig(raw[:n], "prod", "192.0.2.10")
		if err == nil {
			t.Fatalf("cut to %d of %d bytes: accepted as\n%s", n, len(raw), k.Raw)
		}
		leakFree(t, a, err.Error())
	}
}

func TestKubeconfigRefuses(t *testing.T) {
	a, other := newAccess(t), newAccess(t)
	const server = "https://127.0.0.1:6443"
	swap := func(old, new string) []byte {
		return bytes.ReplaceAll(a.file(server, "default"), []byte(old), []byte(new))
	}
	b64 := base64.StdEncoding.EncodeToString
	for name, raw := range map[string][]byte{
		"empty":                     nil,
		"no mapping":                []byte("- a\n"),
		"a key of another":          access{a.ca, a.cert, other.key}.file(server, "default"),
		"no CA":                     access{nil, a.cert, a.key}.file(server, "default"),
		"no certificate":            access{a.ca, nil, a.key}.file(server, "default"),
		"no key":                    access{a.ca, a.cert, nil}.file(server, "default"),
		"a CA that is a key":        access{a.key, a.cert, a.key}.file(server, "default"),
		"a CA that is text":         access{[]byte("CA"), a.cert, a.key}.file(server, "default"),
		"a key with text behind it": access{a.ca, a.cert, append(bytes.Clone(a.key), "more"...)}.file(server, "default"),
		"no base64":                 swap(b64(a.key), "***"),
		"another current context":   swap("current-context: default", "current-context: other"),
		"no such user":              swap("user: default", "user: other"),
		"no such cluster":           swap("cluster: default", "cluster: other"),
		"a key that is a list":      swap("client-key-data: ", "client-key-data: [x]\n    y: "),
	} {
		k, err := ParseKubeconfig(raw, "prod", "192.0.2.10")
		if err == nil {
			t.Errorf("%s: accepted as\n%s", name, k.Raw)
			continue
		}
		leakFree(t, a, err.Error())
	}
	if _, err := ParseKubeconfig(a.file(server, "default"), "", "192.0.2.10"); err == nil {
		t.Error("no name: accepted")
	}
}

func TestKubeconfigPrintsNoKey(t *testing.T) {
	a := newAccess(t)
	k, err := ParseKubeconfig(a.file("https://127.0.0.1:6443", "default"), "prod", "192.0.2.10")
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		for _, text := range []string{fmt.Sprintf(verb, k), fmt.Sprintf(verb, &k)} {
			leakFree(t, a, text)
			if !strings.Contains(text, "https://192.0.2.10:6443") {
				t.Errorf("%s gives %s", verb, text)
			}
		}
	}
}

// leakFree fails where a text holds a piece of the key, plain or encoded.
func leakFree(t *testing.T, a access, text string) {
	t.Helper()
	for _, secret := range []string{string(a.key), base64.StdEncoding.EncodeToString(a.key)} {
		body := secret[40:60] // past what every key begins with
		if strings.Contains(text, body) || strings.Contains(text, secret[:12]) {
			t.Errorf("the key shows in %q", text)
		}
	}
}

func FuzzParseKubeconfig(f *testing.F) {
	a := newAccess(f)
	f.Add(a.file("https://127.0.0.1:6443", "default"), "prod", "192.0.2.10")
	f.Add(a.file("https://[::]", "default"), "a b", "[2001:db8::1]:1")
	f.Add([]byte("clusters: [{name: a}]\n"), "x", "h")
	f.Fuzz(func(t *testing.T, raw []byte, name, host string) {
		k, err := ParseKubeconfig(raw, name, host)
		if err != nil {
			if k.Raw != nil || k.ClientKey != nil {
				t.Error("a kubeconfig beside an error")
			}
			return
		}
		again, err := ParseKubeconfig(k.Raw, name, host)
		if err != nil || !bytes.Equal(again.Raw, k.Raw) {
			t.Errorf("parsed again: %v, %q", err, again.Raw)
		}
	})
}
