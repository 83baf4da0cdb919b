package addons

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"

	"helm.sh/helm/v3/pkg/releaseutil"
)

// fieldManager is the name under which the provider owns fields of objects that it applies by itself.
const fieldManager = "terraform-provider-cockpit"

// applyCRDs applies the objects of a chart that has little else than CustomResourceDefinitions, and waits until these are served. Such
// a chart is no release: it can be too large for the record of one, and to uninstall it would delete the objects of its kinds.
func (k *installed) applyCRDs(ctx context.Context, r release, b *bundle) error {
	manifest, err := render(b, r.place, r.crdValues)
	if err != nil {
		return err
	}
	objects, err := parse(manifest)
	if err != nil {
		return err
	}
	cache, err := k.discovery()
	if err != nil {
		return err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(cache)
	for _, o := range objects {
		mapping, err := mapper.RESTMapping(o.GroupVersionKind().GroupKind(), o.GroupVersionKind().Version)
		if err != nil {
			return fmt.Errorf("%s %q: %w", o.GetKind(), o.GetName(), err)
		}
		api := k.dynamic.Resource(mapping.Resource).Namespace("")
		if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			namespace := o.GetNamespace()
			if namespace == "" {
				namespace = r.namespace
			}
			api = k.dynamic.Resource(mapping.Resource).Namespace(namespace)
		}
		if _, err := api.Apply(ctx, o.GetName(), o, metav1.ApplyOptions{FieldManager: fieldManager, Force: true}); err != nil {
			return fmt.Errorf("%s %q: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return k.awaitKinds(ctx, objects, mapper)
}

// parse reads the objects of a manifest.
func parse(manifest string) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	texts := releaseutil.SplitManifests(manifest)
	keys := slices.Collect(maps.Keys(texts))
	sort.Sort(releaseutil.BySplitManifestsOrder(keys))
	for _, key := range keys {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(texts[key]), &o.Object); err != nil {
			return nil, fmt.Errorf("read the rendered chart: %w", err)
		}
		if len(o.Object) > 0 {
			out = append(out, o)
		}
	}
	return out, nil
}

// awaitKinds waits until CustomResourceDefinitions are established, and their kinds can be found.
func (k *installed) awaitKinds(ctx context.Context, objects []*unstructured.Unstructured, mapper *restmapper.DeferredDiscoveryRESTMapper) error {
	crds := k.dynamic.Resource(apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"))
	for _, o := range objects {
		if o.GetKind() != "CustomResourceDefinition" {
			continue
		}
		var lastly error
		err := poll(ctx, func() (bool, error) {
			live, err := crds.Get(ctx, o.GetName(), metav1.GetOptions{})
			if err != nil {
				lastly = err
				return false, nil
			}
			if is, err := established(live); !is || err != nil {
				lastly = errors.New("it is not established")
				return false, err
			}
			group, version, kind := servedBy(live)
			if _, lastly = mapper.RESTMapping(schema.GroupKind{Group: group, Kind: kind}, version); lastly != nil {
				mapper.Reset()
			}
			return lastly == nil, nil
		})
		if errors.Is(err, errEnded) {
			return fmt.Errorf("wait until CustomResourceDefinition %q is served (%w): %w", o.GetName(), lastly, context.Cause(ctx))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// servedBy tells the group, a served version and the kind that a CustomResourceDefinition makes.
func servedBy(crd *unstructured.Unstructured) (group, version, kind string) {
	group, _, _ = unstructured.NestedString(crd.Object, "spec", "group")
	kind, _, _ = unstructured.NestedString(crd.Object, "spec", "names", "kind")
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, v := range versions {
		if m, ok := v.(map[string]any); ok && m["served"] == true {
			version, _ = m["name"].(string)
		}
	}
	return group, version, kind
}
