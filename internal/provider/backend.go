package provider

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/k3s"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
)

// engine is what resources and data sources ask of package cluster. What the Apply and Delete methods return is true
// also with an error: it is what stands by then, nil nodes meaning that nothing does.
type engine interface {
	CheckCluster(ctx context.Context, spec cluster.Spec, before *cluster.State) (cluster.Review, error)
	CheckPool(ctx context.Context, spec cluster.PoolSpec, before *cluster.PoolState) (cluster.Review, error)
	FindCluster(ctx context.Context, idOrName string) (cluster.Spec, error)
	FindPool(ctx context.Context, id string) (cluster.PoolSpec, error)
	ReadCluster(ctx context.Context, spec cluster.Spec, prior cluster.Nodes) (cluster.State, error)
	ReadPool(ctx context.Context, spec cluster.PoolSpec, prior cluster.Nodes) (cluster.PoolState, error)
	ApplyCluster(ctx context.Context, spec cluster.Spec, before *cluster.State, waits cluster.Waits) (cluster.State, error)
	ApplyPool(ctx context.Context, spec cluster.PoolSpec, before *cluster.PoolState, waits cluster.Waits) (cluster.PoolState, error)
	DeleteCluster(ctx context.Context, spec cluster.Spec, prior cluster.Nodes, waits cluster.Waits) (cluster.Nodes, error)
	DeletePool(ctx context.Context, spec cluster.PoolSpec, prior cluster.Nodes, waits cluster.Waits) (cluster.PoolState, error)
	Kubeconfig(ctx context.Context, clusterID string) (k3s.Kubeconfig, error)
	Export(ctx context.Context, pool string) (machine.Export, error)
}

var _ engine = (*cluster.Engine)(nil)

// releases lists the releases of k3s.
type releases interface {
	List(ctx context.Context) (k3s.ReleaseList, error)
}

var _ releases = (*k3s.Client)(nil)

// backend is what the configured provider hands to its resources and data sources.
type backend struct {
	// known is false where the provider's configuration holds values that are known only during apply: then there is
	// no engine, and no hypervisor is asked anything.
	known    bool
	engine   engine
	settings settings
	// imageRegistry is where images come from; it may be known where the rest is not.
	imageRegistry types.String
	// releases is nil where the place of the list is not known yet.
	releases releases
}

// errUnknownProvider is why nothing can be asked while the provider's configuration is not known.
var errUnknownProvider = &cluster.Failure{
	Err:   errors.New("the provider's configuration holds values that are not known yet"),
	Cause: "an attribute of the provider, such as a hypervisor's uri, comes from a resource that is not applied yet.",
	Remedy: "apply that resource first (terraform apply -target), or make the data source wait for apply with depends_on on a " +
		"resource that is about to change.",
}

// ready reports whether the engine can be used, and fails the task where it cannot.
func (b *backend) ready(t task, diags *diag.Diagnostics) bool {
	if b != nil && b.known {
		return true
	}
	t.fail(diags, errUnknownProvider)
	return false
}

// registry is where images come from, or another value where there is no provider to ask.
func (b *backend) registry(other types.String) types.String {
	if b == nil {
		return other
	}
	return b.imageRegistry
}

// backendOf returns the provider's data in a Configure method; it is nil before the provider was configured, as it is
// during validation.
func backendOf(data any, diags *diag.Diagnostics) *backend {
	if data == nil {
		return nil
	}
	b, ok := data.(*backend)
	if !ok {
		task{"use", "provider data", ""}.fail(diags, fmt.Errorf("unexpected type %T; please report this to the provider's developers", data))
	}
	return b
}
