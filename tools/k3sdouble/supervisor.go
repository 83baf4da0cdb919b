package main

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/pki"
)

// supervisor is k3s's own API on port 6443; what is not its own goes to the kube-apiserver.
func (s *server) supervisor(api http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/ping", func(w http.ResponseWriter, _ *http.Request) { sendText(w, "pong") })
	mux.HandleFunc("/cacerts", func(w http.ResponseWriter, _ *http.Request) { sendText(w, s.cluster.ServerCA.Cert) })
	for _, e := range []struct {
		path string
		role role
		h    http.HandlerFunc
	}{
		{"config", agentRole, func(w http.ResponseWriter, _ *http.Request) { sendJSON(w, s.o.shared()) }},
		{"readyz", agentRole, s.readyz},
		{"apiservers", agentRole, s.apiservers},
		{"client-ca.crt", agentRole, func(w http.ResponseWriter, _ *http.Request) { sendText(w, s.cluster.ClientCA.Cert) }},
		{"server-ca.crt", agentRole, func(w http.ResponseWriter, _ *http.Request) { sendText(w, s.cluster.ServerCA.Cert) }},
		{"client-kubelet.crt", agentRole, s.clientKubeletCert},
		{"serving-kubelet.crt", agentRole, s.servingKubeletCert},
		{"server-bootstrap", serverRole, s.serverBootstrap},
	} {
		mux.HandleFunc("/v1-k3s/"+e.path, s.need(e.role, e.h))
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if !s.ready.Load() {
			sendStatus(w, http.StatusServiceUnavailable, "ServiceUnavailable", "apiserver not ready")
			return
		}
		api.ServeHTTP(w, r)
	})
	return mux
}

// need lets only callers with a role through.
func (s *server) need(least role, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch got := s.roleOf(r); {
		case got == nobody || got == wrongCredentials:
			sendStatus(w, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
		case got < least:
			sendStatus(w, http.StatusForbidden, "Forbidden", "forbidden")
		default:
			h(w, r)
		}
	}
}

func (s *server) readyz(w http.ResponseWriter, _ *http.Request) {
	if !s.ready.Load() {
		sendStatus(w, http.StatusServiceUnavailable, "ServiceUnavailable", "runtime core not ready")
		return
	}
	sendText(w, "ok")
}

// apiservers lists where the API can be reached.
func (s *server) apiservers(w http.ResponseWriter, r *http.Request) {
	members, err := s.ctl.Members(r.Context(), s.cluster.ID, s.cluster.Key)
	if err != nil {
		sendStatus(w, http.StatusInternalServerError, "InternalError", "failed to list the servers")
		return
	}
	list := []string{}
	for _, m := range members {
		if m.Alive {
			list = append(list, net.JoinHostPort(m.Address, port(s.o.values)))
		}
	}
	sendJSON(w, list)
}

// serverBootstrap hands the cluster to a joining server.
func (s *server) serverBootstrap(w http.ResponseWriter, r *http.Request) {
	if !s.cluster.Settings.Etcd {
		log.warnf("Received HTTP bootstrap request from %s, but embedded etcd is not enabled.", r.RemoteAddr)
		sendStatus(w, http.StatusBadRequest, "BadRequest", "etcd disabled")
		return
	}
	sendJSON(w, s.cluster)
}

func (s *server) clientKubeletCert(w http.ResponseWriter, r *http.Request) {
	s.signNode(w, r, s.clientCA, func(name string) (pki.Leaf, error) {
		return pki.Leaf{CommonName: "system:node:" + name, Organization: []string{"system:nodes"}, Client: true}, nil
	})
}

func (s *server) servingKubeletCert(w http.ResponseWriter, r *http.Request) {
	s.signNode(w, r, s.serverCA, func(name string) (pki.Leaf, error) {
		l := pki.Leaf{CommonName: name, DNSNames: []string{name, "localhost"}, IPs: []net.IP{net.ParseIP("127.0.0.1")}, Server: true}
		for v := range strings.SplitSeq(r.Header.Get("k3s-Node-IP"), ",") {
			ip := net.ParseIP(v)
			if v == "" {
				continue
			}
			if ip == nil {
				return l, fmt.Errorf("invalid node IP address %s", v)
			}
			l.IPs = append(l.IPs, ip)
		}
		return l, nil
	})
}

// signNode certifies a node's key once the node has shown its password.
func (s *server) signNode(w http.ResponseWriter, r *http.Request, ca *pki.Authority, leaf func(string) (pki.Leaf, error)) {
	name, password := r.Header.Get("k3s-Node-Name"), r.Header.Get("k3s-Node-Password")
	if name == "" || password == "" {
		sendStatus(w, http.StatusBadRequest, "BadRequest", "node name and password are required")
		return
	}
	if err := s.checkNodePassword(r.Context(), name, password); err != nil {
		code, reason := http.StatusServiceUnavailable, "ServiceUnavailable"
		if errors.Is(err, errWrongPassword) {
			code, reason = http.StatusForbidden, "Forbidden"
		}
		log.errorf("Sending HTTP %d response to %s: %v", code, r.RemoteAddr, err)
		sendStatus(w, code, reason, err.Error())
		return
	}
	text, err := signRequest(r, ca, name, leaf)
	if err != nil {
		sendStatus(w, http.StatusBadRequest, "BadRequest", err.Error())
		return
	}
	sendText(w, text)
}

func signRequest(r *http.Request, ca *pki.Authority, name string, leaf func(string) (pki.Leaf, error)) (string, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<16))
	if err != nil {
		return "", err
	}
	csr, err := x509.ParseCertificateRequest(body)
	if err != nil {
		return "", err
	}
	if err := csr.CheckSignature(); err != nil {
		return "", err
	}
	l, err := leaf(name)
	if err != nil {
		return "", err
	}
	return ca.Sign(l, csr.PublicKey)
}

func sendText(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/plain")
	// A caller that is gone needs no answer.
	_, _ = io.WriteString(w, text)
}

func sendJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// waitAPI waits until the native API server is ready and this member votes: a learner's etcd serves no API server.
func (s *server) waitAPI(ctx context.Context) error {
	for {
		if !s.learner.Load() {
			if _, err := s.admin.Raw(ctx, "/readyz"); err == nil {
				return nil
			}
		}
		if err := sleep(ctx, apiRetry); err != nil {
			return err
		}
	}
}
