package main

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"testing"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/pki"
)

func TestSANs(t *testing.T) {
	o := newOptions(t, "server", "--tls-san", "lb.example,203.0.113.9", "--tls-san=2001:db8::5", "--advertise-address", "198.51.100.3", "--service-cidr", "10.96.0.0/16")
	o.extraIPs = []net.IP{net.ParseIP("203.0.113.1")}
	s, err := newServing(o, authority(t, "server-ca"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"127.0.0.1", "::1", "localhost", "node-1", "192.0.2.1", "203.0.113.1", "10.96.0.1", "198.51.100.3", "lb.example", "203.0.113.9", "2001:db8::5",
		"kubernetes.default.svc.cluster.local",
	} {
		if err := s.cert.Leaf.VerifyHostname(want); err != nil {
			t.Errorf("%s: %v", want, err)
		}
	}
	if err := s.cert.Leaf.VerifyHostname("other.example"); err == nil {
		t.Error("a name that nobody asked for is in the certificate")
	}
}

// A restart adds names, takes none off, and leaves a certificate alone that has them all.
func TestSANsOverRestarts(t *testing.T) {
	ca, dir := authority(t, "server-ca"), t.TempDir()
	start := func(ca *pki.Authority, args ...string) *x509.Certificate {
		t.Helper()
		o := newOptions(t, "server", args...)
		o.dataDir = dir
		s, err := newServing(o, ca)
		if err != nil {
			t.Fatal(err)
		}
		return s.cert.Leaf
	}
	first := start(ca)
	if !start(ca).Equal(first) {
		t.Error("a restart without a change made another certificate")
	}
	second := start(ca, "--tls-san=lb.example,203.0.113.9")
	third := start(ca, "--tls-san=other.example")
	for name, want := range map[string][3]bool{
		"node-1": {true, true, true}, "192.0.2.1": {true, true, true}, "lb.example": {false, true, true}, "203.0.113.9": {false, true, true},
		"other.example": {false, false, true},
	} {
		for i, c := range []*x509.Certificate{first, second, third} {
			if got := c.VerifyHostname(name) == nil; got != want[i] {
				t.Errorf("start %d: valid for %s: %v, want %v", i+1, name, got, want[i])
			}
		}
	}
	if other := authority(t, "another-ca"); start(other).CheckSignatureFrom(other.Cert) != nil {
		t.Error("the certificate of another CA was kept")
	}
}

func TestTLSSANSecurity(t *testing.T) {
	for flag, want := range map[string]bool{"--tls-san-security=true": false, "--tls-san-security=false": true, "--debug": false} {
		s, err := newServing(newOptions(t, "server", flag), authority(t, "server-ca"))
		if err != nil {
			t.Fatal(err)
		}
		cert, err := s.certificate(&tls.ClientHelloInfo{ServerName: "floating.example"})
		if err != nil {
			t.Fatal(err)
		}
		if got := cert.Leaf.VerifyHostname("floating.example") == nil; got != want {
			t.Errorf("%s: name added %v, want %v", flag, got, want)
		}
	}
}
