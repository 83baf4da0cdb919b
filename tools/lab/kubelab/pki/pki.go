// Package pki makes the certificates of a cluster: ECDSA P-256 throughout, since guests without hardware
// virtualisation are slow and RSA would be felt.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"
)

const (
	caLife   = 10 * 365 * 24 * time.Hour
	leafLife = 365 * 24 * time.Hour
	// skew dates certificates back, for guests whose clock is behind the lab's.
	skew = time.Hour
)

// Authority is a CA with its key.
type Authority struct {
	Cert *x509.Certificate
	Key  crypto.Signer
}

// Leaf describes a certificate to issue.
type Leaf struct {
	CommonName   string
	Organization []string
	DNSNames     []string
	IPs          []net.IP
	// Server and Client are the extended key usages.
	Server, Client bool
}

// NewAuthority makes a self-signed CA.
func NewAuthority(commonName string) (*Authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	tmpl := &x509.Certificate{
		Subject:               pkix.Name{CommonName: commonName},
		NotBefore:             now.Add(-skew),
		NotAfter:              now.Add(caLife),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment | x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	if tmpl.SerialNumber, err = serial(); err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("creating CA %s: %w", commonName, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &Authority{Cert: cert, Key: key}, nil
}

// ParseAuthority reads a CA from PEM.
func ParseAuthority(certPEM, keyPEM string) (*Authority, error) {
	pair, err := tls.X509KeyPair([]byte(certPEM), []byte(keyPEM))
	if err != nil {
		return nil, fmt.Errorf("parsing CA: %w", err)
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok {
		return nil, errors.New("parsing CA: key cannot sign")
	}
	return &Authority{Cert: pair.Leaf, Key: signer}, nil
}

// PEM returns the CA's certificate and key.
func (a *Authority) PEM() (certPEM, keyPEM string, err error) {
	keyPEM, err = EncodeKey(a.Key)
	return EncodeCert(a.Cert.Raw), keyPEM, err
}

// Issue makes a key and a certificate for it; the certificate's PEM is followed by the CA's.
func (a *Authority) Issue(l Leaf) (certPEM, keyPEM string, err error) {
	key, err := newKey()
	if err != nil {
		return "", "", err
	}
	if certPEM, err = a.Sign(l, key.Public()); err != nil {
		return "", "", err
	}
	keyPEM, err = EncodeKey(key)
	return certPEM, keyPEM, err
}

// Sign certifies a public key; the certificate's PEM is followed by the CA's.
func (a *Authority) Sign(l Leaf, pub crypto.PublicKey) (string, error) {
	now := time.Now()
	tmpl := &x509.Certificate{
		Subject:     pkix.Name{CommonName: l.CommonName, Organization: l.Organization},
		NotBefore:   now.Add(-skew),
		NotAfter:    now.Add(leafLife),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		DNSNames:    l.DNSNames,
		IPAddresses: l.IPs,
	}
	if l.Server {
		tmpl.ExtKeyUsage = append(tmpl.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	if l.Client {
		tmpl.ExtKeyUsage = append(tmpl.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	}
	var err error
	if tmpl.SerialNumber, err = serial(); err != nil {
		return "", err
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.Cert, pub, a.Key)
	if err != nil {
		return "", fmt.Errorf("signing for %s: %w", l.CommonName, err)
	}
	return EncodeCert(der) + EncodeCert(a.Cert.Raw), nil
}

// NewRequest makes a key and a certificate signing request (DER) for it.
func NewRequest(commonName string) (csr []byte, keyPEM string, err error) {
	key, err := newKey()
	if err != nil {
		return nil, "", err
	}
	csr, err = x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: commonName}}, key)
	if err != nil {
		return nil, "", fmt.Errorf("creating request for %s: %w", commonName, err)
	}
	keyPEM, err = EncodeKey(key)
	return csr, keyPEM, err
}

// EncodeCert returns a certificate's PEM.
func EncodeCert(der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// EncodeKey returns a private key's PEM in the form that Kubernetes accepts everywhere.
func EncodeKey(key crypto.Signer) (string, error) {
	ec, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return "", fmt.Errorf("key of type %T is not supported", key)
	}
	der, err := x509.MarshalECPrivateKey(ec)
	if err != nil {
		return "", fmt.Errorf("encoding key: %w", err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})), nil
}

// NewKeyPEM makes a key.
func NewKeyPEM() (string, error) {
	key, err := newKey()
	if err != nil {
		return "", err
	}
	return EncodeKey(key)
}

// Pool returns a pool of the certificates in PEM.
func Pool(certPEM string) *x509.CertPool {
	p := x509.NewCertPool()
	p.AppendCertsFromPEM([]byte(certPEM))
	return p
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating key: %w", err)
	}
	return key, nil
}

func serial() (*big.Int, error) {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 63))
	if err != nil {
		return nil, fmt.Errorf("generating serial number: %w", err)
	}
	return n, nil
}
