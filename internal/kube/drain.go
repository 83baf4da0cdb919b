package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubectl/pkg/drain"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
)

const (
	// drainPause is the pause between two looks at the pods of a node.
	drainPause = 2 * time.Second
	// straggle is how long a cordoned node may still get pods that count: those for which the scheduler had chosen it
	// before. What comes later goes round the scheduler or tolerates the cordon, and would come back for ever.
	straggle = 10 * time.Second
	// deadGrace is what a pod of a node whose kubelet does not answer gets to end, in seconds: it is told to nobody.
	deadGrace = 1
	// evictions is how many pods are evicted at once: the API answers late where a webhook has a say.
	evictions = 10
)

// Drain evicts those pods of a node that `kubectl drain --ignore-daemonsets --delete-emptydir-data --force` would, and
// returns when they are gone. Of kubectl's code it has only that choice. kubectl's way to evict deletes pods past their
// disruption budgets where discovery does not list evictions, sleeps through the end of a context, may hit a pod's successor
// on another node, and waits out the grace of pods that a dead node was told to end. Here nothing goes but by an eviction.
//
// The error is *cluster.Undrained where pods are left when the time is over, and before that where none of those that are
// left can ever be evicted. Any other error says that the API did not answer; calling Drain again goes on.
func (c *Client) Drain(ctx context.Context, name string, o cluster.DrainOptions) error {
	bound, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	left, err := c.drain(bound, name, o)
	switch {
	case err == nil && len(left) == 0:
		return nil
	case errors.Is(ctx.Err(), context.Canceled):
		return fmt.Errorf("drain node %q: %w", name, context.Cause(ctx))
	case len(left) > 0 && (err == nil || bound.Err() != nil):
		return &cluster.Undrained{Pods: left}
	}
	return fmt.Errorf("drain node %q: %w", name, err)
}

// drain evicts the pods of a node until none is left, the context ends or those that are left can never be evicted. It
// returns the pods that were left when it last looked.
func (c *Client) drain(ctx context.Context, name string, o cluster.DrainOptions) (left []cluster.Pod, err error) {
	look := time.NewTicker(drainPause)
	defer look.Stop()
	began := time.Now()
	counted := map[types.UID]bool{}
	for {
		pods, err := c.evictable(ctx, name, o.Dead)
		if err != nil {
			return left, err
		}
		if time.Since(began) < straggle {
			for _, p := range pods {
				counted[p.UID] = true
			}
		}
		pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool { return !counted[p.UID] })
		if len(pods) == 0 {
			return nil, nil
		}
		now, hopeless := c.judge(ctx, pods, c.evict(ctx, pods, grace(o)))
		if ctx.Err() == nil || left == nil { // Answers that the end of the context cut short say nothing.
			left = now
		}
		if hopeless {
			return left, nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return left, context.Cause(ctx)
		}
	}
}

// evictable lists the pods of a node that have to go, sorted by name. No more is expected of one that its kubelet has ended
// and finalizers hold, nor, on a dead node, of one that was told to end.
func (c *Client) evictable(ctx context.Context, node string, dead bool) ([]corev1.Pod, error) {
	choice := drain.Helper{Ctx: ctx, Client: c.api, Force: true, IgnoreAllDaemonSets: true, DeleteEmptyDirData: true}
	list, errs := choice.GetPodsForDeletion(node)
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("list its pods: %w", err)
	}
	pods := slices.DeleteFunc(list.Pods(), func(p corev1.Pod) bool {
		return p.DeletionTimestamp != nil && (dead || hasEnded(&p) && len(p.Finalizers) > 0)
	})
	slices.SortFunc(pods, func(a, b corev1.Pod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return pods, nil
}

// hasEnded reports whether no program of a pod runs, or will run again.
func hasEnded(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// grace is what pods get to end, in seconds; nil leaves them their own.
func grace(o cluster.DrainOptions) *int64 {
	switch {
	case o.Dead:
		return new(int64(deadGrace))
	case o.GracePeriod != nil:
		return new(int64(o.GracePeriod.Seconds()))
	}
	return nil
}

// evict tells pods to end, and returns what the API answered for each of them: nil, too, where a pod was told before and
// has no more time than that.
func (c *Client) evict(ctx context.Context, pods []corev1.Pod, grace *int64) []error {
	answers := make([]error, len(pods))
	var group errgroup.Group
	group.SetLimit(evictions)
	for i := range pods {
		p := &pods[i]
		if p.DeletionTimestamp != nil && (grace == nil || p.DeletionGracePeriodSeconds == nil || *p.DeletionGracePeriodSeconds <= *grace) {
			continue
		}
		group.Go(func() error {
			answers[i] = c.api.PolicyV1().Evictions(p.Namespace).Evict(ctx, &policyv1.Eviction{
				ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
				// A successor of the same name may run elsewhere by now.
				DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: grace, Preconditions: metav1.NewUIDPreconditions(string(p.UID))},
			})
			return nil
		})
	}
	_ = group.Wait() // Each answer stands for itself.
	return answers
}

// judge tells what keeps pods on their node after the API has answered to their eviction. It is hopeless where every one of
// them has several disruption budgets, which the API refuses with an internal error whatever they allow
// (https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction/#how-api-initiated-eviction-works).
func (c *Client) judge(ctx context.Context, pods []corev1.Pod, answers []error) (left []cluster.Pod, hopeless bool) {
	budgets := c.budgets(ctx, answers)
	hopeless = true
	for i := range pods {
		p, answer := &pods[i], answers[i]
		l := cluster.Pod{Namespace: p.Namespace, Name: p.Name}
		over := covering(budgets, p)
		switch {
		case answer == nil, p.DeletionTimestamp != nil:
			l.Terminating = true
		case apierrors.HasStatusCause(answer, policyv1.DisruptionBudgetCause) && len(over) > 0, apierrors.IsInternalError(answer) && len(over) > 1:
			l.Budgets = over
		default:
			l.Reason = answer.Error()
		}
		hopeless = hopeless && len(l.Budgets) > 0 && apierrors.IsInternalError(answer)
		left = append(left, l)
	}
	return left, hopeless
}

// budgets lists all disruption budgets if one may be the reason of an answer. A list that cannot be had is no error: the
// answers themselves tell enough.
func (c *Client) budgets(ctx context.Context, answers []error) []policyv1.PodDisruptionBudget {
	if !slices.ContainsFunc(answers, func(err error) bool {
		return apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) || apierrors.IsInternalError(err)
	}) {
		return nil
	}
	list, err := c.api.PolicyV1().PodDisruptionBudgets(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil
	}
	return list.Items
}

// covering names the budgets that a pod counts for.
func covering(budgets []policyv1.PodDisruptionBudget, p *corev1.Pod) []string {
	var names []string
	for i := range budgets {
		b := &budgets[i]
		s, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err == nil && b.Namespace == p.Namespace && s.Matches(labels.Set(p.Labels)) {
			names = append(names, b.Name)
		}
	}
	slices.Sort(names)
	return names
}
