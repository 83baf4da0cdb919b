package provider

import (
	"context"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/k3s"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// onNodes is what a change of labels and taints means.
const onNodes = inPlace + " It is made on the Node objects, and what others put there stays."

var taintTypes = map[string]attr.Type{"key": types.StringType, "value": types.StringType, "effect": types.StringType}

// labelsOf reads labels, nil where there are none, and newLabels renders them.
func labelsOf(m types.Map) map[string]string {
	var out map[string]string
	for key, e := range m.Elements() {
		if s, ok := e.(types.String); ok {
			if out == nil {
				out = map[string]string{}
			}
			out[key] = s.ValueString()
		}
	}
	return out
}

func newLabels(labels map[string]string) types.Map {
	if len(labels) == 0 {
		return types.MapNull(types.StringType)
	}
	values := map[string]attr.Value{}
	for key, value := range labels {
		values[key] = types.StringValue(value)
	}
	return types.MapValueMust(types.StringType, values)
}

// taintOf reads a taint, and taintsOf those of a list; newTaints renders them.
func taintOf(o types.Object) record.Taint {
	return record.Taint{
		Key: part[types.String](o, "key").ValueString(), Value: part[types.String](o, "value").ValueString(), Effect: part[types.String](o, "effect").ValueString(),
	}
}

func taintsOf(list types.List) []record.Taint {
	var out []record.Taint
	for _, e := range list.Elements() {
		if o, ok := e.(types.Object); ok {
			out = append(out, taintOf(o))
		}
	}
	return out
}

func newTaints(taints []record.Taint) types.List {
	of := types.ObjectType{AttrTypes: taintTypes}
	if len(taints) == 0 {
		return types.ListNull(of)
	}
	values := make([]attr.Value, 0, len(taints))
	for _, t := range taints {
		values = append(values, types.ObjectValueMust(taintTypes, map[string]attr.Value{
			"key": types.StringValue(t.Key), "value": stringValue(t.Value), "effect": types.StringValue(t.Effect),
		}))
	}
	return types.ListValueMust(of, values)
}

func labelsAttribute() schema.MapAttribute {
	return schema.MapAttribute{
		Optional: true, ElementType: types.StringType,
		MarkdownDescription: "Labels of the nodes. A new node has them before its first pod. " + onNodes,
		Validators:          []validator.Map{noNulls{}, labelRule{}},
	}
}

func taintsAttribute() schema.ListNestedAttribute {
	return schema.ListNestedAttribute{
		Optional:            true,
		MarkdownDescription: "Taints of the nodes, each with another key or effect. A new node has them before its first pod. " + onNodes,
		// Key and effect are required by taintRule: an element that is not known yet has for the framework no required attributes.
		NestedObject: schema.NestedAttributeObject{Attributes: map[string]schema.Attribute{
			"key":    schema.StringAttribute{Optional: true, MarkdownDescription: "Key of the taint, for example `dedicated`; it has to be set. " + onNodes},
			"value":  schema.StringAttribute{Optional: true, MarkdownDescription: "Value of the taint. Without one it is empty. " + onNodes},
			"effect": schema.StringAttribute{Optional: true, MarkdownDescription: "What happens to pods that do not tolerate it, `NoSchedule`, `PreferNoSchedule` or `NoExecute`; it has to be set. " + onNodes},
		}},
		Validators: []validator.List{noNulls{}, taintRule{}},
	}
}

// labelRule validates that a node may have each of its labels, and that nobody else gives it.
type labelRule struct{}

// Description returns the rule.
func (labelRule) Description(context.Context) string {
	return "labels of Kubernetes that no one else sets"
}

// MarkdownDescription returns the rule.
func (r labelRule) MarkdownDescription(ctx context.Context) string { return r.Description(ctx) }

// ValidateMap checks what is known.
func (labelRule) ValidateMap(_ context.Context, req validator.MapRequest, resp *validator.MapResponse) {
	for key, e := range req.ConfigValue.Elements() {
		value, ok := e.(types.String)
		if !ok || value.IsNull() {
			continue
		}
		if err := k3s.CheckLabel(key, value.ValueString()); err != nil { // A value that is not known is empty, which is valid.
			task{"use", "label", key}.failAt(&resp.Diagnostics, req.Path.AtMapKey(key), err)
		}
	}
}

// taintRule validates that a node may have each of its taints, and has none twice: Kubernetes tells them apart by key and
// effect.
type taintRule struct{}

// Description returns the rule.
func (taintRule) Description(context.Context) string {
	return "taints of Kubernetes that no one else sets, each once"
}

// MarkdownDescription returns the rule.
func (r taintRule) MarkdownDescription(ctx context.Context) string { return r.Description(ctx) }

// ValidateList checks what is known.
func (taintRule) ValidateList(_ context.Context, req validator.ListRequest, resp *validator.ListResponse) {
	first := map[record.Taint]int{}
	for i, e := range req.ConfigValue.Elements() {
		o, ok := e.(types.Object)
		if !ok || o.IsNull() || !known(o, part[types.String](o, "key"), part[types.String](o, "effect")) {
			continue
		}
		t := taintOf(o)
		err := k3s.CheckTaint(t.Key, t.Value, t.Effect)
		id := record.Taint{Key: t.Key, Effect: t.Effect}
		if other, twice := first[id]; twice && err == nil {
			err = fmt.Errorf("the taint at index %d has the same key and effect; a node holds one of them", other)
		} else if !twice {
			first[id] = i
		}
		if err != nil {
			task{"use", "taint", t.Key}.failAt(&resp.Diagnostics, req.Path.AtListIndex(i), err)
		}
	}
}
