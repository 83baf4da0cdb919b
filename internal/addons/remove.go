package addons

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// Remove uninstalls a storage add-on, and deletes its StorageClass where that is not part of the release. One that failed on its way
// is gone on with. The namespace stays, and so do CustomResourceDefinitions that the release does not hold.
func (k *installed) Remove(ctx context.Context, a cluster.Addon) error {
	rev, err := k.last(ctx, places[a])
	if err != nil || rev.number == 0 || rev.addon != a {
		return err
	}
	return k.alone(ctx, a, func(ctx context.Context, _ bool) error {
		volumes, err := k.Volumes(ctx, a)
		if err != nil {
			return err
		}
		if len(volumes) > 0 {
			return &cluster.Failure{
				Err:    fmt.Errorf("there are volumes of %s: %s", a, strings.Join(volumes, ", ")),
				Cause:  "claims were made while the add-on was about to be removed.",
				Remedy: "move the data, delete the claims, and apply again.",
			}
		}
		return k.uninstall(ctx, a, places[a])
	})
}

// classNames are those of the StorageClasses of storage add-ons.
var classNames = map[cluster.Addon]string{
	cluster.LocalPath: record.LocalPathClass, cluster.NFS: record.NFSClass, cluster.Longhorn: record.LonghornClass,
}

// uninstall removes a release, or goes on where that was begun.
func (k *installed) uninstall(ctx context.Context, a cluster.Addon, p place) error {
	if a == cluster.Longhorn {
		if err := k.longhornCanGo(ctx, p); err != nil {
			return err
		}
		if err := k.letLonghornGo(ctx, p); err != nil {
			return err
		}
	}
	if err := k.releases.uninstall(ctx, p); err != nil {
		return fmt.Errorf("uninstall release %s: %w", p, err)
	}
	classes, err := k.classes(ctx)
	if err != nil {
		return err
	}
	live := classes[classNames[a]]
	if live == nil || live.Provisioner != p.driver {
		return nil
	}
	if err := k.typed.StorageV1().StorageClasses().Delete(ctx, live.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete StorageClass %q: %w", live.Name, err)
	}
	return nil
}

// Longhorn's own guard against being uninstalled by mistake, and the Job that uninstalls it
// (https://longhorn.io/docs/latest/deploy/uninstall/).
var (
	longhornSettings = schema.GroupVersionResource{Group: "longhorn.io", Version: "v1beta2", Resource: "settings"}
	longhornData     = schema.GroupVersionResource{Group: "longhorn.io", Version: "v1beta2", Resource: "volumes"}
	longhornFlag     = "deleting-confirmation-flag"
	longhornJob      = "longhorn-uninstall"
)

// longhornCanGo refuses to uninstall Longhorn where it has worked and nothing of it can run: it takes itself apart, by a Job.
func (k *installed) longhornCanGo(ctx context.Context, p place) error {
	takers, err := anyTaker(ctx, k.typed)
	if err != nil || takers {
		return err
	}
	nodes, err := k.dynamic.Resource(longhornNodes).Namespace(p.namespace).List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("list Longhorn's nodes: %w", err)
	case len(nodes.Items) == 0:
		return nil
	}
	return &cluster.Failure{
		Err:    errors.New("Longhorn cannot be removed while no node takes pods"), //nolint:staticcheck // begins with a name
		Cause:  "a Job of its own takes it apart, and has no node to run on.",
		Remedy: "apply again when a node is Ready and takes pods.",
	}
}

// letLonghornGo has Longhorn agree to be uninstalled. A Job that failed before would stand in the way of a new one.
func (k *installed) letLonghornGo(ctx context.Context, p place) error {
	_, err := k.dynamic.Resource(longhornSettings).Namespace(p.namespace).
		Patch(ctx, longhornFlag, types.MergePatchType, []byte(`{"value":"true"}`), metav1.PatchOptions{FieldManager: fieldManager})
	if err != nil && !apierrors.IsNotFound(err) { // There is no setting where Longhorn has never run.
		return fmt.Errorf("set Longhorn's setting %s: %w", longhornFlag, err)
	}
	background := metav1.DeletePropagationBackground
	err = k.typed.BatchV1().Jobs(p.namespace).Delete(ctx, longhornJob, metav1.DeleteOptions{PropagationPolicy: &background})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete Job %s/%s of an earlier attempt: %w", p.namespace, longhornJob, err)
	}
	return nil
}
