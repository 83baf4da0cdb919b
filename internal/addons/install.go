package addons

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
)

// respect is for how long a pending revision is left alone that no apply of ours has left behind: somebody may be at work with
// Helm's own program, which ends a wait after five minutes by itself.
const respect = 5 * time.Minute

// Install installs an add-on or brings it to what is wanted. It goes by the history of its release; see mend.
func (k *installed) Install(ctx context.Context, s cluster.AddonSpec, a cluster.Addon) error {
	r, err := k.releaseOf(s, a)
	if err != nil {
		return err
	}
	if done, err := k.isDone(ctx, r); done || err != nil {
		return err
	}
	chart, crds, err := k.charts.get(ctx, r)
	if err != nil {
		return err
	}
	return k.alone(ctx, a, func(ctx context.Context, orphaned bool) error {
		// Another apply may have done the work while this one waited.
		if done, err := k.isDone(ctx, r); done || err != nil {
			return err
		}
		return k.install(ctx, r, chart, crds, orphaned)
	})
}

// isDone reports whether no new revision is needed. Whether its StorageClass is the default one takes none.
func (k *installed) isDone(ctx context.Context, r release) (bool, error) {
	rev, err := k.last(ctx, r.place)
	if err != nil || rev.number == 0 {
		return false, err
	}
	if rev.addon != r.addon {
		return false, &cluster.Failure{
			Err:    foreign(r.place),
			Cause:  "somebody has installed it by other means.",
			Remedy: fmt.Sprintf("uninstall it (helm uninstall -n %s %s), if nothing depends on it, and apply again.", r.namespace, r.name),
		}
	}
	if rev.status != deployed {
		return false, nil
	}
	classes, err := k.classes(ctx)
	if err != nil {
		return false, err
	}
	d, err := k.drift(ctx, r, rev, classes)
	switch {
	case err != nil || len(d.reasons) > 0 || d.raisable:
		return false, err
	case d.mark != "":
		return true, k.markDefault(ctx, r)
	}
	return true, nil
}

// foreign is the error of a release that the provider has not made.
func foreign(p place) error {
	return fmt.Errorf("the release %s is there, and the provider has not made it", p)
}

// last returns the newest revision of a release; its number is 0 where there is none.
func (k *installed) last(ctx context.Context, p place) (revision, error) {
	history, err := k.releases.history(ctx, p)
	if err != nil || len(history) == 0 {
		return revision{}, err
	}
	return history[len(history)-1], nil
}

// install does the work.
func (k *installed) install(ctx context.Context, r release, chart, crds *bundle, orphaned bool) error {
	history, err := k.releases.history(ctx, r.place)
	if err != nil {
		return err
	}
	if !orphaned {
		if err := k.mayBeAtWork(r.place, history); err != nil {
			return err
		}
	}
	if err := mayFollow(r.addon, history, chart.version); err != nil {
		return err
	}
	if err := k.ensureNamespace(ctx, r.place); err != nil {
		return err
	}
	if crds != nil {
		if err := k.applyCRDs(ctx, r, crds); err != nil {
			return fmt.Errorf("apply chart %s %s: %w", crds.name, crds.version, err)
		}
	}
	classes, err := k.classes(ctx)
	if err != nil {
		return err
	}
	if r.class != nil {
		if err := k.makeRoom(ctx, r, classes[r.class.name]); err != nil {
			return err
		}
	}
	m, err := k.mend(ctx, r, history)
	if err != nil {
		return err
	}
	do := k.releases.install
	if m.upgrade {
		do = k.releases.upgrade
		for _, v := range slices.Backward(history) {
			if v.status == deployed {
				r, _, _ = r.settled(v.values)
				break
			}
		}
	}
	if err := do(ctx, r, chart); err != nil {
		return explain(r, err)
	}
	if len(m.left) > 0 {
		if err := k.releases.sweep(ctx, r.place, m.left); err != nil {
			return err
		}
	}
	return k.markDefault(ctx, r)
}

// mayBeAtWork is the error of a release that is pending and young: somebody may be at work on it who is no apply of ours.
func (k *installed) mayBeAtWork(p place, history []revision) error {
	if len(history) == 0 {
		return nil
	}
	last := history[len(history)-1]
	age := k.now().Sub(last.since)
	if !strings.HasPrefix(last.status, pending) || age < 0 || age >= respect {
		return nil // One of the future tells of a clock alone.
	}
	return fmt.Errorf("revision %d of release %s is %s since %s, and it may be that somebody is at work on it; it is left alone until that was %s ago",
		last.number, p, last.status, last.since.UTC().Format(time.RFC3339), respect)
}

// mended is what a release needs once its history is in order.
type mended struct {
	// upgrade: it is there, and gets a new revision.
	upgrade bool
	// left are the manifests of revisions that were not finished; what they have made and nobody wants has to go.
	left []string
}

// mend puts the history of a release in order, so that Helm goes on with it. Nothing that runs is taken away for that:
//
//	no revision                    install
//	none was ever deployed         forget them, and install over what they have made
//	the last is deployed, failed   upgrade
//	the last is pending            mark it as failed, and upgrade
//	the last is being uninstalled  of storage without volumes, finish that, and install; else as if it had failed
//	it was uninstalled             forget it, and install
//
// Helm has another way out of a pending upgrade, the rollback. It would have the add-on's pods restarted twice.
func (k *installed) mend(ctx context.Context, r release, history []revision) (mended, error) {
	if len(history) == 0 {
		return mended{}, nil
	}
	last := history[len(history)-1]
	if last.status == uninstalling && r.driver != "" {
		volumes, err := k.Volumes(ctx, r.addon)
		if err != nil {
			return mended{}, err
		}
		if len(volumes) == 0 {
			return mended{}, k.uninstall(ctx, r.addon, r.place)
		}
	}
	if last.status == uninstalled {
		return mended{}, k.releases.forget(ctx, r.place, numbers(history)...)
	}
	came := slices.IndexFunc(history, func(v revision) bool { return v.status == deployed || v.status == superseded })
	if came < 0 && last.status != uninstalling {
		return mended{left: manifests(history)}, k.releases.forget(ctx, r.place, numbers(history)...)
	}
	m := mended{upgrade: true}
	for _, v := range slices.Backward(history) {
		if v.status == deployed {
			break
		}
		if v.status != superseded {
			m.left = append(m.left, v.manifest)
		}
	}
	if last.status != deployed && last.status != failed {
		return m, k.releases.fail(ctx, r.place, last.number)
	}
	return m, nil
}

func numbers(history []revision) []int {
	out := make([]int, 0, len(history))
	for _, v := range history {
		out = append(out, v.number)
	}
	return out
}

func manifests(history []revision) []string {
	out := make([]string, 0, len(history))
	for _, v := range history {
		out = append(out, v.manifest)
	}
	return out
}

// explain adds what helps where an object is in the way that the release has not made.
func explain(r release, err error) error {
	const mark = " exists and cannot be imported into the current release"
	what, _, isThere := strings.Cut(err.Error(), mark)
	if !isThere {
		return fmt.Errorf("release %s: %w", r.place, refused(r, err))
	}
	if i := strings.LastIndex(what, ": "); i >= 0 {
		what = what[i+2:]
	}
	return inTheWay(r, strings.TrimSuffix(what, ` in namespace ""`))
}

// inTheWay is the error of an object that a release would make and has not made.
func inTheWay(r release, what string) error {
	return &cluster.Failure{
		Err:    fmt.Errorf("release %s: %s is in the way: the release has not made it", r.place, what),
		Cause:  "somebody has installed the add-on, or a part of it, by other means.",
		Remedy: "delete it, if nothing depends on it, and apply again.",
	}
}

// The labels by which a namespace admits privileged pods (https://kubernetes.io/docs/concepts/security/pod-security-admission).
var privileged = map[string]string{
	"pod-security.kubernetes.io/enforce": "privileged",
	"pod-security.kubernetes.io/audit":   "privileged",
	"pod-security.kubernetes.io/warn":    "privileged",
}

// ensureNamespace makes the namespace of a release. One that is there stays as it is.
func (k *installed) ensureNamespace(ctx context.Context, p place) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.namespace}}
	if p.privileged {
		namespace.Labels = privileged
	}
	_, err := k.typed.CoreV1().Namespaces().Get(ctx, p.namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = k.typed.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make namespace %q: %w", p.namespace, err)
	}
	return nil
}
