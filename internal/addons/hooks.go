package addons

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	helmkube "helm.sh/helm/v3/pkg/kube"
)

// lookEvery is the pause between two looks at something that is waited for.
const lookEvery = time.Second

// kubeClient is Helm's client of the API. Its waits end with the operation's context and tell what they waited for; Helm's own do
// neither.
type kubeClient struct {
	*helmkube.Client
	ctx context.Context
	// config is one whose requests do not end with ctx.
	config *rest.Config
}

func newKubeClient(ctx context.Context, g *getter, config *rest.Config) *kubeClient {
	c := helmkube.New(g)
	c.Namespace = g.namespace
	return &kubeClient{Client: c, ctx: ctx, config: config}
}

// hookPatience bounds the wait for one hook: its images have to come first.
const hookPatience = 5 * time.Minute

// WatchUntilReady waits until Jobs and Pods have done their work. Helm asks for that with hooks. Where no node takes pods there is
// nothing to wait for: what they would look after is not running either.
func (k *kubeClient) WatchUntilReady(resources helmkube.ResourceList, _ time.Duration) error {
	if api, err := kubernetes.NewForConfig(k.config); err == nil {
		if takers, err := anyTaker(k.ctx, api); err == nil && !takers {
			return nil
		}
	}
	ctx, cancel := context.WithTimeoutCause(k.ctx, hookPatience, fmt.Errorf("waited %s", hookPatience))
	defer cancel()
	return k.each(ctx, resources, func(info *resource.Info) (bool, error) {
		done, err := finished(info.Object)
		if err != nil {
			return false, fmt.Errorf("hook %s: %w%s", objectName(info), err, k.pods(info))
		}
		return done, nil
	}, func(info *resource.Info) error {
		return fmt.Errorf("hook %s has not come to its end%s", objectName(info), k.pods(info))
	})
}

// Wait waits until CustomResourceDefinitions serve. Helm asks for that with those that a chart brings along.
func (k *kubeClient) Wait(resources helmkube.ResourceList, _ time.Duration) error {
	return k.each(k.ctx, resources, func(info *resource.Info) (bool, error) { return established(info.Object) },
		func(info *resource.Info) error { return fmt.Errorf("%s is not served", objectName(info)) })
}

// WaitForDelete waits until objects are gone.
func (k *kubeClient) WaitForDelete(resources helmkube.ResourceList, _ time.Duration) error {
	return k.each(k.ctx, resources, func(*resource.Info) (bool, error) { return false, nil },
		func(info *resource.Info) error {
			return fmt.Errorf("%s is being deleted and not gone", objectName(info))
		})
}

// each waits for one object after another, until done or until it is gone; late is the error where the context ends first.
func (k *kubeClient) each(ctx context.Context, resources helmkube.ResourceList, done func(*resource.Info) (bool, error), late func(*resource.Info) error) error {
	for _, info := range resources {
		err := poll(ctx, func() (bool, error) {
			err := info.Get()
			switch {
			case apierrors.IsNotFound(err):
				return true, nil
			case err != nil:
				return false, nil // It is asked again as long as the context lasts.
			}
			return done(info)
		})
		if errors.Is(err, errEnded) {
			return fmt.Errorf("%w: %w", late(info), context.Cause(ctx))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// errEnded is the error of a wait whose context ended.
var errEnded = errors.New("the wait has ended")

// poll asks until the answer is yes or an error, or the context ends.
func poll(ctx context.Context, ask func() (bool, error)) error {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		if ctx.Err() != nil {
			return errEnded
		}
		if yes, err := ask(); yes || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// finished reports whether a Job or a Pod has done its work; other things have none.
func finished(o runtime.Object) (bool, error) {
	kind := o.GetObjectKind().GroupVersionKind().Kind
	switch kind {
	case "Job":
		var job batchv1.Job
		if err := convert(o, &job); err != nil {
			return false, err
		}
		for _, c := range job.Status.Conditions {
			switch {
			case c.Status != corev1.ConditionTrue:
			case c.Type == batchv1.JobComplete:
				return true, nil
			case c.Type == batchv1.JobFailed:
				return false, fmt.Errorf("it has failed: %s: %s", c.Reason, clip(c.Message))
			}
		}
		return false, nil
	case "Pod":
		var pod corev1.Pod
		if err := convert(o, &pod); err != nil {
			return false, err
		}
		if pod.Status.Phase == corev1.PodFailed {
			return false, errors.New("it has failed")
		}
		return pod.Status.Phase == corev1.PodSucceeded, nil
	}
	return true, nil
}

// established reports whether a CustomResourceDefinition is served; other things are not waited for.
func established(o runtime.Object) (bool, error) {
	if o.GetObjectKind().GroupVersionKind().Kind != "CustomResourceDefinition" {
		return true, nil
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := convert(o, &crd); err != nil {
		return false, err
	}
	for _, c := range crd.Status.Conditions {
		switch {
		case c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue:
			return true, nil
		case c.Type == apiextensionsv1.NamesAccepted && c.Status == apiextensionsv1.ConditionFalse:
			return false, fmt.Errorf("CustomResourceDefinition %s: %s: %s", crd.Name, c.Reason, c.Message)
		}
	}
	return false, nil
}

// convert makes a typed object of an untyped one.
func convert(o runtime.Object, into any) error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return err
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(fields, into)
}

// objectName names an object for messages.
func objectName(info *resource.Info) string {
	name := info.Name
	if info.Namespace != "" {
		name = info.Namespace + "/" + name
	}
	return info.Mapping.GroupVersionKind.Kind + " " + name
}

// pods tells, for the end of a message, of the pods of a Job that do not run.
func (k *kubeClient) pods(info *resource.Info) string {
	if info.Mapping.GroupVersionKind.Kind != "Job" {
		return ""
	}
	ctx, end := outliving(k.ctx, lastWords)
	defer end()
	api, err := kubernetes.NewForConfig(k.config)
	if err != nil {
		return ""
	}
	list, err := api.CoreV1().Pods(info.Namespace).List(ctx, metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + info.Name})
	if err != nil {
		return ""
	}
	told := tellPods(list.Items)
	if len(told) == 0 {
		return ""
	}
	return " (" + strings.Join(told, "; ") + ")"
}
