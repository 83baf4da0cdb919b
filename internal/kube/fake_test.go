package kube

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

var (
	pods    = corev1.SchemeGroupVersion.WithResource("pods")
	nodes   = corev1.SchemeGroupVersion.WithResource("nodes")
	budgets = policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets")
)

// workload is a cluster in memory: its API evicts by the rules of the real one and deletes nothing otherwise, and its
// kubelets end pods. Its discovery lists nothing.
type workload struct {
	*Client
	t   *testing.T
	api *fake.Clientset
	// evicted are the pods whose eviction was taken, in the order of that, and grace what each asked for; -1 is its own.
	evicted []string
	grace   map[string]int64
	// tried counts the evictions that were asked for.
	tried int
	// dead kubelets end nothing. Others take as long for a pod as takes says by name, and no time for those it lacks.
	dead  bool
	takes map[string]time.Duration
	// refuse is asked before a pod is evicted, and ended is told of each that is gone.
	refuse func(*corev1.Pod) error
	ended  func(*corev1.Pod)
}

func newWorkload(t *testing.T, objects ...runtime.Object) *workload {
	w := &workload{t: t, api: fake.NewClientset(objects...), grace: map[string]int64{}, takes: map[string]time.Duration{}}
	w.Client = &Client{api: w.api}
	w.api.PrependReactor("list", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		_, o, err := clienttesting.ObjectReaction(w.api.Tracker())(a)
		if list, ok := o.(*corev1.PodList); ok {
			selector := a.(clienttesting.ListAction).GetListRestrictions().Fields
			list.Items = slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return !selector.Matches(fields.Set{"spec.nodeName": p.Spec.NodeName}) })
		}
		return true, o, err
	})
	w.api.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() != "eviction" {
			return false, nil, nil
		}
		w.tried++
		return true, nil, w.evict(a.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction))
	})
	for _, verb := range []string{"delete", "delete-collection"} {
		w.api.PrependReactor(verb, "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
			t.Errorf("it was told to %s %s", a.GetVerb(), a.GetResource().Resource)
			return true, nil, errors.New("not allowed")
		})
	}
	return w
}

func (w *workload) evict(e *policyv1.Eviction) error {
	o, err := w.api.Tracker().Get(pods, e.Namespace, e.Name)
	if err != nil {
		return err
	}
	p := o.(*corev1.Pod).DeepCopy()
	if want := e.DeleteOptions.Preconditions.UID; *want != p.UID {
		return apierrors.NewConflict(corev1.Resource("pods"), p.Name, fmt.Errorf("the UID in the precondition (%s) is not that of the object (%s)", *want, p.UID))
	}
	if w.refuse != nil {
		if err := w.refuse(p); err != nil {
			return err
		}
	}
	if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
		if err := w.disrupt(p); err != nil {
			return err
		}
	}
	asked, grace := int64(-1), int64(30)
	if p.Spec.TerminationGracePeriodSeconds != nil {
		grace = *p.Spec.TerminationGracePeriodSeconds
	}
	if e.DeleteOptions.GracePeriodSeconds != nil {
		asked, grace = *e.DeleteOptions.GracePeriodSeconds, *e.DeleteOptions.GracePeriodSeconds
	}
	w.evicted, w.grace[p.Name] = append(w.evicted, p.Name), asked
	p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(metav1.NewTime(time.Now().Add(time.Duration(grace)*time.Second))), &grace
	if err := w.api.Tracker().Update(pods, p, p.Namespace); err != nil {
		return err
	}
	switch takes := w.takes[p.Name]; {
	case w.dead:
	case takes > 0:
		time.AfterFunc(takes, func() { w.end(p) })
	default:
		w.end(p)
	}
	return nil
}

// disrupt asks the budgets of a pod as the API does, down to the shape of its answers.
func (w *workload) disrupt(p *corev1.Pod) error {
	o, err := w.api.Tracker().List(budgets, policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget"), p.Namespace)
	if err != nil {
		return err
	}
	var over []*policyv1.PodDisruptionBudget
	for i := range o.(*policyv1.PodDisruptionBudgetList).Items {
		b := &o.(*policyv1.PodDisruptionBudgetList).Items[i]
		if s, err := metav1.LabelSelectorAsSelector(b.Spec.Selector); err == nil && s.Matches(labels.Set(p.Labels)) {
			over = append(over, b)
		}
	}
	switch {
	case len(over) > 1:
		return apierrors.FromObject(&metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: severalBudgets})
	case len(over) == 0:
		return nil
	case over[0].Status.DisruptionsAllowed == 0:
		return noRoom(0)
	}
	over[0].Status.DisruptionsAllowed--
	return w.api.Tracker().Update(budgets, over[0], p.Namespace)
}

// noRoom is what the API says of a budget that forbids an eviction, or that it has not looked at yet and asks to come again.
func noRoom(retryAfter int) *apierrors.StatusError {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", retryAfter)
	err.ErrStatus.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause}}
	return err
}

const severalBudgets = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."

// end is what a kubelet does with a pod that was told to end.
func (w *workload) end(p *corev1.Pod) {
	if len(p.Finalizers) > 0 {
		p.Status.Phase = corev1.PodSucceeded
		_ = w.api.Tracker().Update(pods, p, p.Namespace)
		return
	}
	_ = w.api.Tracker().Delete(pods, p.Namespace, p.Name)
	if w.ended != nil {
		w.ended(p)
	}
}

// left are the names of the pods on a node.
func (w *workload) left(node string) []string {
	list, err := w.api.CoreV1().Pods("").List(w.t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		w.t.Fatal(err)
	}
	var names []string
	for _, p := range list.Items {
		names = append(names, p.Name)
	}
	return names
}

// pod is a pod of w-1 that runs; its label app has its name.
func pod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name + "-1"), Labels: map[string]string{"app": name}},
		Spec:       corev1.PodSpec{NodeName: "w-1"}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

func in(namespace string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Namespace = namespace } }

func phase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase = phase }
}

func finalizer(p *corev1.Pod) { p.Finalizers = []string{"example.test/x"} }

// terminating is a pod that was told to end, and has a while from now; a negative one is over.
func terminating(remaining time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(metav1.NewTime(time.Now().Add(remaining))), new(int64(600))
	}
}

func ownedBy(version, kind, name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: name, Controller: new(true)}}
	}
}

// versioned makes a fake API count the versions of its Nodes, and refuse patches that were made for another one or that
// name none. meanwhile is called before each patch, with the Node as it stands, to change that.
func versioned(t *testing.T, api *fake.Clientset, meanwhile func(*corev1.Node) (changed bool)) {
	t.Helper()
	react := clienttesting.ObjectReaction(api.Tracker())
	bump := func(n *corev1.Node) error {
		version, _ := strconv.Atoi(n.ResourceVersion)
		n.ResourceVersion = strconv.Itoa(version + 1)
		return api.Tracker().Update(nodes, n, "")
	}
	api.PrependReactor("patch", "nodes", func(a clienttesting.Action) (bool, runtime.Object, error) {
		o, err := api.Tracker().Get(nodes, "", a.(clienttesting.PatchAction).GetName())
		if err != nil {
			return true, nil, err
		}
		n := o.(*corev1.Node).DeepCopy()
		if meanwhile != nil && meanwhile(n) {
			if err := bump(n); err != nil {
				return true, nil, err
			}
		}
		var patch metav1.PartialObjectMetadata
		if err := json.Unmarshal(a.(clienttesting.PatchAction).GetPatch(), &patch); err != nil {
			return true, nil, err
		}
		if patch.ResourceVersion != n.ResourceVersion {
			return true, nil, apierrors.NewConflict(corev1.Resource("nodes"), n.Name, errors.New("the object has been modified"))
		}
		handled, o, err := react(a)
		if err == nil {
			n = o.(*corev1.Node).DeepCopy()
			err = bump(n)
		}
		return handled, n, err
	})
}

// patches counts the patches that a fake API got.
func patches(api *fake.Clientset) int {
	n := 0
	for _, a := range api.Actions() {
		if a.GetVerb() == "patch" {
			n++
		}
	}
	return n
}

// reactOnce is a reactor that does something else before the first call of its kind.
func reactOnce(first *bool, before func()) clienttesting.ReactionFunc {
	return func(clienttesting.Action) (bool, runtime.Object, error) {
		if *first {
			*first = false
			before()
		}
		return false, nil, nil
	}
}
