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
	return AddonSpec{
		CNI: settings.CNI, CSI: settings.CSI, Servers: max(servers, 1), Nodes: max(nodes, 1), ImageRegistry: settings.ImageRegistry, K3sVersion: settings.K3sVersion,
	}
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

// takesPodsNow reports whether a node takes pods at this moment.
func takesPodsNow(n Node) bool {
	return n.Ready && takesPods(n) && !slices.ContainsFunc(n.Taints, func(t record.Taint) bool { return t.Key == "node.kubernetes.io/unschedulable" })
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
	work := addonWork{storage: len(wanted) > 0}
	install := wanted
	switch {
	case !slices.ContainsFunc(g.machines, joined):
		// A new cluster. What answers may be a server that an apply has left half-made, and goes.
		work.network = slices.ContainsFunc(wanted, Addon.IsNetwork)
	case a.nodes == nil:
		return work, nil
	default:
		statuses, err := lookPatiently(ctx, a.door.addons, spec)
		if err != nil {
			return addonWork{}, fmt.Errorf("look at the add-ons: %w", err)
		}
		work, install = addonWork{}, nil
		for _, addon := range slices.Sorted(maps.Keys(statuses)) {
			s := statuses[addon]
			work.storage = work.storage || s.State != AddonDeployed || s.Raisable
			if s.State != AddonDeployed && s.State != AddonUnwanted || s.Raisable {
				install = append(install, addon)
				work.network = work.network || addon.IsNetwork()
			}
		}
	}
	if len(install) == 0 {
		return work, nil
	}
	if err := e.options.Catalogue.Fetch(ctx, spec, install); err != nil {
		return addonWork{}, fmt.Errorf("get the charts: %w", err)
	}
	return work, nil
}

// look tells how add-ons are. A network that is not wanted is left out: nodes live by it, and records that lost it are more likely than
// that somebody could do without.
func look(ctx context.Context, k Addons, spec AddonSpec) (AddonStatuses, error) {
	statuses, err := k.Look(ctx, spec)
	maps.DeleteFunc(statuses, func(a Addon, s AddonStatus) bool { return a.IsNetwork() && s.State == AddonUnwanted })
	return statuses, err
}

// lookPatiently is look where a moment's trouble of the API is no reason to give up.
func lookPatiently(ctx context.Context, k Addons, spec AddonSpec) (AddonStatuses, error) {
	wctx, cancel := within(ctx, apiReadTimeout)
	defer cancel()
	var statuses AddonStatuses
	var last error
	err := poll(wctx, func(ctx context.Context) (bool, error) {
		found, err := look(ctx, k, spec)
		if err == nil || ctx.Err() == nil || last == nil {
			statuses, last = found, err
		}
		return last == nil, nil
	})
	return statuses, blame(err, last)
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
			r.networks = append(r.networks, a)
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
		err := r.withAddons(ctx, func(k Addons) error { return k.Install(ctx, spec, a) })
		if err != nil {
			tflog.Warn(ctx, "add-on not installed yet", map[string]any{"cluster": r.base.ClusterName, "addon": string(a), "error": err.Error()})
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("install %s: %w", a, err)
	}
	tflog.Info(ctx, "add-on installed", map[string]any{"cluster": r.base.ClusterName, "addon": string(a)})
	return nil
}

// settleAddons brings the add-ons of a cluster to what is wanted, and waits until those run that it has touched. What an apply of
// a pool does about them can fail without harm to its nodes: a pool whose making fails would have them made anew.
func (r *run) settleAddons(ctx context.Context) error {
	change := r.changeAll
	if r.base.Role == record.Agent {
		change = r.changeMore
	}
	spec, touched, err := r.changeAddons(ctx, change)
	if err == nil {
		err = r.finishAddons(ctx, spec, touched)
	}
	if err != nil && r.base.Role == record.Agent {
		r.warn(fmt.Errorf("the nodes are Ready, and the cluster's add-ons are not all: %w", err))
		return nil
	}
	return err
}

// changeAddons has add-ons changed while no other apply does so. How long their pods take is nobody else's wait.
func (r *run) changeAddons(ctx context.Context, change func(context.Context, AddonSpec, AddonStatuses) ([]Addon, error)) (AddonSpec, []Addon, error) {
	release, err := r.engine.turnAtAddons(ctx, r.base.ClusterID)
	if err != nil {
		return AddonSpec{}, nil, err
	}
	defer release()
	spec, statuses, err := r.lookAtAddons(ctx)
	if err != nil {
		return spec, nil, err
	}
	touched, err := change(ctx, spec, statuses)
	return spec, touched, err
}

// changeAll does all that there is to do, and tells which add-ons it has touched. What is not wanted any more goes last: what comes in
// its place may turn out not to be possible.
func (r *run) changeAll(ctx context.Context, spec AddonSpec, statuses AddonStatuses) ([]Addon, error) {
	touched := slices.Clone(r.networks)
	var install []Addon
	check := k3s.Preflight{}
	for _, a := range spec.Addons() {
		s := statuses[a]
		if s.State == AddonDeployed && !s.Raisable {
			continue
		}
		install = append(install, a)
		if s.State != AddonDeployed {
			check = preflightOf(check, spec, a)
		}
	}
	if err := r.preflight(ctx, check); err != nil {
		return nil, err
	}
	for _, a := range install {
		if err := r.install(ctx, spec, a); err != nil {
			return nil, err
		}
	}
	for _, a := range slices.Sorted(maps.Keys(statuses)) {
		if statuses[a].State == AddonUnwanted {
			if err := r.remove(ctx, a); err != nil {
				return nil, err
			}
		}
	}
	return append(touched, install...), nil
}

// changeMore does what more nodes make a difference to. All add-ons may have waited for them.
func (r *run) changeMore(ctx context.Context, spec AddonSpec, statuses AddonStatuses) ([]Addon, error) {
	for _, a := range spec.Addons() {
		if !statuses[a].Raisable {
			continue
		}
		if err := r.engine.options.Catalogue.Fetch(ctx, spec, []Addon{a}); err != nil {
			return nil, fmt.Errorf("get the charts: %w", err)
		}
		if err := r.install(ctx, spec, a); err != nil {
			return nil, err
		}
	}
	return spec.Addons(), nil
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
			statuses, err = look(ctx, d.addons, spec)
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
			if err != nil || !slices.ContainsFunc(nodes, takesPodsNow) {
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
	return blame(err, last)
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
