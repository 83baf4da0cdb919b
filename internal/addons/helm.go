package addons

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	helmkube "helm.sh/helm/v3/pkg/kube"
	helmrelease "helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/releaseutil"
	"helm.sh/helm/v3/pkg/storage"
	"helm.sh/helm/v3/pkg/storage/driver"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
)

// releases is what this package asks of Helm. Helm 3 is behind it; another one need not show anywhere else.
type releases interface {
	// history lists the revisions of a release, the oldest first; none where there is no release.
	history(ctx context.Context, p place) ([]revision, error)
	// get returns one revision.
	get(ctx context.Context, p place, number int) (revision, error)
	// install makes a release of which there is no revision. Objects that an earlier one has left behind become part of it.
	install(ctx context.Context, r release, b *bundle) error
	// upgrade makes a new revision of a release whose last one is not pending.
	upgrade(ctx context.Context, r release, b *bundle) error
	// fail marks revisions as failed, forget removes the records of some. Neither touches what they have made.
	fail(ctx context.Context, p place, numbers ...int) error
	forget(ctx context.Context, p place, numbers ...int) error
	// sweep deletes what was in manifests and is not in the newest revision, but no namespaces and nothing that data hang on.
	sweep(ctx context.Context, p place, manifests []string) error
	// uninstall removes a release with all its revisions, or goes on where that was begun.
	uninstall(ctx context.Context, p place) error
}

// revision is one revision of a release.
type revision struct {
	number int
	// status is Helm's word for it. since is when that was begun.
	status string
	since  time.Time
	// description is what Helm says to its status.
	description    string
	chart, version string
	// digest is that of the bundle, addon the add-on whose release it is; "" where the provider has not made it.
	digest   string
	addon    cluster.Addon
	values   map[string]any
	manifest string
}

// Helm's words for the status of a revision. Those that something is done about at the moment begin with pending.
const (
	deployed     = string(helmrelease.StatusDeployed)
	superseded   = string(helmrelease.StatusSuperseded)
	failed       = string(helmrelease.StatusFailed)
	uninstalling = string(helmrelease.StatusUninstalling)
	uninstalled  = string(helmrelease.StatusUninstalled)
	pending      = "pending-"
)

// The labels of the records of releases that the provider makes.
const (
	addonLabel  = "cockpit-k3s.github.io/addon"
	digestLabel = "cockpit-k3s.github.io/chart-digest"
)

// maxHistory is how many revisions of a release are kept.
const maxHistory = 5

func init() {
	// The name of the program, which Helm takes otherwise, has the provider's version in it: each would own fields of its own.
	helmkube.ManagedFieldsManager = fieldManager
}

// helm is Helm 3.
type helm struct {
	// configure makes a configuration for one operation, which ends with the context, and a function that ends it.
	configure func(ctx context.Context, namespace string) (*action.Configuration, func(), error)
}

// configureFor makes configurations for the cluster that a client's configuration leads to.
func configureFor(config *rest.Config) func(context.Context, string) (*action.Configuration, func(), error) {
	return func(ctx context.Context, namespace string) (*action.Configuration, func(), error) {
		g, err := newGetter(bound(ctx, config), namespace)
		if err != nil {
			return nil, nil, err
		}
		// When the operation is ended from outside, what became of the release is still written down.
		late, end := outliving(ctx, lastWords)
		records, err := kubernetes.NewForConfig(bound(late, config))
		if err != nil {
			end()
			return nil, nil, err
		}
		return &action.Configuration{
			RESTClientGetter: g,
			KubeClient:       newKubeClient(ctx, g, config),
			Releases:         storage.Init(driver.NewSecrets(records.CoreV1().Secrets(namespace))),
			Log:              func(string, ...any) {},
			HookOutputFunc:   func(_, _, _ string) io.Writer { return io.Discard },
		}, end, nil
	}
}

// operation runs one operation.
func (h *helm) operation(ctx context.Context, p place, do func(*action.Configuration) error) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	config, end, err := h.configure(ctx, p.namespace)
	if err != nil {
		return err
	}
	defer end()
	err = do(config)
	if err != nil && ctx.Err() != nil && !errors.Is(err, context.Cause(ctx)) {
		return fmt.Errorf("%w (%w)", err, context.Cause(ctx))
	}
	return err
}

func (h *helm) history(ctx context.Context, p place) ([]revision, error) {
	var out []revision
	err := h.operation(ctx, p, func(c *action.Configuration) error {
		found, err := c.Releases.History(p.name)
		if errors.Is(err, driver.ErrReleaseNotFound) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the history of release %s: %w", p, err)
		}
		releaseutil.SortByRevision(found)
		for _, r := range found {
			out = append(out, revisionOf(r))
		}
		return nil
	})
	return out, err
}

func (h *helm) get(ctx context.Context, p place, number int) (revision, error) {
	var out revision
	err := h.operation(ctx, p, func(c *action.Configuration) error {
		r, err := c.Releases.Get(p.name, number)
		if err != nil {
			return fmt.Errorf("read release %s: %w", p, err)
		}
		out = revisionOf(r)
		return nil
	})
	return out, err
}

// String names the release.
func (p place) String() string { return p.namespace + "/" + p.name }

func revisionOf(r *helmrelease.Release) revision {
	out := revision{
		number: r.Version, manifest: r.Manifest, values: r.Config,
		digest: r.Labels[digestLabel], addon: cluster.Addon(r.Labels[addonLabel]),
	}
	if r.Info != nil {
		out.status, out.since, out.description = string(r.Info.Status), r.Info.LastDeployed.Time, r.Info.Description
		if out.status == uninstalling && !r.Info.Deleted.IsZero() {
			out.since = r.Info.Deleted.Time
		}
	}
	if r.Chart != nil && r.Chart.Metadata != nil {
		out.chart, out.version = r.Chart.Metadata.Name, r.Chart.Metadata.Version
	}
	return out
}

// labelsOf are those of the records of a release.
func labelsOf(r release, b *bundle) map[string]string {
	return map[string]string{addonLabel: string(r.addon), digestLabel: b.digest}
}

func (h *helm) install(ctx context.Context, r release, b *bundle) error {
	c, err := b.load()
	if err != nil {
		return err
	}
	return h.operation(ctx, r.place, func(config *action.Configuration) error {
		do := action.NewInstall(config)
		do.ReleaseName, do.Namespace, do.Labels = r.name, r.namespace, labelsOf(r, b)
		do.Timeout = forever
		do.DisableOpenAPIValidation = true // The API server looks at what it gets by itself.
		made, err := do.Run(c, copyValues(r.values))
		if err != nil {
			return err
		}
		// Helm does not tell when it could not write down its success.
		if err := config.Releases.Update(made); err != nil {
			return fmt.Errorf("record that release %s is installed: %w", r.place, err)
		}
		return nil
	})
}

func (h *helm) upgrade(ctx context.Context, r release, b *bundle) error {
	c, err := b.load()
	if err != nil {
		return err
	}
	return h.operation(ctx, r.place, func(config *action.Configuration) error {
		do := action.NewUpgrade(config)
		do.Namespace, do.Labels, do.MaxHistory = r.namespace, labelsOf(r, b), maxHistory
		do.Timeout = forever
		do.ResetValues = true
		do.DisableOpenAPIValidation = true
		_, err := do.Run(r.name, c, copyValues(r.values))
		return err
	})
}

func (h *helm) fail(ctx context.Context, p place, numbers ...int) error {
	return h.operation(ctx, p, func(c *action.Configuration) error {
		for _, n := range numbers {
			r, err := c.Releases.Get(p.name, n)
			if err == nil {
				r.SetStatus(helmrelease.StatusFailed, "it was not finished")
				err = c.Releases.Update(r)
			}
			if err != nil {
				return fmt.Errorf("mark revision %d of release %s as failed: %w", n, p, err)
			}
		}
		return nil
	})
}

func (h *helm) forget(ctx context.Context, p place, numbers ...int) error {
	return h.operation(ctx, p, func(c *action.Configuration) error {
		for _, n := range numbers {
			if _, err := c.Releases.Delete(p.name, n); err != nil && !errors.Is(err, driver.ErrReleaseNotFound) {
				return fmt.Errorf("delete the record of revision %d of release %s: %w", n, p, err)
			}
		}
		return nil
	})
}

func (h *helm) sweep(ctx context.Context, p place, manifests []string) error {
	return h.operation(ctx, p, func(c *action.Configuration) error {
		last, err := c.Releases.Last(p.name)
		if err != nil {
			return err
		}
		wanted, err := c.KubeClient.Build(strings.NewReader(last.Manifest), false)
		if err != nil {
			return err
		}
		for _, m := range manifests {
			// A kind that is gone has no objects: those of the other kinds are told all the same.
			left, _ := c.KubeClient.Build(strings.NewReader(m), false)
			if left = left.Difference(wanted).Filter(sweepable); len(left) == 0 {
				continue
			}
			if _, errs := c.KubeClient.Delete(left); len(errs) > 0 {
				return fmt.Errorf("delete what an unfinished revision of release %s has left: %w", p, errors.Join(errs...))
			}
		}
		return nil
	})
}

// sweepable reports whether an object may be deleted without harm to data.
func sweepable(info *resource.Info) bool {
	kept := []string{"CustomResourceDefinition", "Namespace", "PersistentVolume", "PersistentVolumeClaim", "StorageClass"}
	return !slices.Contains(kept, info.Mapping.GroupVersionKind.Kind)
}

func (h *helm) uninstall(ctx context.Context, p place) error {
	return h.operation(ctx, p, func(c *action.Configuration) error {
		do := action.NewUninstall(c)
		do.IgnoreNotFound = true
		do.Timeout = forever
		_, err := do.Run(p.name)
		return err
	})
}

// forever is for waits of Helm, which end with the operation's context instead.
const forever = 24 * time.Hour

// load makes a chart that Helm may alter.
func (b *bundle) load() (*chart.Chart, error) {
	c, err := loader.LoadFiles(b.files)
	if err != nil {
		return nil, err
	}
	return c, c.Validate()
}

// lackingDependencies names the charts that a chart depends on and does not hold.
func lackingDependencies(c *chart.Chart) []string {
	var out []string
	for _, d := range c.Metadata.Dependencies {
		if !slices.ContainsFunc(c.Dependencies(), func(s *chart.Chart) bool { return s.Name() == d.Name }) {
			out = append(out, d.Name)
		}
	}
	return out
}

// optionalAPIs are kinds that charts look for before they make objects of them, where a value asks for these. A rendering without
// a cluster takes them for being there.
var optionalAPIs = chartutil.VersionSet{
	"monitoring.coreos.com/v1", "monitoring.coreos.com/v1/ServiceMonitor", "monitoring.coreos.com/v1/PodMonitor",
	"monitoring.coreos.com/v1/PrometheusRule", "snapshot.storage.k8s.io/v1", "cert-manager.io/v1",
	"gateway.networking.k8s.io/v1", "gateway.networking.k8s.io/v1/GatewayClass",
}

// render renders a chart without a cluster, which checks the values against the chart's schema, too.
func render(b *bundle, p place, values map[string]any) (string, error) {
	c, err := b.load()
	if err != nil {
		return "", notAChart(err)
	}
	// Which version of Kubernetes the chart asks for is compared with the real one when it is installed.
	c.Metadata.KubeVersion = ""
	do := action.NewInstall(&action.Configuration{Log: func(string, ...any) {}})
	do.ReleaseName, do.Namespace = p.name, p.namespace
	do.ClientOnly, do.DryRun, do.APIVersions = true, true, optionalAPIs
	out, err := do.Run(c, copyValues(values))
	if err != nil {
		return "", fmt.Errorf("render it: %w", err)
	}
	return out.Manifest, nil
}

// copyValues returns values that Helm may alter, as they look when they were stored and read.
func copyValues(values map[string]any) map[string]any {
	out := map[string]any{}
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(values); err != nil {
		return values // They are not JSON's types, which a test of the catalogue would have found.
	}
	if err := json.NewDecoder(&b).Decode(&out); err != nil || out == nil {
		return map[string]any{}
	}
	return out
}
