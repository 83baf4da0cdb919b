// Package charts has the lab's stand-ins for the charts of add-ons: charts of the real names, with the values that matter and
// the objects that show, which run no real program. What the programs would do is played by the lab (package addons of
// kubelab). The package packs them, and serves them as a chart repository and as an OCI registry.
package charts

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Files whose names begin with an underscore are embedded only by "all:".
//
//go:embed all:sources
var sources embed.FS

// predecessors are the versions that every chart is offered in besides its own, to be upgraded from.
var predecessors = map[string]string{
	"cilium":                   "1.20.1",
	"crd.projectcalico.org.v1": "v3.32.0",
	"csi-driver-nfs":           "4.13.3",
	"longhorn":                 "1.12.0",
	"tigera-operator":          "v3.32.0",
}

// Chart is a packed chart.
type Chart struct {
	// Name and Version are those of Chart.yaml.
	Name, Version string
	// Archive is the packed chart, gzip of tar; the same source gives the same bytes.
	Archive []byte
	// metadata is Chart.yaml.
	metadata map[string]any
}

// File is the usual name of the archive.
func (c Chart) File() string { return c.Name + "-" + c.Version + ".tgz" }

// Load packs all charts, in the order of their names, the newest version of each first.
func Load() ([]Chart, error) {
	entries, err := sources.ReadDir("sources")
	if err != nil {
		return nil, err
	}
	var all []Chart
	for _, e := range entries {
		newest, err := pack(e.Name(), "")
		if err != nil {
			return nil, fmt.Errorf("packing the chart %s: %w", e.Name(), err)
		}
		older, ok := predecessors[e.Name()]
		if !ok || older == newest.Version {
			return nil, fmt.Errorf("packing the chart %s: it has no predecessor", e.Name())
		}
		before, err := pack(e.Name(), older)
		if err != nil {
			return nil, fmt.Errorf("packing the chart %s: %w", e.Name(), err)
		}
		all = append(all, newest, before)
	}
	return all, nil
}

// pack makes the archive of a chart; a version that is not "" replaces its own.
func pack(name, version string) (Chart, error) {
	root, err := fs.Sub(sources, path.Join("sources", name))
	if err != nil {
		return Chart{}, err
	}
	text, err := fs.ReadFile(root, "Chart.yaml")
	if err != nil {
		return Chart{}, err
	}
	c := Chart{}
	if err := yaml.Unmarshal(text, &c.metadata); err != nil {
		return Chart{}, fmt.Errorf("reading Chart.yaml: %w", err)
	}
	if version != "" {
		own, _ := c.metadata["version"].(string)
		app, _ := c.metadata["appVersion"].(string)
		c.metadata["version"] = version
		// Some projects write the version of the program with a "v", and some do not.
		c.metadata["appVersion"] = strings.Replace(app, strings.TrimPrefix(own, "v"), strings.TrimPrefix(version, "v"), 1)
		if text, err = yaml.Marshal(c.metadata); err != nil {
			return Chart{}, err
		}
	}
	c.Name, _ = c.metadata["name"].(string)
	c.Version, _ = c.metadata["version"].(string)
	if c.Name != name || c.Version == "" {
		return Chart{}, errors.New("its Chart.yaml has another name, or no version")
	}
	c.Archive, err = archive(name, root, map[string][]byte{"Chart.yaml": text})
	return c, err
}

// archive packs the files below root under the chart's name; those in instead replace the ones of their path.
func archive(name string, root fs.FS, instead map[string][]byte) ([]byte, error) {
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	w := tar.NewWriter(zip)
	err := fs.WalkDir(root, ".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, ok := instead[file]
		if !ok {
			if content, err = fs.ReadFile(root, file); err != nil {
				return err
			}
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: path.Join(name, file), Size: int64(len(content)), Mode: 0o644}); err != nil {
			return err
		}
		_, err = w.Write(content)
		return err
	})
	err = errors.Join(err, w.Close(), zip.Close())
	return out.Bytes(), err
}

// find returns a chart of that name and version.
func find(all []Chart, name, version string) (Chart, bool) {
	i := slices.IndexFunc(all, func(c Chart) bool { return c.Name == name && c.Version == version })
	if i < 0 {
		return Chart{}, false
	}
	return all[i], true
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
