package main

import (
	"strconv"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/kubeapi"
)

// runningStatus is the status of a pod all of whose containers run and are ready.
func runningStatus(p kubeapi.Pod, podIP, hostIP string) map[string]any {
	now := kubeapi.Now()
	state := map[string]any{"running": map[string]any{"startedAt": now}}
	done := terminated(0, "Completed", now)
	return map[string]any{"status": map[string]any{
		"phase": "Running", "startTime": now,
		"podIP": podIP, "podIPs": []map[string]string{{"ip": podIP}}, "hostIP": hostIP, "hostIPs": []map[string]string{{"ip": hostIP}},
		"conditions":            conditions("True", "", now),
		"containerStatuses":     containers(p.Spec.Containers, state, true, true),
		"initContainerStatuses": containers(p.Spec.InitContainers, done, true, false),
	}}
}

// finishedStatus is the status of a pod whose containers have exited.
func finishedStatus(p kubeapi.Pod) map[string]any {
	now := kubeapi.Now()
	phase, code, reason := "Succeeded", 0, "Completed"
	if n, err := strconv.Atoi(p.Metadata.Annotations[exitAnnotation]); err == nil && n != 0 {
		phase, code, reason = "Failed", n, "Error"
	}
	state := terminated(code, reason, now)
	return map[string]any{"status": map[string]any{
		"phase":             phase,
		"conditions":        conditions("False", "PodCompleted", now),
		"containerStatuses": containers(p.Spec.Containers, state, false, false),
	}}
}

func conditions(ready, reason string, now any) []map[string]any {
	all := []map[string]any{
		{"type": "PodReadyToStartContainers", "status": "True"}, {"type": "Initialized", "status": "True", "reason": reason},
		{"type": "Ready", "status": ready, "reason": reason}, {"type": "ContainersReady", "status": ready, "reason": reason},
	}
	for _, c := range all {
		// Of an older condition nothing may stay.
		c["lastTransitionTime"], c["message"] = now, ""
	}
	return all
}

func containers(list []kubeapi.Container, state map[string]any, ready, started bool) []map[string]any {
	return each(list, func(c kubeapi.Container) map[string]any { return container(c, state, ready, started) })
}

// container is the status of one container. One that waits has not been made.
func container(c kubeapi.Container, state map[string]any, ready, started bool) map[string]any {
	out := map[string]any{
		"name": c.Name, "image": c.Image, "imageID": "", "restartCount": 0, "ready": ready, "started": started, "state": state,
	}
	if state["waiting"] == nil {
		out["imageID"], out["containerID"] = c.Image, "containerd://"+hashHex(c.Name+c.Image)
	}
	return out
}

func terminated(code int, reason string, at any) map[string]any {
	return map[string]any{"terminated": map[string]any{"exitCode": code, "reason": reason, "startedAt": at, "finishedAt": at}}
}
