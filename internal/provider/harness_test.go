package provider

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/addons"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
)

// object is a configuration, plan or state in plain Go: string, int, bool, []any, object, nil for null, and unknown.
type object = map[string]any

type unknownValue struct{}

// unknown stands for a value that is known only after apply.
var unknown unknownValue

const (
	clusterType = "cockpit_k3s_cluster"
	poolType    = "cockpit_k3s_node_pool"
)

// world is the provider behind its protocol, over fakes in place of hypervisors and GitHub. It plays the part of
// Terraform's core in the same order of calls.
type world struct {
	t        *testing.T
	server   tfprotov6.ProviderServer
	schemas  *tfprotov6.GetProviderSchemaResponse
	engine   *fakeEngine
	releases *fakeReleases
}

// someTemplate is a provider configuration that is enough to make nodes.
func someTemplate() object {
	return object{"template": object{"pool": "templates", "volume": "debian.qcow2"}}
}

// newWorld configures the provider.
func newWorld(t *testing.T, config object) *world {
	t.Helper()
	t.Setenv(envURI, "")
	t.Setenv(envGitHub, "")
	w := &world{t: t, engine: &fakeEngine{}, releases: &fakeReleases{}}
	p := &cockpit{
		version:  "test",
		check:    func(cluster.AddonSpec) []cluster.Problem { return w.engine.faults },
		untested: addons.New(addons.Options{}).Untested,
		connect: func(s settings) engine {
			w.engine.settings = s
			return w.engine
		},
		list: func(o origin) (releases, error) {
			w.releases.origin = o
			return w.releases, nil
		},
	}
	w.server = providerserver.NewProtocol6(provider.Provider(p))()
	var err error
	w.schemas, err = w.server.GetProviderSchema(t.Context(), &tfprotov6.GetProviderSchemaRequest{})
	w.must(err)
	w.clean(w.schemas.Diagnostics)
	w.clean(w.configure(config))
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// clean fails the test on any error or warning.
func (w *world) clean(diags []*tfprotov6.Diagnostic) {
	w.t.Helper()
	if len(diags) > 0 {
		w.t.Fatal(render(diags))
	}
}

// render prints diagnostics, each as "error at path: summary\ndetail".
func render(diags []*tfprotov6.Diagnostic) string {
	var b strings.Builder
	for _, d := range diags {
		fmt.Fprintf(&b, "%s at %s: %s\n%s\n", strings.ToLower(d.Severity.String()), attributePath(d.Attribute), d.Summary, d.Detail)
	}
	return b.String()
}

func attributePath(p *tftypes.AttributePath) string {
	var steps []string
	for _, s := range p.Steps() {
		steps = append(steps, fmt.Sprint(s))
	}
	return strings.Join(steps, ".")
}

func (w *world) configure(config object) []*tfprotov6.Diagnostic {
	w.t.Helper()
	resp, err := w.server.ConfigureProvider(w.t.Context(), &tfprotov6.ConfigureProviderRequest{
		TerraformVersion: "1.11.4", Config: w.encode(w.schemas.Provider.ValueType(), config),
	})
	w.must(err)
	return resp.Diagnostics
}

func (w *world) validateProvider(config object) []*tfprotov6.Diagnostic {
	w.t.Helper()
	resp, err := w.server.ValidateProviderConfig(w.t.Context(), &tfprotov6.ValidateProviderConfigRequest{
		Config: w.encode(w.schemas.Provider.ValueType(), config),
	})
	w.must(err)
	return resp.Diagnostics
}

func (w *world) validate(typeName string, config object) []*tfprotov6.Diagnostic {
	w.t.Helper()
	resp, err := w.server.ValidateResourceConfig(w.t.Context(), &tfprotov6.ValidateResourceConfigRequest{
		TypeName: typeName, Config: w.encode(w.resourceType(typeName), config),
	})
	w.must(err)
	return resp.Diagnostics
}

// planned is the outcome of a plan.
type planned struct {
	state    object
	replaces []string
	private  []byte
	diags    []*tfprotov6.Diagnostic
}

// action is Terraform's word for what the plan does to a prior state.
func (p planned) action(prior object) string {
	switch {
	case prior == nil:
		return "create"
	case len(p.replaces) > 0:
		return "replace"
	case fmt.Sprint(prior) == fmt.Sprint(p.state):
		return "no-op"
	}
	return "update"
}

// plan plans a configuration over a prior state, nil for a create.
func (w *world) plan(typeName string, prior, config object, private ...byte) planned {
	w.t.Helper()
	typ := w.resourceType(typeName)
	resp, err := w.server.PlanResourceChange(w.t.Context(), &tfprotov6.PlanResourceChangeRequest{
		TypeName: typeName, Config: w.encode(typ, config), PriorState: w.encodeOrNull(typ, prior), PriorPrivate: private,
		ProposedNewState: w.encode(typ, proposed(w.schemas.ResourceSchemas[typeName].Block.Attributes, prior, config)),
	})
	w.must(err)
	p := planned{state: w.decode(typ, resp.PlannedState), private: resp.PlannedPrivate, diags: resp.Diagnostics}
	for _, r := range resp.RequiresReplace {
		p.replaces = append(p.replaces, attributePath(r))
	}
	return p
}

// apply carries out a plan; a nil planned state deletes.
func (w *world) apply(typeName string, prior, config object, p planned) (object, []*tfprotov6.Diagnostic) {
	w.t.Helper()
	typ := w.resourceType(typeName)
	resp, err := w.server.ApplyResourceChange(w.t.Context(), &tfprotov6.ApplyResourceChangeRequest{
		TypeName: typeName, Config: w.encodeOrNull(typ, config), PriorState: w.encodeOrNull(typ, prior),
		PlannedState: w.encodeOrNull(typ, p.state), PlannedPrivate: p.private,
	})
	w.must(err)
	state := w.decode(typ, resp.NewState)
	if state != nil && !failed(resp.Diagnostics) && p.state != nil {
		if at := contradiction("", p.state, state); at != "" {
			w.t.Errorf("the provider produced an inconsistent result: %s", at)
		}
	}
	return state, resp.Diagnostics
}

// create plans and applies, and expects neither errors nor warnings.
func (w *world) create(typeName string, config object) object {
	w.t.Helper()
	p := w.plan(typeName, nil, config)
	w.clean(p.diags)
	state, diags := w.apply(typeName, nil, config, p)
	w.clean(diags)
	return state
}

func (w *world) read(typeName string, state object) (object, []*tfprotov6.Diagnostic) {
	w.t.Helper()
	typ := w.resourceType(typeName)
	resp, err := w.server.ReadResource(w.t.Context(), &tfprotov6.ReadResourceRequest{TypeName: typeName, CurrentState: w.encode(typ, state)})
	w.must(err)
	return w.decode(typ, resp.NewState), resp.Diagnostics
}

// importState imports and reads, as Terraform does.
func (w *world) importState(typeName, id string) (object, []*tfprotov6.Diagnostic) {
	w.t.Helper()
	resp, err := w.server.ImportResourceState(w.t.Context(), &tfprotov6.ImportResourceStateRequest{TypeName: typeName, ID: id})
	w.must(err)
	if len(resp.ImportedResources) == 0 {
		return nil, resp.Diagnostics
	}
	return w.read(typeName, w.decode(w.resourceType(typeName), resp.ImportedResources[0].State))
}

func (w *world) data(typeName string, config object) (object, []*tfprotov6.Diagnostic) {
	w.t.Helper()
	typ := w.schemas.DataSourceSchemas[typeName].ValueType()
	resp, err := w.server.ReadDataSource(w.t.Context(), &tfprotov6.ReadDataSourceRequest{TypeName: typeName, Config: w.encode(typ, config)})
	w.must(err)
	return w.decode(typ, resp.State), resp.Diagnostics
}

func (w *world) resourceType(typeName string) tftypes.Type {
	return w.schemas.ResourceSchemas[typeName].ValueType()
}

func failed(diags []*tfprotov6.Diagnostic) bool {
	return slices.ContainsFunc(diags, func(d *tfprotov6.Diagnostic) bool { return d.Severity == tfprotov6.DiagnosticSeverityError })
}

// proposed is the new state that Terraform's core proposes: the configuration, and the prior values of computed
// attributes that it leaves out.
func proposed(attributes []*tfprotov6.SchemaAttribute, prior, config object) object {
	out := object{}
	for _, a := range attributes {
		given := config[a.Name]
		nested, isObject := given.(object)
		switch {
		case isObject && a.NestedType != nil && a.NestedType.Nesting == tfprotov6.SchemaObjectNestingModeSingle:
			before, _ := prior[a.Name].(object)
			out[a.Name] = proposed(a.NestedType.Attributes, before, nested)
		case given == nil && a.Computed:
			out[a.Name] = prior[a.Name]
		default:
			out[a.Name] = given
		}
	}
	return out
}

// contradiction finds a value of a state that differs from the known one of the plan.
func contradiction(at string, plan, state any) string {
	switch p := plan.(type) {
	case unknownValue:
		return ""
	case object:
		s, ok := state.(object)
		if !ok || len(s) != len(p) {
			return fmt.Sprintf("%s: planned %v, got %v", at, plan, state)
		}
		for _, name := range slices.Sorted(maps.Keys(p)) {
			if c := contradiction(at+"."+name, p[name], s[name]); c != "" {
				return c
			}
		}
		return ""
	}
	if fmt.Sprint(plan) != fmt.Sprint(state) {
		return fmt.Sprintf("%s: planned %v, got %v", at, plan, state)
	}
	return ""
}

func (w *world) encodeOrNull(typ tftypes.Type, o object) *tfprotov6.DynamicValue {
	if o == nil {
		return w.dynamic(typ, tftypes.NewValue(typ, nil))
	}
	return w.encode(typ, o)
}

func (w *world) encode(typ tftypes.Type, o object) *tfprotov6.DynamicValue {
	w.t.Helper()
	return w.dynamic(typ, w.value(typ, o))
}

func (w *world) dynamic(typ tftypes.Type, v tftypes.Value) *tfprotov6.DynamicValue {
	w.t.Helper()
	d, err := tfprotov6.NewDynamicValue(typ, v)
	w.must(err)
	return &d
}

func (w *world) value(typ tftypes.Type, v any) tftypes.Value {
	w.t.Helper()
	switch v := v.(type) {
	case nil:
		return tftypes.NewValue(typ, nil)
	case unknownValue:
		return tftypes.NewValue(typ, tftypes.UnknownValue)
	case []any:
		elements := make([]tftypes.Value, 0, len(v))
		for _, e := range v {
			elements = append(elements, w.value(typ.(tftypes.List).ElementType, e))
		}
		return tftypes.NewValue(typ, elements)
	case object:
		values := map[string]tftypes.Value{}
		switch typ := typ.(type) {
		case tftypes.Object:
			for name := range v {
				if _, ok := typ.AttributeTypes[name]; !ok {
					w.t.Fatalf("there is no attribute %q", name)
				}
			}
			for name, attribute := range typ.AttributeTypes {
				values[name] = w.value(attribute, v[name])
			}
		case tftypes.Map:
			for name, element := range v {
				values[name] = w.value(typ.ElementType, element)
			}
		}
		return tftypes.NewValue(typ, values)
	}
	return tftypes.NewValue(typ, v)
}

func (w *world) decode(typ tftypes.Type, d *tfprotov6.DynamicValue) object {
	w.t.Helper()
	if d == nil {
		return nil
	}
	v, err := d.Unmarshal(typ)
	w.must(err)
	o, _ := w.plain(v).(object)
	return o
}

func (w *world) plain(v tftypes.Value) any {
	w.t.Helper()
	switch {
	case !v.IsKnown():
		return unknown
	case v.IsNull():
		return nil
	}
	switch {
	case v.Type().Is(tftypes.String):
		var s string
		w.must(v.As(&s))
		return s
	case v.Type().Is(tftypes.Bool):
		var b bool
		w.must(v.As(&b))
		return b
	case v.Type().Is(tftypes.Number):
		var n big.Float
		w.must(v.As(&n))
		i, _ := n.Int64()
		return int(i)
	case v.Type().Is(tftypes.List{}):
		var elements []tftypes.Value
		w.must(v.As(&elements))
		out := make([]any, 0, len(elements))
		for _, e := range elements {
			out = append(out, w.plain(e))
		}
		return out
	}
	var fields map[string]tftypes.Value
	w.must(v.As(&fields))
	out := object{}
	for name, f := range fields {
		out[name] = w.plain(f)
	}
	return out
}

// with returns a copy of an object with other values.
func with(o object, changes object) object {
	out := maps.Clone(o)
	maps.Copy(out, changes)
	return out
}

// wantDiags compares diagnostics with wanted parts of their rendering, in order; none wants none.
func wantDiags(t *testing.T, diags []*tfprotov6.Diagnostic, want ...string) {
	t.Helper()
	if len(want) == 0 {
		if len(diags) > 0 {
			t.Errorf("unexpected diagnostics:\n%s", render(diags))
		}
		return
	}
	rest := render(diags)
	for _, part := range want {
		before, after, found := strings.Cut(rest, part)
		if !found {
			t.Errorf("the diagnostics lack %q after %q:\n%s", part, before, render(diags))
			return
		}
		rest = after
	}
}
