package provider

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"go.yaml.in/yaml/v3"
)

// each visits every attribute of a schema with its path.
func each(at string, attributes []*tfprotov6.SchemaAttribute, visit func(path string, a *tfprotov6.SchemaAttribute)) {
	for _, a := range attributes {
		path := at + "." + a.Name
		visit(path, a)
		if a.NestedType != nil {
			each(path, a.NestedType.Attributes, visit)
		}
	}
}

// eachSchema visits every attribute of the provider, its resources and its data sources.
func eachSchema(w *world, visit func(path string, a *tfprotov6.SchemaAttribute)) {
	each("provider", w.schemas.Provider.Block.Attributes, visit)
	for name, s := range w.schemas.ResourceSchemas {
		each(name, s.Block.Attributes, visit)
	}
	for name, s := range w.schemas.DataSourceSchemas {
		each("data."+name, s.Block.Attributes, visit)
	}
}

func TestEveryAttributeHasADescription(t *testing.T) {
	w := newWorld(t, someTemplate())
	eachSchema(w, func(path string, a *tfprotov6.SchemaAttribute) {
		if !strings.HasSuffix(a.Description, ".") {
			t.Errorf("%s: the description %q is no sentence", path, a.Description)
		}
		if a.Optional && a.Computed && !strings.Contains(a.Description, "Default") {
			t.Errorf("%s: the description %q does not name the default", path, a.Description)
		}
	})
}

// The kubeconfig and the token of a cluster stand in no resource; what is secret elsewhere is marked.
func TestSecretsInSchemas(t *testing.T) {
	w := newWorld(t, someTemplate())
	suspicious := regexp.MustCompile(`(?i)kubeconfig|token|secret|password|client_key|raw`)
	for name, s := range w.schemas.ResourceSchemas {
		each(name, s.Block.Attributes, func(path string, a *tfprotov6.SchemaAttribute) {
			if suspicious.MatchString(a.Name) || a.Sensitive && a.Name != "registries_yaml" { // It is the user's, who wrote it down elsewhere, too.
				t.Errorf("%s would put a secret into the state", path)
			}
		})
	}
	var sensitive []string
	eachSchema(w, func(path string, a *tfprotov6.SchemaAttribute) {
		if a.Sensitive {
			sensitive = append(sensitive, path)
		}
	})
	slices.Sort(sensitive)
	want := []string{
		"cockpit_k3s_cluster.control_plane.registries_yaml", "cockpit_k3s_node_pool.registries_yaml",
		"data.cockpit_kubeconfig.client_key", "data.cockpit_kubeconfig.raw", "provider.charts.password", "provider.k3s.github_token",
	}
	if !slices.Equal(sensitive, want) {
		t.Errorf("sensitive attributes: got %v, want %v", sensitive, want)
	}
}

// A value that comes from elsewhere is unknown when a configuration is validated and planned.
func TestUnknownValuesAreValid(t *testing.T) {
	w := newWorld(t, someTemplate())
	for name, s := range w.schemas.ResourceSchemas {
		config := object{}
		each("", s.Block.Attributes, func(path string, a *tfprotov6.SchemaAttribute) {
			if strings.Count(path, ".") == 1 && (a.Required || a.Optional) {
				config[a.Name] = unknown
			}
		})
		t.Run(name, func(t *testing.T) { wantDiags(t, w.validate(name, config)) })
		for attribute := range config {
			t.Run(name+"/"+attribute, func(t *testing.T) {
				base := map[string]object{clusterType: clusterConfig(), poolType: poolConfig()}[name]
				one := with(base, object{attribute: unknown})
				wantDiags(t, w.validate(name, one))
				wantDiags(t, w.plan(name, nil, one).diags)
			})
		}
	}
	for name, config := range map[string]object{
		"all":     {"hypervisors": unknown, "template": unknown, "k3s": unknown, "charts": unknown, "image_registry": unknown, "parallelism": unknown},
		"uri":     {"hypervisors": object{"a": object{"uri": unknown}}, "template": object{"hypervisor": "b", "pool": unknown, "volume": "v"}},
		"nothing": {},
	} {
		t.Run("provider/"+name, func(t *testing.T) { wantDiags(t, w.validateProvider(config)) })
	}
}

// The registry offers the provider to those versions of Terraform that speak the protocol of the manifest.
func TestManifestAgreesWithServer(t *testing.T) {
	raw, err := os.ReadFile("../../terraform-registry-manifest.json")
	if err != nil {
		t.Fatal(err)
	}
	var manifest struct {
		Version  int
		Metadata struct {
			ProtocolVersions []string `json:"protocol_versions"`
		}
	}
	if err := json.Unmarshal(raw, &manifest); err != nil {
		t.Fatal(err)
	}
	want := []string{fmt.Sprintf("%d.0", ProtocolVersion)}
	if manifest.Version != 1 || !slices.Equal(manifest.Metadata.ProtocolVersions, want) {
		t.Errorf("got %+v, want version 1 with protocol versions %v", manifest, want)
	}
}

// The guide names the charts that the provider was tested with.
func TestGuideNamesTheCharts(t *testing.T) {
	raw, err := os.ReadFile("../addons/matrix.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var matrix map[string]struct{ Repository, Chart, CRDs, Version string }
	if err := yaml.Unmarshal(raw, &matrix); err != nil || len(matrix) == 0 {
		t.Fatalf("matrix.yaml: %v", err)
	}
	guide, err := os.ReadFile("../../templates/guides/networking-and-storage.md.tmpl")
	if err != nil {
		t.Fatal(err)
	}
	for name, pinned := range matrix {
		charts, repository := "`"+pinned.Chart+"`", "the provider itself"
		if pinned.CRDs != "" {
			charts += ", `" + pinned.CRDs + "`"
		}
		if pinned.Repository != "" {
			repository = "`" + pinned.Repository + "`"
		}
		row := fmt.Sprintf("| `%s` | %s | %s | %s |", name, charts, pinned.Version, repository)
		if !strings.Contains(string(guide), row) {
			t.Errorf("the guide lacks the row %s", row)
		}
	}
}
