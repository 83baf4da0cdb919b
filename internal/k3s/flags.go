package k3s

import (
	"slices"
	"strings"
)

// flagKind is what a flag of k3s takes.
type flagKind int

const (
	// valueFlag takes one value, the last that it is given.
	valueFlag flagKind = iota
	// boolFlag takes true or false, and stands for true without a value.
	boolFlag
	// listFlag takes all the values that it is given.
	listFlag
)

// The flags of k3s 1.31 to 1.37 (https://docs.k3s.io/cli/server, https://docs.k3s.io/cli/agent), those that these pages
// do not show included.
var (
	agentFlags = slices.Concat(agentBools, agentLists, agentValues)

	agentBools = strings.Fields(`alsologtostderr debug disable-apiserver-lb disable-default-registry-endpoint docker enable-pprof
		nonroot-devices prefer-bundled-bin protect-kernel-defaults rootless selinux with-node-id`)
	agentLists = strings.Fields(`airgap-extra-registry kubelet-arg kube-proxy-arg node-external-dns node-external-ip
		node-internal-dns node-ip node-label node-taint`)
	agentValues = strings.Fields(`bind-address config container-runtime-endpoint data-dir default-runtime flannel-cni-conf
		flannel-conf flannel-iface image-credential-provider-bin-dir image-credential-provider-config image-service-endpoint
		lb-server-port log node-name pause-image private-registry resolv-conf server snapshotter token token-file v vmodule
		vpn-auth vpn-auth-file`)
	serverBools = strings.Fields(`cluster-init cluster-reset disable-agent disable-apiserver disable-cloud-controller
		disable-controller-manager disable-etcd disable-helm-controller disable-kube-proxy disable-network-policy
		disable-scheduler embedded-registry etcd-disable-snapshots etcd-expose-metrics etcd-s3 etcd-s3-insecure
		etcd-s3-skip-ssl-verify etcd-snapshot-compress flannel-external-ip flannel-ipv6-masq kine-tls secrets-encryption
		supervisor-metrics tls-san-security`)
	serverLists = strings.Fields(`cluster-cidr cluster-dns disable etcd-arg helm-controller-arg kube-apiserver-arg
		kube-cloud-controller-arg kube-cloud-controller-manager-arg kube-controller-arg kube-controller-manager-arg
		kube-scheduler-arg service-cidr tls-san`)
	serverValues = strings.Fields(`advertise-address advertise-port agent-token agent-token-file apiserver-bind-address
		apiserver-port cluster-domain cluster-reset-restore-path datastore-cafile datastore-certfile datastore-endpoint
		datastore-keyfile default-local-storage-path egress-selector-mode etcd-s3-access-key etcd-s3-bucket
		etcd-s3-bucket-lookup-type etcd-s3-config-secret etcd-s3-endpoint etcd-s3-endpoint-ca etcd-s3-folder etcd-s3-proxy
		etcd-s3-region etcd-s3-retention etcd-s3-secret-key etcd-s3-session-token etcd-s3-timeout etcd-snapshot-dir
		etcd-snapshot-name etcd-snapshot-reconcile-interval etcd-snapshot-retention etcd-snapshot-schedule-cron
		flannel-backend helm-job-image https-listen-port secrets-encryption-provider service-node-port-range
		servicelb-namespace supervisor-port system-default-registry write-kubeconfig write-kubeconfig-group
		write-kubeconfig-mode`)
)

// agentOnly is the one flag of agents that servers do not have.
const agentOnly = "disable-apiserver-lb"

// flags tells of every flag what it takes.
var flags = func() map[string]flagKind {
	out := map[string]flagKind{}
	for kind, names := range map[flagKind][]string{
		boolFlag: slices.Concat(agentBools, serverBools), listFlag: slices.Concat(agentLists, serverLists),
		valueFlag: slices.Concat(agentValues, serverValues),
	} {
		for _, name := range names {
			out[name] = kind
		}
	}
	return out
}()

// aliases are the short names of flags.
var aliases = map[string]string{
	"c": "config", "d": "data-dir", "h": "help", "i": "node-ip", "l": "log", "o": "write-kubeconfig", "s": "server", "t": "token",
}

// flagNames are the flags that a node of a role may be given.
func flagNames(role Role) []string {
	if role == Agent {
		return agentFlags
	}
	return slices.Concat(agentFlags, serverBools, serverLists, serverValues)
}

// Why flags are not the user's to set.
const (
	ownToken   = "the provider joins nodes with the cluster's own token, and this one would stand readable in the state"
	ownJoin    = "the provider decides where a node joins"
	ownReset   = "it is for one start of one server; run it on the server, not from here"
	ownConfig  = "the provider finds the files of k3s at their usual place"
	ownName    = "a node has the name of its VM, by which the provider knows it"
	ownPort    = "the provider reaches servers at port 6443; put another port into endpoint, on a load balancer before them"
	ownPart    = "the provider counts on every server to run all of the control plane"
	ownStore   = "a cluster keeps its data in the etcd of its own servers"
	ownStorage = "k3s' own local-storage is off in every cluster, and the class local-path is the cluster's csi.local_path; leave local_path out of csi to have none"
	ownBackend = "use the cluster's cni.plugin and cni.routing"
	ownPolicy  = "it follows from the cluster's cni.plugin: k3s enforces network policies where the plugin is flannel, and else the plugin does"
	ownHelp    = "it does not run k3s"
	secretS3   = "arguments stand readable in the state and in the VMs' metadata; put the credentials into a Secret, and use --etcd-s3-config-secret"
)

// takenFlags are flags that the user cannot set, and why, or what to use instead.
var takenFlags = map[string]string{
	"token": ownToken, "token-file": ownToken, "agent-token": ownToken, "agent-token-file": ownToken, "cluster-secret": ownToken,
	"server": ownJoin, "cluster-init": ownJoin,
	"cluster-reset": ownReset, "cluster-reset-restore-path": ownReset,
	"config": ownConfig, "data-dir": ownConfig, "write-kubeconfig": ownConfig, "write-kubeconfig-mode": ownConfig, "write-kubeconfig-group": ownConfig,
	"node-name": ownName, "with-node-id": ownName,
	"node-ip":           "each node has its own address, and these arguments are for all of them",
	"tls-san":           "use the cluster's tls_sans",
	"https-listen-port": ownPort, "supervisor-port": ownPort, "apiserver-port": ownPort, "advertise-port": ownPort,
	"disable-agent": ownPart, "disable-apiserver": ownPart, "disable-controller-manager": ownPart, "disable-etcd": ownPart,
	"datastore-endpoint": ownStore, "datastore-cafile": ownStore, "datastore-certfile": ownStore, "datastore-keyfile": ownStore, "kine-tls": ownStore,
	"default-local-storage-path": "use the cluster's csi.local_path.path",
	"flannel-backend":            ownBackend, "no-flannel": ownBackend,
	"cluster-cidr": "use the cluster's cni.pod_cidr", "service-cidr": "use the cluster's cni.service_cidr",
	"disable-network-policy":  ownPolicy,
	"disable-kube-proxy":      "it follows from the cluster's cni.kube_proxy_replacement",
	"system-default-registry": "use image_registry in the provider's configuration",
	"private-registry":        "use registries_yaml",
	"etcd-s3-secret-key":      secretS3, "etcd-s3-session-token": secretS3,
	"vpn-auth": "arguments stand readable in the state and in the VMs' metadata; use --vpn-auth-file with a file that extra_user_data writes",
	"help":     ownHelp, "version": ownHelp,
}

// agentTaken are flags that pools have attributes for, and servers have not.
var agentTaken = map[string]string{"node-label": "use the pool's labels", "node-taint": "use the pool's taints"}
