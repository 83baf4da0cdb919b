package addons

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"

	"github.com/Masterminds/semver/v3"
	"go.yaml.in/yaml/v3"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

//go:embed matrix.yaml
var matrixYAML []byte

// pinned is the chart of an add-on as matrix.yaml has it.
type pinned struct {
	Repository string   `yaml:"repository"`
	Chart      string   `yaml:"chart"`
	CRDs       string   `yaml:"crds"`
	Version    string   `yaml:"version"`
	Oldest     string   `yaml:"oldest"`
	Upgrades   string   `yaml:"upgrades"`
	Kubernetes []string `yaml:"kubernetes"`
}

// matrix reads matrix.yaml once.
var matrix = sync.OnceValues(func() (map[cluster.Addon]pinned, error) {
	d := yaml.NewDecoder(bytes.NewReader(matrixYAML))
	d.KnownFields(true)
	var m map[cluster.Addon]pinned
	if err := d.Decode(&m); err != nil {
		return nil, fmt.Errorf("read the matrix of charts: %w", err)
	}
	return m, nil
})

// sources tells where the chart comes from, and the one of its CRDs, nil where it has them itself.
func (p pinned) sources(user record.Chart) (chart source, crds *source) {
	chart = source{chart: p.Chart, version: p.Version, archive: user.Archive, repository: user.Repository, origin: p.Repository}
	if user.Version != "" {
		chart.version = user.Version
	}
	if user.Archive != "" {
		chart.version = ""
	}
	if p.CRDs == "" {
		return chart, nil
	}
	other := chart
	other.chart = p.CRDs
	if user.Archive != "" {
		other.archive = p.crdsBeside(user.Archive)
	}
	return chart, &other
}

// crdsBeside is where the chart of the CRDs is looked for: beside the archive, under its project's name and with the same
// ending, such as crd.projectcalico.org.v1-v3.32.1.tgz beside tigera-operator-v3.32.1.tgz.
func (p pinned) crdsBeside(archive string) string {
	directory, file := filepath.Split(filepath.Clean(archive))
	return filepath.Join(directory, p.CRDs+strings.TrimPrefix(file, p.Chart))
}

// checkVersion says what is wrong with a chart's version.
func (p pinned) checkVersion(version string) error {
	oldest, err := semver.NewVersion(p.Oldest)
	if err != nil {
		return fmt.Errorf("the oldest version of the chart %s: %w", p.Chart, err)
	}
	v, err := semver.NewVersion(version)
	switch {
	case err != nil:
		return errors.New("the version of a chart has a form such as " + p.Version)
	case v.LessThan(oldest):
		return fmt.Errorf("the provider's values fit the chart %s from version %s on; it was tested with %s", p.Chart, p.Oldest, p.Version)
	}
	return nil
}
