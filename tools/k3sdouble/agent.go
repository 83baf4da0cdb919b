package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/kubeapi"
	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/pki"
)

const (
	agentRetry   = 5 * time.Second
	serversEvery = 30 * time.Second
)

// nodeIdentity is how a node proves to be itself.
type nodeIdentity struct{ name, password, ip string }

func runAgent(ctx context.Context, o *options) error {
	b := &balancer{}
	file := o.path("agent", "etc", "k3s-agent-load-balancer.json")
	known := loadServers(file)
	b.setServers(append([]string{hostPort(o.url)}, known...))
	l, err := b.listen(ctx, o.lbPort)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return b.serve(ctx, l) })
	group.Go(func() error {
		return runNode(ctx, o, fmt.Sprintf("https://127.0.0.1:%d", o.lbPort), o.token, b)
	})
	return group.Wait()
}

// runNode joins the node through the load balancer and carries it until ctx ends.
func runNode(ctx context.Context, o *options, url, tok string, b *balancer) error {
	password, err := persistedHex(passwordFile, 16)
	if err != nil {
		return err
	}
	id := nodeIdentity{name: o.nodeName, password: password, ip: o.nodeIP.String()}
	var k *kubelet
	var a *access
	for {
		if a, k, err = newKubelet(ctx, o, url, tok, id); err == nil {
			break
		}
		if ctx.Err() != nil {
			return nil
		}
		log.infof("Waiting to retrieve agent configuration; server is not ready: %v", err)
		if sleep(ctx, agentRetry+rand.N(agentRetry)) != nil {
			return nil
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	if o.command == "agent" {
		group.Go(func() error { return followServers(ctx, o, a, b) })
	}
	group.Go(func() error { return k.run(ctx) })
	return group.Wait()
}

// newKubelet fetches configuration and certificates, as an agent does at each start.
func newKubelet(ctx context.Context, o *options, url, tok string, id nodeIdentity) (*access, *kubelet, error) {
	a, err := connect(ctx, url, tok, "node")
	if err != nil {
		return nil, nil, err
	}
	var shared sharedConfig
	if err := a.get(ctx, "/v1-k3s/config", &shared); err != nil {
		return nil, nil, fmt.Errorf("failed to retrieve configuration from server: %w", err)
	}
	for _, f := range []string{"client-ca.crt", "server-ca.crt"} {
		b, err := fetch(ctx, a.http, http.MethodGet, url+"/v1-k3s/"+f, a.authorize, nil)
		if err != nil {
			return nil, nil, err
		}
		if err := writeFile(o.path("agent", f), b, 0o600); err != nil {
			return nil, nil, err
		}
	}
	serving, err := nodePair(ctx, o, a, id, "serving-kubelet")
	if err != nil {
		return nil, nil, err
	}
	client, err := nodePair(ctx, o, a, id, "client-kubelet")
	if err != nil {
		return nil, nil, err
	}
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: pki.Pool(a.caPEM), Certificates: []tls.Certificate{client}, MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2: true, IdleConnTimeout: 90 * time.Second,
		HTTP2: &http.HTTP2Config{SendPingTimeout: 20 * time.Second, PingTimeout: 10 * time.Second},
	}
	if err := writeFile(o.path("agent", "kubelet.kubeconfig"), kubeletKubeconfig(o, url), 0o600); err != nil {
		return nil, nil, err
	}
	api := &kubeapi.Client{Base: func() string { return url }, HTTP: &http.Client{Transport: transport}}
	return a, &kubelet{o: o, shared: shared, api: api, serving: serving, wake: make(chan struct{}, 1)}, nil
}

// nodePair fetches a certificate for a new key and writes both.
func nodePair(ctx context.Context, o *options, a *access, id nodeIdentity, name string) (tls.Certificate, error) {
	csr, key, err := pki.NewRequest(id.name)
	if err != nil {
		return tls.Certificate{}, err
	}
	cert, err := a.nodeCert(ctx, "/v1-k3s/"+name+".crt", id, csr)
	if err != nil {
		return tls.Certificate{}, err
	}
	if err := writeFile(o.path("agent", name+".crt"), cert, 0o600); err != nil {
		return tls.Certificate{}, err
	}
	if err := writeFile(o.path("agent", name+".key"), []byte(key), 0o600); err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(cert, []byte(key))
}

func kubeletKubeconfig(o *options, url string) []byte {
	return fmt.Appendf(nil, `apiVersion: v1
clusters:
- cluster:
    certificate-authority: %[1]s/agent/server-ca.crt
    server: %[2]s
  name: local
contexts:
- context:
    cluster: local
    namespace: default
    user: user
  name: Default
current-context: Default
kind: Config
users:
- name: user
  user:
    client-certificate: %[1]s/agent/client-kubelet.crt
    client-key: %[1]s/agent/client-kubelet.key
`, o.dataDir, url)
}

// followServers keeps the load balancer's list of servers up to date, and on the disk for the next start.
func followServers(ctx context.Context, o *options, a *access, b *balancer) error {
	file := o.path("agent", "etc", "k3s-agent-load-balancer.json")
	for {
		var servers []string
		if err := a.get(ctx, "/v1-k3s/apiservers", &servers); err != nil {
			if ctx.Err() == nil {
				log.warnf("Failed to retrieve list of apiservers from server: %v", err)
			}
		} else {
			b.setServers(servers)
			if err := saveServers(file, servers); err != nil {
				log.warnf("Failed to save the list of apiservers: %v", err)
			}
		}
		if sleep(ctx, serversEvery) != nil {
			return nil
		}
	}
}

type balancerFile struct {
	ServerAddresses []string `json:"ServerAddresses"`
}

func loadServers(file string) []string {
	var f balancerFile
	b, err := os.ReadFile(file)
	if err != nil || json.Unmarshal(b, &f) != nil {
		return nil // an agent that has never known any
	}
	return f.ServerAddresses
}

func saveServers(file string, servers []string) error {
	b, err := json.MarshalIndent(balancerFile{servers}, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(file, b, 0o600)
}
