package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// ErrNoQuorum is returned where the servers of a cluster cannot be changed, because too few of them are left, or would
// be: etcd needs more than half of its members (https://etcd.io/docs/latest/faq/).
var ErrNoQuorum = errors.New("the servers have no quorum")

// errLastMember is why a server cannot leave etcd that is alone in it. It may be switched off for a while: there is no quorum to
// lose.
var errLastMember = errors.New("it is the last member of etcd")

// serverPlan orders what is done to servers. Those that stand are brought up first, since a quorum may hang on them: all are
// started before one is waited for. New ones are copied, booted and given k3s side by side; whatever touches the membership
// of etcd is done to one server at a time, and each has a vote before the next comes.
func (g group) serverPlan(c choice, nodes, clean, remove, fresh []Lane) (Plan, error) {
	living := len(c.keep) > 0
	if !living && len(c.held) > 0 && len(fresh) > 0 {
		return nil, &Failure{
			Err: fmt.Errorf("no server is seen that new ones could join, and nothing can be said of %s: %w",
				strings.Join(namesOf(c.held), ", "), g.reasons(c.held)),
			Remedy: "apply again when a server that has joined can be seen; a new one would begin with an empty data store beside it.",
		}
	}
	var p Plan
	var start, ready []Lane
	for _, l := range nodes {
		rest := l.Actions
		if slices.Contains(rest, Start) {
			start = append(start, Lane{Machine: l.Machine, Actions: []Action{Start, Agent}})
			rest = rest[2:]
		}
		if len(rest) > 0 {
			ready = append(ready, Lane{Machine: l.Machine, Actions: rest})
		}
	}
	p.side("start", start)
	if living && g.addons.network {
		p.side("network", []Lane{g.whole(Network)})
	}
	p.side("ready", ready)
	if living {
		p.file("clean", g.deadFirst(clean))
	} else {
		p.side("clean", clean)
	}
	p.file("remove", g.deadFirst(remove))
	restart, roll := g.serverChanges(c)
	p.file("configure", restart)
	if len(fresh) == 1 {
		p.side("join", []Lane{{Machine: fresh[0].Machine, Actions: g.beginning(living)}})
	} else {
		var boot, join []Lane
		for i, l := range fresh {
			if !living && i == 0 {
				boot = append(boot, Lane{Machine: l.Machine, Actions: g.beginning(false)})
				continue
			}
			boot = append(boot, Lane{Machine: l.Machine, Actions: preparation})
			join = append(join, Lane{Machine: l.Machine, Actions: admission})
		}
		p.side("boot", boot)
		p.file("join", join)
	}
	// Last, with as many members of etcd as there will be: each of these takes one away for a while.
	p.file("roll", roll)
	g.finish(&p)
	return p, nil
}

// beginning lists the actions of a server that may be the first: its node becomes Ready only with a network.
func (g group) beginning(living bool) []Action {
	actions := creation(record.Server, living)
	if !living && g.addons.network {
		actions = slices.Insert(actions, slices.Index(actions, Ready), Network)
	}
	return actions
}

// serverChanges are the lanes of servers that are to be changed, one after another, those first that are not well: it may be
// what they need. There is no surge: a fourth member of etcd would raise the quorum, and with it the risk.
func (g group) serverChanges(c choice) (restart, roll []Lane) {
	for _, m := range c.keep {
		switch n := c.needs[m.Name]; {
		case n.disrupts():
			roll = append(roll, g.change(m, n))
		case n.rolls():
			restart = append(restart, g.change(m, n))
		}
	}
	return g.deadFirst(restart), g.deadFirst(roll)
}

// deadFirst orders lanes that remove members of etcd: with each dead one that goes the others come nearer to a majority, and
// with each living one they come nearer to its loss.
func (g group) deadFirst(lanes []Lane) []Lane {
	slices.SortFunc(lanes, func(a, b Lane) int {
		return cmp.Or(after(g.healthy(a.Machine), g.healthy(b.Machine)), byOrdinal(a, b))
	})
	return lanes
}

// A server that has to wait for its turn is prepared, and then admitted.
var (
	preparation = []Action{Define, Clone, Seed, Start, Agent, Bootstrap}
	admission   = []Action{Leave, Forget, Admit, Bootstrap, Ready, Seal}
)

// waits reports whether a lane ends before its server's turn.
func (l Lane) waits() bool {
	return slices.Contains(l.Actions, Seed) && !slices.Contains(l.Actions, Seal)
}

// sameNames reports whether the API's certificate is for the same names by both settings.
func sameNames(a, b record.Cluster) bool {
	return a.Endpoint == b.Endpoint && slices.Equal(a.TLSSANs, b.TLSSANs)
}

// keepsQuorum refuses a choice that etcd could not follow: a member goes only while more than half of the members are
// there, and somebody has to be seen who can let it go. Servers that stopped count, since they are started first; of those
// that nothing can be said of, the API will tell. What was lost before it became a member is no loss.
func (g group) keepsQuorum(c choice) error {
	if g.base.Role != record.Server {
		return nil
	}
	if len(c.keep) == 0 {
		if len(c.surplus) > 0 && len(c.held) > 0 {
			return fmt.Errorf("of the servers only %s would be left, and nothing can be said of it: its hypervisor does not answer, or its record cannot be read",
				strings.Join(namesOf(c.held), ", "))
		}
		return nil
	}
	lost := slices.DeleteFunc(slices.Clone(c.lost), func(n NodeStatus) bool { return g.members != nil && !g.members[n.Name] })
	there := len(c.keep) + len(c.surplus) + len(c.held)
	members := there + len(lost)
	if 2*there > members {
		return nil
	}
	return &Failure{
		Err:    fmt.Errorf("%d of %d servers are gone (%s): %w", len(lost), members, strings.Join(namesOf(lost), ", "), ErrNoQuorum),
		Cause:  "etcd takes no change, and the Kubernetes API does not answer, while half of its members or more are missing.",
		Remedy: "bring one of the missing VMs back with its disk. If they are lost for good, replace the cluster (terraform apply -replace=ADDRESS), which begins with an empty data store, or reset etcd by hand on a server that is left (k3s server --cluster-reset).",
	}
}

// spare makes sure that etcd goes on without the member of a server, as the API sees the servers now. The error is
// ErrNoQuorum where it would not, and errNotReady where others are about to get their votes.
func spare(nodes []Node, name string) error {
	members, ready, voters := 0, 0, 0
	var down []string
	present := false
	for _, n := range nodes {
		switch {
		case !n.Etcd:
			continue
		case n.Name == name:
			present = true
			continue
		case !n.Ready:
			down = append(down, n.Name)
		default:
			ready++
			if n.Voter {
				voters++
			}
		}
		members++
	}
	switch {
	case !present, 2*voters > members:
		return nil
	case 2*ready > members:
		return fmt.Errorf("%w: of the %d other servers only %d have a vote in etcd", errNotReady, members, voters)
	case members == 0:
		return &Failure{Err: fmt.Errorf("%w: %w", errLastMember, ErrNoQuorum)}
	}
	return &Failure{
		Err:    fmt.Errorf("etcd cannot go on without it: of the %d other servers only %d are Ready: %w", members, ready, ErrNoQuorum),
		Cause:  "not Ready: " + strings.Join(down, ", ") + ".",
		Remedy: "look after those servers first and apply again.",
	}
}
