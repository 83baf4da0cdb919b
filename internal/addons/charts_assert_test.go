package addons

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// checkRendered looks at what the charts make of the values, per add-on.
var checkRendered = map[cluster.Addon]func(t *testing.T, v variant, objects []*unstructured.Unstructured){
	cluster.Calico:    checkCalico,
	cluster.Cilium:    checkCilium,
	cluster.LocalPath: func(*testing.T, variant, []*unstructured.Unstructured) {},
	cluster.NFS:       checkNFSObjects,
	cluster.Longhorn:  checkLonghorn,
}

// expect compares fields of an object, each a path of keys joined with slashes.
func expect(t *testing.T, o *unstructured.Unstructured, fields map[string]string) {
	t.Helper()
	for path, want := range fields {
		if got := field(o, strings.Split(path, "/")...); got != want {
			t.Errorf("%s %s: %s is %q, want %q", o.GetKind(), o.GetName(), path, got, want)
		}
	}
}

func checkCalico(t *testing.T, v variant, objects []*unstructured.Unstructured) {
	installation := object(t, objects, "Installation", "default")
	network := map[string]string{"bgp": "Enabled", "encapsulation": "IPIP"}
	if v.spec.CNI.Routing == record.VXLAN {
		network = map[string]string{"bgp": "Disabled", "encapsulation": "VXLAN"}
	}
	registry := ""
	if v.spec.ImageRegistry != "" {
		registry = v.spec.ImageRegistry + "/"
	}
	expect(t, installation, map[string]string{
		"spec/calicoNetwork/bgp":                                   network["bgp"],
		"spec/calicoNetwork/containerIPForwarding":                 "Enabled",
		"spec/calicoNetwork/nodeAddressAutodetectionV4/kubernetes": "NodeInternalIP",
		"spec/controlPlaneReplicas":                                fmt.Sprint(min(2, v.spec.Servers)),
		"spec/registry":                                            registry,
		"spec/kubeletVolumePluginPath":                             "None",
		"spec/enabled":                                             "",
	})
	pools, _, _ := unstructured.NestedSlice(installation.Object, "spec", "calicoNetwork", "ipPools")
	if len(pools) != 1 {
		t.Fatalf("pools %v", pools)
	}
	expect(t, &unstructured.Unstructured{Object: pools[0].(map[string]any)}, map[string]string{
		"cidr": podCIDR(v.spec), "encapsulation": network["encapsulation"], "natOutgoing": "Enabled", "nodeSelector": "all()", "blockSize": "26",
	})
	object(t, objects, "APIServer", "default")
	for _, o := range objects {
		if kind := o.GetKind(); kind == "Goldmane" || kind == "Whisker" {
			t.Errorf("there is a %s", kind)
		}
	}
	if operator := object(t, objects, "Deployment", "tigera-operator"); !toleratesEverything(operator) {
		t.Errorf("the operator's tolerations are %s", field(operator, "spec", "template", "spec", "tolerations"))
	}
}

// toleratesEverything reports whether a workload runs on any node, whatever its taints.
func toleratesEverything(o *unstructured.Unstructured) bool {
	list, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "tolerations")
	for _, effect := range []string{"NoSchedule", "NoExecute"} {
		if !slices.ContainsFunc(list, func(item any) bool {
			m := item.(map[string]any)
			return m["operator"] == "Exists" && m["key"] == nil && (m["effect"] == nil || m["effect"] == effect)
		}) {
			return false
		}
	}
	return true
}

func checkCilium(t *testing.T, v variant, objects []*unstructured.Unstructured) {
	cni := v.spec.CNI
	want := map[string]string{
		"data/ipam":                      "kubernetes",
		"data/k8s-require-ipv4-pod-cidr": "true",
		"data/cluster-pool-ipv4-cidr":    "",
		"data/routing-mode":              "tunnel",
		"data/tunnel-protocol":           "vxlan",
		"data/auto-direct-node-routes":   "false",
		"data/ipv4-native-routing-cidr":  "",
		"data/kube-proxy-replacement":    fmt.Sprint(cni.KubeProxyReplacement),
		"data/enable-bpf-masquerade":     "",
		"data/enable-hubble":             fmt.Sprint(cni.Hubble),
		"data/enable-ipv4":               "true",
		"data/enable-ipv6":               "false",
	}
	if cni.Routing == record.Native {
		want["data/routing-mode"], want["data/auto-direct-node-routes"], want["data/ipv4-native-routing-cidr"] = "native", "true", podCIDR(v.spec)
	}
	if cni.KubeProxyReplacement {
		want["data/enable-bpf-masquerade"] = "true"
	}
	expect(t, object(t, objects, "ConfigMap", "cilium-config"), want)

	agent, operator := object(t, objects, "DaemonSet", "cilium"), object(t, objects, "Deployment", "cilium-operator")
	expect(t, operator, map[string]string{"spec/replicas": fmt.Sprint(min(2, v.spec.Servers)), "spec/template/spec/hostNetwork": "true"})
	expect(t, agent, map[string]string{"spec/template/spec/hostNetwork": "true"})
	for _, o := range []*unstructured.Unstructured{agent, operator} {
		spec := field(o, "spec", "template", "spec")
		for _, variable := range []string{`{"name":"KUBERNETES_SERVICE_HOST","value":"127.0.0.1"}`, `{"name":"KUBERNETES_SERVICE_PORT","value":"6444"}`} {
			if !strings.Contains(spec, variable) {
				t.Errorf("%s has no %s", o.GetName(), variable)
			}
		}
		if field(o, "spec", "template", "metadata", "annotations", "cilium.io/cilium-configmap-checksum") == "" {
			t.Errorf("the pods of %s would not see a change of their settings", o.GetName())
		}
	}
	for path, directory := range map[string]string{"/etc/cni/net.d": "etc-cni-netd", "/opt/cni/bin": "cni-path"} {
		if spec := field(agent, "spec", "template", "spec", "volumes"); !strings.Contains(spec, `"hostPath":{"path":"`+path) || !strings.Contains(spec, directory) {
			t.Errorf("the agent does not mount %s", path)
		}
	}
	// Workers come later, and the taints of nodes without a network stay until it runs.
	tolerations := field(operator, "spec", "template", "spec", "tolerations")
	for _, want := range []string{`{"effect":"NoSchedule","operator":"Exists"}`, `{"key":"node.kubernetes.io/not-ready","operator":"Exists"}`} {
		if !strings.Contains(tolerations, want) {
			t.Errorf("the operator does not tolerate %s: %s", want, tolerations)
		}
	}
	relay := slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "Deployment" && o.GetName() == "hubble-relay"
	})
	renewed := slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "CronJob" })
	if relay != cni.Hubble || renewed != cni.Hubble {
		t.Errorf("the relay is there: %v, its certificates are renewed: %v", relay, renewed)
	}
}

func checkNFSObjects(t *testing.T, v variant, objects []*unstructured.Unstructured) {
	expect(t, object(t, objects, "StorageClass", record.NFSClass), map[string]string{
		"allowVolumeExpansion": "true", "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate",
		"parameters/server": v.spec.CSI.NFS.Server, "parameters/share": v.spec.CSI.NFS.Path,
	})
	controller := object(t, objects, "Deployment", nfsController)
	expect(t, controller, map[string]string{"spec/replicas": "1"})
	if spec := field(controller, "spec"); strings.Contains(spec, "csi-snapshotter") || !strings.Contains(spec, "node-role.kubernetes.io/control-plane") {
		t.Errorf("the controller is %s", spec)
	}
	for _, o := range objects {
		if strings.Contains(o.GetName(), "snapshot") && o.GetKind() != "ClusterRole" && o.GetKind() != "ClusterRoleBinding" {
			t.Errorf("there is a %s %s", o.GetKind(), o.GetName())
		}
	}
	object(t, objects, "CSIDriver", places[cluster.NFS].driver)
}

func checkLonghorn(t *testing.T, v variant, objects []*unstructured.Unstructured) {
	l, nodes := v.spec.CSI.Longhorn, v.spec.Nodes
	copies := fmt.Sprint(min(l.Replicas, nodes))
	expect(t, object(t, objects, "StorageClass", record.LonghornClass), map[string]string{"parameters/numberOfReplicas": copies, "reclaimPolicy": "Delete"})
	settings := field(object(t, objects, "ConfigMap", "longhorn-default-setting"), "data", "default-setting.yaml")
	for _, line := range []string{"default-data-path: \"" + l.DataPath + "\"", "default-replica-count: \"" + copies + "\"", "node-drain-policy: \"" + l.DrainPolicy + "\""} {
		if !strings.Contains(settings, line) {
			t.Errorf("the settings have no %s:\n%s", line, settings)
		}
	}
	deployer := field(object(t, objects, "Deployment", "longhorn-driver-deployer"), "spec", "template", "spec", "containers")
	for _, part := range []string{"ATTACHER", "PROVISIONER", "RESIZER", "SNAPSHOTTER"} {
		if want := fmt.Sprintf(`{"name":"CSI_%s_REPLICA_COUNT","value":"%d"}`, part, min(3, nodes)); !strings.Contains(deployer, want) {
			t.Errorf("the deployer has no %s", want)
		}
	}
	expect(t, object(t, objects, "Deployment", "longhorn-ui"), map[string]string{"spec/replicas": "1"})
}
