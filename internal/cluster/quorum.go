package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// ErrNoQuorum is returned where the servers of a cluster cannot be changed, because too few of them are left, or would
// be: etcd needs more than half of its members (https://etcd.io/docs/latest/faq/).
var ErrNoQuorum = errors.New("the servers have no quorum")

// serverPlan orders what is done to servers. Those that stand are brought up first, since a quorum may hang on them. New
// ones are copied, booted and given k3s side by side; whatever touches the membership of etcd is done to one server at a
// time, and each has a vote before the next comes.
func (g group) serverPlan(c choice, nodes, clean, remove, fresh []Lane) Plan {
	var p Plan
	p.side("start", nodes)
	living := len(c.keep) > 0
	if living {
		p.file("clean", clean)
	} else {
		p.side("clean", clean)
	}
	p.file("remove", remove)
	for _, m := range c.keep {
		if m.Record.Cluster != nil && !sameNames(*m.Record.Cluster, *g.base.Cluster) {
			p.file("configure", []Lane{{m, []Action{Configure, Ready}}})
		}
	}
	if len(fresh) == 1 {
		p.side("join", []Lane{{fresh[0].Machine, creation(record.Server, living)}})
		return p
	}
	var boot, join []Lane
	for i, l := range fresh {
		if !living && i == 0 {
			boot = append(boot, Lane{l.Machine, creation(record.Server, false)})
			continue
		}
		boot = append(boot, Lane{l.Machine, preparation})
		join = append(join, Lane{l.Machine, admission})
	}
	p.side("boot", boot)
	p.file("join", join)
	return p
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
// there. Servers that stopped count, since they are started first; of those that nothing can be said of, the API will
// tell.
func (g group) keepsQuorum(c choice) error {
	if g.base.Role != record.Server || len(c.keep) == 0 || len(c.lost)+len(c.surplus) == 0 {
		return nil
	}
	there := len(c.keep) + len(c.surplus) + len(c.held)
	members := there + len(c.lost)
	if 2*there > members {
		return nil
	}
	return &Failure{
		Err:    fmt.Errorf("%d of %d servers are gone (%s): %w", len(c.lost), members, strings.Join(namesOf(c.lost), ", "), ErrNoQuorum),
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
		return fmt.Errorf("it is the last member of etcd: %w", ErrNoQuorum)
	}
	return &Failure{
		Err:    fmt.Errorf("etcd cannot go on without it: of the %d other servers only %d are Ready: %w", members, ready, ErrNoQuorum),
		Cause:  "not Ready: " + strings.Join(down, ", ") + ".",
		Remedy: "look after those servers first and apply again.",
	}
}
