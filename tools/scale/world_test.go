package scale

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"encoding/xml"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/hypervisor"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// world is hypervisors with the nodes of a cluster. The hypervisors are libvirt's test drivers; guests and API are not
// there but for what a refresh asks of them.
type world struct {
	*hypervisor.Fleet
	surveys, records atomic.Int64

	spec    cluster.Spec
	servers cluster.Nodes
	specs   []cluster.PoolSpec
	agents  []cluster.Nodes

	kubeconfig []byte
	nodes      []cluster.Node
}

func newWorld(b testing.TB, nodes int) *world {
	b.Helper()
	shape := record.Shape{VCPUs: 4, MemoryMiB: 16384, DiskGiB: 80, StoragePool: "vms", Clone: record.Overlay}
	w := &world{
		kubeconfig: kubeconfig(b), servers: cluster.Nodes{},
		spec: cluster.Spec{
			ID: uuid.NewString(), Name: "k8s-prod", Servers: servers, Shape: shape,
			Settings: record.Cluster{K3sVersion: "v1.36.1+k3s1", Network: "lan"},
		},
	}
	definitions := make([]strings.Builder, hypervisors)
	add := func(group cluster.Nodes, r record.Record, i int) {
		r.ClusterID, r.ClusterName, r.Shape, r.Phase = w.spec.ID, w.spec.Name, shape, record.Joined
		n := cluster.NodeStatus{
			Name: r.NodeName(), Role: r.Role, Hypervisor: hypervisorName(i), UUID: uuid.NewString(),
			MAC: fmt.Sprintf("52:54:00:00:%02x:%02x", i>>8, i&255), State: cluster.NodeReady,
		}
		group[n.Name] = n
		w.nodes = append(w.nodes, cluster.Node{Name: n.Name, Ready: true, K3sVersion: w.spec.Settings.K3sVersion, Etcd: n.Role == record.Server, Voter: n.Role == record.Server})
		definitions[i%hypervisors].WriteString(domain(b, n, r))
	}
	for i := range servers {
		add(w.servers, record.Record{Pool: record.ServerPool, Role: record.Server, Ordinal: i + 1, Cluster: &w.spec.Settings}, i)
	}
	for p := range pools {
		name, group := fmt.Sprintf("pool-%d", p), cluster.Nodes{}
		for i := servers + p; i < nodes; i += pools {
			add(group, record.Record{Pool: name, Role: record.Agent, Ordinal: len(group) + 1}, i)
		}
		w.specs = append(w.specs, cluster.PoolSpec{ClusterID: w.spec.ID, Name: name, Nodes: len(group), Shape: shape})
		w.agents = append(w.agents, group)
	}
	configs := map[string]hypervisor.Config{}
	for i := range definitions {
		name := hypervisorName(i)
		file := filepath.Join(b.TempDir(), name+".xml")
		if err := os.WriteFile(file, []byte("<node>"+definitions[i].String()+"</node>"), 0o600); err != nil {
			b.Fatal(err)
		}
		configs[name] = hypervisor.Config{URI: "test://" + file, Schedulable: true}
	}
	w.Fleet = hypervisor.New(configs, hypervisor.TemplateRef{}, cluster.DefaultParallelism)
	return w
}

func hypervisorName(i int) string { return fmt.Sprintf("hv-%d", i%hypervisors) }

// domain is the definition of a node, which the test driver starts.
func domain(b testing.TB, n cluster.NodeStatus, r record.Record) string {
	b.Helper()
	for _, volume := range []string{machine.RootVolume(n.Name, n.UUID), machine.SeedVolume(n.Name, n.UUID)} {
		r.Volumes = append(r.Volumes, record.Volume{Pool: r.Shape.StoragePool, Name: volume})
	}
	text, err := record.Encode(r)
	if err != nil {
		b.Fatal(err)
	}
	var escaped bytes.Buffer
	if err := xml.EscapeText(&escaped, text); err != nil {
		b.Fatal(err)
	}
	return fmt.Sprintf(`<domain type="test"><name>%s</name><uuid>%s</uuid><metadata><%[3]s:%[4]s xmlns:%[3]s="%[5]s">%[6]s</%[3]s:%[4]s></metadata>
		<memory unit="MiB">%[7]d</memory><vcpu>%[8]d</vcpu><os><type>hvm</type></os><devices>
		<interface type="network"><mac address="%[9]s"/><source network="lan"/></interface></devices></domain>`,
		n.Name, n.UUID, record.Prefix, record.Element, record.Namespace, escaped.String(), r.Shape.MemoryMiB, r.Shape.VCPUs, n.MAC)
}

// engine is one that has seen nothing yet, as that of a new process.
func (w *world) engine() *cluster.Engine {
	return cluster.New(w, func([]byte) (cluster.Kube, error) { return kube{nodes: w.nodes}, nil }, cluster.Options{})
}

// Survey counts the surveys.
func (w *world) Survey(ctx context.Context) machine.Survey {
	w.surveys.Add(1)
	return w.Fleet.Survey(ctx)
}

// Describe counts the records that are read.
func (w *world) Describe(ctx context.Context, hypervisor string, uuids []string) ([]machine.Machine, []machine.Unreadable, error) {
	w.records.Add(int64(len(uuids)))
	return w.Fleet.Describe(ctx, hypervisor, uuids)
}

// Guest is a server that has an address and a kubeconfig.
func (w *world) Guest(machine.Machine) machine.Guest { return guest{kubeconfig: w.kubeconfig} }

type guest struct {
	machine.Guest
	kubeconfig []byte
}

func (g guest) Addresses(context.Context, string) ([]string, error) {
	return []string{"192.0.2.1"}, nil
}

func (g guest) ReadFile(context.Context, string) ([]byte, error) { return g.kubeconfig, nil }

// kube is an API that is ready and lists the nodes.
type kube struct {
	cluster.Kube
	nodes []cluster.Node
}

func (kube) Ready(context.Context) error { return nil }

func (k kube) Nodes(context.Context) ([]cluster.Node, error) { return k.nodes, nil }

// kubeconfig is one as k3s writes it.
func kubeconfig(b testing.TB) []byte {
	b.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		b.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		b.Fatal(err)
	}
	block := func(kind string, content []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}))
	}
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: default, cluster: {server: "https://127.0.0.1:6443", certificate-authority-data: %[1]s}}]
users: [{name: default, user: {client-certificate-data: %[1]s, client-key-data: %[2]s}}]
contexts: [{name: default, context: {cluster: default, user: default}}]
current-context: default
`, block("CERTIFICATE", certificate), block("EC PRIVATE KEY", private))
}
