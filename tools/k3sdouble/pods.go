package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/kubeapi"
)

const (
	// startAfter, finishAfter and endAfter are how long a pod takes to run, a Job's pod to finish, and a deleted one
	// to be gone.
	startAfter  = time.Second
	finishAfter = time.Second
	endAfter    = time.Second
	podRetry    = 2 * time.Second

	// exitAnnotation makes a Job's pod fail with that exit code. While it is exitLater, the pod runs on: whoever plays its
	// program in the lab will tell how it ends.
	exitAnnotation = "double.k3s.io/exit-code"
	exitLater      = "wait"
	// stubbornAnnotation makes a pod that is deleted stay until the end of its grace period, as one does whose program
	// ignores SIGTERM.
	stubbornAnnotation = "double.k3s.io/ignores-sigterm"
)

// podTable carries the pods of a node through their life.
type podTable struct {
	k    *kubelet
	wake chan struct{}

	mu   sync.Mutex
	cidr netip.Prefix
	pods map[string]*podEntry // by UID
}

// podEntry is a pod with the time of its next step; zero means that it waits for an event.
type podEntry struct {
	pod kubeapi.Pod
	due time.Time
}

func (t *podTable) init(k *kubelet) {
	t.k, t.pods, t.wake = k, map[string]*podEntry{}, make(chan struct{}, 1)
}

// setCIDR gives the table its pods' addresses.
func (t *podTable) setCIDR(cidr string) {
	p, err := netip.ParsePrefix(cidr)
	if err != nil {
		return // checked by the network's start
	}
	t.mu.Lock()
	t.cidr = p.Masked()
	t.mu.Unlock()
	t.nudge()
}

// nudge has a look at all pods: the network may have come up.
func (t *podTable) nudge() {
	t.mu.Lock()
	for _, e := range t.pods {
		t.schedule(e, false)
	}
	t.mu.Unlock()
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

func (t *podTable) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return t.follow(ctx) })
	group.Go(func() error { return t.work(ctx) })
	return group.Wait()
}

// follow keeps the table up to date by list and watch.
func (t *podTable) follow(ctx context.Context) error {
	mine := "/api/v1/pods?fieldSelector=" + url.QueryEscape("spec.nodeName="+t.k.o.nodeName)
	for ctx.Err() == nil {
		var list kubeapi.List[kubeapi.Pod]
		err := t.k.api.Get(ctx, mine, &list)
		if err == nil {
			t.replace(list.Items)
			err = kubeapi.Watch(ctx, t.k.api, mine+"&watch=1&resourceVersion="+list.Metadata.ResourceVersion, func(ev kubeapi.Event[kubeapi.Pod]) error {
				t.update(ev.Object, ev.Type == "DELETED")
				return nil
			})
		}
		if err != nil && !errors.Is(err, io.EOF) && ctx.Err() == nil {
			log.warnf("pods: %v", err)
		}
		if sleep(ctx, podRetry) != nil {
			break
		}
	}
	return nil
}

func (t *podTable) replace(pods []kubeapi.Pod) {
	t.mu.Lock()
	gone := make(map[string]bool, len(t.pods))
	for uid := range t.pods {
		gone[uid] = true
	}
	for _, p := range pods {
		delete(gone, p.Metadata.UID)
	}
	for uid := range gone {
		delete(t.pods, uid)
	}
	t.mu.Unlock()
	for _, p := range pods {
		t.update(p, false)
	}
}

func (t *podTable) update(p kubeapi.Pod, deleted bool) {
	t.mu.Lock()
	if deleted {
		delete(t.pods, p.Metadata.UID)
	} else {
		e := t.pods[p.Metadata.UID]
		if e == nil {
			e = &podEntry{}
			t.pods[p.Metadata.UID] = e
		}
		e.pod = p
		t.schedule(e, true)
	}
	t.mu.Unlock()
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// schedule sets when the pod's next step is due. Without fresh news a time that is set stands.
func (t *podTable) schedule(e *podEntry, fresh bool) {
	if !e.due.IsZero() && !fresh {
		return
	}
	e.due = time.Time{}
	now := time.Now()
	switch step := t.next(e.pod); step {
	case stepEnd:
		e.due = endOf(e.pod, now)
	case stepStart, stepCreate, stepPull, stepBackOff:
		e.due = now.Add(startAfter)
	case stepFinish:
		e.due = now.Add(finishAfter)
	case stepNone:
	}
}

type step int

const (
	stepNone    step = iota
	stepCreate       // wait for the node's network
	stepPull         // fail to pull an image
	stepBackOff      // wait to pull it again, which the double never does
	stepStart
	stepFinish
	stepEnd
)

// next decides what happens to a pod next; the caller holds mu.
func (t *podTable) next(p kubeapi.Pod) step {
	switch {
	case p.Metadata.DeletionTimestamp != nil:
		return stepEnd
	case p.Status.Phase == "Running" && isJob(p):
		if p.Metadata.Annotations[exitAnnotation] != exitLater {
			return stepFinish
		}
	case p.Status.Phase == "Running" && isUnready(p) && t.networked(p):
		return stepStart
	case p.Status.Phase == "Pending":
		return nextToStart(p, t.networked(p))
	}
	return stepNone
}

// networked reports whether a pod has the network that it needs; the caller holds mu.
func (t *podTable) networked(p kubeapi.Pod) bool {
	return p.Spec.HostNetwork || t.cidr.IsValid() && t.k.network.ready()
}

// isUnready reports whether somebody has marked a pod that runs as not ready: the node controller does, while the node is
// silent.
func isUnready(p kubeapi.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c kubeapi.Condition) bool { return c.Type == "Ready" && c.Status != "True" })
}

// endOf is when a pod that is deleted will have ended. Its deletion timestamp is the end of its grace period.
func endOf(p kubeapi.Pod, now time.Time) time.Time {
	last := *p.Metadata.DeletionTimestamp
	if soon := now.Add(endAfter); p.Metadata.Annotations[stubbornAnnotation] != "true" && soon.Before(last) {
		return soon
	}
	return last
}

// isJob reports whether a pod's work comes to an end: it belongs to a Job.
func isJob(p kubeapi.Pod) bool {
	return p.Spec.RestartPolicy != "Always" &&
		slices.ContainsFunc(p.Metadata.OwnerReferences, func(o kubeapi.OwnerReference) bool { return o.Kind == "Job" })
}

// work takes the steps that are due.
func (t *podTable) work(ctx context.Context) error {
	for {
		due, wait := t.pick(time.Now())
		for _, p := range due {
			if err := t.take(ctx, p); err != nil && ctx.Err() == nil && !kubeapi.IsNotFound(err) {
				log.warnf("pod %s/%s: %v", p.Metadata.Namespace, p.Metadata.Name, err)
				t.again(p)
			}
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		case <-t.wake:
			timer.Stop()
		}
	}
}

// pick returns the pods whose step is due and how long to wait for the next.
func (t *podTable) pick(now time.Time) ([]kubeapi.Pod, time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var due []kubeapi.Pod
	wait := time.Hour
	for _, e := range t.pods {
		switch {
		case e.due.IsZero():
		case !e.due.After(now):
			e.due = time.Time{}
			due = append(due, e.pod)
		default:
			wait = min(wait, e.due.Sub(now))
		}
	}
	return due, wait
}

// again tries a step that failed once more.
func (t *podTable) again(p kubeapi.Pod) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.pods[p.Metadata.UID]; e != nil && e.due.IsZero() {
		e.due = time.Now().Add(podRetry)
	}
}

// take does a pod's next step.
func (t *podTable) take(ctx context.Context, p kubeapi.Pod) error {
	path := podPath(p)
	t.mu.Lock()
	step, addr := t.next(p), t.k.o.nodeIP.String()
	if step == stepStart && !p.Spec.HostNetwork {
		if addr = p.Status.PodIP; addr == "" {
			addr = t.freeIP()
		}
		if e := t.pods[p.Metadata.UID]; e != nil {
			e.pod.Status.PodIP = addr // taken, before the API says so
		}
	}
	t.mu.Unlock()
	switch step {
	case stepStart:
		if err := t.k.api.Patch(ctx, path+"/status", kubeapi.StrategicPatch, runningStatus(p, addr, t.k.o.nodeIP.String()), nil); err != nil {
			return err
		}
		return t.network(p)
	case stepCreate:
		return t.waits(ctx, p, "NetworkNotReady", "network is not ready: container runtime "+networkNotReady, creatingStatus(p, t.k.o.nodeIP.String()))
	case stepPull, stepBackOff:
		reason := imagePull
		if step == stepBackOff {
			reason = imageBackOff
		}
		return t.waits(ctx, p, "Failed", "Error: "+reason, imageStatus(p, t.k.o.nodeIP.String(), reason))
	case stepFinish:
		return t.k.api.Patch(ctx, path+"/status", kubeapi.StrategicPatch, finishedStatus(p), nil)
	case stepEnd:
		return t.k.api.Delete(ctx, path, map[string]any{
			"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0, "preconditions": map[string]string{"uid": p.Metadata.UID},
		})
	case stepNone:
	}
	return nil
}

// freeIP returns an address that no pod has; the caller holds mu.
func (t *podTable) freeIP() string {
	used := map[string]bool{}
	for _, e := range t.pods {
		used[e.pod.Status.PodIP] = true
	}
	// The first two are the network's and the bridge's.
	for a := t.cidr.Addr().Next().Next(); t.cidr.Contains(a); a = a.Next() {
		if !used[a.String()] {
			return a.String()
		}
	}
	return ""
}

// network does what a CNI's pod does on its node: one that mounts /etc/cni/net.d leaves its configuration there.
func (t *podTable) network(p kubeapi.Pod) error {
	if t.k.shared.FlannelBackend != "none" ||
		!slices.ContainsFunc(p.Spec.Volumes, func(v kubeapi.Volume) bool { return v.HostPath != nil && filepath.Clean(v.HostPath.Path) == cniDir }) {
		return nil
	}
	name := "10-" + p.Spec.Containers[0].Name
	switch {
	case strings.Contains(name, "calico"):
		name = "10-calico"
	case strings.Contains(name, "cilium"):
		name = "05-cilium"
	}
	conf := fmt.Sprintf("{\n  \"cniVersion\": \"1.0.0\",\n  \"name\": %q,\n  \"plugins\": [{\"type\": %q}]\n}\n", name[3:], name[3:])
	if err := writeFile(filepath.Join(cniDir, name+".conflist"), []byte(conf), 0o600); err != nil {
		return err
	}
	select {
	case t.k.wake <- struct{}{}:
	default:
	}
	return nil
}
