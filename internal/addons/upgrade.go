package addons

import (
	"fmt"
	"slices"

	"github.com/Masterminds/semver/v3"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
)

// mayFollow makes sure that a chart's version may come after the one that is deployed. What an add-on keeps in the cluster is changed
// by its new version, and some can only take one minor at a time, and none back.
func mayFollow(a cluster.Addon, history []revision, version string) error {
	pins, err := matrix()
	if err != nil {
		return err
	}
	if pins[a].Upgrades != "minor" {
		return nil
	}
	i := slices.IndexFunc(history, func(v revision) bool { return v.status == deployed })
	if i < 0 {
		return nil
	}
	is, err1 := semver.NewVersion(history[i].version)
	next, err2 := semver.NewVersion(version)
	switch {
	case err1 != nil || err2 != nil:
		return nil //nolint:nilerr // a version of the user's own making
	case next.LessThan(is) && next.Minor() < is.Minor(), next.Major() < is.Major(), a == cluster.Longhorn && next.LessThan(is):
		return &cluster.Failure{
			Err:    fmt.Errorf("%s %s is installed, and cannot become the older %s", a, is, next),
			Cause:  "chart.version names an older version, or this release of the provider does.",
			Remedy: fmt.Sprintf("set chart.version to %q or a newer one.", history[i].version),
		}
	case next.Major() == is.Major() && next.Minor() > is.Minor()+1:
		return &cluster.Failure{
			Err:    fmt.Errorf("%s %s is installed, and %s skips a minor version", a, is, next),
			Cause:  "it can be upgraded by one minor version at a time.",
			Remedy: fmt.Sprintf("set chart.version to a version %d.%d first, apply, and then go on.", is.Major(), is.Minor()+1),
		}
	}
	return nil
}
