package addons

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	helmyaml "sigs.k8s.io/yaml"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// localPathObjects renders the chart with a user's values and reads its objects strictly.
func localPathObjects(t *testing.T, s cluster.AddonSpec) []runtime.Object {
	t.Helper()
	r, err := releaseOf(s, cluster.LocalPath)
	if err != nil {
		t.Fatal(err)
	}
	b, err := embedded(r.source)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := render(b, r.place, r.values)
	if err != nil {
		t.Fatal(err)
	}
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	var out []runtime.Object
	for _, text := range documents(manifest) {
		o, _, err := decoder.Decode([]byte(text), nil, nil)
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		out = append(out, o)
	}
	return out
}

// find is the only object of a type.
func find[T runtime.Object](t *testing.T, objects []runtime.Object) T {
	t.Helper()
	var found []T
	for _, o := range objects {
		if x, ok := o.(T); ok {
			found = append(found, x)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d objects of type %T", len(found), *new(T))
	}
	return found[0]
}

func localPathSpec(path, values string) cluster.AddonSpec {
	return cluster.AddonSpec{Servers: 1, Nodes: 1, CSI: record.CSI{LocalPath: &record.LocalPath{Path: path, Chart: record.Chart{Values: values}}}}
}

func TestLocalPathChart(t *testing.T) {
	objects := localPathObjects(t, localPathSpec("/srv/my volumes", ""))

	class := find[*storagev1.StorageClass](t, objects)
	if class.Name != record.LocalPathClass || class.Provisioner != places[cluster.LocalPath].driver || class.Annotations[defaultAnnotation] != "true" ||
		class.Annotations["defaultVolumeType"] != "local" || *class.VolumeBindingMode != storagev1.VolumeBindingWaitForFirstConsumer ||
		*class.ReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		t.Errorf("class %+v", class)
	}

	config := find[*corev1.ConfigMap](t, objects)
	var paths struct {
		NodePathMap []struct {
			Node  string
			Paths []string
		}
	}
	if err := json.Unmarshal([]byte(config.Data["config.json"]), &paths); err != nil {
		t.Fatal(err)
	}
	if len(paths.NodePathMap) != 1 || paths.NodePathMap[0].Node != "DEFAULT_PATH_FOR_NON_LISTED_NODES" ||
		!reflect.DeepEqual(paths.NodePathMap[0].Paths, []string{"/srv/my volumes"}) {
		t.Errorf("paths %+v", paths)
	}
	if !strings.Contains(config.Data["setup"], `mkdir -m 0777 -p "$VOL_DIR"`) || !strings.Contains(config.Data["teardown"], `rm -rf "$VOL_DIR"`) {
		t.Errorf("scripts %q and %q", config.Data["setup"], config.Data["teardown"])
	}
	var helper corev1.Pod
	if err := helmyaml.UnmarshalStrict([]byte(config.Data["helperPod.yaml"]), &helper); err != nil {
		t.Fatal(err)
	}
	// What the provisioner itself sets, and refuses in the template.
	if s := helper.Spec; len(s.Containers) != 1 || len(s.Volumes) > 0 || s.NodeName != "" || s.ServiceAccountName != "" || len(s.Containers[0].VolumeMounts) > 0 ||
		s.PriorityClassName != "system-node-critical" || !reflect.DeepEqual(s.Tolerations, []corev1.Toleration{{Operator: corev1.TolerationOpExists}}) {
		t.Errorf("helper pod %+v", s)
	}

	deployment := find[*appsv1.Deployment](t, objects)
	pod := deployment.Spec.Template
	if pod.Spec.PriorityClassName != "system-node-critical" || len(pod.Spec.Tolerations) != 3 || deployment.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
		t.Errorf("deployment %+v", deployment.Spec)
	}
	for key, value := range deployment.Spec.Selector.MatchLabels {
		if pod.Labels[key] != value {
			t.Errorf("the pods have not the label %s=%s", key, value)
		}
	}
	r, err := releaseOf(localPathSpec("/x", ""), cluster.LocalPath)
	if err != nil {
		t.Fatal(err)
	}
	if w := r.workloads[0]; w.name != deployment.Name || w.namespace != deployment.Namespace || pod.Labels["app"] != r.pods[0].labels["app"] {
		t.Errorf("health would wait for %v with the pods %v", r.workloads, r.pods)
	}
	// Images are pinned, and those that a registry stands in for.
	images := []string{pod.Spec.Containers[0].Image, helper.Spec.Containers[0].Image}
	for key, repository := range localPathImages {
		if !slices.ContainsFunc(images, func(image string) bool {
			return strings.HasPrefix(image, repository+":") && !strings.HasSuffix(image, ":latest")
		}) {
			t.Errorf("no pinned image of %s: %s among %v", key, repository, images)
		}
	}
}

// TestLocalPathRights allows what the provisioner does, and nothing in other namespaces but claims and volumes.
func TestLocalPathRights(t *testing.T) {
	objects := localPathObjects(t, localPathSpec("/opt/x", ""))
	everywhere := find[*rbacv1.ClusterRole](t, objects).Rules
	here := find[*rbacv1.Role](t, objects).Rules
	allows := func(rules []rbacv1.PolicyRule, verb, resource string) bool {
		return slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
			return (slices.Contains(r.Resources, resource) || slices.Contains(r.Resources, "*")) && (slices.Contains(r.Verbs, verb) || slices.Contains(r.Verbs, "*"))
		})
	}
	for _, right := range []string{
		"get nodes", "watch persistentvolumeclaims", "update persistentvolumeclaims", "create persistentvolumes", "patch persistentvolumes",
		"delete persistentvolumes", "create events", "watch storageclasses",
	} {
		if verb, resource, _ := strings.Cut(right, " "); !allows(everywhere, verb, resource) {
			t.Errorf("no right to %s", right)
		}
	}
	for _, right := range []string{"get configmaps", "create pods", "get pods", "delete pods", "get pods/log"} {
		verb, resource, _ := strings.Cut(right, " ")
		if !allows(here, verb, resource) {
			t.Errorf("no right to %s in its own namespace", right)
		}
		if allows(everywhere, verb, resource) {
			t.Errorf("a right to %s everywhere", right)
		}
	}
	for _, resource := range []string{"secrets", "serviceaccounts"} {
		for _, rules := range [][]rbacv1.PolicyRule{everywhere, here} {
			if allows(rules, "get", resource) {
				t.Errorf("a right to %s", resource)
			}
		}
	}
	for _, binding := range []rbacv1.Subject{find[*rbacv1.ClusterRoleBinding](t, objects).Subjects[0], find[*rbacv1.RoleBinding](t, objects).Subjects[0]} {
		account := find[*corev1.ServiceAccount](t, objects)
		if binding.Name != account.Name || binding.Namespace != account.Namespace {
			t.Errorf("the rights are those of %+v", binding)
		}
	}
}

// TestLocalPathUserValues takes what the chart's schema has, and refuses what is mistyped.
func TestLocalPathUserValues(t *testing.T) {
	s := localPathSpec("/opt/x", "storageClass: {reclaimPolicy: Retain}\nresources: {limits: {memory: 64Mi}}\ntolerations: null\nimagePullSecrets: [{name: a}]\n")
	s.CSI.DefaultClass = record.NFSClass
	objects := localPathObjects(t, s)
	pod := find[*appsv1.Deployment](t, objects).Spec.Template.Spec
	if class := find[*storagev1.StorageClass](t, objects); *class.ReclaimPolicy != corev1.PersistentVolumeReclaimRetain || class.Annotations[defaultAnnotation] != "false" {
		t.Errorf("class %+v", class)
	}
	if len(pod.Tolerations) > 0 || pod.Containers[0].Resources.Limits.Memory().String() != "64Mi" || pod.ImagePullSecrets[0].Name != "a" {
		t.Errorf("pod %+v", pod)
	}
	var helper corev1.Pod
	if err := helmyaml.UnmarshalStrict([]byte(find[*corev1.ConfigMap](t, objects).Data["helperPod.yaml"]), &helper); err != nil || len(helper.Spec.ImagePullSecrets) != 1 {
		t.Errorf("helper pod %+v, %v", helper, err)
	}

	r, err := releaseOf(localPathSpec("/opt/x", "storageclass: {reclaimPolicy: Retain}\n"), cluster.LocalPath)
	if err != nil {
		t.Fatal(err)
	}
	b, err := embedded(r.source)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := render(b, r.place, r.values); err == nil || !strings.Contains(err.Error(), "storageclass") {
		t.Errorf("a mistyped key: %v", err)
	}
}
