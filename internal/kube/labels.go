package kube

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// The annotations that tell which labels and taints of a Node are ours, as lists with commas: labels by key, taints by key
// and effect.
const (
	labelsMark = mark + "labels"
	taintsMark = mark + "taints"
)

// Label gives a Node object labels and taints, and takes those off that an earlier call gave it and this one does not name.
// All others stay, as does a taint with the key of one of ours and another effect. A value that somebody has changed is set
// right. All is done in one patch, and in none where nothing differs. A Node that is gone is an error.
//
// What stands there already under a key that is named, given by the kubelet at registration or by somebody else, is ours
// from then on: when it is not named any more it goes, and no earlier value comes back.
func (c *Client) Label(ctx context.Context, name string, labels map[string]string, taints []record.Taint) error {
	err := c.amend(ctx, name, func(n *corev1.Node) {
		relabel(n, labels)
		retaint(n, taints)
	})
	if err != nil {
		return fmt.Errorf("give node %q its labels and taints: %w", name, err)
	}
	return nil
}

func relabel(n *corev1.Node, wanted map[string]string) {
	for _, key := range marked(n, labelsMark) {
		delete(n.Labels, key)
	}
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	maps.Copy(n.Labels, wanted)
	annotate(n, labelsMark, strings.Join(slices.Sorted(maps.Keys(wanted)), ","))
}

// retaint changes taints where they stand: one for NoExecute keeps the time that it was added, by which pods are evicted.
func retaint(n *corev1.Node, wanted []record.Taint) {
	values := map[string]string{}
	for _, t := range wanted {
		values[taintID(t)] = t.Value
	}
	ours := marked(n, taintsMark)
	left := map[string]bool{}
	var taints []corev1.Taint
	for _, t := range n.Spec.Taints {
		id := taintID(taintOf(t))
		value, ok := values[id]
		switch {
		case ok:
			t.Value = value
		case slices.Contains(ours, id):
			continue
		}
		left[id] = true
		taints = append(taints, t)
	}
	for _, t := range wanted {
		if id := taintID(t); !left[id] {
			left[id] = true
			taints = append(taints, corev1.Taint{Key: t.Key, Value: values[id], Effect: corev1.TaintEffect(t.Effect)})
		}
	}
	n.Spec.Taints = taints
	annotate(n, taintsMark, strings.Join(slices.Sorted(maps.Keys(values)), ","))
}

// marked is the list that an annotation of a Node holds.
func marked(n *corev1.Node, annotation string) []string {
	if n.Annotations[annotation] == "" {
		return nil
	}
	return strings.Split(n.Annotations[annotation], ",")
}

// taintID is what Kubernetes tells the taints of a node apart by.
func taintID(t record.Taint) string { return t.Key + ":" + t.Effect }

func taintOf(t corev1.Taint) record.Taint {
	return record.Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)}
}
