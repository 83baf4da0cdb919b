package addons

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
)

// Look tells how the add-ons are. It reads one revision of each release, its StorageClass and its main workloads.
func (k *installed) Look(ctx context.Context, s cluster.AddonSpec) (cluster.AddonStatuses, error) {
	newest, err := k.newest(ctx)
	if err != nil {
		return nil, err
	}
	classes, err := k.classes(ctx)
	if err != nil {
		return nil, err
	}
	wanted := s.Addons()
	all := slices.Sorted(maps.Keys(places))
	found := make([]*cluster.AddonStatus, len(all))
	group, gctx := errgroup.WithContext(ctx)
	for i, a := range all {
		number, isThere := newest[a]
		switch {
		case !slices.Contains(wanted, a) && !isThere:
		case !slices.Contains(wanted, a):
			group.Go(func() (err error) { found[i], err = k.lookUnwanted(gctx, a, number); return })
		default:
			group.Go(func() (err error) { found[i], err = k.lookWanted(gctx, s, a, number, classes); return })
		}
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	out := cluster.AddonStatuses{}
	for i, a := range all {
		if found[i] != nil {
			out[a] = *found[i]
		}
	}
	return out, nil
}

// newest finds the number of the newest revision of each add-on's release, with one request that brings no content of releases.
func (k *installed) newest(ctx context.Context) (map[cluster.Addon]int, error) {
	var names []string
	for _, p := range places {
		names = append(names, p.name)
	}
	slices.Sort(names)
	list, err := k.metadata.Resource(corev1.SchemeGroupVersion.WithResource("secrets")).List(ctx, metav1.ListOptions{
		LabelSelector: fmt.Sprintf("owner=helm,name in (%s)", strings.Join(names, ",")), // As Helm labels the records of releases.
	})
	if err != nil {
		return nil, fmt.Errorf("list releases: %w", err)
	}
	out := map[cluster.Addon]int{}
	for _, record := range list.Items {
		for a, p := range places {
			if n, err := strconv.Atoi(record.Labels["version"]); err == nil && record.Namespace == p.namespace && record.Labels["name"] == p.name {
				out[a] = max(out[a], n)
			}
		}
	}
	return out, nil
}

// classes returns all StorageClasses by name.
func (k *installed) classes(ctx context.Context) (map[string]*storagev1.StorageClass, error) {
	list, err := k.typed.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list StorageClasses: %w", err)
	}
	out := map[string]*storagev1.StorageClass{}
	for i := range list.Items {
		out[list.Items[i].Name] = &list.Items[i]
	}
	return out, nil
}

// Defaults names all default StorageClasses.
func (k *installed) Defaults(ctx context.Context) ([]string, error) {
	classes, err := k.classes(ctx)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(classes, func(_ string, c *storagev1.StorageClass) bool { return !isDefault(c) })
	return slices.Sorted(maps.Keys(classes)), nil
}

// lookUnwanted looks at a release whose add-on is not wanted; nil where it is somebody else's.
func (k *installed) lookUnwanted(ctx context.Context, a cluster.Addon, number int) (*cluster.AddonStatus, error) {
	rev, err := k.releases.get(ctx, places[a], number)
	if err != nil || rev.addon != a || rev.status == uninstalled {
		return nil, err
	}
	s := statusOf(rev, places[a])
	s.State, s.Reason = cluster.AddonUnwanted, "it is installed, and not wanted any more"
	return s, nil
}

// lookWanted looks at a release whose add-on is wanted; number is 0 where there is none.
func (k *installed) lookWanted(
	ctx context.Context, spec cluster.AddonSpec, a cluster.Addon, number int, classes map[string]*storagev1.StorageClass,
) (*cluster.AddonStatus, error) {
	r, err := k.releaseOf(spec, a)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", a, err)
	}
	if number == 0 {
		return &cluster.AddonStatus{Namespace: r.namespace, State: cluster.AddonMissing, Reason: "it is not installed"}, nil
	}
	rev, err := k.releases.get(ctx, r.place, number)
	if err != nil {
		return nil, err
	}
	s := statusOf(rev, r.place)
	switch {
	case rev.addon != a:
		s.State, s.Reason = cluster.AddonFailed, foreign(r.place).Error()
	case rev.status == uninstalled:
		s.State, s.Reason = cluster.AddonMissing, "it was uninstalled"
	case rev.status != deployed:
		s.State, s.Reason = cluster.AddonFailed, unfinished(rev)
	default:
		d, err := k.drift(ctx, r, rev, classes)
		if err != nil {
			return nil, err
		}
		reasons := d.reasons
		if d.mark != "" {
			reasons = append(reasons, d.mark)
		}
		s.State, s.Raisable = cluster.AddonDeployed, d.raisable && len(reasons) == 0
		if len(reasons) > 0 {
			s.State, s.Reason = cluster.AddonDrifted, strings.Join(reasons, "; ")
		}
	}
	return s, nil
}

func statusOf(rev revision, p place) *cluster.AddonStatus {
	return &cluster.AddonStatus{Chart: rev.chart, Version: rev.version, Namespace: p.namespace}
}

// unfinished says in what state a revision is that is not deployed.
func unfinished(rev revision) string {
	text := fmt.Sprintf("revision %d of its release is %s since %s", rev.number, rev.status, rev.since.UTC().Format(time.RFC3339))
	switch {
	case strings.HasPrefix(rev.status, pending):
		return text + ": an apply was cut off, or another one is at work"
	case rev.description != "":
		return text + ": " + clip(rev.description)
	}
	return text
}

// drift tells how a deployed release differs from the wanted one.
func (k *installed) drift(ctx context.Context, r release, rev revision, classes map[string]*storagev1.StorageClass) (drift, error) {
	var b *bundle
	if r.source.files != nil || r.source.archive != "" {
		// It is read from files. An archive need not be on the machine that looks.
		b, _ = k.charts.fetch(ctx, r.source)
	}
	var d drift
	_, keys, raisable := r.settled(rev.values)
	d.raisable = raisable
	d.reasons = append(chartDrift(rev, r.source, b), valuesDrift(keys)...)
	if r.class != nil {
		var settings string
		if settings, d.mark = classDrift(r.class, classes[r.class.name]); settings != "" {
			d.reasons = append(d.reasons, settings)
		}
	}
	for _, w := range chartWorkloads(r.workloads, rev, r.place) {
		_, err := k.metadata.Resource(w.resource()).Namespace(w.namespace).Get(ctx, w.name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			d.reasons = append(d.reasons, w.String()+" is gone")
		case err != nil:
			return drift{}, fmt.Errorf("look for %s: %w", w, err)
		}
	}
	return d, nil
}

// resource is the API's word for the kind of a workload.
func (w workload) resource() schema.GroupVersionResource {
	if w.kind == daemonSet {
		return appsv1.SchemeGroupVersion.WithResource("daemonsets")
	}
	return appsv1.SchemeGroupVersion.WithResource("deployments")
}
