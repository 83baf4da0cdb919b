package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// testGroup is a pool "w" of the cluster "c" whose new nodes get the UUIDs 1, 2 and so on.
func testGroup(role record.Role, want int, hosts ...string) group {
	pool := "w"
	if role == record.Server {
		pool = record.ServerPool
	}
	n := 0
	g := group{
		want: want, silence: silence{configured: map[string]bool{"a": true, "b": true}},
		base: record.Record{ClusterID: "id", ClusterName: "c", Pool: pool, Role: role, Shape: record.Shape{StoragePool: "ssd"}},
		identity: func() string {
			n++
			return fmt.Sprintf("00000000-0000-0000-0000-%012d", n)
		},
	}
	slices.Sort(hosts)
	g.base.Placement.Hosts = hosts // where placed puts new nodes
	return g
}

// placed plans a group whose new nodes go to its hosts in turn.
func placed(g group) (Plan, error) {
	c, err := g.choose()
	if err != nil {
		return nil, err
	}
	places := Assignment{}
	for i, ordinal := range slices.Concat(c.fresh, c.surge) {
		if hosts := g.base.Placement.Hosts; len(hosts) > 0 {
			places[record.ShortName(g.base.Pool, ordinal)] = hosts[i%len(hosts)]
		}
	}
	return g.plan(c, places)
}

// wantPlan compares the plan of a group with a golden one, which may begin with an empty line.
func wantPlan(t *testing.T, g group, want string) {
	t.Helper()
	p, err := placed(g)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.TrimPrefix(want, "\n"), p.String()); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
}

// with adds machines, each written as "ordinal@host", with a suffix ! for stopped and ? for still creating.
func (g group) with(specs ...string) group {
	for _, s := range specs {
		m := machine.Machine{Power: machine.Running, Record: g.base}
		m.Record.Phase = record.Joined
		if strings.HasSuffix(s, "!") {
			m.Power = machine.Stopped
		}
		if strings.HasSuffix(s, "?") {
			m.Record.Phase = record.Creating
		}
		if _, err := fmt.Sscanf(strings.TrimRight(s, "!?"), "%d@%s", &m.Record.Ordinal, &m.Hypervisor); err != nil {
			panic(err)
		}
		m.Name, m.UUID = m.Record.NodeName(), "uuid-of-"+m.Record.NodeName()
		g.machines = append(g.machines, m)
	}
	return g
}

// knew adds nodes that only the state knows, written as "ordinal@host".
func (g group) knew(specs ...string) group {
	g.prior = Nodes{}
	for _, s := range specs {
		var ordinal int
		var host string
		if _, err := fmt.Sscanf(s, "%d@%s", &ordinal, &host); err != nil {
			panic(err)
		}
		name := record.NodeName(g.base.ClusterName, g.base.Pool, ordinal)
		g.prior[name] = NodeStatus{Name: name, Hypervisor: host, UUID: "uuid-of-" + name}
	}
	return g
}

// knewAs adds a node that the state knows with another UUID.
func (g group) knewAs(spec, uuid string) group {
	g = g.knew(spec)
	for name, n := range g.prior {
		n.UUID = uuid
		g.prior[name] = n
	}
	return g
}

func TestPlan(t *testing.T) {
	const fresh = "forget define clone seed start agent bootstrap ready label seal"
	for name, tc := range map[string]struct {
		group group
		want  string
	}{
		"a first server meets no API that could forget it": {
			testGroup(record.Server, 1, "a"), `
join
  c-cp-1@a: define clone seed start agent bootstrap ready seal
`},
		"a new pool": {
			testGroup(record.Agent, 2, "a"), `
nodes
  c-w-1@a: ` + fresh + `
  c-w-2@a: ` + fresh + `
`},
		"new nodes go to their places": {
			testGroup(record.Agent, 3, "b", "a"), `
nodes
  c-w-1@a: ` + fresh + `
  c-w-2@b: ` + fresh + `
  c-w-3@a: ` + fresh + `
`},
		"nothing to do": {
			testGroup(record.Agent, 2, "a").with("1@a", "2@a"), "\n"},
		"scale up fills the lowest free ordinals": {
			testGroup(record.Agent, 4, "a").with("2@a", "4@a"), `
nodes
  c-w-1@a: ` + fresh + `
  c-w-3@a: ` + fresh + `
`},
		"scale down takes the highest ordinal": {
			testGroup(record.Agent, 1, "a").with("1@a", "2@a", "3@a"), `
remove
  c-w-2@a: drain stop forget delete
  c-w-3@a: drain stop forget delete
`},
		"scale down takes first what does not run": {
			testGroup(record.Agent, 2, "a").with("1@a!", "2@a", "3@a"), `
remove
  c-w-1@a: drain stop forget delete
`},
		"scale down takes first what is not Ready": {
			withReady(testGroup(record.Agent, 2, "a").with("1@a", "2@a", "3@a"), "c-w-1", "c-w-3"), `
remove
  c-w-2@a: drain stop forget delete
`},
		"scale down counts a missing node first": {
			testGroup(record.Agent, 2, "a").with("1@a", "3@a").knew("1@a", "2@a", "3@a"), `
clean
  c-w-2@a: delete forget
`},
		"scale to zero": {
			testGroup(record.Agent, 0, "a").with("1@a"), `
remove
  c-w-1@a: drain stop forget delete
`},
		"a missing VM is made anew, its left-over volumes go first": {
			testGroup(record.Agent, 2, "a", "b").with("1@a").knew("1@a", "2@b"), `
clean
  c-w-2@b: delete forget
nodes
  c-w-2@a: ` + fresh + `
`},
		"left-over volumes of a node that has a successor go without its Node object": {
			testGroup(record.Agent, 1, "a").with("1@a").knewAs("1@a", "another-uuid"), `
clean
  c-w-1@a: delete
`},
		"a stopped VM is started": {
			testGroup(record.Agent, 2, "a").with("1@a", "2@a!"), `
nodes
  c-w-2@a: start agent ready
`},
		"a VM whose node is not Ready is waited for": {
			withReady(testGroup(record.Agent, 2, "a").with("1@a", "2@a"), "c-w-1"), `
nodes
  c-w-2@a: ready
`},
		"a half-made agent is made anew, and stopped before its Node object goes": {
			testGroup(record.Agent, 2, "a").with("1@a", "2@a?"), `
clean
  c-w-2@a: stop forget delete
nodes
  c-w-2@a: ` + fresh + `
`},
		"a half-made server is made anew without an API": {
			testGroup(record.Server, 1, "a").with("1@a?"), `
clean
  c-cp-1@a: delete
join
  c-cp-1@a: define clone seed start agent bootstrap ready seal
`},
		"a node on a silent hypervisor counts as present and is not touched": {
			withSilent(testGroup(record.Agent, 2, "a").with("1@a").knew("1@a", "2@b"), "b"), "\n"},
		"while a hypervisor is silent a node that only the API knows may stand there": {
			withSilent(withRegistered(testGroup(record.Agent, 2, "a").with("1@a"), "c-w-1", "c-w-2", "c-cp-1", "c-w2-7"), "b"), "\n"},
		"with all hypervisors answering it does not count": {
			withRegistered(testGroup(record.Agent, 2, "a").with("1@a"), "c-w-1", "c-w-2"), `
nodes
  c-w-2@a: ` + fresh + `
`},
		"a VM whose record cannot be read is not touched": {
			withUnreadable(testGroup(record.Agent, 2, "a").with("1@a").knew("1@a", "2@a"), "uuid-of-c-w-2"), "\n"},
		"a node on a hypervisor that left the configuration is not touched": {
			testGroup(record.Agent, 2, "a").with("1@a").knew("1@a", "2@x"), "\n"},
		"three servers: prepared side by side, then joined one after the other": {
			testGroup(record.Server, 3, "a", "b"), `
boot
  c-cp-1@a: define clone seed start agent bootstrap ready seal
  c-cp-2@b: define clone seed start agent bootstrap
  c-cp-3@a: define clone seed start agent bootstrap
join
  c-cp-2@b: leave forget admit bootstrap ready seal
join
  c-cp-3@a: leave forget admit bootstrap ready seal
`},
		"a lost server of three: its member goes before its successor comes": {
			testGroup(record.Server, 3, "a", "b").with("1@a", "3@a").knew("1@a", "2@b", "3@a"), `
clean
  c-cp-2@b: leave delete forget
join
  c-cp-2@a: leave forget define clone seed start agent bootstrap ready seal
`},
		"servers that stopped are started before anything else": {
			testGroup(record.Server, 3, "a", "b").with("1@a!", "3@a").knew("1@a", "2@b", "3@a"), `
start
  c-cp-1@a: start agent
ready
  c-cp-1@a: ready
clean
  c-cp-2@b: leave delete forget
join
  c-cp-2@a: leave forget define clone seed start agent bootstrap ready seal
`},
		"a half-made server of three is no namesake of its successor": {
			testGroup(record.Server, 3, "a").with("1@a", "2@b?"), `
clean
  c-cp-2@b: leave stop forget delete
boot
  c-cp-2@a: define clone seed start agent bootstrap
  c-cp-3@a: define clone seed start agent bootstrap
join
  c-cp-2@a: leave forget admit bootstrap ready seal
join
  c-cp-3@a: leave forget admit bootstrap ready seal
`},
		"three servers of which none came up are made anew side by side": {
			testGroup(record.Server, 3, "a").with("1@a?", "2@a?", "3@a?"), `
clean
  c-cp-1@a: delete
  c-cp-2@a: delete
  c-cp-3@a: delete
boot
  c-cp-1@a: define clone seed start agent bootstrap ready seal
  c-cp-2@a: define clone seed start agent bootstrap
  c-cp-3@a: define clone seed start agent bootstrap
join
  c-cp-2@a: leave forget admit bootstrap ready seal
join
  c-cp-3@a: leave forget admit bootstrap ready seal
`},
		"of servers that leave the dead go first": {
			withReady(testGroup(record.Server, 1, "a").with("1@a", "2@b", "3@a!"), "c-cp-1", "c-cp-2"), `
remove
  c-cp-3@a: drain leave stop forget delete
remove
  c-cp-2@b: drain leave stop forget delete
`},
		"a silent API may wait for servers that are to go": {
			testGroup(record.Server, 1, "a").with("1@a", "2@b!", "3@a!"), `
start
  c-cp-2@b: start agent
  c-cp-3@a: start agent
ready
  c-cp-2@b: ready
  c-cp-3@a: ready
remove
  c-cp-2@b: drain leave stop forget delete
remove
  c-cp-3@a: drain leave stop forget delete
`},
		"of half-made servers the dead go first": {
			testGroup(record.Server, 1, "a").with("1@a", "2@b?", "3@a?").stopped("c-cp-3"), `
clean
  c-cp-3@a: leave stop forget delete
clean
  c-cp-2@b: leave stop forget delete
`},
		"what was lost before it became a member is no loss": {
			withMembers(testGroup(record.Server, 1, "a").with("1@a").knew("1@a", "2@a", "3@a"), "c-cp-1"), `
clean
  c-cp-2@a: leave delete forget
clean
  c-cp-3@a: leave delete forget
`},
		"a node that the plan does not promise goes also where there are too few": {
			planned(testGroup(record.Agent, 1, "a").with("3@a").knew("3@a"), Assignment{"w-1": "a"}), `
remove
  c-w-3@a: drain stop forget delete
nodes
  c-w-1@a: ` + fresh + `
`},
		"servers leave one after the other": {
			testGroup(record.Server, 1, "a").with("1@a", "2@b", "3@a"), `
remove
  c-cp-2@b: drain leave stop forget delete
remove
  c-cp-3@a: drain leave stop forget delete
`},
		"another name for the certificate": {
			configured(testGroup(record.Server, 3, "a").with("1@a", "2@b", "3@a")), `
configure
  c-cp-1@a: configure ready
configure
  c-cp-3@a: configure ready
`},
		"the nodes that a plan promised, and no others": {
			planned(testGroup(record.Agent, 2, "a").with("1@a", "2@a", "3@a").knew("1@a", "2@a", "3@a"), Assignment{"w-1": "a", "w-3": "a"}), `
remove
  c-w-2@a: drain stop forget delete
`},
		"the ordinal that a plan promised": {
			planned(testGroup(record.Agent, 2, "a").with("3@a").knew("3@a"), Assignment{"w-3": "a", "w-5": "a"}), `
nodes
  c-w-5@a: ` + fresh + `
`},
		"scale down spares a node on a silent hypervisor": {
			withSilent(testGroup(record.Agent, 1, "a").with("1@a").knew("1@a", "2@b"), "b"), `
remove
  c-w-1@a: drain stop forget delete
`},
	} {
		t.Run(name, func(t *testing.T) {
			wantPlan(t, tc.group, tc.want)
		})
	}
}

func withReady(g group, names ...string) group {
	g.ready = map[string]bool{}
	for _, n := range names {
		g.ready[n] = true
	}
	return g
}

func withMembers(g group, names ...string) group {
	g = withReady(g, names...)
	g.members = g.ready
	return g
}

// stopped stops a machine that stands.
func (g group) stopped(name string) group {
	for i := range g.machines {
		if g.machines[i].Name == name {
			g.machines[i].Power = machine.Stopped
		}
	}
	return g
}

func withRegistered(g group, names ...string) group {
	g.registered = names
	return g
}

func withUnreadable(g group, uuid string) group {
	g.silence.vms = map[string]error{uuid: record.ErrNewer}
	return g
}

func withSilent(g group, host string) group {
	g.silence.hosts = map[string]error{host: machine.ErrUnreachable}
	return g
}

func planned(g group, a Assignment) group {
	g.planned = a
	return g
}

// configured wants another endpoint than all servers have but the second.
func configured(g group) group {
	g.base.Cluster = &record.Cluster{Endpoint: "lb.example"}
	for i := range g.machines {
		g.machines[i].Record.Cluster = &record.Cluster{}
	}
	g.machines[1].Record.Cluster = g.base.Cluster
	return g
}

func TestPlanRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		group group
		want  string
	}{
		"no hypervisor": {testGroup(record.Agent, 1), "no hypervisor can take a new node"},
		"the nodes that have to go are out of reach": {
			withSilent(testGroup(record.Agent, 0, "a").knew("1@b"), "b"), "nothing can be said of c-w-1",
		},
		"two of three servers are lost": {
			testGroup(record.Server, 3, "a").with("1@a").knew("1@a", "2@a", "3@a"), "2 of 3 servers are gone (c-cp-2, c-cp-3): the servers have no quorum",
		},
		"servers that cannot join what is out of sight": {
			withSilent(testGroup(record.Server, 3, "a").with("2@a?").knew("1@b", "2@a"), "b"), "nothing can be said of c-cp-1: hypervisor \"b\"",
		},
		"only a server out of sight would be left": {
			withSilent(testGroup(record.Server, 1, "a").with("1@a", "2@a").knew("1@a", "2@a", "3@b"), "b"), "of the servers only c-cp-3 would be left",
		},
		"a node that nobody planned": {
			planned(testGroup(record.Agent, 1, "a").with("1@a", "2@a").knew("1@a"), Assignment{"w-1": "a"}), `there is a node c-w-2 on hypervisor "a"`,
		},
		"a node that came back elsewhere": {
			planned(testGroup(record.Agent, 1, "a").with("1@b").knew("1@b"), Assignment{"w-1": "a"}), `the node c-w-1 stands on hypervisor "b", not "a"`,
		},
		"a node to be removed fell silent": {
			planned(withSilent(testGroup(record.Agent, 1, "a").with("1@a").knew("1@a", "2@b"), "b"), Assignment{"w-1": "a"}), "c-w-2 has to go",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := placed(tc.group); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
		})
	}
}

// A replaced VM never meets the volumes of its predecessor, and its MAC address follows from its UUID.
func TestNewMachine(t *testing.T) {
	g := testGroup(record.Agent, 1, "a")
	m := g.newMachine(3, "a")
	want := machine.Machine{
		Hypervisor: "a", Name: "c-w-3", UUID: "00000000-0000-0000-0000-000000000001", MAC: "52:54:00:00:00:01", Power: machine.Stopped,
		Record: record.Record{
			ClusterID: "id", ClusterName: "c", Pool: "w", Role: record.Agent, Ordinal: 3, Phase: record.Creating,
			Shape: record.Shape{StoragePool: "ssd"}, Placement: record.Placement{Hosts: []string{"a"}},
			Volumes: []record.Volume{
				{Pool: "ssd", Name: "c-w-3-00000000.qcow2"}, {Pool: "ssd", Name: "c-w-3-00000000-seed.iso"},
			},
		},
	}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Errorf("machine (-want +got):\n%s", diff)
	}
}

// A member of etcd goes only while the others can do without it.
func TestSpare(t *testing.T) {
	up := func(name string) Node { return Node{Name: name, Etcd: true, Ready: true, Voter: true} }
	down, learner := Node{Name: "b", Etcd: true}, Node{Name: "b", Etcd: true, Ready: true}
	agent := Node{Name: "w", Ready: true}
	for name, tc := range map[string]struct {
		nodes []Node
		want  error
	}{
		"one of three":                  {[]Node{up("x"), up("a"), up("b"), agent}, nil},
		"one of two":                    {[]Node{up("x"), up("a")}, nil},
		"a dead one of three":           {[]Node{{Name: "x", Etcd: true}, up("a"), up("b")}, nil},
		"another is down":               {[]Node{up("x"), up("a"), down}, ErrNoQuorum},
		"another has no vote yet":       {[]Node{up("x"), up("a"), learner}, errNotReady},
		"the last one":                  {[]Node{up("x"), agent}, ErrNoQuorum},
		"it is no member":               {[]Node{{Name: "x", Ready: true}, up("a"), down}, nil},
		"it has no Node object":         {[]Node{up("a"), down}, nil},
		"the other of two does not run": {[]Node{up("x"), down}, ErrNoQuorum},
	} {
		if err := spare(tc.nodes, "x"); !errors.Is(err, tc.want) || tc.want == nil && err != nil {
			t.Errorf("%s: got %v, want %v", name, err, tc.want)
		}
	}
}

func TestOrdinal(t *testing.T) {
	g := testGroup(record.Agent, 1)
	for name, want := range map[string]int{"c-w-1": 1, "c-w-12": 12, "c-w-0": 0, "c-w-01": 0, "c-w-": 0, "c-w-1x": 0, "c-cp-1": 0, "3prod-w-1": 0} {
		if got := ordinalOf(g.base, name); got != want {
			t.Errorf("%s: got %d, want %d", name, got, want)
		}
	}
}
