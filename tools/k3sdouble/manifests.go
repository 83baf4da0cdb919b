package main

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/kubeapi"
)

//go:embed manifests/*.yaml
var packaged embed.FS

// packagedNames are the packaged components by the word that disables them. The real one has more (traefik, servicelb,
// …); their words are accepted.
var packagedNames = []string{"coredns", "local-storage", "metrics-server"}

const (
	deployEvery = 15 * time.Second
	deployRetry = 3 * time.Second
)

// deployManifests writes the packaged manifests and applies everything in server/manifests: all of it once at the
// start, whatever has changed since, and later what changes.
func (s *server) deployManifests(ctx context.Context) error {
	if err := s.writeManifests(); err != nil {
		return err
	}
	d := &deployer{api: s.admin, manager: "deploy@" + s.o.nodeName, applied: map[string]string{}, kinds: map[string]resource{}}
	for {
		wait := deployEvery
		if !d.pass(ctx, s.o.path("server", "manifests")) {
			wait = deployRetry
		}
		if sleep(ctx, wait) != nil {
			return nil
		}
	}
}

func (s *server) writeManifests() error {
	dns, err := clusterDNS(s.o)
	if err != nil {
		return err
	}
	registry := s.o.values.str("system-default-registry", "")
	if registry != "" {
		registry += "/"
	}
	fill := strings.NewReplacer(
		"%{SYSTEM_DEFAULT_REGISTRY}%", registry,
		"%{CLUSTER_DNS}%", dns, "%{CLUSTER_DOMAIN}%", s.o.shared().ClusterDomain,
		"%{DEFAULT_LOCAL_STORAGE_PATH}%", s.o.values.str("default-local-storage-path", s.o.path("storage")),
	)
	for _, name := range packagedNames {
		file := s.o.path("server", "manifests", name+".yaml")
		if _, err := os.Stat(file + ".skip"); err == nil {
			continue
		}
		if slices.Contains(s.o.disabled(), name) {
			if err := os.RemoveAll(file); err != nil {
				return err
			}
			continue
		}
		b, err := packaged.ReadFile("manifests/" + name + ".yaml")
		if err != nil {
			return err
		}
		if err := writeFile(file, []byte(fill.Replace(string(b))), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// clusterDNS is the configured address, else the tenth of the services.
func clusterDNS(o *options) (string, error) {
	if all := o.values.all("cluster-dns"); len(all) > 0 {
		return all[0], nil
	}
	p, err := netip.ParsePrefix(o.values.all("service-cidr", "10.43.0.0/16")[0])
	if err != nil {
		return "", fmt.Errorf("invalid service-cidr: %w", err)
	}
	a := p.Masked().Addr()
	for range 10 {
		a = a.Next()
	}
	return a.String(), nil
}

// deployer applies manifests.
type deployer struct {
	api     *kubeapi.Client
	manager string
	applied map[string]string // file to the hash of what was applied
	kinds   map[string]resource
}

// resource is where the objects of a kind live.
type resource struct {
	path       string // of the group and version
	plural     string
	namespaced bool
}

// pass applies what is new; it reports whether all went well.
func (d *deployer) pass(ctx context.Context, dir string) bool {
	entries, err := os.ReadDir(dir)
	if err != nil {
		log.errorf("Failed to read manifests: %v", err)
		return false
	}
	ok := true
	for _, e := range entries {
		file := filepath.Join(dir, e.Name())
		if ext := filepath.Ext(e.Name()); e.IsDir() || ext != ".yaml" && ext != ".yml" && ext != ".json" {
			continue
		}
		if _, err := os.Stat(file + ".skip"); err == nil {
			continue
		}
		b, err := os.ReadFile(file)
		if err == nil {
			sum := hashHex(string(b))
			if d.applied[file] == sum {
				continue
			}
			if err = d.apply(ctx, b); err == nil {
				d.applied[file] = sum
				log.infof("Applied manifest at %q", file)
				continue
			}
		}
		if ctx.Err() == nil {
			log.errorf("Failed to process config: failed to apply %s: %v", file, err)
		}
		ok = false
	}
	return ok
}

// apply applies the objects of one file.
func (d *deployer) apply(ctx context.Context, doc []byte) error {
	dec := yaml.NewDecoder(bytes.NewReader(doc))
	for {
		var obj map[string]any
		err := dec.Decode(&obj)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if len(obj) == 0 {
			continue
		}
		b, err := json.Marshal(obj)
		if err != nil {
			return err
		}
		var head struct {
			APIVersion, Kind string
			Metadata         kubeapi.Meta
		}
		if err := json.Unmarshal(b, &head); err != nil {
			return err
		}
		r, err := d.resource(ctx, head.APIVersion, head.Kind)
		if err != nil {
			return err
		}
		path := r.path
		if r.namespaced {
			ns := head.Metadata.Namespace
			if ns == "" {
				ns = "default"
			}
			path += "/namespaces/" + ns
		}
		path += "/" + r.plural + "/" + head.Metadata.Name + "?force=true&fieldManager=" + d.manager
		if err := d.api.Patch(ctx, path, kubeapi.ApplyPatch, b, nil); err != nil {
			return fmt.Errorf("%s %s: %w", head.Kind, head.Metadata.Name, err)
		}
	}
}

// resource asks the API where objects of a kind live.
func (d *deployer) resource(ctx context.Context, apiVersion, kind string) (resource, error) {
	key := apiVersion + " " + kind
	if r, ok := d.kinds[key]; ok {
		return r, nil
	}
	path := "/apis/" + apiVersion
	if !strings.Contains(apiVersion, "/") {
		path = "/api/" + apiVersion
	}
	var list struct {
		Resources []struct {
			Name, Kind string
			Namespaced bool
		}
	}
	if err := d.api.Get(ctx, path, &list); err != nil {
		return resource{}, fmt.Errorf("%s %s: %w", apiVersion, kind, err)
	}
	for _, r := range list.Resources {
		if r.Kind == kind && !strings.Contains(r.Name, "/") {
			d.kinds[key] = resource{path, r.Name, r.Namespaced}
			return d.kinds[key], nil
		}
	}
	return resource{}, fmt.Errorf("no matches for kind %q in version %q", kind, apiVersion)
}
