package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cloudinit"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/k3s"
)

// extraModel is what the user gives to guests beside the arguments of k3s. It may hold secrets.
type extraModel struct {
	RegistriesYAML types.String `tfsdk:"registries_yaml"`
	ExtraUserData  types.String `tfsdk:"extra_user_data"`
}

// extra is what guests are given, with the arguments of k3s.
func (m extraModel) extra(args types.List) cluster.Extra {
	return cluster.Extra{Args: texts(args), Registries: m.RegistriesYAML.ValueString(), UserData: m.ExtraUserData.ValueString()}
}

// known is the model with what is known of the guests: records hold no text, so that a text is null where it is not the one
// that the state has.
func (m extraModel) known(x cluster.Extra) extraModel {
	return extraModel{
		RegistriesYAML: kept(m.RegistriesYAML, types.String.ValueString, x.Registries, stringValue),
		ExtraUserData:  kept(m.ExtraUserData, types.String.ValueString, x.UserData, stringValue),
	}
}

// assuming is the model with the values of a state where they are not known yet.
func (m extraModel) assuming(state extraModel) extraModel {
	return extraModel{wholeOr(m.RegistriesYAML, state.RegistriesYAML), wholeOr(m.ExtraUserData, state.ExtraUserData)}
}

// addExtra adds the attributes of extraModel, and that of the arguments, under its name. Of is what gets them.
func addExtra(attributes map[string]schema.Attribute, args, of string, role k3s.Role, c consequences) {
	attributes[args] = schema.ListAttribute{
		Optional: true, ElementType: types.StringType,
		MarkdownDescription: "More arguments of k3s for the " + of + ", each `--name=value` or `--name`, such as `--kubelet-arg=max-pods=50`. " +
			"Those that the provider sets itself, or that have an attribute of their own, are refused. They stand in a file on the nodes and in the VMs' metadata: no place for secrets. " + c.restarted,
		Validators: []validator.List{noNulls{}, argsRule{attribute: args, role: role}},
	}
	attributes["registries_yaml"] = schema.StringAttribute{
		Optional: true, Sensitive: true,
		MarkdownDescription: "Text of the [`registries.yaml`](https://docs.k3s.io/installation/private-registry) of k3s on the " + of + ": mirrors and credentials of image registries. It stands in the " +
			"state and on the nodes, where only root reads it; the VMs' metadata has a digest. " + c.restarted,
		Validators: []validator.String{form{
			thing: "registries_yaml", rule: "a registries.yaml of k3s", check: k3s.CheckRegistries, secret: true,
		}},
	}
	attributes["extra_user_data"] = schema.StringAttribute{
		Optional: true,
		MarkdownDescription: "A [cloud-config](https://cloudinit.readthedocs.io/en/latest/reference/examples.html) in YAML for the " + of + ", merged into that of the provider, whose own settings it cannot alter: maps are " +
			"merged, lists joined with these elements first. It runs once, when a node is made. It stands in the state and on the nodes; the VMs' metadata has a digest. " + c.replaced,
		Validators: []validator.String{form{
			thing: "extra_user_data", rule: "a cloud-config", check: cloudinit.CheckExtra, secret: true,
		}},
	}
}

// argsRule validates arguments of k3s.
type argsRule struct {
	attribute string
	role      k3s.Role
}

// Description returns the rule.
func (argsRule) Description(context.Context) string {
	return "arguments of k3s that the provider does not set itself"
}

// MarkdownDescription returns the rule.
func (r argsRule) MarkdownDescription(ctx context.Context) string { return r.Description(ctx) }

// ValidateList checks what is known.
func (r argsRule) ValidateList(_ context.Context, req validator.ListRequest, resp *validator.ListResponse) {
	var args []string
	for _, e := range req.ConfigValue.Elements() {
		if s, ok := e.(types.String); ok && !s.IsNull() && known(s) {
			args = append(args, s.ValueString())
		}
	}
	if err := k3s.CheckArgs(r.role, args); err != nil {
		task{"use", r.attribute, ""}.failAt(&resp.Diagnostics, req.Path, err)
	}
}
