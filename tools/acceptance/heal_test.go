package acceptance

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// healed: a VM that vanished, but for its disks, is made anew, and one that was switched off the hard way is started.
func (w *walk) healed(t *testing.T) {
	lost, stopped := w.uuid(first), w.uuid(second)
	virsh(t, w.l, firstHV, "destroy", first)
	virsh(t, w.l, firstHV, "undefine", first)
	virsh(t, w.l, firstHV, "destroy", second)
	w.c.drifted(first, second)
	w.apply()
	w.stands(t, first, second)
	if got := w.uuid(first); got == lost {
		t.Errorf("node %s is still the VM that vanished", first)
	}
	if got := w.uuid(second); got != stopped {
		t.Errorf("node %s was made anew", second)
	}
	w.c.steady()
}

// silence is how long a control plane takes to notice that a node is silent, and then some: 50 s by default.
const silence = 3 * time.Minute

// repaired: a node that is not Ready for longer than the pool's rule allows is switched off and on again.
func (w *walk) repaired(t *testing.T) {
	before, boot := w.uuid(second), w.node(t, second).Status.NodeInfo.BootID
	guestRun(t, w.l, second, "/usr/bin/systemctl", "stop", "k3s-agent")
	const patience = 10 * time.Second // Of the pool's repair.not_ready_after.
	await(t, fmt.Sprintf("%s is not Ready for longer than %s", second, patience), silence, func(ctx context.Context) (bool, error) {
		n, err := w.api.CoreV1().Nodes().Get(ctx, second, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady {
				return c.Status != corev1.ConditionTrue && time.Since(c.LastTransitionTime.Time) > patience, nil
			}
		}
		return false, nil
	})
	w.c.drifted(second, "not Ready since")
	w.apply()
	w.stands(t, second)
	if got := w.uuid(second); got != before {
		t.Errorf("node %s was made anew", second)
	}
	if w.node(t, second).Status.NodeInfo.BootID == boot {
		t.Errorf("the VM of node %s was not restarted", second)
	}
	w.c.steady()
}

// server: the only server gets more memory in place, and its cluster is the same afterwards. While it is protected nothing
// is destroyed.
func (w *walk) server(t *testing.T) {
	deployments := w.api.AppsV1().Deployments(namespace)
	web, err := deployments.Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	before := w.uuid(walkedServer)

	w.want.moreOfServers = attributes{"extra_user_data": quote(fmt.Sprintf(userData, "server"))}
	w.c.use(w.l, w.want)
	w.c.fails([]string{walkedServer, "the data of the cluster would be lost"}, "plan")

	w.want.moreOfServers = nil
	w.want.memoryGiB = 2
	w.want.more = attributes{"deletion_protection": "true"}
	w.apply()
	w.grown(t, walkedServer, 2)
	w.stands(t, second)
	if got := w.uuid(walkedServer); got != before {
		t.Errorf("the server was made anew")
	}
	if after, err := deployments.Get(t.Context(), "web", metav1.GetOptions{}); err != nil || after.UID != web.UID {
		t.Errorf("the cluster is another one: %v", err)
	}
	w.c.steady()

	w.c.fails([]string{"deletion_protection"}, "destroy", "-auto-approve")
	w.stands(t, second)
	w.want.more = nil
	w.apply()
}

// grown makes sure that a VM, and the node in it, has so much memory.
func (w *walk) grown(t *testing.T, node string, gib int) {
	t.Helper()
	if text := virsh(t, w.l, firstHV, "dominfo", node); !strings.Contains(text, fmt.Sprintf("%d KiB", gib<<20)) {
		t.Errorf("the VM of %s has other memory than %d GiB:\n%s", node, gib, text)
	}
	// The kernel keeps some for itself.
	n := w.node(t, node)
	if got := float64(n.Status.Capacity.Memory().Value()) / (1 << 30); got > float64(gib) || got < 0.8*float64(gib) {
		t.Errorf("node %s has %.2f GiB of memory, want %d", node, got, gib)
	}
}
