package main

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"net/http"
	"slices"
	"sync"
	"time"
)

// identity is who a client certificate says its holder is.
type identity struct {
	user   string
	groups []string
}

// verifier checks client certificates against the cluster's client CA. A verdict is remembered, since a signature
// check is felt on an emulated CPU.
type verifier struct {
	roots *x509.CertPool

	mu    sync.Mutex
	known map[[sha256.Size]byte]time.Time // to the certificate's end
}

// maxKnown bounds the memory of verdicts.
const maxKnown = 1024

// identify returns the identity of a request's client certificate: none is neither an identity nor an error.
func (v *verifier) identify(r *http.Request) (*identity, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, nil //nolint:nilnil // see above
	}
	cert := r.TLS.PeerCertificates[0]
	sum := sha256.Sum256(cert.Raw)
	v.mu.Lock()
	until, ok := v.known[sum]
	v.mu.Unlock()
	if !ok || time.Now().After(until) {
		intermediates := x509.NewCertPool()
		for _, c := range r.TLS.PeerCertificates[1:] {
			intermediates.AddCert(c)
		}
		if _, err := cert.Verify(x509.VerifyOptions{
			Roots: v.roots, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}); err != nil {
			return nil, err
		}
		v.mu.Lock()
		if len(v.known) >= maxKnown {
			clear(v.known)
		}
		v.known[sum] = cert.NotAfter
		v.mu.Unlock()
	}
	return &identity{user: cert.Subject.CommonName, groups: cert.Subject.Organization}, nil
}

// role is what a caller of the supervisor may do.
type role int

const (
	nobody role = iota
	wrongCredentials
	agentRole
	serverRole
)

// roleOf authenticates a caller of the supervisor by token or by a node's certificate. The server token serves both
// roles, the agent token only that of agents.
func (s *server) roleOf(r *http.Request) role {
	user, secret, ok := r.BasicAuth()
	if !ok {
		if id, err := s.verifier.identify(r); err == nil && id != nil && slices.Contains(id.groups, "system:nodes") {
			return agentRole
		}
		return nobody
	}
	isServer := same(secret, s.secret)
	switch {
	case user == "server" && isServer:
		return serverRole
	case user == "node" && (isServer || same(secret, s.agentSecret)):
		return agentRole
	}
	return wrongCredentials
}

func same(a, b string) bool {
	return b != "" && subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1
}
