package operators

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/kubeapi"
)

const (
	calicoNamespace = "calico-system"
	// calicoVersion is that of the programs that the operator installs; a real operator has it built in.
	calicoVersion = "v3.32.1"
	tigeraAPI     = "/apis/operator.tigera.io/v1/"
)

// installation is the part of an Installation that the operator reads here.
type installation struct {
	Metadata kubeapi.Meta `json:"metadata"`
	Spec     struct {
		Registry             string `json:"registry"`
		ControlPlaneReplicas *int   `json:"controlPlaneReplicas"`
		CalicoNetwork        struct {
			BGP     string `json:"bgp"`
			IPPools []pool `json:"ipPools"`
		} `json:"calicoNetwork"`
	} `json:"spec"`
}

// pool is a pool of pod addresses.
type pool struct {
	CIDR          string `json:"cidr"`
	Encapsulation string `json:"encapsulation"`
	NATOutgoing   string `json:"natOutgoing"`
	NodeSelector  string `json:"nodeSelector"`
	BlockSize     int    `json:"blockSize"`
}

// tigera is Calico's operator. What it makes is the Installation's own, and goes with it.
func (o *Operators) tigera(ctx context.Context, all workloads) error {
	if !all.named("Deployment", "tigera-operator").runs() {
		return nil
	}
	var i installation
	switch err := o.api.Get(ctx, tigeraAPI+"installations/default", &i); {
	case kubeapi.IsNotFound(err):
		return nil
	case err != nil:
		return err
	}
	owner := &kubeapi.OwnerReference{APIVersion: "operator.tigera.io/v1", Kind: "Installation", Name: "default", UID: i.Metadata.UID}
	if err := o.apply(ctx, "/api/v1/namespaces/"+calicoNamespace, object{
		"apiVersion": "v1", "kind": "Namespace",
		"metadata": metadata("", calicoNamespace, map[string]string{"pod-security.kubernetes.io/enforce": "privileged"}, owner),
	}); err != nil {
		return err
	}
	for n, p := range i.Spec.CalicoNetwork.IPPools {
		if err := o.ipPool(ctx, n, p); err != nil {
			return err
		}
	}
	parts := []part{
		{"DaemonSet", "calico-node", 0, calicoNode(i)},
		{"Deployment", "calico-typha", 1, calicoPod(i, "typha", true)},
		{"Deployment", "calico-kube-controllers", 1, calicoPod(i, "kube-controllers", false)},
	}
	if err := o.install(ctx, parts, owner); err != nil {
		return err
	}
	err := errors.Join(o.tigeraStatus(ctx, all, "calico", parts), o.tigeraStatus(ctx, all, "ippools", nil))
	return errors.Join(err, o.apiServer(ctx, all, i))
}

// apiServer makes Calico's API server, if it is asked for.
func (o *Operators) apiServer(ctx context.Context, all workloads, i installation) error {
	var asked installation
	switch err := o.api.Get(ctx, tigeraAPI+"apiservers/default", &asked); {
	case kubeapi.IsNotFound(err):
		return nil
	case err != nil:
		return err
	}
	replicas := 2
	if i.Spec.ControlPlaneReplicas != nil {
		replicas = *i.Spec.ControlPlaneReplicas
	}
	parts := []part{{"Deployment", "calico-apiserver", replicas, calicoPod(i, "apiserver", false)}}
	owner := &kubeapi.OwnerReference{APIVersion: "operator.tigera.io/v1", Kind: "APIServer", Name: "default", UID: asked.Metadata.UID}
	if err := o.install(ctx, parts, owner); err != nil {
		return err
	}
	return o.tigeraStatus(ctx, all, "apiserver", parts)
}

// part is a workload that the operator makes.
type part struct {
	kind, name string
	replicas   int
	pod        object
}

func (o *Operators) install(ctx context.Context, parts []part, owner *kubeapi.OwnerReference) error {
	for _, p := range parts {
		labels := map[string]string{"k8s-app": p.name}
		path, account := serviceAccount(metadata(calicoNamespace, p.name, nil, owner))
		if err := o.apply(ctx, path, account); err != nil {
			return err
		}
		path, body := appsWorkload(p.kind, metadata(calicoNamespace, p.name, labels, owner), p.replicas, labels, p.pod)
		if err := o.apply(ctx, path, body); err != nil {
			return err
		}
	}
	return nil
}

// calicoImage is where a part's image comes from.
func calicoImage(i installation, name string) string {
	return cmp.Or(i.Spec.Registry, "quay.io/") + "calico/" + name + ":" + calicoVersion
}

// calicoPod is the pod of a part with one container. Parts with the host's network tolerate every taint, and the others those
// of servers.
func calicoPod(i installation, name string, hostNetwork bool) object {
	tolerations := []object{
		{"key": "CriticalAddonsOnly", "operator": "Exists"},
		{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule"},
		{"key": "node-role.kubernetes.io/master", "operator": "Exists", "effect": "NoSchedule"},
	}
	if hostNetwork {
		tolerations = []object{{"operator": "Exists", "effect": "NoExecute"}, {"operator": "Exists", "effect": "NoSchedule"}}
	}
	return object{
		"hostNetwork": hostNetwork, "serviceAccountName": "calico-" + name, "tolerations": tolerations,
		"nodeSelector": object{"kubernetes.io/os": "linux"}, "priorityClassName": "system-cluster-critical",
		"containers": []object{{"name": "calico-" + name, "image": calicoImage(i, name)}},
	}
}

// calicoNode is the pod that brings the network to a node.
func calicoNode(i installation) object {
	backend := "bird"
	if i.Spec.CalicoNetwork.BGP == "Disabled" {
		backend = "vxlan"
	}
	pod := calicoPod(i, "node", true)
	pod["priorityClassName"] = "system-node-critical"
	pod["initContainers"] = []object{{"name": "install-cni", "image": calicoImage(i, "cni")}}
	pod["containers"] = []object{{
		"name": "calico-node", "image": calicoImage(i, "node"), "securityContext": object{"privileged": true},
		"env": []object{{"name": "CALICO_NETWORKING_BACKEND", "value": backend}},
	}}
	pod["volumes"] = []object{
		{"name": "cni-bin-dir", "hostPath": object{"path": "/opt/cni/bin", "type": "DirectoryOrCreate"}},
		{"name": "cni-net-dir", "hostPath": object{"path": "/etc/cni/net.d"}},
	}
	return pod
}

// ipPool makes the pool number n of an Installation.
func (o *Operators) ipPool(ctx context.Context, n int, p pool) error {
	name := "default-ipv4-ippool"
	if n > 0 {
		name = fmt.Sprintf("ippool-%d", n)
	}
	mode := func(always, cross string) string {
		switch p.Encapsulation {
		case always:
			return "Always"
		case cross:
			return "CrossSubnet"
		}
		return "Never"
	}
	return o.apply(ctx, "/apis/crd.projectcalico.org/v1/ippools/"+name, object{
		"apiVersion": "crd.projectcalico.org/v1", "kind": "IPPool",
		"metadata": metadata("", name, map[string]string{"app.kubernetes.io/managed-by": "tigera-operator"}, nil),
		"spec": object{
			"cidr": p.CIDR, "natOutgoing": p.NATOutgoing != "Disabled", "nodeSelector": cmp.Or(p.NodeSelector, "all()"),
			"blockSize": cmp.Or(p.BlockSize, 26), "ipipMode": mode("IPIP", "IPIPCrossSubnet"), "vxlanMode": mode("VXLAN", "VXLANCrossSubnet"),
		},
	})
}

// tigeraStatus tells how one of the operator's concerns is.
func (o *Operators) tigeraStatus(ctx context.Context, all workloads, name string, parts []part) error {
	available, progressing, degraded := condition("Available", "True", "AllObjectsAvailable", "All objects available"),
		condition("Progressing", "False", "AllObjectsAvailable", "All objects available"),
		condition("Degraded", "False", "AllObjectsAvailable", "All objects available")
	for _, p := range parts {
		n := all[p.kind+"/"+calicoNamespace+"/"+p.name].awaited()
		if n == 0 {
			continue
		}
		what := "nodes"
		if p.kind == "Deployment" {
			what = "replicas"
		}
		waits := fmt.Sprintf("%s %q is not available (awaiting %d %s)", p.kind, calicoNamespace+"/"+p.name, n, what)
		available = condition("Available", "False", "ResourceNotReady", waits)
		progressing = condition("Progressing", "True", "ResourceNotReady", waits)
		failure, err := o.podFailure(ctx, p.name)
		if err != nil {
			return err
		}
		if failure != "" {
			degraded = condition("Degraded", "True", "PodFailure", failure)
		}
		break
	}
	path := tigeraAPI + "tigerastatuses/" + name
	body := object{"apiVersion": "operator.tigera.io/v1", "kind": "TigeraStatus", "metadata": metadata("", name, nil, nil)}
	if err := o.apply(ctx, path, body); err != nil {
		return err
	}
	body["status"] = object{"conditions": []object{available, progressing, degraded}}
	return o.apply(ctx, path+"/status", body)
}

// podFailure tells of a pod of a part that cannot get its image, "" where there is none.
func (o *Operators) podFailure(ctx context.Context, app string) (string, error) {
	var pods kubeapi.List[kubeapi.Pod]
	if err := o.api.Get(ctx, "/api/v1/namespaces/"+calicoNamespace+"/pods?labelSelector=k8s-app%3D"+app, &pods); err != nil {
		return "", err
	}
	for _, p := range pods.Items {
		for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			if w := c.State.Waiting; w != nil && (w.Reason == "ErrImagePull" || w.Reason == "ImagePullBackOff") {
				return fmt.Sprintf("Pod %s/%s failed to pull container image for: %s", calicoNamespace, p.Metadata.Name, c.Name), nil
			}
		}
	}
	return "", nil
}
