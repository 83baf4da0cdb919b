package acceptance

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// The cluster of TestAccNodePool.
const (
	walked       = "care"
	walkedServer = walked + "-cp-1"
	first        = walked + "-w-1"
	second       = walked + "-w-2"
	surge        = walked + "-w-3"
	dataPath     = "/srv/data"
)

// One pool of two nodes through all that can happen to it while its cluster lives: each step goes on from what the last one
// has left.
func TestAccNodePool(t *testing.T) {
	w := newWalk(t)
	w.steps(t, []step{
		{"made", w.made},
		{"relabelled", w.relabelled},
		{"healed", w.healed},
		{"undrainable", w.undrainable},
		{"canary", w.canary},
		{"shrunk", w.shrunk},
		{"rolled", w.rolled},
		{"repaired", w.repaired},
		{"replaced", w.replaced},
		{"server", w.server},
		{"dropped", w.dropped},
	})
}

// walk is the cluster of TestAccNodePool.
type walk struct{ subject }

// newWalk makes the server of the cluster, in which a pod waits for a node of the pool that it is not to get: it does not
// tolerate the pool's taint.
func newWalk(t *testing.T) *walk {
	t.Helper()
	w := &walk{newSubject(t, inLab(t), config{name: walked, kubeconfig: true})}
	w.apply()
	w.connect()
	w.deploy(t, "intruder", 1)
	await(t, "a pod of intruder waits", podStart, func(ctx context.Context) (bool, error) {
		pods, err := w.pods(ctx, "intruder")
		return len(pods) == 1, err
	})
	return w
}

// stands makes sure that the pool has exactly these nodes, all Ready, and that nothing else of it is on the hypervisor.
func (w *walk) stands(t *testing.T, want ...string) {
	t.Helper()
	got, err := readyNodes([]byte(w.c.state()[kubeconfigAddr].Raw))
	if all := append([]string{walkedServer}, want...); err != nil || !slices.Equal(got, all) {
		t.Errorf("the Ready nodes are %v, %v, want %v", got, err, all)
	}
	vms := domains(t, w.l, firstHV, walked+"-w")
	slices.Sort(vms)
	if !slices.Equal(vms, want) {
		t.Errorf("the hypervisor has the VMs %v, want %v", vms, want)
	}
	// Each has a root disk, a data disk and a seed.
	if v := volumes(t, w.l, firstHV, walked+"-w"); len(v) != 3*len(want) {
		t.Errorf("the hypervisor has the volumes %v, for the nodes %v", v, want)
	}
	if left := slices.Sorted(maps.Keys(w.c.state()[poolAddr].Nodes)); !slices.Equal(left, want) {
		t.Errorf("the state has the nodes %v, want %v", left, want)
	}
}

// marked makes sure that a node has these labels, and these taints in the form of kubectl.
func marked(t *testing.T, n *corev1.Node, labels map[string]string, taints ...string) {
	t.Helper()
	for key, value := range labels {
		if got, ok := n.Labels[key]; !ok || got != value {
			t.Errorf("node %s: the label %s is %q, want %q", n.Name, key, got, value)
		}
	}
	var got []string
	for _, taint := range n.Spec.Taints {
		got = append(got, taint.ToString())
	}
	for _, taint := range taints {
		if !slices.Contains(got, taint) {
			t.Errorf("node %s: it lacks the taint %s: %v", n.Name, taint, got)
		}
	}
}

// tolerated lets pods of the steps on the pool's nodes.
var tolerated = corev1.Toleration{Key: "dedicated", Operator: corev1.TolerationOpExists}

const (
	registries = "mirrors:\n  docker.io:\n    endpoint:\n      - https://mirror.example\n"
	userData   = "#cloud-config\nwrite_files:\n  - path: /etc/care\n    content: %s\n    permissions: '0640'\n"
)

// made: a pool with everything. No pod is on a node before its taint, and the guests have what they were to be given.
func (w *walk) made(t *testing.T) {
	waiting, err := w.pods(t.Context(), "intruder")
	if err != nil {
		t.Fatal(err)
	}
	w.want.workers = count(2)
	w.workers(attributes{
		"labels":          `{ tier = "web", "example.com/rack" = "r1", "example.com/old" = "" }`,
		"taints":          `[{ key = "dedicated", value = "web", effect = "NoSchedule" }]`,
		"data_disk":       fmt.Sprintf(`{ size_gib = 1, mount_path = %q }`, dataPath),
		"agent_args":      `["--kubelet-arg=max-pods=41"]`,
		"registries_yaml": quote(registries),
		"extra_user_data": quote(fmt.Sprintf(userData, "first")),
		"drain":           `{ timeout = "6s" }`,
		"repair":          `{ not_ready_after = "10s" }`,
	})
	registered := w.newcomers(t, func() { w.apply() })
	w.stands(t, first, second)
	for _, node := range []string{first, second} {
		n, ok := registered[node]
		if !ok {
			t.Fatalf("only these nodes were registered: %v", slices.Sorted(maps.Keys(registered)))
		}
		marked(t, n, map[string]string{"tier": "web", "example.com/rack": "r1", "example.com/old": ""}, "dedicated=web:NoSchedule")
		if args := w.node(t, node).Annotations["k3s.io/node-args"]; !strings.Contains(args, "max-pods=41") {
			t.Errorf("node %s: k3s has the arguments %s", node, args)
		}
	}
	if pods, err := w.pods(t.Context(), "intruder"); err != nil || len(pods) != 1 || pods[0].UID != waiting[0].UID || pods[0].Spec.NodeName != "" {
		t.Errorf("the pod that does not tolerate the taint has not waited: %v, %v", pods, err)
	}
	for path, want := range map[string]string{"/etc/rancher/k3s/registries.yaml": registries, "/etc/care": "first"} {
		if got := guestCat(t, w.l, first, path); strings.TrimSpace(got) != strings.TrimSpace(want) {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
	for path, want := range map[string]string{"/etc/rancher/k3s/registries.yaml": "600 root", "/etc/care": "640 root"} {
		if got := strings.TrimSpace(guestRun(t, w.l, first, "/usr/bin/stat", "--format=%a %U", path)); got != want {
			t.Errorf("%s has the mode and owner %q, want %q", path, got, want)
		}
	}
	if fs, size := w.mounted(t, first); fs != "ext4" || size < 0.9 || size > 1 {
		t.Errorf("at %s there is a file system %s of %.2f GiB", dataPath, fs, size)
	}
	w.c.steady()
}

// mounted tells what is mounted at the path of the data disk: the kind of the file system and its size in GiB.
func (w *walk) mounted(t *testing.T, node string) (fs string, gib float64) {
	t.Helper()
	out := guestRun(t, w.l, node, "/usr/bin/findmnt", "--noheadings", "--bytes", "--output", "FSTYPE,SIZE", "--mountpoint", dataPath)
	var bytes float64
	if _, err := fmt.Sscan(out, &fs, &bytes); err != nil {
		t.Fatalf("findmnt says %q: %v", out, err)
	}
	return fs, bytes / (1 << 30)
}

// relabelled: labels and taints change on the nodes that stand, and what somebody else put there stays. One that somebody
// altered is drift.
func (w *walk) relabelled(t *testing.T) {
	uuids := map[string]string{first: w.uuid(first), second: w.uuid(second)}
	w.edit(t, first, func(n *corev1.Node) {
		n.Labels["example.com/foreign"] = "stays"
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "example.com/foreign", Effect: corev1.TaintEffectPreferNoSchedule})
	})
	w.workers(attributes{
		"labels": `{ tier = "web", "example.com/rack" = "r2", "example.com/new" = "yes" }`,
		"taints": `[{ key = "dedicated", value = "care", effect = "NoSchedule" }, { key = "example.com/soft", effect = "PreferNoSchedule" }]`,
	})
	w.apply()
	for node, uuid := range uuids {
		if got := w.uuid(node); got != uuid {
			t.Errorf("node %s was made anew", node)
		}
		marked(t, w.node(t, node), map[string]string{"tier": "web", "example.com/rack": "r2", "example.com/new": "yes"},
			"dedicated=care:NoSchedule", "example.com/soft:PreferNoSchedule")
		if _, old := w.node(t, node).Labels["example.com/old"]; old {
			t.Errorf("node %s still has a label that is not wanted any more", node)
		}
	}
	foreign := func() {
		marked(t, w.node(t, first), map[string]string{"example.com/rack": "r2", "example.com/foreign": "stays"}, "example.com/foreign:PreferNoSchedule")
	}
	foreign()
	w.c.steady()

	w.edit(t, first, func(n *corev1.Node) { n.Labels["example.com/rack"] = "altered" })
	w.c.drifted(first, `its label example.com/rack is "altered" instead of "r2"`)
	w.apply()
	foreign()
	w.c.steady()
}
