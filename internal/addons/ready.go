package addons

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

var (
	tigeraStatuses = schema.GroupVersionResource{Group: "operator.tigera.io", Version: "v1", Resource: "tigerastatuses"}
	longhornNodes  = schema.GroupVersionResource{Group: "longhorn.io", Version: "v1beta2", Resource: "nodes"}
)

// lacksOfTigera tells what the operator of Calico says that is missing from one of its parts. It says so in an object
// TigeraStatus, which it makes a while after it has started.
func lacksOfTigera(ctx context.Context, api dynamic.Interface, part string) ([]string, error) {
	status, err := api.Resource(tigeraStatuses).Get(ctx, part, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return []string{fmt.Sprintf("TigeraStatus %s: the operator has not made it yet", part)}, nil
	case err != nil:
		return nil, fmt.Errorf("read TigeraStatus %s: %w", part, err)
	}
	conditions := conditionsOf(status)
	var lacks []string
	for _, want := range []struct{ kind, status string }{{"Available", "True"}, {"Degraded", "False"}} {
		have := conditions[want.kind]
		if have.status == want.status || have.status == "" && want.status == "False" {
			continue
		}
		lacks = append(lacks, fmt.Sprintf("TigeraStatus %s: %s", part, have.tell(want.kind)))
	}
	return lacks, nil
}

// absent are reasons why a node of Longhorn is not Ready that are about the node itself, and not about Longhorn.
var absent = []string{"KubernetesNodeGone", "KubernetesNodeNotReady"}

// lacksOfLonghorn tells which nodes Longhorn cannot put volumes on, among those that run. Each node that its manager runs on has an object Node.
func lacksOfLonghorn(ctx context.Context, api dynamic.Interface, namespace string) ([]string, error) {
	nodes, err := api.Resource(longhornNodes).Namespace(namespace).List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && len(nodes.Items) == 0:
		return []string{"Longhorn knows no node yet"}, nil
	case err != nil:
		return nil, fmt.Errorf("list the nodes of Longhorn: %w", err)
	}
	var lacks []string
	for _, node := range nodes.Items {
		conditions := conditionsOf(&node)
		if slices.Contains(absent, conditions["Ready"].reason) {
			continue
		}
		for _, kind := range []string{"Ready", "Schedulable"} {
			have := conditions[kind]
			if have.status == "True" || have.reason == "KubernetesNodeCordoned" {
				continue // A cordoned node takes no new volumes, and should not.
			}
			lacks = append(lacks, fmt.Sprintf("Longhorn's node %s: %s", node.GetName(), have.tell(kind)))
		}
	}
	slices.Sort(lacks)
	return lacks, nil
}

// condition is a condition of an object: its status, the reason, and the reason with the message.
type condition struct{ status, reason, text string }

// tell puts a condition of that type into words.
func (c condition) tell(kind string) string {
	return strings.TrimSuffix(fmt.Sprintf("%s is %s: %s", kind, cmp.Or(c.status, "Unknown"), c.text), ": ")
}

// conditionsOf are the conditions of an object by their types.
func conditionsOf(o *unstructured.Unstructured) map[string]condition {
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions") // Of another form they are none.
	out := make(map[string]condition, len(list))
	for _, item := range list {
		fields, _ := item.(map[string]any)
		text := func(key string) string {
			s, _ := fields[key].(string)
			return strings.TrimSpace(s)
		}
		c := condition{status: text("status"), reason: text("reason"), text: text("reason")}
		if message := text("message"); message != "" {
			c.text = strings.TrimPrefix(c.text+": "+message, ": ")
		}
		out[text("type")] = c
	}
	return out
}
