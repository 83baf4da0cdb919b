package main

import (
	"encoding/base64"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/pki"
)

// writeFiles writes what a k3s server leaves on its disk.
func (s *server) writeFiles() error {
	for _, dir := range []string{"tls", "cred", "manifests"} {
		if err := os.MkdirAll(s.o.path("server", dir), 0o700); err != nil {
			return err
		}
	}
	if err := s.writeTokens(); err != nil {
		return err
	}
	for name, text := range map[string]string{
		"server-ca.crt": s.cluster.ServerCA.Cert, "server-ca.key": s.cluster.ServerCA.Key,
		"client-ca.crt": s.cluster.ClientCA.Cert, "client-ca.key": s.cluster.ClientCA.Key,
		"request-header-ca.crt": s.cluster.RequestHeaderCA.Cert, "request-header-ca.key": s.cluster.RequestHeaderCA.Key,
		"client-auth-proxy.crt": s.cluster.Proxy.Cert, "client-auth-proxy.key": s.cluster.Proxy.Key,
	} {
		mode := os.FileMode(0o600)
		if strings.HasSuffix(name, ".crt") {
			mode = 0o644
		}
		if err := writeFile(s.o.path("server", "tls", name), []byte(text), mode); err != nil {
			return err
		}
	}
	cert, key, err := s.adminCert()
	if err != nil {
		return err
	}
	if err := s.writeKubeconfig(s.o.path("server", "cred", "admin.kubeconfig"), cert, key, 0o600); err != nil {
		return err
	}
	m, err := mode(s.o.values.str("write-kubeconfig-mode", ""), 0o600)
	if err != nil {
		return err
	}
	out := s.o.values.str("write-kubeconfig", defaultKubeconf)
	if err := s.writeKubeconfig(out, cert, key, m); err != nil {
		return err
	}
	log.infof("Wrote kubeconfig %s", out)
	return s.chgrp(out)
}

// writeTokens writes server/token and the links to it.
func (s *server) writeTokens() error {
	file := s.o.path("server", "token")
	if err := writeFile(file, []byte(formatToken(s.cluster.ServerCA.Cert, "server", s.secret)+"\n"), 0o600); err != nil {
		return err
	}
	log.infof("Server node token is available at %s", file)
	if err := symlink(file, s.o.path("server", "node-token")); err != nil {
		return err
	}
	agent := s.o.path("server", "agent-token")
	if s.agentSecret == "" {
		return symlink(file, agent)
	}
	if err := os.RemoveAll(agent); err != nil {
		return err
	}
	return writeFile(agent, []byte(formatToken(s.cluster.ServerCA.Cert, "node", s.agentSecret)+"\n"), 0o600)
}

// adminCert returns the admin's certificate and key: those on the disk while they are good for the cluster, so that
// a kubeconfig keeps its bytes over a restart.
func (s *server) adminCert() (cert, key string, err error) {
	certFile, keyFile := s.o.path("server", "tls", "client-admin.crt"), s.o.path("server", "tls", "client-admin.key")
	c, errCert := os.ReadFile(certFile)
	k, errKey := os.ReadFile(keyFile)
	if errCert == nil && errKey == nil && strings.HasSuffix(string(c), s.cluster.ClientCA.Cert) {
		return string(c), string(k), nil
	}
	cert, key, err = s.clientCA.Issue(pki.Leaf{CommonName: "system:admin", Organization: []string{"system:masters"}, Client: true})
	if err != nil {
		return "", "", err
	}
	if err := writeFile(certFile, []byte(cert), 0o644); err != nil {
		return "", "", err
	}
	return cert, key, writeFile(keyFile, []byte(key), 0o600)
}

// writeKubeconfig writes the admin's kubeconfig in the form and with the names of the real one.
func (s *server) writeKubeconfig(file, cert, key string, mode os.FileMode) error {
	b64 := base64.StdEncoding.EncodeToString
	name := s.o.values.str("write-kubeconfig-name", "default")
	text := fmt.Sprintf(`apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: %s
    server: https://127.0.0.1:%s
  name: %s
contexts:
- context:
    cluster: %s
    user: %s
  name: %s
current-context: %s
kind: Config
users:
- name: %s
  user:
    client-certificate-data: %s
    client-key-data: %s
`, b64([]byte(s.cluster.ServerCA.Cert)), port(s.o.values), name, name, name, name, name, name, b64([]byte(cert)), b64([]byte(key)))
	return writeFile(file, []byte(text), mode)
}

func (s *server) chgrp(file string) error {
	group := s.o.values.str("write-kubeconfig-group", "")
	if group == "" {
		return nil
	}
	id, err := strconv.Atoi(group)
	if err != nil {
		g, err := user.LookupGroup(group)
		if err != nil {
			return fmt.Errorf("failed to find the kubeconfig group: %w", err)
		}
		if id, err = strconv.Atoi(g.Gid); err != nil {
			return err
		}
	}
	return os.Chown(file, -1, id)
}
