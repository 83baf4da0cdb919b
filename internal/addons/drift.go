package addons

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"helm.sh/helm/v3/pkg/releaseutil"
)

// drift is how a deployed release differs from the wanted one.
type drift struct {
	// reasons are those for a new revision.
	reasons []string
	// mark says that the StorageClass is a default class and is not to be one, or the other way round; "" where that is right.
	mark string
	// raisable: values are to grow.
	raisable bool
}

// shownKeys is how many of the values that differ are named.
const shownKeys = 4

// differing names the values in which two releases differ, as paths such as "persistence.reclaimPolicy", sorted. It tells no value:
// one may be a secret.
func differing(have, want map[string]any) []string {
	var out []string
	keys := map[string]bool{}
	for k := range have {
		keys[k] = true
	}
	for k := range want {
		keys[k] = true
	}
	for k := range keys {
		h, inHave := have[k]
		w, inWant := want[k]
		hm, isMap := h.(map[string]any)
		wm, areMaps := w.(map[string]any)
		switch {
		case isMap && areMaps:
			for _, sub := range differing(hm, wm) {
				out = append(out, k+"."+sub)
			}
		case inHave != inWant || !reflect.DeepEqual(h, w):
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}

// lookup finds a whole number in values.
func lookup(values map[string]any, path string) (int, bool) {
	v, _ := get(values, strings.Split(path, ".")...)
	n, ok := v.(float64)
	return int(n), ok && n == float64(int(n))
}

// settled returns the release as it is to be installed over the values that there are: what has grown stays grown. It names the
// values that differ from the wanted ones, and reports whether any are to grow.
func (r release) settled(have map[string]any) (wanted release, differ []string, raisable bool) {
	wanted = r
	wanted.values = copyValues(r.values)
	for _, g := range r.growing {
		h, isThere := lookup(have, g.key)
		w, isWanted := lookup(wanted.values, g.key)
		if isThere && isWanted && h > w && h <= g.most {
			put(wanted.values, float64(h), strings.Split(g.key, ".")...)
		}
	}
	for _, key := range differing(have, wanted.values) {
		h, isThere := lookup(have, key)
		w, isWanted := lookup(wanted.values, key)
		grows := slices.ContainsFunc(r.growing, func(g growing) bool { return g.key == key })
		if grows && isThere && isWanted && 0 < h && h < w {
			raisable = true
			continue
		}
		differ = append(differ, key)
	}
	return wanted, differ, raisable
}

// chartDrift tells how the chart of a revision differs from the wanted one. b is nil where the wanted one is known by its name and
// version only.
func chartDrift(have revision, want source, b *bundle) []string {
	name, version := want.chart, want.version
	if b != nil {
		name, version = b.name, b.version
	}
	switch {
	case name != "" && have.chart != name, version != "" && !sameVersion(have.version, version):
		return []string{fmt.Sprintf("the chart is %s %s, and %s %s is wanted", have.chart, have.version, name, version)}
	case b != nil && have.digest != b.digest:
		return []string{fmt.Sprintf("the chart %s %s has other content than the wanted one", have.chart, have.version)}
	}
	return nil
}

// valuesDrift tells which values differ.
func valuesDrift(keys []string) []string {
	if len(keys) == 0 {
		return nil
	}
	text := "values differ: " + strings.Join(keys[:min(len(keys), shownKeys)], ", ")
	if more := len(keys) - shownKeys; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return []string{text}
}

// defaultClass is the annotation of a default StorageClass.
const defaultClass = "storageclass.kubernetes.io/is-default-class"

func isDefault(c *storagev1.StorageClass) bool { return c.Annotations[defaultClass] == "true" }

// immutable names what is otherwise in a StorageClass and cannot be changed.
func (c *class) immutable(live *storagev1.StorageClass) []string {
	if c.provisioner == "" {
		return nil
	}
	var out []string
	if live.Provisioner != c.provisioner {
		out = append(out, "provisioner")
	}
	have, want := map[string]any{}, map[string]any{}
	for k, v := range live.Parameters {
		have[k] = v
	}
	for k, v := range c.parameters {
		want[k] = v
	}
	out = append(out, differing(have, want)...)
	if !slices.Equal(live.MountOptions, c.mountOptions) {
		out = append(out, "mountOptions")
	}
	if c.reclaimPolicy != "" && live.ReclaimPolicy != nil && string(*live.ReclaimPolicy) != c.reclaimPolicy {
		out = append(out, "reclaimPolicy")
	}
	if c.bindingMode != "" && live.VolumeBindingMode != nil && string(*live.VolumeBindingMode) != c.bindingMode {
		out = append(out, "volumeBindingMode")
	}
	return out
}

// classDrift tells how a StorageClass differs from the wanted one; live is nil where there is none. mark tells of its being a default
// class or not, which can be changed in it. A class that the add-on makes by itself is a matter of its health as long as it is not there.
func classDrift(c *class, live *storagev1.StorageClass) (settings, mark string) {
	switch {
	case c == nil || live == nil && c.provisioner == "":
		return "", ""
	case live == nil:
		return fmt.Sprintf("StorageClass %q is gone", c.name), ""
	}
	if keys := c.immutable(live); len(keys) > 0 {
		settings = fmt.Sprintf("StorageClass %q has other settings: %s", c.name, strings.Join(keys, ", "))
	}
	switch {
	case isDefault(live) && !c.isDefault:
		mark = fmt.Sprintf("StorageClass %q is a default class, and is not to be one", c.name)
	case !isDefault(live) && c.isDefault:
		mark = fmt.Sprintf("StorageClass %q is not the default class", c.name)
	}
	return settings, mark
}

// chartWorkloads picks those of the workloads that are in the manifest of a revision. Others are made by an operator, which looks
// after them.
func chartWorkloads(workloads []workload, rev revision, p place) []workload {
	made := map[workload]bool{}
	for _, text := range releaseutil.SplitManifests(rev.manifest) {
		var head struct {
			Kind     kind `json:"kind"`
			Metadata struct {
				Name      string `json:"name"`
				Namespace string `json:"namespace"`
			} `json:"metadata"`
		}
		if yaml.Unmarshal([]byte(text), &head) != nil {
			continue
		}
		namespace := head.Metadata.Namespace
		if namespace == "" {
			namespace = p.namespace
		}
		made[workload{head.Kind, namespace, head.Metadata.Name}] = true
	}
	return slices.DeleteFunc(slices.Clone(workloads), func(w workload) bool { return !made[w] })
}

// String names the workload.
func (w workload) String() string { return fmt.Sprintf("%s %s/%s", w.kind, w.namespace, w.name) }

// anyTaker reports whether there is a node that takes pods of any kind now.
func anyTaker(ctx context.Context, api kubernetes.Interface) (bool, error) {
	nodes, err := api.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, fmt.Errorf("list nodes: %w", err)
	}
	return slices.ContainsFunc(nodes.Items, func(n corev1.Node) bool {
		ready := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
		return ready && !n.Spec.Unschedulable && takesPods(&n)
	}), nil
}

// takesPods reports whether a node takes pods of any kind. What a node has for a while only, or the network takes away, keeps
// nothing off it for good.
func takesPods(n *corev1.Node) bool {
	return !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		passes := strings.HasPrefix(t.Key, "node.kubernetes.io/") || strings.HasPrefix(t.Key, "node.cloudprovider.kubernetes.io/") ||
			strings.HasPrefix(t.Key, "node.cilium.io/")
		return t.Effect != corev1.TaintEffectPreferNoSchedule && !passes
	})
}
