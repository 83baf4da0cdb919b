package operators

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/kubeapi"
)

const (
	longhornDriver = "driver.longhorn.io"
	longhornClass  = "longhorn"
	// lastApplied keeps, on the StorageClass, the text that it was made from.
	lastApplied = "longhorn.io/last-applied-configmap"
	// settingsVersion keeps, on a setting, which version of the chart's settings it was last set from.
	settingsVersion = "longhorn.io/configmap-resource-version"
	// verdict is how the lab tells the double how the pod of a Job ends; see package main of k3sdouble.
	verdict = "double.k3s.io/exit-code"
)

// defaultSettings are those of Longhorn's settings that others look at, with the values that they have by themselves
// (https://longhorn.io/docs/latest/references/settings/).
var defaultSettings = map[string]string{
	"default-data-path":          "/var/lib/longhorn/",
	"default-replica-count":      "3",
	"deleting-confirmation-flag": "false",
	"node-drain-policy":          "block-if-contains-last-replica",
	"priority-class":             "longhorn-critical",
}

// longhorn is Longhorn's manager, its driver deployer, and its uninstaller, before which the others give way.
func (o *Operators) longhorn(ctx context.Context, all workloads) error {
	manager, deployer := all.named("DaemonSet", "longhorn-manager"), all.named("Deployment", "longhorn-driver-deployer")
	if manager == nil {
		return nil
	}
	l := longhorn{Operators: o, namespace: manager.Metadata.Namespace}
	if leaving, err := l.uninstall(ctx); leaving || err != nil {
		return err
	}
	if !manager.runs() {
		return nil
	}
	if err := errors.Join(l.settings(ctx), l.class(ctx), l.nodes(ctx)); err != nil {
		return err
	}
	if !deployer.runs() {
		return nil
	}
	return l.driver(ctx, deployer)
}

// longhorn is Longhorn in its namespace.
type longhorn struct {
	*Operators
	namespace string
}

func (l longhorn) resource(plural, name string) string {
	return fmt.Sprintf("/apis/longhorn.io/v1beta2/namespaces/%s/%s/%s", l.namespace, plural, name)
}

type configMap struct {
	Metadata kubeapi.Meta      `json:"metadata"`
	Data     map[string]string `json:"data"`
}

func (l longhorn) configMap(ctx context.Context, name string) (configMap, error) {
	var c configMap
	err := l.api.Get(ctx, "/api/v1/namespaces/"+l.namespace+"/configmaps/"+name, &c)
	return c, err
}

// settings makes the settings. A change of the chart's settings changes them; one by hand stays until then.
func (l longhorn) settings(ctx context.Context) error {
	config, err := l.configMap(ctx, "longhorn-default-setting")
	if err != nil {
		return err
	}
	values := maps.Clone(defaultSettings)
	if err := yaml.Unmarshal([]byte(config.Data["default-setting.yaml"]), &values); err != nil {
		return fmt.Errorf("reading the settings of Longhorn: %w", err)
	}
	var list kubeapi.List[setting]
	if err := l.api.Get(ctx, l.resource("settings", "")+"?resourceVersion=0", &list); err != nil {
		return err
	}
	for name, value := range values {
		annotations := object{settingsVersion: config.Metadata.ResourceVersion}
		i := slices.IndexFunc(list.Items, func(s setting) bool { return s.Metadata.Name == name })
		switch {
		case i < 0:
			err = l.api.Create(ctx, l.resource("settings", ""), object{
				"apiVersion": "longhorn.io/v1beta2", "kind": "Setting", "value": value, "metadata": object{"name": name, "annotations": annotations},
			}, nil)
		case list.Items[i].Metadata.Annotations[settingsVersion] != config.Metadata.ResourceVersion:
			err = l.api.Patch(ctx, l.resource("settings", name), kubeapi.MergePatch, object{"value": value, "metadata": object{"annotations": annotations}}, nil)
		default:
			continue
		}
		if err != nil && !kubeapi.IsConflict(err) {
			return err
		}
	}
	return nil
}

type setting struct {
	Metadata kubeapi.Meta `json:"metadata"`
	Value    string       `json:"value"`
}

// class makes the StorageClass from the chart's ConfigMap, and anew when that changes.
func (l longhorn) class(ctx context.Context) error {
	config, err := l.configMap(ctx, "longhorn-storageclass")
	if err != nil {
		if kubeapi.IsNotFound(err) {
			return nil // the chart was told to make none
		}
		return err
	}
	text := config.Data["storageclass.yaml"]
	const path = "/apis/storage.k8s.io/v1/storageclasses/"
	var have storageClass
	err = l.api.Get(ctx, path+longhornClass, &have)
	switch {
	case err == nil && have.Metadata.Annotations[lastApplied] == text:
		return nil
	case err == nil:
		if err := l.remove(ctx, path+longhornClass); err != nil {
			return err
		}
	case !kubeapi.IsNotFound(err):
		return err
	}
	var want object
	if err := yaml.Unmarshal([]byte(text), &want); err != nil {
		return fmt.Errorf("reading Longhorn's StorageClass: %w", err)
	}
	meta, _ := want["metadata"].(object)
	annotations, _ := meta["annotations"].(object)
	if annotations == nil {
		return errors.New("reading Longhorn's StorageClass: it has no annotations")
	}
	annotations[lastApplied] = text
	return l.api.Create(ctx, path[:len(path)-1], want, nil)
}

// nodes makes an object for each node that the manager runs on.
func (l longhorn) nodes(ctx context.Context) error {
	var pods kubeapi.List[kubeapi.Pod]
	if err := l.api.Get(ctx, "/api/v1/namespaces/"+l.namespace+"/pods?resourceVersion=0&labelSelector=app%3Dlonghorn-manager", &pods); err != nil {
		return err
	}
	var nodes kubeapi.List[kubeapi.Node]
	if err := l.api.Get(ctx, "/api/v1/nodes?resourceVersion=0", &nodes); err != nil {
		return err
	}
	var known kubeapi.List[setting]
	if err := l.api.Get(ctx, l.resource("nodes", "")+"?resourceVersion=0", &known); err != nil {
		return err
	}
	var path setting
	if err := l.api.Get(ctx, l.resource("settings", "default-data-path"), &path); err != nil && !kubeapi.IsNotFound(err) {
		return err
	}
	for _, n := range nodes.Items {
		name := n.Metadata.Name
		runs := slices.ContainsFunc(pods.Items, func(p kubeapi.Pod) bool {
			return p.Spec.NodeName == name && slices.ContainsFunc(p.Status.Conditions, func(c kubeapi.Condition) bool { return c.Type == "Ready" && c.Status == "True" })
		})
		if !runs && !slices.ContainsFunc(known.Items, func(s setting) bool { return s.Metadata.Name == name }) {
			continue
		}
		if err := l.node(ctx, n, runs, cmp.Or(path.Value, defaultSettings["default-data-path"])); err != nil {
			return err
		}
	}
	for _, s := range known.Items {
		if !slices.ContainsFunc(nodes.Items, func(n kubeapi.Node) bool { return n.Metadata.Name == s.Metadata.Name }) {
			if err := l.remove(ctx, l.resource("nodes", s.Metadata.Name)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l longhorn) node(ctx context.Context, n kubeapi.Node, runs bool, path string) error {
	name := n.Metadata.Name
	ready, schedulable := condition("Ready", "True", "", fmt.Sprintf("Node %s is ready", name)), condition("Schedulable", "True", "", "")
	if !runs {
		ready = condition("Ready", "False", "ManagerPodDown", fmt.Sprintf("Manager pod missing on node %s", name))
	}
	if n.Spec.Unschedulable {
		schedulable = condition("Schedulable", "False", "KubernetesNodeCordoned", fmt.Sprintf("Node %s is cordoned", name))
	}
	body := object{
		"apiVersion": "longhorn.io/v1beta2", "kind": "Node", "metadata": metadata(l.namespace, name, nil, nil),
		"spec": object{"name": name, "allowScheduling": true, "disks": object{
			"default-disk": object{"path": path, "diskType": "filesystem", "allowScheduling": true},
		}},
	}
	if err := l.apply(ctx, l.resource("nodes", name), body); err != nil {
		return err
	}
	delete(body, "spec")
	body["status"] = object{"conditions": []object{ready, schedulable}}
	return l.apply(ctx, l.resource("nodes", name)+"/status", body)
}

// uninstall is the uninstaller, which runs as a Job before Helm removes the chart. It reports whether there is one.
func (l longhorn) uninstall(ctx context.Context) (bool, error) {
	var pods kubeapi.List[kubeapi.Pod]
	if err := l.api.Get(ctx, "/api/v1/namespaces/"+l.namespace+"/pods?labelSelector=batch.kubernetes.io%2Fjob-name%3Dlonghorn-uninstall", &pods); err != nil {
		return false, err
	}
	for _, p := range pods.Items {
		if p.Status.Phase != "Running" || p.Metadata.Annotations[verdict] != "wait" {
			continue
		}
		var flag setting
		if err := l.api.Get(ctx, l.resource("settings", "deleting-confirmation-flag"), &flag); err != nil && !kubeapi.IsNotFound(err) {
			return true, err
		}
		code := "1"
		if flag.Value == "true" {
			if err := l.clear(ctx); err != nil {
				return true, err
			}
			code = "0"
		}
		path := "/api/v1/namespaces/" + l.namespace + "/pods/" + p.Metadata.Name
		if err := l.api.Patch(ctx, path, kubeapi.MergePatch, object{"metadata": object{"annotations": object{verdict: code}}}, nil); err != nil {
			return true, err
		}
	}
	return len(pods.Items) > 0, nil
}

// clear removes the manager and the deployer, so that they make nothing any more, and then what they have made.
func (l longhorn) clear(ctx context.Context) error {
	apps := "/apis/apps/v1/namespaces/" + l.namespace
	paths := []string{
		apps + "/daemonsets/longhorn-manager", apps + "/deployments/longhorn-driver-deployer", apps + "/daemonsets/longhorn-csi-plugin",
		"/apis/storage.k8s.io/v1/csidrivers/" + longhornDriver, "/apis/storage.k8s.io/v1/storageclasses/" + longhornClass,
	}
	for _, s := range sidecars {
		paths = append(paths, apps+"/deployments/csi-"+s)
	}
	for _, plural := range []string{"nodes", "settings"} {
		var list kubeapi.List[setting]
		if err := l.api.Get(ctx, l.resource(plural, ""), &list); err != nil && !kubeapi.IsNotFound(err) {
			return err
		}
		for _, s := range list.Items {
			paths = append(paths, l.resource(plural, s.Metadata.Name))
		}
	}
	var errs []error
	for _, path := range paths {
		errs = append(errs, l.remove(ctx, path))
	}
	return errors.Join(errs...)
}
