package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/kubeapi"
)

const (
	nodeDir         = "/etc/rancher/node"
	defaultDataDir  = "/var/lib/rancher/k3s"
	defaultKubeconf = "/etc/rancher/k3s/k3s.yaml"
)

// unsupported are flags whose effect would be missed if they were accepted and did nothing.
var unsupported = []string{
	"cluster-reset", "cluster-reset-restore-path", "datastore-endpoint", "disable-apiserver", "disable-controller-manager", "disable-etcd",
	"disable-scheduler", "rootless", "vpn-auth", "vpn-auth-file",
}

// options are the settings of one run of `k3s server` or `k3s agent`.
type options struct {
	command string
	values  values
	args    []string // as k3s.io/node-args shows them
	version string

	dataDir  string
	token    string
	url      string // of the server to join; empty on a first server
	nodeName string
	nodeIP   net.IP
	extraIPs []net.IP // external addresses
	labels   map[string]string
	taints   []kubeapi.Taint
	lbPort   int
}

// readOptions turns flags into options and refuses what k3s refuses.
func readOptions(command string, args []string, version string) (*options, error) {
	full, err := withConfig(args)
	if err != nil {
		return nil, err
	}
	v, err := parseFlags(flagsOf(command), full)
	if err != nil {
		return nil, fmt.Errorf("Incorrect Usage: %w", err) //nolint:staticcheck // k3s's own words
	}
	o := &options{
		command: command, values: v, args: append([]string{command}, full...), version: version,
		dataDir: v.str("data-dir", defaultDataDir), url: strings.TrimSuffix(v.str("server", ""), "/"), lbPort: v.num("lb-server-port", 6444),
	}
	for _, name := range unsupported {
		if s := v.str(name, ""); s != "" && s != "false" {
			return nil, fmt.Errorf("--%s: not part of the lab's stand-in for k3s", name)
		}
	}
	if o.token, err = secretOf(v, "token"); err != nil {
		return nil, err
	}
	if err := o.checkJoin(); err != nil {
		return nil, err
	}
	if o.nodeName, err = nodeName(v); err != nil {
		return nil, err
	}
	if o.nodeIP, err = nodeIP(v); err != nil {
		return nil, err
	}
	for _, s := range v.all("node-external-ip") {
		ip := net.ParseIP(s)
		if ip == nil {
			return nil, fmt.Errorf("invalid node-external-ip: %s", s)
		}
		o.extraIPs = append(o.extraIPs, ip)
	}
	if o.labels, err = parseLabels(v.all("node-label")); err != nil {
		return nil, err
	}
	o.taints, err = parseTaints(v.all("node-taint"))
	return o, err
}

// checkJoin refuses the combinations of URL and token that cannot work.
func (o *options) checkJoin() error {
	if o.command == "agent" {
		if o.token == "" {
			return errors.New("--token is required")
		}
		if o.url == "" {
			return errors.New("--server is required")
		}
	}
	if o.url != "" && !strings.HasPrefix(o.url, "https://") {
		return fmt.Errorf("only https:// URLs are supported, invalid scheme: %s", o.url)
	}
	if o.command == "server" {
		if backend := o.flannel(); !slices.Contains([]string{"none", "vxlan", "host-gw", "wireguard-native"}, backend) {
			return fmt.Errorf("unknown flannel backend: %s", backend)
		}
	}
	return nil
}

func (o *options) flannel() string { return o.values.str("flannel-backend", "vxlan") }

func (o *options) path(elem ...string) string {
	return filepath.Join(append([]string{o.dataDir}, elem...)...)
}

// disabled are the packaged components that are not wanted.
func (o *options) disabled() []string { return o.values.all("disable") }

// secretOf reads a secret from its flag, or from the file that its -file flag names.
func secretOf(v values, name string) (string, error) {
	if s := v.str(name, ""); s != "" {
		return s, nil
	}
	file := v.str(name+"-file", "")
	if file == "" {
		return "", nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("reading %s-file: %w", name, err)
	}
	return strings.TrimSpace(string(b)), nil
}

// nodeName is the configured name or the host's, with the node's id if asked for.
func nodeName(v values) (string, error) {
	name := v.str("node-name", "")
	if name == "" {
		var err error
		if name, err = os.Hostname(); err != nil {
			return "", fmt.Errorf("finding the host's name: %w", err)
		}
		name, _, _ = strings.Cut(name, ".")
	}
	name = strings.ToLower(name)
	if name == "localhost" {
		return "", errors.New("the host's name is localhost: set a unique one or --node-name")
	}
	if !v.is("with-node-id", false) {
		return name, nil
	}
	id, err := persistedHex(filepath.Join(nodeDir, "id"), 4)
	return name + "-" + id, err
}

// nodeIP is the configured address or the one from which packets leave by the default route.
func nodeIP(v values) (net.IP, error) {
	if all := v.all("node-ip"); len(all) > 0 {
		ip := net.ParseIP(all[0])
		if ip == nil {
			return nil, fmt.Errorf("invalid node-ip: %s", all[0])
		}
		return ip, nil
	}
	// Connecting a UDP socket sends nothing; the kernel chooses the source address.
	for _, to := range []string{"192.0.2.1:9", "[2001:db8::1]:9"} {
		c, err := net.Dial("udp", to)
		if err != nil {
			continue
		}
		ip := c.LocalAddr().(*net.UDPAddr).IP
		if err := c.Close(); err != nil {
			return nil, err
		}
		return ip, nil
	}
	return nil, errors.New("no default routes found in \"/proc/net/route\" or \"/proc/net/ipv6_route\"")
}

// persistedHex reads a file with random hex of n bytes, or makes it.
func persistedHex(file string, n int) (string, error) {
	b, err := os.ReadFile(file)
	if err == nil {
		return strings.TrimSpace(string(b)), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	s, err := randomHex(n)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return "", err
	}
	return s, os.WriteFile(file, []byte(s+"\n"), 0o600)
}

// kubeletPrefixes and kubeletLabels are what a kubelet may set on itself in the namespaces of Kubernetes
// (k8s.io/component-helpers/node/util; the kubelet refuses to start with others).
var (
	kubeletPrefixes = regexp.MustCompile(`(^|\.)(kubelet\.kubernetes\.io|node\.kubernetes\.io)$`)
	kubeletLabels   = []string{
		"kubernetes.io/hostname", "kubernetes.io/arch", "kubernetes.io/os", "beta.kubernetes.io/arch", "beta.kubernetes.io/os",
		"beta.kubernetes.io/instance-type", "failure-domain.beta.kubernetes.io/region", "failure-domain.beta.kubernetes.io/zone",
		"topology.kubernetes.io/region", "topology.kubernetes.io/zone",
	}
)

func parseLabels(list []string) (map[string]string, error) {
	labels := map[string]string{}
	var unknown []string
	for _, l := range list {
		key, value, ok := strings.Cut(l, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("invalid node-label %q: key=value is expected", l)
		}
		labels[key] = value
		space, _, prefixed := strings.Cut(key, "/")
		if prefixed && (space == "kubernetes.io" || space == "k8s.io" || strings.HasSuffix(space, ".kubernetes.io") || strings.HasSuffix(space, ".k8s.io")) &&
			!kubeletPrefixes.MatchString(space) && !slices.Contains(kubeletLabels, key) {
			unknown = append(unknown, key)
		}
	}
	if len(unknown) > 0 {
		return nil, fmt.Errorf("failed to validate kubelet flags: unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: %v; "+
			"--node-labels in the 'kubernetes.io' namespace must begin with an allowed prefix (kubelet.kubernetes.io, node.kubernetes.io) or be in the "+
			"specifically allowed set", unknown)
	}
	return labels, nil
}

// parseTaints reads key=value:Effect and key:Effect.
func parseTaints(list []string) ([]kubeapi.Taint, error) {
	var taints []kubeapi.Taint
	for _, s := range list {
		i := strings.LastIndexByte(s, ':')
		if i < 0 {
			return nil, fmt.Errorf("invalid taint spec: %v", s)
		}
		key, value, _ := strings.Cut(s[:i], "=")
		effect := s[i+1:]
		if key == "" || !slices.Contains([]string{"NoSchedule", "PreferNoSchedule", "NoExecute"}, effect) {
			return nil, fmt.Errorf("invalid taint spec: %v", s)
		}
		taints = append(taints, kubeapi.Taint{Key: key, Value: value, Effect: effect})
	}
	return taints, nil
}

// mode parses an octal file mode.
func mode(s string, otherwise fs.FileMode) (fs.FileMode, error) {
	if s == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseUint(s, 8, 32)
	if err != nil {
		return 0, fmt.Errorf("failed to parse kubeconfig mode %q", s)
	}
	return fs.FileMode(n) & fs.ModePerm, nil
}
