package addons

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/releaseutil"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
	helmyaml "sigs.k8s.io/yaml"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
)

// chartsVariable names a directory with the charts of the projects, each as NAME-VERSION.tgz or as a directory NAME. Without it
// they are fetched from where the matrix says.
const chartsVariable = "COCKPIT_CHARTS"

// fetchLimit is how long a repository may take to answer.
const fetchLimit = 20 * time.Second

// TestRealCharts renders the projects' own charts with the values of every variant, which checks them against the charts' schemas,
// and looks at what comes out.
func TestRealCharts(t *testing.T) {
	for a := range places {
		t.Run(string(a), func(t *testing.T) {
			t.Parallel()
			var real *bundle
			for _, v := range variants() {
				if v.addon != a {
					continue
				}
				r, err := releaseOf(v.spec, a)
				if err != nil {
					t.Fatal(err)
				}
				if real == nil {
					real = realChart(t, r.source)
					checkImageKeys(t, real, a)
				}
				t.Run(v.name, func(t *testing.T) {
					manifest, err := render(real, r.place, r.values)
					if err != nil {
						t.Fatal(err)
					}
					objects := objectsOf(t, manifest)
					checkImages(t, objects, v.spec.ImageRegistry)
					checkWorkloads(t, objects, r)
					checkRendered[a](t, v, objects)
				})
			}
		})
	}
}

// TestRealCRDs renders the chart of Calico's CRDs, and checks the objects of the other chart against them: the API would leave out
// what a schema does not have, and say nothing.
func TestRealCRDs(t *testing.T) {
	t.Parallel()
	var kinds map[string]*crdSchema
	var real *bundle
	for _, v := range variants() {
		if v.addon != cluster.Calico {
			continue
		}
		r, err := releaseOf(v.spec, v.addon)
		if err != nil {
			t.Fatal(err)
		}
		if kinds == nil {
			kinds = crdSchemas(t, r)
			real = realChart(t, r.source)
		}
		manifest, err := render(real, r.place, r.values)
		if err != nil {
			t.Fatal(err)
		}
		checked := 0
		for _, o := range objectsOf(t, manifest) {
			if o.GroupVersionKind().Group == "operator.tigera.io" {
				checked++
				checkSchema(t, kinds[o.GetKind()], o)
			}
		}
		if checked != 2 {
			t.Errorf("%s: %d objects of the operator, and not an Installation and an APIServer", v.name, checked)
		}
	}
}

// crdSchemas are the schemas of a release's CRDs by their kinds.
func crdSchemas(t *testing.T, r release) map[string]*crdSchema {
	t.Helper()
	manifest, err := render(realChart(t, *r.crds), r.place, r.crdValues)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]*crdSchema{}
	for _, o := range objectsOf(t, manifest) {
		if o.GetKind() != "CustomResourceDefinition" {
			t.Fatalf("%s %s is no CRD", o.GetKind(), o.GetName())
		}
		kind, schema := schemaOf(t, o)
		kinds[kind] = schema
	}
	if kinds["TigeraStatus"] == nil || kinds["IPPool"] == nil {
		t.Error("no CRD of TigeraStatus or IPPool")
	}
	return kinds
}

// crdSchema is the schema of a CRD's last version, in the two forms that libraries take.
type crdSchema struct {
	openAPI    *spec.Schema
	structural *structuralschema.Structural
}

// schemaOf is the schema of a CRD, and the kind it is for.
func schemaOf(t *testing.T, o *unstructured.Unstructured) (string, *crdSchema) {
	t.Helper()
	var crd apiextensionsv1.CustomResourceDefinition
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &crd); err != nil {
		t.Fatal(err)
	}
	text := crd.Spec.Versions[len(crd.Spec.Versions)-1].Schema.OpenAPIV3Schema
	var props apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(text, &props, nil); err != nil {
		t.Fatal(err)
	}
	structural, err := structuralschema.NewStructural(&props)
	if err != nil {
		t.Fatal(err)
	}
	out := &crdSchema{openAPI: &spec.Schema{}, structural: structural}
	if b, err := json.Marshal(text); err != nil || json.Unmarshal(b, out.openAPI) != nil {
		t.Fatalf("the schema of %s is not OpenAPI: %v", crd.Name, err)
	}
	return crd.Spec.Names.Kind, out
}

// checkSchema finds what a schema refuses in an object, and what it does not have.
func checkSchema(t *testing.T, s *crdSchema, o *unstructured.Unstructured) {
	t.Helper()
	if s == nil {
		t.Errorf("no CRD of %s", o.GetKind())
		return
	}
	for _, err := range validate.NewSchemaValidator(s.openAPI, nil, "", strfmt.Default).Validate(o.Object).Errors {
		t.Errorf("%s: %v", o.GetKind(), err)
	}
	for _, path := range pruning.PruneWithOptions(o.DeepCopy().Object, s.structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
		t.Errorf("%s: the API would leave out %s", o.GetKind(), path)
	}
}

// realChart is a chart from the directory that the environment names, or else from its project. A test that cannot have it is
// skipped, and says what it lacks.
func realChart(t *testing.T, s source) *bundle {
	t.Helper()
	if s.files != nil {
		b, err := embedded(s)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	directory := os.Getenv(chartsVariable)
	if directory == "" {
		ctx, cancel := context.WithTimeout(t.Context(), fetchLimit)
		defer cancel()
		b, err := newCharts(Options{}).fetch(ctx, s)
		if err != nil {
			t.Skipf("%s cannot be had from %s; a directory with it can be named in %s: %v", s, s.origin, chartsVariable, err)
		}
		return b
	}
	found, err := filepath.Glob(filepath.Join(directory, s.chart+"-*.tgz"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(directory, s.chart)); err == nil {
		found = append(found, filepath.Join(directory, s.chart))
	}
	if len(found) == 0 {
		t.Skipf("%s is not in %s", s, directory)
	}
	b, err := local(source{chart: s.chart, archive: found[0]})
	if err != nil {
		t.Fatal(err)
	}
	if minor(b.version) != minor(s.version) {
		t.Fatalf("%s has version %s of the chart, and the matrix %s", found[0], b.version, s.version)
	}
	t.Logf("%s %s from %s", b.name, b.version, found[0])
	return b
}

// minor is a version without its patch level, within which charts take the same values.
func minor(version string) string {
	version = strings.TrimPrefix(version, "v")
	return version[:max(0, strings.LastIndex(version, "."))]
}

// documents are the texts of a manifest's objects.
func documents(manifest string) []string {
	split := releaseutil.SplitManifests(manifest)
	var out []string
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for name := range split {
			if !yield(name) {
				return
			}
		}
	}) {
		if text := split[name]; strings.TrimSpace(text) != "" {
			out = append(out, text)
		}
	}
	return out
}

// objectsOf reads a manifest. What a chart makes for a program of its own that applies it, as Longhorn does its StorageClass, is
// among the objects.
func objectsOf(t *testing.T, manifest string) []*unstructured.Unstructured {
	t.Helper()
	var out []*unstructured.Unstructured
	for _, text := range documents(manifest) {
		o := &unstructured.Unstructured{}
		if err := helmyaml.Unmarshal([]byte(text), &o.Object); err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if len(o.Object) == 0 {
			continue
		}
		out = append(out, o)
		if inner, _, _ := unstructured.NestedString(o.Object, "data", "storageclass.yaml"); inner != "" {
			out = append(out, objectsOf(t, inner)...)
		}
	}
	return out
}

// object is the only object of that kind and name.
func object(t *testing.T, objects []*unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	t.Helper()
	for _, o := range objects {
		if o.GetKind() == kind && o.GetName() == name {
			return o
		}
	}
	t.Fatalf("no %s %s", kind, name)
	return nil
}

// field is the value under a path of keys, as a text.
func field(o *unstructured.Unstructured, path ...string) string {
	v, ok, err := unstructured.NestedFieldNoCopy(o.Object, path...)
	if err != nil || !ok {
		return ""
	}
	if text, ok := v.(string); ok {
		return text
	}
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(b)
}

// imageForm is a reference with a tag, as images of containers and in arguments and variables.
var imageForm = regexp.MustCompile(`^([a-z0-9.:-]+(?:/[a-z0-9._-]+)+):[A-Za-z0-9._-]+(@sha256:[0-9a-f]{64})?$`)

// imagesOf lists what stands under the key image, and arguments and variables of the form of an image.
func imagesOf(v any, key string) []string {
	var out []string
	switch x := v.(type) {
	case map[string]any:
		for k, below := range x {
			out = append(out, imagesOf(below, k)...)
		}
	case []any:
		for _, below := range x {
			out = append(out, imagesOf(below, key)...)
		}
	case string:
		isImage := key == "image"
		if key == "args" || key == "command" || key == "value" {
			isImage = imageForm.MatchString(x)
		}
		if isImage && x != "" {
			out = append(out, x)
		}
	}
	return out
}

// checkImages finds images that do not come from the registry, or have a digest that it may not have, and without a registry ones
// without a version.
func checkImages(t *testing.T, objects []*unstructured.Unstructured, registry string) {
	t.Helper()
	n := 0
	for _, o := range objects {
		if o.GetKind() == "CustomResourceDefinition" {
			continue
		}
		spec := o.Object["spec"]
		if o.GetKind() == "ConfigMap" {
			var helper map[string]any
			if text, ok, _ := unstructured.NestedString(o.Object, "data", "helperPod.yaml"); ok && helmyaml.Unmarshal([]byte(text), &helper) == nil {
				spec = helper
			}
		}
		for _, image := range imagesOf(spec, "") {
			n++
			switch {
			case registry != "" && (!strings.HasPrefix(image, registry+"/") || strings.Contains(image, "@")):
				t.Errorf("%s %s has the image %s, and the registry is %s", o.GetKind(), o.GetName(), image, registry)
			case registry != "" && strings.Count(strings.TrimPrefix(image, registry+"/"), "/") != 1:
				t.Errorf("%s %s has the image %s", o.GetKind(), o.GetName(), image)
			case registry == "" && !imageForm.MatchString(image):
				t.Errorf("%s %s has the image %s", o.GetKind(), o.GetName(), image)
			}
		}
	}
	if n == 0 {
		t.Error("no image at all")
	}
}

// operatorMade are workloads that no chart makes, but the program that it installs.
var operatorMade = map[string]bool{
	"calico-node": true, "calico-kube-controllers": true,
	"longhorn-csi-plugin": true, "csi-attacher": true, "csi-provisioner": true, "csi-resizer": true, "csi-snapshotter": true,
}

// checkWorkloads finds the workloads that health waits for, and their pods by the selectors.
func checkWorkloads(t *testing.T, objects []*unstructured.Unstructured, r release) {
	t.Helper()
	for _, w := range r.workloads {
		if operatorMade[w.name] {
			continue
		}
		o := object(t, objects, string(w.kind), w.name)
		if namespace := o.GetNamespace(); namespace != w.namespace {
			t.Errorf("%s is in namespace %q", w, namespace)
		}
		labels, _, _ := unstructured.NestedStringMap(o.Object, "spec", "template", "metadata", "labels")
		if !slices.ContainsFunc(r.pods, func(p podSelector) bool {
			for key, value := range p.labels {
				if labels[key] != value {
					return false
				}
			}
			return p.namespace == w.namespace
		}) {
			t.Errorf("no selector fits the pods of %s, which have the labels %v", w, labels)
		}
	}
	if r.class == nil {
		return
	}
	class := object(t, objects, "StorageClass", r.class.name)
	if field(class, "metadata", "annotations", defaultAnnotation) != fmt.Sprint(r.class.isDefault) {
		t.Errorf("the class has the annotations %v", class.GetAnnotations())
	}
	if provisioner := field(class, "provisioner"); provisioner != r.driver {
		t.Errorf("the class is made by %s, and volumes are looked for by %s", provisioner, r.driver)
	}
	if r.class.provisioner == "" {
		return
	}
	parameters, _, _ := unstructured.NestedStringMap(class.Object, "parameters")
	options, _, _ := unstructured.NestedStringSlice(class.Object, "mountOptions")
	if fmt.Sprint(parameters) != fmt.Sprint(r.class.parameters) || !slices.Equal(options, r.class.mountOptions) {
		t.Errorf("the class has the parameters %v and options %v, and %v and %v are looked for", parameters, options, r.class.parameters, r.class.mountOptions)
	}
}

// imageKeys are the keys with a repository that the provider has for a registry, in the charts that have one for each image.
var imageKeys = map[cluster.Addon]func() []string{
	cluster.Cilium: func() []string { return keysOf(ciliumImages, "") },
	cluster.NFS:    func() []string { return keysOf(nfsImages, "image.") },
}

func keysOf(m map[string]string, prefix string) []string {
	var out []string
	for key, repository := range m {
		out = append(out, prefix+key+" "+repository)
	}
	slices.Sort(out)
	return out
}

// checkImageKeys compares the provider's keys for images with those in the chart's own values.
func checkImageKeys(t *testing.T, b *bundle, a cluster.Addon) {
	t.Helper()
	keys := imageKeys[a]
	if keys == nil {
		return
	}
	c, err := b.load()
	if err != nil {
		t.Fatal(err)
	}
	var theirs []string
	base, _ := get(c.Values, "image", "baseRepo")
	walkRepositories(c, c.Values, "", func(key, repository string) {
		if strings.HasPrefix(repository, "/") {
			repository = fmt.Sprint(base) + repository
		}
		theirs = append(theirs, key+" "+repository)
	})
	slices.Sort(theirs)
	if ours := keys(); !slices.Equal(ours, theirs) {
		t.Errorf("the chart has the images\n%s\nand the provider\n%s", strings.Join(theirs, "\n"), strings.Join(ours, "\n"))
	}
}

// walkRepositories calls f for every repository with a name in a chart's values.
func walkRepositories(c *chart.Chart, values map[string]any, path string, f func(key, repository string)) {
	for key, value := range values {
		switch v := value.(type) {
		case map[string]any:
			walkRepositories(c, v, strings.TrimPrefix(path+"."+key, "."), f)
		case string:
			if key == "repository" && v != "" {
				f(path, v)
			}
		}
	}
}
