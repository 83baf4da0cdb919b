package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// drawChange draws another wish for a cluster's add-ons.
func drawChange(t *rapid.T, spec Spec) Spec {
	csi, cni := &spec.Settings.CSI, &spec.Settings.CNI
	rapid.SampledFrom([]func(){
		func() { csi.NFS = nil },
		func() {
			csi.NFS = &record.NFS{Server: "203.0.113.7", Path: rapid.SampledFrom([]string{"/x", "/y"}).Draw(t, "path")}
		},
		func() { csi.Longhorn = nil },
		func() {
			csi.Longhorn = &record.Longhorn{Replicas: rapid.IntRange(1, 4).Draw(t, "replicas"), DataPath: "/var/lib/longhorn"}
		},
		func() { csi.LocalPath = nil },
		func() { localPath(&spec) },
		func() { cni.Hubble = !cni.Hubble },
		func() {
			spec.Settings.ImageRegistry = rapid.SampledFrom([]string{"", "registry.example"}).Draw(t, "registry")
		},
		func() { spec.Servers = 3 },
	}).Draw(t, "change")()
	return spec
}

// drawTrouble draws what goes wrong during one apply, or has gone wrong before it.
func drawTrouble(t *rapid.T, w *world) {
	addon := rapid.SampledFrom([]Addon{Cilium, LocalPath, NFS, Longhorn})
	rapid.SampledFrom([]func(){
		func() {},
		func() { w.steps = rapid.IntRange(0, 40).Draw(t, "steps") },
		func() { w.apiDown = errors.New("connection refused") },
		func() { w.fetchErr = errors.New("the mirror is down") },
		func() {
			w.unhealthy[addon.Filter(func(a Addon) bool { return !a.IsNetwork() }).Draw(t, "sick")] = &Unavailable{}
		},
		func() { w.installErr[addon.Draw(t, "refused")] = errors.New("refused") },
		func() { delete(w.releases, addon.Draw(t, "gone")) },
		func() {
			m := w.machine("c-cp-1")
			m.Power = machine.Stopped
			w.machines[m.UUID] = m
		},
	}).Draw(t, "trouble")()
}

// Whatever goes wrong on the way, the next apply without trouble makes the add-ons right, and the plan after it is empty.
func TestAddonsUnderRandomChangesAndTroubles(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t, "a", "b", "c")
		var trace []string
		say := func(format string, args ...any) { trace = append(trace, fmt.Sprintf(format, args...)) }
		fail := func(format string, args ...any) {
			rt.Fatalf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(trace, "\n"))
		}
		spec := with(func(s *Spec) { cilium(s); localPath(s) })
		state, err := w.engine().ApplyCluster(background, spec, nil, quick)
		if err != nil {
			rt.Fatal(err)
		}
		pools := map[string]*PoolState{}
		for range rapid.IntRange(1, 5).Draw(rt, "rounds") {
			next := drawChange(rt, spec)
			drawTrouble(rt, w)
			say("wanted: %d servers, %+v, %+v", next.Servers, addonsOf(next.Settings, next.Servers, 1).Addons(), next.Settings)
			read, err := w.engine().ReadCluster(background, state.Spec, state.Nodes)
			if err == nil {
				state = read
				r, err := w.engine().CheckCluster(background, next, &state)
				say("read %s %v; plan %v, %v, %v", state.Status, state.Addons, r.Addons, r.Problems, err)
				if err == nil && len(r.Problems) == 0 {
					if rapid.Bool().Draw(rt, "with a pool") {
						pool := poolNamed(rapid.SampledFrom([]string{"p", "q"}).Draw(rt, "pool"), rapid.IntRange(1, 3).Draw(rt, "size"))
						p, err := w.engine().ApplyPool(background, pool, pools[pool.Name], quick)
						say("pool %s of %d: %v, %v", pool.Name, pool.Nodes, err, p.Warnings)
						if err == nil || len(p.Nodes) > 0 {
							pools[pool.Name] = &p
						}
					}
					before := state
					state, err = w.engine().ApplyCluster(background, next, &before, quick)
					say("apply: %v, installed %v", err, w.installed())
					if err == nil || rapid.Bool().Draw(rt, "goes on") {
						spec = next
					}
				}
			}
			w.steps, w.apiDown, w.fetchErr = -1, nil, nil
			clear(w.unhealthy)
			clear(w.installErr)
		}
		if state, err = w.engine().ReadCluster(background, state.Spec, state.Nodes); err != nil {
			fail("read: %v", err)
		}
		if spec.Servers < len(state.Nodes) {
			return // Servers that leave again are a matter of their own.
		}
		if r, err := w.engine().CheckCluster(background, spec, &state); err != nil || len(r.Problems) > 0 {
			fail("check: %v, %v", err, r.Problems)
		}
		if state, err = w.engine().ApplyCluster(background, spec, &state, quick); err != nil {
			fail("apply: %v", err)
		}
		want := addonsOf(spec.Settings, spec.Servers, spec.Servers)
		if got := w.installed(); !slices.Equal(got, slices.Sorted(slices.Values(want.Addons()))) {
			fail("installed %v", got)
		}
		for _, a := range want.Addons() {
			if got := w.releases[a].setting; got != want.setting(a) {
				fail("%s is installed with %s", a, got)
			}
		}
		if state, err = w.engine().ReadCluster(background, state.Spec, state.Nodes); err != nil || state.Status != Active {
			fail("read again: %v, %s, %v", err, state.Status, state.Addons)
		}
		if r, err := w.engine().CheckCluster(background, spec, &state); err != nil || len(r.Problems)+len(r.Addons)+len(r.Changes) > 0 {
			fail("the next plan: %v, %+v", err, r)
		}
	})
}
