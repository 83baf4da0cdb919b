package addons

import (
	"embed"
	"fmt"
	"io/fs"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// charts/local-path is a chart of our own for https://github.com/rancher/local-path-provisioner. k3s brings one as a manifest,
// which it applies at every start, so that its class would be a default one again and again.
//
//go:embed all:charts/local-path
var ownCharts embed.FS

// localPath is made by a chart that is part of the provider.
var localPath = recipe{
	chartField:  machine.FieldLocalPath,
	valuesField: machine.FieldLocalPathValues,
	chart:       func(s cluster.AddonSpec) record.Chart { return record.Chart{Values: s.CSI.LocalPath.Chart.Values} },
	values:      localPathValues,
	owned: []owned{
		own("nodePathMap", "use csi.local_path.path"),
		own("storageClass.default", "use csi.default_class"),
	},
	complete: func(s cluster.AddonSpec, r *release) {
		r.source.files, _ = fs.Sub(ownCharts, "charts/local-path") // The path is valid, which is all that Sub looks at.
		r.class = &class{name: record.LocalPathClass, isDefault: s.CSI.Default() == record.LocalPathClass, provisioner: r.driver}
		r.class.follow(r.values)
		r.workloads = []workload{{deployment, r.namespace, "local-path-provisioner"}}
		r.pods = []podSelector{{r.namespace, map[string]string{"app": "local-path-provisioner"}}}
	},
	check: func(s cluster.AddonSpec) []cluster.Problem {
		if err := checkDirectory(s.CSI.LocalPath.Path); err != nil {
			return []cluster.Problem{{Field: machine.FieldLocalPath, Err: fmt.Errorf("path: %w", err)}}
		}
		return nil
	},
}

// localPathImages are the images of the chart by the keys of their settings, as its values have them.
var localPathImages = map[string]string{
	"image":       "docker.io/rancher/local-path-provisioner",
	"helperImage": "docker.io/rancher/mirrored-library-busybox",
}

// localPathValues are the values of the chart.
func localPathValues(s cluster.AddonSpec) tree {
	values := tree{
		"nodePathMap":  []tree{{"node": "DEFAULT_PATH_FOR_NON_LISTED_NODES", "paths": []string{s.CSI.LocalPath.Path}}},
		"storageClass": tree{"default": s.CSI.Default() == record.LocalPathClass},
	}
	if s.ImageRegistry != "" {
		for key, repository := range localPathImages {
			put(values, mirrored(s.ImageRegistry, repository), key, "repository")
		}
	}
	return values
}
