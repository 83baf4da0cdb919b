package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// release is an add-on that is installed in the cluster of a world.
type release struct {
	// setting is what it was installed with, copies how many Longhorn keeps.
	setting string
	copies  int
}

// copiesOf is how many copies Longhorn is to keep.
func copiesOf(s AddonSpec, a Addon) int {
	if a != Longhorn {
		return 0
	}
	return min(s.CSI.Longhorn.Replicas, s.Nodes)
}

// fakeCatalogue makes add-ons in memory.
type fakeCatalogue struct{ w *world }

func (c fakeCatalogue) Check(s AddonSpec) []Problem {
	if s.CNI.Chart.Values == "bad" {
		return []Problem{{Err: errors.New("bad values")}}
	}
	return nil
}

func (c fakeCatalogue) Fetch(_ context.Context, _ AddonSpec, addons []Addon) error {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if c.w.fetchErr != nil {
		return c.w.fetchErr
	}
	for _, a := range addons {
		c.w.fetched[a] = true
	}
	return nil
}

func (c fakeCatalogue) Open(kubeconfig []byte) (Addons, error) {
	return fakeAddons{fakeKube{c.w, kubeconfig}}, nil
}

// fakeAddons are the add-ons of the cluster behind a kubeconfig.
type fakeAddons struct{ k fakeKube }

func (f fakeAddons) Look(_ context.Context, s AddonSpec) (AddonStatuses, error) {
	w := f.k.w
	w.mu.Lock()
	defer w.mu.Unlock()
	out := AddonStatuses{}
	for a := range w.releases {
		out[a] = AddonStatus{State: AddonUnwanted, Reason: "it is not wanted"}
	}
	for _, a := range s.Addons() {
		have, ok := w.releases[a]
		switch {
		case !ok:
			out[a] = AddonStatus{State: AddonMissing, Reason: "there is no release"}
		case have.setting != s.setting(a):
			out[a] = AddonStatus{State: AddonDrifted, Reason: "it has other values"}
		default:
			out[a] = AddonStatus{State: AddonDeployed, Raisable: have.copies < copiesOf(s, a)}
		}
	}
	return out, f.k.down()
}

func (f fakeAddons) Install(_ context.Context, s AddonSpec, a Addon) error {
	w := f.k.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := cmp.Or(f.k.down(), w.step()); err != nil {
		return err
	}
	if w.refusals > 0 {
		w.refusals--
		return errors.New("the API is not ready for that yet")
	}
	if err := w.installErr[a]; err != nil {
		return err
	}
	want := release{s.setting(a), copiesOf(s, a)}
	if w.releases[a] == want {
		return nil
	}
	if !w.fetched[a] {
		return fmt.Errorf("the chart of %s was not fetched", a)
	}
	w.releases[a] = want
	w.log = append(w.log, "install "+string(a))
	return nil
}

func (f fakeAddons) Health(_ context.Context, _ AddonSpec, a Addon) error {
	w := f.k.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, "health of "+string(a))
	if err := w.unhealthy[a]; err != nil {
		return err
	}
	if a.IsNetwork() && w.relay != nil {
		return w.relay
	}
	return f.k.down()
}

func (f fakeAddons) Volumes(_ context.Context, a Addon) ([]string, error) {
	f.k.w.mu.Lock()
	defer f.k.w.mu.Unlock()
	return f.k.w.volumes[a], f.k.down()
}

func (f fakeAddons) Remove(_ context.Context, a Addon) error {
	w := f.k.w
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := cmp.Or(f.k.down(), w.step()); err != nil {
		return err
	}
	delete(w.releases, a)
	w.log = append(w.log, "remove "+string(a))
	return nil
}

func (f fakeAddons) Defaults(context.Context) ([]string, error) {
	f.k.w.mu.Lock()
	defer f.k.w.mu.Unlock()
	return slices.Clone(f.k.w.defaults), f.k.down()
}

// installed lists the add-ons that are installed.
func (w *world) installed() []Addon {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.releases))
}

// networked reports whether the nodes have the network that they were set up for. The caller holds w.mu.
func (w *world) networked() bool {
	for _, m := range w.machines {
		if c := m.Record.Cluster; c != nil {
			for _, a := range addonsOf(*c, 1, 1).Addons() {
				if _, ok := w.releases[a]; a.IsNetwork() && (!ok || w.unhealthy[a] != nil) {
					return false
				}
			}
		}
	}
	return true
}
