package addons

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	metadatafake "k8s.io/client-go/metadata/fake"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// recordOf is the Secret that Helm keeps of a revision, without its content.
func recordOf(p place, number int) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: p.namespace, Name: fmt.Sprintf("sh.helm.release.v1.%s.v%d", p.name, number),
		Labels: map[string]string{"owner": "helm", "name": p.name, "version": fmt.Sprint(number)},
	}}
}

func TestLook(t *testing.T) {
	p := places[cluster.NFS]
	wantNFS := cluster.AddonSpec{CSI: record.CSI{NFS: &record.NFS{}}}
	change := func(v revision, f func(*revision)) revision { f(&v); return v }
	there := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "d"}}
	since := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	right := []runtime.Object{recordOf(p, 1), liveClass("a", false)}
	status := func(state cluster.AddonState, reason string) *cluster.AddonStatus {
		return &cluster.AddonStatus{Chart: "csi-driver-nfs", Version: "4.13.4", Namespace: p.namespace, State: state, Reason: reason}
	}
	for name, tt := range map[string]struct {
		spec      cluster.AddonSpec
		objects   []runtime.Object
		revisions []revision
		want      *cluster.AddonStatus
	}{
		"missing":  {spec: wantNFS, want: &cluster.AddonStatus{Namespace: p.namespace, State: cluster.AddonMissing, Reason: "it is not installed"}},
		"deployed": {spec: wantNFS, objects: right, revisions: []revision{rev(1, deployed)}, want: status(cluster.AddonDeployed, "")},
		"deployed, of several": {
			spec: wantNFS, objects: append([]runtime.Object{recordOf(p, 9), recordOf(p, 10)}, right...),
			revisions: []revision{rev(1, superseded), rev(9, superseded), rev(10, deployed)}, want: status(cluster.AddonDeployed, ""),
		},
		"values changed by hand": {
			spec: wantNFS, objects: right, revisions: []revision{change(rev(1, deployed), func(v *revision) { v.values = map[string]any{"x": 2.0, "y": 1.0} })},
			want: status(cluster.AddonDrifted, "values differ: x, y"),
		},
		"a Deployment was deleted": {
			spec: wantNFS, objects: right,
			revisions: []revision{change(rev(1, deployed), func(v *revision) { v.manifest = "kind: Deployment\nmetadata: {name: d}" })},
			want:      status(cluster.AddonDrifted, "Deployment kube-system/d is gone"),
		},
		"a Deployment is there": {
			spec: wantNFS, objects: append([]runtime.Object{there}, right...),
			revisions: []revision{change(rev(1, deployed), func(v *revision) { v.manifest = "kind: Deployment\nmetadata: {name: d}" })},
			want:      status(cluster.AddonDeployed, ""),
		},
		"the class is another, and a default one": {
			spec: wantNFS, objects: []runtime.Object{recordOf(p, 1), liveClass("b", true)}, revisions: []revision{rev(1, deployed)},
			want: status(cluster.AddonDrifted, `StorageClass "nfs" has other settings: server; StorageClass "nfs" is a default class, and is not to be one`),
		},
		"failed": {
			spec: wantNFS, objects: right,
			revisions: []revision{change(rev(1, failed), func(v *revision) { v.since, v.description = since, "no such\n host" })},
			want:      status(cluster.AddonFailed, "revision 1 of its release is failed since 2026-11-30T12:00:00Z: no such host"),
		},
		"pending": {
			spec: wantNFS, objects: right, revisions: []revision{change(rev(1, "pending-install"), func(v *revision) { v.since = since })},
			want: status(cluster.AddonFailed, "revision 1 of its release is pending-install since 2026-11-30T12:00:00Z: an apply was cut off, or another one is at work"),
		},
		"uninstalled": {spec: wantNFS, objects: right, revisions: []revision{rev(1, uninstalled)}, want: status(cluster.AddonMissing, "it was uninstalled")},
		"somebody else's": {
			spec: wantNFS, objects: right, revisions: []revision{change(rev(1, deployed), func(v *revision) { v.addon = "" })},
			want: status(cluster.AddonFailed, "the release kube-system/csi-driver-nfs is there, and the provider has not made it"),
		},
		"unwanted":               {objects: right, revisions: []revision{rev(1, failed)}, want: status(cluster.AddonUnwanted, "it is installed, and not wanted any more")},
		"unwanted, foreign":      {objects: right, revisions: []revision{change(rev(1, deployed), func(v *revision) { v.addon = "" })}},
		"unwanted, and gone":     {objects: right, revisions: []revision{rev(1, uninstalled)}},
		"of that name elsewhere": {objects: []runtime.Object{recordOf(place{namespace: "default", name: p.name}, 1)}},
	} {
		t.Run(name, func(t *testing.T) {
			k := newInstalled(t, &fakeReleases{revisions: tt.revisions}, tt.objects...)
			r := testRelease(cluster.NFS)
			r.workloads = []workload{{deployment, p.namespace, "d"}, {daemonSet, p.namespace, "operator-made"}}
			k.releaseOf = func(cluster.AddonSpec, cluster.Addon) (release, error) { return r, nil }
			got, err := k.Look(t.Context(), tt.spec)
			want := cluster.AddonStatuses{}
			if tt.want != nil {
				want[cluster.NFS] = *tt.want
			}
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

// However many revisions a release has, Look makes the same requests.
func TestLookAsksLittle(t *testing.T) {
	asked := func(revisions int) int {
		p := places[cluster.NFS]
		f := &fakeReleases{}
		objects := []runtime.Object{liveClass("a", false)}
		for n := range revisions {
			f.revisions = append(f.revisions, rev(n+1, deployed))
			objects = append(objects, recordOf(p, n+1))
		}
		counter := &countingReleases{fakeReleases: f}
		k := newInstalled(t, f, objects...)
		k.releases = counter
		if _, err := k.Look(t.Context(), cluster.AddonSpec{CSI: record.CSI{NFS: &record.NFS{}}}); err != nil {
			t.Fatal(err)
		}
		return counter.n + len(k.metadata.(*metadatafake.FakeMetadataClient).Actions())
	}
	if few, many := asked(1), asked(5); few != many {
		t.Errorf("%d requests with one revision, and %d with five", few, many)
	}
}

// countingReleases counts what is read.
type countingReleases struct {
	*fakeReleases
	n int
}

func (c *countingReleases) get(ctx context.Context, p place, number int) (revision, error) {
	c.n++
	return c.fakeReleases.get(ctx, p, number)
}

func (c *countingReleases) history(ctx context.Context, p place) ([]revision, error) {
	c.n += len(c.revisions)
	return c.fakeReleases.history(ctx, p)
}

func TestDefaults(t *testing.T) {
	other := liveClass("a", true)
	other.Name = "another"
	third := liveClass("a", false)
	third.Name = "third"
	got, err := newInstalled(t, nil, liveClass("a", true), other, third).Defaults(t.Context())
	if err != nil || !slices.Equal(got, []string{"another", "nfs"}) {
		t.Errorf("got %q, %v", got, err)
	}
}

// listKinds are the kinds of lists that a fake of the API does not know by itself.
var listKinds = map[schema.GroupVersionResource]string{longhornData: "VolumeList", longhornNodes: "NodeList"}

func TestVolumes(t *testing.T) {
	volume := func(name string, change func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
		v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
		change(v)
		return v
	}
	local := volume("pvc-3", func(v *corev1.PersistentVolume) {
		v.Annotations = map[string]string{"pv.kubernetes.io/provisioned-by": "rancher.io/local-path"}
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "db", Name: "data-0"}
	})
	byHand := volume("by-hand", func(v *corev1.PersistentVolume) { v.Spec.HostPath = &corev1.HostPathVolumeSource{} })
	static := volume("static", func(v *corev1.PersistentVolume) {
		v.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "nfs.csi.k8s.io"}
	})
	known := volume("pvc-5", func(v *corev1.PersistentVolume) {
		v.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "driver.longhorn.io", VolumeHandle: "pvc-5"}
	})
	k := newInstalled(t, nil, local, byHand, static, known, volumeOf("nfs.csi.k8s.io"))
	for _, name := range []string{"pvc-5", "retained"} {
		v := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "longhorn.io/v1beta2", "kind": "Volume", "metadata": map[string]any{"name": name, "namespace": "longhorn-system"},
		}}
		if _, err := k.dynamic.Resource(longhornData).Namespace("longhorn-system").Create(t.Context(), v, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for a, want := range map[cluster.Addon][]string{
		cluster.LocalPath: {"pvc-3 (claim db/data-0)"},
		cluster.NFS:       {"pvc-1 (claim default/data)", "static"},
		cluster.Longhorn:  {"pvc-5", "retained (of Longhorn, without a PersistentVolume)"},
		cluster.Calico:    nil,
	} {
		if got, err := k.Volumes(t.Context(), a); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v", a, got, err)
		}
	}
}

func TestRemove(t *testing.T) {
	foreign := rev(1, deployed)
	foreign.addon = ""
	for name, tt := range map[string]struct {
		revisions []revision
		objects   []runtime.Object
		did       []string
		text      string
	}{
		"deployed":        {revisions: []revision{rev(1, deployed)}, objects: []runtime.Object{liveClass("a", false)}, did: []string{"uninstall"}},
		"half removed":    {revisions: []revision{rev(1, uninstalling)}, did: []string{"uninstall"}},
		"not there":       {},
		"somebody else's": {revisions: []revision{foreign}},
		"with volumes": {
			revisions: []revision{rev(1, deployed)}, objects: []runtime.Object{volumeOf("nfs.csi.k8s.io")},
			text: "there are volumes of nfs: pvc-1 (claim default/data)",
		},
	} {
		f := &fakeReleases{revisions: tt.revisions}
		k := newInstalled(t, f, tt.objects...)
		err := k.Remove(t.Context(), cluster.NFS)
		if tt.text == "" && err != nil || tt.text != "" && (err == nil || err.Error() != tt.text) || !slices.Equal(f.did, tt.did) {
			t.Errorf("%s: %v, did %q", name, err, f.did)
		}
		if classes, err := k.classes(t.Context()); err != nil || tt.text == "" && len(classes) != 0 {
			t.Errorf("%s: the classes %v are left, %v", name, classes, err)
		}
	}
}

// A class of the name that is somebody else's stays.
func TestRemoveLeavesAForeignClass(t *testing.T) {
	class := liveClass("a", false)
	class.Provisioner = "example.test/nfs"
	k := newInstalled(t, &fakeReleases{revisions: []revision{rev(1, deployed)}}, class)
	if err := k.Remove(t.Context(), cluster.NFS); err != nil {
		t.Fatal(err)
	}
	if classes, err := k.classes(t.Context()); err != nil || len(classes) != 1 {
		t.Errorf("the classes %v are left, %v", classes, err)
	}
}

// Longhorn does not let itself be uninstalled by mistake, and a Job that failed before stands in the way of the next.
func TestRemoveLonghorn(t *testing.T) {
	p := places[cluster.Longhorn]
	for _, ran := range []bool{true, false} {
		r := rev(1, uninstalling)
		r.addon = cluster.Longhorn
		f := &fakeReleases{revisions: []revision{r}}
		k := newInstalled(t, f, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "longhorn-uninstall"}})
		setting := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "longhorn.io/v1beta2", "kind": "Setting", "value": "false",
			"metadata": map[string]any{"name": "deleting-confirmation-flag", "namespace": p.namespace},
		}}
		var objects []runtime.Object
		if ran {
			objects = append(objects, setting)
		}
		k.dynamic = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), listKinds, objects...)
		if err := k.Remove(t.Context(), cluster.Longhorn); err != nil {
			t.Fatal(err)
		}
		is, err := k.dynamic.Resource(longhornSettings).Namespace(p.namespace).Get(t.Context(), "deleting-confirmation-flag", metav1.GetOptions{})
		if ran && (err != nil || is.Object["value"] != "true") || !ran && !apierrors.IsNotFound(err) {
			t.Errorf("the setting is %v, %v", is, err)
		}
		jobs, err := k.typed.BatchV1().Jobs(p.namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil || len(jobs.Items) != 0 || !slices.Equal(f.did, []string{"uninstall"}) {
			t.Errorf("%d Jobs are left, did %q: %v", len(jobs.Items), f.did, err)
		}
	}
}

// Longhorn takes itself apart, which needs a node that its Job can run on.
func TestRemoveLonghornWithoutANode(t *testing.T) {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "cp-1"},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
	for name, tt := range map[string]struct {
		change func(*corev1.Node)
		goes   bool
	}{
		"a node": {func(*corev1.Node) {}, true},
		"a tainted node": {func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}}
		}, false},
		"a cordoned node":     {func(n *corev1.Node) { n.Spec.Unschedulable = true }, false},
		"a node that is down": {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }, false},
	} {
		n := node.DeepCopy()
		tt.change(n)
		r := rev(1, deployed)
		r.addon = cluster.Longhorn
		f := &fakeReleases{revisions: []revision{r}}
		k := newInstalled(t, f, n)
		k.dynamic = dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), listKinds, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "longhorn.io/v1beta2", "kind": "Node", "metadata": map[string]any{"name": "cp-1", "namespace": "longhorn-system"},
		}})
		if err := k.Remove(t.Context(), cluster.Longhorn); (err == nil) != tt.goes || (len(f.did) > 0) != tt.goes {
			t.Errorf("%s: %v, did %q", name, err, f.did)
		}
	}
}
