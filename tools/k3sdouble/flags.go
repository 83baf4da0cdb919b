package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

type kind int

const (
	text kind = iota
	boolean
	integer
	list
)

// flag is a command-line flag, which is a key of the config file too.
type flag struct {
	name, alias string
	kind        kind
	env         string
	// split says that one value may be a comma-separated list.
	split bool
}

// The flags of k3s 1.36, from its documentation (cli/agent, cli/server). Those that this program does not act on are
// here to be accepted; everything else is refused, as k3s does.
var (
	agentFlags = []flag{
		{name: "config", alias: "c", env: "K3S_CONFIG_FILE"}, {name: "debug", kind: boolean, env: "K3S_DEBUG"},
		{name: "v", kind: integer}, {name: "vmodule"}, {name: "log", alias: "l"}, {name: "alsologtostderr", kind: boolean},
		{name: "token", alias: "t", env: "K3S_TOKEN"}, {name: "token-file", env: "K3S_TOKEN_FILE"}, {name: "server", alias: "s", env: "K3S_URL"},
		{name: "data-dir", alias: "d", env: "K3S_DATA_DIR"}, {name: "node-name", env: "K3S_NODE_NAME"}, {name: "with-node-id", kind: boolean},
		{name: "node-label", kind: list}, {name: "node-taint", kind: list},
		{name: "image-credential-provider-bin-dir"}, {name: "image-credential-provider-config"},
		{name: "selinux", kind: boolean, env: "K3S_SELINUX"}, {name: "lb-server-port", kind: integer, env: "K3S_LB_SERVER_PORT"},
		{name: "protect-kernel-defaults", kind: boolean}, {name: "container-runtime-endpoint"}, {name: "default-runtime"},
		{name: "image-service-endpoint"}, {name: "pause-image"}, {name: "snapshotter"}, {name: "private-registry"},
		{name: "disable-default-registry-endpoint", kind: boolean}, {name: "nonroot-devices", kind: boolean}, {name: "airgap-extra-registry", kind: list},
		{name: "node-ip", alias: "i", kind: list, split: true}, {name: "bind-address"}, {name: "node-external-ip", kind: list, split: true},
		{name: "node-internal-dns", kind: list, split: true}, {name: "node-external-dns", kind: list, split: true},
		{name: "resolv-conf", env: "K3S_RESOLV_CONF"}, {name: "flannel-iface"}, {name: "flannel-conf"}, {name: "flannel-cni-conf"},
		{name: "kubelet-arg", kind: list}, {name: "kube-proxy-arg", kind: list}, {name: "enable-pprof", kind: boolean},
		{name: "rootless", kind: boolean}, {name: "prefer-bundled-bin", kind: boolean}, {name: "docker", kind: boolean},
		{name: "vpn-auth", env: "K3S_VPN_AUTH"}, {name: "vpn-auth-file", env: "K3S_VPN_AUTH_FILE"},
	}

	agentOnlyFlags = []flag{{name: "disable-apiserver-lb", kind: boolean}}

	serverOnlyFlags = []flag{
		{name: "https-listen-port", kind: integer}, {name: "supervisor-port", kind: integer}, {name: "apiserver-port", kind: integer},
		{name: "apiserver-bind-address"}, {name: "advertise-address"}, {name: "advertise-port", kind: integer},
		{name: "tls-san", kind: list, split: true}, {name: "tls-san-security", kind: boolean},
		{name: "cluster-cidr", kind: list, split: true}, {name: "service-cidr", kind: list, split: true}, {name: "service-node-port-range"},
		{name: "cluster-dns", kind: list, split: true}, {name: "cluster-domain"}, {name: "flannel-backend"}, {name: "flannel-ipv6-masq", kind: boolean},
		{name: "flannel-external-ip", kind: boolean}, {name: "egress-selector-mode"}, {name: "servicelb-namespace"},
		{name: "write-kubeconfig", alias: "o", env: "K3S_KUBECONFIG_OUTPUT"}, {name: "write-kubeconfig-mode", env: "K3S_KUBECONFIG_MODE"},
		{name: "write-kubeconfig-group", env: "K3S_KUBECONFIG_GROUP"}, {name: "write-kubeconfig-name"}, {name: "helm-job-image"},
		{name: "agent-token", env: "K3S_AGENT_TOKEN"}, {name: "agent-token-file", env: "K3S_AGENT_TOKEN_FILE"},
		{name: "cluster-init", kind: boolean, env: "K3S_CLUSTER_INIT"}, {name: "cluster-reset", kind: boolean, env: "K3S_CLUSTER_RESET"},
		{name: "cluster-reset-restore-path"}, {name: "kube-apiserver-arg", kind: list}, {name: "etcd-arg", kind: list},
		{name: "kube-controller-manager-arg", kind: list}, {name: "kube-scheduler-arg", kind: list}, {name: "kube-cloud-controller-manager-arg", kind: list},
		{name: "kube-controller-arg", kind: list}, {name: "kube-cloud-controller-arg", kind: list}, {name: "kine-tls", kind: boolean},
		{name: "datastore-endpoint", env: "K3S_DATASTORE_ENDPOINT"}, {name: "datastore-cafile", env: "K3S_DATASTORE_CAFILE"},
		{name: "datastore-certfile", env: "K3S_DATASTORE_CERTFILE"}, {name: "datastore-keyfile", env: "K3S_DATASTORE_KEYFILE"},
		{name: "etcd-expose-metrics", kind: boolean}, {name: "etcd-disable-snapshots", kind: boolean}, {name: "etcd-snapshot-name"},
		{name: "etcd-snapshot-schedule-cron"}, {name: "etcd-snapshot-reconcile-interval"}, {name: "etcd-snapshot-retention", kind: integer},
		{name: "etcd-snapshot-dir"}, {name: "etcd-snapshot-compress", kind: boolean}, {name: "etcd-s3", kind: boolean}, {name: "etcd-s3-endpoint"},
		{name: "etcd-s3-endpoint-ca"}, {name: "etcd-s3-skip-ssl-verify", kind: boolean}, {name: "etcd-s3-access-key", env: "AWS_ACCESS_KEY_ID"},
		{name: "etcd-s3-secret-key", env: "AWS_SECRET_ACCESS_KEY"}, {name: "etcd-s3-session-token", env: "AWS_SESSION_TOKEN"}, {name: "etcd-s3-bucket"},
		{name: "etcd-s3-bucket-lookup-type"}, {name: "etcd-s3-region"}, {name: "etcd-s3-folder"}, {name: "etcd-s3-proxy"}, {name: "etcd-s3-config-secret"},
		{name: "etcd-s3-insecure", kind: boolean}, {name: "etcd-s3-timeout"}, {name: "etcd-s3-retention", kind: integer}, {name: "default-local-storage-path"},
		{name: "disable", kind: list, split: true}, {name: "disable-scheduler", kind: boolean}, {name: "disable-cloud-controller", kind: boolean},
		{name: "disable-kube-proxy", kind: boolean}, {name: "disable-network-policy", kind: boolean}, {name: "disable-helm-controller", kind: boolean},
		{name: "disable-apiserver", kind: boolean}, {name: "disable-controller-manager", kind: boolean}, {name: "disable-etcd", kind: boolean},
		{name: "disable-agent", kind: boolean}, {name: "embedded-registry", kind: boolean}, {name: "supervisor-metrics", kind: boolean},
		{name: "system-default-registry", env: "K3S_SYSTEM_DEFAULT_REGISTRY"}, {name: "secrets-encryption", kind: boolean},
		{name: "secrets-encryption-provider"},
	}
)

// flagsOf returns the flags of a command; the server has an agent's flags too.
func flagsOf(command string) []flag {
	if command == "server" {
		return slices.Concat(agentFlags, serverOnlyFlags)
	}
	return slices.Concat(agentFlags, agentOnlyFlags)
}

// values are the settings of a command by flag name; a scalar's last value counts.
type values map[string][]string

// parseFlags reads arguments in the forms -f v, --f v, --f=v; a boolean's value needs the =.
func parseFlags(flags []flag, args []string) (values, error) {
	out := values{}
	for i := 0; i < len(args); i++ {
		arg := args[i]
		if !strings.HasPrefix(arg, "-") || arg == "-" || arg == "--" {
			return nil, fmt.Errorf("invalid arguments: %s", strings.Join(args[i:], " "))
		}
		name, value, given := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(arg, "-"), "-"), "=")
		f, ok := findFlag(flags, name)
		if !ok {
			return nil, fmt.Errorf("flag provided but not defined: -%s", name)
		}
		switch {
		case given:
		case f.kind == boolean:
			value = "true"
		case i+1 == len(args):
			return nil, fmt.Errorf("flag needs an argument: -%s", name)
		default:
			i++
			value = args[i]
		}
		if err := f.check(value); err != nil {
			return nil, err
		}
		if f.split {
			out[f.name] = append(out[f.name], strings.Split(value, ",")...)
		} else {
			out[f.name] = append(out[f.name], value)
		}
	}
	for _, f := range flags {
		if v := os.Getenv(f.env); f.env != "" && v != "" && len(out[f.name]) == 0 {
			if err := f.check(v); err != nil {
				return nil, err
			}
			out[f.name] = []string{v}
		}
	}
	return out, nil
}

func (f flag) check(value string) error {
	var err error
	switch f.kind {
	case boolean:
		_, err = strconv.ParseBool(value)
	case integer:
		_, err = strconv.Atoi(value)
	case text, list:
	}
	if err != nil {
		return fmt.Errorf("invalid value %q for flag -%s: parse error", value, f.name)
	}
	return nil
}

func findFlag(flags []flag, name string) (flag, bool) {
	i := slices.IndexFunc(flags, func(f flag) bool { return f.name == name || f.alias != "" && f.alias == name })
	if i < 0 {
		return flag{}, false
	}
	return flags[i], true
}

// str returns a scalar, or a default.
func (v values) str(name, otherwise string) string {
	if all := v[name]; len(all) > 0 {
		return all[len(all)-1]
	}
	return otherwise
}

// is returns a boolean, or a default.
func (v values) is(name string, otherwise bool) bool {
	b, err := strconv.ParseBool(v.str(name, ""))
	if err != nil {
		return otherwise
	}
	return b
}

// num returns an integer, or a default.
func (v values) num(name string, otherwise int) int {
	n, err := strconv.Atoi(v.str(name, ""))
	if err != nil {
		return otherwise
	}
	return n
}

// all returns a list, or a default.
func (v values) all(name string, otherwise ...string) []string {
	if l := v[name]; len(l) > 0 {
		return l
	}
	return otherwise
}
