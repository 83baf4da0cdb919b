package acceptance

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/release"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The cluster of TestAccCalico.
const (
	calico       = "tiger"
	calicoServer = calico + "-cp-1"
	calicoWorker = calico + "-w-1"
)

// A cluster with Calico: made, its values changed, its release meddled with in all ways, and destroyed while its API is down.
func TestAccCalico(t *testing.T) {
	t.Parallel()
	l := around(t)
	k := &tiger{newSubject(t, l, config{
		name: calico, workers: count(1), charts: registryCharts(l), kubeconfig: true,
		more: attributes{"cni": `{ plugin = "calico" }`},
		// The last step destroys while nothing could be drained.
		moreOfWorkers: attributes{"drain": `{ on_destroy = false }`},
	})}
	k.steps(t, []step{
		{"made", k.made},
		{"changed", k.changed},
		{"altered", k.altered},
		{"forgotten", k.forgotten},
		{"interrupted", k.interrupted},
		{"destroyed", k.destroyed},
	})
}

// tiger is the cluster of TestAccCalico.
type tiger struct{ subject }

// made: no node is Ready before Calico runs there, and no worker is made before the server is Ready.
func (k *tiger) made(t *testing.T) {
	k.apply()
	k.connect()
	if got, err := readyNodes([]byte(k.c.state()[kubeconfigAddr].Raw)); err != nil || !slices.Equal(got, []string{calicoServer, calicoWorker}) {
		t.Fatalf("the Ready nodes are %v, %v", got, err)
	}
	k.installed(t, "calico", "local-path")
	k.hasFlags(t, calicoServer, map[string]string{"flannel-backend": "none", "disable-network-policy": "true", "disable-kube-proxy": ""})
	k.pool(t, map[string]any{"cidr": "10.42.0.0/16", "encapsulation": "IPIP"})
	k.classes(t, "local-path")

	k.readyAfter(t, calicoServer, "calico-node")
	k.readyAfter(t, calicoWorker, "calico-node")
	worker := k.node(t, calicoWorker).CreationTimestamp.Time
	if ready := readySince(t, k.node(t, calicoServer)); worker.Before(ready) {
		t.Errorf("the worker was registered at %s, and the server Ready at %s", worker, ready)
	}
	if installed := k.deployed(t, "calico").Info.FirstDeployed.Time; worker.Before(installed) {
		t.Errorf("the worker was registered at %s, and Calico installed at %s", worker, installed)
	}
	k.c.steady()
}

// pool makes sure that Calico's only pool of addresses has these settings.
func (k *tiger) pool(t *testing.T, want map[string]any) {
	t.Helper()
	kind := schema.GroupVersionResource{Group: "operator.tigera.io", Version: "v1", Resource: "installations"}
	object, err := k.objects.Resource(kind).Get(t.Context(), "default", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pools, _, err := unstructured.NestedSlice(object.Object, "spec", "calicoNetwork", "ipPools")
	if err != nil || len(pools) != 1 {
		t.Fatalf("the Installation has the pools %v, %v", pools, err)
	}
	for key, v := range want {
		if got := pools[0].(map[string]any)[key]; got != v {
			t.Errorf("the Installation's pool has the %s %v, want %v", key, got, v)
		}
	}
}

// readyAfter makes sure that a node became Ready only when the network's pod ran there, which carries a label k8s-app.
func (s *subject) readyAfter(t *testing.T, node, app string) {
	t.Helper()
	pods, err := s.api.CoreV1().Pods(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{
		LabelSelector: "k8s-app=" + app, FieldSelector: "spec.nodeName=" + node,
	})
	if err != nil || len(pods.Items) != 1 {
		t.Fatalf("node %s has %d pods of %s, %v", node, len(pods.Items), app, err)
	}
	ready := readySince(t, s.node(t, node))
	for _, c := range pods.Items[0].Status.ContainerStatuses {
		if c.State.Running == nil || ready.Before(c.State.Running.StartedAt.Time) {
			t.Errorf("node %s is Ready since %s, with a container %s that is %+v", node, ready, c.Name, c.State)
		}
	}
}

func readySince(t *testing.T, n *corev1.Node) time.Time {
	t.Helper()
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time
		}
	}
	t.Fatalf("node %s is not Ready", n.Name)
	return time.Time{}
}

// changed: other values are an upgrade of the release, and no more.
func (k *tiger) changed(t *testing.T) {
	before, vms := k.deployed(t, "calico"), k.vms()
	k.want.more = attributes{"cni": `{ plugin = "calico", values_yaml = "installation: { calicoNetwork: { mtu: 1400 } }" }`}
	k.apply()
	after := k.deployed(t, "calico")
	if after.Version != before.Version+1 {
		t.Errorf("the release went from revision %d to %d", before.Version, after.Version)
	}
	hasValues(t, after, map[string]any{"installation.calicoNetwork.mtu": 1400})
	if got := k.vms(); !maps.Equal(got, vms) {
		t.Errorf("the nodes were %v and are %v", vms, got)
	}
	k.installed(t, "calico", "local-path")
	k.c.steady()
}

// altered: values that somebody else changed are drift, which the plan names and the apply mends.
func (k *tiger) altered(t *testing.T) {
	before := k.deployed(t, "calico")
	k.rewrite(t, "calico", func(next *release.Release) {
		next.Config["installation"].(map[string]any)["calicoNetwork"].(map[string]any)["mtu"] = 9000
	})
	k.c.drifted("calico", "drifted")
	k.mended(t, before)
}

// mended makes sure that an apply makes Calico's release what it was.
func (k *tiger) mended(t *testing.T, before *release.Release) {
	t.Helper()
	k.apply()
	after := k.deployed(t, "calico")
	if fmt.Sprint(after.Config) != fmt.Sprint(before.Config) || after.Manifest != before.Manifest {
		t.Errorf("the release has the values %v, and had %v", after.Config, before.Config)
	}
	k.installed(t, "calico", "local-path")
	k.pool(t, map[string]any{"cidr": "10.42.0.0/16", "encapsulation": "IPIP"})
	k.c.steady()
}

// forgotten: a release that is gone is installed anew over its objects.
func (k *tiger) forgotten(t *testing.T) {
	before := k.deployed(t, "calico")
	k.forget(t, "calico")
	k.c.drifted("calico", "missing")
	k.mended(t, before)
}

// interrupted: a change that never came to its end does not stand in the way of the next.
func (k *tiger) interrupted(t *testing.T) {
	before := k.deployed(t, "calico")
	k.rewrite(t, "calico", func(next *release.Release) {
		next.Info.Status = release.StatusPendingUpgrade
		next.Info.LastDeployed = next.Info.LastDeployed.Add(-time.Hour) // Of one that is younger somebody may be at work on it.
	})
	k.c.drifted("calico", "failed")
	k.mended(t, before)
}

// destroyed: a cluster whose API is down goes with all that it has, since nothing in it is uninstalled.
func (k *tiger) destroyed(t *testing.T) {
	guestRun(t, k.l, calicoServer, "/usr/bin/systemctl", "stop", "k3s")
	await(t, "the API is down", silence, func(ctx context.Context) (bool, error) {
		_, err := k.api.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		return err != nil, nil
	})
	k.c.run("destroy", "-auto-approve")
	if err := leftOvers(t, k.l, calico); err != nil {
		t.Error(err)
	}
}

// keys splits a path of a chart's values.
func keys(path string) []string { return strings.Split(path, ".") }
