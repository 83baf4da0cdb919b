package cluster

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// need is what has to be done to a node that stands, so that it is as its group wants it.
type need struct {
	change Change
	// reason says in which way it is not, field what of the configuration that is about.
	reason string
	field  machine.Field
}

// disrupts reports whether the pods of the node have to leave it.
func (n need) disrupts() bool { return n.change == Resized || n.change == Replaced }

// rolls reports whether the change is made to a few nodes at once.
func (n need) rolls() bool { return n.disrupts() || n.change == Restarted }

// need compares a node that has joined with what is wanted, and returns the greatest change that it needs. Changes that are
// made in place are preferred to new nodes wherever one is possible: they are quicker, and what stands on the disks of a
// node, such as the volumes of the local-path class or a server's data store, outlives them.
func (g group) need(m machine.Machine) need {
	if g.temporary(m) {
		return need{change: Adjusted, reason: "it stood in for others, and the apply that made it did not come to its end"}
	}
	for _, compare := range []func(machine.Machine) need{g.outlived, g.outgrown, g.misconfigured} {
		if n := compare(m); n.change != "" {
			return n
		}
	}
	if n, ok := g.api[m.Name]; ok {
		if reason := mislabelled(n, g.base); reason != "" {
			return need{change: Adjusted, reason: reason}
		}
		if n.Cordoned {
			return need{change: Adjusted, reason: "it is still cordoned by an apply that did not come to its end"}
		}
	}
	if !record.Same(g.settled(m.Record), m.Record) {
		return need{change: Adjusted, reason: "its record is not up to date"}
	}
	return need{}
}

// outlived finds what no node can be given that stands.
func (g group) outlived(m machine.Machine) need {
	is, want := m.Record, g.base
	replaced := func(field machine.Field, format string, args ...any) need {
		return need{Replaced, fmt.Sprintf(format, args...), field}
	}
	devices := g.hostDevices[m.Hypervisor]
	node, registered := g.api[m.Name]
	switch a, b := is.Shape, want.Shape; {
	case registered && is.Role == record.Server && !node.Etcd && !node.Voter && !g.single():
		return replaced(machine.FieldName, "its member of etcd is gone, and a server does not become one a second time")
	case a.StoragePool != b.StoragePool:
		return replaced(machine.FieldStoragePool, "its disk is in the storage pool %q and not in %q", a.StoragePool, b.StoragePool)
	case a.Clone != b.Clone:
		return replaced(machine.FieldClone, "its disk is made as %q and not as %q", a.Clone, b.Clone)
	case a.DiskGiB > b.DiskGiB:
		return replaced(machine.FieldDisk, "its disk has %d GiB instead of %d, and disks do not shrink", a.DiskGiB, b.DiskGiB)
	case (a.Data.SizeGiB > 0) != (b.Data.SizeGiB > 0), a.Data.StoragePool != b.Data.StoragePool, a.Data.MountPath != b.Data.MountPath:
		return replaced(machine.FieldDataDisk, "it has another data disk: %s instead of %s", dataText(a.Data), dataText(b.Data))
	case a.Data.SizeGiB > b.Data.SizeGiB:
		return replaced(machine.FieldDataDisk, "its data disk has %d GiB instead of %d, and disks do not shrink", a.Data.SizeGiB, b.Data.SizeGiB)
	case !slices.Equal(is.HostDevices, devices):
		return replaced(machine.FieldHostDevices, "it has the host devices %q instead of %q", is.HostDevices, devices)
	case is.Setup.UserData != want.Setup.UserData:
		return replaced(machine.FieldUserData, "it was made with another extra_user_data")
	case is.Image != want.Image && is.Image != (record.Template{}) && want.Image != (record.Template{}) && !g.single():
		return replaced(machine.FieldTemplate, "it was made from the template %s/%s and not from %s/%s",
			is.Image.Pool, is.Image.Volume, want.Image.Pool, want.Image.Volume)
	}
	return need{}
}

// single reports whether the group is the one server of a cluster, which holds all its data.
func (g group) single() bool { return g.base.Role == record.Server && g.want == 1 }

func dataText(d record.DataDisk) string {
	if d.SizeGiB == 0 {
		return "none"
	}
	return fmt.Sprintf("one in the storage pool %q at %s", d.StoragePool, d.MountPath)
}

// outgrown finds what a node can be given while it is off.
func (g group) outgrown(m machine.Machine) need {
	is, want := m.Record.Shape, g.base.Shape
	for _, c := range []struct {
		field    machine.Field
		what     string
		want, is int
	}{
		{machine.FieldVCPUs, "vCPUs", want.VCPUs, is.VCPUs},
		{machine.FieldMemory, "MiB of memory", want.MemoryMiB, is.MemoryMiB},
		{machine.FieldDisk, "GiB of disk", want.DiskGiB, is.DiskGiB},
		{machine.FieldDataDisk, "GiB of data disk", want.Data.SizeGiB, is.Data.SizeGiB},
	} {
		if c.is != c.want {
			return need{Resized, fmt.Sprintf("it has %d %s instead of %d", c.is, c.what, c.want), c.field}
		}
	}
	return need{}
}

// misconfigured finds what k3s is given when it is started.
func (g group) misconfigured(m machine.Machine) need {
	is, want := m.Record, g.base
	switch {
	case is.Setup.Changing:
		return need{change: Restarted, reason: "an apply that did not come to its end has changed the settings of k3s in it"}
	case !slices.Equal(is.Setup.Args, want.Setup.Args):
		return need{change: Restarted, reason: "k3s runs in it with other arguments"}
	case is.Setup.Registries != want.Setup.Registries:
		return need{change: Restarted, reason: "k3s runs in it with another registries.yaml"}
	case is.Cluster != nil && want.Cluster != nil && !sameNames(*is.Cluster, *want.Cluster):
		return need{change: Restarted, reason: "the certificate of its API is for other names"}
	case is.Cluster != nil && want.Cluster != nil && is.Cluster.ImageRegistry != want.Cluster.ImageRegistry:
		return need{change: Restarted, reason: "k3s gets its images from another registry"}
	}
	return need{}
}

// settled is the record of a node once nothing but the record has to be changed.
func (g group) settled(r record.Record) record.Record {
	r.Placement, r.Drain, r.Upgrade, r.Repair = g.base.Placement, g.base.Drain, g.base.Upgrade, g.base.Repair
	r.Labels, r.Taints, r.Temporary = g.base.Labels, g.base.Taints, false
	if r.Role == record.Server {
		r.Cluster = g.base.Cluster
	}
	return r
}

// mislabelled says which of a group's labels and taints a Node object lacks, or has although they are not wanted any more;
// "" where it has all that it should.
func mislabelled(n Node, want record.Record) string {
	if want.Role != record.Agent {
		return ""
	}
	for _, key := range slices.Sorted(maps.Keys(want.Labels)) {
		switch value, ok := n.Labels[key]; {
		case !ok:
			return fmt.Sprintf("it lacks the label %s", key)
		case value != want.Labels[key]:
			return fmt.Sprintf("its label %s is %q instead of %q", key, value, want.Labels[key])
		}
	}
	for _, key := range n.OwnLabels {
		if _, wanted := want.Labels[key]; !wanted {
			return fmt.Sprintf("its label %s is not wanted any more", key)
		}
	}
	wanted := map[string]bool{}
	for _, t := range want.Taints {
		wanted[taintKey(t)] = true
		if !slices.Contains(n.Taints, t) {
			return fmt.Sprintf("it lacks the taint %s=%s:%s", t.Key, t.Value, t.Effect)
		}
	}
	for _, key := range n.OwnTaints {
		if !wanted[key] {
			return fmt.Sprintf("its taint %s is not wanted any more", key)
		}
	}
	return ""
}

// taintKey is what taints of one node are told apart by.
func taintKey(t record.Taint) string { return t.Key + ":" + t.Effect }

// digest stands in a record for a text that may hold secrets. The cluster's id keeps equal texts of clusters from having
// equal digests.
func digest(clusterID, text string) string {
	if text == "" {
		return ""
	}
	h := hmac.New(sha256.New, []byte(clusterID))
	h.Write([]byte(text))
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// setupOf is what a record says of what the user gives to guests.
func setupOf(clusterID string, x Extra) record.Setup {
	return record.Setup{Args: x.Args, Registries: digest(clusterID, x.Registries), UserData: digest(clusterID, x.UserData)}
}

// known returns the texts as far as a record speaks of the same.
func (x Extra) known(clusterID string, s record.Setup) Extra {
	x.Args = s.Args
	if digest(clusterID, x.Registries) != s.Registries {
		x.Registries = ""
	}
	if digest(clusterID, x.UserData) != s.UserData {
		x.UserData = ""
	}
	return x
}

// judge completes what is known of a group's nodes by how they compare with what is wanted of them.
func (g group) judge(nodes Nodes, now time.Time) {
	for _, m := range g.machines {
		n, ok := nodes[m.Name]
		if !ok || n.UUID != m.UUID {
			continue
		}
		need := g.need(m)
		switch {
		case n.State == NodeReady && need.change != "":
			n.State, n.Reason = NodeDrifted, need.reason
		case n.State == NodeNotReady && need.rolls():
			n.State, n.Reason = NodeDrifted, need.reason+"; it is not Ready: "+n.Reason
		case n.State == NodeNotReady:
			if since := g.api[m.Name].Since; g.unhealthy(m.Name, now) {
				n.State, n.Reason = NodeUnhealthy, fmt.Sprintf("not Ready since %s: %s", since.UTC().Format(time.RFC3339), strings.TrimSuffix(n.Reason, "."))
			}
		}
		nodes[m.Name] = n
	}
}

// unhealthy reports whether a node is not Ready for longer than the rule of its pool allows.
func (g group) unhealthy(name string, now time.Time) bool {
	n, ok := g.api[name]
	patience := time.Duration(g.base.Repair.NotReadySeconds) * time.Second
	return ok && g.base.Role == record.Agent && g.base.Repair.MaxUnhealthy > 0 && !n.Ready && !n.Since.IsZero() && now.Sub(n.Since) > patience
}
