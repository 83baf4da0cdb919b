package addons

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// clipAt is how many bytes of somebody else's text are told.
const clipAt = 300

// clip makes somebody else's text fit a message: on one line, and not too long.
func clip(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > clipAt {
		return strings.ToValidUTF8(text[:clipAt], "") + "…"
	}
	return text
}

// How much the trouble of a pod says of the cause.
const (
	vague = iota
	clear
	telling
)

// troubleOf says why a pod does not run, "" for one that does, and how much that says. It tells statuses only: what a pod is started
// with may be secret.
func troubleOf(p *corev1.Pod) (string, int) {
	switch {
	case p.DeletionTimestamp != nil:
		return "", vague
	case p.Status.Phase == corev1.PodSucceeded || isReady(p):
		return "", vague
	case p.Status.Phase == corev1.PodFailed:
		return note("it has failed", p.Status.Reason, p.Status.Message), clear
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return note("not scheduled", c.Message), telling
		}
	}
	var vaguely string
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		text, weight := containerTrouble(s)
		if weight > vague {
			return text, weight
		}
		if vaguely == "" {
			vaguely = text
		}
	}
	if vaguely == "" {
		vaguely = note(string(p.Status.Phase), p.Status.Reason, p.Status.Message)
	}
	return vaguely, vague
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// containerTrouble says what a container waits for, or why it ended.
func containerTrouble(s corev1.ContainerStatus) (string, int) {
	name := "container " + s.Name
	ended := s.State.Terminated
	if ended == nil {
		ended = s.LastTerminationState.Terminated
	}
	switch {
	case s.State.Waiting != nil && ended != nil:
		return note(name, s.State.Waiting.Reason, restarts(s)+termination(ended)), telling
	case s.State.Waiting != nil && slices.Contains([]string{"", "ContainerCreating", "PodInitializing"}, s.State.Waiting.Reason):
		return note(name, s.State.Waiting.Reason, s.State.Waiting.Message), vague
	case s.State.Waiting != nil:
		return note(name, s.State.Waiting.Reason, s.State.Waiting.Message), telling
	case s.State.Terminated != nil && s.State.Terminated.ExitCode != 0:
		return note(name, termination(ended)), telling
	case s.State.Running != nil && ended != nil && !s.Ready:
		return note(name, "running and not ready", restarts(s)+termination(ended)), clear
	case s.State.Running != nil && !s.Ready:
		return note(name, "running and not ready"), vague
	}
	return "", vague
}

func restarts(s corev1.ContainerStatus) string {
	if s.RestartCount == 0 {
		return ""
	}
	return fmt.Sprintf("restarted %d times, ", s.RestartCount)
}

func termination(t *corev1.ContainerStateTerminated) string {
	return note(fmt.Sprintf("ended with exit status %d", t.ExitCode), strings.TrimSuffix(t.Reason, "Error"), t.Message)
}

// note joins what there is.
func note(parts ...string) string {
	var out []string
	for _, p := range parts {
		if p != "" {
			out = append(out, clip(p))
		}
	}
	return strings.Join(out, ": ")
}
