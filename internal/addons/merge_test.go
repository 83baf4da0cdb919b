package addons

import (
	"reflect"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chartutil"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
)

func TestMerge(t *testing.T) {
	ours := tree{"a": 1, "b": tree{"c": "x", "d": []string{"y"}}, "e": []tree{{"f": true}}, "g": map[string]string{"h": "i"}}
	tests := map[string]struct{ theirs, want tree }{
		"nothing":             {nil, tree{"a": 1.0, "b": tree{"c": "x", "d": []any{"y"}}, "e": []any{tree{"f": true}}, "g": tree{"h": "i"}}},
		"below":               {tree{"b": tree{"c": "z"}}, tree{"a": 1.0, "b": tree{"c": "z", "d": []any{"y"}}, "e": []any{tree{"f": true}}, "g": tree{"h": "i"}}},
		"lists are replaced":  {tree{"b": tree{"d": []any{}}, "e": []any{1.0}}, tree{"a": 1.0, "b": tree{"c": "x", "d": []any{}}, "e": []any{1.0}, "g": tree{"h": "i"}}},
		"a null stays":        {tree{"b": nil, "n": nil}, tree{"a": 1.0, "b": nil, "e": []any{tree{"f": true}}, "g": tree{"h": "i"}, "n": nil}},
		"a mapping by scalar": {tree{"b": "s"}, tree{"a": 1.0, "b": "s", "e": []any{tree{"f": true}}, "g": tree{"h": "i"}}},
		"a scalar by mapping": {tree{"a": tree{"z": 1.0}}, tree{"a": tree{"z": 1.0}, "b": tree{"c": "x", "d": []any{"y"}}, "e": []any{tree{"f": true}}, "g": tree{"h": "i"}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := merge(ours, test.theirs); !reflect.DeepEqual(got, test.want) {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
	if !reflect.DeepEqual(ours["b"], tree{"c": "x", "d": []string{"y"}}) {
		t.Error("the provider's values were changed")
	}
}

// TestNullAsHelm has a null take away a chart's own default.
func TestNullAsHelm(t *testing.T) {
	c := &chart.Chart{Metadata: &chart.Metadata{Name: "x"}, Values: tree{"a": tree{"b": "chart", "c": "chart"}}}
	got, err := chartutil.CoalesceValues(c, merge(tree{"a": tree{"b": "ours"}}, tree{"a": tree{"b": nil}}))
	if err != nil {
		t.Fatal(err)
	}
	if a, _ := got["a"].(tree); !reflect.DeepEqual(a, tree{"c": "chart"}) {
		t.Errorf("a is %v", a)
	}
}

// TestConflicts refuses what the provider has to set, and nothing that says the same or something else.
func TestConflicts(t *testing.T) {
	of := map[string]variant{}
	for _, v := range variants() {
		of[v.name] = v
	}
	tests := map[string]struct{ variant, text, want string }{
		"calico: pool":          {"calico-ipip-1", "installation:\n  calicoNetwork:\n    ipPools:\n      - cidr: 192.168.0.0/16\n", "line 3: the provider sets installation.calicoNetwork.ipPools: use cni.pod_cidr and cni.routing"},
		"calico: bgp":           {"calico-vxlan-1", "installation: {calicoNetwork: {bgp: Enabled}}", "installation.calicoNetwork.bgp: use cni.routing"},
		"calico: off":           {"calico-vxlan-1", "installation: {enabled: false}", "installation.enabled"},
		"calico: other CNI":     {"calico-vxlan-1", "installation: {cni: {type: AmazonVPC}}", "installation.cni.type"},
		"calico: the same":      {"calico-ipip-1", "installation: {enabled: true, calicoNetwork: {bgp: Enabled}}", ""},
		"calico: the same pool": {"calico-ipip-1", "installation: {calicoNetwork: {ipPools: [{cidr: 10.42.0.0/16, encapsulation: IPIP, natOutgoing: Enabled, nodeSelector: all(), blockSize: 26}]}}", ""},
		"calico: MTU":           {"calico-ipip-1", "installation: {calicoNetwork: {mtu: 1400}}\nwhisker: {enabled: true}", ""},
		"cilium: pool":          {"cilium-tunnel-1", "ipam:\n  operator:\n    clusterPoolIPv4PodCIDRList: [10.42.0.0/16]\n", "line 3: the provider sets ipam.operator.clusterPoolIPv4PodCIDRList: use cni.pod_cidr"},
		"cilium: IPAM":          {"cilium-tunnel-1", "ipam: {mode: multi-pool}", "ipam.mode"},
		"cilium: IPAM gone":     {"cilium-tunnel-1", "x: 1\nipam: null", "line 2: the provider sets ipam.mode"},
		"cilium: tunnel":        {"cilium-tunnel-1", "tunnelProtocol: geneve", "tunnelProtocol: use cni.routing"},
		"cilium: native CIDR":   {"cilium-tunnel-1", "ipv4NativeRoutingCIDR: 10.0.0.0/8", "ipv4NativeRoutingCIDR: use cni.pod_cidr"},
		"cilium: kube-proxy":    {"cilium-tunnel-1", "kubeProxyReplacement: true", "kubeProxyReplacement: use cni.kube_proxy_replacement"},
		"cilium: API":           {"cilium-tunnel-1", "k8sServiceHost: auto", "k8sServiceHost"},
		"cilium: hubble":        {"cilium-tunnel-1", "hubble: {enabled: true}", "hubble.enabled: use cni.hubble"},
		"cilium: hubble gone":   {"cilium-tunnel-hubble-1", "hubble: null", "hubble.enabled: use cni.hubble"},
		"cilium: relay":         {"cilium-tunnel-hubble-1", "hubble: {relay: {enabled: false}}", "hubble.relay.enabled: use cni.hubble"},
		"cilium: the UI":        {"cilium-tunnel-hubble-1", "hubble: {ui: {enabled: true}}", ""},
		"cilium: the same":      {"cilium-native-full-1", "kubeProxyReplacement: \"true\"\nk8sServicePort: \"6444\"\nroutingMode: native\nipam: {mode: kubernetes}", ""},
		"nfs: server":           {"nfs-1", "storageClass:\n  parameters:\n    server: other\n", "line 3: the provider sets storageClass.parameters.server: use csi.nfs.server or csi.nfs.pool"},
		"nfs: options":          {"nfs-1", "storageClass: {mountOptions: [soft]}", "storageClass.mountOptions: use csi.nfs.nfs_version"},
		"nfs: name":             {"nfs-1", "storageClass: {name: x}", "storageClass.name: the class of the tier is nfs"},
		"nfs: default":          {"nfs-beside-1", "storageClass: {annotations: {storageclass.kubernetes.io/is-default-class: \"true\"}}", "use csi.default_class"},
		"nfs: same default":     {"nfs-beside-1", "storageClass: {annotations: {storageclass.kubernetes.io/is-default-class: false, x: \"y\"}}", ""},
		"nfs: reclaim":          {"nfs-1", "storageClass: {reclaimPolicy: Retain, parameters: {subDir: x}}", ""},
		"longhorn: default":     {"longhorn-1", "persistence: {defaultClass: false}", "persistence.defaultClass: use csi.default_class"},
		"longhorn: copies":      {"longhorn-1", "persistence: {defaultClassReplicaCount: 3}", "persistence.defaultClassReplicaCount: use csi.longhorn.replica_count"},
		"longhorn: path":        {"longhorn-1", "defaultSettings: {defaultDataPath: /x}", "defaultSettings.defaultDataPath: use csi.longhorn.data_path"},
		"longhorn: drain":       {"longhorn-1", "defaultSettings: {nodeDrainPolicy: always-allow}", "defaultSettings.nodeDrainPolicy: use csi.longhorn.drain_policy"},
		"longhorn: namespace":   {"longhorn-1", "namespaceOverride: x", "namespaceOverride"},
		"longhorn: others":      {"longhorn-1", "defaultSettings: {storageOverProvisioningPercentage: 200, defaultDataPath: /var/lib/longhorn}", ""},
		"local-path: path":      {"local-path-1", "nodePathMap: []", "nodePathMap: use csi.local_path.path"},
		"local-path: class":     {"local-path-1", "storageClass: {default: false}", "storageClass.default: use csi.default_class"},
		"local-path: resources": {"local-path-1", "resources: {limits: {memory: 64Mi}}\nstorageClass: {reclaimPolicy: Retain}", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			v := of[test.variant]
			how := recipes[v.addon]
			theirs, err := parseValues(test.text)
			if err != nil {
				t.Fatal(err)
			}
			got := conflicts(how.valuesField, how.owned, how.values(v.spec), theirs)
			switch {
			case test.want == "" && len(got) > 0:
				t.Errorf("conflicts %v", got)
			case test.want != "" && (len(got) == 0 || !strings.Contains(got[0].Err.Error(), test.want) || got[0].Field != how.valuesField):
				t.Errorf("conflicts %v, want %q", got, test.want)
			}
		})
	}
}

// TestConflictsHoldNoValues keeps what may be a secret out of the error.
func TestConflictsHoldNoValues(t *testing.T) {
	theirs, err := parseValues("a: s3cret\n")
	if err != nil {
		t.Fatal(err)
	}
	got := conflicts(machine.FieldCNIValues, []owned{own("a", "use b")}, tree{"a": 1}, theirs)
	if len(got) != 1 || strings.Contains(got[0].Err.Error(), "s3cret") {
		t.Errorf("%v", got)
	}
}

// TestOwnedAreSet finds keys of the table that the provider's values do not have in any variant and that are not there to be
// kept away either.
func TestOwnedAreSet(t *testing.T) {
	unset := map[string]bool{ // The provider leaves them to the chart, and nobody else sets them.
		"namespaceOverride": true, "ipam.operator.clusterPoolIPv4PodCIDRList": true, "ipam.operator.clusterPoolIPv4MaskSize": true,
	}
	for a, how := range recipes {
		for _, o := range how.owned {
			set := false
			for _, v := range variants() {
				if v.addon != a {
					continue
				}
				_, ok := get(how.values(v.spec), o.path...)
				set = set || ok
			}
			if key := strings.Join(o.path, "."); set == unset[key] {
				t.Errorf("%s: %s is set: %v", a, key, set)
			}
		}
	}
}
