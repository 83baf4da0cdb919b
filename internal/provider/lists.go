package provider

import (
	"context"
	"errors"
	"strconv"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// An empty list of texts and none are the same wish.

// texts are the elements of a list, none where it is not known.
func texts(ctx context.Context, list types.List, diags *diag.Diagnostics) []string {
	if list.IsUnknown() {
		return nil
	}
	var elements []types.String
	diags.Append(list.ElementsAs(ctx, &elements, false)...)
	var out []string
	for _, e := range elements {
		out = append(out, e.ValueString())
	}
	return out
}

// listValue renders texts for the state. Where there are none, what the user wrote for that stays.
func listValue(ctx context.Context, before types.List, elements []string, diags *diag.Diagnostics) types.List {
	if len(elements) == 0 && known(before) && len(before.Elements()) == 0 {
		return before
	}
	if len(elements) == 0 {
		return types.ListNull(types.StringType)
	}
	list, d := types.ListValueFrom(ctx, types.StringType, elements)
	diags.Append(d...)
	return list
}

// sameList reports whether two lists are the same wish.
func sameList(a, b types.List) bool {
	return a.Equal(b) || known(a, b) && len(a.Elements()) == 0 && len(b.Elements()) == 0
}

// noNulls validates that a list or map has no element that is null.
type noNulls struct{}

var (
	_ validator.List = noNulls{}
	_ validator.Map  = noNulls{}
)

// Description returns the rule.
func (noNulls) Description(context.Context) string { return "no element is null" }

// MarkdownDescription returns the rule.
func (n noNulls) MarkdownDescription(ctx context.Context) string { return n.Description(ctx) }

// ValidateList checks the elements of a list.
func (noNulls) ValidateList(_ context.Context, req validator.ListRequest, resp *validator.ListResponse) {
	for i, e := range req.ConfigValue.Elements() {
		refuseNull(req.Path.AtListIndex(i), strconv.Itoa(i), e, &resp.Diagnostics)
	}
}

// ValidateMap checks the elements of a map.
func (noNulls) ValidateMap(_ context.Context, req validator.MapRequest, resp *validator.MapResponse) {
	for key, e := range req.ConfigValue.Elements() {
		refuseNull(req.Path.AtMapKey(key), key, e, &resp.Diagnostics)
	}
}

func refuseNull(at path.Path, key string, element attr.Value, diags *diag.Diagnostics) {
	if element.IsNull() {
		task{"use", "element", key}.failAt(diags, at, errors.New("it is null; leave it out where there is none"))
	}
}
