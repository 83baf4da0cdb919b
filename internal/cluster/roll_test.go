package cluster

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// made changes what the records say of the named nodes, or of all.
func (g group) made(change func(*record.Record), names ...string) group {
	g.machines = slices.Clone(g.machines)
	for i := range g.machines {
		if m := &g.machines[i]; len(names) == 0 || slices.Contains(names, m.Name) {
			change(&m.Record)
		}
	}
	return g
}

// upgrading sets the rule by which nodes are changed.
func (g group) upgrading(surge, unavailable int) group {
	g.base.Upgrade = record.Upgrade{MaxSurge: surge, MaxUnavailable: unavailable}
	return g.made(func(r *record.Record) { r.Upgrade = g.base.Upgrade })
}

// seen gives each node a Node object that is Ready, but for those named.
func (g group) seen(notReady ...string) group {
	g.ready, g.api, g.sick = map[string]bool{}, map[string]Node{}, map[string]bool{}
	for _, m := range g.machines {
		ready := !slices.Contains(notReady, m.Name)
		g.ready[m.Name] = ready
		g.api[m.Name] = Node{Name: m.Name, Ready: ready, Etcd: true, Voter: true}
	}
	g.members = g.ready
	return g
}

// ill marks nodes that are not Ready for too long.
func (g group) ill(names ...string) group {
	g = g.seen(names...)
	for _, n := range names {
		g.sick[n] = true
	}
	return g
}

func smaller(r *record.Record)     { r.Shape.MemoryMiB -= 512 }
func elsewhere(r *record.Record)   { r.Shape.StoragePool = "hdd" }
func otherArgs(r *record.Record)   { r.Setup.Args = []string{"--old"} }
func standsIn(r *record.Record)    { r.Temporary = true }
func halfChanged(r *record.Record) { r.Setup.Changing = true }

func TestRoll(t *testing.T) {
	const (
		fresh   = "forget define clone seed start agent bootstrap ready label seal"
		leaves  = "drain stop forget delete"
		resize  = "drain stop resize start agent ready label release"
		replace = leaves + ", then " + fresh
		restart = "cordon configure ready label release"
	)
	pool := func(nodes ...string) group { return testGroup(record.Agent, len(nodes), "a").with(nodes...) }
	three := func() group { return pool("1@a", "2@b", "3@a") }
	withArgs := func(g group) group {
		g.base.Setup.Args = []string{"--new"}
		return g
	}
	for name, tc := range map[string]struct {
		group group
		want  string
	}{
		"more memory, with a node that stands in": {
			three().made(smaller).upgrading(1, 0).seen(), `
surge
  c-w-4@a: ` + fresh + `
roll
  c-w-1@a: ` + resize + `
roll
  c-w-2@b: ` + resize + `
roll
  c-w-3@a: ` + resize + `
unsurge
  c-w-4@a: ` + leaves + `
`},
		"two stand in: after the first, two are changed at once": {
			three().made(smaller).upgrading(2, 0).seen(), `
surge
  c-w-4@a: ` + fresh + `
  c-w-5@a: ` + fresh + `
roll
  c-w-1@a: ` + resize + `
roll
  c-w-2@b: ` + resize + `
  c-w-3@a: ` + resize + `
unsurge
  c-w-4@a: ` + leaves + `
  c-w-5@a: ` + leaves + `
`},
		"nobody stands in: the first is a canary": {
			three().made(smaller).upgrading(0, 2).seen(), `
roll
  c-w-1@a: ` + resize + `
roll
  c-w-2@b: ` + resize + `
  c-w-3@a: ` + resize + `
`},
		"no more stand in than are changed": {
			three().made(smaller, "c-w-2").upgrading(3, 1).seen(), `
surge
  c-w-4@a: ` + fresh + `
roll
  c-w-2@b: ` + resize + `
unsurge
  c-w-4@a: ` + leaves + `
`},
		"another storage pool takes new nodes of the same names, on the same hypervisors": {
			three().made(elsewhere).upgrading(0, 1).seen(), `
roll
  c-w-1@a: ` + replace + `
roll
  c-w-2@b: ` + replace + `
roll
  c-w-3@a: ` + replace + `
`},
		"other arguments need no drain and nobody to stand in": {
			withArgs(three()).made(otherArgs).upgrading(1, 0).seen(), `
roll
  c-w-1@a: ` + restart + `
roll
  c-w-2@b: ` + restart + `
roll
  c-w-3@a: ` + restart + `
`},
		"memory and arguments at once": {
			withArgs(pool("1@a")).made(otherArgs).made(smaller).upgrading(0, 1).seen(), `
roll
  c-w-1@a: drain stop resize start agent configure ready label release
`},
		"what an apply left half-changed is changed again": {
			three().made(halfChanged, "c-w-1").upgrading(1, 0).seen(), `
roll
  c-w-1@a: ` + restart + `
`},
		"a canary that did not come up is changed first, and is not waited for": {
			withArgs(three()).made(otherArgs).upgrading(0, 1).seen("c-w-2"), `
mend
  c-w-2@b: ` + restart + `
roll
  c-w-1@a: ` + restart + `
roll
  c-w-3@a: ` + restart + `
`},
		"what is not as it should be and off is changed before it is started": {
			pool("1@a", "2@a!").made(smaller).upgrading(0, 1).seen("c-w-2"), `
mend
  c-w-2@a: ` + resize + `
roll
  c-w-1@a: ` + resize + `
`},
		"a roll that failed goes on with the node that stood in": {
			func() group {
				g := pool("1@a", "2@b", "3@a", "4@b").made(smaller, "c-w-2", "c-w-3").made(standsIn, "c-w-4").upgrading(1, 0).seen()
				g.want = 3
				return g
			}(), `
roll
  c-w-2@b: ` + resize + `
roll
  c-w-3@a: ` + resize + `
unsurge
  c-w-4@b: ` + leaves + `
`},
		"one that stood in and is not as it should be goes at once": {
			func() group {
				g := pool("1@a", "2@b", "3@a", "4@b").made(smaller).upgrading(1, 0).seen()
				g.want = 3
				return g
			}(), `
remove
  c-w-4@b: ` + leaves + `
surge
  c-w-5@a: ` + fresh + `
roll
  c-w-1@a: ` + resize + `
roll
  c-w-2@b: ` + resize + `
roll
  c-w-3@a: ` + resize + `
unsurge
  c-w-5@a: ` + leaves + `
`},
		"a roll that is done leaves nobody that stood in": {
			func() group {
				g := pool("1@a", "2@b", "3@a").upgrading(1, 0).seen()
				g.want = 2
				return g
			}(), `
remove
  c-w-3@a: ` + leaves + `
`},
		"more nodes and more memory at once": {
			func() group {
				g := pool("1@a", "2@b").made(smaller).upgrading(0, 2).seen()
				g.want = 3
				return g
			}(), `
nodes
  c-w-3@a: ` + fresh + `
roll
  c-w-1@a: ` + resize + `
roll
  c-w-2@b: ` + resize + `
`},
		"labels are no reason to roll": {
			func() group {
				g := three().upgrading(1, 0).seen()
				g.base.Labels = map[string]string{"tier": "web"}
				return g
			}(), `
nodes
  c-w-1@a: label
  c-w-2@b: label
  c-w-3@a: label
`},
		"a cordon of ours that was left is taken back": {
			func() group {
				g := pool("1@a").seen()
				n := g.api["c-w-1"]
				n.Cordoned = true
				g.api["c-w-1"] = n
				return g
			}(), `
nodes
  c-w-1@a: label release
`},
		"a node that is not Ready for too long is switched off and on, and replaced if it does not come up": {
			func() group {
				g := three().ill("c-w-2")
				g.base.Repair.MaxUnhealthy = 1
				return g
			}(), `
nodes
  c-w-1@a: label
  c-w-3@a: label
repair
  c-w-2@b: stop start agent ready label release, else drain stop forget delete, then ` + fresh + `
`},
		"more than are allowed are left alone": {
			three().ill("c-w-1", "c-w-2").made(func(r *record.Record) { r.Repair = record.Repair{} }), "\n"},
		"the user says who goes first": {
			func() group {
				g := three().seen("c-w-3")
				g.want, g.removeFirst = 2, []string{"w-1"}
				return g
			}(), `
remove
  c-w-1@a: ` + leaves + `
nodes
  c-w-3@a: ready
`},
		"devices of the host": {
			func() group {
				g := pool("1@a", "2@b").upgrading(0, 1).seen()
				g.hostDevices = map[string][]string{"a": {"0000:65:00.0"}}
				return g
			}(), `
roll
  c-w-1@a: ` + replace + `
`},
		"servers are resized one at a time, without a fourth": {
			servers().made(smaller).upgrading(1, 0).seen(), `
roll
  c-cp-1@a: drain stop resize start agent ready release
roll
  c-cp-2@b: drain stop resize start agent ready release
roll
  c-cp-3@a: drain stop resize start agent ready release
`},
		"servers are replaced one at a time, each out of etcd before it goes": {
			servers().made(elsewhere, "c-cp-2").seen(), `
roll
  c-cp-2@b: drain leave stop forget delete, then leave forget define clone seed start agent bootstrap ready seal
`},
		"a single server is not drained: its pods have nowhere to go": {
			func() group {
				g := testGroup(record.Server, 1, "a").with("1@a").made(smaller).seen()
				g.base.Cluster = &record.Cluster{}
				return g.made(func(r *record.Record) { r.Cluster = g.base.Cluster })
			}(), `
roll
  c-cp-1@a: stop resize start agent ready release
`},
		"a server that does not come up with its arguments is given others": {
			withArgs(servers()).made(otherArgs).seen("c-cp-3"), `
configure
  c-cp-3@a: cordon configure ready release
configure
  c-cp-1@a: cordon configure ready release
configure
  c-cp-2@b: cordon configure ready release
`},
	} {
		t.Run(name, func(t *testing.T) {
			wantPlan(t, tc.group, tc.want)
		})
	}
}

// servers are three servers as they are wanted.
func servers() group {
	g := testGroup(record.Server, 3, "a")
	g.base.Cluster = &record.Cluster{}
	return g.with("1@a", "2@b", "3@a")
}

func TestNeed(t *testing.T) {
	g := testGroup(record.Agent, 1, "a").with("1@a").seen()
	g.base.Image = record.Template{Pool: "images", Volume: "v2"}
	g = g.made(func(r *record.Record) { r.Image = g.base.Image })
	data := record.DataDisk{SizeGiB: 10, StoragePool: "ssd", MountPath: "/data"}
	for name, tc := range map[string]struct {
		is   func(*record.Record)
		want func(*record.Record)
		need Change
		says string
	}{
		"nothing":                    {},
		"more vCPUs":                 {want: func(r *record.Record) { r.Shape.VCPUs = 4 }, need: Resized, says: "0 vCPUs instead of 4"},
		"less memory":                {is: func(r *record.Record) { r.Shape.MemoryMiB = 2048 }, need: Resized, says: "2048 MiB of memory instead of 0"},
		"a larger disk":              {want: func(r *record.Record) { r.Shape.DiskGiB = 80 }, need: Resized},
		"a smaller disk":             {is: func(r *record.Record) { r.Shape.DiskGiB = 80 }, need: Replaced, says: "do not shrink"},
		"another pool":               {is: elsewhere, need: Replaced, says: `"hdd"`},
		"another kind of clone":      {is: func(r *record.Record) { r.Shape.Clone = record.Full }, need: Replaced},
		"a data disk":                {want: func(r *record.Record) { r.Shape.Data = data }, need: Replaced, says: "none instead of one"},
		"a larger data disk":         {is: func(r *record.Record) { r.Shape.Data = data }, want: func(r *record.Record) { r.Shape.Data = data; r.Shape.Data.SizeGiB = 20 }, need: Resized},
		"a data disk elsewhere":      {is: func(r *record.Record) { r.Shape.Data = data }, want: func(r *record.Record) { r.Shape.Data = data; r.Shape.Data.MountPath = "/x" }, need: Replaced},
		"another cloud-config":       {want: func(r *record.Record) { r.Setup.UserData = "x" }, need: Replaced},
		"another golden image":       {is: func(r *record.Record) { r.Image.Volume = "v1" }, need: Replaced, says: "images/v1"},
		"an image that is not known": {is: func(r *record.Record) { r.Image = record.Template{} }},
		"other registries":           {want: func(r *record.Record) { r.Setup.Registries = "x" }, need: Restarted},
		"other arguments":            {is: otherArgs, need: Restarted},
		"the greatest change counts": {is: func(r *record.Record) { elsewhere(r); otherArgs(r) }, need: Replaced},
		"another drain rule":         {want: func(r *record.Record) { r.Drain.Force = true }, need: Adjusted, says: "record"},
		"a label":                    {want: func(r *record.Record) { r.Labels = map[string]string{"tier": "web"} }, need: Adjusted, says: "lacks the label tier"},
		"a taint":                    {want: func(r *record.Record) { r.Taints = []record.Taint{{Key: "k", Effect: "NoSchedule"}} }, need: Adjusted, says: "lacks the taint k"},
	} {
		t.Run(name, func(t *testing.T) {
			g := g
			if tc.is != nil {
				g = g.made(tc.is)
			}
			if tc.want != nil {
				tc.want(&g.base)
			}
			n := g.need(g.machines[0])
			if n.change != tc.need || !strings.Contains(n.reason, tc.says) {
				t.Errorf("%q because %q, want %q because %q", n.change, n.reason, tc.need, tc.says)
			}
		})
	}
}

func TestMislabelled(t *testing.T) {
	want := record.Record{
		Role: record.Agent, Labels: map[string]string{"tier": "web"}, Taints: []record.Taint{{Key: "dedicated", Value: "db", Effect: "NoSchedule"}},
	}
	good := Node{Labels: map[string]string{"tier": "web", "foreign": "x"}, Taints: []record.Taint{want.Taints[0], {Key: "foreign", Effect: "NoExecute"}}}
	for name, tc := range map[string]struct {
		change func(*Node)
		says   string
	}{
		"as it should be, beside foreign ones": {func(*Node) {}, ""},
		"altered by hand":                      {func(n *Node) { n.Labels = map[string]string{"tier": "db"} }, `"db" instead of "web"`},
		"taken off by hand":                    {func(n *Node) { n.Taints = nil }, "lacks the taint"},
		"another value of a taint":             {func(n *Node) { n.Taints = []record.Taint{{Key: "dedicated", Value: "x", Effect: "NoSchedule"}} }, "lacks the taint"},
		"a label that was ours":                {func(n *Node) { n.OwnLabels = []string{"tier", "old"} }, "old is not wanted"},
		"a taint that was ours":                {func(n *Node) { n.OwnTaints = []string{"old:NoSchedule"} }, "old:NoSchedule is not wanted"},
	} {
		n := good
		tc.change(&n)
		if got := mislabelled(n, want); (got == "") != (tc.says == "") || !strings.Contains(got, tc.says) {
			t.Errorf("%s: %q, want %q", name, got, tc.says)
		}
	}
}

func TestUnhealthy(t *testing.T) {
	now := time.Now()
	g := testGroup(record.Agent, 1)
	g.base.Repair = record.Repair{NotReadySeconds: 60, MaxUnhealthy: 1}
	g.api = map[string]Node{
		"long": {Since: now.Add(-2 * time.Minute)}, "short": {Since: now.Add(-30 * time.Second)}, "ready": {Ready: true, Since: now.Add(-time.Hour)}, "unknown": {},
	}
	for name, want := range map[string]bool{"long": true, "short": false, "ready": false, "unknown": false, "absent": false} {
		if got := g.unhealthy(name, now); got != want {
			t.Errorf("%s: %t", name, got)
		}
	}
	g.base.Repair.MaxUnhealthy = 0
	if g.unhealthy("long", now) {
		t.Error("repair is off")
	}
}

// What may hold secrets stands in no record, and equal texts of two clusters look different.
func TestDigest(t *testing.T) {
	x := Extra{Args: []string{"--a"}, Registries: "password: hunter2", UserData: "#cloud-config"}
	a, b := setupOf("one", x), setupOf("two", x)
	if a.Registries == b.Registries || a.Registries == "" || strings.Contains(a.Registries, "hunter2") {
		t.Errorf("%+v, %+v", a, b)
	}
	if got := x.known("one", a); got.Registries != x.Registries || got.UserData != x.UserData {
		t.Errorf("of the same: %+v", got)
	}
	if got := x.known("one", b); got.Registries != "" || got.UserData != "" {
		t.Errorf("of others: %+v", got)
	}
	if setupOf("one", Extra{}).Registries != "" {
		t.Error("nothing has a digest")
	}
}

func TestSingleServerIsNotReplaced(t *testing.T) {
	g := testGroup(record.Server, 1, "a").with("1@a").made(elsewhere)
	c, err := g.choose()
	if err != nil {
		t.Fatal(err)
	}
	if p := g.unchangeable(c); p == nil || p.Field != machine.FieldStoragePool {
		t.Errorf("got %+v", p)
	}
	if three := servers().made(elsewhere); three.unchangeable(c) != nil {
		t.Error("of three servers each can be replaced")
	}
}
