package scale

import (
	"context"
	"fmt"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
)

// scales are how many nodes stand on the ten hypervisors of the benchmark in all.
var scales = []int{20, 200, 1000}

const (
	hypervisors = 10
	servers     = 3
	pools       = 4
)

// BenchmarkRefresh is what the engine does while Terraform refreshes a cluster and its node pools, in a process of its own
// and side by side. The state knows the nodes, so that only a few of their records are read.
func BenchmarkRefresh(b *testing.B) { measure(b, refresh) }

func refresh(ctx context.Context, w *world) error {
	e := w.engine()
	return w.each(ctx,
		func(ctx context.Context) (cluster.State, error) { return e.ReadCluster(ctx, w.spec, w.servers) },
		func(ctx context.Context, i int) (cluster.PoolState, error) {
			return e.ReadPool(ctx, w.specs[i], w.agents[i])
		})
}

// What a refresh costs does not grow with the number of nodes: one survey, and no more records than there are servers.
func TestRefreshCost(t *testing.T) {
	for _, nodes := range scales[:2] {
		w := newWorld(t, nodes)
		if err := refresh(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		if n, m := w.surveys.Load(), w.records.Load(); n != 1 || m > servers {
			t.Errorf("with %d nodes: %d surveys and %d records", nodes, n, m)
		}
	}
}

// BenchmarkImport is the same for an import, which begins with no more than names: every record is read.
func BenchmarkImport(b *testing.B) {
	measure(b, func(ctx context.Context, w *world) error {
		e := w.engine()
		return w.each(ctx,
			func(ctx context.Context) (cluster.State, error) {
				spec, err := e.FindCluster(ctx, w.spec.Name)
				if err != nil {
					return cluster.State{}, err
				}
				return e.ReadCluster(ctx, spec, nil)
			},
			func(ctx context.Context, i int) (cluster.PoolState, error) {
				spec, err := e.FindPool(ctx, w.spec.Name+"/"+w.specs[i].Name)
				if err != nil {
					return cluster.PoolState{}, err
				}
				return e.ReadPool(ctx, spec, nil)
			})
	})
}

// measure runs work on worlds of each size. Besides the usual it reports how many surveys of the fleet were made, of which
// each costs two calls for a hypervisor, and how many records were read, of which each costs one.
func measure(b *testing.B, work func(context.Context, *world) error) {
	b.Helper()
	for _, nodes := range scales {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			w := newWorld(b, nodes)
			if err := work(b.Context(), w); err != nil {
				b.Fatal(err)
			}
			w.surveys.Store(0)
			w.records.Store(0)
			b.ReportAllocs()
			for b.Loop() {
				if err := work(b.Context(), w); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(w.surveys.Load())/float64(b.N), "surveys/op")
			b.ReportMetric(float64(w.records.Load())/float64(b.N), "records/op")
		})
	}
}

// each reads the cluster and its pools side by side, and checks that all nodes were found ready.
func (w *world) each(ctx context.Context, read func(context.Context) (cluster.State, error),
	readPool func(context.Context, int) (cluster.PoolState, error)) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		state, err := read(ctx)
		if err != nil {
			return err
		}
		return ready(state.Nodes, w.servers)
	})
	for i := range w.specs {
		g.Go(func() error {
			state, err := readPool(ctx, i)
			if err != nil {
				return err
			}
			return ready(state.Nodes, w.agents[i])
		})
	}
	return g.Wait()
}

// ready compares what was read with what stands there.
func ready(got, want cluster.Nodes) error {
	for name, n := range want {
		if got[name].State != cluster.NodeReady || got[name].UUID != n.UUID {
			return fmt.Errorf("node %s is %+v", name, got[name])
		}
	}
	if len(got) != len(want) {
		return fmt.Errorf("%d nodes, want %d", len(got), len(want))
	}
	return nil
}
