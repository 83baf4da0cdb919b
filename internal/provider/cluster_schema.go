package provider

import (
	"context"
	"fmt"
	"math/big"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework-validators/listvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/numberdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/objectdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/k3s"
)

// What the change of an attribute means, in its description.
const (
	replacesCluster = "A change replaces the cluster."
	replacesPool    = "A change replaces the pool."
	inPlace         = "Changed in place."
)

// defaultNetwork is the libvirt network of a cluster that names neither a network nor a bridge; libvirt's packages
// bring it along.
const defaultNetwork = "default"

// Schema describes the resource.
func (r *clusterResource) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	attributes := map[string]schema.Attribute{
		"name": schema.StringAttribute{
			Required: true,
			MarkdownDescription: fmt.Sprintf("Name of the cluster, unique among its hypervisors: the servers are called `<name>-cp-<n>`. "+
				"Lower-case letters, digits and dashes, %d at most. %s", maxClusterName, replacesCluster),
			Validators:    []validator.String{clusterNameForm()},
			PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
		},
		"k3s_version": schema.StringAttribute{
			Required: true,
			MarkdownDescription: "Release of k3s, for example `v1.36.1+k3s1`. An existing cluster keeps its version: a change is an error, " +
				"never a replacement.",
			Validators: []validator.String{versionForm()},
		},
		"network": schema.StringAttribute{
			Optional: true, Computed: true,
			MarkdownDescription: "libvirt network of the nodes, which must exist on every hypervisor that takes nodes of the cluster. " +
				"Default `" + defaultNetwork + "` unless `bridge` is set. " + replacesCluster,
			Validators:    []validator.String{stringvalidator.LengthAtLeast(1), stringvalidator.ConflictsWith(path.MatchRoot("bridge"))},
			PlanModifiers: []planmodifier.String{networkDefault{}, stringplanmodifier.RequiresReplace()},
		},
		"bridge": schema.StringAttribute{
			Optional:            true,
			MarkdownDescription: "Host bridge of the nodes in place of a libvirt network, for example `br0`. " + replacesCluster,
			Validators:          []validator.String{stringvalidator.LengthBetween(1, 15)},
			PlanModifiers:       []planmodifier.String{stringplanmodifier.RequiresReplace()},
		},
		"endpoint": schema.StringAttribute{
			Optional: true,
			MarkdownDescription: "A load balancer or virtual address of your own in front of the servers, as `host[:port]`; the port is 6443 where none is named. " +
				"Nodes join there, kubeconfigs lead there, and the servers' certificates name it. " + inPlace,
			Validators: []validator.String{endpointForm()},
		},
		"tls_sans": schema.ListAttribute{
			Optional: true, ElementType: types.StringType,
			MarkdownDescription: "More names and IP addresses that the certificate of the API is valid for, without ports or wildcards. Those of the servers and of " +
				"`endpoint` need not be listed. " + inPlace + " k3s keeps in the certificate what is taken out of the list.",
			Validators: []validator.List{noNulls{}, listvalidator.ValueStringsAre(sanForm())},
		},
		"control_plane": controlPlaneAttribute(),
		"cni":           cniAttribute(),
		"csi":           csiAttribute(),
		"ssh_authorized_keys": schema.ListAttribute{
			Optional: true, ElementType: types.StringType,
			MarkdownDescription: "Public SSH keys, lines of an `authorized_keys` file, for the image's default user. " + inPlace +
				" Nodes made from then on have the new keys.",
			Validators: []validator.List{noNulls{}, listvalidator.ValueStringsAre(publicKeyForm())},
		},
		"deletion_protection": schema.BoolAttribute{
			Optional: true, Computed: true, Default: booldefault.StaticBool(false),
			MarkdownDescription: "Whether destroying and replacing the cluster is refused. To take the protection off, set it to `false` and apply that first. Default `false`. " +
				inPlace + " It stands in the records of the servers, and touches nothing else of them.",
		},
		"timeouts": timeoutsAttribute(ctx, timesOfCluster),
		"id": schema.StringAttribute{
			Computed:            true,
			MarkdownDescription: "UUID of the cluster, which stands on each of its VMs.",
			PlanModifiers:       []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
		},
		"api_url": schema.StringAttribute{
			Computed:            true,
			MarkdownDescription: "URL of the Kubernetes API: that of `endpoint`, or else of a server. It stays known in every plan that does not change it.",
			PlanModifiers:       []planmodifier.String{stringplanmodifier.UseNonNullStateForUnknown()},
		},
		"status": schema.StringAttribute{
			Computed:            true,
			MarkdownDescription: "`provisioning`, `active`, or `degraded`.",
		},
		"conditions": schema.ListNestedAttribute{
			Computed:            true,
			MarkdownDescription: "What `status` sums up, in the manner of Kubernetes conditions.",
			NestedObject:        conditionObject(),
		},
		"addons": addonsAttribute(),
		"image_registry": schema.StringAttribute{
			Computed: true,
			MarkdownDescription: "Registry that the images of k3s and of the add-ons come from, as the provider's `image_registry` has it. Another one is taken over in place: k3s is restarted on the servers, one at a time, " +
				"and the add-ons are upgraded.",
		},
	}
	addMembers(attributes, "servers of the cluster", "cp-1")
	resp.Schema = schema.Schema{
		MarkdownDescription: "A k3s cluster: its settings, its control plane, its network and its storage. Workers come as `cockpit_k3s_node_pool`.",
		Attributes:          attributes,
	}
}

func controlPlaneAttribute() schema.SingleNestedAttribute {
	attributes := shapeAttributes(ofServers)
	attributes["node_count"] = schema.NumberAttribute{
		Optional: true, Computed: true, Default: numberdefault.StaticBigFloat(big.NewFloat(defaultServers)),
		MarkdownDescription: fmt.Sprintf("Number of servers: `1`, or `3`, of which any one may fail. Default `%d`. %s Servers join and leave one at a time.",
			defaultServers, inPlace),
		Validators: []validator.Number{serverCount{}},
	}
	attributes["placement"] = placementOfServers()
	addExtra(attributes, "server_args", "servers", k3s.Server, ofServers)
	return schema.SingleNestedAttribute{
		Optional: true, Computed: true,
		MarkdownDescription: "The servers, which run the Kubernetes API and its data store, an etcd. Default: one server with the defaults below.",
		Attributes:          attributes,
		Default:             objectdefault.StaticValue(defaultControlPlane()),
	}
}

func conditionObject() schema.NestedAttributeObject {
	computed := func(description string) schema.StringAttribute {
		return schema.StringAttribute{Computed: true, MarkdownDescription: description}
	}
	return schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
		"type":    computed("What the condition is about, for example `NodesReady`."),
		"status":  computed("`True`, `False` or `Unknown`."),
		"reason":  computed("The reason in one word."),
		"message": computed("The reason in a sentence."),
	}}
}

// times say how long operations take by default.
type times struct{ create, update, destroy string }

// The times of clusters and of pools, as span has them.
var (
	timesOfCluster = times{
		create:  fmt.Sprintf("`%s` for each server", durationText(createSpan(1).usual)),
		update:  fmt.Sprintf("`%s` for each server", durationText(spanOfServers(1).usual)),
		destroy: fmt.Sprintf("`%s`", durationText(deleteSpan(0).usual)),
	}
	timesOfPool = times{
		create: fmt.Sprintf("`%s`", durationText(createSpan(1).usual)),
		update: fmt.Sprintf("`%s`, and `%s` and `drain.timeout` for each of the steps that a rolling change of all nodes takes by `upgrade_settings`",
			durationText(updateSpan(1, 0, 0).usual), durationText(roundTime)),
		destroy: fmt.Sprintf("`%s`, and `drain.timeout` unless `drain.on_destroy` is `false`", durationText(deleteSpan(0).usual)),
	}
)

// timeoutsAttribute is that of a resource with these times.
func timeoutsAttribute(ctx context.Context, t times) schema.Attribute {
	const scales = "A longer one than the default lengthens the waits inside, a short one shortens them."
	a := timeouts.Attributes(ctx, timeouts.Opts{
		Create: true, CreateDescription: fmt.Sprintf("Time for a create. Default %s. %s", t.create, scales),
		Read: true, ReadDescription: fmt.Sprintf("Time for a refresh. Default `%s`.", durationText(readSpan.usual)),
		Update: true, UpdateDescription: fmt.Sprintf("Time for an update. Default %s. %s", t.update, scales),
		Delete: true, DeleteDescription: fmt.Sprintf("Time for a destroy; it counts once it stands in the state. Default %s.", t.destroy),
	})
	nested, ok := a.(schema.SingleNestedAttribute)
	if !ok {
		return a
	}
	for name, a := range nested.Attributes {
		if text, ok := a.(schema.StringAttribute); ok {
			text.Validators = []validator.String{timeoutForm()}
			nested.Attributes[name] = text
		}
	}
	nested.MarkdownDescription = "How long operations may take, as texts such as `90m` or `1h30m`. " + inPlace
	return nested
}

// networkDefault plans the default network where neither network nor bridge is configured.
type networkDefault struct{}

// Description says what is planned.
func (networkDefault) Description(context.Context) string {
	return "the network default unless a bridge is set"
}

// MarkdownDescription says what is planned.
func (m networkDefault) MarkdownDescription(ctx context.Context) string { return m.Description(ctx) }

// PlanModifyString plans a value where the configuration has none.
func (networkDefault) PlanModifyString(ctx context.Context, req planmodifier.StringRequest, resp *planmodifier.StringResponse) {
	if !req.ConfigValue.IsNull() {
		return
	}
	var bridge types.String
	resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root("bridge"), &bridge)...)
	switch {
	case bridge.IsUnknown():
		resp.PlanValue = types.StringUnknown()
	case bridge.IsNull():
		resp.PlanValue = types.StringValue(defaultNetwork)
	default:
		resp.PlanValue = types.StringNull()
	}
}
