package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/pki"
)

// kubeletPort is where the API server finds the kubelet.
const kubeletPort = "10250"

// serve answers the API server on the kubelet's port: logs have one line that tells why there is no more, everything
// that would need a container is refused. Only holders of a client certificate of the cluster are heard.
func (k *kubelet) serve(ctx context.Context) error {
	ca, err := os.ReadFile(k.o.path("agent", "client-ca.crt"))
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("", kubeletPort))
	if err != nil {
		return fmt.Errorf("starting the kubelet: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { sendText(w, "ok") })
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", func(w http.ResponseWriter, r *http.Request) {
		sendText(w, fmt.Sprintf("container %s of pod %s/%s: no container runs in the lab\n", r.PathValue("container"), r.PathValue("namespace"), r.PathValue("pod")))
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no container runs in the lab", http.StatusNotImplemented)
	})
	web := &http.Server{
		Handler: mux, ReadHeaderTimeout: 10 * time.Second, ErrorLog: stdlog.New(io.Discard, "", 0),
		TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{k.serving}, MinVersion: tls.VersionTLS12,
			ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pki.Pool(string(ca)),
		},
	}
	stop := context.AfterFunc(ctx, func() { _ = web.Close() })
	defer stop()
	if err := web.ServeTLS(l, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving the kubelet: %w", err)
	}
	return nil
}
