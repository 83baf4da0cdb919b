// Package kube speaks to the API of one cluster, from a kubeconfig in memory: nothing is shelled out, and no kubeconfig
// is written to a file.
package kube

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
)

// requestTimeout bounds one request; the pipeline asks again.
const requestTimeout = 15 * time.Second

// Client is a cluster's API. It implements cluster.Kube.
type Client struct {
	api kubernetes.Interface
}

// New returns a client for the cluster of a kubeconfig. It does no I/O.
func New(kubeconfig []byte) (*Client, error) {
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	config.Timeout = requestTimeout
	config.UserAgent = "terraform-provider-cockpit"
	// The pipeline bounds its own calls; client-go's default of five a second would hold up many nodes at once.
	config.QPS = -1
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return evictOnce{next} })
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for %s: %w", config.Host, err)
	}
	return &Client{api: api}, nil
}

// evictOnce keeps client-go from repeating evictions out of sight. It does so ten times for an answer with a Retry-After, as
// the API gives for a disruption budget that it has not looked at yet, and tells nothing of the answer if its time ends.
type evictOnce struct{ next http.RoundTripper }

func (e evictOnce) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := e.next.RoundTrip(r)
	if err == nil && strings.HasSuffix(r.URL.Path, "/eviction") {
		answer.Header.Del("Retry-After")
	}
	return answer, err
}

// Ready asks the API server's /readyz, which answers only when the API serves.
func (c *Client) Ready(ctx context.Context) error {
	if err := c.api.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
		return fmt.Errorf("ask the API whether it is ready: %w", err)
	}
	return nil
}

// Nodes lists the Node objects.
func (c *Client) Nodes(ctx context.Context) ([]cluster.Node, error) {
	list, err := c.api.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	nodes := make([]cluster.Node, 0, len(list.Items))
	for i := range list.Items {
		nodes = append(nodes, nodeOf(&list.Items[i]))
	}
	return nodes, nil
}

func nodeOf(n *corev1.Node) cluster.Node {
	_, etcd := n.Labels[etcdLabel]
	out := cluster.Node{
		Name: n.Name, Etcd: etcd, K3sVersion: n.Status.NodeInfo.KubeletVersion, BootID: n.Status.NodeInfo.BootID,
		Reason: "Unknown", Message: "no Ready condition yet",
		Cordoned: isCordoned(n), Labels: n.Labels, OwnLabels: marked(n, labelsMark), OwnTaints: marked(n, taintsMark),
	}
	for _, t := range n.Spec.Taints {
		out.Taints = append(out.Taints, taintOf(t))
	}
	for _, c := range n.Status.Conditions {
		switch c.Type {
		case corev1.NodeReady:
			out.Ready, out.Reason, out.Message = c.Status == corev1.ConditionTrue, c.Reason, c.Message
			out.Since = c.LastTransitionTime.Time
		case etcdVoter:
			out.Voter = c.Status == corev1.ConditionTrue
		}
	}
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			out.InternalIP = a.Address
			break
		}
	}
	return out
}
