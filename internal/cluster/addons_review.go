package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
)

// setting is what of a cluster's settings an add-on follows from, to compare.
func (s AddonSpec) setting(a Addon) string {
	var of any
	switch a {
	case Calico, Cilium:
		of = s.CNI
	case LocalPath:
		of = s.CSI.LocalPath
	case NFS:
		of = s.CSI.NFS
	case Longhorn:
		of = s.CSI.Longhorn
	}
	text, err := json.Marshal([]any{of, s.CSI.Default() == string(a), s.ImageRegistry, a.IsNetwork() && s.Servers > 1})
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// reviewAddons tells which add-ons an apply changes, and what stands in the way of that. What only the cluster's API could tell is
// left to the apply where that does not answer.
func (e *Engine) reviewAddons(ctx context.Context, spec Spec, before *State, machines []machine.Machine) ([]Addon, []Problem) {
	is := addonsOf(spec.Settings, spec.Servers, 0)
	if before == nil {
		return is.Addons(), append(e.reviewNFS(ctx, is, AddonSpec{}), is.absent(is.Addons())...)
	}
	was := addonsOf(before.Spec.Settings, before.Spec.Servers, 0)
	var changes []Addon
	var problems []Problem
	for _, a := range slices.Compact(slices.Sorted(slices.Values(slices.Concat(is.Addons(), was.Addons())))) {
		wanted, had := slices.Contains(is.Addons(), a), slices.Contains(was.Addons(), a)
		drifted := before.Addons[a].State
		if wanted == had && is.setting(a) == was.setting(a) && (drifted == "" || drifted == AddonDeployed || drifted == AddonUnknown) {
			continue
		}
		changes = append(changes, a)
		if !had {
			continue
		}
		if what := undone(a, is, was); what != "" {
			problems = append(problems, e.reviewVolumes(ctx, a, is, what, machines)...)
		}
	}
	if l, m := is.CSI.Longhorn, was.CSI.Longhorn; l != nil && m != nil && l.DataPath != m.DataPath {
		problems = append(problems, Problem{Field: machine.FieldLonghorn, Err: errors.New(
			"data_path cannot be changed while Longhorn is installed: nodes keep the directory that they began with")})
	}
	problems = append(problems, is.absent(changes)...)
	return changes, append(problems, e.reviewNFS(ctx, is, was)...)
}

// absent finds the charts that add-ons are to be installed from and that are not on this machine. One that is not touched needs none.
func (s AddonSpec) absent(addons []Addon) []Problem {
	var problems []Problem
	for _, a := range addons {
		archive, field := s.archive(a)
		if archive == "" {
			continue
		}
		if _, err := os.Stat(archive); err != nil {
			problems = append(problems, Problem{Field: field, Err: fmt.Errorf("find the chart's archive: %w", err)})
		}
	}
	return problems
}

// archive is the local chart of an add-on, "" where it comes from elsewhere or is not wanted, and the attribute that names it.
func (s AddonSpec) archive(a Addon) (string, machine.Field) {
	switch {
	case a.IsNetwork():
		return s.CNI.Chart.Archive, machine.FieldCNIChart
	case a == NFS && s.CSI.NFS != nil:
		return s.CSI.NFS.Chart.Archive, machine.FieldNFSChart
	case a == Longhorn && s.CSI.Longhorn != nil:
		return s.CSI.Longhorn.Chart.Archive, machine.FieldLonghornChart
	}
	return "", ""
}

// undone says what a change does to an add-on that its volumes do not outlive, "" where there is nothing of that kind.
func undone(a Addon, is, was AddonSpec) string {
	if !slices.Contains(is.Addons(), a) {
		return "removed"
	}
	if a != NFS {
		return ""
	}
	x, y := *is.CSI.NFS, *was.CSI.NFS
	if x.Server != y.Server || x.Path != y.Path || x.Version != y.Version || !slices.Equal(x.MountOptions, y.MountOptions) {
		return "given another export or other mount options"
	}
	return ""
}

// reviewVolumes refuses what volumes do not outlive, unless an apply that did not come to its end has done it already.
func (e *Engine) reviewVolumes(ctx context.Context, a Addon, is AddonSpec, done string, machines []machine.Machine) []Problem {
	field, storage := storageFields[a]
	if !storage || e.options.Catalogue == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, apiReadTimeout)
	defer cancel()
	d, err := e.open(ctx, machines, false)
	if err != nil {
		return nil
	}
	volumes, err := d.addons.Volumes(ctx, a)
	if err != nil || len(volumes) == 0 {
		return nil
	}
	if statuses, err := look(ctx, d.addons, is); err == nil && statuses[a].State == AddonDeployed {
		return nil
	}
	return []Problem{{Field: field, Err: volumesLeft(a, done, volumes)}}
}

// storageFields are the attributes of the storage add-ons.
var storageFields = map[Addon]machine.Field{LocalPath: machine.FieldLocalPath, NFS: machine.FieldNFS, Longhorn: machine.FieldLonghorn}

// reviewNFS refuses an NFS server that is new and does not answer.
func (e *Engine) reviewNFS(ctx context.Context, is, was AddonSpec) []Problem {
	nfs := is.CSI.NFS
	if nfs == nil || nfs.Server == "" || was.CSI.NFS != nil && was.CSI.NFS.Server == nfs.Server {
		return nil
	}
	if err := refusedFromHere(ctx, *nfs); err != nil {
		return []Problem{{Field: machine.FieldNFSServer, Err: err}}
	}
	return nil
}

// lookAtAddons tells how a cluster's add-ons are.
func (e *Engine) lookAtAddons(ctx context.Context, spec Spec, a answer) (AddonStatuses, Condition) {
	wanted := addonsOf(spec.Settings, spec.Servers, countTakers(a.nodes))
	ctx, cancel := context.WithTimeout(ctx, apiReadTimeout)
	defer cancel()
	if a.nodes == nil || a.door == nil {
		return unseenAddons(wanted, errors.New("the cluster's API does not answer"))
	}
	statuses, err := look(ctx, a.door.addons, wanted)
	if err != nil {
		return unseenAddons(wanted, err)
	}
	var deployed []Addon
	var bad []string
	for _, addon := range slices.Sorted(maps.Keys(statuses)) {
		switch s := statuses[addon]; s.State {
		case AddonDeployed:
			deployed = append(deployed, addon)
		default:
			bad = append(bad, fmt.Sprintf("%s is %s: %s", addon, s.State, s.Reason))
		}
	}
	if len(bad) == 0 && slices.ContainsFunc(slices.Collect(maps.Values(a.nodes)), takesPodsNow) {
		if err := health(ctx, a.door.addons, wanted, deployed); err != nil {
			bad = append(bad, err.Error())
		}
	}
	if other := otherDefaults(ctx, a.door.addons, wanted); other != "" {
		bad = append(bad, other)
	}
	return statuses, condition(addonsReady, len(bad) == 0, "AllRunning", "NotRunning", strings.Join(bad, ", "))
}

// unseenAddons is what is said of add-ons that cannot be looked at.
func unseenAddons(wanted AddonSpec, err error) (AddonStatuses, Condition) {
	statuses := AddonStatuses{}
	for _, a := range wanted.Addons() {
		statuses[a] = AddonStatus{State: AddonUnknown, Reason: err.Error()}
	}
	return statuses, Condition{Type: addonsReady, Status: "Unknown", Reason: "NoAnswer", Message: err.Error()}
}

// otherDefaults tells of default StorageClasses beside the one that is wanted, "" where there are none. They are somebody else's and
// stay as they are.
func otherDefaults(ctx context.Context, k Addons, s AddonSpec) string {
	wanted := s.CSI.Default()
	defaults, err := k.Defaults(ctx)
	other := slices.DeleteFunc(defaults, func(name string) bool { return name == wanted })
	if err != nil || wanted == "" || len(other) == 0 {
		return ""
	}
	return fmt.Sprintf("beside %s there are other default StorageClasses: %s; claims that name no class get the one that was made last", wanted, strings.Join(other, ", "))
}

// addonsReady is the condition that all add-ons are as they are wanted and run.
const addonsReady = "AddonsReady"
