package acceptance

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
)

const (
	namespace = "default"
	// appLabel tells the pods of a Deployment by its name.
	appLabel = "app"
	// podStart bounds the start of pods for which there is room.
	podStart = time.Minute
)

// await waits until something is so, and says what it waits for. Its error is the last one.
func await(t *testing.T, what string, limit time.Duration, so func(context.Context) (bool, error)) {
	t.Helper()
	t.Logf("waiting until %s, at most %s", what, limit)
	for end := time.Now().Add(limit); ; time.Sleep(time.Second) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		ok, err := so(ctx)
		cancel()
		if ok {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("waited %s, and it is still not so that %s: %v", limit, what, err)
		}
	}
}

// workload is what runs in a cluster besides the cluster itself.
type workload struct{ api *kubernetes.Clientset }

// deploy makes a Deployment on the nodes with the label tier=web, spread over all of them that take pods.
func (w workload) deploy(t *testing.T, name string, replicas int32, tolerations ...corev1.Toleration) {
	t.Helper()
	labels := map[string]string{appLabel: name}
	honor := corev1.NodeInclusionPolicyHonor
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					NodeSelector: map[string]string{"tier": "web"},
					Tolerations:  tolerations,
					TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
						MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.DoNotSchedule,
						LabelSelector: &metav1.LabelSelector{MatchLabels: labels}, NodeTaintsPolicy: &honor,
					}},
					Containers: []corev1.Container{pause},
				},
			},
		},
	}
	if _, err := w.api.AppsV1().Deployments(namespace).Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// pause does nothing, and ends when it is told to.
var pause = corev1.Container{Name: "pause", Image: "rancher/mirrored-pause:3.6"}

// stubborn makes a pod on a node that belongs to nobody, keeps files of its own, and ends only when its grace period of ten
// minutes does.
func (w workload) stubborn(t *testing.T, node string) {
	t.Helper()
	grace := int64(600)
	p := &corev1.Pod{
		// The annotation tells the lab's double, in which no program runs, what the command does.
		ObjectMeta: metav1.ObjectMeta{Name: "stubborn", Annotations: map[string]string{"double.k3s.io/ignores-sigterm": "true"}},
		Spec: corev1.PodSpec{
			NodeName: node, TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{
				Name: "sh", Image: "rancher/mirrored-library-busybox:1.37.0", Command: []string{"sh", "-c", "trap '' TERM; while :; do sleep 1; done"},
				VolumeMounts: []corev1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}},
			}},
			Volumes: []corev1.Volume{{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		},
	}
	if _, err := w.api.CoreV1().Pods(namespace).Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, "the pod stubborn runs", podStart, func(ctx context.Context) (bool, error) {
		p, err := w.api.CoreV1().Pods(namespace).Get(ctx, p.Name, metav1.GetOptions{})
		return err == nil && p.Status.Phase == corev1.PodRunning, err
	})
}

// protect lets no pod of a Deployment be evicted with which fewer than so many would be left.
func (w workload) protect(t *testing.T, name string, minAvailable int) {
	t.Helper()
	least := intstr.FromInt(minAvailable)
	budgets := w.api.PolicyV1().PodDisruptionBudgets(namespace)
	b := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &least, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{appLabel: name}}},
	}
	_, err := budgets.Create(t.Context(), b, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
			old, err := budgets.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			old.Spec = b.Spec
			_, err = budgets.Update(t.Context(), old, metav1.UpdateOptions{})
			return err
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the budget is reckoned with", podStart, func(ctx context.Context) (bool, error) {
		b, err := budgets.Get(ctx, name, metav1.GetOptions{})
		return err == nil && b.Status.ObservedGeneration == b.Generation && b.Status.DesiredHealthy == int32(minAvailable), err
	})
}

// pods lists the pods of a Deployment that are not about to end.
func (w workload) pods(ctx context.Context, name string) ([]corev1.Pod, error) {
	list, err := w.api.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: appLabel + "=" + name})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil }), nil
}

// settle waits until a Deployment is available, and spread over as many nodes. It returns its pods by node.
func (w workload) settle(t *testing.T, name string, nodes int) map[string]corev1.Pod {
	t.Helper()
	on := map[string]corev1.Pod{}
	await(t, fmt.Sprintf("the Deployment %s is available on %d nodes", name, nodes), podStart, func(ctx context.Context) (bool, error) {
		d, err := w.api.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		pods, err := w.pods(ctx, name)
		clear(on)
		var all []string
		for _, p := range pods {
			on[p.Spec.NodeName] = p
			all = append(all, fmt.Sprintf("%s is %s on %q", p.Name, p.Status.Phase, p.Spec.NodeName))
		}
		if err == nil && (d.Status.AvailableReplicas != *d.Spec.Replicas || len(on) != nodes) {
			err = fmt.Errorf("%d replicas are available: %q", d.Status.AvailableReplicas, all)
		}
		return err == nil, err
	})
	return on
}

// spread makes the pods of a Deployment anew, so that they are spread over all nodes that there are by now.
func (w workload) spread(t *testing.T, name string, nodes int) map[string]corev1.Pod {
	t.Helper()
	err := w.api.CoreV1().Pods(namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: appLabel + "=" + name})
	if err != nil {
		t.Fatal(err)
	}
	return w.settle(t, name, nodes)
}

// node reads a Node object.
func (w workload) node(t *testing.T, name string) *corev1.Node {
	t.Helper()
	n, err := w.api.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// open waits until nodes take pods: k3s keeps them off a new node for some seconds after it is Ready.
func (w workload) open(t *testing.T, names ...string) {
	t.Helper()
	await(t, fmt.Sprintf("the nodes %v take pods", names), podStart, func(ctx context.Context) (bool, error) {
		for _, name := range names {
			n, err := w.api.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
			if err != nil || slices.ContainsFunc(n.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == "node.cloudprovider.kubernetes.io/uninitialized" }) {
				return false, err
			}
		}
		return true, nil
	})
}

// newcomers watches for Node objects while something is done, and returns each of them as it was registered.
func (w workload) newcomers(t *testing.T, do func()) map[string]*corev1.Node {
	t.Helper()
	nodes := w.api.CoreV1().Nodes()
	there, err := nodes.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	events, err := nodes.Watch(t.Context(), metav1.ListOptions{ResourceVersion: there.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	seen := make(chan map[string]*corev1.Node, 1)
	go func() {
		made := map[string]*corev1.Node{}
		for e := range events.ResultChan() {
			if n, ok := e.Object.(*corev1.Node); ok && e.Type == watch.Added {
				made[n.Name] = n
			}
		}
		seen <- made
	}()
	defer events.Stop()
	do()
	events.Stop()
	return <-seen
}

// edit changes a Node object by hand.
func (w workload) edit(t *testing.T, name string, change func(*corev1.Node)) {
	t.Helper()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		n, err := w.api.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(n)
		_, err = w.api.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// witness is what was seen of a cluster while something was done to it.
type witness struct {
	// looks is how often it was looked at.
	looks int
	// available is the least number of available pods of the Deployment, and open the least number of nodes that took pods.
	available, open int
	// names are all nodes that there were.
	names map[string]bool
}

// witnessed looks at a Deployment and at the nodes with the label tier=web while something is done.
func (w workload) witnessed(t *testing.T, name string, do func()) witness {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	seen := make(chan witness, 1)
	go func() { seen <- w.look(ctx, name) }()
	do()
	stop()
	s := <-seen
	if s.looks == 0 {
		t.Fatal("the cluster could not be looked at")
	}
	t.Logf("seen %d times meanwhile: at least %d pods available and %d nodes open, of %d nodes", s.looks, s.available, s.open, len(s.names))
	return s
}

func (w workload) look(ctx context.Context, name string) witness {
	s := witness{available: 1 << 30, open: 1 << 30, names: map[string]bool{}}
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		d, err := w.api.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			var nodes *corev1.NodeList
			if nodes, err = w.api.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: "tier=web"}); err == nil {
				s.add(*d, nodes.Items)
			}
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	return s
}

func (s *witness) add(d appsv1.Deployment, nodes []corev1.Node) {
	open := 0
	for _, n := range nodes {
		s.names[n.Name] = true
		if is(n, corev1.NodeReady) && !n.Spec.Unschedulable {
			open++
		}
	}
	s.looks++
	s.available, s.open = min(s.available, int(d.Status.AvailableReplicas)), min(s.open, open)
}
