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
		refuseNumber(req, resp, errors.New("it has to be "+w.Description(ctx)))
	}
}

// factor validates that a number, which may have a fraction, is within bounds.
type factor struct{ least, most float64 }

var _ validator.Number = factor{}

// Description returns the rule.
func (f factor) Description(context.Context) string {
	return fmt.Sprintf("a number from %g to %g", f.least, f.most)
}

// MarkdownDescription returns the rule.
func (f factor) MarkdownDescription(ctx context.Context) string { return f.Description(ctx) }

// ValidateNumber checks a value that is known.
func (f factor) ValidateNumber(ctx context.Context, req validator.NumberRequest, resp *validator.NumberResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	if n, _ := req.ConfigValue.ValueBigFloat().Float64(); n < f.least || n > f.most {
		refuseNumber(req, resp, errors.New("it has to be "+f.Description(ctx)))
	}
}

// serverCount validates the number of servers.
type serverCount struct{}

var _ validator.Number = serverCount{}

// Description returns the rule.
func (serverCount) Description(context.Context) string { return "1 or 3" }

// MarkdownDescription returns the rule.
func (s serverCount) MarkdownDescription(ctx context.Context) string { return s.Description(ctx) }

// ValidateNumber checks a value that is known. The servers are the members of an etcd
// (https://etcd.io/docs/latest/faq/#why-an-odd-number-of-cluster-members).
func (serverCount) ValidateNumber(_ context.Context, req validator.NumberRequest, resp *validator.NumberResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	n, accuracy := req.ConfigValue.ValueBigFloat().Int64()
	whole := accuracy == big.Exact && n > 0
	switch {
	case whole && (n == 1 || n == 3):
	case whole && n%2 == 0:
		refuseNumber(req, resp, fmt.Errorf("it has to be 1 or 3: the cluster works while more than half of its servers do, "+
			"so that %d bear no more losses than %d", n, n-1))
	case whole:
		refuseNumber(req, resp, errors.New("it has to be 1 or 3: more than 3 servers make every change in the cluster slower, "+
			"since more than half of them have to write it, and are not offered"))
	default:
		refuseNumber(req, resp, errors.New("it has to be 1 or 3"))
	}
}

func refuseNumber(req validator.NumberRequest, resp *validator.NumberResponse, err error) {
	task{"use", attributeName(req.Path), req.ConfigValue.ValueBigFloat().Text('g', 10)}.failAt(&resp.Diagnostics, req.Path, err)
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
