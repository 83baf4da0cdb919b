package acceptance

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// undrainable: a node whose pods may not go does not go either. The error says which pods and why; the node takes pods again,
// unless somebody had cordoned it before.
func (w *walk) undrainable(t *testing.T) {
	w.open(t, first, second)
	w.deploy(t, "web", 2, tolerated)
	pods := w.settle(t, "web", 2)
	w.protect(t, "web", 2)
	w.want.workers = count(1)
	for _, cordoned := range []bool{false, true} {
		w.edit(t, second, func(n *corev1.Node) { n.Spec.Unschedulable = cordoned })
		w.refused(second, namespace+"/"+pods[second].Name, "is protected by the PodDisruptionBudget web")
		if got := w.node(t, second).Spec.Unschedulable; got != cordoned {
			t.Errorf("node %s was cordoned before: %t, and is now: %t", second, cordoned, got)
		}
		if got := strings.TrimSpace(virsh(t, w.l, firstHV, "domstate", second)); got != "running" {
			t.Errorf("the VM of node %s is %s", second, got)
		}
		w.stands(t, first, second)
	}
	w.edit(t, second, func(n *corev1.Node) { n.Spec.Unschedulable = false })
	w.want.workers = count(2)
	w.c.use(w.l, w.want)
	w.c.steady()
}

// canary: an argument that k3s does not know stops the first node and no other; without it the apply goes on.
func (w *walk) canary(t *testing.T) {
	uuids := map[string]string{first: w.uuid(first), second: w.uuid(second)}
	w.workers(attributes{"agent_args": `["--kubelet-arg=max-pods=42", "--no-such-flag"]`})
	w.refused(first, "flag provided but not defined: -no-such-flag")
	n := w.node(t, second)
	if args := n.Annotations["k3s.io/node-args"]; !is(*n, corev1.NodeReady) || n.Spec.Unschedulable || !strings.Contains(args, "max-pods=41") {
		t.Errorf("node %s was touched: its k3s has the arguments %s", second, args)
	}
	w.c.drifted(first)
	w.workers(attributes{"agent_args": `["--kubelet-arg=max-pods=42"]`})
	w.apply()
	w.stands(t, first, second)
	for node, uuid := range uuids {
		if args := w.node(t, node).Annotations["k3s.io/node-args"]; !strings.Contains(args, "max-pods=42") || w.uuid(node) != uuid {
			t.Errorf("node %s was made anew, or its k3s has other arguments: %s", node, args)
		}
	}
	w.c.steady()
}

// shrunk: the node that the user names goes, under a budget that allows it. A pod that does not want to end gets the grace
// that the pool gives.
func (w *walk) shrunk(t *testing.T) {
	w.protect(t, "web", 1)
	w.spread(t, "web", 2)
	w.stubborn(t, first)
	w.want.workers = count(1)
	w.workers(attributes{
		"remove_first": `["w-1"]`,
		"drain":        `{ timeout = "1m", grace_period_seconds = 1 }`,
	})
	if seen := w.witnessed(t, "web", func() { w.apply() }); seen.available < 1 {
		t.Errorf("meanwhile there were %d pods", seen.available)
	}
	w.stands(t, second)
	w.settle(t, "web", 1)
	w.c.steady()
}

// rolled: more memory and a larger data disk, in place, with a node more meanwhile: there are never fewer nodes, nor pods
// than the budget allows, and what stands on the disks stays.
func (w *walk) rolled(t *testing.T) {
	before := w.uuid(second)
	guestRun(t, w.l, second, "/bin/sh", "-c", "echo kept >"+dataPath+"/kept")
	w.want.workerMemoryGiB = 2
	w.workers(attributes{
		"data_disk":        fmt.Sprintf(`{ size_gib = 2, mount_path = %q }`, dataPath),
		"upgrade_settings": `{ max_surge = 1, max_unavailable = 0 }`,
	})
	seen := w.witnessed(t, "web", func() { w.apply() })
	if seen.available < 1 || seen.open < 1 || !seen.names[surge] {
		t.Errorf("meanwhile there were %d pods, %d nodes that took pods, and the nodes %v", seen.available, seen.open, seen.names)
	}
	w.stands(t, second)
	if got := w.uuid(second); got != before {
		t.Errorf("node %s was made anew", second)
	}
	w.grown(t, second, 2)
	if fs, size := w.mounted(t, second); fs != "ext4" || size < 1.9 {
		t.Errorf("at %s there is a file system %s of %.2f GiB", dataPath, fs, size)
	}
	if got := guestCat(t, w.l, second, dataPath+"/kept"); strings.TrimSpace(got) != "kept" {
		t.Errorf("the data disk is another one")
	}
	w.c.steady()
}

// replaced: what only a new VM can have makes one, under the same name. The budget would not let the pods go, and the user
// says that they go all the same.
func (w *walk) replaced(t *testing.T) {
	w.protect(t, "web", 2)
	before := w.uuid(second)
	w.workers(attributes{
		"extra_user_data":  quote(fmt.Sprintf(userData, "second")),
		"upgrade_settings": `{ max_surge = 0, max_unavailable = 1 }`,
		"drain":            `{ timeout = "6s", on_timeout = "force" }`,
	})
	mentions(t, w.apply(), second, "without a complete drain", "is protected by the PodDisruptionBudget web")
	w.stands(t, second)
	if w.uuid(second) == before {
		t.Errorf("node %s is the same VM", second)
	}
	if got := guestCat(t, w.l, second, "/etc/care"); strings.TrimSpace(got) != "second" {
		t.Errorf("/etc/care is %q", got)
	}
	marked(t, w.node(t, second), map[string]string{"tier": "web", "example.com/rack": "r2"}, "dedicated=care:NoSchedule")
	w.settle(t, "web", 1)
	w.c.steady()
}

// dropped: the whole pool goes although its pods may not, and a warning says so. Nothing of it is left, and the cluster lives.
func (w *walk) dropped(t *testing.T) {
	if pods, err := w.pods(t.Context(), "intruder"); err != nil || len(pods) != 1 || pods[0].Spec.NodeName != "" {
		t.Errorf("the pod that does not tolerate the taint was let in: %v, %v", pods, err)
	}
	pod := w.settle(t, "web", 1)[second]
	w.want.workers = nil
	mentions(t, w.apply(), second, namespace+"/"+pod.Name, "is protected by the PodDisruptionBudget web")
	w.stands(t)
}
