package kubelab

import (
	"slices"
	"time"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/wire"
)

const (
	// aliveFor is how long a server may be silent before it counts as down. Guests without hardware virtualisation
	// are starved for long stretches, so it is far more than etcd's own five seconds.
	aliveFor = 40 * time.Second
	// learnFor is how long a learner catches up before it is promoted; a real one was seen to take 14 s.
	learnFor = 12 * time.Second
	// stalledAfter is when a silent learner is dropped, as the real k3s does.
	stalledAfter = 5 * time.Minute
)

// member is a server of a cluster.
type member struct {
	Name    string `json:"name"`
	Node    string `json:"node"`
	Address string `json:"address"`
	Learner bool   `json:"learner"`
	// Joined and seen are times of the lab's clock; the zero seen is "not since the lab started".
	Joined time.Time `json:"joined"`
	seen   time.Time
}

// membership is the member list of a cluster: what etcd's own list is to the real k3s. It is not safe for concurrent
// use.
type membership struct {
	Etcd    bool     `json:"etcd"`
	Members []member `json:"members"`
	// Removed are the names of members that were taken out; they never come back.
	Removed []string `json:"removed"`
}

// attach notes that a server is starting and joins it if it is new.
func (m *membership) attach(s wire.Server, now time.Time) *wire.Error {
	if slices.Contains(m.Removed, s.Member) {
		return &wire.Error{Code: wire.CodeRemoved, Message: "the member has been permanently removed from the cluster"}
	}
	if i := m.index(s.Member); i >= 0 {
		m.Members[i].Address, m.Members[i].seen = s.Address, now
		return nil
	}
	if !m.Etcd {
		return &wire.Error{Code: wire.CodeNoEtcd, Message: "etcd disabled"}
	}
	for _, o := range m.Members {
		if o.Node == s.Node {
			return &wire.Error{Code: wire.CodeDuplicate, Message: "duplicate node name found, please use a unique name for this node"}
		}
	}
	if !m.quorum(now) {
		return &wire.Error{Code: wire.CodeNoQuorum, Message: "etcdserver: no leader"}
	}
	if slices.ContainsFunc(m.Members, func(o member) bool { return o.Learner }) {
		return &wire.Error{Code: wire.CodeBusy, Message: "etcdserver: too many learner members in cluster"}
	}
	m.Members = append(m.Members, member{
		Name: s.Member, Node: s.Node, Address: s.Address, Learner: true, Joined: now, seen: now,
	})
	return nil
}

// beat notes a sign of life; a name that is no member is refused.
func (m *membership) beat(name string, now time.Time) (learner bool, err *wire.Error) {
	if slices.Contains(m.Removed, name) {
		return false, &wire.Error{Code: wire.CodeRemoved, Message: "the member has been permanently removed from the cluster"}
	}
	i := m.index(name)
	if i < 0 {
		return false, &wire.Error{Code: wire.CodeUnknown, Message: "member not found"}
	}
	m.Members[i].seen = now
	return m.Members[i].Learner, nil
}

// leave notes that a server stops; it counts as alive for a moment more, so that a restart does not lose the quorum.
func (m *membership) leave(name string, now time.Time) {
	if i := m.index(name); i >= 0 {
		m.Members[i].seen = now.Add(-aliveFor + 10*time.Second)
	}
}

// tick promotes learners that have caught up and drops stalled ones. It reports whether anything changed.
func (m *membership) tick(now time.Time) bool {
	changed := false
	m.Members = slices.DeleteFunc(m.Members, func(o member) bool {
		stalled := o.Learner && now.Sub(o.Joined) > stalledAfter && !alive(o, now)
		changed = changed || stalled
		return stalled
	})
	if !m.quorum(now) {
		return changed
	}
	for i, o := range m.Members {
		if o.Learner && alive(o, now) && now.Sub(o.Joined) >= learnFor {
			m.Members[i].Learner = false
			changed = true
		}
	}
	return changed
}

// remove takes a member out, under the conditions that etcd sets: enough started voters remain, and the loss of a living
// one keeps the quorum. A member that is not there is removed already.
func (m *membership) remove(name string, now time.Time) *wire.Error {
	i := m.index(name)
	if i < 0 {
		return nil
	}
	gone := m.Members[i]
	if !gone.Learner {
		voters, up := m.voters(now)
		switch {
		case voters == 1:
			return &wire.Error{Code: wire.CodeLast, Message: "etcdserver: re-configuration failed due to not enough started members"}
		case !m.quorum(now):
			return &wire.Error{Code: wire.CodeNoQuorum, Message: "etcdserver: no leader"}
		case alive(gone, now) && up-1 < 1+(voters-1)/2:
			return &wire.Error{Code: wire.CodeUnhealthy, Message: "etcdserver: unhealthy cluster"}
		}
	}
	m.Members = slices.Delete(m.Members, i, i+1)
	m.Removed = append(m.Removed, gone.Name)
	return nil
}

// quorum reports whether a majority of the voters is alive.
func (m *membership) quorum(now time.Time) bool {
	voters, up := m.voters(now)
	return voters > 0 && up > voters/2
}

func (m *membership) voters(now time.Time) (voters, up int) {
	for _, o := range m.Members {
		if o.Learner {
			continue
		}
		voters++
		if alive(o, now) {
			up++
		}
	}
	return voters, up
}

// lastSeen returns when any member was last heard of.
func (m *membership) lastSeen() time.Time {
	var t time.Time
	for _, o := range m.Members {
		if o.seen.After(t) {
			t = o.seen
		}
	}
	return t
}

func (m *membership) index(name string) int {
	return slices.IndexFunc(m.Members, func(o member) bool { return o.Name == name })
}

func (m *membership) summaries(now time.Time) []wire.MemberSummary {
	out := make([]wire.MemberSummary, 0, len(m.Members))
	for _, o := range m.Members {
		out = append(out, wire.MemberSummary{Name: o.Name, Node: o.Node, Address: o.Address, Learner: o.Learner, Alive: alive(o, now)})
	}
	return out
}

func alive(o member, now time.Time) bool { return now.Sub(o.seen) < aliveFor }
