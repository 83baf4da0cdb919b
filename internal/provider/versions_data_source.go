package provider

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/k3s"
)

type versionsDataSource struct{ backend *backend }

var _ datasource.DataSourceWithConfigure = (*versionsDataSource)(nil)

func newVersionsDataSource() datasource.DataSource { return &versionsDataSource{} }

type versionsModel struct {
	Minor              types.String `tfsdk:"minor"`
	IncludePrereleases types.Bool   `tfsdk:"include_prereleases"`
	Versions           types.List   `tfsdk:"versions"`
	Latest             types.String `tfsdk:"latest"`
	Source             types.String `tfsdk:"source"`
}

// Metadata names the data source.
func (d *versionsDataSource) Metadata(_ context.Context, _ datasource.MetadataRequest, resp *datasource.MetadataResponse) {
	resp.TypeName = typeName + "_k3s_versions"
}

// Schema describes the data source.
func (d *versionsDataSource) Schema(_ context.Context, _ datasource.SchemaRequest, resp *datasource.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "The releases of k3s. Where GitHub, or the provider's `k3s.releases_url`, does not answer as it should, it is a list " +
			"that came with the provider, with a warning that says why.",
		Attributes: map[string]schema.Attribute{
			"minor": schema.StringAttribute{
				Optional:            true,
				MarkdownDescription: "Only releases of this minor version, for example `1.36`. Default: all.",
				Validators:          []validator.String{minorForm()},
			},
			"include_prereleases": schema.BoolAttribute{
				Optional:            true,
				MarkdownDescription: "Whether release candidates are listed too. Default `false`.",
			},
			"versions": schema.ListAttribute{
				Computed: true, ElementType: types.StringType,
				MarkdownDescription: "The releases, newest version first.",
			},
			"latest": schema.StringAttribute{
				Computed:            true,
				MarkdownDescription: "The newest version that is no release candidate. It moves on with every release: a cluster that names it is planned with an error then.",
			},
			"source": schema.StringAttribute{
				Computed:            true,
				MarkdownDescription: "`github` (or the provider's `k3s.releases_url`), or `embedded` for the list that came with the provider.",
			},
		},
	}
}

// Configure takes over the provider's data.
func (d *versionsDataSource) Configure(_ context.Context, req datasource.ConfigureRequest, resp *datasource.ConfigureResponse) {
	d.backend = backendOf(req.ProviderData, &resp.Diagnostics)
}

// Read lists the releases.
func (d *versionsDataSource) Read(ctx context.Context, req datasource.ReadRequest, resp *datasource.ReadResponse) {
	var m versionsModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &m)...)
	list := task{"list", "k3s versions", m.Minor.ValueString()}
	if resp.Diagnostics.HasError() {
		return
	}
	if d.backend == nil || d.backend.releases == nil {
		list.fail(&resp.Diagnostics, errUnknownProvider)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, cluster.DefaultReadTimeout)
	defer cancel()
	all, err := d.backend.releases.List(ctx)
	if err != nil {
		list.fail(&resp.Diagnostics, err)
		return
	}
	if all.Reason != "" {
		what := "The list of k3s versions is the one that came with the provider"
		if all.Source != k3s.SourceEmbedded {
			what = "The list of k3s versions is not complete"
		}
		resp.Diagnostics.AddWarning(what, "Why: "+all.Reason+".")
	}
	m.set(ctx, all, list, &resp.Diagnostics)
	if !resp.Diagnostics.HasError() {
		resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
	}
}

func (m *versionsModel) set(ctx context.Context, all k3s.ReleaseList, t task, diags *diag.Diagnostics) {
	filter := k3s.Filter{Prereleases: m.IncludePrereleases.ValueBool()}
	if minor := m.Minor.ValueString(); minor != "" {
		var err error
		if filter.Minor, err = k3s.ParseMinor(minor); err != nil {
			t.fail(diags, err)
			return
		}
	}
	listed := filter.Apply(all.Versions)
	if len(listed) == 0 {
		which := "The list"
		if all.Source == k3s.SourceEmbedded {
			which = "The list that came with the provider"
		}
		t.fail(diags, fmt.Errorf("%s has no release of k3s %s", which, filter.Minor))
		return
	}
	tags := make([]string, 0, len(listed))
	for _, v := range listed {
		tags = append(tags, v.String())
	}
	m.Latest = types.StringNull()
	if latest, ok := k3s.Latest(listed); ok {
		m.Latest = types.StringValue(latest.String())
	}
	m.Source = types.StringValue(string(all.Source))
	list, d := types.ListValueFrom(ctx, types.StringType, tags)
	diags.Append(d...)
	m.Versions = list
}
