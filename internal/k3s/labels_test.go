package k3s

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestCheckLabel(t *testing.T) {
	for key, want := range map[string]string{
		"tier": "", "example.com/tier": "", "CriticalAddons": "", "kubernetes.io": "", "k3s.io": "",
		"node-role.kubernetes.io/worker": "", "topology.kubernetes.io/zone": "", "node.kubernetes.io/exclude-from-external-load-balancers": "",
		"svccontroller.k3s.cattle.io/enablelb": "", "node-restriction.kubernetes.io/tier": "", "notk3s.io/x": "",

		"": "the key is empty", "bad key": "not valid", "-x": "not valid", "a/b/c": "not valid", "/x": "not valid", "x/": "not valid",
		"Example.com/x": "not valid", strings.Repeat("x", 64): "not valid",
		"kubernetes.io/hostname": "name of the node", "kubernetes.io/os": "kubelet sets it", "kubernetes.io/arch": "kubelet sets it",
		"beta.kubernetes.io/arch": "kubelet sets it", "node.kubernetes.io/instance-type": "k3s sets it",
		"node-role.kubernetes.io/control-plane": "as a server", "node-role.kubernetes.io/master": "as a server", "node-role.kubernetes.io/etcd": "member of etcd",
		"k3s.io/x": "belongs to k3s", "p2p.k3s.cattle.io/enabled": "belongs to k3s", "plan.upgrade.cattle.io/x": "upgrade controller",
	} {
		wantError(t, "label "+key, CheckLabel(key, "web"), want)
	}
	for value, want := range map[string]string{"": "", "a.b_c-D": "", "a b": "not valid", "a/b": "not valid", "-a": "not valid", "é": "not valid", strings.Repeat("x", 64): "not valid"} {
		wantError(t, "value "+value, CheckLabel("tier", value), want)
	}
}

func TestCheckTaint(t *testing.T) {
	for taint, want := range map[[3]string]string{
		{"dedicated", "db", "NoSchedule"}: "", {"dedicated", "", "NoExecute"}: "", {"CriticalAddonsOnly", "true", "PreferNoSchedule"}: "",
		{"example.com/gpu", "", "NoSchedule"}: "", {"node-role.kubernetes.io/control-plane", "", "NoSchedule"}: "",

		{"dedicated", "db", "noschedule"}: "none of NoSchedule, PreferNoSchedule, NoExecute", {"dedicated", "db", ""}: "none of",
		{"", "db", "NoSchedule"}: "the key is empty", {"dedicated", "a b", "NoSchedule"}: "not valid", {"a=b", "", "NoSchedule"}: "not valid",
		{"node.kubernetes.io/not-ready", "", "NoExecute"}:                    "belongs to Kubernetes",
		{"node.kubernetes.io/unschedulable", "", "NoSchedule"}:               "belongs to Kubernetes",
		{"node.kubernetes.io/out-of-service", "", "NoExecute"}:               "belongs to Kubernetes",
		{"node.cloudprovider.kubernetes.io/uninitialized", "", "NoSchedule"}: "belongs to Kubernetes",
		{"k3s.io/x", "", "NoSchedule"}:                                       "belongs to k3s",
	} {
		wantError(t, "taint "+strings.Join(taint[:], " "), CheckTaint(taint[0], taint[1], taint[2]), want)
	}
}

func wantError(t *testing.T, of string, err error, want string) {
	t.Helper()
	if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("%s: %v; want %q", of, err, want)
	}
}

// A kubelet that is given a label of Kubernetes' own domains, but for a few, does not start.
func TestRegistrationLabels(t *testing.T) {
	labels := map[string]string{}
	var want []string
	for key, own := range map[string]bool{
		"tier": true, "example.com/tier": true, "notkubernetes.io/x": true, "kubernetes.io": true, "svccontroller.k3s.cattle.io/enablelb": true,
		"node.kubernetes.io/pool": true, "x.node.kubernetes.io/pool": true, "kubelet.kubernetes.io/x": true,
		"topology.kubernetes.io/zone": true, "topology.kubernetes.io/region": true, "failure-domain.beta.kubernetes.io/zone": true,
		"topology.kubernetes.io/rack": false, "node-role.kubernetes.io/worker": false, "node-restriction.kubernetes.io/x": false,
		"x.node-restriction.kubernetes.io/x": false, "kubernetes.io/x": false, "x.k8s.io/y": false, "k8s.io/y": false,
	} {
		labels[key] = "v-" + key[:1]
		if own {
			want = append(want, key)
		}
	}
	slices.Sort(want)
	got := RegistrationLabels(labels)
	if keys := slices.Sorted(maps.Keys(got)); !slices.Equal(keys, want) {
		t.Errorf("got\n%v\nwant\n%v", keys, want)
	}
	if got["tier"] != "v-t" {
		t.Errorf("the value is %q", got["tier"])
	}
}

func TestAgentConfigRegisters(t *testing.T) {
	golden(t, AgentConfig{
		NodeName: "prod-workers-1", ServerURL: "https://192.0.2.1:6443", Token: "t",
		Labels: map[string]string{"tier": "web", "example.com/empty": "", "node-role.kubernetes.io/worker": "true", "on": "yes"},
		Taints: []string{"dedicated=db:NoSchedule", "CriticalAddonsOnly=:NoExecute"},
	}.YAML, `node-name: prod-workers-1
server: https://192.0.2.1:6443
token: t
node-label:
- example.com/empty=
- on=yes
- tier=web
node-taint:
- CriticalAddonsOnly=:NoExecute
- dedicated=db:NoSchedule
`)
}
