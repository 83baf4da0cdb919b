package provider

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/booldefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/objectdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// What happens when the time for a drain is over.
const (
	onTimeoutFail  = "fail"
	onTimeoutForce = "force"
)

// The bounds of what a user gives to drains, and to nodes that are not ready.
const (
	shortestDrain    = time.Second
	shortestPatience = 10 * time.Second
	longestPatience  = 24 * time.Hour
	// maxSurge leaves the numbers of nodes with three digits: see maxNodeCount.
	maxSurge = 100
)

// inRecords is what a change of a rule means.
const inRecords = inPlace + " It touches no node."

var (
	drainTypes = map[string]attr.Type{
		"timeout": types.StringType, "grace_period_seconds": types.NumberType, "on_timeout": types.StringType, "on_destroy": types.BoolType,
	}
	upgradeTypes = map[string]attr.Type{"max_surge": types.NumberType, "max_unavailable": types.NumberType}
	repairTypes  = map[string]attr.Type{"not_ready_after": types.StringType, "max_unhealthy": types.NumberType}
)

// drainOf reads how nodes are drained, and newDrain renders it.
func drainOf(o types.Object) record.Drain {
	d := record.Drain{
		TimeoutSeconds: secondsOf(part[types.String](o, "timeout")),
		Force:          part[types.String](o, "on_timeout").ValueString() == onTimeoutForce,
		KeepOnDestroy:  !part[types.Bool](o, "on_destroy").ValueBool(),
	}
	if grace := part[types.Number](o, "grace_period_seconds"); !grace.IsNull() && known(grace) {
		seconds := integer(grace)
		d.GraceSeconds = &seconds
	}
	return d
}

func newDrain(d record.Drain) types.Object {
	grace := types.NumberNull()
	if d.GraceSeconds != nil {
		grace = numberValue(*d.GraceSeconds)
	}
	onTimeout := onTimeoutFail
	if d.Force {
		onTimeout = onTimeoutForce
	}
	return types.ObjectValueMust(drainTypes, map[string]attr.Value{
		"timeout": durationValue(d.TimeoutSeconds), "grace_period_seconds": grace,
		"on_timeout": types.StringValue(onTimeout), "on_destroy": types.BoolValue(!d.KeepOnDestroy),
	})
}

// upgradeOf reads how many nodes are changed at once, and newUpgrade renders it.
func upgradeOf(o types.Object) record.Upgrade {
	return record.Upgrade{MaxSurge: integer(part[types.Number](o, "max_surge")), MaxUnavailable: integer(part[types.Number](o, "max_unavailable"))}
}

func newUpgrade(u record.Upgrade) types.Object {
	return types.ObjectValueMust(upgradeTypes, map[string]attr.Value{"max_surge": numberValue(u.MaxSurge), "max_unavailable": numberValue(u.MaxUnavailable)})
}

// repairOf reads which nodes are repaired, and newRepair renders it.
func repairOf(o types.Object) record.Repair {
	return record.Repair{NotReadySeconds: secondsOf(part[types.String](o, "not_ready_after")), MaxUnhealthy: integer(part[types.Number](o, "max_unhealthy"))}
}

func newRepair(r record.Repair) types.Object {
	return types.ObjectValueMust(repairTypes, map[string]attr.Value{"not_ready_after": durationValue(r.NotReadySeconds), "max_unhealthy": numberValue(r.MaxUnhealthy)})
}

func drainAttribute() schema.SingleNestedAttribute {
	return schema.SingleNestedAttribute{
		Optional: true, Computed: true, Default: objectdefault.StaticValue(newDrain(cluster.DefaultDrain)),
		MarkdownDescription: "How pods leave a node before it is removed, replaced or powered off: it is cordoned, its pods are evicted as `kubectl drain --force " +
			"--ignore-daemonsets --delete-emptydir-data` does, with PodDisruptionBudgets honoured, and the detachment of its volumes is waited for. Default: the defaults below. " + inRecords,
		Attributes: map[string]schema.Attribute{
			"timeout": schema.StringAttribute{
				Optional: true, Computed: true, Default: stringdefault.StaticString(durationText(seconds(cluster.DefaultDrain.TimeoutSeconds))),
				MarkdownDescription: fmt.Sprintf("Time for the drain of one node, such as `90s` or `15m`, from `%s` to `%s`. Default `%s`. %s",
					durationText(shortestDrain), durationText(longestPatience), durationText(seconds(cluster.DefaultDrain.TimeoutSeconds)), inRecords),
				Validators: []validator.String{durationForm("drain.timeout", shortestDrain, longestPatience)},
			},
			"grace_period_seconds": schema.NumberAttribute{
				Optional:            true,
				MarkdownDescription: "What each pod gets to end, in seconds, in place of its own grace period. Without it each pod has its own. " + inRecords,
				Validators:          []validator.Number{wholeNumber{0, int64(longestPatience / time.Second)}},
			},
			"on_timeout": schema.StringAttribute{
				Optional: true, Computed: true, Default: stringdefault.StaticString(onTimeoutFail),
				MarkdownDescription: "What happens when the time is over and pods are left: `" + onTimeoutFail + "` ends the apply with an error that names them and what protects them, " +
					"and the node takes pods again; `" + onTimeoutForce + "` goes on without them, with a warning. Default `" + onTimeoutFail + "`. " + inRecords,
				Validators: []validator.String{oneOf("drain.on_timeout", onTimeoutFail, onTimeoutForce)},
			},
			"on_destroy": schema.BoolAttribute{
				Optional: true, Computed: true, Default: booldefault.StaticBool(true),
				MarkdownDescription: "Whether nodes are drained when the whole pool is destroyed. Such a drain never fails: past its time the nodes go, with a warning. " +
					"`false` makes the destroy of a cluster with its pools quicker. Default `true`. " + inRecords,
			},
		},
	}
}

func upgradeAttribute() schema.SingleNestedAttribute {
	def := cluster.DefaultUpgrade
	return schema.SingleNestedAttribute{
		Optional: true, Computed: true, Default: objectdefault.StaticValue(newUpgrade(def)),
		MarkdownDescription: "How many nodes a rolling change works on at once. The first of them goes alone: what fails on it is done to no other. Default: the defaults below. " + inRecords,
		Attributes: map[string]schema.Attribute{
			"max_surge": numberAttribute("How many extra nodes stand in while others are drained. They have numbers above those of the pool, are ready before the first node is drained, "+
				"and go in the end.", def.MaxSurge, 0, maxSurge, inRecords),
			"max_unavailable": numberAttribute("How many nodes fewer than `node_count` there may be meanwhile.", def.MaxUnavailable, 0, maxNodeCount, inRecords),
		},
		Validators: []validator.Object{someAtOnce{}},
	}
}

func repairAttribute() schema.SingleNestedAttribute {
	def := cluster.DefaultRepair
	patience := durationText(seconds(def.NotReadySeconds))
	return schema.SingleNestedAttribute{
		Optional: true, Computed: true, Default: objectdefault.StaticValue(newRepair(def)),
		MarkdownDescription: "When a node that is not Ready is repaired by the next apply: its VM is powered off and on again, and where that does not help, a new node takes its place. " +
			"Default: the defaults below. " + inRecords,
		Attributes: map[string]schema.Attribute{
			"not_ready_after": schema.StringAttribute{
				Optional: true, Computed: true, Default: stringdefault.StaticString(patience),
				MarkdownDescription: fmt.Sprintf("How long a node may be not Ready before it counts as `unhealthy`, such as `10m`, from `%s` to `%s`. Default `%s`. %s",
					durationText(shortestPatience), durationText(longestPatience), patience, inRecords),
				Validators: []validator.String{durationForm("repair.not_ready_after", shortestPatience, longestPatience)},
			},
			"max_unhealthy": numberAttribute("How many nodes may be unhealthy at once: with more of them none is touched, and the plan warns, since the trouble is likely to lie elsewhere. "+
				"`0` repairs none.", def.MaxUnhealthy, 0, maxNodeCount, inRecords),
		},
	}
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

// someAtOnce validates that a rolling change can go on at all.
type someAtOnce struct{}

// Description returns the rule.
func (someAtOnce) Description(context.Context) string {
	return "max_surge and max_unavailable are not both 0"
}

// MarkdownDescription returns the rule.
func (r someAtOnce) MarkdownDescription(ctx context.Context) string { return r.Description(ctx) }

// ValidateObject checks what is known.
func (someAtOnce) ValidateObject(_ context.Context, req validator.ObjectRequest, resp *validator.ObjectResponse) {
	surge, unavailable := part[types.Number](req.ConfigValue, "max_surge"), part[types.Number](req.ConfigValue, "max_unavailable")
	if req.ConfigValue.IsNull() || !known(req.ConfigValue, surge, unavailable) {
		return
	}
	if numberOr(surge, cluster.DefaultUpgrade.MaxSurge) == 0 && numberOr(unavailable, cluster.DefaultUpgrade.MaxUnavailable) == 0 {
		task{"use", "upgrade_settings", ""}.failAt(&resp.Diagnostics, req.Path, errors.New(
			"with neither a node more nor a node fewer than node_count no node could be changed; set max_surge or max_unavailable to 1 or more"))
	}
}

// numberOr is the value of a whole number, or another where it is null.
func numberOr(n types.Number, other int) int {
	if n.IsNull() {
		return other
	}
	return integer(n)
}

// namesOfPool validates that names could be those of the pool's nodes: with or without the name of the cluster, which no
// configuration of a pool has.
type namesOfPool struct{}

// Description returns the rule.
func (namesOfPool) Description(context.Context) string { return "names of nodes of this pool" }

// MarkdownDescription returns the rule.
func (r namesOfPool) MarkdownDescription(ctx context.Context) string { return r.Description(ctx) }

// ValidateList checks what is known.
func (namesOfPool) ValidateList(ctx context.Context, req validator.ListRequest, resp *validator.ListResponse) {
	var pool types.String
	resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root("name"), &pool)...)
	if pool.IsNull() || !known(pool) {
		return
	}
	own := regexp.MustCompile(`^([a-z0-9][-a-z0-9]*-)?` + regexp.QuoteMeta(pool.ValueString()) + `-[1-9][0-9]{0,2}$`)
	for i, e := range req.ConfigValue.Elements() {
		name, ok := e.(types.String)
		if !ok || name.IsNull() || !known(name) || own.MatchString(name.ValueString()) {
			continue
		}
		task{"use", "remove_first", name.ValueString()}.failAt(&resp.Diagnostics, req.Path.AtListIndex(i), fmt.Errorf(
			"it names no node of this pool; they are called %s, or <cluster>-%s", record.ShortName(pool.ValueString(), 1), record.ShortName(pool.ValueString(), 1)))
	}
}

func removeFirstAttribute() schema.ListAttribute {
	return schema.ListAttribute{
		Optional: true, ElementType: types.StringType,
		MarkdownDescription: "Nodes of this pool that go first when `node_count` is lowered, such as `workers-2`, with or without the name of the cluster before it. " +
			"Names of nodes that do not exist are passed over. " + inRecords,
		Validators: []validator.List{noNulls{}, namesOfPool{}},
	}
}
