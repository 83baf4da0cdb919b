package addons

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chartutil"
	helmfake "helm.sh/helm/v3/pkg/kube/fake"
	helmrelease "helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/storage"
	"helm.sh/helm/v3/pkg/storage/driver"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
)

// newMemoryHelm is Helm without a cluster, with its records in memory.
func newMemoryHelm() (*helm, *helmfake.FailingKubeClient) {
	records := driver.NewMemory()
	api := &helmfake.FailingKubeClient{PrintingKubeClient: helmfake.PrintingKubeClient{Out: io.Discard, LogOutput: io.Discard}}
	return &helm{configure: func(_ context.Context, namespace string) (*action.Configuration, func(), error) {
		records.SetNamespace(namespace)
		return &action.Configuration{
			Releases: storage.Init(records), KubeClient: api, Capabilities: chartutil.DefaultCapabilities.Copy(), Log: func(string, ...any) {},
		}, func() {}, nil
	}}, api
}

// told lists revisions as their number and status.
func told(t *testing.T, h *helm, p place) []string {
	t.Helper()
	history, err := h.history(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, v := range history {
		out = append(out, strings.Join([]string{string(rune('0' + v.number)), v.status}, " "))
	}
	return out
}

func TestHelm(t *testing.T) {
	h, api := newMemoryHelm()
	r := testRelease(cluster.NFS)
	b, err := embedded(r.source)
	if err != nil {
		t.Fatal(err)
	}
	if got := told(t, h, r.place); len(got) != 0 {
		t.Errorf("at first: %q", got)
	}
	r.values = map[string]any{"keep": "me", "n": 1.0}
	if err := h.install(t.Context(), r, b); err != nil {
		t.Fatal(err)
	}
	got, err := h.get(t.Context(), r.place, 1)
	if err != nil || got.addon != cluster.NFS || got.digest != b.digest || got.chart != b.name || got.version != b.version ||
		got.since.IsZero() || len(differing(got.values, r.values)) > 0 {
		t.Errorf("got %+v, %v", got, err)
	}

	// Values that are not wanted any more are not kept, not even when none are.
	r.values = map[string]any{}
	if err := h.upgrade(t.Context(), r, b); err != nil {
		t.Fatal(err)
	}
	if got, err := h.get(t.Context(), r.place, 2); err != nil || len(got.values) != 0 {
		t.Errorf("got %v, %v", got.values, err)
	}

	api.UpdateError = io.ErrUnexpectedEOF
	if err := h.upgrade(t.Context(), r, b); err == nil {
		t.Error("a failed upgrade is no error")
	}
	if got, want := told(t, h, r.place), []string{"1 superseded", "2 deployed", "3 failed"}; !slices.Equal(got, want) {
		t.Errorf("after a failed upgrade: %q", got)
	}

	// Helm refuses to upgrade a pending release until it is marked as failed.
	setStatus(t, h, r.place, 3, "pending-upgrade")
	api.UpdateError = nil
	if err := h.upgrade(t.Context(), r, b); err == nil {
		t.Error("a pending release was upgraded")
	}
	if err := h.fail(t.Context(), r.place, 3); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		if err := h.upgrade(t.Context(), r, b); err != nil {
			t.Fatal(err)
		}
	}
	if got := told(t, h, r.place); len(got) != maxHistory || got[len(got)-1] != "7 deployed" {
		t.Errorf("after four upgrades: %q", got)
	}
	if err := h.forget(t.Context(), r.place, 3, 4); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := h.uninstall(t.Context(), r.place); err != nil {
			t.Fatal(err)
		}
	}
	if got := told(t, h, r.place); len(got) != 0 {
		t.Errorf("after it was uninstalled: %q", got)
	}
}

// setStatus changes the record of a revision.
func setStatus(t *testing.T, h *helm, p place, number int, status string) {
	t.Helper()
	config, end, err := h.configure(t.Context(), p.namespace)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	r, err := config.Releases.Get(p.name, number)
	if err != nil {
		t.Fatal(err)
	}
	r.Info.Status = helmrelease.Status(status)
	if err := config.Releases.Update(r); err != nil {
		t.Fatal(err)
	}
}

func TestHelmEndsWithItsContext(t *testing.T) {
	h, _ := newMemoryHelm()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errLost)
	if _, err := h.history(ctx, places[cluster.NFS]); err == nil || err.Error() != errLost.Error() {
		t.Errorf("got %v", err)
	}
}
