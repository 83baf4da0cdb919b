package addons

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kindly returns an object with its kind, as the API sends it.
func kindly(o runtime.Object, kind string) runtime.Object {
	o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{Kind: kind})
	return o
}

func TestHooksAreFinished(t *testing.T) {
	job := func(conditions ...batchv1.JobCondition) runtime.Object {
		return kindly(&batchv1.Job{Status: batchv1.JobStatus{Conditions: conditions}}, "Job")
	}
	pod := func(phase corev1.PodPhase) runtime.Object {
		return kindly(&corev1.Pod{Status: corev1.PodStatus{Phase: phase}}, "Pod")
	}
	crd := func(conditions ...apiextensionsv1.CustomResourceDefinitionCondition) runtime.Object {
		return kindly(&apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: "x"}, Status: apiextensionsv1.CustomResourceDefinitionStatus{Conditions: conditions},
		}, "CustomResourceDefinition")
	}
	for name, tt := range map[string]struct {
		ask    func(runtime.Object) (bool, error)
		object runtime.Object
		done   bool
		text   string
	}{
		"job, begun":    {ask: finished, object: job()},
		"job, complete": {ask: finished, object: job(batchv1.JobCondition{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}), done: true},
		"job, not failed": {
			ask: finished, object: job(batchv1.JobCondition{Type: batchv1.JobFailed, Status: corev1.ConditionFalse}),
		},
		"job, failed": {
			ask: finished, text: "it has failed: BackoffLimitExceeded: too often",
			object: job(batchv1.JobCondition{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: "BackoffLimitExceeded", Message: "too often"}),
		},
		"pod, runs":   {ask: finished, object: pod(corev1.PodRunning)},
		"pod, done":   {ask: finished, object: pod(corev1.PodSucceeded), done: true},
		"pod, failed": {ask: finished, object: pod(corev1.PodFailed), text: "it has failed"},
		"another":     {ask: finished, object: kindly(&corev1.ConfigMap{}, "ConfigMap"), done: true},
		"kind, young": {ask: established, object: crd()},
		"kind, served": {
			ask: established, done: true,
			object: crd(apiextensionsv1.CustomResourceDefinitionCondition{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}),
		},
		"kind, its name is taken": {
			ask: established, text: "CustomResourceDefinition x: ListKindConflict: taken",
			object: crd(apiextensionsv1.CustomResourceDefinitionCondition{
				Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionFalse, Reason: "ListKindConflict", Message: "taken",
			}),
		},
		"no kind": {ask: established, object: kindly(&corev1.ConfigMap{}, "ConfigMap"), done: true},
	} {
		done, err := tt.ask(tt.object)
		if done != tt.done || tt.text == "" && err != nil || tt.text != "" && (err == nil || !strings.Contains(err.Error(), tt.text)) {
			t.Errorf("%s: %t, %v", name, done, err)
		}
	}
}
