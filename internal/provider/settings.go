package provider

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/addons"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/hypervisor"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/k3s"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
)

const (
	// defaultHypervisor names the one hypervisor of a provider without hypervisors.
	defaultHypervisor       = "default"
	defaultURI              = "qemu:///system"
	defaultInstallScriptURL = "https://get.k3s.io"

	envURI    = "LIBVIRT_DEFAULT_URI"
	envGitHub = "GITHUB_TOKEN"
)

// providerModel is the provider's configuration.
type providerModel struct {
	Hypervisors types.Map    `tfsdk:"hypervisors"`
	Template    types.Object `tfsdk:"template"`
	K3s         types.Object `tfsdk:"k3s"`
	Charts      types.Object `tfsdk:"charts"`
	Registry    types.String `tfsdk:"image_registry"`
	Parallelism types.Number `tfsdk:"parallelism"`
}

type hypervisorModel struct {
	URI              types.String `tfsdk:"uri"`
	VirtType         types.String `tfsdk:"virt_type"`
	Schedulable      types.Bool   `tfsdk:"schedulable"`
	CPUOvercommit    types.Number `tfsdk:"cpu_overcommit"`
	MemoryOvercommit types.Number `tfsdk:"memory_overcommit"`
	DiskOvercommit   types.Number `tfsdk:"disk_overcommit"`
}

type templateModel struct {
	Hypervisor types.String `tfsdk:"hypervisor"`
	Pool       types.String `tfsdk:"pool"`
	Volume     types.String `tfsdk:"volume"`
	Shared     types.Bool   `tfsdk:"shared"`
}

type k3sModel struct {
	InstallScriptURL types.String `tfsdk:"install_script_url"`
	ReleasesURL      types.String `tfsdk:"releases_url"`
	GitHubToken      types.String `tfsdk:"github_token"`
}

// settings is the provider's configuration with everything that it leaves out.
type settings struct {
	hypervisors map[string]hypervisor.Config
	// template is nil where the configuration has none.
	template         *hypervisor.TemplateRef
	installScriptURL string
	charts           addons.Options
	parallelism      int
}

// names lists the hypervisors.
func (s settings) names() []string { return slices.Sorted(maps.Keys(s.hypervisors)) }

// origin is where the list of k3s releases comes from.
type origin struct {
	// url is "" for the k3s project's own list.
	url   string
	token k3s.Token
}

// resolve completes a configuration whose values are all known from the environment and the defaults.
func (m providerModel) resolve(ctx context.Context, diags *diag.Diagnostics) settings {
	s := settings{parallelism: cmp.Or(integer(m.Parallelism), cluster.DefaultParallelism)}
	s.hypervisors = m.resolveHypervisors(ctx, diags)
	s.installScriptURL = cmp.Or(newK3sModel(ctx, m.K3s, diags).InstallScriptURL.ValueString(), defaultInstallScriptURL)
	s.charts = chartsOf(m.Charts, diags)
	if !m.Template.IsNull() {
		s.template = m.resolveTemplate(ctx, s.hypervisors, diags)
	}
	return s
}

func newK3sModel(ctx context.Context, value types.Object, diags *diag.Diagnostics) k3sModel {
	var m k3sModel
	diags.Append(value.As(ctx, &m, basetypes.ObjectAsOptions{UnhandledNullAsEmpty: true, UnhandledUnknownAsEmpty: true})...)
	return m
}

// origin completes the place of the releases, whose values are all known, from the environment. The token in the
// environment is meant for GitHub, and is shown to no other server.
func (m k3sModel) origin(diags *diag.Diagnostics) origin {
	o := origin{url: m.ReleasesURL.ValueString()}
	if secret := m.GitHubToken.ValueString(); secret != "" {
		o.token = k3s.Token{Secret: secret, Origin: "the provider's k3s.github_token"}
	} else if secret = os.Getenv(envGitHub); secret != "" && o.url == "" {
		o.token = k3s.Token{Secret: secret, Origin: "the environment variable " + envGitHub}
	}
	if o.token.Secret != "" && strings.HasPrefix(o.url, "http://") {
		task{"use", "k3s.github_token", ""}.failAt(diags, path.Root("k3s").AtName("github_token"), &cluster.Failure{
			Err:    errors.New("the token would be sent unencrypted to releases_url, which begins with http://"),
			Remedy: "give a releases_url that begins with https://, or no token: a mirror rarely needs one.",
		})
	}
	return o
}

func (m providerModel) resolveHypervisors(ctx context.Context, diags *diag.Diagnostics) map[string]hypervisor.Config {
	if m.Hypervisors.IsNull() {
		uri := cmp.Or(os.Getenv(envURI), defaultURI)
		if err := checkURI(uri); err != nil {
			task{"use", "environment variable", envURI}.fail(diags, err)
		}
		return map[string]hypervisor.Config{defaultHypervisor: {URI: uri, Schedulable: true, Overcommit: machine.DefaultOvercommit}}
	}
	var objects map[string]types.Object
	diags.Append(m.Hypervisors.ElementsAs(ctx, &objects, false)...)
	out := make(map[string]hypervisor.Config, len(objects))
	for name, object := range objects {
		var h hypervisorModel // of a null, which the schema refuses, it stays empty
		diags.Append(object.As(ctx, &h, basetypes.ObjectAsOptions{UnhandledNullAsEmpty: true})...)
		out[name] = hypervisor.Config{
			URI: h.URI.ValueString(), VirtType: h.VirtType.ValueString(), Schedulable: h.Schedulable.IsNull() || h.Schedulable.ValueBool(),
			Overcommit: machine.Overcommit{
				CPU:    or(h.CPUOvercommit, machine.DefaultOvercommit.CPU),
				Memory: or(h.MemoryOvercommit, machine.DefaultOvercommit.Memory),
				Disk:   or(h.DiskOvercommit, machine.DefaultOvercommit.Disk),
			},
		}
	}
	return out
}

func (m providerModel) resolveTemplate(ctx context.Context, hypervisors map[string]hypervisor.Config, diags *diag.Diagnostics) *hypervisor.TemplateRef {
	var t templateModel
	diags.Append(m.Template.As(ctx, &t, basetypes.ObjectAsOptions{})...)
	ref := &hypervisor.TemplateRef{Hypervisor: t.Hypervisor.ValueString(), Pool: t.Pool.ValueString(), Volume: t.Volume.ValueString(), Shared: t.Shared.ValueBool()}
	names := slices.Sorted(maps.Keys(hypervisors))
	at := path.Root("template").AtName("hypervisor")
	switch _, listed := hypervisors[ref.Hypervisor]; {
	case listed:
	case ref.Hypervisor == "" && len(names) == 1:
		ref.Hypervisor = names[0]
	case ref.Hypervisor == "":
		task{"use", "template", ref.Volume}.failAt(diags, at, errors.New(
			"with several hypervisors it has to say on which of them it stands: "+strings.Join(names, ", ")))
	default:
		task{"use", "template", ref.Volume}.failAt(diags, at, unknownHypervisor(ref.Hypervisor, names))
	}
	return ref
}

// or is the value of a number, or another where it is null.
func or(n types.Number, other float64) float64 {
	if n.IsNull() {
		return other
	}
	f, _ := n.ValueBigFloat().Float64()
	return f
}
