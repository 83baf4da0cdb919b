package hypervisor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
	"libvirt.org/go/libvirt"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// scaleHosts is how many hypervisors the benchmarks below have, scales how many nodes stand on them in all.
const scaleHosts = 10

var scales = []int{20, 200, 1000}

// crowd is a fleet with many nodes.
type crowd struct {
	*Fleet
	// uuids are the nodes of each hypervisor.
	uuids map[string][]string
	// calls returns how many calls went to all hypervisors since it was last called; zero where they cannot be counted.
	calls func() int
}

// nodeXML is the definition of a node of many.
func nodeXML(b *testing.B, cluster, virtType string, ordinal int) (text, id string) {
	b.Helper()
	s := machine.Spec{
		UUID: uuid.NewString(), MAC: fmt.Sprintf("52:54:00:00:%02x:%02x", ordinal>>8, ordinal&255), Network: "lan",
		Record: record.Record{
			ClusterID: clusterID, ClusterName: cluster, Pool: "workers", Role: record.Agent, Ordinal: ordinal, Phase: record.Joined,
			Shape:    record.Shape{VCPUs: 4, MemoryMiB: 16384, DiskGiB: 80, StoragePool: "vms", Clone: record.Overlay},
			Template: record.Template{Pool: "templates", Volume: "golden.qcow2"},
		},
	}
	for _, name := range []string{machine.RootVolume(s.Name(), s.UUID), machine.SeedVolume(s.Name(), s.UUID)} {
		s.Record.Volumes = append(s.Record.Volumes, record.Volume{Pool: "vms", Name: name})
	}
	text, err := domainXML(s, layout{virtType: virtType, poolPath: "/srv/vms"})
	must(b, err)
	return text, s.UUID
}

// mockCrowd puts nodes on libvirt's test drivers: private ones, each with a connection of its own. They list sizes domain
// by domain only, so that a survey costs a call within the process for each.
func mockCrowd(b *testing.B, nodes int) crowd {
	b.Helper()
	c := crowd{uuids: map[string][]string{}, calls: func() int { return 0 }}
	configs := map[string]Config{}
	for i := range scaleHosts {
		name := fmt.Sprintf("hv-%d", i)
		var all strings.Builder
		for n := range nodes / scaleHosts {
			text, id := nodeXML(b, "k8s-test", "test", i*nodes/scaleHosts+n+1)
			all.WriteString(text)
			c.uuids[name] = append(c.uuids[name], id)
		}
		file := filepath.Join(b.TempDir(), name+".xml")
		must(b, os.WriteFile(file, []byte("<node>"+all.String()+"</node>"), 0o600))
		configs[name] = Config{URI: "test://" + file}
	}
	c.Fleet = New(configs, TemplateRef{}, 4)
	c.open(b)
	return c
}

// libvirtdCrowd puts nodes on the libvirtd of the tests, which every hypervisor of the fleet is a road to.
func libvirtdCrowd(b *testing.B, nodes int) crowd {
	b.Helper()
	uri := os.Getenv(uriVariable)
	if uri == "" {
		b.Skipf("%s is not set", uriVariable)
	}
	c := crowd{uuids: map[string][]string{}}
	configs := map[string]Config{}
	var proxies []*proxy
	for i := range scaleHosts {
		p, through := interpose(b, uri)
		proxies = append(proxies, p)
		configs[fmt.Sprintf("hv-%d", i)] = Config{URI: through}
	}
	c.Fleet = New(configs, TemplateRef{}, 4)
	c.calls = func() (n int) {
		for _, p := range proxies {
			n += sum(p.count())
		}
		return n
	}
	c.open(b)
	tag := "ct" + uuid.NewString()[:6]
	must(b, c.hosts["hv-0"].do(b.Context(), func(conn *libvirt.Connect) error {
		for n := range nodes / scaleHosts {
			text, id := nodeXML(b, tag, "qemu", n+1)
			d, err := conn.DomainDefineXML(text)
			if err != nil {
				return err
			}
			b.Cleanup(func() {
				if err := d.Undefine(); err != nil {
					b.Error(err)
				}
				_ = d.Free()
			})
			for name := range c.hosts {
				c.uuids[name] = append(c.uuids[name], id)
			}
		}
		return nil
	}))
	return c
}

// open connects to the hypervisors, or skips the benchmark where libvirt is not installed.
func (c crowd) open(b *testing.B) {
	b.Helper()
	for name, err := range c.Survey(b.Context()).Unreachable {
		if strings.Contains(err.Error(), libraryHint) {
			b.Skip(err)
		}
		b.Fatalf("%s: %v", name, err)
	}
	b.Cleanup(func() {
		for _, h := range c.hosts {
			hangUp(h)
		}
	})
}

// BenchmarkSurvey is what a refresh costs where the state vouches for all nodes.
func BenchmarkSurvey(b *testing.B) {
	compare(b, func(b *testing.B, c crowd) {
		b.Helper()
		s := c.Survey(b.Context())
		for name, uuids := range c.uuids {
			if got := len(s.Hosts[name].Domains); got < len(uuids) {
				b.Fatalf("%s has %d domains of %d, %v", name, got, len(uuids), s.Unreachable[name])
			}
		}
	})
}

// BenchmarkDescribe is what the records of all nodes cost besides, as an import or an apply reads them.
func BenchmarkDescribe(b *testing.B) {
	compare(b, func(b *testing.B, c crowd) {
		b.Helper()
		var g errgroup.Group
		for name, uuids := range c.uuids {
			g.Go(func() error {
				machines, _, err := c.Describe(b.Context(), name, uuids)
				if err == nil && len(machines) != len(uuids) {
					err = fmt.Errorf("%s has %d machines of %d", name, len(machines), len(uuids))
				}
				return err
			})
		}
		must(b, g.Wait())
	})
}

// compare measures work on crowds of each kind and size.
func compare(b *testing.B, work func(*testing.B, crowd)) {
	b.Helper()
	for _, kind := range []struct {
		name   string
		gather func(*testing.B, int) crowd
	}{{"test", mockCrowd}, {"qemu", libvirtdCrowd}} {
		for _, nodes := range scales {
			b.Run(fmt.Sprintf("driver=%s/nodes=%d", kind.name, nodes), func(b *testing.B) {
				c := kind.gather(b, nodes)
				c.calls()
				b.ReportAllocs()
				for b.Loop() {
					work(b, c)
				}
				if n := c.calls(); n > 0 {
					b.ReportMetric(float64(n)/float64(b.N*scaleHosts), "calls/hypervisor")
				}
			})
		}
	}
}
