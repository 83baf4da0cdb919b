package kubelab

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/pki"
	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/wire"
)

// ports are where the parts of one control plane listen: the API server on the LAN, the rest on loopback.
type ports struct {
	api, etcd, etcdPeer, controller, scheduler int
}

// newPorts picks free ports. Another program could take one before it is used; the part then fails to start and is
// started again on the same port, so a clash shows in its log.
func newPorts(lan string) (ports, error) {
	var p ports
	for _, x := range []struct {
		host string
		port *int
	}{{lan, &p.api}, {"127.0.0.1", &p.etcd}, {"127.0.0.1", &p.etcdPeer}, {"127.0.0.1", &p.controller}, {"127.0.0.1", &p.scheduler}} {
		l, err := net.Listen("tcp", net.JoinHostPort(x.host, "0"))
		if err != nil {
			return p, fmt.Errorf("finding a free port: %w", err)
		}
		defer l.Close()
		*x.port = l.Addr().(*net.TCPAddr).Port
	}
	return p, nil
}

// paths of a cluster's files.
func (c *cluster) path(elem ...string) string {
	return filepath.Join(append([]string{c.dir}, elem...)...)
}

func (c *cluster) etcdArgs() []string {
	client := fmt.Sprintf("http://127.0.0.1:%d", c.ports.etcd)
	peer := fmt.Sprintf("http://127.0.0.1:%d", c.ports.etcdPeer)
	return []string{
		"--name=lab", "--data-dir=" + c.path("etcd"),
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=lab=" + peer,
		// A lab's data need not survive a power cut of the lab's host.
		"--unsafe-no-fsync", "--snapshot-count=10000", "--auto-compaction-mode=periodic", "--auto-compaction-retention=1h",
		"--max-wals=1", "--max-snapshots=1", "--log-level=warn",
	}
}

func (c *cluster) apiserverArgs() []string {
	const issuer = "https://kubernetes.default.svc.cluster.local"
	return []string{
		"--bind-address=" + c.lan, "--advertise-address=" + c.lan, "--secure-port=" + strconv.Itoa(c.ports.api),
		fmt.Sprintf("--etcd-servers=http://127.0.0.1:%d", c.ports.etcd),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--anonymous-auth=false",
		"--client-ca-file=" + c.path("pki", "client-ca.crt"),
		"--tls-cert-file=" + c.path("pki", "apiserver.crt"), "--tls-private-key-file=" + c.path("pki", "apiserver.key"),
		"--kubelet-client-certificate=" + c.path("pki", "kubelet-client.crt"), "--kubelet-client-key=" + c.path("pki", "kubelet-client.key"),
		"--kubelet-certificate-authority=" + c.path("pki", "server-ca.crt"),
		"--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname",
		"--requestheader-client-ca-file=" + c.path("pki", "request-header-ca.crt"), "--requestheader-allowed-names=system:auth-proxy",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + c.path("pki", "proxy.crt"), "--proxy-client-key-file=" + c.path("pki", "proxy.key"),
		"--service-account-key-file=" + c.path("pki", "service.key"), "--service-account-signing-key-file=" + c.path("pki", "service.key"),
		"--service-account-issuer=" + issuer, "--api-audiences=" + issuer + ",k3s",
		"--service-cluster-ip-range=" + c.Settings.ServiceCIDR, "--service-node-port-range=" + c.Settings.NodePortRange,
		// The endpoints of the service "kubernetes" are the guests' addresses, which this API server cannot know.
		"--endpoint-reconciler-type=none",
		"--allow-privileged=true", "--profiling=false", "--enable-bootstrap-token-auth=true",
	}
}

func (c *cluster) controllerArgs() []string {
	args := []string{
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(c.ports.controller), "--leader-elect=false",
		"--kubeconfig=" + c.path("pki", "controller.kubeconfig"),
		"--authentication-kubeconfig=" + c.path("pki", "controller.kubeconfig"),
		"--authorization-kubeconfig=" + c.path("pki", "controller.kubeconfig"),
		"--allocate-node-cidrs=true", "--cluster-cidr=" + c.Settings.ClusterCIDR, "--service-cluster-ip-range=" + c.Settings.ServiceCIDR,
		"--configure-cloud-routes=false", "--use-service-account-credentials=true", "--profiling=false",
		"--service-account-private-key-file=" + c.path("pki", "service.key"), "--root-ca-file=" + c.path("pki", "server-ca.crt"),
		"--controllers=*,tokencleaner",
	}
	for _, signer := range []struct{ name, ca string }{
		{"kube-apiserver-client", "client-ca"}, {"kubelet-client", "client-ca"}, {"kubelet-serving", "server-ca"}, {"legacy-unknown", "server-ca"},
	} {
		args = append(args,
			fmt.Sprintf("--cluster-signing-%s-cert-file=%s", signer.name, c.path("pki", signer.ca+".crt")),
			fmt.Sprintf("--cluster-signing-%s-key-file=%s", signer.name, c.path("pki", signer.ca+".key")))
	}
	return args
}

func (c *cluster) schedulerArgs() []string {
	return []string{
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(c.ports.scheduler), "--leader-elect=false",
		"--kubeconfig=" + c.path("pki", "scheduler.kubeconfig"), "--profiling=false",
		"--authentication-kubeconfig=" + c.path("pki", "scheduler.kubeconfig"),
		"--authorization-kubeconfig=" + c.path("pki", "scheduler.kubeconfig"),
	}
}

// newPKI makes all keys of a new cluster under dir and returns those that its servers share.
func newPKI(dir, lan, serviceCIDR string) (wire.Cluster, error) {
	var w wire.Cluster
	stamp := strconv.FormatInt(time.Now().Unix(), 10)
	cas := map[string]*pki.Authority{}
	for _, ca := range []struct {
		file, cn string
		pair     *wire.KeyPair
	}{
		{"server-ca", "k3s-server-ca@" + stamp, &w.ServerCA},
		{"client-ca", "k3s-client-ca@" + stamp, &w.ClientCA},
		{"request-header-ca", "k3s-request-header-ca@" + stamp, &w.RequestHeaderCA},
	} {
		a, err := pki.NewAuthority(ca.cn)
		if err != nil {
			return w, err
		}
		cas[ca.file] = a
		if ca.pair.Cert, ca.pair.Key, err = a.PEM(); err != nil {
			return w, err
		}
		if err := writePair(dir, ca.file, *ca.pair); err != nil {
			return w, err
		}
	}
	service, err := firstServiceIP(serviceCIDR)
	if err != nil {
		return w, err
	}
	for _, l := range []struct {
		file, ca string
		leaf     pki.Leaf
		pair     *wire.KeyPair
	}{
		{"apiserver", "server-ca", pki.Leaf{CommonName: "kube-apiserver", Server: true, DNSNames: []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"},
			IPs: []net.IP{net.ParseIP(lan), net.ParseIP("127.0.0.1"), service}}, nil},
		{"kubelet-client", "client-ca", pki.Leaf{CommonName: "kube-apiserver", Organization: []string{"system:masters"}, Client: true}, nil},
		{"admin", "client-ca", pki.Leaf{CommonName: "system:admin", Organization: []string{"system:masters"}, Client: true}, nil},
		{"controller", "client-ca", pki.Leaf{CommonName: "system:kube-controller-manager", Client: true}, nil},
		{"scheduler", "client-ca", pki.Leaf{CommonName: "system:kube-scheduler", Client: true}, nil},
		{"proxy", "request-header-ca", pki.Leaf{CommonName: "system:auth-proxy", Client: true}, &w.Proxy},
	} {
		var p wire.KeyPair
		if p.Cert, p.Key, err = cas[l.ca].Issue(l.leaf); err != nil {
			return w, err
		}
		if err := writePair(dir, l.file, p); err != nil {
			return w, err
		}
		if l.pair != nil {
			*l.pair = p
		}
	}
	key, err := pki.NewKeyPEM()
	if err != nil {
		return w, err
	}
	return w, os.WriteFile(filepath.Join(dir, "service.key"), []byte(key), 0o600)
}

func writePair(dir, name string, p wire.KeyPair) error {
	if err := os.WriteFile(filepath.Join(dir, name+".crt"), []byte(p.Cert), 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, name+".key"), []byte(p.Key), 0o600)
}

// writeKubeconfig writes the kubeconfig of a part of the control plane.
func (c *cluster) writeKubeconfig(name string) error {
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: lab
clusters: [{name: lab, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: lab, user: {client-certificate: %q, client-key: %q}}]
contexts: [{name: lab, context: {cluster: lab, user: lab}}]
`, c.apiURL(), c.path("pki", "server-ca.crt"), c.path("pki", name+".crt"), c.path("pki", name+".key"))
	return os.WriteFile(c.path("pki", name+".kubeconfig"), []byte(text), 0o600)
}

func (c *cluster) apiURL() string {
	return "https://" + net.JoinHostPort(c.lan, strconv.Itoa(c.ports.api))
}

// firstServiceIP is the address of the service "kubernetes".
func firstServiceIP(cidr string) (net.IP, error) {
	first, _, _ := strings.Cut(cidr, ",")
	p, err := netip.ParsePrefix(first)
	if err != nil {
		return nil, fmt.Errorf("service CIDR: %w", err)
	}
	return net.IP(p.Masked().Addr().Next().AsSlice()), nil
}
