package addons

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
)

// makeRoom deletes a StorageClass that has to be made anew, since what differs cannot be changed in it. Where volumes were made
// with it, that is an error which names them. One that somebody else has made stays, and is in the way.
func (k *installed) makeRoom(ctx context.Context, r release, live *storagev1.StorageClass) error {
	if live == nil {
		return nil
	}
	keys := r.class.immutable(live)
	if !r.class.made(live, r.place) {
		if len(keys) == 0 && r.class.provisioner != "" {
			return nil // Helm refuses to make it, or marks it as the release's where the release has made it.
		}
		return inTheWay(r, fmt.Sprintf("StorageClass %q", live.Name))
	}
	if len(keys) == 0 {
		return nil
	}
	volumes, err := k.Volumes(ctx, r.addon)
	if err != nil {
		return err
	}
	if len(volumes) > 0 {
		return &cluster.Failure{
			Err: fmt.Errorf("StorageClass %q cannot get other settings (%s) while there are volumes of %s: %s",
				r.class.name, strings.Join(keys, ", "), r.addon, strings.Join(volumes, ", ")),
			Cause:  "the settings of a StorageClass cannot be changed, and volumes keep those that they were made with.",
			Remedy: "take the change back; or move the data, delete the claims, and apply again.",
		}
	}
	err = k.typed.StorageV1().StorageClasses().Delete(ctx, live.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &live.UID}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete StorageClass %q, which needs other settings: %w", live.Name, err)
	}
	return nil
}

// follow takes over what values say of the class beside its parameters.
func (c *class) follow(values map[string]any) {
	policy, _ := get(values, "storageClass", "reclaimPolicy")
	mode, _ := get(values, "storageClass", "volumeBindingMode")
	c.reclaimPolicy, _ = policy.(string)
	c.bindingMode, _ = mode.(string)
}

// made reports whether a StorageClass is that of a release: Helm marks what it makes, and what an add-on makes by itself is known by
// its driver.
func (c *class) made(live *storagev1.StorageClass, p place) bool {
	if c.provisioner == "" {
		return live.Provisioner == p.driver
	}
	return live.Annotations["meta.helm.sh/release-name"] == p.name && live.Annotations["meta.helm.sh/release-namespace"] == p.namespace
}

// markDefault makes a StorageClass that is there the default class, or keeps it from being one. Helm does not see what others have
// changed, and of some add-ons the class is not part of the release.
func (k *installed) markDefault(ctx context.Context, r release) error {
	if r.class == nil {
		return nil
	}
	live, err := k.typed.StorageV1().StorageClasses().Get(ctx, r.class.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil // The add-on makes it when it runs.
	case err != nil:
		return fmt.Errorf("look at StorageClass %q: %w", r.class.name, err)
	case isDefault(live) == r.class.isDefault, !r.class.made(live, r.place):
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"annotations": map[string]string{defaultClass: strconv.FormatBool(r.class.isDefault)},
	}})
	if err == nil {
		_, err = k.typed.StorageV1().StorageClasses().Patch(ctx, r.class.name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if err != nil {
		return fmt.Errorf("mark StorageClass %q: %w", r.class.name, err)
	}
	return nil
}
