package kubelab

import "testing"

func TestVoterCondition(t *testing.T) {
	m := voters(3, 2)
	m.Members[2].Learner = true
	for name, want := range map[string][2]string{
		"node1-00000001": {"True", "MemberNotLearner"},
		"node2-00000002": {"False", "Unhealthy"},
		"node3-00000003": {"False", "MemberIsLearner"},
		"node3-ffffffff": {"False", "NotAMember"},
		"":               {"False", "NotAMember"},
	} {
		got := voterCondition(m.summaries(noon), name)
		if got.Type != "EtcdIsVoter" || got.Status != want[0] || got.Reason != want[1] || got.Message == "" {
			t.Errorf("%q: got %+v, want %v", name, got, want)
		}
	}
}
