package provider

import (
	"context"
	"errors"
	"fmt"
	"math/big"

	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// Whole numbers are Number attributes: to a fraction in an Int64 attribute the framework answers itself, before any
// validator, with a text for developers.

// wholeNumber validates that a number is whole and within bounds.
type wholeNumber struct{ least, most int64 }

var _ validator.Number = wholeNumber{}

// Description returns the rule.
func (w wholeNumber) Description(context.Context) string {
	if w.least == w.most {
		return fmt.Sprint(w.least)
	}
	return fmt.Sprintf("a whole number from %d to %d", w.least, w.most)
}

// MarkdownDescription returns the rule.
func (w wholeNumber) MarkdownDescription(ctx context.Context) string { return w.Description(ctx) }

// ValidateNumber checks a value that is known.
func (w wholeNumber) ValidateNumber(ctx context.Context, req validator.NumberRequest, resp *validator.NumberResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	value := req.ConfigValue.ValueBigFloat()
	if n, accuracy := value.Int64(); accuracy != big.Exact || n < w.least || n > w.most {
		task{"use", attributeName(req.Path), value.Text('g', 10)}.failAt(&resp.Diagnostics, req.Path, errors.New("it has to be "+w.Description(ctx)))
	}
}

// attributeName is the last part of an attribute's path.
func attributeName(p path.Path) string {
	steps := p.Steps()
	if len(steps) == 0 {
		return ""
	}
	return steps[len(steps)-1].String()
}

// integer is the value of a whole number, 0 where there is none.
func integer(n types.Number) int {
	if n.IsNull() || n.IsUnknown() {
		return 0
	}
	i, _ := n.ValueBigFloat().Int64()
	return int(i)
}

func numberValue(n int) types.Number { return types.NumberValue(big.NewFloat(float64(n))) }
