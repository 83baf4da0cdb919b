package kubelab

import (
	"fmt"
	"testing"
	"time"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/wire"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// voters makes a cluster of n voting members node1…, of which those named are silent.
func voters(n int, silent ...int) *membership {
	m := &membership{Etcd: true}
	for i := 1; i <= n; i++ {
		m.Members = append(m.Members, member{Name: fmt.Sprintf("node%d-0000000%d", i, i), Node: fmt.Sprintf("node%d", i), Joined: noon.Add(-time.Hour), seen: noon})
	}
	for _, i := range silent {
		m.Members[i-1].seen = noon.Add(-aliveFor)
	}
	return m
}

func TestQuorum(t *testing.T) {
	for _, c := range []struct {
		n      int
		silent []int
		want   bool
	}{{1, nil, true}, {1, []int{1}, false}, {2, []int{2}, false}, {3, []int{2}, true}, {3, []int{1, 2}, false}, {0, nil, false}} {
		if got := voters(c.n, c.silent...).quorum(noon); got != c.want {
			t.Errorf("%d members, silent %v: quorum %v, want %v", c.n, c.silent, got, c.want)
		}
	}
}

func TestJoin(t *testing.T) {
	learning := voters(1)
	learning.Members = append(learning.Members, member{Name: "x-1", Node: "x", Learner: true, seen: noon, Joined: noon})
	removed := voters(1)
	removed.Removed = []string{"node2-a"}
	single := voters(1)
	single.Etcd = false
	for name, c := range map[string]struct {
		m    *membership
		s    wire.Server
		want string
	}{
		"new":             {voters(1), wire.Server{Member: "node2-a", Node: "node2"}, ""},
		"back":            {voters(1, 1), wire.Server{Member: "node1-00000001", Node: "node1"}, ""},
		"name taken":      {voters(2), wire.Server{Member: "node2-b", Node: "node2"}, wire.CodeDuplicate},
		"one at a time":   {learning, wire.Server{Member: "node2-a", Node: "node2"}, wire.CodeBusy},
		"no quorum":       {voters(1, 1), wire.Server{Member: "node2-a", Node: "node2"}, wire.CodeNoQuorum},
		"removed":         {removed, wire.Server{Member: "node2-a", Node: "node2"}, wire.CodeRemoved},
		"without etcd":    {single, wire.Server{Member: "node2-a", Node: "node2"}, wire.CodeNoEtcd},
		"back, no quorum": {voters(3, 1, 2, 3), wire.Server{Member: "node2-00000002", Node: "node2"}, ""},
	} {
		got := ""
		if err := c.m.attach(c.s, noon); err != nil {
			got = err.Code
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestLearnerBecomesVoter(t *testing.T) {
	m := voters(1)
	if err := m.attach(wire.Server{Member: "node2-a", Node: "node2"}, noon); err != nil {
		t.Fatal(err)
	}
	for at, want := range map[time.Duration]bool{learnFor - time.Second: true, learnFor: false} {
		m := &membership{Etcd: true, Members: append([]member(nil), m.Members...)}
		m.tick(noon.Add(at))
		if got := m.Members[1].Learner; got != want {
			t.Errorf("after %v: learner %v, want %v", at, got, want)
		}
	}
	m.Members[0].seen = noon.Add(2 * stalledAfter)
	m.tick(noon.Add(2 * stalledAfter))
	if len(m.Members) != 1 {
		t.Error("a silent learner was not dropped")
	}
}

func TestRemove(t *testing.T) {
	for name, c := range map[string]struct {
		m      *membership
		member string
		want   string
	}{
		"one of three":           {voters(3), "node3-00000003", ""},
		"one of two":             {voters(2), "node2-00000002", ""},
		"the last":               {voters(1), "node1-00000001", wire.CodeLast},
		"a dead one of three":    {voters(3, 3), "node3-00000003", ""},
		"a living one, one dead": {voters(3, 3), "node2-00000002", wire.CodeUnhealthy},
		"without a quorum":       {voters(3, 2, 3), "node3-00000003", wire.CodeNoQuorum},
		"one that is gone":       {voters(3), "node9-00000009", ""},
	} {
		before := len(c.m.Members)
		got := ""
		if err := c.m.remove(c.member, noon); err != nil {
			got = err.Code
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
		if c.want == "" && c.member != "node9-00000009" && (len(c.m.Members) != before-1 || len(c.m.Removed) != 1) {
			t.Errorf("%s: members %v, removed %v", name, c.m.Members, c.m.Removed)
		}
	}
}

func TestRemovedMemberHearsOfIt(t *testing.T) {
	m := voters(2)
	if err := m.remove("node2-00000002", noon); err != nil {
		t.Fatal(err)
	}
	if _, err := m.beat("node2-00000002", noon); err == nil || err.Code != wire.CodeRemoved {
		t.Errorf("got %v, want %s", err, wire.CodeRemoved)
	}
}

func TestLeaveOutlastsARestart(t *testing.T) {
	m := voters(1)
	m.leave("node1-00000001", noon)
	if !m.quorum(noon.Add(5 * time.Second)) {
		t.Error("a restart of five seconds lost the quorum")
	}
	if m.quorum(noon.Add(15 * time.Second)) {
		t.Error("a server that left counts for as long as one that fell silent")
	}
}
