// Package operators plays the programs of add-ons whose work shows in the API, for clusters of the k3s double, where no
// container runs: Calico's operator, Longhorn's manager and driver deployer, and the provisioners of volumes. Each works while
// its workload in the cluster is available, and makes what the real one makes, as far as others look at it.
package operators

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/kubeapi"
)

const (
	// lookEvery is how often the operators look at the cluster.
	lookEvery = 3 * time.Second
	// applyAgain is when an object that is as it was applied is applied once more: somebody may have changed or removed it.
	applyAgain = 30 * time.Second
	// manager is the field manager of what the operators apply.
	manager = "lab-operators"
)

// object is an object of the API.
type object = map[string]any

// Operators plays the programs in one cluster. It is used by one goroutine.
type Operators struct {
	api     *kubeapi.Client
	applied map[string]applied // by path
}

type applied struct {
	sum [sha256.Size]byte
	at  time.Time
}

// New returns the operators of the cluster that api reaches as an administrator.
func New(api *kubeapi.Client) *Operators {
	return &Operators{api: api, applied: map[string]applied{}}
}

// Run works until ctx ends. It calls report with what fails, which is tried again in the next round.
func (o *Operators) Run(ctx context.Context, report func(error)) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		if err := o.step(ctx); err != nil && ctx.Err() == nil {
			report(err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// workload is a Deployment or DaemonSet.
type workload struct {
	Metadata kubeapi.Meta `json:"metadata"`
	Spec     struct {
		Template struct {
			Spec podSpec `json:"spec"`
		} `json:"template"`
	} `json:"spec"`
	Status struct {
		ObservedGeneration int64 `json:"observedGeneration"`
		// Those of a Deployment.
		Replicas          int `json:"replicas"`
		AvailableReplicas int `json:"availableReplicas"`
		// Those of a DaemonSet.
		DesiredNumberScheduled int `json:"desiredNumberScheduled"`
		NumberAvailable        int `json:"numberAvailable"`
	} `json:"status"`
}

type podSpec struct {
	Containers []struct {
		Env []struct {
			Name  string `json:"name"`
			Value string `json:"value"`
		} `json:"env"`
	} `json:"containers"`
}

// runs reports whether a pod of the workload is available.
func (w *workload) runs() bool {
	return w != nil && w.Status.AvailableReplicas+w.Status.NumberAvailable > 0
}

// awaited is how many pods of the workload are not available yet.
func (w *workload) awaited() int {
	if w == nil || w.Status.ObservedGeneration < w.Metadata.Generation {
		return 1
	}
	return max(w.Status.Replicas, w.Status.DesiredNumberScheduled) - w.Status.AvailableReplicas - w.Status.NumberAvailable
}

// env is a variable of the first container, "" without it.
func (w *workload) env(name string) string {
	for _, c := range w.Spec.Template.Spec.Containers {
		for _, e := range c.Env {
			if e.Name == name {
				return e.Value
			}
		}
	}
	return ""
}

// workloads are those of the cluster.
type workloads map[string]*workload // by kind, slash, namespace, slash, name

// named finds a workload by its kind and name, in any namespace.
func (all workloads) named(kind, name string) *workload {
	for key, w := range all {
		if w.Metadata.Name == name && key == kind+"/"+w.Metadata.Namespace+"/"+name {
			return w
		}
	}
	return nil
}

func (o *Operators) workloads(ctx context.Context) (workloads, error) {
	all := workloads{}
	for kind, plural := range map[string]string{"Deployment": "deployments", "DaemonSet": "daemonsets"} {
		var list kubeapi.List[workload]
		// What the API server has in its cache is new enough, and cheap.
		if err := o.api.Get(ctx, "/apis/apps/v1/"+plural+"?resourceVersion=0", &list); err != nil {
			return nil, err
		}
		for i, w := range list.Items {
			all[kind+"/"+w.Metadata.Namespace+"/"+w.Metadata.Name] = &list.Items[i]
		}
	}
	return all, nil
}

// step is one round of all programs that run.
func (o *Operators) step(ctx context.Context) error {
	all, err := o.workloads(ctx)
	if err != nil {
		return err
	}
	return errors.Join(o.tigera(ctx, all), o.longhorn(ctx, all), o.provision(ctx, all))
}

// apply makes an object at a path as it should be. Nothing is asked while it was applied like that lately.
func (o *Operators) apply(ctx context.Context, path string, body object) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(b)
	if last, ok := o.applied[path]; ok && last.sum == sum && time.Since(last.at) < applyAgain {
		return nil
	}
	if err := o.api.Patch(ctx, path+"?force=true&fieldManager="+manager, kubeapi.ApplyPatch, b, nil); err != nil {
		return fmt.Errorf("applying %s: %w", path, err)
	}
	o.applied[path] = applied{sum, time.Now()}
	return nil
}

// remove deletes the object at a path, if it is there.
func (o *Operators) remove(ctx context.Context, path string) error {
	delete(o.applied, path)
	err := o.api.Delete(ctx, path, object{"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"})
	if kubeapi.IsNotFound(err) {
		return nil
	}
	return err
}

// metadata is that of an object; namespace and owner may be empty.
func metadata(namespace, name string, labels map[string]string, owner *kubeapi.OwnerReference) object {
	m := object{"name": name}
	if namespace != "" {
		m["namespace"] = namespace
	}
	if len(labels) > 0 {
		m["labels"] = labels
	}
	if owner != nil {
		m["ownerReferences"] = []kubeapi.OwnerReference{*owner}
	}
	return m
}

// appsWorkload is a Deployment or DaemonSet whose pods carry the labels; replicas is for a Deployment.
func appsWorkload(kind string, meta object, replicas int, labels map[string]string, pod object) (path string, body object) {
	spec := object{
		"selector": object{"matchLabels": labels},
		"template": object{"metadata": object{"labels": labels}, "spec": pod},
	}
	plural := "daemonsets"
	if kind == "Deployment" {
		plural, spec["replicas"] = "deployments", replicas
	}
	path = fmt.Sprintf("/apis/apps/v1/namespaces/%s/%s/%s", meta["namespace"], plural, meta["name"])
	return path, object{"apiVersion": "apps/v1", "kind": kind, "metadata": meta, "spec": spec}
}

// serviceAccount is one with nothing to say.
func serviceAccount(meta object) (path string, body object) {
	return fmt.Sprintf("/api/v1/namespaces/%s/serviceaccounts/%s", meta["namespace"], meta["name"]),
		object{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}
}

// condition is a condition of a custom resource.
func condition(kind, status, reason, message string) object {
	return object{"type": kind, "status": status, "reason": reason, "message": message}
}
