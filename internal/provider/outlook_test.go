package provider

import (
	"slices"
	"strings"
	"testing"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// some are workers in these states.
func some(states ...cluster.NodeState) cluster.Nodes {
	nodes := workers(len(states))
	for i, s := range states {
		but(nodes, record.NodeName("prod", "workers", i+1), s)
	}
	return nodes
}

// The warning tells what will happen, which depends on how many nodes are wanted now, and on the rules of the pool.
func TestDriftTellsTheFateOfNodes(t *testing.T) {
	const started, removed = "it is started", "it is removed"
	const anew, gone = "what is left of it is removed, and a new node is made", "what is left of it is removed"
	const mended, updated = "it is powered off and on again, and replaced where that does not help", "it is brought up to date"
	r, s, n, m, u, d := cluster.NodeReady, cluster.NodeStopped, cluster.NodeNotReady, cluster.NodeMissing, cluster.NodeUnhealthy, cluster.NodeDrifted
	for name, tt := range map[string]struct {
		nodes     cluster.Nodes
		was, want int
		first     []string
		lines     []string
	}{
		"stopped":                 {some(r, s, r), 3, 3, nil, []string{"2 is stopped: " + started}},
		"stopped and one less":    {some(r, s, r), 3, 2, nil, []string{"2 is stopped: " + removed}},
		"two stopped, one less":   {some(s, s, r), 3, 2, nil, []string{"1 is stopped: " + started, "2 is stopped: " + removed}},
		"not ready goes first":    {some(s, n, r), 3, 2, nil, []string{"1 is stopped: " + started}},
		"missing":                 {some(r, m, r), 3, 3, nil, []string{"2 is missing: " + anew}},
		"missing and one less":    {some(r, m, r), 3, 2, nil, []string{"2 is missing: " + gone}},
		"two missing, one less":   {some(r, m, m), 3, 2, nil, []string{"2 is missing: " + anew, "3 is missing: " + gone}},
		"missing hides a surplus": {some(m, s, r), 3, 2, nil, []string{"1 is missing: " + gone, "2 is stopped: " + started}},
		"tenth after second":      {some(r, s, r, r, r, r, r, r, r, s), 10, 9, nil, []string{"10 is stopped: " + removed, "2 is stopped: " + started}},
		"lacking":                 {some(r, r), 3, 3, nil, []string{"the number of nodes is 2 instead of 3: the rest is made"}},
		"lacking, and enough now": {some(r, r), 3, 2, nil, []string{"the number of nodes is 2 instead of 3: as many as are wanted now"}},
		"unhealthy":               {some(r, u, r), 3, 3, nil, []string{"2 is unhealthy (for a test): " + mended}},
		"unhealthy and one less":  {some(r, u, r), 3, 2, nil, []string{"2 is unhealthy (for a test): " + removed}},
		"too many unhealthy":      {some(r, u, u), 3, 3, nil, nil},
		"one of two goes":         {some(r, u, u), 3, 2, nil, []string{"2 is unhealthy (for a test): " + mended, "3 is unhealthy (for a test): " + removed}},
		"drifted":                 {some(r, d, r), 3, 3, nil, []string{"2 is drifted (for a test): " + updated}},
		"drifted is no reason":    {some(r, d, r), 3, 2, nil, []string{"2 is drifted (for a test): " + updated}},
		"named goes first":        {some(d, s, r), 3, 2, []string{"workers-1"}, []string{"1 is drifted (for a test): " + removed, "2 is stopped: " + started}},
		"named in full":           {some(d, r, r), 3, 2, []string{"prod-workers-1"}, []string{"1 is drifted (for a test): " + removed}},
		"named, and none goes":    {some(d, r, r), 3, 3, []string{"workers-1"}, []string{"1 is drifted (for a test): " + updated}},
		"named of another pool":   {some(d, r, r), 3, 2, []string{"other-1"}, []string{"1 is drifted (for a test): " + updated}},
	} {
		t.Run(name, func(t *testing.T) {
			o := outlook{group: "workers", nodes: tt.nodes, was: tt.was, want: tt.want}
			o.fates = o.foresee(tt.want, tt.first)
			o.restrain(1)
			got := o.drift()
			for i := range got {
				got[i] = strings.ReplaceAll(strings.TrimPrefix(got[i], "prod-workers-"), ` on hypervisor "default"`, "")
			}
			if !slices.Equal(got, tt.lines) {
				t.Errorf("got  %q\nwant %q", got, tt.lines)
			}
		})
	}
}

// The engine's review knows more of the nodes than the state does.
func TestReviewTellsTheFateOfNodes(t *testing.T) {
	for name, tt := range map[string]struct {
		nodes  cluster.Nodes
		review cluster.Review
		want   map[string]fate
	}{
		"no review":        {some(cluster.NodeDrifted, cluster.NodeReady), cluster.Review{}, map[string]fate{"prod-workers-1": adjusted}},
		"replaced":         {some(cluster.NodeDrifted, cluster.NodeReady), cluster.Review{Changes: map[string]cluster.Change{"prod-workers-1": cluster.Replaced}}, map[string]fate{"prod-workers-1": renewed}},
		"a ready one, too": {some(cluster.NodeReady, cluster.NodeReady), cluster.Review{Changes: map[string]cluster.Change{"prod-workers-2": cluster.Resized}}, map[string]fate{"prod-workers-2": resized}},
		"one that stood in": {some(cluster.NodeReady, cluster.NodeReady, cluster.NodeDrifted), cluster.Review{Assignment: cluster.Assignment{"workers-1": "hv-a", "workers-2": "hv-a"}},
			map[string]fate{"prod-workers-3": removed}},
		"another one goes": {some(cluster.NodeReady, cluster.NodeReady, cluster.NodeReady), cluster.Review{Assignment: cluster.Assignment{"workers-2": "hv-a", "workers-3": "hv-a"}},
			map[string]fate{"prod-workers-1": removed}},
		"missing": {some(cluster.NodeReady, cluster.NodeMissing), cluster.Review{Assignment: cluster.Assignment{"workers-1": "hv-a", "workers-2": "hv-b"}},
			map[string]fate{"prod-workers-2": remade}},
	} {
		t.Run(name, func(t *testing.T) {
			o := outlook{group: "workers", nodes: tt.nodes, was: 2, want: 2}
			o.fates = o.foresee(2, nil)
			o.learn(tt.review)
			for node := range tt.nodes {
				if o.fates[node] != tt.want[node] {
					t.Errorf("%s: got %q, want %q", node, o.fates[node], tt.want[node])
				}
			}
		})
	}
}

func TestPoolDrift(t *testing.T) {
	for name, tt := range map[string]struct {
		nodes   cluster.Nodes
		warning []string
		// open: the plan leaves the nodes open.
		open bool
	}{
		"missing":   {but(workers(3), "prod-workers-2", cluster.NodeMissing), []string{`Node pool "workers" has drifted`, "prod-workers-2", `"default" is missing`}, true},
		"stopped":   {but(workers(3), "prod-workers-2", cluster.NodeStopped), []string{"prod-workers-2", "is stopped"}, true},
		"lacking":   {workers(2), []string{"2 instead of 3"}, true},
		"surplus":   {workers(4), []string{"4 instead of 3"}, true},
		"unhealthy": {but(workers(3), "prod-workers-2", cluster.NodeUnhealthy), []string{`Node pool "workers" has drifted`, `is unhealthy (for a test): it is powered off and on again`}, true},
		"drifted":   {but(workers(3), "prod-workers-2", cluster.NodeDrifted), []string{`Node pool "workers" has drifted`, `is drifted (for a test): it is brought up to date`}, true},
		"not ready": {but(workers(3), "prod-workers-2", cluster.NodeNotReady), nil, false},
		"unknown":   {but(workers(3), "prod-workers-2", cluster.NodeUnknown), nil, false},
		"too many unhealthy": {some(cluster.NodeReady, cluster.NodeUnhealthy, cluster.NodeUnhealthy), []string{
			`warning at : Node pool "workers" has unhealthy nodes that are not touched`, "prod-workers-2 on hypervisor", "prod-workers-3", "repair.max_unhealthy is 1", "What to do: "}, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, someTemplate())
			state := w.create(poolType, poolConfig())
			w.engine.nodes = tt.nodes
			state, diags := w.read(poolType, state)
			wantDiags(t, diags)
			w.engine.calls = nil
			p := w.plan(poolType, state, poolConfig())
			wantDiags(t, p.diags, tt.warning...)
			if open := p.state["nodes"] == any(unknown); open != tt.open {
				t.Errorf("nodes: open is %t in %v", open, p.state)
			}
			if n := len(p.diags); n > 1 {
				t.Errorf("%d diagnostics, want one", n)
			}
			if asked := len(w.engine.calls) > 0; asked != tt.open {
				t.Errorf("the engine was asked %v", w.engine.calls)
			}
		})
	}
}

// Another rule is enough to have all of the unhealthy nodes repaired, or none.
func TestRepairOfUnhealthyNodes(t *testing.T) {
	for most, want := range map[int]string{0: "are not touched", 1: "are not touched", 2: "it is powered off and on again"} {
		w := newWorld(t, someTemplate())
		state := w.create(poolType, poolConfig())
		w.engine.nodes = some(cluster.NodeReady, cluster.NodeUnhealthy, cluster.NodeUnhealthy)
		state, _ = w.read(poolType, state)
		p := w.plan(poolType, state, with(poolConfig(), object{"repair": object{"max_unhealthy": most}}))
		wantDiags(t, p.diags, want)
		if open := p.state["nodes"] == any(unknown); open != (most == 2) {
			t.Errorf("max_unhealthy %d: nodes are open: %t", most, open)
		}
	}
}
