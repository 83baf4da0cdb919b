package addons

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// tierChart has what matters of a storage add-on's chart.
var tierChart = map[string]string{
	"values.yaml": "server: a\nextra: false\nhook: false\nport: 80\n",
	"templates/all.yaml": `
apiVersion: apps/v1
kind: Deployment
metadata: {name: "{{ .Release.Name }}"}
spec:
  replicas: 1
  selector: {matchLabels: {app: x}}
  template:
    metadata: {labels: {app: x}}
    spec: {containers: [{name: x, image: x, ports: [{containerPort: {{ .Values.port }}}]}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: "{{ .Release.Name }}"}
data: {server: "{{ .Values.server }}"}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: "{{ .Release.Name }}", annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
provisioner: {{ .Release.Name }}
parameters: {server: "{{ .Values.server }}"}
{{- if .Values.extra }}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: "{{ .Release.Name }}-extra"}
{{- end }}
{{- if .Values.hook }}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: "{{ .Release.Name }}-hook"
  annotations: {helm.sh/hook: "pre-install,pre-upgrade"}
spec:
  template: {spec: {restartPolicy: Never, containers: [{name: x, image: x}]}}
{{- end }}
`,
}

// real are the add-ons of a real API, of which one is made of tierChart.
type real struct {
	*installed
	t *testing.T
	r release
}

// add adds an add-on that is made of tierChart under a name of its own, so that tests do not meet.
func (k real) add(t *testing.T, name string, values map[string]any) real {
	server, _ := values["server"].(string)
	if server == "" {
		server = "a"
	}
	k.t, k.r = t, release{
		addon: cluster.NFS, place: place{namespace: "kube-system", name: name, driver: places[cluster.NFS].driver}, values: values,
		source: source{chart: "real", version: "1.0.0"}, workloads: []workload{{deployment, "kube-system", name}},
		class: &class{name: name, isDefault: true, provisioner: name, parameters: map[string]string{"server": server}},
	}
	of := *k.installed
	of.releaseOf = func(cluster.AddonSpec, cluster.Addon) (release, error) { return k.r, nil }
	k.installed = &of
	t.Cleanup(func() {
		if err := k.releases.uninstall(context.Background(), k.r.place); err != nil {
			t.Error(err)
		}
	})
	return k
}

// install installs the add-on, and returns the statuses of its revisions.
func (k real) install() []string {
	k.t.Helper()
	if err := k.Install(k.t.Context(), cluster.AddonSpec{}, cluster.NFS); err != nil {
		k.t.Fatal(err)
	}
	return told(k.t, k.releases.(*helm), k.r.place)
}

// has reports whether there is a ConfigMap.
func (k real) has(name string) bool {
	k.t.Helper()
	_, err := k.typed.CoreV1().ConfigMaps(k.r.namespace).Get(k.t.Context(), name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		k.t.Fatal(err)
	}
	return err == nil
}

// TestRealAPI installs, breaks and mends releases on a real API, of a cluster that is there for tests.
func TestRealAPI(t *testing.T) {
	kubeconfig := realAPI(t)
	repository := &chartRepository{}
	repository.add("real", "1.0.0", packed(t, "real", "1.0.0", tierChart))
	opened, err := open(kubeconfig, newTestCharts(Options{Repository: serve(t, repository)}))
	if err != nil {
		t.Fatal(err)
	}
	k := real{installed: opened}
	t.Run("Life", k.life)
	t.Run("KilledInstall", k.killedInstall)
	t.Run("KilledUpgrade", k.killedUpgrade)
	t.Run("Cancelled", k.cancelled)
	t.Run("InTheWay", k.inTheWay)
	t.Run("Invalid", k.invalid)
	t.Run("Class", k.otherClass)
	t.Run("Uninstalled", k.uninstalled)
	t.Run("Kinds", k.kinds)
	t.Run("LocalPath", k.localPath)
}

// A release is made, left alone, changed, and mended where somebody has deleted a part of it.
func (k real) life(t *testing.T) {
	k = k.add(t, "life", map[string]any{"extra": true})
	for range 2 {
		if got := k.install(); !slices.Equal(got, []string{"1 deployed"}) || !k.has("life-extra") {
			t.Errorf("after an installation: %q", got)
		}
	}
	k = k.add(t, "life", map[string]any{"extra": false})
	if got := k.install(); !slices.Equal(got, []string{"1 superseded", "2 deployed"}) || k.has("life-extra") {
		t.Errorf("after other values: %q", got)
	}
	if err := k.typed.AppsV1().Deployments("kube-system").Delete(t.Context(), "life", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := k.install(); !slices.Equal(got, []string{"1 superseded", "2 superseded", "3 deployed"}) {
		t.Errorf("without its Deployment: %q", got)
	}
	if _, err := k.typed.AppsV1().Deployments("kube-system").Get(t.Context(), "life", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

// An installation that was killed is gone on with: what it has made becomes part of the release, or goes.
func (k real) killedInstall(t *testing.T) {
	k = k.add(t, "killed", map[string]any{"extra": true})
	k.install()
	setStatus(t, k.releases.(*helm), k.r.place, 1, "pending-install")
	if err := k.typed.CoreV1().ConfigMaps("kube-system").Delete(t.Context(), "killed", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	deployment, err := k.typed.AppsV1().Deployments("kube-system").Get(t.Context(), "killed", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	k = k.add(t, "killed", map[string]any{"extra": false})
	if err := k.Install(t.Context(), cluster.AddonSpec{}, cluster.NFS); err == nil || !strings.Contains(err.Error(), "revision 1 of release kube-system/killed is pending-install since ") {
		t.Errorf("somebody may be at work: %v", err)
	}
	kill(t, k.installed, cluster.NFS)
	if got := k.install(); !slices.Equal(got, []string{"1 deployed"}) || !k.has("killed") || k.has("killed-extra") {
		t.Errorf("after a killed apply: %q", got)
	}
	again, err := k.typed.AppsV1().Deployments("kube-system").Get(t.Context(), "killed", metav1.GetOptions{})
	if err != nil || again.UID != deployment.UID {
		t.Errorf("the Deployment was made anew: %v", err)
	}
}

// So is an upgrade.
func (k real) killedUpgrade(t *testing.T) {
	k = k.add(t, "upgrade", map[string]any{})
	k.install()
	k = k.add(t, "upgrade", map[string]any{"extra": true})
	k.install()
	h := k.releases.(*helm)
	setStatus(t, h, k.r.place, 1, deployed)
	setStatus(t, h, k.r.place, 2, "pending-upgrade")
	k.now = func() time.Time { return time.Now().Add(respect) }
	k = k.add(t, "upgrade", map[string]any{"port": 81.0})
	if got := k.install(); !slices.Equal(got, []string{"1 superseded", "2 failed", "3 deployed"}) || k.has("upgrade-extra") {
		t.Errorf("after a killed apply: %q", got)
	}
}

// An installation whose context ends says what it waited for, ends soon, and leaves a state that the next apply mends.
func (k real) cancelled(t *testing.T) {
	k.withoutTakers(t)
	k = k.add(t, "cancelled", map[string]any{"hook": true})
	defer k.addNode(t)()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	began := time.Now()
	err := k.Install(ctx, cluster.AddonSpec{}, cluster.NFS)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "hook Job kube-system/cancelled-hook has not come to its end (pod kube-system/cancelled-hook-") {
		t.Errorf("got %v", err)
	}
	if took := time.Since(began); took > 3*time.Second+lastWords {
		t.Errorf("it took %s", took)
	}
	if got := told(t, k.releases.(*helm), k.r.place); !slices.Equal(got, []string{"1 failed"}) {
		t.Errorf("it has left %q", got)
	}
	k = k.add(t, "cancelled", map[string]any{})
	if got := k.install(); !slices.Equal(got, []string{"1 deployed"}) {
		t.Errorf("after the next apply: %q", got)
	}
}

// withoutTakers: where no node takes pods, hooks are not waited for.
func (k real) withoutTakers(t *testing.T) {
	k = k.add(t, "nobody", map[string]any{"hook": true})
	if got := k.install(); !slices.Equal(got, []string{"1 deployed"}) {
		t.Errorf("without a node: %q", got)
	}
}

// addNode makes a node that takes pods, and returns what removes it.
func (k real) addNode(t *testing.T) func() {
	t.Helper()
	nodes := k.typed.CoreV1().Nodes()
	_, err := nodes.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "taker"}}, metav1.CreateOptions{})
	if err == nil {
		ready := []byte(`{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`)
		_, err = nodes.Patch(t.Context(), "taker", types.MergePatchType, ready, metav1.PatchOptions{}, "status")
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := nodes.Delete(t.Context(), "taker", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	}
}

// What somebody else has made is not taken over.
func (k real) inTheWay(t *testing.T) {
	k = k.add(t, "way", map[string]any{})
	_, err := k.typed.CoreV1().ConfigMaps("kube-system").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "way"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	err = k.Install(t.Context(), cluster.AddonSpec{}, cluster.NFS)
	var failure *cluster.Failure
	if !errors.As(err, &failure) || !strings.Contains(err.Error(), `ConfigMap "way" in namespace "kube-system" is in the way`) {
		t.Errorf("got %v", err)
	}
	if err := k.typed.CoreV1().ConfigMaps("kube-system").Delete(t.Context(), "way", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := k.install(); !slices.Equal(got, []string{"1 deployed"}) {
		t.Errorf("when it is gone: %q", got)
	}
}

// What the API refuses for good is not tried again and again, and the next apply mends it.
func (k real) invalid(t *testing.T) {
	k = k.add(t, "invalid", map[string]any{"port": 99999.0})
	err := k.Install(t.Context(), cluster.AddonSpec{}, cluster.NFS)
	var failure *cluster.Failure
	if !errors.As(err, &failure) || !strings.Contains(err.Error(), "containerPort") {
		t.Errorf("got %v", err)
	}
	k = k.add(t, "invalid", map[string]any{"port": 99.0})
	if got := k.install(); got[len(got)-1] != "1 deployed" {
		t.Errorf("after the next apply: %q", got)
	}
}

// A StorageClass is made anew for other parameters, as long as there are no volumes.
func (k real) otherClass(t *testing.T) {
	k = k.add(t, "class", map[string]any{"server": "a"})
	k.install()
	k = k.add(t, "class", map[string]any{"server": "b"})
	k.install()
	class, err := k.typed.StorageV1().StorageClasses().Get(t.Context(), "class", metav1.GetOptions{})
	if err != nil || class.Parameters["server"] != "b" {
		t.Errorf("got %v, %v", class, err)
	}
	volume := volumeOf(places[cluster.NFS].driver)
	volume.Spec.CSI.VolumeHandle = "x"
	volume.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	volume.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	if _, err := k.typed.CoreV1().PersistentVolumes().Create(t.Context(), volume, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	defer k.typed.CoreV1().PersistentVolumes().Delete(context.WithoutCancel(t.Context()), volume.Name, metav1.DeleteOptions{})
	k = k.add(t, "class", map[string]any{"server": "c"})
	if err := k.Install(t.Context(), cluster.AddonSpec{}, cluster.NFS); err == nil || !strings.Contains(err.Error(), "pvc-1 (claim default/data)") {
		t.Errorf("with a volume: %v", err)
	}
}

// A release that was being uninstalled is uninstalled to the end before it is made anew.
func (k real) uninstalled(t *testing.T) {
	k = k.add(t, "gone", map[string]any{"extra": true})
	k.install()
	setStatus(t, k.releases.(*helm), k.r.place, 1, uninstalling)
	before, err := k.typed.AppsV1().Deployments("kube-system").Get(t.Context(), "gone", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	k = k.add(t, "gone", map[string]any{})
	if got := k.install(); !slices.Equal(got, []string{"1 deployed"}) {
		t.Errorf("after the next apply: %q", got)
	}
	after, err := k.typed.AppsV1().Deployments("kube-system").Get(t.Context(), "gone", metav1.GetOptions{})
	if err != nil || after.UID == before.UID || k.has("gone-extra") {
		t.Errorf("it was not uninstalled first: %v", err)
	}
}

// A chart whose kinds another chart brings finds them served, at once.
func (k real) kinds(t *testing.T) {
	repository := &chartRepository{}
	repository.add("kinds", "1.0.0", packed(t, "kinds", "1.0.0", map[string]string{"templates/crd.yaml": `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.test}
spec:
  group: example.test
  names: {kind: Thing, plural: things}
  scope: Cluster
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`}))
	repository.add("real", "1.0.0", packed(t, "real", "1.0.0", map[string]string{"templates/thing.yaml": "apiVersion: example.test/v1\nkind: Thing\nmetadata: {name: one}\n"}))
	k = k.add(t, "kinds", map[string]any{})
	k.charts = newTestCharts(Options{Repository: serve(t, repository)})
	k.r.class, k.r.workloads, k.r.crds = nil, nil, &source{chart: "kinds", version: "1.0.0"}
	of := *k.installed
	of.releaseOf = func(cluster.AddonSpec, cluster.Addon) (release, error) { return k.r, nil }
	k.installed = &of
	if got := k.install(); !slices.Equal(got, []string{"1 deployed"}) {
		t.Errorf("got %q", got)
	}
	if err := k.releases.uninstall(t.Context(), k.r.place); err != nil {
		t.Fatal(err)
	}
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	crd, err := k.dynamic.Resource(crds).Get(t.Context(), "things.example.test", metav1.GetOptions{})
	if err != nil || crd.GetManagedFields()[0].Manager != fieldManager {
		t.Errorf("the kind has gone with the release: %v", err)
	}
}

// The catalogue's own chart goes through its life: installed, seen, unwanted, removed.
func (k real) localPath(t *testing.T) {
	spec := cluster.AddonSpec{Servers: 1, Nodes: 1, CSI: record.CSI{LocalPath: &record.LocalPath{Path: "/opt/local-path-provisioner"}}}
	state := func(s cluster.AddonSpec) cluster.AddonState {
		t.Helper()
		found, err := k.Look(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		return found[cluster.LocalPath].State
	}
	if got := state(spec); got != cluster.AddonMissing {
		t.Errorf("at first it is %q", got)
	}
	if err := k.Install(t.Context(), spec, cluster.LocalPath); err != nil {
		t.Fatal(err)
	}
	if got := state(spec); got != cluster.AddonDeployed {
		t.Errorf("installed, it is %q", got)
	}
	var bad *cluster.Unavailable
	if err := k.Health(t.Context(), spec, cluster.LocalPath); !errors.As(err, &bad) || len(bad.Workloads) != 1 {
		t.Errorf("without a node: %v", err)
	}
	other := spec
	other.CSI.LocalPath = &record.LocalPath{Path: "/data"}
	if got := state(other); got != cluster.AddonDrifted {
		t.Errorf("with another path it is %q", got)
	}
	if got := state(cluster.AddonSpec{}); got != cluster.AddonUnwanted {
		t.Errorf("not wanted, it is %q", got)
	}
	for range 2 {
		if err := k.Remove(t.Context(), cluster.LocalPath); err != nil {
			t.Fatal(err)
		}
	}
	if got := state(cluster.AddonSpec{}); got != "" {
		t.Errorf("removed, it is %q", got)
	}
}
