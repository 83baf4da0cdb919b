package provider

import (
	"context"
	"errors"
	"strconv"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
)

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
