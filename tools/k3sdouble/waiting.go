package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/kubeapi"
)

// Reasons for which a container waits, as the kubelet names them.
const (
	creating     = "ContainerCreating"
	initializing = "PodInitializing"
	imagePull    = "ErrImagePull"
	imageBackOff = "ImagePullBackOff"
)

// missing is the word that makes an image one that cannot be pulled, wherever it stands in its name: as the registry, as a
// part of the path, as the tag.
const missing = "missing"

// isMissing reports whether an image cannot be pulled.
func isMissing(image string) bool {
	return slices.Contains(strings.FieldsFunc(image, func(r rune) bool { return strings.ContainsRune("/:@.", r) }), missing)
}

// lacksImage reports whether an image of a pod cannot be pulled.
func lacksImage(p kubeapi.Pod) bool {
	lacks := func(c kubeapi.Container) bool { return isMissing(c.Image) }
	return slices.ContainsFunc(p.Spec.InitContainers, lacks) || slices.ContainsFunc(p.Spec.Containers, lacks)
}

// waitsFor is the reason for which a pod's containers wait, that of an image before others; "" for none.
func waitsFor(p kubeapi.Pod) string {
	reason := ""
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if w := c.State.Waiting; w != nil && (reason == "" || w.Reason == imagePull || w.Reason == imageBackOff) {
			reason = w.Reason
		}
	}
	return reason
}

// nextToStart decides what happens next to a pod that does not run yet.
func nextToStart(p kubeapi.Pod, networked bool) step {
	switch reason, lacks := waitsFor(p), lacksImage(p); {
	case !networked && reason == "":
		return stepCreate
	case !networked, lacks && reason == imageBackOff:
		return stepNone
	case lacks && reason == imagePull:
		return stepBackOff
	case lacks:
		return stepPull
	}
	return stepStart
}

// pullError is what a kubelet says of an image that is not where it should be.
func pullError(image, reason string) string {
	full := image
	if host, _, ok := strings.Cut(image, "/"); !ok {
		full = "docker.io/library/" + image
	} else if !strings.ContainsAny(host, ".:") && host != "localhost" {
		full = "docker.io/" + image
	}
	text := fmt.Sprintf("rpc error: code = NotFound desc = failed to pull and unpack image %[1]q: failed to resolve reference %[1]q: %[1]s: not found", full)
	if reason == imageBackOff {
		text = fmt.Sprintf("Back-off pulling image %q: %s: %s", image, imagePull, text)
	}
	return text
}

// creatingStatus is the status of a pod none of whose containers could be made.
func creatingStatus(p kubeapi.Pod, hostIP string) map[string]any {
	first := creating
	if len(p.Spec.InitContainers) > 0 {
		first = initializing
	}
	wait := func(c kubeapi.Container) map[string]any { return container(c, waiting(first, ""), false, false) }
	return pendingStatus(p, hostIP, each(p.Spec.InitContainers, wait), each(p.Spec.Containers, wait))
}

// imageStatus is the status of a pod that lacks an image: init containers run one after the other, the others beside each
// other.
func imageStatus(p kubeapi.Pod, hostIP, reason string) map[string]any {
	now := kubeapi.Now()
	stuck := false
	lacking := func(c kubeapi.Container) map[string]any {
		return container(c, waiting(reason, pullError(c.Image, reason)), false, false)
	}
	init := each(p.Spec.InitContainers, func(c kubeapi.Container) map[string]any {
		switch {
		case stuck:
			return container(c, waiting(initializing, ""), false, false)
		case isMissing(c.Image):
			stuck = true
			return lacking(c)
		}
		return container(c, terminated(0, "Completed", now), true, false)
	})
	main := each(p.Spec.Containers, func(c kubeapi.Container) map[string]any {
		switch {
		case stuck:
			return container(c, waiting(initializing, ""), false, false)
		case isMissing(c.Image):
			return lacking(c)
		}
		return container(c, map[string]any{"running": map[string]any{"startedAt": now}}, true, true)
	})
	return pendingStatus(p, hostIP, init, main)
}

// pendingStatus is the status of a pod that is on its node and does not run.
func pendingStatus(p kubeapi.Pod, hostIP string, init, main []map[string]any) map[string]any {
	names := make([]string, len(p.Spec.Containers))
	for i, c := range p.Spec.Containers {
		names[i] = c.Name
	}
	now := kubeapi.Now()
	unready := fmt.Sprintf("containers with unready status: [%s]", strings.Join(names, " "))
	initialized := map[string]any{"type": "Initialized", "status": "True", "lastTransitionTime": now}
	if len(init) > 0 {
		initialized["status"], initialized["reason"] = "False", "ContainersNotInitialized"
	}
	return map[string]any{"status": map[string]any{
		"phase": "Pending", "startTime": now, "hostIP": hostIP, "hostIPs": []map[string]string{{"ip": hostIP}},
		"conditions": []map[string]any{
			{"type": "PodReadyToStartContainers", "status": "False", "lastTransitionTime": now}, initialized,
			{"type": "Ready", "status": "False", "reason": "ContainersNotReady", "message": unready, "lastTransitionTime": now},
			{"type": "ContainersReady", "status": "False", "reason": "ContainersNotReady", "message": unready, "lastTransitionTime": now},
		},
		"initContainerStatuses": init, "containerStatuses": main,
	}}
}

func each(list []kubeapi.Container, f func(kubeapi.Container) map[string]any) []map[string]any {
	out := make([]map[string]any, len(list))
	for i, c := range list {
		out[i] = f(c)
	}
	return out
}

func waiting(reason, message string) map[string]any {
	w := map[string]any{"reason": reason}
	if message != "" {
		w["message"] = message
	}
	return map[string]any{"waiting": w}
}

// waits writes down that a pod waits, as its status and as an event.
func (t *podTable) waits(ctx context.Context, p kubeapi.Pod, reason, message string, status map[string]any) error {
	if err := t.k.api.Patch(ctx, podPath(p)+"/status", kubeapi.StrategicPatch, status, nil); err != nil {
		return err
	}
	now := kubeapi.Now()
	return t.k.api.Create(ctx, "/api/v1/namespaces/"+p.Metadata.Namespace+"/events", map[string]any{
		"apiVersion": "v1", "kind": "Event", "type": "Warning", "reason": reason, "message": message,
		"metadata":       map[string]any{"generateName": p.Metadata.Name + ".", "namespace": p.Metadata.Namespace},
		"involvedObject": map[string]any{"apiVersion": "v1", "kind": "Pod", "namespace": p.Metadata.Namespace, "name": p.Metadata.Name, "uid": p.Metadata.UID},
		"source":         map[string]any{"component": "kubelet", "host": t.k.o.nodeName},
		"firstTimestamp": now, "lastTimestamp": now, "count": 1,
	}, nil)
}

func podPath(p kubeapi.Pod) string {
	return "/api/v1/namespaces/" + p.Metadata.Namespace + "/pods/" + p.Metadata.Name
}
