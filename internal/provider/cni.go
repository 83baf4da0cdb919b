package provider

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/objectdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/k3s"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

var cniTypes = map[string]attr.Type{
	"plugin": types.StringType, "routing": types.StringType, "pod_cidr": types.StringType, "service_cidr": types.StringType,
	"hubble": types.BoolType, "kube_proxy_replacement": types.BoolType, "values_yaml": types.StringType, "chart": types.ObjectType{AttrTypes: chartTypes},
}

// keptForLife are the attributes of cni that a cluster cannot change: its nodes are set up by them, and pods that run have
// addresses and routes that follow from them.
var keptForLife = []string{"plugin", "routing", "pod_cidr", "service_cidr", "kube_proxy_replacement"}

// routings are the ways of routing that each plugin offers, its default first.
var routings = map[record.Plugin][]record.Routing{
	record.Flannel: {record.VXLAN, record.HostGateway},
	record.Calico:  {record.IPIP, record.VXLAN},
	record.Cilium:  {record.Tunnel, record.Native},
}

// cniOf reads the network of a cluster. Where it says nothing, or nothing that is known yet, the default stands: specs name every
// choice, so that what was left out and what was written out are the same cluster.
func cniOf(o types.Object) record.CNI {
	return completeCNI(record.CNI{
		Plugin: record.Plugin(part[types.String](o, "plugin").ValueString()), Routing: record.Routing(part[types.String](o, "routing").ValueString()),
		PodCIDR: part[types.String](o, "pod_cidr").ValueString(), ServiceCIDR: part[types.String](o, "service_cidr").ValueString(),
		Hubble: part[types.Bool](o, "hubble").ValueBool(), KubeProxyReplacement: part[types.Bool](o, "kube_proxy_replacement").ValueBool(),
		Chart: chartOf(o),
	})
}

// completeCNI writes out what a record may leave to the defaults.
func completeCNI(c record.CNI) record.CNI {
	c.Plugin = cmp.Or(c.Plugin, record.Flannel)
	if offered := routings[c.Plugin]; len(offered) > 0 {
		c.Routing = cmp.Or(c.Routing, offered[0])
	}
	c.PodCIDR, c.ServiceCIDR = cmp.Or(c.PodCIDR, k3s.DefaultPodCIDR), cmp.Or(c.ServiceCIDR, k3s.DefaultServiceCIDR)
	return c
}

func newCNI(c record.CNI) types.Object {
	return types.ObjectValueMust(cniTypes, map[string]attr.Value{
		"plugin": types.StringValue(string(c.Plugin)), "routing": types.StringValue(string(c.Routing)),
		"pod_cidr": types.StringValue(c.PodCIDR), "service_cidr": types.StringValue(c.ServiceCIDR),
		"hubble": types.BoolValue(c.Hubble), "kube_proxy_replacement": types.BoolValue(c.KubeProxyReplacement),
		"values_yaml": stringValue(c.Chart.Values), "chart": newChart(c.Chart),
	})
}

// cniValue renders a network for the state; what the user wrote stays where it says the same.
func cniValue(before types.Object, c record.CNI) types.Object {
	c = completeCNI(c)
	if before.IsNull() {
		return newCNI(c)
	}
	return kept(before, cniOf, c, newCNI)
}

// rebuilds lists the attributes of cni for which a plan replaces the cluster of a state. What is not known yet is among them: it can
// be changed in no other way.
func rebuilds(plan, state types.Object) path.Paths {
	at := path.Root("cni")
	if plan.IsUnknown() {
		return path.Paths{at}
	}
	var out path.Paths
	is, was := plan.Attributes(), newCNI(cniOf(state)).Attributes()
	for _, name := range keptForLife {
		if v, ok := is[name]; ok && !v.Equal(was[name]) {
			out = append(out, at.AtName(name))
		}
	}
	return out
}

// warnRebuilt tells for what a plan replaces a cluster that stands.
func warnRebuilt(name string, attributes path.Paths, diags *diag.Diagnostics) {
	if len(attributes) == 0 {
		return
	}
	names := make([]string, 0, len(attributes))
	for _, p := range attributes {
		names = append(names, p.String())
	}
	diags.AddWarning(fmt.Sprintf("Cluster %q is replaced by one with another network", name), paragraphs(
		"A cluster keeps for its life what this plan changes, or cannot tell yet: "+strings.Join(names, ", ")+".",
		"Its nodes and everything on their disks are lost, with the data of the cluster.",
		"What to do: to keep the cluster, take the change back. deletion_protection = true refuses such plans."))
}

func cniAttribute() schema.SingleNestedAttribute {
	const replaces = replacesCluster + " Its data is lost with it."
	text := func(description string, validators ...validator.String) schema.StringAttribute {
		return schema.StringAttribute{Optional: true, Computed: true, MarkdownDescription: description + " " + replaces, Validators: validators}
	}
	flag := func(description string) schema.BoolAttribute {
		return schema.BoolAttribute{Optional: true, Computed: true, Default: booldefault.StaticBool(false), MarkdownDescription: description}
	}
	cidr := func(of, more, def string, least, most int) schema.StringAttribute {
		a := text(fmt.Sprintf("IPv4 network of the %s, a /%d to /%d%s. Default `%s`.", of, least, most, more, def), cidrForm(least, most))
		a.Default = stringdefault.StaticString(def)
		return a
	}
	plugin := text("`flannel`, which is part of k3s, `calico` or `cilium`. Default `flannel`.",
		oneOf("cni.plugin", string(record.Flannel), string(record.Calico), string(record.Cilium)))
	plugin.Default = stringdefault.StaticString(string(record.Flannel))
	routing := text("How packets between pods get from node to node. Flannel: `vxlan`, or `host-gw`. Calico: `ipip`, with BGP between the nodes, or `vxlan`, without BGP. Cilium: `tunnel`, or " +
		"`native`. `host-gw` and `native` need all nodes in one L2 network, which the provider cannot check. Default: the first of each plugin.")
	routing.PlanModifiers = []planmodifier.String{routingDefault{}}
	attributes := map[string]schema.Attribute{
		"plugin":       plugin,
		"routing":      routing,
		"pod_cidr":     cidr("pods", ", of which each node gets a /24. It must not overlap `service_cidr` or the network of the nodes", k3s.DefaultPodCIDR, leastPodBits, mostPodBits),
		"service_cidr": cidr("services", "", k3s.DefaultServiceCIDR, leastServiceBits, mostServiceBits),
		"hubble": flag("Whether Cilium's [Hubble](https://docs.cilium.io/en/stable/observability/hubble/) observes the network, with its relay and without its UI. For Cilium only. Default `false`. " +
			upgradesRelease),
		"kube_proxy_replacement": flag("Whether Cilium stands in for kube-proxy, which k3s then leaves out. For Cilium only. Default `false`. " + replaces),
	}
	addChart(attributes)
	return schema.SingleNestedAttribute{
		Optional: true, Computed: true, Default: objectdefault.StaticValue(newCNI(cniOf(types.ObjectNull(cniTypes)))),
		MarkdownDescription: "The network of the pods. `values_yaml` and `chart` are for `calico` and `cilium`. Default: Flannel with VXLAN. What cannot be changed in a cluster that runs replaces it; " +
			"`deletion_protection` refuses that.",
		Attributes: attributes,
		Validators: []validator.Object{networkRule{}},
	}
}

// routingDefault plans the routing of a plugin where the configuration names none.
type routingDefault struct{}

// Description says what is planned.
func (routingDefault) Description(context.Context) string { return "the default of the plugin" }

// MarkdownDescription says what is planned.
func (m routingDefault) MarkdownDescription(ctx context.Context) string { return m.Description(ctx) }

// PlanModifyString plans a value where the configuration has none.
func (routingDefault) PlanModifyString(ctx context.Context, req planmodifier.StringRequest, resp *planmodifier.StringResponse) {
	if !req.ConfigValue.IsNull() {
		return
	}
	var cni types.Object
	resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root("cni"), &cni)...)
	if !known(cni, part[types.String](cni, "plugin")) {
		resp.PlanValue = types.StringUnknown()
		return
	}
	resp.PlanValue = types.StringValue(string(cniOf(cni).Routing))
}
