package provider

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework-validators/mapvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/addons"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/hypervisor"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/k3s"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/kube"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
)

// Address is where Terraform and OpenTofu find the provider.
const Address = "registry.terraform.io/cockpit-k3s/cockpit"

// ProtocolVersion is the version of Terraform's plugin protocol that the provider speaks; nested attributes need 6. It
// stands in terraform-registry-manifest.json too.
const ProtocolVersion = 6

// typeName begins the type names of all resources and data sources.
const typeName = "cockpit"

// cockpit is the provider. What it is made of does no I/O before it is asked.
type cockpit struct {
	version string
	// check says what is wrong with add-ons before anything is configured.
	check func(cluster.AddonSpec) []cluster.Problem
	// untested says which charts were not tested with a cluster's version of Kubernetes.
	untested func(cluster.AddonSpec) []string
	// connect makes the engine, and list the client for the list of k3s releases.
	connect func(settings) engine
	list    func(origin) (releases, error)
}

var (
	_ provider.Provider                   = (*cockpit)(nil)
	_ provider.ProviderWithValidateConfig = (*cockpit)(nil)
)

// New returns the provider of a release.
func New(version string) func() provider.Provider {
	return func() provider.Provider {
		catalogue := addons.New(addons.Options{})
		return &cockpit{version: version, check: catalogue.Check, untested: catalogue.Untested, connect: connect, list: list}
	}
}

// Metadata names the provider.
func (p *cockpit) Metadata(_ context.Context, _ provider.MetadataRequest, resp *provider.MetadataResponse) {
	resp.TypeName, resp.Version = typeName, p.version
}

// Schema describes the provider's configuration.
func (p *cockpit) Schema(_ context.Context, _ provider.SchemaRequest, resp *provider.SchemaResponse) {
	resp.Schema = schema.Schema{
		MarkdownDescription: "Makes k3s clusters of virtual machines on libvirt hypervisors.",
		Attributes: map[string]schema.Attribute{
			"hypervisors": schema.MapNestedAttribute{
				Optional: true,
				MarkdownDescription: "The hypervisors by a name of your choice. It stands in the state only: after a renaming the nodes are found under the new name. " +
					"Omitted: one hypervisor `default` at the environment variable `LIBVIRT_DEFAULT_URI`, or else at `qemu:///system`.",
				Validators: []validator.Map{
					mapvalidator.SizeAtLeast(1),
					mapvalidator.KeysAre(hypervisorNameForm()),
					noNulls{},
				},
				NestedObject: schema.NestedAttributeObject{Attributes: hypervisorAttributes()},
			},
			"template": schema.SingleNestedAttribute{
				Optional: true,
				MarkdownDescription: "The golden image that nodes are cloned from: a qcow2 volume with cloud-init and qemu-guest-agent. " +
					"Resources need it as soon as they make nodes.",
				Attributes: templateAttributes(),
			},
			"k3s": schema.SingleNestedAttribute{
				Optional:            true,
				MarkdownDescription: "Where k3s comes from.",
				Attributes:          k3sAttributes(),
			},
			"charts": schema.SingleNestedAttribute{
				Optional: true,
				MarkdownDescription: "A mirror for the charts of all add-ons, in place of the repositories of their projects. This machine fetches charts, not the nodes. " +
					"Default: each chart comes from its project.",
				Attributes: chartsAttributes(),
			},
			"image_registry": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "Registry, as `host[:port][/path]`, that mirrors the images of k3s and of the add-ons under their own names, such as `registry.example:5000` with `cilium/cilium` for `quay.io/cilium/cilium`. " +
					"How nodes trust it and log in to it is told by `registries_yaml`. A change is taken over in place by the next apply of each cluster. Default: each image comes from its own registry.",
				Validators: []validator.String{imageRegistryForm()},
			},
			"parallelism": schema.NumberAttribute{
				Optional:            true,
				MarkdownDescription: "How many nodes are worked on at once on each hypervisor, 1 to 16. Default `4`.",
				Validators:          []validator.Number{wholeNumber{1, 16}},
			},
		},
	}
}

func hypervisorAttributes() map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"uri": schema.StringAttribute{
			Required: true,
			MarkdownDescription: "libvirt URI, for example `qemu:///system` or `qemu+ssh://root@hv-a.example/system`. " +
				"Over SSH the machine's `ssh` is used, with its configuration and agent; it never prompts.",
			Validators: []validator.String{uriForm()},
		},
		"virt_type": schema.StringAttribute{
			Optional: true,
			MarkdownDescription: "`kvm`, or `qemu` for emulation, which is many times slower. " +
				"Default: `kvm` where the hypervisor offers it.",
			Validators: []validator.String{oneOf("virt_type", "kvm", "qemu")},
		},
		"schedulable": schema.BoolAttribute{
			Optional:            true,
			MarkdownDescription: "Whether new nodes may go there; those that stand there stay. Default `true`.",
		},
		"cpu_overcommit":    overcommit("Virtual CPUs that VMs may have for each CPU of the hypervisor,", machine.DefaultOvercommit.CPU, 100),
		"memory_overcommit": overcommit("Memory that VMs may have, as a multiple of the hypervisor's,", machine.DefaultOvercommit.Memory, 10),
		"disk_overcommit":   overcommit("Room for the disks of new nodes, as a multiple of what is free in the storage pool,", machine.DefaultOvercommit.Disk, 100),
	}
}

// overcommit is the attribute for one kind of resource.
func overcommit(description string, def, most float64) schema.NumberAttribute {
	const least = 0.1
	return schema.NumberAttribute{
		Optional:            true,
		MarkdownDescription: fmt.Sprintf("%s %g to %g; below 1 a part stays free. It rules where new nodes go. Default `%g`.", description, least, most, def),
		Validators:          []validator.Number{factor{least, most}},
	}
}

func templateAttributes() map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"hypervisor": schema.StringAttribute{
			Optional:            true,
			MarkdownDescription: "The hypervisor that the image stands on, a key of `hypervisors`. It may be left out where there is one hypervisor.",
		},
		"pool": schema.StringAttribute{
			Required:            true,
			MarkdownDescription: "libvirt storage pool that holds the image.",
			Validators:          []validator.String{stringvalidator.LengthAtLeast(1)},
		},
		"volume": schema.StringAttribute{
			Required:            true,
			MarkdownDescription: "Name of the image's volume in the pool.",
			Validators:          []validator.String{stringvalidator.LengthAtLeast(1)},
		},
		"shared": schema.BoolAttribute{
			Optional: true,
			MarkdownDescription: "Whether `pool` is one storage that every hypervisor with a pool of that name sees, such as an NFS export: then no copy of the image is made for them. " +
				"Pools that libvirt itself tells to be the same need it not. Default `false`.",
		},
	}
}

func k3sAttributes() map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"install_script_url": schema.StringAttribute{
			Optional:            true,
			MarkdownDescription: "URL of the k3s install script, which new nodes download. Default `" + defaultInstallScriptURL + "`.",
			Validators:          []validator.String{httpForm()},
		},
		"releases_url": schema.StringAttribute{
			Optional: true,
			MarkdownDescription: "URL of the list of k3s releases, in the form of GitHub's REST API. " +
				"Default: that of the k3s project on GitHub.",
			Validators: []validator.String{httpForm()},
		},
		"github_token": schema.StringAttribute{
			Optional: true, Sensitive: true,
			MarkdownDescription: "Token for GitHub, which allows more requests for the list of releases; it is sent over https only. " +
				"Default: the environment variable `GITHUB_TOKEN`, unless `releases_url` is set.",
		},
	}
}

// ValidateConfig finds what does not fit together, where every value is known.
func (p *cockpit) ValidateConfig(ctx context.Context, req provider.ValidateConfigRequest, resp *provider.ValidateConfigResponse) {
	if !req.Config.Raw.IsFullyKnown() {
		return
	}
	var m providerModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &m)...)
	if !resp.Diagnostics.HasError() {
		m.resolve(ctx, &resp.Diagnostics)
		newK3sModel(ctx, m.K3s, &resp.Diagnostics).origin(&resp.Diagnostics)
	}
}

// Configure prepares what resources and data sources ask; connections are made when they are first needed. With a value
// that is not known yet there is no engine, and resources plan without their checks. The list of releases needs no more
// than its own two values.
func (p *cockpit) Configure(ctx context.Context, req provider.ConfigureRequest, resp *provider.ConfigureResponse) {
	b := &backend{known: req.Config.Raw.IsFullyKnown()}
	resp.ResourceData, resp.DataSourceData = b, b
	resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root("image_registry"), &b.imageRegistry)...)
	var source types.Object
	resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root("k3s"), &source)...)
	k := newK3sModel(ctx, source, &resp.Diagnostics)
	if known(source, k.ReleasesURL, k.GitHubToken) && !resp.Diagnostics.HasError() {
		var err error
		if b.releases, err = p.list(k.origin(&resp.Diagnostics)); err != nil && !resp.Diagnostics.HasError() {
			task{"configure", "provider", typeName}.fail(&resp.Diagnostics, err)
		}
	}
	if !b.known || resp.Diagnostics.HasError() {
		return
	}
	var m providerModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	if b.settings = m.resolve(ctx, &resp.Diagnostics); !resp.Diagnostics.HasError() {
		b.engine = p.connect(b.settings)
	}
}

// Resources lists the resources.
func (p *cockpit) Resources(context.Context) []func() resource.Resource {
	return []func() resource.Resource{func() resource.Resource { return &clusterResource{check: p.check, untested: p.untested} }, newPoolResource}
}

// DataSources lists the data sources.
func (p *cockpit) DataSources(context.Context) []func() datasource.DataSource {
	return []func() datasource.DataSource{newKubeconfigDataSource, newVersionsDataSource}
}

// connect makes the engine over the libvirt fleet.
func connect(s settings) engine {
	var template hypervisor.TemplateRef
	if s.template != nil {
		template = *s.template
	}
	fleet := hypervisor.New(s.hypervisors, template, s.parallelism)
	dial := func(kubeconfig []byte) (cluster.Kube, error) { return kube.New(kubeconfig) }
	return cluster.New(fleet, dial, cluster.Options{Parallelism: s.parallelism, InstallScriptURL: s.installScriptURL, Catalogue: addons.New(s.charts)})
}

// list makes the client for the list of k3s releases.
func list(o origin) (releases, error) {
	client, err := k3s.NewClient(o.url, o.token)
	if err != nil {
		return nil, err
	}
	return client, nil
}
