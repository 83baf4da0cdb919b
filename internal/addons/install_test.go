package addons

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	metadatafake "k8s.io/client-go/metadata/fake"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
)

// fakeReleases are the releases of one add-on: their revisions, and what was done to them.
type fakeReleases struct {
	revisions []revision
	did       []string
	// err is what install and upgrade return.
	err error
}

func (f *fakeReleases) history(context.Context, place) ([]revision, error) {
	return slices.Clone(f.revisions), nil
}

func (f *fakeReleases) get(_ context.Context, _ place, number int) (revision, error) {
	for _, v := range f.revisions {
		if v.number == number {
			return v, nil
		}
	}
	return revision{}, errors.New("no such revision")
}

func (f *fakeReleases) make(what string, r release, b *bundle) error {
	f.did = append(f.did, what)
	if f.err == nil {
		n := 1
		if len(f.revisions) > 0 {
			n = f.revisions[len(f.revisions)-1].number + 1
		}
		f.revisions = append(f.revisions, revision{
			number: n, status: deployed, chart: b.name, version: b.version, digest: b.digest, addon: r.addon, values: copyValues(r.values), manifest: "new",
		})
	}
	return f.err
}

func (f *fakeReleases) install(_ context.Context, r release, b *bundle) error {
	return f.make("install", r, b)
}
func (f *fakeReleases) upgrade(_ context.Context, r release, b *bundle) error {
	return f.make("upgrade", r, b)
}

func (f *fakeReleases) fail(_ context.Context, _ place, numbers ...int) error {
	f.did = append(f.did, fmt.Sprint("fail ", numbers))
	return nil
}

func (f *fakeReleases) forget(_ context.Context, _ place, numbers ...int) error {
	f.did = append(f.did, fmt.Sprint("forget ", numbers))
	f.revisions = slices.DeleteFunc(f.revisions, func(v revision) bool { return slices.Contains(numbers, v.number) })
	return nil
}

func (f *fakeReleases) sweep(_ context.Context, _ place, manifests []string) error {
	f.did = append(f.did, fmt.Sprint("sweep ", manifests))
	return nil
}

func (f *fakeReleases) uninstall(context.Context, place) error {
	f.did = append(f.did, "uninstall")
	f.revisions = nil
	return nil
}

// testChart is an embedded chart.
var testChart = fstest.MapFS{"Chart.yaml": {Data: []byte("apiVersion: v2\nname: csi-driver-nfs\nversion: 4.13.4\n")}}

// testRelease is the release of an add-on as the tests want it.
func testRelease(a cluster.Addon) release {
	r := release{addon: a, place: places[a], source: source{chart: "csi-driver-nfs", version: "4.13.4", files: testChart}, values: map[string]any{"x": 1.0}}
	if r.driver != "" {
		r.class = &class{name: "nfs", provisioner: r.driver, parameters: map[string]string{"server": "a"}}
	}
	return r
}

// liveClass is the StorageClass of testRelease as it stands in the cluster.
func liveClass(server string, isDefault bool) *storagev1.StorageClass {
	return &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "nfs", UID: "1", Annotations: map[string]string{
			defaultClass: fmt.Sprint(isDefault), "meta.helm.sh/release-name": places[cluster.NFS].name, "meta.helm.sh/release-namespace": places[cluster.NFS].namespace,
		}},
		Provisioner: places[cluster.NFS].driver, Parameters: map[string]string{"server": server},
	}
}

// volumeOf is a volume of a CSI driver, bound to the claim default/data.
func volumeOf(driver string) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-1"}}
	v.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: driver}
	v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: "data"}
	return v
}

// newInstalled are add-ons in a fake cluster with these objects.
func newInstalled(t *testing.T, f *fakeReleases, objects ...runtime.Object) *installed {
	t.Helper()
	var metas []runtime.Object
	for _, o := range objects {
		kinds, _, err := scheme.Scheme.ObjectKinds(o)
		if err != nil {
			t.Fatal(err)
		}
		m := o.(metav1.Object)
		meta := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: m.GetName(), Namespace: m.GetNamespace(), Labels: m.GetLabels()}}
		meta.SetGroupVersionKind(kinds[0])
		metas = append(metas, meta)
	}
	metaScheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(metaScheme); err != nil {
		t.Fatal(err)
	}
	return &installed{
		charts: newTestCharts(Options{}), typed: fake.NewClientset(objects...), dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), listKinds),
		metadata: metadatafake.NewSimpleMetadataClient(metaScheme, metas...), releases: f,
		releaseOf: func(_ cluster.AddonSpec, a cluster.Addon) (release, error) { return testRelease(a), nil },
		now:       time.Now,
	}
}

// rev is a revision of testRelease; its manifest is its number.
func rev(number int, status string) revision {
	b, _ := embedded(source{files: testChart})
	return revision{
		number: number, status: status, since: time.Now().Add(-time.Hour), chart: b.name, version: b.version, digest: b.digest,
		addon: cluster.NFS, values: map[string]any{"x": 1.0}, manifest: fmt.Sprint(number),
	}
}

// The history of a release decides what is done.
func TestInstallByHistory(t *testing.T) {
	other := func(v revision, change func(*revision)) revision { change(&v); return v }
	young := func(v revision) revision { v.since = time.Now().Add(-time.Minute); return v }
	right := []runtime.Object{liveClass("a", false)}
	for name, tt := range map[string]struct {
		history []revision
		objects []runtime.Object
		did     []string
		text    string
	}{
		"none":                     {did: []string{"install"}},
		"deployed":                 {history: []revision{rev(1, deployed)}, objects: right},
		"deployed, other values":   {history: []revision{other(rev(1, deployed), func(v *revision) { v.values = map[string]any{} })}, objects: right, did: []string{"upgrade"}},
		"deployed, other version":  {history: []revision{other(rev(1, deployed), func(v *revision) { v.version = "4.13.3" })}, objects: right, did: []string{"upgrade"}},
		"deployed, class is gone":  {history: []revision{rev(1, deployed)}, did: []string{"upgrade"}},
		"failed first install":     {history: []revision{rev(1, failed)}, did: []string{"forget [1]", "install", "sweep [1]"}},
		"pending first install":    {history: []revision{rev(1, "pending-install")}, did: []string{"forget [1]", "install", "sweep [1]"}},
		"failed twice":             {history: []revision{rev(1, failed), rev(2, failed)}, did: []string{"forget [1 2]", "install", "sweep [1 2]"}},
		"failed upgrade":           {history: []revision{rev(1, deployed), rev(2, failed)}, did: []string{"upgrade", "sweep [2]"}},
		"pending upgrade":          {history: []revision{rev(1, deployed), rev(2, "pending-upgrade")}, did: []string{"fail [2]", "upgrade", "sweep [2]"}},
		"pending rollback":         {history: []revision{rev(1, superseded), rev(2, deployed), rev(3, "pending-rollback")}, did: []string{"fail [3]", "upgrade", "sweep [3]"}},
		"pending after a failure":  {history: []revision{rev(1, deployed), rev(2, failed), rev(3, "pending-upgrade")}, did: []string{"fail [3]", "upgrade", "sweep [3 2]"}},
		"superseded, then pending": {history: []revision{rev(1, superseded), rev(2, "pending-upgrade")}, did: []string{"fail [2]", "upgrade", "sweep [2]"}},
		"unknown":                  {history: []revision{rev(1, deployed), rev(2, "unknown")}, did: []string{"fail [2]", "upgrade", "sweep [2]"}},
		"being uninstalled":        {history: []revision{rev(1, uninstalling)}, did: []string{"uninstall", "install"}},
		"being uninstalled, with volumes": {
			history: []revision{rev(1, uninstalling)}, objects: []runtime.Object{volumeOf(places[cluster.NFS].driver)}, did: []string{"fail [1]", "upgrade", "sweep [1]"},
		},
		"uninstalled, kept": {history: []revision{rev(1, superseded), rev(2, uninstalled)}, did: []string{"forget [1 2]", "install"}},
		"pending for a minute": {
			history: []revision{rev(1, deployed), young(rev(2, "pending-upgrade"))},
			text:    "revision 2 of release kube-system/csi-driver-nfs is pending-upgrade since ",
		},
		"failed a minute ago": {history: []revision{rev(1, deployed), young(rev(2, failed))}, did: []string{"upgrade", "sweep [2]"}},
		"somebody else's": {
			history: []revision{other(rev(1, deployed), func(v *revision) { v.addon = "" })},
			text:    "the release kube-system/csi-driver-nfs is there, and the provider has not made it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fakeReleases{revisions: tt.history}
			k := newInstalled(t, f, tt.objects...)
			err := k.Install(t.Context(), cluster.AddonSpec{}, cluster.NFS)
			if tt.text == "" && err != nil || tt.text != "" && (err == nil || !strings.Contains(err.Error(), tt.text)) {
				t.Errorf("got %v", err)
			}
			if !slices.Equal(f.did, tt.did) {
				t.Errorf("did %q", f.did)
			}
			leases, err := k.typed.CoordinationV1().Leases("").List(t.Context(), metav1.ListOptions{})
			if err != nil || len(leases.Items) != 0 {
				t.Errorf("the Lease is still held: %v", err)
			}
		})
	}
}

// What an apply of ours has left behind is not waited for, which its Lease tells. While somebody else may be at work, nothing is
// changed, not even the class.
func TestInstallOverAYoungRevision(t *testing.T) {
	for _, orphaned := range []bool{true, false} {
		f := &fakeReleases{revisions: []revision{rev(1, deployed), rev(2, "pending-upgrade")}}
		f.revisions[1].since = time.Now()
		k := newInstalled(t, f, liveClass("b", false))
		b, err := embedded(source{files: testChart})
		if err != nil {
			t.Fatal(err)
		}
		err = k.install(t.Context(), testRelease(cluster.NFS), b, nil, orphaned)
		classes, listErr := k.classes(t.Context())
		if orphaned && (err != nil || !slices.Equal(f.did, []string{"fail [2]", "upgrade", "sweep [2]"})) ||
			!orphaned && (err == nil || len(f.did) > 0 || len(classes) != 1) || listErr != nil {
			t.Errorf("orphaned %t: %v, did %q, classes %v", orphaned, err, f.did, classes)
		}
	}
}

// A network is never uninstalled: nodes would lose each other.
func TestInstallRestoresANetwork(t *testing.T) {
	f := &fakeReleases{revisions: []revision{rev(1, uninstalling)}}
	f.revisions[0].addon = cluster.Cilium
	if err := newInstalled(t, f).Install(t.Context(), cluster.AddonSpec{}, cluster.Cilium); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(f.did, []string{"fail [1]", "upgrade", "sweep [1]"}) {
		t.Errorf("did %q", f.did)
	}
}

func TestInstallIsIdempotent(t *testing.T) {
	f := &fakeReleases{}
	k := newInstalled(t, f)
	for range 3 {
		if err := k.Install(t.Context(), cluster.AddonSpec{}, cluster.Cilium); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(f.did, []string{"install"}) {
		t.Errorf("did %q", f.did)
	}
}

// What cannot be changed in a StorageClass has it made anew, unless there are volumes.
func TestInstallWithAnotherClass(t *testing.T) {
	for name, tt := range map[string]struct {
		volume  runtime.Object
		foreign bool
		did     []string
		gone    bool
		text    string
	}{
		"without volumes":         {did: []string{"upgrade"}, gone: true},
		"of somebody else":        {foreign: true, text: `release kube-system/csi-driver-nfs: StorageClass "nfs" is in the way: the release has not made it`},
		"with volumes of another": {volume: volumeOf("x"), did: []string{"upgrade"}, gone: true},
		"with volumes": {
			volume: volumeOf(places[cluster.NFS].driver),
			text:   `StorageClass "nfs" cannot get other settings (server) while there are volumes of nfs: pvc-1 (claim default/data)`,
		},
	} {
		live := liveClass("b", false)
		if tt.foreign {
			delete(live.Annotations, "meta.helm.sh/release-name")
		}
		objects := []runtime.Object{live}
		if tt.volume != nil {
			objects = append(objects, tt.volume)
		}
		f := &fakeReleases{revisions: []revision{rev(1, deployed)}}
		k := newInstalled(t, f, objects...)
		err := k.Install(t.Context(), cluster.AddonSpec{}, cluster.NFS)
		var failure *cluster.Failure
		if tt.text == "" && err != nil || tt.text != "" && (!errors.As(err, &failure) || err.Error() != tt.text) {
			t.Errorf("%s: %v", name, err)
		}
		classes, err := k.classes(t.Context())
		if err != nil || (classes["nfs"] == nil) != tt.gone || !slices.Equal(f.did, tt.did) {
			t.Errorf("%s: %v, %v, did %q", name, classes, err, f.did)
		}
	}
}

// Which class is the default one needs no new revision.
func TestInstallMarksTheDefaultClass(t *testing.T) {
	f := &fakeReleases{revisions: []revision{rev(1, deployed)}}
	k := newInstalled(t, f, liveClass("a", true))
	if err := k.Install(t.Context(), cluster.AddonSpec{}, cluster.NFS); err != nil {
		t.Fatal(err)
	}
	names, err := k.Defaults(t.Context())
	if err != nil || len(names) != 0 || len(f.did) != 0 {
		t.Errorf("default classes are %q, %v, did %q", names, err, f.did)
	}
}

func TestInstallExplainsWhatIsInTheWay(t *testing.T) {
	f := &fakeReleases{err: errors.New(`Unable to continue with install: StorageClass "nfs" in namespace "" exists and cannot be imported into the current release: invalid ownership metadata; label validation error`)}
	err := newInstalled(t, f).Install(t.Context(), cluster.AddonSpec{}, cluster.NFS)
	var failure *cluster.Failure
	if !errors.As(err, &failure) || err.Error() != `release kube-system/csi-driver-nfs: StorageClass "nfs" is in the way: the release has not made it` {
		t.Errorf("got %v", err)
	}
}

func TestNamespaceOfARelease(t *testing.T) {
	mine := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "longhorn-system", Labels: map[string]string{"mine": "yes"}}}
	for name, tt := range map[string]struct {
		before []runtime.Object
		place  place
		label  string
	}{
		"made, privileged": {place: places[cluster.Longhorn], label: "privileged"},
		"made":             {place: place{namespace: "x"}},
		"there":            {before: []runtime.Object{mine}, place: places[cluster.Longhorn]},
	} {
		k := newInstalled(t, nil, tt.before...)
		if err := k.ensureNamespace(t.Context(), tt.place); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		ns, err := k.typed.CoreV1().Namespaces().Get(t.Context(), tt.place.namespace, metav1.GetOptions{})
		if err != nil || ns.Labels["pod-security.kubernetes.io/enforce"] != tt.label {
			t.Errorf("%s: %v, %v", name, ns, err)
		}
	}
}

// What the API refuses for good is a Failure, which nobody tries again; what may pass is none.
func TestRefused(t *testing.T) {
	invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "Deployment"}, "x", nil)
	for name, tt := range map[string]struct {
		err   error
		final bool
	}{
		"invalid":              {fmt.Errorf("create: %w", invalid), true},
		"too large":            {apierrors.NewRequestEntityTooLargeError("x"), true},
		"a webhook is silent":  {apierrors.NewInternalError(errors.New("failed calling webhook")), false},
		"the API is too busy":  {apierrors.NewTooManyRequests("x", 1), false},
		"no answer of the API": {errors.New("connection refused"), false},
	} {
		f := &fakeReleases{err: tt.err}
		err := newInstalled(t, f).Install(t.Context(), cluster.AddonSpec{}, cluster.NFS)
		var failure *cluster.Failure
		if errors.As(err, &failure) != tt.final || !errors.Is(err, tt.err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
