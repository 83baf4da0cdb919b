package addons

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
)

// shownPods is how many pods the error of an add-on tells of.
const shownPods = 5

// Health returns nil where all workloads of an add-on are available. Nodes that are silent do not count.
func (k *installed) Health(ctx context.Context, s cluster.AddonSpec, a cluster.Addon) error {
	r, err := k.releaseOf(s, a)
	if err != nil {
		return err
	}
	look := &checkup{installed: k}
	bad := &cluster.Unavailable{Addon: a}
	for _, w := range r.workloads {
		lack, err := look.workload(ctx, w)
		if err != nil {
			return fmt.Errorf("look at %s: %w", w, err)
		}
		if lack != "" {
			bad.Workloads = append(bad.Workloads, w.String()+": "+lack)
		}
	}
	if len(bad.Workloads) == 0 && r.ready != nil {
		if bad.Workloads, err = r.ready(ctx, k.dynamic); err != nil {
			return err
		}
	}
	if len(bad.Workloads) == 0 && r.class != nil {
		_, err := k.typed.StorageV1().StorageClasses().Get(ctx, r.class.name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			bad.Workloads = append(bad.Workloads, fmt.Sprintf("StorageClass %q does not exist", r.class.name))
		case err != nil:
			return fmt.Errorf("look at StorageClass %q: %w", r.class.name, err)
		}
	}
	if len(bad.Workloads) == 0 {
		return nil
	}
	bad.Pods, err = k.tellPods(ctx, r.pods)
	if err != nil {
		return err
	}
	return bad
}

// checkup reads the nodes once, where they matter.
type checkup struct {
	*installed
	nodes []corev1.Node
	asked bool
}

func (c *checkup) allNodes(ctx context.Context) ([]corev1.Node, error) {
	if c.asked {
		return c.nodes, nil
	}
	list, err := c.typed.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	c.nodes, c.asked = list.Items, true
	return c.nodes, nil
}

// workload says what a workload lacks, "" for nothing.
func (c *checkup) workload(ctx context.Context, w workload) (string, error) {
	const gone = "it does not exist"
	if w.kind == daemonSet {
		d, err := c.typed.AppsV1().DaemonSets(w.namespace).Get(ctx, w.name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return gone, nil
		}
		if err != nil {
			return "", err
		}
		return c.daemonSet(ctx, w, d)
	}
	d, err := c.typed.AppsV1().Deployments(w.namespace).Get(ctx, w.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return gone, nil
	}
	if err != nil {
		return "", err
	}
	return deploymentLack(d), nil
}

// notSeen is what a workload lacks whose change its controller has not looked at.
const notSeen = "its controller has not looked at it yet"

// deploymentLack says what a Deployment lacks, "" for nothing.
func deploymentLack(d *appsv1.Deployment) string {
	want, s := ptr.Deref(d.Spec.Replicas, 1), d.Status
	switch {
	case s.ObservedGeneration < d.Generation:
		return notSeen
	case s.UpdatedReplicas >= want && s.AvailableReplicas >= want:
		return ""
	}
	lack := fmt.Sprintf("%d of %d available", s.AvailableReplicas, want)
	if s.UpdatedReplicas < want && s.AvailableReplicas >= want {
		lack = fmt.Sprintf("%d of %d changed", s.UpdatedReplicas, want)
	}
	for _, condition := range s.Conditions {
		if condition.Type == appsv1.DeploymentReplicaFailure && condition.Status == corev1.ConditionTrue {
			lack += ": " + clip(condition.Message)
		}
	}
	return lack
}

// daemonSet says what a DaemonSet lacks, "" for nothing.
func (c *checkup) daemonSet(ctx context.Context, w workload, d *appsv1.DaemonSet) (string, error) {
	s := d.Status
	switch {
	case s.ObservedGeneration < d.Generation:
		return notSeen, nil
	case s.DesiredNumberScheduled > 0 && s.UpdatedNumberScheduled >= s.DesiredNumberScheduled && s.NumberAvailable >= s.DesiredNumberScheduled:
		return "", nil
	}
	nodes, err := c.allNodes(ctx)
	if err != nil {
		return "", err
	}
	if s.DesiredNumberScheduled == 0 {
		if slices.ContainsFunc(nodes, func(n corev1.Node) bool { return takesPods(&n) }) {
			return "no node is one of those that it runs on", nil
		}
		return "", nil
	}
	silent := 0
	for i := range nodes {
		if isSilent(&nodes[i]) {
			silent++
		}
	}
	want := s.DesiredNumberScheduled - int32(min(silent, int(s.DesiredNumberScheduled))) //nolint:gosec // at most an int32
	if s.UpdatedNumberScheduled >= want && s.NumberAvailable >= want {
		return "", nil
	}
	lack := fmt.Sprintf("%d of %d available", s.NumberAvailable, s.DesiredNumberScheduled)
	if s.NumberAvailable >= want {
		lack = fmt.Sprintf("%d of %d changed", s.UpdatedNumberScheduled, s.DesiredNumberScheduled)
	}
	if s.CurrentNumberScheduled == 0 {
		refusal, err := c.refusal(ctx, w)
		if err != nil {
			return "", err
		}
		lack += refusal
	}
	return lack, nil
}

// isSilent reports whether a node's kubelet has ended to report: the node is off, or out of reach. That is not so of a node that
// reports that it is not ready, as all do without a network plugin.
func isSilent(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown
	})
}

// refusal tells, for the end of a message, why a DaemonSet could not make pods. Its status does not.
func (c *checkup) refusal(ctx context.Context, w workload) (string, error) {
	events, err := c.typed.CoreV1().Events(w.namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.Set{"involvedObject.kind": string(w.kind), "involvedObject.name": w.name, "reason": "FailedCreate"}.String(),
		Limit:         1,
	})
	if err != nil || len(events.Items) == 0 {
		return "", err
	}
	return ": " + clip(events.Items[0].Message), nil
}

// tellPods tells of pods that do not run why not.
func (k *installed) tellPods(ctx context.Context, selectors []podSelector) ([]string, error) {
	var pods []corev1.Pod
	for _, s := range selectors {
		list, err := k.typed.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: labels.SelectorFromSet(s.labels).String()})
		if err != nil {
			return nil, fmt.Errorf("list pods: %w", err)
		}
		pods = append(pods, list.Items...)
	}
	return tellPods(pods), nil
}

// tellPods tells of pods that do not run why not. Those come first that say the most: a pod that waits for others says little.
func tellPods(pods []corev1.Pod) []string {
	type told struct {
		text   string
		weight int
	}
	var all []told
	for i := range pods {
		p := &pods[i]
		text, weight := troubleOf(p)
		if text == "" {
			continue
		}
		name := fmt.Sprintf("pod %s/%s", p.Namespace, p.Name)
		if p.Spec.NodeName != "" {
			name += " on " + p.Spec.NodeName
		}
		all = append(all, told{name + ": " + text, weight})
	}
	slices.SortFunc(all, func(a, b told) int {
		if a.weight != b.weight {
			return b.weight - a.weight
		}
		return strings.Compare(a.text, b.text)
	})
	all = slices.CompactFunc(all, func(a, b told) bool { return a.text == b.text })
	var out []string
	for i, t := range all {
		if i == shownPods {
			out = append(out, fmt.Sprintf("and %d more pods", len(all)-shownPods))
			break
		}
		out = append(out, t.text)
	}
	return out
}
