// Package kubelab is the lab's side of k3s: a mirror from which guests install it, and the control planes that stand
// behind it.
//
// Real k3s cannot be had without internet. The mirror then serves a double (tools/k3sdouble) that behaves as k3s does
// towards everything outside of it, and for each k3s cluster that the doubles form, kubelab runs a real control plane
// (etcd, kube-apiserver, kube-controller-manager, kube-scheduler) on the lab's host, where it costs no emulated CPU.
// The README beside this file tells what is real and what is not.
package kubelab

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/charts"
	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/pki"
	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/wire"
)

// DefaultMaxClusters bounds the control planes that run at a time: each takes about 600 MB.
const DefaultMaxClusters = 8

// Config says how to run. Listen, StateDir, ControlPlane and K3sDouble are required, the last two not with Artifacts.
type Config struct {
	// Listen is the address on the lab's LAN, such as 10.77.0.1:80. Guests are told it as it stands, so it must name
	// an address that they reach.
	Listen string
	// ListenTLS is a second address for the same, by HTTPS, "" for none. The CA of its certificate is new at each start and is
	// written to CAFile.
	ListenTLS, CAFile string
	// StateDir keeps the data of the control planes.
	StateDir string
	// ControlPlane is the path of the program of tools/controlplane.
	ControlPlane string
	// K3sDouble is the path of the program of tools/k3sdouble.
	K3sDouble string
	// Artifacts is a directory of real releases that are served instead of the double.
	Artifacts string
	// MaxClusters bounds the control planes that run at a time; 0 is DefaultMaxClusters.
	MaxClusters int
	// Log takes messages; nil is slog.Default.
	Log *slog.Logger
	// Ready, if set, is called with the mirror's URL once it listens.
	Ready func(url string)
}

// server is what handlers share.
type server struct {
	base     string
	mirror   mirror
	registry *registry
	log      *slog.Logger

	mu     sync.Mutex
	faults wire.Faults
}

// Run serves the mirror and keeps the control planes until ctx ends. All that it started has ended when it returns.
func Run(ctx context.Context, cfg Config) error {
	log := cfg.Log
	if log == nil {
		log = slog.Default()
	}
	clusters := filepath.Join(cfg.StateDir, "clusters")
	if err := os.MkdirAll(clusters, 0o700); err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.Listen)
	if err != nil {
		return fmt.Errorf("listening for the lab's guests: %w", err)
	}
	defer listener.Close()
	addr := listener.Addr().(*net.TCPAddr)
	if addr.IP.IsUnspecified() {
		return fmt.Errorf("listening on %s: an address of the lab's LAN is needed", cfg.Listen)
	}

	group, ctx := errgroup.WithContext(ctx)
	s := &server{base: baseURL(addr), log: log, registry: &registry{
		dir: clusters, lan: addr.IP.String(), program: cfg.ControlPlane, most: cfg.MaxClusters, log: log,
		ctx: ctx, group: group, clusters: map[string]*cluster{},
	}}
	if s.registry.most == 0 {
		s.registry.most = DefaultMaxClusters
	}
	s.mirror = doubleMirror{program: cfg.K3sDouble}
	if cfg.Artifacts != "" {
		s.mirror = artifactMirror{dir: cfg.Artifacts}
	} else if err := s.registry.load(); err != nil {
		return err
	}
	handler, err := s.handler()
	if err != nil {
		return err
	}
	if cfg.ListenTLS != "" {
		secure, err := listenTLS(ctx, cfg.ListenTLS, cfg.CAFile)
		if err != nil {
			return err
		}
		defer secure.Close()
		group.Go(func() error { return serve(ctx, newWeb(handler), secure) })
	}
	group.Go(func() error { return serve(ctx, newWeb(handler), listener) })
	if cfg.Ready != nil {
		cfg.Ready(s.base)
	}
	return group.Wait()
}

func (s *server) handler() (http.Handler, error) {
	mux := http.NewServeMux()
	s.serveMirror(mux)
	s.serveControl(mux)
	err := charts.Register(mux, func(w http.ResponseWriter) bool { return fail(w, s.currentFaults().ChartsStatus) })
	return mux, err
}

func newWeb(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute}
}

// listenTLS listens with a certificate for the address itself, of a new CA.
func listenTLS(ctx context.Context, address, caFile string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", address, err)
	}
	ca, err := pki.NewAuthority("lab")
	if err != nil {
		return nil, err
	}
	text, _, err := ca.PEM()
	if err != nil {
		return nil, err
	}
	cert, key, err := ca.Issue(pki.Leaf{CommonName: host, Server: true, IPs: []net.IP{net.ParseIP(host)}})
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(caFile, []byte(text), 0o644); err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening for the lab's guests: %w", err)
	}
	return tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}), nil
}

func serve(ctx context.Context, s *http.Server, l net.Listener) error {
	stop := context.AfterFunc(ctx, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if s.Shutdown(ctx) != nil {
			_ = s.Close()
		}
	})
	defer stop()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving the lab's guests: %w", err)
	}
	return nil
}

func baseURL(a *net.TCPAddr) string {
	if a.Port == 80 {
		return "http://" + bracket(a.IP.String())
	}
	return "http://" + a.String()
}

func bracket(ip string) string {
	if net.ParseIP(ip).To4() == nil {
		return "[" + ip + "]"
	}
	return ip
}

func (s *server) currentFaults() wire.Faults {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults
}

func (s *server) setFaults(f wire.Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
}
