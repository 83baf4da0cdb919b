package provider

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

var chartTypes = map[string]attr.Type{"repository": types.StringType, "archive": types.StringType, "version": types.StringType}

// chartOf reads what an add-on's object says of its chart.
func chartOf(addon types.Object) record.Chart {
	o := part[types.Object](addon, "chart")
	return record.Chart{
		Repository: part[types.String](o, "repository").ValueString(), Archive: part[types.String](o, "archive").ValueString(),
		Version: part[types.String](o, "version").ValueString(), Values: part[types.String](addon, "values_yaml").ValueString(),
	}
}

// newChart renders where a chart comes from, null where nothing is said of it.
func newChart(c record.Chart) types.Object {
	if c.Repository == "" && c.Archive == "" && c.Version == "" {
		return types.ObjectNull(chartTypes)
	}
	return types.ObjectValueMust(chartTypes, map[string]attr.Value{
		"repository": stringValue(c.Repository), "archive": stringValue(c.Archive), "version": stringValue(c.Version),
	})
}

// upgradesRelease is what a change of an add-on's values or chart means.
const upgradesRelease = inPlace + " It upgrades the add-on's Helm release."

// addChart adds the attributes that say where the chart of an add-on comes from, and valuesAttribute what it is given.
func addChart(attributes map[string]schema.Attribute) {
	attributes["values_yaml"] = valuesAttribute()
	attributes["chart"] = chartAttribute()
}

func valuesAttribute() schema.StringAttribute {
	return schema.StringAttribute{
		Optional: true,
		MarkdownDescription: "YAML with values of the chart, merged over those of the provider: maps are merged, everything else takes the place of what stands there. What the provider has to " +
			"set itself is refused when the configuration is validated, with the attribute to use instead. It stands in the state and in the VMs' metadata: no place for secrets. Default: no values. " + upgradesRelease,
	}
}

func chartAttribute() schema.SingleNestedAttribute {
	text := func(description string, validators ...validator.String) schema.StringAttribute {
		return schema.StringAttribute{Optional: true, MarkdownDescription: description + " " + upgradesRelease, Validators: validators}
	}
	return schema.SingleNestedAttribute{
		Optional: true,
		MarkdownDescription: "Where the chart comes from. Default: the version that this release of the provider was tested with, from the provider's `charts.repository` or else from the chart's own project. " +
			upgradesRelease,
		Attributes: map[string]schema.Attribute{
			"repository": text("URL of the repository, in place of the provider's `charts.repository`: `https://` or `http://` for one with an `index.yaml`, `oci://` for a registry. "+
				"Credentials are for the provider's `charts` alone.", chartRepositoryForm("chart.repository")),
			"archive": text("Path, on the machine that runs Terraform, of a packed chart or of its directory, in place of a repository; not with `repository` or `version`.",
				stringvalidator.LengthAtLeast(1),
				stringvalidator.ConflictsWith(path.MatchRelative().AtParent().AtName("repository"), path.MatchRelative().AtParent().AtName("version"))),
			"version": text("Version of the chart, such as `1.20.2` or `v3.32.2`, as its repository names it. The provider was tested with the default alone."),
		},
	}
}

// chartRepositoryForm is that of the URL of a repository of charts. What is refused may hold a password.
func chartRepositoryForm(attribute string) form {
	return form{thing: attribute, rule: "an https, http or oci URL", secret: true, check: checkChartRepository}
}

func checkChartRepository(s string) error {
	u, err := url.Parse(s)
	switch {
	case err != nil, u.Host == "", u.Scheme != "https" && u.Scheme != "http" && u.Scheme != "oci":
		return errors.New(`it has to begin with https://, http:// or oci:// and a host, such as "https://mirror.example/charts" or "oci://registry.example/charts"`)
	case u.User != nil:
		return errors.New(`it holds credentials, which would stand in plans and logs; give them as username and password of the provider's charts`)
	case u.RawQuery != "" || u.Fragment != "":
		return errors.New("it has a query or a fragment; write scheme, host and path alone")
	case u.Scheme == "oci" && strings.Trim(u.Path, "/") == "":
		return fmt.Errorf(`it names a registry and no place in it; write the path that the charts stand below, such as "oci://%s/charts"`, u.Host)
	}
	return nil
}
