// Package addons knows the networks and the storage that a cluster can have, as charts with values, and installs, watches and
// removes them with Helm's library. Nothing is shelled out, and neither kubeconfigs nor charts are kept in files.
package addons

import (
	"context"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
)

// Options are the provider's settings for all charts.
type Options struct {
	// Repository is the URL of a chart repository, http://, https:// or oci://, that stands in for those of the projects; ""
	// for none.
	Repository string
	// Username and Password are sent to Repository only.
	Username, Password string
	// CA is PEM of certificates that are trusted besides those of the system, for Repository only.
	CA []byte
}

// Catalogue implements cluster.Catalogue. It keeps the charts that it has fetched in memory.
type Catalogue struct {
	charts *charts
}

// New returns a catalogue. It does no I/O.
func New(o Options) *Catalogue {
	return &Catalogue{charts: newCharts(o)}
}

// Open returns the add-ons of the cluster that a kubeconfig leads to. It does no I/O.
func (c *Catalogue) Open(kubeconfig []byte) (cluster.Addons, error) {
	return open(kubeconfig, c.charts)
}

// Fetch brings the charts of these add-ons here and checks that the values fit them.
func (c *Catalogue) Fetch(ctx context.Context, s cluster.AddonSpec, addons []cluster.Addon) error {
	return c.charts.fetchAll(ctx, s, addons)
}
