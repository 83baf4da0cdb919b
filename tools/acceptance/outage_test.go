package acceptance

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/url"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab"
)

// A hypervisor's libvirtd goes away while nodes are made there, while plans are made, and before everything is destroyed:
// nothing is doubled, nothing is taken for gone, and what remains stays in the state. The template lies in a pool that both
// hypervisors share, and a load balancer stands before the server.
func TestAccHypervisorFails(t *testing.T) {
	l := inFleet(t)
	const name, server, worker = "outage", "outage-cp-1", "outage-w-1"
	wanted := config{
		name: name, hypervisors: fleet[:2], templatePool: lab.SharedPool, shared: true, serverPool: lab.SharedPool,
		placement: on("hv-a"), workers: count(1), workerPlacement: on("hv-b"), endpoint: newBalancer(t, l, server), kubeconfig: true,
	}
	c := newCLI(t, l, name)
	c.use(l, wanted)

	// While a worker is made.
	t.Cleanup(func() { start(t, l, "hv-b") })
	defined := hostPath(t, l, "hv-b", "/etc/libvirt/qemu/"+worker+".xml")
	out := c.strike(l, "hv-b", func() bool { _, err := os.Stat(defined); return err == nil }, "apply", "-auto-approve")
	mentions(t, out, `hypervisor "hv-b"`, worker)
	start(t, l, "hv-b")
	c.run("apply", "-auto-approve")
	if err := stand(t, l, name, map[string]int{"hv-a": 1, "hv-b": 1})(nil); err != nil {
		t.Error(err)
	}
	if err := copied(t, l, nil)(nil); err != nil {
		t.Error(err)
	}
	made := c.state()
	if got, err := readyNodes([]byte(made["data.cockpit_kubeconfig.this"].Raw)); err != nil || !slices.Equal(got, []string{server, worker}) {
		t.Errorf("the Ready nodes are %v, %v", got, err)
	}

	// While plans are made. A hypervisor more does not move anything either.
	stop(t, l, "hv-b")
	wanted.hypervisors = fleet
	c.use(l, wanted)
	c.run("plan", "-detailed-exitcode", "-out=plan")
	if got := c.refreshed("plan")[poolAddr].Nodes[worker].State; got != "unknown" {
		t.Errorf("the node that nobody can ask is %s", got)
	}
	c.run("apply", "-auto-approve")

	// While everything is destroyed.
	out, err := c.try("destroy", "-auto-approve")
	if err == nil {
		t.Errorf("destroy went through without hypervisor hv-b:\n%s", out)
	}
	mentions(t, out, `hypervisor "hv-b"`, worker)
	if left := c.state()[poolAddr].Nodes; left[worker].UUID == "" || left[worker].UUID != made[poolAddr].Nodes[worker].UUID {
		t.Errorf("the state has forgotten the node that remains: %v", left)
	}
	start(t, l, "hv-b")
	c.run("destroy", "-auto-approve")
	if err := leftOvers(t, l, name); err != nil {
		t.Error(err)
	}
}

// mentions makes sure that texts stand in what Terraform said, wherever it broke the lines.
func mentions(t testing.TB, said string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !words(text).MatchString(said) {
			t.Errorf("%q is not in:\n%s", text, said)
		}
	}
}

// values are what a state holds of a resource or data source.
type values struct {
	Raw    string
	Status string
	Nodes  map[string]struct{ State, UUID string }
	Addons map[string]addon
	CSI    struct{ NFS struct{ Server, Path string } }
}

// state returns what Terraform holds of each resource, by address.
func (c *cli) state() map[string]values {
	c.t.Helper()
	var s stateJSON
	c.decode(c.run("show", "-json"), &s)
	return s.byAddress()
}

// refreshed returns the same as a plan saw it.
func (c *cli) refreshed(plan string) map[string]values {
	c.t.Helper()
	var p struct {
		State stateJSON `json:"prior_state"`
	}
	c.decode(c.run("show", "-json", plan), &p)
	return p.State.byAddress()
}

func (c *cli) decode(text string, into any) {
	c.t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		c.t.Fatal(err)
	}
}

// stateJSON is the state in the form of "show -json" (https://developer.hashicorp.com/terraform/internals/json-format).
type stateJSON struct {
	Values struct {
		Root struct {
			Resources []struct {
				Address string
				Values  values
			}
		} `json:"root_module"`
	}
}

func (s stateJSON) byAddress() map[string]values {
	out := map[string]values{}
	for _, r := range s.Values.Root.Resources {
		out[r.Address] = r.Values
	}
	return out
}

// newBalancer starts a load balancer on the LAN that passes connections on to the API of a server, and returns its
// address.
func newBalancer(t *testing.T, l *lab.Lab, server string) string {
	t.Helper()
	u, err := url.Parse(l.MirrorURL)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(u.Hostname(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	// The LAN's DNS has the names of the nodes.
	dns := net.JoinHostPort(u.Hostname(), "53")
	dialer := &net.Dialer{Timeout: 5 * time.Second, Resolver: &net.Resolver{
		PreferGo: true,
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, dns)
		},
	}}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go pass(client, dialer, server+".lab.internal:6443")
		}
	}()
	return listener.Addr().String()
}

// pass passes one connection on.
func pass(client net.Conn, dialer *net.Dialer, to string) {
	defer func() { _ = client.Close() }()
	server, err := dialer.Dial("tcp", to)
	if err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	}()
	_, _ = io.Copy(client, server)
	_ = server.Close()
}
