package acceptance

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The cluster of TestAccCilium.
const (
	cilium       = "bee"
	ciliumServer = cilium + "-cp-1"
	ciliumWorker = cilium + "-w-1"
	// imageMirror is where all its images come from.
	imageMirror = "images.lab.internal:5000"
	// olderCilium is a version of the chart that can be upgraded to the provider's own.
	olderCilium = "1.20.1"
)

// A cluster with Cilium and all that it can do, from a mirror of charts and images. It takes three attempts: first the charts
// cannot be had, then the image of Cilium.
func TestAccCilium(t *testing.T) {
	t.Parallel()
	l := around(t)
	mirror := newFlakyMirror(t, l)
	b := &bee{newSubject(t, l, config{
		name: cilium, workers: count(1), charts: openCharts(mirror.URL), registry: imageMirror, kubeconfig: true,
	}), mirror}
	b.steps(t, []step{
		{"without charts", b.withoutCharts},
		{"without images", b.withoutImages},
		{"made", b.made},
		{"changed", b.changed},
	})
}

// bee is the cluster of TestAccCilium.
type bee struct {
	subject
	mirror *flakyMirror
}

// cni is the network with more attributes.
func (b *bee) cni(more string) {
	b.want.more = attributes{"cni": fmt.Sprintf(`{
    plugin = "cilium"
    routing = "native"
    pod_cidr = "10.50.0.0/16"
    service_cidr = "10.60.0.0/16"
    kube_proxy_replacement = true
    %s
  }`, more)}
}

// withoutCharts: what cannot be fetched stops the apply before anything is made.
func (b *bee) withoutCharts(t *testing.T) {
	b.cni("hubble = true")
	b.refused("cilium", b.mirror.URL, "500")
	if err := leftOvers(t, b.l, cilium); err != nil {
		t.Error(err)
	}
	b.mirror.heal()
}

// withoutImages: a node that stays NotReady since the network does not run there has an error that says what its pods wait
// for.
func (b *bee) withoutImages(*testing.T) {
	b.want.timeout = "15m"
	b.cni(`hubble = true
    values_yaml = "image: { repository: missing/cilium }"`)
	b.refused(ciliumServer, "kube-system/cilium-", "ImagePullBackOff", "missing/cilium")
}

// made: with the right image the same apply converges, and everything is as it was asked for, also the version of the chart.
func (b *bee) made(t *testing.T) {
	b.want.timeout = ""
	b.cni("hubble = true\n chart = { version = " + quote(olderCilium) + " }")
	b.apply()
	b.connect()
	if got, err := readyNodes([]byte(b.c.state()[kubeconfigAddr].Raw)); err != nil || !slices.Equal(got, []string{ciliumServer, ciliumWorker}) {
		t.Fatalf("the Ready nodes are %v, %v", got, err)
	}
	b.installed(t, "cilium", "local-path")
	b.hasFlags(t, ciliumServer, map[string]string{
		"flannel-backend": "none", "disable-network-policy": "true", "disable-kube-proxy": "true",
		"cluster-cidr": "10.50.0.0/16", "service-cidr": "10.60.0.0/16", "system-default-registry": imageMirror,
	})
	for _, node := range []string{ciliumServer, ciliumWorker} {
		b.readyAfter(t, node, "cilium")
		if cidr := b.node(t, node).Spec.PodCIDR; !strings.HasPrefix(cidr, "10.50.") {
			t.Errorf("node %s has the pod network %s", node, cidr)
		}
	}
	api, err := b.api.CoreV1().Services(namespace).Get(t.Context(), "kubernetes", metav1.GetOptions{})
	if err != nil || !strings.HasPrefix(api.Spec.ClusterIP, "10.60.") {
		t.Errorf("the API's service has the address %s, %v", api.Spec.ClusterIP, err)
	}
	hasValues(t, b.deployed(t, "cilium"), map[string]any{
		"routingMode": "native", "kubeProxyReplacement": true, "ipv4NativeRoutingCIDR": "10.50.0.0/16", "autoDirectNodeRoutes": true,
		"hubble.enabled": true, "hubble.relay.enabled": true, "operator.replicas": 1,
	})
	b.images(t)
	b.c.steady()
}

// images makes sure that all images of Cilium, and of what storage there is, come from the mirror.
func (b *bee) images(t *testing.T) {
	t.Helper()
	pods, err := b.api.CoreV1().Pods("kube-system").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, p := range pods.Items {
		for _, app := range []string{"cilium-operator", "cilium", "hubble-relay", "local-path"} {
			if !strings.HasPrefix(p.Name, app+"-") {
				continue
			}
			seen[app] = true
			for _, c := range append(p.Spec.InitContainers, p.Spec.Containers...) {
				if !strings.HasPrefix(c.Image, imageMirror+"/") {
					t.Errorf("pod %s has the image %s", p.Name, c.Image)
				}
			}
			break
		}
	}
	if len(seen) != 4 {
		t.Errorf("only these had pods: %v", seen)
	}
}

// changed: Hubble is turned off, and the chart becomes the one that the provider was tested with, while the nodes stay.
func (b *bee) changed(t *testing.T) {
	if got := b.c.state()[clusterAddr].Addons["cilium"].Version; got != olderCilium {
		t.Errorf("the chart has the version %s", got)
	}
	vms := b.vms()
	b.cni("hubble = false")
	b.apply()
	hasValues(t, b.deployed(t, "cilium"), map[string]any{"hubble.relay.enabled": false})
	if _, err := b.api.AppsV1().Deployments("kube-system").Get(t.Context(), "hubble-relay", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("Hubble's relay is still there, or cannot be looked for: %v", err)
	}
	b.installed(t, "cilium", "local-path")
	if got := b.c.state()[clusterAddr].Addons["cilium"].Version; got == olderCilium {
		t.Errorf("the chart has still the version %s", got)
	}
	if got := b.vms(); !maps.Equal(got, vms) {
		t.Errorf("the nodes were %v and are %v", vms, got)
	}
	b.c.steady()
}
