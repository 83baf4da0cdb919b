package addons

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// withConditions is an object of an operator with conditions, each type, status, reason and message.
func withConditions(resource schema.GroupVersionResource, kind, namespace, name string, conditions ...[4]string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": resource.GroupVersion().String(), "kind": kind}}
	o.SetNamespace(namespace)
	o.SetName(name)
	var list []any
	for _, c := range conditions {
		list = append(list, map[string]any{"type": c[0], "status": c[1], "reason": c[2], "message": c[3]})
	}
	if list != nil {
		o.Object["status"] = map[string]any{"conditions": list}
	}
	return o
}

// TestReady asks the operators what else is missing.
func TestReady(t *testing.T) {
	tigera := func(conditions ...[4]string) runtime.Object {
		return withConditions(tigeraStatuses, "TigeraStatus", "", "calico", conditions...)
	}
	node := func(name string, conditions ...[4]string) runtime.Object {
		return withConditions(longhornNodes, "Node", "longhorn-system", name, conditions...)
	}
	ready, schedulable := [4]string{"Ready", "True", "", ""}, [4]string{"Schedulable", "True", "", ""}
	tests := map[string]struct {
		addon   cluster.Addon
		objects []runtime.Object
		want    []string
	}{
		"calico: nothing yet":  {cluster.Calico, nil, []string{"TigeraStatus calico: the operator has not made it yet"}},
		"calico: no condition": {cluster.Calico, []runtime.Object{tigera()}, []string{"TigeraStatus calico: Available is Unknown"}},
		"calico: works": {cluster.Calico, []runtime.Object{tigera([4]string{"Available", "True", "AllObjectsAvailable", "All objects available"},
			[4]string{"Degraded", "False", "", ""}, [4]string{"Progressing", "True", "", ""})}, nil},
		"calico: degraded": {cluster.Calico, []runtime.Object{tigera([4]string{"Available", "False", "", ""},
			[4]string{"Degraded", "True", "ResourceUpdateError", "no IP pool"})},
			[]string{"TigeraStatus calico: Available is False", "TigeraStatus calico: Degraded is True: ResourceUpdateError: no IP pool"}},
		"longhorn: no node":   {cluster.Longhorn, nil, []string{"Longhorn knows no node yet"}},
		"longhorn: works":     {cluster.Longhorn, []runtime.Object{node("a", ready, schedulable), node("b", ready, schedulable)}, nil},
		"longhorn: a disk":    {cluster.Longhorn, []runtime.Object{node("b", ready, [4]string{"Schedulable", "False", "NoDisk", "no disk"}), node("a", ready, schedulable)}, []string{"Longhorn's node b: Schedulable is False: NoDisk: no disk"}},
		"longhorn: cordoned":  {cluster.Longhorn, []runtime.Object{node("a", ready, [4]string{"Schedulable", "False", "KubernetesNodeCordoned", "cordoned"})}, nil},
		"longhorn: node down": {cluster.Longhorn, []runtime.Object{node("a", [4]string{"Ready", "False", "KubernetesNodeNotReady", "x"}), node("b", ready, schedulable)}, nil},
		"longhorn: new":       {cluster.Longhorn, []runtime.Object{node("a")}, []string{"Longhorn's node a: Ready is Unknown", "Longhorn's node a: Schedulable is Unknown"}},
	}
	spec := cluster.AddonSpec{Servers: 1, Nodes: 1, CNI: record.CNI{Plugin: record.Calico}, CSI: record.CSI{Longhorn: &record.Longhorn{Replicas: 1, DataPath: "/d"}}}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			api := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
				tigeraStatuses: "TigeraStatusList", longhornNodes: "NodeList",
			}, test.objects...)
			r, err := releaseOf(spec, test.addon)
			if err != nil {
				t.Fatal(err)
			}
			lacks, err := r.ready(t.Context(), api)
			if err != nil || !slices.Equal(lacks, test.want) {
				t.Errorf("lacks %q, %v; want %q", lacks, err, test.want)
			}
		})
	}
}
