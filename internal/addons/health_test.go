package addons

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
)

// nodeThat is a node whose condition Ready has a status.
func nodeThat(name string, ready corev1.ConditionStatus, taints ...corev1.Taint) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Spec.Taints = taints
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	return n
}

func TestHealth(t *testing.T) {
	deployments := func(status appsv1.DeploymentStatus) *appsv1.Deployment {
		two := int32(2)
		return &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "d", Generation: 3},
			Spec:       appsv1.DeploymentSpec{Replicas: &two}, Status: status,
		}
	}
	set := func(status appsv1.DaemonSetStatus) *appsv1.DaemonSet {
		return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s", Generation: 3}, Status: status}
	}
	onlyD, onlyS := []workload{{deployment, "ns", "d"}}, []workload{{daemonSet, "ns", "s"}}
	server := corev1.Taint{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule}
	young := corev1.Taint{Key: "node.kubernetes.io/not-ready", Effect: corev1.TaintEffectNoSchedule}
	for name, tt := range map[string]struct {
		workloads []workload
		objects   []runtime.Object
		want      []string
	}{
		"deployment":         {onlyD, []runtime.Object{deployments(appsv1.DeploymentStatus{ObservedGeneration: 3, UpdatedReplicas: 2, AvailableReplicas: 2})}, nil},
		"deployment is gone": {onlyD, nil, []string{"Deployment ns/d: it does not exist"}},
		"deployment, not looked at": {
			onlyD, []runtime.Object{deployments(appsv1.DeploymentStatus{ObservedGeneration: 2, UpdatedReplicas: 2, AvailableReplicas: 2})},
			[]string{"Deployment ns/d: its controller has not looked at it yet"},
		},
		"deployment, half": {
			onlyD, []runtime.Object{deployments(appsv1.DeploymentStatus{ObservedGeneration: 3, UpdatedReplicas: 2, AvailableReplicas: 1})},
			[]string{"Deployment ns/d: 1 of 2 available"},
		},
		"deployment, half changed": {
			onlyD, []runtime.Object{deployments(appsv1.DeploymentStatus{ObservedGeneration: 3, UpdatedReplicas: 1, AvailableReplicas: 2})},
			[]string{"Deployment ns/d: 1 of 2 changed"},
		},
		"deployment, refused": {
			onlyD, []runtime.Object{deployments(appsv1.DeploymentStatus{ObservedGeneration: 3, Conditions: []appsv1.DeploymentCondition{
				{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Message: "violates PodSecurity"},
			}})},
			[]string{"Deployment ns/d: 0 of 2 available: violates PodSecurity"},
		},
		"daemon set":         {onlyS, []runtime.Object{set(appsv1.DaemonSetStatus{ObservedGeneration: 3, DesiredNumberScheduled: 2, CurrentNumberScheduled: 2, UpdatedNumberScheduled: 2, NumberAvailable: 2})}, nil},
		"daemon set is gone": {onlyS, nil, []string{"DaemonSet ns/s: it does not exist"}},
		"daemon set, half, nodes not ready": {
			onlyS, []runtime.Object{
				set(appsv1.DaemonSetStatus{ObservedGeneration: 3, DesiredNumberScheduled: 2, CurrentNumberScheduled: 2, UpdatedNumberScheduled: 2, NumberAvailable: 1}),
				nodeThat("a", corev1.ConditionTrue), nodeThat("b", corev1.ConditionFalse),
			},
			[]string{"DaemonSet ns/s: 1 of 2 available"},
		},
		"daemon set, half, the other node is off": {
			onlyS, []runtime.Object{
				set(appsv1.DaemonSetStatus{ObservedGeneration: 3, DesiredNumberScheduled: 2, CurrentNumberScheduled: 2, UpdatedNumberScheduled: 2, NumberAvailable: 1}),
				nodeThat("a", corev1.ConditionTrue), nodeThat("b", corev1.ConditionUnknown),
			},
			nil,
		},
		"daemon set, half changed": {
			onlyS, []runtime.Object{set(appsv1.DaemonSetStatus{ObservedGeneration: 3, DesiredNumberScheduled: 2, CurrentNumberScheduled: 2, UpdatedNumberScheduled: 1, NumberAvailable: 2})},
			[]string{"DaemonSet ns/s: 1 of 2 changed"},
		},
		"daemon set without a node to run on": {
			onlyS, []runtime.Object{set(appsv1.DaemonSetStatus{ObservedGeneration: 3}), nodeThat("a", corev1.ConditionTrue, server)}, nil,
		},
		"daemon set that no node is for": {
			onlyS, []runtime.Object{set(appsv1.DaemonSetStatus{ObservedGeneration: 3}), nodeThat("a", corev1.ConditionTrue, young)},
			[]string{"DaemonSet ns/s: no node is one of those that it runs on"},
		},
		"daemon set that can make no pods": {
			onlyS, []runtime.Object{
				set(appsv1.DaemonSetStatus{ObservedGeneration: 3, DesiredNumberScheduled: 1}), nodeThat("a", corev1.ConditionTrue),
				&corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "e"}, Reason: "FailedCreate", Message: "no such service account"},
			},
			[]string{"DaemonSet ns/s: 0 of 1 available: no such service account"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := newInstalled(t, nil, tt.objects...)
			k.releaseOf = func(cluster.AddonSpec, cluster.Addon) (release, error) {
				return release{workloads: tt.workloads, pods: []podSelector{{namespace: "ns"}}}, nil
			}
			err := k.Health(t.Context(), cluster.AddonSpec{}, cluster.NFS)
			var bad *cluster.Unavailable
			switch {
			case tt.want == nil && err != nil, tt.want != nil && !errors.As(err, &bad):
				t.Errorf("got %v", err)
			case tt.want != nil && (!slices.Equal(bad.Workloads, tt.want) || bad.Addon != cluster.NFS):
				t.Errorf("got %+v", bad)
			}
		})
	}
}

// What an add-on needs besides its workloads is asked for when these run, and its class last.
func TestHealthAsksForMore(t *testing.T) {
	for name, tt := range map[string]struct {
		objects []runtime.Object
		lacks   []string
		want    []string
	}{
		"lacks something":  {lacks: []string{"TigeraStatus calico: not Available"}, want: []string{"TigeraStatus calico: not Available"}},
		"lacks its class":  {want: []string{`StorageClass "nfs" does not exist`}},
		"lacks nothing":    {objects: []runtime.Object{liveClass("a", false)}},
		"all has its turn": {objects: []runtime.Object{liveClass("a", false)}, lacks: []string{"x"}, want: []string{"x"}},
	} {
		k := newInstalled(t, nil, tt.objects...)
		k.releaseOf = func(cluster.AddonSpec, cluster.Addon) (release, error) {
			return release{class: &class{name: "nfs"}, ready: func(context.Context, dynamic.Interface) ([]string, error) { return tt.lacks, nil }}, nil
		}
		err := k.Health(t.Context(), cluster.AddonSpec{}, cluster.NFS)
		var bad *cluster.Unavailable
		if tt.want == nil && err != nil || tt.want != nil && (!errors.As(err, &bad) || !slices.Equal(bad.Workloads, tt.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// podThat is a pod with a status.
func podThat(name string, status corev1.PodStatus) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Status: status}
	p.Spec.NodeName = "node-1"
	p.Spec.Containers = []corev1.Container{{Name: "c", Args: []string{"canary"}, Env: []corev1.EnvVar{{Name: "X", Value: "canary"}}}}
	return p
}

func TestTellPods(t *testing.T) {
	waiting := func(reason, message string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	}
	ended := func(code int32, reason, message string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, Message: message}}
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	one := func(s corev1.ContainerStatus) corev1.PodStatus {
		s.Name = "c"
		return corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{s}}
	}
	for name, tt := range map[string]struct {
		status corev1.PodStatus
		want   string
	}{
		"runs":     {corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}, ""},
		"is done":  {corev1.PodStatus{Phase: corev1.PodSucceeded}, ""},
		"is young": {corev1.PodStatus{Phase: corev1.PodPending}, "Pending"},
		"has no image": {
			one(corev1.ContainerStatus{State: waiting("ErrImagePull", "dial tcp: lookup quay.io:\n no such host")}),
			"container c: ErrImagePull: dial tcp: lookup quay.io: no such host",
		},
		"is not scheduled": {
			corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/1 nodes are available"},
			}},
			"not scheduled: 0/1 nodes are available",
		},
		"crashes": {
			one(corev1.ContainerStatus{RestartCount: 5, State: waiting("CrashLoopBackOff", "back-off"), LastTerminationState: ended(1, "Error", "no iscsid")}),
			"container c: CrashLoopBackOff: restarted 5 times, ended with exit status 1: no iscsid",
		},
		"was killed": {
			one(corev1.ContainerStatus{RestartCount: 1, State: running, LastTerminationState: ended(137, "OOMKilled", "")}),
			"container c: running and not ready: restarted 1 times, ended with exit status 137: OOMKilled",
		},
		"is not ready": {one(corev1.ContainerStatus{State: running}), "container c: running and not ready"},
		"waits for its volumes": {
			one(corev1.ContainerStatus{State: waiting("ContainerCreating", "")}), "container c: ContainerCreating",
		},
		"fails in an init container": {
			corev1.PodStatus{
				Phase:                 corev1.PodPending,
				InitContainerStatuses: []corev1.ContainerStatus{{Name: "init", State: ended(2, "Error", "")}},
				ContainerStatuses:     []corev1.ContainerStatus{{Name: "c", State: waiting("PodInitializing", "")}},
			},
			"container init: ended with exit status 2",
		},
		"init container is done": {
			corev1.PodStatus{
				Phase:                 corev1.PodPending,
				InitContainerStatuses: []corev1.ContainerStatus{{Name: "init", Ready: true, State: ended(0, "Completed", "")}},
				ContainerStatuses:     []corev1.ContainerStatus{{Name: "c", State: waiting("ImagePullBackOff", "x")}},
			},
			"container c: ImagePullBackOff: x",
		},
		"was evicted": {corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "disk pressure"}, "it has failed: Evicted: disk pressure"},
		"says much":   {one(corev1.ContainerStatus{State: waiting("X", strings.Repeat("é", 400))}), "container c: X: " + strings.Repeat("é", 150) + "…"},
	} {
		got := tellPods([]corev1.Pod{podThat("p", tt.status)})
		if tt.want == "" && len(got) != 0 || tt.want != "" && !slices.Equal(got, []string{"pod ns/p on node-1: " + tt.want}) {
			t.Errorf("%s: %q", name, got)
		}
		if strings.Contains(strings.Join(got, ""), "canary") {
			t.Errorf("%s: it tells what the pod is started with: %q", name, got)
		}
	}
}

// Of many pods those are told that say the most.
func TestTellPodsOfMany(t *testing.T) {
	var pods []corev1.Pod
	for _, name := range []string{"a", "b", "c", "d", "e", "f"} {
		pods = append(pods, podThat(name, corev1.PodStatus{Phase: corev1.PodPending}))
	}
	pods = append(pods, podThat("z", corev1.PodStatus{Phase: corev1.PodFailed}))
	got := tellPods(pods)
	if len(got) != shownPods+1 || !strings.HasPrefix(got[0], "pod ns/z ") || got[shownPods] != "and 2 more pods" {
		t.Errorf("got %q", got)
	}
	gone := podThat("x", corev1.PodStatus{Phase: corev1.PodPending})
	now := metav1.Now()
	gone.DeletionTimestamp = &now
	if got := tellPods([]corev1.Pod{gone}); len(got) != 0 {
		t.Errorf("of one that ends: %q", got)
	}
}
