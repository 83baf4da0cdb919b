package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/terraform-plugin-log/tflog"
	"golang.org/x/sync/semaphore"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/k3s"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// errNoCatalogue is why nothing can be said or done about add-ons.
var errNoCatalogue = errors.New("the provider has no catalogue of add-ons")

// addonsOf is what the add-ons of a cluster with these settings follow from.
func addonsOf(settings record.Cluster, servers, nodes int) AddonSpec {
	return AddonSpec{CNI: settings.CNI, CSI: settings.CSI, Servers: max(servers, 1), Nodes: max(nodes, 1), ImageRegistry: settings.ImageRegistry}
}

// addonWork is what an apply has to do about add-ons.
type addonWork struct {
	// network: the network plugin has to be installed before nodes are waited for. storage: something has to be done once the
	// nodes are there.
	network, storage bool
}

// takesPods reports whether a node takes pods of any kind. What a node has for a while only, or the network plugin takes away,
// keeps nothing off it for good.
func takesPods(n Node) bool {
	return !slices.ContainsFunc(n.Taints, func(t record.Taint) bool {
		passes := strings.HasPrefix(t.Key, "node.kubernetes.io/") || strings.HasPrefix(t.Key, "node.cloudprovider.kubernetes.io/") ||
			strings.HasPrefix(t.Key, "node.cilium.io/")
		return t.Effect != "PreferNoSchedule" && !passes
	})
}

// countTakers counts the nodes that take pods of any kind.
func countTakers(nodes map[string]Node) int {
	n := 0
	for _, node := range nodes {
		if takesPods(node) {
			n++
		}
	}
	return n
}

// pendingAddons finds out what an apply has to do about add-ons, and brings the charts here that it needs for that: an apply
// that cannot get them ends before it has made anything. Of a cluster whose API does not answer nothing can be told; what
// is wrong there shows at the end.
func (e *Engine) pendingAddons(ctx context.Context, g group, a answer, settings record.Cluster) (addonWork, error) {
	spec := addonsOf(settings, g.want, countTakers(a.nodes))
	wanted := spec.Addons()
	if g.base.Role == record.Agent {
		return addonWork{storage: len(wanted) > 0}, nil
	}
	if e.options.Catalogue == nil {
		if len(wanted) > 0 {
			return addonWork{}, errNoCatalogue
		}
		return addonWork{}, nil
	}
	if problems := e.options.Catalogue.Check(spec); len(problems) > 0 {
		return addonWork{}, problemError(problems)
	}
	work, install := addonWork{storage: len(wanted) > 0}, wanted
	switch {
	case a.door != nil && a.nodes != nil:
		statuses, err := a.door.addons.Look(ctx, spec)
		if err != nil {
			return addonWork{}, fmt.Errorf("look at the add-ons: %w", err)
		}
		work, install = addonWork{}, nil
		for addon, s := range statuses {
			work.storage = work.storage || s.State != AddonDeployed || s.Raisable
			if s.State != AddonDeployed && s.State != AddonUnwanted || s.Raisable {
				install = append(install, addon)
				work.network = work.network || addon.IsNetwork()
			}
		}
		slices.Sort(install)
	case !slices.ContainsFunc(g.machines, joined): // A new cluster.
		work.network = slices.ContainsFunc(wanted, Addon.IsNetwork)
	}
	if len(install) == 0 {
		return work, nil
	}
	if err := e.options.Catalogue.Fetch(ctx, spec, install); err != nil {
		return addonWork{}, fmt.Errorf("get the charts: %w", err)
	}
	return work, nil
}

func joined(m machine.Machine) bool { return m.Record.Phase == record.Joined }

// withAddons calls f with the cluster's add-ons, and once more with a newly read kubeconfig where that may help.
func (r *run) withAddons(ctx context.Context, f func(Addons) error) error {
	return r.withDoor(ctx, func(d *door) error {
		if d.addons == nil {
			return errNoCatalogue
		}
		return f(d.addons)
	})
}

// turnAtAddons lets one apply at a time work on the add-ons of a cluster.
func (e *Engine) turnAtAddons(ctx context.Context, clusterID string) (func(), error) {
	e.mu.Lock()
	turn := e.charting[clusterID]
	if turn == nil {
		turn = semaphore.NewWeighted(1)
		e.charting[clusterID] = turn
	}
	e.mu.Unlock()
	if err := turn.Acquire(ctx, 1); err != nil {
		return nil, fmt.Errorf("wait for another apply that works on the cluster's add-ons: %w", context.Cause(ctx))
	}
	return func() { turn.Release(1) }, nil
}

// installNetwork installs the network plugin as soon as the API answers. What it takes to make nodes Ready is waited for with
// them.
func (r *run) installNetwork(ctx context.Context) error {
	release, err := r.engine.turnAtAddons(ctx, r.base.ClusterID)
	if err != nil {
		return err
	}
	defer release()
	if err := r.awaitAPI(ctx); err != nil {
		return err
	}
	spec := addonsOf(r.settings, r.servers, 0)
	for _, a := range spec.Addons() {
		if a.IsNetwork() {
			return r.install(ctx, spec, a)
		}
	}
	return nil
}

// awaitAPI waits until the API answers, which it does before any node is Ready.
func (r *run) awaitAPI(ctx context.Context) error {
	wctx, cancel := within(ctx, r.waits.Ready)
	defer cancel()
	var last error
	err := poll(wctx, func(ctx context.Context) (bool, error) {
		if err := r.withAPI(ctx, func(k Kube) error { return k.Ready(ctx) }); err == nil || ctx.Err() == nil || last == nil {
			last = err
		}
		return last == nil, nil
	})
	if !errors.Is(err, errWait) {
		return err
	}
	for _, s := range serversOf(r.all()) {
		if s.Power == machine.Running {
			return r.diagnoseReady(ctx, s, last)
		}
	}
	return fmt.Errorf("waited %s for the cluster's API: %w", r.waits.Ready, last)
}

// install installs one add-on or brings it to what is wanted. The API of a cluster that has just begun refuses things for a
// moment.
func (r *run) install(ctx context.Context, spec AddonSpec, a Addon) error {
	err := r.insist(ctx, func(ctx context.Context) error {
		return r.withAddons(ctx, func(k Addons) error { return k.Install(ctx, spec, a) })
	})
	if err != nil {
		return fmt.Errorf("install %s: %w", a, err)
	}
	tflog.Info(ctx, "add-on installed", map[string]any{"cluster": r.base.ClusterName, "addon": string(a)})
	return nil
}

// settleAddons brings the add-ons of a cluster to what is wanted, and waits until those run that it has touched. What an apply of
// a pool does about them can fail without harm to its nodes.
func (r *run) settleAddons(ctx context.Context) error {
	release, err := r.engine.turnAtAddons(ctx, r.base.ClusterID)
	if err != nil {
		return err
	}
	defer release()
	if r.base.Role == record.Server {
		return r.settleAll(ctx)
	}
	err = r.settleMore(ctx)
	if err != nil && ctx.Err() == nil {
		r.warn(fmt.Errorf("the nodes are Ready, and the cluster's add-ons are not all: %w", err))
		return nil
	}
	return err
}

// settleAll does all that there is to do.
func (r *run) settleAll(ctx context.Context) error {
	spec, statuses, err := r.lookAtAddons(ctx)
	if err != nil {
		return err
	}
	for _, a := range slices.Sorted(maps.Keys(statuses)) {
		if statuses[a].State == AddonUnwanted {
			if err := r.remove(ctx, a); err != nil {
				return err
			}
		}
	}
	var touched []Addon
	check := k3s.Preflight{}
	for _, a := range spec.Addons() {
		s := statuses[a]
		if s.State == AddonDeployed && !s.Raisable {
			continue
		}
		touched = append(touched, a)
		if s.State != AddonDeployed {
			check = preflightOf(check, spec, a)
		}
	}
	if err := r.preflight(ctx, check); err != nil {
		return err
	}
	for _, a := range touched {
		if err := r.install(ctx, spec, a); err != nil {
			return err
		}
	}
	return r.finishAddons(ctx, spec, touched)
}

// settleMore does what more nodes make a difference to.
func (r *run) settleMore(ctx context.Context) error {
	spec, statuses, err := r.lookAtAddons(ctx)
	if err != nil {
		return err
	}
	for _, a := range spec.Addons() {
		if !statuses[a].Raisable {
			continue
		}
		if err := r.engine.options.Catalogue.Fetch(ctx, spec, []Addon{a}); err != nil {
			return fmt.Errorf("get the charts: %w", err)
		}
		if err := r.install(ctx, spec, a); err != nil {
			return err
		}
	}
	return r.finishAddons(ctx, spec, spec.Addons())
}

// lookAtAddons tells how the add-ons are, and what they are to be with the nodes that there are by now.
func (r *run) lookAtAddons(ctx context.Context) (AddonSpec, AddonStatuses, error) {
	var spec AddonSpec
	var statuses AddonStatuses
	err := r.insist(ctx, func(ctx context.Context) error {
		return r.withDoor(ctx, func(d *door) error {
			if d.addons == nil {
				return errNoCatalogue
			}
			nodes, err := d.kube.Nodes(ctx)
			if err != nil {
				return err
			}
			spec = addonsOf(r.settings, r.servers, countTakers(byName(nodes)))
			statuses, err = d.addons.Look(ctx, spec)
			return err
		})
	})
	if err != nil {
		return spec, nil, fmt.Errorf("look at the add-ons: %w", err)
	}
	return spec, statuses, nil
}

// finishAddons waits until add-ons run, where there is a node for their pods, and tells of what they cannot do yet.
func (r *run) finishAddons(ctx context.Context, spec AddonSpec, addons []Addon) error {
	if l := spec.CSI.Longhorn; l != nil && spec.Nodes < l.Replicas {
		r.warn(fmt.Errorf("Longhorn keeps %d of %d copies of new volumes: replica_count is %d, and %d nodes take pods; an apply of a node pool that grows raises it", //nolint:staticcheck // begins with a name
			spec.Nodes, l.Replicas, l.Replicas, spec.Nodes))
	}
	wctx, cancel := within(ctx, r.waits.Addons)
	defer cancel()
	var last error
	err := poll(wctx, func(ctx context.Context) (bool, error) {
		err := r.withDoor(ctx, func(d *door) error {
			nodes, err := d.kube.Nodes(ctx)
			if err != nil || countTakers(byName(nodes)) == 0 {
				return err
			}
			return health(ctx, d.addons, spec, addons)
		})
		if err == nil || ctx.Err() == nil || last == nil {
			last = err
		}
		return err == nil, nil
	})
	if errors.Is(err, errWait) {
		return &Failure{
			Err:    fmt.Errorf("waited %s for the add-ons: %w", r.waits.Addons, last),
			Cause:  "their pods do not run, for the reasons that are told above.",
			Remedy: "see to it that the nodes can get the images, and apply again; more of the pods' own words: kubectl describe pod and kubectl logs.",
		}
	}
	return err
}

// health asks add-ons side by side whether they run.
func health(ctx context.Context, k Addons, spec AddonSpec, addons []Addon) error {
	errs := make([]error, len(addons))
	var wg sync.WaitGroup
	for i, a := range addons {
		wg.Go(func() { errs[i] = k.Health(ctx, spec, a) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// remove uninstalls a storage add-on that is not wanted any more, unless there is data on it.
func (r *run) remove(ctx context.Context, a Addon) error {
	err := r.insist(ctx, func(ctx context.Context) error {
		return r.withAddons(ctx, func(k Addons) error {
			volumes, err := k.Volumes(ctx, a)
			if err != nil {
				return err
			}
			if len(volumes) > 0 {
				return volumesLeft(a, "removed", volumes)
			}
			return k.Remove(ctx, a)
		})
	})
	if err != nil {
		return fmt.Errorf("remove %s: %w", a, err)
	}
	return nil
}

// volumesLeft is why a storage add-on cannot be removed or changed.
func volumesLeft(a Addon, done string, volumes []string) error {
	return &Failure{
		Err:    fmt.Errorf("%s cannot be %s while it has volumes: %s", a, done, strings.Join(volumes, ", ")),
		Cause:  "their data would be lost, or out of reach.",
		Remedy: "move the data, delete the claims, and apply again.",
	}
}

// preflightOf adds what an add-on needs of every node.
func preflightOf(p k3s.Preflight, spec AddonSpec, a Addon) k3s.Preflight {
	switch a {
	case NFS:
		p.NFS = spec.CSI.NFS.Server
	case Longhorn:
		p.ISCSI = true
	}
	return p
}

// preflightFor is what the add-ons of a cluster need of every node.
func preflightFor(settings record.Cluster) k3s.Preflight {
	spec := addonsOf(settings, 0, 0)
	var p k3s.Preflight
	for _, a := range spec.Addons() {
		p = preflightOf(p, spec, a)
	}
	return p
}

// preflight asks the guests of all nodes that run whether they have what an add-on needs of them.
func (r *run) preflight(ctx context.Context, p k3s.Preflight) error {
	if p == (k3s.Preflight{}) {
		return nil
	}
	machines := slices.DeleteFunc(r.all(), func(m machine.Machine) bool { return !joined(m) || m.Power != machine.Running })
	errs := make([]error, len(machines))
	var wg sync.WaitGroup
	for i, m := range machines {
		wg.Go(func() {
			if err := r.preflightIn(ctx, m, p); err != nil {
				errs[i] = nodeError(m.Name, m.Hypervisor, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// byName indexes Node objects.
func byName(nodes []Node) map[string]Node {
	out := make(map[string]Node, len(nodes))
	for _, n := range nodes {
		out[n.Name] = n
	}
	return out
}
