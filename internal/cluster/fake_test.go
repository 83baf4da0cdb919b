package cluster

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math/big"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

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
	// noVote: servers register before they have a vote in etcd, or the label that tells of their member.
	noVote bool
	// staleNodes: a start does not reach the API.
	staleNodes bool
	// duringDefine runs while a domain is defined.
	duringDefine func()
	// unreadable VMs are seen, but their records are not.
	unreadable map[string]error
	deleteErr  error
	// surveyed counts the surveys, observing runs in each; described counts the records that were read.
	surveyed  int
	observing func()
	described int
	// cpus and memoryMiB are what each hypervisor has, freeMiB what its storage pool has left.
	cpus, memoryMiB, freeMiB int
	// left are the servers whose members were taken out of etcd, in turn.
	left []string
	// asked is the last request that was checked.
	asked machine.Request
	// unflushed are the guests that have written something which is not on their disks yet; torn those that were relied on
	// all the same.
	unflushed map[string]bool
	torn      []string
	// waiting are the VMs that wait for their turn.
	waiting map[string]bool
	// written are the files written in guests, by node.
	written map[string]string
	// dead are the servers at which the API does not answer, by name.
	dead map[string]bool
	// steps is how many more changes are made before the process that makes them is killed, where that is not negative.
	steps int
	// template is the golden image that is configured.
	template record.Template
	// undrained says what a drain of a node leaves, attached which volumes stay attached to it.
	undrained map[string]error
	attached  map[string][]string
	// deleted are the VMs that were deleted, by UUID.
	deleted map[string]machine.Machine
	// restartErr is why k3s does not start again in a node.
	restartErr map[string]error
	// log lists starts, readiness of servers and removals of members in their order.
	log []string
	// releases are the add-ons that are installed, fetched those whose charts were got, refusals how many of the next
	// installations the API refuses.
	releases   map[Addon]release
	fetched    map[Addon]bool
	fetchErr   error
	refusals   int
	installErr map[Addon]error
	// unhealthy says why an add-on does not run, volumes what stands on it.
	unhealthy map[Addon]error
	volumes   map[Addon][]string
	// lacks are the troubles that a guest finds at itself.
	lacks   map[string]string
	exports map[string]machine.Export
	// defaults are the default StorageClasses.
	defaults []string
	// relay is why a part of the network does not run that nodes are Ready without.
	relay error
	// mortal: the data store goes with the last server.
	mortal bool
	// tainted: no server takes pods.
	tainted bool
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
	// message is why, where it is not the network.
	message string
}

func newWorld(t *testing.T, hosts ...string) *world {
	t.Helper()
	w := &world{
		machines: map[string]machine.Machine{}, disks: map[string]bool{}, seeds: map[string][]byte{}, nodes: map[string]Node{},
		started: map[string]int{}, unreachable: map[string]error{}, guests: map[string]*fakeGuest{}, startErr: map[string]error{},
		kubeconfig: testKubeconfig(t), written: map[string]string{}, waiting: map[string]bool{}, unflushed: map[string]bool{}, restartErr: map[string]error{}, deleted: map[string]machine.Machine{}, undrained: map[string]error{}, attached: map[string][]string{},
		releases: map[Addon]release{}, fetched: map[Addon]bool{}, installErr: map[Addon]error{}, unhealthy: map[Addon]error{}, volumes: map[Addon][]string{},
		lacks: map[string]string{}, cpus: 16, memoryMiB: 64 << 10, freeMiB: 1 << 20, steps: -1,
	}
	for _, h := range hosts {
		w.hosts = append(w.hosts, Hypervisor{Name: h, Schedulable: true, Overcommit: machine.DefaultOvercommit})
	}
	return w
}

func (w *world) engine() *Engine {
	e := New(w, func(kubeconfig []byte) (Kube, error) { return fakeKube{w, kubeconfig}, nil }, Options{
		Parallelism: 2, InstallScriptURL: "https://get.k3s.io", Catalogue: fakeCatalogue{w},
	})
	e.watch.age = 0 // what a test does behind the engine's back is to be seen at once
	return e
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
	return w.machineOf(name)
}

// vanish removes a VM behind the provider's back.
func (w *world) vanish(name string) {
	m := w.machine(name)
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.machines, m.UUID)
	delete(w.nodes, name)
}

// errKilled is what a process that was killed would have seen.
var errKilled = errors.New("killed")

// step counts a change. The caller holds w.mu.
func (w *world) step() error {
	if w.steps == 0 {
		return errKilled
	}
	if w.steps > 0 {
		w.steps--
	}
	return nil
}

func (w *world) Hypervisors() []Hypervisor { return w.hosts }

func (w *world) Survey(context.Context) machine.Survey {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.surveyed++
	o := machine.Survey{Hosts: map[string]machine.Host{}, Unreachable: maps.Clone(w.unreachable)}
	for _, h := range w.hosts {
		if w.unreachable[h.Name] == nil {
			o.Hosts[h.Name] = machine.Host{CPUs: w.cpus, MemoryMiB: w.memoryMiB}
		}
	}
	for _, id := range sortedKeys(w.machines) {
		m := w.machines[id]
		if h, ok := o.Hosts[m.Hypervisor]; ok {
			h.Domains = append(h.Domains, machine.Domain{
				Name: m.Name, UUID: id, Power: m.Power, VCPUs: m.Record.Shape.VCPUs, MemoryMiB: m.Record.Shape.MemoryMiB,
			})
			o.Hosts[m.Hypervisor] = h
		}
	}
	if w.observing != nil {
		w.mu.Unlock()
		w.observing()
		w.mu.Lock()
	}
	return o
}

func (w *world) Describe(_ context.Context, hypervisor string, uuids []string) (machines []machine.Machine, unreadable []machine.Unreadable, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.unreachable[hypervisor]; err != nil {
		return nil, nil, err
	}
	for _, id := range uuids {
		w.described++
		m, ok := w.machines[id]
		switch {
		case !ok || m.Hypervisor != hypervisor || m.Record.ClusterID == "":
		case w.unreadable[id] != nil:
			unreadable = append(unreadable, machine.Unreadable{Hypervisor: hypervisor, Name: m.Name, UUID: id, Err: w.unreadable[id]})
		default:
			machines = append(machines, m)
		}
	}
	return machines, unreadable, nil
}

func (w *world) Check(_ context.Context, r machine.Request) (machine.Site, []machine.Problem, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = r
	site := machine.Site{Store: r.Hypervisor + "/" + r.StoragePool, FreeMiB: w.freeMiB}
	if r.Data.SizeGiB > 0 {
		site.DataStore, site.DataFreeMiB = r.Hypervisor+"/"+r.Data.StoragePool, w.freeMiB
	}
	return site, w.problems, w.unreachable[r.Hypervisor]
}

func (w *world) Define(ctx context.Context, s machine.Spec) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.step(); err != nil {
		return err
	}
	if w.duringDefine != nil {
		w.duringDefine()
		w.duringDefine = nil
	}
	w.machines[s.UUID] = machine.Machine{
		Hypervisor: s.Hypervisor, Name: s.Name(), UUID: s.UUID, MAC: s.MAC, Power: machine.Stopped, Record: s.Record,
	}
	return ctx.Err()
}

func (w *world) CloneDisk(_ context.Context, s machine.Spec) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.step(); err != nil {
		return err
	}
	if _, ok := w.machines[s.UUID]; !ok {
		return fmt.Errorf("disk of %s before its record", s.Name())
	}
	w.disks[s.UUID] = true
	return nil
}

// relyOn: what a guest has written has to outlive a power cut from now on. The caller holds w.mu.
func (w *world) relyOn(name string) {
	if w.unflushed[name] {
		w.torn = append(w.torn, name)
	}
}

func (w *world) WriteSeed(_ context.Context, m machine.Machine, iso []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.step(); err != nil {
		return err
	}
	w.seeds[m.UUID] = iso
	return nil
}

func (w *world) Start(_ context.Context, m machine.Machine) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.step(); err != nil {
		return err
	}
	if err := w.startErr[m.Name]; err != nil {
		return err
	}
	w.started[m.Name]++
	w.unflushed[m.Name] = true
	m.Power = machine.Running
	w.machines[m.UUID] = m
	w.log = append(w.log, "start "+m.Name)
	if w.staleNodes {
		return nil
	}
	if seed := w.seeds[m.UUID]; bytes.Contains(seed, []byte("TURN_SECONDS")) && !bytes.Contains(seed, []byte("TURN_SECONDS='0'")) {
		w.waiting[m.UUID] = true
		return nil
	}
	w.register(m)
	return nil
}

// register makes the Node object of a VM whose k3s starts.
func (w *world) register(m machine.Machine) {
	g := w.guest(m)
	n := Node{
		Name: m.Name, Ready: !g.notReady, Reason: "KubeletNotReady", Message: cmp.Or(g.message, "cni plugin not initialized"), K3sVersion: testVersion,
		InternalIP: address(m), BootID: fmt.Sprint(m.Name, " boot ", w.started[m.Name]),
		Etcd: m.Record.Role == record.Server && !w.noVote, Voter: m.Record.Role == record.Server && !w.noVote,
	}
	if was, again := w.nodes[m.Name]; again {
		n.Labels, n.Taints, n.OwnLabels, n.OwnTaints, n.Cordoned = was.Labels, was.Taints, was.OwnLabels, was.OwnTaints, was.Cordoned
	} else {
		n.Labels, n.Taints = maps.Clone(m.Record.Labels), slices.Clone(m.Record.Taints)
	}
	w.nodes[m.Name] = n
}

func (w *world) Template() record.Template { return w.template }

func (w *world) Export(_ context.Context, pool string) (machine.Export, error) {
	if export, ok := w.exports[pool]; ok {
		return export, nil
	}
	return machine.Export{}, fmt.Errorf("no hypervisor has a storage pool %q", pool)
}

func (w *world) Resize(_ context.Context, m machine.Machine, s record.Shape) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.step(); err != nil {
		return err
	}
	m = w.machines[m.UUID]
	if m.Power != machine.Stopped {
		return fmt.Errorf("%s is %s", m.Name, m.Power)
	}
	m.Record.Shape = s
	w.machines[m.UUID] = m
	w.log = append(w.log, "resize "+m.Name)
	return nil
}

func (w *world) SetRecord(_ context.Context, m machine.Machine, r record.Record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.step(); err != nil {
		return err
	}
	if m.Record.Phase == record.Creating && r.Phase == record.Joined {
		w.log = append(w.log, "joined "+m.Name)
		w.relyOn(m.Name)
	}
	m.Record = r
	w.machines[m.UUID] = m
	return nil
}

func (w *world) Stop(_ context.Context, m machine.Machine, _ time.Duration) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.step(); err != nil {
		return err
	}
	m.Power = machine.Stopped
	w.machines[m.UUID] = m
	return nil
}

func (w *world) Delete(_ context.Context, m machine.Machine) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.step(); err != nil {
		return err
	}
	if w.deleteErr != nil {
		return w.deleteErr
	}
	w.deleted[m.UUID] = m
	delete(w.machines, m.UUID)
	delete(w.disks, m.UUID)
	delete(w.seeds, m.UUID)
	if w.mortal && len(w.machines) == 0 {
		clear(w.releases)
		clear(w.nodes)
	}
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
	if m.Name == "c-cp-1" {
		return "192.0.2.49"
	}
	h := fnv.New32a()
	h.Write([]byte(m.Name))
	sum := h.Sum(nil)
	return fmt.Sprintf("198.%d.%d.%d", 18+sum[0]%2, sum[1], sum[2])
}

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
