package kube

import (
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
)

func attachment(name, node string, volume *string) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       storagev1.VolumeAttachmentSpec{NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: volume}},
	}
}

func claim(namespace, name, volume string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: volume},
	}
}

func withClaim(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		source := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: source})
	}
}

func TestAttached(t *testing.T) {
	volumes := []runtime.Object{
		attachment("1", "w-1", new("pv-b")), attachment("2", "w-2", new("pv-c")), attachment("3", "w-1", new("pv-a")), attachment("4", "w-1", nil),
		claim("default", "a", "pv-a"), claim("default", "unbound", ""), claim("other", "b", "pv-b"), claim("default", "b", "pv-x"),
	}
	ephemeral := func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "y", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
	}
	daemon := ownedBy("apps/v1", "DaemonSet", "ds")
	for name, tt := range map[string]struct {
		pods []runtime.Object
		want []string
	}{
		"no pod is left":                     {nil, []string{"4", "pv-a", "pv-b"}},
		"a pod of a daemon set works with a": {[]runtime.Object{pod("d", daemon, withClaim("a"))}, []string{"4", "pv-b"}},
		"a claim of another namespace":       {[]runtime.Object{pod("d", daemon, in("other"), withClaim("b"))}, []string{"4", "pv-a"}},
		"the pod works on another node": {
			[]runtime.Object{pod("d", withClaim("a"), func(p *corev1.Pod) { p.Spec.NodeName = "w-2" })}, []string{"4", "pv-a", "pv-b"},
		},
		"the pod has ended":     {[]runtime.Object{pod("d", withClaim("a"), phase(corev1.PodFailed))}, []string{"4", "pv-a", "pv-b"}},
		"the pod ends":          {[]runtime.Object{pod("d", withClaim("a"), terminating(time.Minute))}, []string{"4", "pv-a", "pv-b"}},
		"the claim is gone":     {[]runtime.Object{pod("d", withClaim("gone"))}, []string{"4", "pv-a", "pv-b"}},
		"the claim is unbound":  {[]runtime.Object{pod("d", withClaim("unbound"))}, []string{"4", "pv-a", "pv-b"}},
		"an ephemeral volume":   {[]runtime.Object{pod("x", ephemeral), claim("default", "x-y", "pv-b")}, []string{"4", "pv-a"}},
		"a pod with local data": {[]runtime.Object{pod("d", emptyDir)}, []string{"4", "pv-a", "pv-b"}},
	} {
		w := newWorkload(t, append(slices.Clone(volumes), tt.pods...)...)
		if got, err := w.Attached(t.Context(), "w-1"); err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
}

func TestAttachedReportsWhatFailed(t *testing.T) {
	for resource, verb := range map[string]string{"volumeattachments": "list", "pods": "list", "persistentvolumeclaims": "get"} {
		w := newWorkload(t, attachment("1", "w-1", new("pv-a")), pod("d", withClaim("a")), claim("default", "a", "pv-a"))
		refused := apierrors.NewForbidden(corev1.Resource(resource), "x", errors.New("not allowed"))
		w.api.PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, refused })
		if got, err := w.Attached(t.Context(), "w-1"); !apierrors.IsForbidden(err) {
			t.Errorf("%s: got %v, %v", resource, got, err)
		}
	}
}
