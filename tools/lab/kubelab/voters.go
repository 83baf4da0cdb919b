package kubelab

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/kubeapi"
	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/wire"
)

const (
	// votersEvery is the rhythm in which the server with etcd's leader looks at the members.
	votersEvery = 15 * time.Second
	// etcdVoter is the condition of a server's node that tells how its member stands.
	etcdVoter = "EtcdIsVoter"
)

// tellVoters writes on every server's node how its member of etcd stands.
func (c *cluster) tellVoters(ctx context.Context, nodes []kubeapi.Node) error {
	members := c.members()
	var errs []error
	for _, n := range nodes {
		if _, server := n.Metadata.Labels[etcdLabel]; !server {
			continue
		}
		want := voterCondition(members, n.Metadata.Annotations[etcdNodeName])
		if slices.ContainsFunc(n.Status.Conditions, func(o kubeapi.Condition) bool {
			return o.Type == want.Type && o.Status == want.Status && o.Reason == want.Reason
		}) {
			continue
		}
		want.LastHeartbeatTime, want.LastTransitionTime = kubeapi.Now(), kubeapi.Now()
		// Conditions merge by their type: those of the kubelet stay, as this one does when the kubelet writes its own.
		patch := map[string]any{"status": map[string]any{"conditions": []kubeapi.Condition{want}}}
		err := c.admin.Patch(ctx, "/api/v1/nodes/"+n.Metadata.Name+"/status", kubeapi.StrategicPatch, patch, nil)
		if err != nil && !kubeapi.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// voterCondition is the condition for the member of that name, with the reasons of the real k3s (pkg/etcd).
func voterCondition(members []wire.MemberSummary, name string) kubeapi.Condition {
	c := kubeapi.Condition{Type: etcdVoter, Status: "False"}
	i := slices.IndexFunc(members, func(m wire.MemberSummary) bool { return m.Name == name })
	switch {
	case i < 0:
		c.Reason, c.Message = "NotAMember", "Node is not a member of the etcd cluster"
	case !members[i].Alive:
		c.Reason, c.Message = "Unhealthy", "failed to check etcd member status: context deadline exceeded"
	case members[i].Learner:
		c.Reason, c.Message = "MemberIsLearner", "Node has not been promoted to voting member of the etcd cluster"
	default:
		c.Status, c.Reason, c.Message = "True", "MemberNotLearner", "Node is a voting member of the etcd cluster"
	}
	return c
}
