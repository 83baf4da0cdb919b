package cluster

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io/fs"
	"math/big"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/guestagent"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/k3s"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

const (
	testVersion = "v1.36.2+k3s1"
	testSecret  = "the-join-secret"
)

// world is hypervisors, guests and the cluster's API in memory.
type world struct {
	mu       sync.Mutex
	hosts    []Hypervisor
	machines map[string]machine.Machine
	// disks and seeds are by UUID.
	disks map[string]bool
	seeds map[string][]byte
	nodes map[string]Node
	// started counts the starts of each name, forgotten the removals of Node objects.
	started   map[string]int
	forgotten []string
	// unreachable hypervisors, and what a guest says instead of the usual.
	unreachable map[string]error
	guests      map[string]*fakeGuest
	problems    []machine.Problem
	apiDown     error
	startErr    map[string]error
	kubeconfig  []byte
	// silentAgents is how many of the next agent calls find nobody.
	silentAgents int
	// staleNodes: a start does not reach the API.
	staleNodes bool
	// duringDefine runs while a domain is defined.
	duringDefine func()
	// unreadable VMs are seen, but their records are not.
	unreadable map[string]error
	deleteErr  error
	// observed counts the looks, observing runs in each.
	observed  int
	observing func()
}

// fakeGuest overrides how the guests of one node name behave, for the first `times` VMs of that name.
type fakeGuest struct {
	times  int
	ping   error
	noIP   bool
	marker string
	files  map[string]string
	// notReady: its node registers and stays not Ready.
	notReady bool
}

func newWorld(t *testing.T, hosts ...string) *world {
	t.Helper()
	w := &world{
		machines: map[string]machine.Machine{}, disks: map[string]bool{}, seeds: map[string][]byte{}, nodes: map[string]Node{},
		started: map[string]int{}, unreachable: map[string]error{}, guests: map[string]*fakeGuest{}, startErr: map[string]error{},
		kubeconfig: testKubeconfig(t),
	}
	for _, h := range hosts {
		w.hosts = append(w.hosts, Hypervisor{Name: h, Schedulable: true})
	}
	return w
}

func (w *world) engine() *Engine {
	return New(w, func([]byte) (Kube, error) { return fakeKube{w}, nil }, Options{Parallelism: 2, InstallScriptURL: "https://get.k3s.io"})
}

func (w *world) names() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	set := map[string]bool{}
	for _, m := range w.machines {
		set[m.Name] = true
	}
	return strings.Join(sortedKeys(set), " ")
}

func (w *world) machine(name string) machine.Machine {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.machines {
		if m.Name == name {
			return m
		}
	}
	return machine.Machine{}
}

// vanish removes a VM behind the provider's back.
func (w *world) vanish(name string) {
	m := w.machine(name)
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.machines, m.UUID)
	delete(w.nodes, name)
}

func (w *world) Hypervisors() []Hypervisor { return w.hosts }

func (w *world) Observe(context.Context) machine.Observation {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.observed++
	o := machine.Observation{Unreachable: w.unreachable}
	for _, id := range sortedKeys(w.machines) {
		switch m := w.machines[id]; {
		case w.unreachable[m.Hypervisor] != nil:
		case w.unreadable[id] != nil:
			o.Unreadable = append(o.Unreadable, machine.Unreadable{Hypervisor: m.Hypervisor, Name: m.Name, UUID: id, Err: w.unreadable[id]})
		default:
			o.Machines = append(o.Machines, m)
		}
	}
	if w.observing != nil {
		w.mu.Unlock()
		w.observing()
		w.mu.Lock()
	}
	return o
}

func (w *world) Check(_ context.Context, r machine.Request) ([]machine.Problem, error) {
	return w.problems, w.unreachable[r.Hypervisor]
}

func (w *world) Define(ctx context.Context, s machine.Spec) error {
	if w.duringDefine != nil {
		w.duringDefine()
	}
	defer func() { w.duringDefine = nil }()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.machines[s.UUID] = machine.Machine{
		Hypervisor: s.Hypervisor, Name: s.Name(), UUID: s.UUID, MAC: s.MAC, Power: machine.Stopped, Record: s.Record,
	}
	return ctx.Err()
}

func (w *world) CloneDisk(_ context.Context, s machine.Spec) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.machines[s.UUID]; !ok {
		return fmt.Errorf("disk of %s before its record", s.Name())
	}
	w.disks[s.UUID] = true
	return nil
}

func (w *world) WriteSeed(_ context.Context, m machine.Machine, iso []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seeds[m.UUID] = iso
	return nil
}

func (w *world) Start(_ context.Context, m machine.Machine) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.startErr[m.Name]; err != nil {
		return err
	}
	w.started[m.Name]++
	m.Power = machine.Running
	w.machines[m.UUID] = m
	g := w.guest(m)
	if w.staleNodes {
		return nil
	}
	w.nodes[m.Name] = Node{
		Name: m.Name, Ready: !g.notReady, Reason: "KubeletNotReady", Message: "cni plugin not initialized", K3sVersion: testVersion,
		InternalIP: address(m), BootID: fmt.Sprint(m.Name, " boot ", w.started[m.Name]),
	}
	return nil
}

func (w *world) SetRecord(_ context.Context, m machine.Machine, r record.Record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	m.Record = r
	w.machines[m.UUID] = m
	return nil
}

func (w *world) Stop(_ context.Context, m machine.Machine, _ time.Duration) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	m.Power = machine.Stopped
	w.machines[m.UUID] = m
	return nil
}

func (w *world) Delete(_ context.Context, m machine.Machine) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.deleteErr != nil {
		return w.deleteErr
	}
	delete(w.machines, m.UUID)
	delete(w.disks, m.UUID)
	delete(w.seeds, m.UUID)
	return nil
}

func (w *world) Guest(m machine.Machine) Guest { return guestOf{w, m} }

// guest tells how the guest of a VM behaves.
func (w *world) guest(m machine.Machine) fakeGuest {
	if g := w.guests[m.Name]; g != nil && w.started[m.Name] <= g.times {
		return *g
	}
	return fakeGuest{}
}

func address(m machine.Machine) string {
	return fmt.Sprintf("192.0.2.%d", len(m.Name)*8+m.Record.Ordinal)
}

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
		return fmt.Appendf(nil, `{"instance":%q,"state":"done","step":"start","rc":0}`, g.m.UUID), nil
	case "/proc/sys/kernel/random/boot_id":
		return fmt.Appendf(nil, "%s boot %d\n", g.m.Name, g.w.started[g.m.Name]), nil
	case k3s.KubeconfigPath:
		return g.w.kubeconfig, nil
	case k3s.TokenPath:
		return []byte("K10" + strings.Repeat("ab", 32) + "::server:" + testSecret + "\n"), nil
	}
	return nil, fs.ErrNotExist
}

func (g guestOf) Run(context.Context, string, ...string) ([]byte, error) {
	return []byte("a line of the journal\n"), nil
}

type fakeKube struct{ w *world }

func (k fakeKube) Ready(context.Context) error { return k.w.apiDown }

func (k fakeKube) Nodes(context.Context) ([]Node, error) {
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	var out []Node
	for _, name := range sortedKeys(k.w.nodes) {
		out = append(out, k.w.nodes[name])
	}
	return out, k.w.apiDown
}

func (k fakeKube) DeleteNode(_ context.Context, name string) error {
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	k.w.forgotten = append(k.w.forgotten, name)
	delete(k.w.nodes, name)
	return k.w.apiDown
}

var errNoAgent = fmt.Errorf("guest-ping: %w", guestagent.ErrNotConnected)

// testKubeconfig is a k3s.yaml with a certificate that fits its key.
func testKubeconfig(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "system:admin"}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, der []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `apiVersion: v1
kind: Config
clusters: [{name: default, cluster: {server: "https://127.0.0.1:6443", certificate-authority-data: %[1]s}}]
users: [{name: default, user: {client-certificate-data: %[1]s, client-key-data: %[2]s}}]
contexts: [{name: default, context: {cluster: default, user: default}}]
current-context: default
`, block("CERTIFICATE", der), block("EC PRIVATE KEY", keyDER))
	return b.Bytes()
}
