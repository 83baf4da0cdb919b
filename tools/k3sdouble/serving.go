package main

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/pki"
)

// serving is the certificate of port 6443. It keeps its names over restarts: those that are new are added, and none is
// taken off. Names can be added while it runs if tls-san-security is off.
type serving struct {
	ca   *pki.Authority
	file string
	open bool // names that clients ask for are added

	mu    sync.Mutex
	names []string
	ips   []net.IP
	cert  *tls.Certificate
}

// servingFile is what stands of a certificate on the disk.
type servingFile struct {
	Cert string `json:"cert"`
	Key  string `json:"key"`
}

// sans are the names and addresses that a server's certificate always has, with those of tls-san.
func sans(o *options) (names []string, ips []net.IP, err error) {
	names = []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc." + o.values.str("cluster-domain", "cluster.local"), "localhost", o.nodeName}
	if host, err := os.Hostname(); err == nil {
		short, _, _ := strings.Cut(host, ".")
		names = append(names, host, short)
	}
	ips = append(ips, net.ParseIP("127.0.0.1"), net.ParseIP("::1"), o.nodeIP)
	ips = append(ips, o.extraIPs...)
	first, _, _ := strings.Cut(o.values.all("service-cidr", "10.43.0.0/16")[0], ",")
	service, err := netip.ParsePrefix(first)
	if err != nil {
		return nil, nil, fmt.Errorf("invalid service-cidr: %w", err)
	}
	ips = append(ips, net.IP(service.Masked().Addr().Next().AsSlice()))
	for _, san := range append(o.values.all("tls-san"), o.values.str("advertise-address", "")) {
		if ip := net.ParseIP(san); ip != nil {
			ips = append(ips, ip)
		} else if san != "" {
			names = append(names, san)
		}
	}
	return names, ips, nil
}

func newServing(o *options, ca *pki.Authority) (*serving, error) {
	s := &serving{ca: ca, open: !o.values.is("tls-san-security", true), file: o.path("server", "tls", "dynamic-cert.json")}
	names, ips, err := sans(o)
	if err != nil {
		return nil, err
	}
	s.load()
	if s.add(names, ips) || s.cert == nil {
		return s, s.issue()
	}
	return s, nil
}

// load takes up the certificate of an earlier run. One of another CA, or none, is no loss.
func (s *serving) load() {
	var f servingFile
	b, err := os.ReadFile(s.file)
	if err != nil || json.Unmarshal(b, &f) != nil {
		return
	}
	pair, err := tls.X509KeyPair([]byte(f.Cert), []byte(f.Key))
	if err != nil || pair.Leaf.CheckSignatureFrom(s.ca.Cert) != nil {
		return
	}
	s.cert, s.names, s.ips = &pair, pair.Leaf.DNSNames, pair.Leaf.IPAddresses
}

// add adds names and addresses and reports whether any was new.
func (s *serving) add(names []string, ips []net.IP) bool {
	before := len(s.names) + len(s.ips)
	for _, n := range names {
		if !slices.Contains(s.names, n) {
			s.names = append(s.names, n)
		}
	}
	for _, ip := range ips {
		if !slices.ContainsFunc(s.ips, ip.Equal) {
			s.ips = append(s.ips, ip)
		}
	}
	return len(s.names)+len(s.ips) > before
}

// issue makes the certificate; the caller holds mu, or nobody else has s yet.
func (s *serving) issue() error {
	certPEM, keyPEM, err := s.ca.Issue(pki.Leaf{CommonName: "k3s", Organization: []string{"k3s"}, DNSNames: s.names, IPs: s.ips, Server: true})
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair([]byte(certPEM), []byte(keyPEM))
	if err != nil {
		return err
	}
	b, err := json.Marshal(servingFile{certPEM, keyPEM})
	if err != nil {
		return err
	}
	s.cert = &pair
	return writeFile(s.file, b, 0o600)
}

// certificate implements tls.Config.GetCertificate.
func (s *serving) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open && s.learn(hello) {
		if err := s.issue(); err != nil {
			return nil, err
		}
	}
	return s.cert, nil
}

// learn adds the name or address that a client connected to; it reports whether it was new.
func (s *serving) learn(hello *tls.ClientHelloInfo) bool {
	if name := hello.ServerName; name != "" {
		return s.add([]string{name}, nil)
	}
	addr, ok := hello.Conn.LocalAddr().(*net.TCPAddr)
	return ok && s.add(nil, []net.IP{addr.IP})
}
