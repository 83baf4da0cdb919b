package acceptance

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/provider"
	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab"
)

// firstHV is the hypervisor that has the golden image.
const firstHV = "hv-a"

// factories run the provider in this process.
var factories = map[string]func() (tfprotov6.ProviderServer, error){
	"cockpit": providerserver.NewProtocol6WithError(provider.New("test")()),
}

// inLab finds the lab around this process and lets the testing framework run Terraform there, quiet about what it cannot
// reach.
func inLab(t testing.TB) *lab.Lab {
	t.Helper()
	l := around(t)
	t.Setenv("TF_ACC", "1")
	t.Setenv("CHECKPOINT_DISABLE", "1")
	return l
}

// around finds the lab around this process, for tests that use the command line alone.
func around(t testing.TB) *lab.Lab {
	t.Helper()
	l, err := lab.FromEnv()
	if lab.IsNoLab(err) {
		t.Skipf("needs a lab around it (make testacc): %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// domains and volumes list what a hypervisor has of a cluster, or of a node, by the prefix of its names; the volumes of
// all its pools.
func domains(t testing.TB, l *lab.Lab, hv, cluster string) []string {
	return having(virsh(t, l, hv, "list", "--all", "--name"), cluster)
}

func volumes(t testing.TB, l *lab.Lab, hv, cluster string) []string {
	var out []string
	for _, pool := range strings.Fields(virsh(t, l, hv, "pool-list", "--name")) {
		out = append(out, having(volumesIn(t, l, hv, pool), cluster)...)
	}
	return out
}

// volumesIn is the table of a pool's volumes: name and path on each line.
func volumesIn(t testing.TB, l *lab.Lab, hv, pool string) string {
	return virsh(t, l, hv, fmt.Sprintf("pool-refresh %[1]s; vol-list %[1]s", pool))
}

func having(list, cluster string) []string {
	var out []string
	for line := range strings.Lines(list) {
		if f := strings.Fields(line); len(f) > 0 && strings.HasPrefix(f[0], cluster+"-") {
			out = append(out, f[0])
		}
	}
	return out
}

func virsh(t testing.TB, l *lab.Lab, hv string, args ...string) string {
	t.Helper()
	out, err := l.Virsh(context.Background(), hv, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// leftOvers is an error where a hypervisor of the lab still has something of a cluster.
func leftOvers(t testing.TB, l *lab.Lab, cluster string) error {
	for _, h := range l.Hypervisors {
		if left := append(domains(t, l, h.Name, cluster), volumes(t, l, h.Name, cluster)...); len(left) > 0 {
			return fmt.Errorf("hypervisor %s still has %s", h.Name, strings.Join(left, ", "))
		}
	}
	return nil
}

// volumePath is where a volume lies on this machine.
func volumePath(t testing.TB, l *lab.Lab, hv, volume string) string {
	t.Helper()
	path, err := l.HostPath(hv, strings.TrimSpace(virsh(t, l, hv, "vol-path", "--pool", lab.DefaultPool, volume)))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func readFile(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
