package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/kubeapi"
)

// networkNotReady is what a container runtime without a network configuration says.
const networkNotReady = "network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized"

const (
	leaseEvery  = 10 * time.Second
	leaseFor    = 40
	statusEvery = 5 * time.Minute
	statusLook  = 10 * time.Second
	nodeRetry   = 2 * time.Second
)

// kubelet registers a node, keeps it alive in the API's eyes, and carries pods through their life without running
// anything.
type kubelet struct {
	o       *options
	shared  sharedConfig
	api     *kubeapi.Client
	serving tls.Certificate

	network network
	pods    podTable
	// podCIDR belongs to keepStatus; again tells it that the Node is a new one.
	podCIDR string
	again   atomic.Bool
	// wake asks for a look at the node's status before its time.
	wake chan struct{}
}

func (k *kubelet) run(ctx context.Context) error {
	k.network.o, k.network.flannel = k.o, k.shared.FlannelBackend
	k.pods.init(k)
	if err := k.retry(ctx, "Unable to register node with API server", k.register); err != nil {
		return nil //nolint:nilerr // the end of the context is the normal end
	}
	log.infof("Successfully registered node %s", k.o.nodeName)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return k.serve(ctx) })
	group.Go(func() error { return k.keepLease(ctx) })
	group.Go(func() error { return k.keepStatus(ctx) })
	group.Go(func() error { return k.pods.run(ctx) })
	group.Go(func() error { return k.notifyAgent(ctx) })
	return group.Wait()
}

// notifyAgent reports an agent's start to systemd. The real one waits for its network; so does this.
func (k *kubelet) notifyAgent(ctx context.Context) error {
	if k.o.command != "agent" {
		return nil
	}
	for !k.network.ready() && k.shared.FlannelBackend != "none" {
		if sleep(ctx, nodeRetry) != nil {
			return nil
		}
	}
	log.infof("k3s agent is up and running")
	return notifyReady()
}

// retry calls f until it succeeds or ctx ends.
func (k *kubelet) retry(ctx context.Context, what string, f func(context.Context) error) error {
	for {
		err := f(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			log.errorf("%s: %v", what, err)
		}
		if err := sleep(ctx, nodeRetry); err != nil {
			return err
		}
	}
}

func (k *kubelet) nodePath() string { return "/api/v1/nodes/" + k.o.nodeName }

// register makes the Node, or brings an existing one up to date: labels and taints of the configuration count only
// for a new one.
func (k *kubelet) register(ctx context.Context) error {
	n, err := k.node()
	if err != nil {
		return err
	}
	err = k.api.Create(ctx, "/api/v1/nodes", n, nil)
	if !kubeapi.IsConflict(err) {
		return err
	}
	return k.api.Patch(ctx, k.nodePath(), kubeapi.MergePatch, map[string]any{
		"metadata": map[string]any{"annotations": n.Metadata.Annotations},
	}, nil)
}

// node is the Node object of a new node.
func (k *kubelet) node() (kubeapi.Node, error) {
	facts, err := readFacts()
	if err != nil {
		return kubeapi.Node{}, err
	}
	labels := map[string]string{
		"kubernetes.io/hostname": k.o.nodeName, "kubernetes.io/os": "linux", "kubernetes.io/arch": facts.arch,
		"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": facts.arch,
	}
	maps.Copy(labels, k.o.labels)
	if k.shared.EmbeddedRegistry {
		labels["p2p.k3s.cattle.io/enabled"] = "true"
	}
	taints := k.o.taints
	if !k.shared.DisableCCM {
		taints = append(taints, kubeapi.Taint{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: "NoSchedule"})
	}
	status := k.status(facts, k.network.ready())
	for i := range status.Conditions {
		status.Conditions[i].LastTransitionTime = kubeapi.Now()
	}
	return kubeapi.Node{
		APIVersion: "v1", Kind: "Node",
		Metadata: kubeapi.Meta{Name: k.o.nodeName, Labels: labels, Annotations: k.annotations()},
		Spec:     kubeapi.NodeSpec{Taints: taints},
		Status:   status,
	}, nil
}

func (k *kubelet) annotations() map[string]string {
	args := nodeArgs(k.o.args)
	a := map[string]string{
		"k3s.io/hostname": k.o.nodeName, "k3s.io/internal-ip": k.o.nodeIP.String(),
		"k3s.io/node-args": args, "k3s.io/node-env": nodeEnv(), "k3s.io/node-config-hash": strings.ToUpper(hashHex(args + nodeEnv())),
	}
	if len(k.o.extraIPs) > 0 {
		a["k3s.io/external-ip"] = k.o.extraIPs[0].String()
	}
	return a
}

// status is the Node's status as it is now.
func (k *kubelet) status(f facts, networkReady bool) kubeapi.NodeStatus {
	now := kubeapi.Now()
	condition := func(kind, reason, message string) kubeapi.Condition {
		return kubeapi.Condition{Type: kind, Status: "False", Reason: reason, Message: message, LastHeartbeatTime: now}
	}
	ready := kubeapi.Condition{Type: "Ready", Status: "True", Reason: "KubeletReady", Message: "kubelet is posting ready status", LastHeartbeatTime: now}
	if !networkReady {
		ready.Status, ready.Reason = "False", "KubeletNotReady"
		ready.Message = "container runtime " + networkNotReady
	}
	addresses := []kubeapi.Address{{Type: "InternalIP", Address: k.o.nodeIP.String()}}
	for _, ip := range k.o.extraIPs {
		addresses = append(addresses, kubeapi.Address{Type: "ExternalIP", Address: ip.String()})
	}
	status := kubeapi.NodeStatus{
		Capacity: f.resources(), Allocatable: f.resources(), Addresses: append(addresses, kubeapi.Address{Type: "Hostname", Address: k.o.nodeName}),
		DaemonEndpoints: &kubeapi.DaemonEndpoints{},
		Conditions: []kubeapi.Condition{
			condition("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
			condition("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
			condition("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
			ready,
		},
		NodeInfo: f.info(k.o.version),
	}
	status.DaemonEndpoints.KubeletEndpoint.Port = 10250
	return status
}

// keepStatus writes the node's status when it changes and every five minutes.
func (k *kubelet) keepStatus(ctx context.Context) error {
	var last bool
	var written time.Time
	for {
		if k.again.Swap(false) {
			k.podCIDR, written = "", time.Time{}
		}
		err := k.findPodCIDR(ctx)
		ready := k.network.ready()
		if first := written.IsZero(); err == nil && (first || ready != last || time.Since(written) > statusEvery) {
			if err = k.writeStatus(ctx, ready); err == nil {
				last, written = ready, time.Now()
				k.pods.nudge()
			}
		}
		if err != nil && ctx.Err() == nil && !kubeapi.IsNotFound(err) {
			log.errorf("Error updating node status, will retry: %v", err)
		}
		wait := nodeRetry
		if k.podCIDR != "" && last {
			wait = statusLook
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		case <-k.wake:
		}
	}
}

// findPodCIDR waits for the controller manager to give the node its pods' addresses; the network starts then.
func (k *kubelet) findPodCIDR(ctx context.Context) error {
	if k.podCIDR != "" {
		return nil
	}
	var n kubeapi.Node
	if err := k.api.Get(ctx, k.nodePath(), &n); err != nil || n.Spec.PodCIDR == "" {
		return err
	}
	k.podCIDR = n.Spec.PodCIDR
	if err := k.network.start(ctx, k.podCIDR); err != nil {
		return err
	}
	k.pods.setCIDR(k.podCIDR)
	return nil
}

// writeStatus patches the status. In a strategic merge a condition without a transition time keeps the old one.
func (k *kubelet) writeStatus(ctx context.Context, ready bool) error {
	facts, err := readFacts()
	if err != nil {
		return err
	}
	var n kubeapi.Node
	if err := k.api.Get(ctx, k.nodePath(), &n); err != nil {
		return err
	}
	status := k.status(facts, ready)
	for i, c := range status.Conditions {
		if !slices.ContainsFunc(n.Status.Conditions, func(o kubeapi.Condition) bool { return o.Type == c.Type && o.Status == c.Status }) {
			status.Conditions[i].LastTransitionTime = kubeapi.Now()
		}
	}
	if err := k.api.Patch(ctx, k.nodePath()+"/status", kubeapi.StrategicPatch, map[string]any{"status": status}, nil); err != nil {
		return err
	}
	notes := k.network.annotations(k.o.nodeIP.String())
	if len(notes) == 0 {
		return nil
	}
	return k.api.Patch(ctx, k.nodePath(), kubeapi.MergePatch, map[string]any{"metadata": map[string]any{"annotations": notes}}, nil)
}

// keepLease renews the node's lease. A node that was deleted while its k3s ran registers anew.
func (k *kubelet) keepLease(ctx context.Context) error {
	const leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
	for {
		spec := kubeapi.LeaseSpec{HolderIdentity: k.o.nodeName, LeaseDurationSeconds: leaseFor, RenewTime: kubeapi.MicroTime(time.Now())}
		err := k.api.Patch(ctx, leases+"/"+k.o.nodeName, kubeapi.MergePatch, map[string]any{"spec": spec}, nil)
		if kubeapi.IsNotFound(err) {
			err = k.createLease(ctx, leases, spec)
		}
		if err != nil && ctx.Err() == nil {
			log.errorf("Failed to update lease: %v", err)
		}
		if sleep(ctx, leaseEvery) != nil {
			return nil
		}
	}
}

// createLease makes the lease; without its Node, it makes that first.
func (k *kubelet) createLease(ctx context.Context, leases string, spec kubeapi.LeaseSpec) error {
	var n kubeapi.Node
	err := k.api.Get(ctx, k.nodePath(), &n)
	if kubeapi.IsNotFound(err) {
		log.infof("Node %s not found: registering it again", k.o.nodeName)
		if err := k.register(ctx); err != nil {
			return err
		}
		k.again.Store(true)
		err = k.api.Get(ctx, k.nodePath(), &n)
	}
	if err != nil {
		return err
	}
	return k.api.Create(ctx, leases, kubeapi.Lease{
		APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Spec: spec,
		Metadata: kubeapi.Meta{Name: k.o.nodeName, Namespace: "kube-node-lease", OwnerReferences: []kubeapi.OwnerReference{
			{APIVersion: "v1", Kind: "Node", Name: k.o.nodeName, UID: n.Metadata.UID},
		}},
	}, nil)
}

// nodeArgs is the annotation of the arguments, each flag apart from its value; secrets are replaced.
func nodeArgs(args []string) string {
	out := make([]string, 0, len(args))
	hide := false
	for _, a := range args {
		name, value, given := strings.Cut(a, "=")
		flag := strings.HasPrefix(a, "-")
		secret := name == "-t" || flag && slices.ContainsFunc([]string{"token", "secret", "vpn-auth", "datastore-endpoint"}, func(s string) bool { return strings.Contains(name, s) })
		switch {
		case hide:
			out, hide = append(out, hidden), false
		case flag && given && secret:
			out = append(out, name, hidden)
		case flag && given:
			out = append(out, name, value)
		default:
			out, hide = append(out, a), secret && !strings.HasSuffix(name, "secrets-encryption")
		}
	}
	b, err := json.Marshal(out)
	if err != nil {
		return "[]" // strings cannot fail
	}
	return string(b)
}

const hidden = "********"
