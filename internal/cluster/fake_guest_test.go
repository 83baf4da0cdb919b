package cluster

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/guestagent"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/k3s"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

type guestOf struct {
	w *world
	m machine.Machine
}

func (g guestOf) behaviour() fakeGuest {
	g.w.mu.Lock()
	defer g.w.mu.Unlock()
	return g.w.guest(g.m)
}

func (g guestOf) Connected(context.Context) (bool, error) { return g.behaviour().ping == nil, nil }
func (g guestOf) Ping(context.Context) error              { return g.behaviour().ping }

func (g guestOf) Addresses(_ context.Context, mac string) ([]string, error) {
	if mac != g.m.MAC || g.behaviour().noIP {
		return nil, nil
	}
	return []string{address(g.m)}, nil
}

func (g guestOf) ReadFile(_ context.Context, path string) ([]byte, error) {
	b := g.behaviour()
	g.w.mu.Lock()
	silent := g.w.silentAgents > 0
	if silent {
		g.w.silentAgents--
	}
	g.w.mu.Unlock()
	if silent {
		return nil, errNoAgent
	}
	if content, ok := b.files[path]; ok {
		return []byte(content), nil
	}
	switch path {
	case k3s.MarkerPath:
		if b.marker == "none" {
			return nil, fs.ErrNotExist
		}
		if b.marker != "" {
			return []byte(strings.ReplaceAll(b.marker, "UUID", g.m.UUID)), nil
		}
		g.w.mu.Lock()
		defer g.w.mu.Unlock()
		if g.w.waiting[g.m.UUID] {
			return fmt.Appendf(nil, `{"instance":%q,"state":"waiting","step":"turn","rc":0}`, g.m.UUID), nil
		}
		return fmt.Appendf(nil, `{"instance":%q,"state":"done","step":"start","rc":0}`, g.m.UUID), nil
	case "/proc/sys/kernel/random/boot_id":
		g.w.mu.Lock()
		defer g.w.mu.Unlock()
		return fmt.Appendf(nil, "%s boot %d\n", g.m.Name, g.w.started[g.m.Name]), nil
	case k3s.KubeconfigPath:
		return g.w.kubeconfig, nil
	case k3s.TokenPath:
		return []byte("K10" + strings.Repeat("ab", 32) + "::server:" + testSecret + "\n"), nil
	}
	return nil, fs.ErrNotExist
}

func (g guestOf) WriteFile(_ context.Context, _ string, content []byte) error {
	b := g.behaviour()
	g.w.mu.Lock()
	defer g.w.mu.Unlock()
	g.w.written[g.m.Name] = string(content)
	g.w.unflushed[g.m.Name] = true
	return b.ping
}

func (g guestOf) Run(_ context.Context, program string, args ...string) ([]byte, error) {
	g.w.mu.Lock()
	defer g.w.mu.Unlock()
	if err := g.w.step(); err != nil {
		return nil, err
	}
	if program == "/usr/bin/install" && args[len(args)-1] == k3s.TurnPath && g.w.waiting[g.m.UUID] {
		g.w.log = append(g.w.log, "turn of "+g.m.Name)
		delete(g.w.waiting, g.m.UUID)
		g.w.register(g.m)
	}
	if program == "/bin/sh" {
		g.w.log = append(g.w.log, "preflight "+g.m.Name)
		if lines := g.w.lacks[g.m.Name]; lines != "" {
			return []byte(lines), fmt.Errorf("run: %w", &guestagent.ExitError{Path: program, Code: 1})
		}
		return nil, nil
	}
	if program == "/usr/bin/sync" {
		delete(g.w.unflushed, g.m.Name)
	}
	if program == "/usr/bin/timeout" {
		g.w.log = append(g.w.log, "restart "+g.m.Name)
		g.w.relyOn(g.m.Name)
		n := g.w.nodes[g.m.Name]
		n.Ready = g.w.restartErr[g.m.Name] == nil
		g.w.nodes[g.m.Name] = n
		return nil, g.w.restartErr[g.m.Name]
	}
	return []byte("a line of the journal\n"), nil
}

// fakeKube is the API behind a kubeconfig.
type fakeKube struct {
	w          *world
	kubeconfig []byte
}

// down is why the API does not answer: at a server that is dead, or while etcd has no majority. The caller holds w.mu.
func (k fakeKube) down() error {
	for name := range k.w.dead {
		if bytes.Contains(k.kubeconfig, []byte(address(machine.Machine{Name: name}))) {
			return fmt.Errorf("%s: connection refused", name)
		}
	}
	voters, up := 0, 0
	for name, n := range k.w.nodes {
		if !n.Voter {
			continue
		}
		voters++
		for _, m := range k.w.machines {
			if m.Name == name && m.Power == machine.Running {
				up++
			}
		}
	}
	if voters > 0 && 2*up <= voters {
		return fmt.Errorf("etcdserver: %d of %d members are no quorum", up, voters)
	}
	return k.w.apiDown
}

func (k fakeKube) Ready(context.Context) error {
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	return k.down()
}

func (k fakeKube) Nodes(context.Context) ([]Node, error) {
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	var out []Node
	for _, name := range sortedKeys(k.w.nodes) {
		n := k.w.nodes[name]
		if !k.w.networked() {
			n.Ready, n.Reason, n.Message = false, "KubeletNotReady", "cni plugin not initialized"
		}
		if k.w.tainted && n.Etcd {
			n.Taints = []record.Taint{{Key: "node-role.kubernetes.io/control-plane", Effect: "NoSchedule"}}
		}
		out = append(out, n)
	}
	return out, k.down()
}

func (k fakeKube) DeleteNode(_ context.Context, name string) error {
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	if err := cmp.Or(k.down(), k.w.step()); err != nil {
		return err
	}
	k.w.forgotten = append(k.w.forgotten, name)
	delete(k.w.nodes, name)
	return nil
}

func (k fakeKube) LeaveEtcd(_ context.Context, name string) (bool, error) {
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	if err := cmp.Or(k.down(), k.w.step()); err != nil {
		return false, err
	}
	n, ok := k.w.nodes[name]
	if !ok || !n.Etcd {
		return true, nil
	}
	n.Etcd, n.Voter = false, false
	k.w.nodes[name] = n
	k.w.left = append(k.w.left, name)
	k.w.log = append(k.w.log, "left "+name)
	return true, nil
}

// edit changes a Node object.
func (k fakeKube) edit(name string, change func(*Node) error) error {
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	if err := cmp.Or(k.down(), k.w.step()); err != nil {
		return err
	}
	n, ok := k.w.nodes[name]
	if !ok {
		return nil
	}
	err := change(&n)
	k.w.nodes[name] = n
	return err
}

func (k fakeKube) Cordon(_ context.Context, name string) error {
	return k.edit(name, func(n *Node) error {
		n.Cordoned = true
		return nil
	})
}

func (k fakeKube) Release(_ context.Context, name string) error {
	return k.edit(name, func(n *Node) error {
		n.Cordoned = false
		return nil
	})
}

func (k fakeKube) Drain(_ context.Context, name string, o DrainOptions) error {
	return k.edit(name, func(n *Node) error {
		switch {
		case o.Timeout <= 0:
			return errors.New("a drain without a bound")
		case !n.Cordoned:
			return fmt.Errorf("%s is not cordoned", name)
		case o.Dead == n.Ready && k.w.machineOf(name).Power == machine.Running:
			return fmt.Errorf("%s is drained as dead=%t", name, o.Dead)
		}
		k.w.log = append(k.w.log, "drain "+name)
		return k.w.undrained[name]
	})
}

// machineOf finds a VM. The caller holds w.mu.
func (w *world) machineOf(name string) machine.Machine {
	for _, m := range w.machines {
		if m.Name == name {
			return m
		}
	}
	return machine.Machine{}
}

func (k fakeKube) Attached(_ context.Context, name string) ([]string, error) {
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	return k.w.attached[name], k.down()
}

func (k fakeKube) Label(_ context.Context, name string, labels map[string]string, taints []record.Taint) error {
	return k.edit(name, func(n *Node) error {
		out := map[string]string{}
		for key, value := range n.Labels {
			if !slices.Contains(n.OwnLabels, key) {
				out[key] = value
			}
		}
		maps.Copy(out, labels)
		n.Taints = slices.DeleteFunc(slices.Clone(n.Taints), func(t record.Taint) bool {
			return slices.Contains(n.OwnTaints, taintKey(t)) || slices.ContainsFunc(taints, func(o record.Taint) bool { return taintKey(o) == taintKey(t) })
		})
		n.Taints = append(n.Taints, taints...)
		n.Labels, n.OwnLabels, n.OwnTaints = out, sortedKeys(labels), nil
		for _, t := range taints {
			n.OwnTaints = append(n.OwnTaints, taintKey(t))
		}
		return nil
	})
}

var errNoAgent = fmt.Errorf("guest-ping: %w", guestagent.ErrNotConnected)
