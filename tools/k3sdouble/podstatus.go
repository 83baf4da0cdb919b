package main

import (
	"strconv"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/kubeapi"
)

// runningStatus is the status of a pod all of whose containers run and are ready.
func runningStatus(p kubeapi.Pod, podIP, hostIP string) map[string]any {
	now := kubeapi.Now()
	state := map[string]any{"running": map[string]any{"startedAt": now}}
	done := map[string]any{"terminated": map[string]any{"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}}
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
	state := map[string]any{"terminated": map[string]any{"exitCode": code, "reason": reason, "startedAt": now, "finishedAt": now}}
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
		c["lastTransitionTime"] = now
	}
	return all
}

func containers(list []kubeapi.Container, state map[string]any, ready, started bool) []map[string]any {
	out := make([]map[string]any, len(list))
	for i, c := range list {
		out[i] = map[string]any{
			"name": c.Name, "image": c.Image, "imageID": c.Image, "restartCount": 0, "ready": ready, "started": started, "state": state,
			"containerID": "containerd://" + hashHex(c.Name+c.Image),
		}
	}
	return out
}
