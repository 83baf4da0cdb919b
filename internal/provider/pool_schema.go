package provider

import (
	"context"
	"fmt"
	"math/big"

	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/numberdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
)

// defaultNodes is the node_count of a pool.
const defaultNodes = 3

// Schema describes the resource.
func (r *poolResource) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	attributes := shapeAttributes(replacesPool)
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
	attributes["node_count"] = schema.NumberAttribute{
		Optional: true, Computed: true, Default: numberdefault.StaticBigFloat(big.NewFloat(defaultNodes)),
		MarkdownDescription: fmt.Sprintf("Number of nodes, 0 to %d. Default `%d`. %s Nodes that do not run or are not ready go first, "+
			"then those with the highest number.", maxNodeCount, defaultNodes, inPlace),
		Validators: []validator.Number{wholeNumber{0, maxNodeCount}},
	}
	attributes["placement"] = placementOfPool(defaultNodes)
	attributes["timeouts"] = timeoutsAttribute(ctx, "")
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
