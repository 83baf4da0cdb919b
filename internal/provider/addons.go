package provider

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
)

// addonModel is an add-on in the state; what is not known of it is null.
type addonModel struct {
	Chart     types.String `tfsdk:"chart"`
	Version   types.String `tfsdk:"version"`
	Namespace types.String `tfsdk:"namespace"`
	Status    types.String `tfsdk:"status"`
	Reason    types.String `tfsdk:"reason"`
}

func addonsAttribute() schema.MapNestedAttribute {
	computed := func(description string) schema.StringAttribute {
		return schema.StringAttribute{Computed: true, MarkdownDescription: description}
	}
	return schema.MapNestedAttribute{
		Computed: true,
		MarkdownDescription: "The add-ons that the provider installs by Helm, by name: `calico`, `cilium`, `local-path`, `nfs`, `longhorn`. Flannel is none of them, it is part of k3s. " +
			"It stays known in every plan that changes none of them.",
		NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
			"chart":     computed("Name of the installed chart."),
			"version":   computed("Version of the installed chart."),
			"namespace": computed("Namespace of the Helm release."),
			"status": computed("`deployed`, `missing`, `failed` (its installation or change did not come to its end), `drifted` (another chart, other values or another StorageClass than wanted), " +
				"`unwanted`, or `unknown` where the cluster's API could not be asked. All but `deployed` and `unknown` are mended by the next apply."),
			"reason": computed("Why the status is not `deployed`."),
		}},
	}
}

// addonsValue renders add-ons for the state, null where they were not looked at.
func addonsValue(ctx context.Context, addons cluster.AddonStatuses, diags *diag.Diagnostics) types.Map {
	of := addonsAttribute().NestedObject.Type()
	if addons == nil {
		return types.MapNull(of)
	}
	models := make(map[string]addonModel, len(addons))
	for name, a := range addons {
		models[string(name)] = addonModel{
			Chart: stringValue(a.Chart), Version: stringValue(a.Version), Namespace: stringValue(a.Namespace),
			Status: stringValue(string(a.State)), Reason: stringValue(a.Reason),
		}
	}
	value, d := types.MapValueFrom(ctx, of, models)
	diags.Append(d...)
	return value
}

// remembered completes what was seen of add-ons by what a state knows of those that cannot be looked at now.
func remembered(seen, state cluster.AddonStatuses) cluster.AddonStatuses {
	out := maps.Clone(seen)
	for name, a := range out {
		if was, ok := state[name]; ok && a.State == cluster.AddonUnknown && a.Version == "" {
			was.State, was.Reason = a.State, a.Reason
			out[name] = was
		}
	}
	return out
}

// addonsOf reads the add-ons of a state, nil where it tells of none.
func addonsOf(ctx context.Context, value types.Map, diags *diag.Diagnostics) cluster.AddonStatuses {
	if value.IsNull() || value.IsUnknown() {
		return nil
	}
	var models map[string]addonModel
	diags.Append(value.ElementsAs(ctx, &models, false)...)
	addons := make(cluster.AddonStatuses, len(models))
	for name, m := range models {
		addons[cluster.Addon(name)] = cluster.AddonStatus{
			Chart: m.Chart.ValueString(), Version: m.Version.ValueString(), Namespace: m.Namespace.ValueString(),
			State: cluster.AddonState(m.Status.ValueString()), Reason: m.Reason.ValueString(),
		}
	}
	return addons
}

// addonsOfSpec is what the add-ons of a wanted cluster follow from, as far as a plan knows it. How many nodes take pods only the apply
// can tell.
func addonsOfSpec(s cluster.Spec) cluster.AddonSpec {
	servers := max(s.Servers, 1)
	return cluster.AddonSpec{CNI: s.Settings.CNI, CSI: s.Settings.CSI, Servers: servers, Nodes: servers, ImageRegistry: s.Settings.ImageRegistry, K3sVersion: s.Settings.K3sVersion}
}

// The attributes of add-ons: addonFields but for chartFields, which are about charts and their values.
var (
	addonFields = []machine.Field{
		machine.FieldCNI, machine.FieldPodCIDR, machine.FieldServiceCIDR, machine.FieldCSI, machine.FieldDefaultClass, machine.FieldLocalPath,
		machine.FieldNFS, machine.FieldNFSPool, machine.FieldNFSServer, machine.FieldLonghorn,
	}
	chartFields = []machine.Field{
		machine.FieldCNIChart, machine.FieldCNIValues, machine.FieldLocalPathValues, machine.FieldNFSChart, machine.FieldNFSValues,
		machine.FieldLonghornChart, machine.FieldLonghornValues,
	}
)

// withAddonPaths adds to the attributes of a cluster those of its add-ons, whose fields are called as their attributes are.
func withAddonPaths(paths map[machine.Field]path.Path) map[machine.Field]path.Path {
	for _, f := range slices.Concat(addonFields, chartFields) {
		root, rest, nested := strings.Cut(string(f), ".")
		at := path.Root(root)
		for nested {
			var name string
			name, rest, nested = strings.Cut(rest, ".")
			at = at.AtName(name)
		}
		paths[f] = at
	}
	return paths
}

// addonDrift tells, for each add-on that the next apply mends, its state and what happens to it. Wanted are those of the plan.
func addonDrift(state cluster.AddonStatuses, wanted []cluster.Addon) []string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(state)) {
		a := state[name]
		what := addonFate(a.State, slices.Contains(wanted, name))
		if what == "" {
			continue
		}
		why := ""
		if a.Reason != "" {
			why = fmt.Sprintf(" (%s)", a.Reason)
		}
		lines = append(lines, fmt.Sprintf("add-on %s is %s%s: %s", name, a.State, why, what))
	}
	return lines
}

// addonFate is what the next apply does to an add-on in a state, "" where that does not call for anything.
func addonFate(s cluster.AddonState, wanted bool) string {
	switch {
	case s == cluster.AddonDeployed, s == cluster.AddonUnknown, s == cluster.AddonMissing && !wanted:
		return ""
	case !wanted:
		return "it is removed"
	case s == cluster.AddonMissing:
		return "it is installed"
	}
	return "it is brought to what is configured"
}
