package addons

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/k3s"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// recipe is how one add-on is made. Its functions are called only where the add-on is wanted.
type recipe struct {
	// chartField and valuesField are what problems with the chart and with the user's values are about.
	chartField, valuesField machine.Field
	// chart is what the user says of the chart.
	chart func(s cluster.AddonSpec) record.Chart
	// values are the provider's.
	values func(s cluster.AddonSpec) tree
	// owned are those of them that no user can change.
	owned []owned
	// complete adds what else follows from the spec. The release has its values already.
	complete func(s cluster.AddonSpec, r *release)
	// check finds what is wrong with the add-on's own attributes, beyond the form of a single one; nil where nothing can be.
	check func(s cluster.AddonSpec) []cluster.Problem
}

// recipes are those of all add-ons.
var recipes = map[cluster.Addon]recipe{
	cluster.Calico:    calico,
	cluster.Cilium:    cilium,
	cluster.LocalPath: localPath,
	cluster.NFS:       nfs,
	cluster.Longhorn:  longhorn,
}

// releaseOf is an add-on of a cluster as it is wanted. It does no I/O.
func releaseOf(s cluster.AddonSpec, a cluster.Addon) (release, error) {
	how, ok := recipes[a]
	if !ok || !slices.Contains(s.Addons(), a) {
		return release{}, fmt.Errorf("the cluster has no add-on %s", a)
	}
	pins, err := matrix()
	if err != nil {
		return release{}, err
	}
	user := how.chart(s)
	theirs, err := parseValues(user.Values)
	if err != nil {
		return release{}, fmt.Errorf("read %s: %w", how.valuesField, err)
	}
	r := release{addon: a, place: places[a], values: merge(how.values(s), theirs.values)}
	r.source, r.crds = pins[a].sources(user)
	how.complete(s, &r)
	return r, nil
}

// Check says what is wrong with the add-ons that the user asks for. It does no I/O but to read local charts.
func (c *Catalogue) Check(s cluster.AddonSpec) []cluster.Problem {
	pins, err := matrix()
	if err != nil {
		return []cluster.Problem{{Field: machine.FieldCNI, Err: err}}
	}
	if l := s.CSI.Longhorn; l != nil {
		s.Nodes = max(s.Nodes, l.Replicas, longhornSidecars) // What is wrong must not depend on how many nodes there are by now.
	}
	var out []cluster.Problem
	for _, a := range s.Addons() {
		how := recipes[a]
		user := how.chart(s)
		if err := checkChart(pins[a], user); err != nil {
			out = append(out, cluster.Problem{Field: how.chartField, Err: err})
		}
		if theirs, err := parseValues(user.Values); err != nil {
			out = append(out, cluster.Problem{Field: how.valuesField, Err: err})
		} else {
			out = append(out, conflicts(how.valuesField, how.owned, how.values(s), theirs)...)
		}
		if how.check != nil {
			out = append(out, how.check(s)...)
		}
	}
	return append(out, checkTiers(s.CSI)...)
}

// Untested tells of each add-on whose chart, in the provider's own version, was not tested with the Kubernetes of the cluster's k3s.
func (c *Catalogue) Untested(s cluster.AddonSpec) []string {
	pins, err := matrix()
	version, versionErr := k3s.ParseVersion(s.K3sVersion)
	if err != nil || versionErr != nil {
		return nil // Check tells of the one, and the cluster's own attribute of the other.
	}
	var out []string
	for _, a := range s.Addons() {
		p, user := pins[a], recipes[a].chart(s)
		if user.Version != "" || user.Archive != "" || slices.Contains(p.Kubernetes, version.Minor()) {
			continue
		}
		out = append(out, fmt.Sprintf("%s %s was tested with Kubernetes %s, and the cluster gets %s.", p.Chart, p.Version, strings.Join(p.Kubernetes, ", "), version.Minor()))
	}
	return out
}

// checkChart says what is wrong with a chart that the user chose.
func checkChart(p pinned, user record.Chart) error {
	if user.Version != "" {
		if err := p.checkVersion(user.Version); err != nil {
			return err
		}
	}
	if user.Archive == "" {
		return nil
	}
	main, crds := p.sources(user)
	chart, err := local(main)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // It is needed where the add-on is installed, and not where something else is planned or destroyed.
	}
	if err != nil {
		return fmt.Errorf("chart %s: %w", main.archive, err)
	}
	if err := p.checkVersion(chart.version); err != nil || crds == nil {
		return err
	}
	beside, err := local(*crds)
	switch {
	case err != nil:
		return fmt.Errorf("chart %s, which is needed beside %s: %w", crds.archive, main.archive, err)
	case !sameVersion(beside.version, chart.version):
		return fmt.Errorf("chart %s has version %s, and %s has %s", crds.archive, beside.version, main.archive, chart.version)
	}
	return nil
}

// checkTiers finds what does not go together among the tiers of storage.
func checkTiers(csi record.CSI) []cluster.Problem {
	var out []cluster.Problem
	on := map[string]bool{record.LocalPathClass: csi.LocalPath != nil, record.NFSClass: csi.NFS != nil, record.LonghornClass: csi.Longhorn != nil}
	if name := csi.DefaultClass; name != "" && !on[name] {
		var names []string
		for _, other := range []string{record.LocalPathClass, record.NFSClass, record.LonghornClass} {
			if on[other] {
				names = append(names, other)
			}
		}
		err := fmt.Errorf("the default class %s belongs to a tier that is not on; leave it out, or choose one of %s", name, strings.Join(names, ", "))
		if len(names) == 0 {
			err = fmt.Errorf("the default class is %s, and the cluster has no storage tier", name)
		}
		out = append(out, cluster.Problem{Field: machine.FieldDefaultClass, Err: err})
	}
	if csi.LocalPath != nil && csi.Longhorn != nil && (within(csi.LocalPath.Path, csi.Longhorn.DataPath) || within(csi.Longhorn.DataPath, csi.LocalPath.Path)) {
		out = append(out, cluster.Problem{
			Field: machine.FieldLonghorn,
			Err: fmt.Errorf("data_path %s and local_path.path %s lie in one another; each tier needs a directory of its own",
				csi.Longhorn.DataPath, csi.LocalPath.Path),
		})
	}
	return out
}

// within reports whether a directory is another one or lies in it.
func within(inner, outer string) bool {
	return inner == outer || strings.HasPrefix(inner, strings.TrimSuffix(outer, "/")+"/")
}

// checkDirectory says what is wrong with a directory for volumes.
func checkDirectory(directory string) error {
	switch {
	case !path.IsAbs(directory) || path.Clean(directory) != directory:
		return fmt.Errorf("%q is no absolute path, or not in its shortest form", directory)
	case directory == "/":
		return errors.New("volumes cannot stand in / itself")
	}
	return nil
}

// podCIDR is the network of a cluster's pods.
func podCIDR(s cluster.AddonSpec) string {
	if s.CNI.PodCIDR != "" {
		return s.CNI.PodCIDR
	}
	return k3s.DefaultPodCIDR
}
