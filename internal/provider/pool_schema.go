package provider

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/k3s"
)

// defaultNodes is the node_count of a pool.
const defaultNodes = 3

// Schema describes the resource.
func (r *poolResource) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	attributes := shapeAttributes(ofPools)
	attributes["cluster_id"] = schema.StringAttribute{
		Required:            true,
		MarkdownDescription: "`id` of the pool's cluster. " + replacesPool,
		Validators:          []validator.String{clusterIDForm()},
		PlanModifiers:       []planmodifier.String{stringplanmodifier.RequiresReplace()},
	}
	attributes["name"] = schema.StringAttribute{
		Required: true,
		MarkdownDescription: fmt.Sprintf("Name of the pool, unique in its cluster: the nodes are called `<cluster>-<name>-<n>`. "+
			"Lower-case letters, digits and dashes, %d at most, and not `cp`. %s", maxPoolName, replacesPool),
		Validators:    []validator.String{poolNameForm()},
		PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()},
	}
	attributes["node_count"] = numberAttribute(fmt.Sprintf("Number of nodes, 0 to %d.", maxNodeCount), defaultNodes, 0, maxNodeCount,
		inPlace+" Nodes that go are drained first, by `drain`: those that `remove_first` names, then those that do not run or are not ready, then those with the highest number. "+
			"What stands on their disks is lost.")
	attributes["data_disk"] = dataDiskAttribute()
	attributes["host_devices"] = hostDevicesAttribute()
	attributes["placement"] = placementOfPool(defaultNodes)
	attributes["labels"] = labelsAttribute()
	attributes["taints"] = taintsAttribute()
	attributes["drain"] = drainAttribute()
	attributes["upgrade_settings"] = upgradeAttribute()
	attributes["repair"] = repairAttribute()
	attributes["remove_first"] = removeFirstAttribute()
	addExtra(attributes, "agent_args", "nodes", k3s.Agent, ofPools)
	attributes["timeouts"] = timeoutsAttribute(ctx, timesOfPool)
	attributes["id"] = schema.StringAttribute{
		Computed:            true,
		MarkdownDescription: "`<cluster_id>/<name>`.",
		PlanModifiers:       []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
	}
	addMembers(attributes, "nodes of the pool", "workers-1")
	resp.Schema = schema.Schema{
		MarkdownDescription: "A pool of equal workers (k3s agents) of a cluster. They run the cluster's version of k3s.",
		Attributes:          attributes,
	}
}
