package acceptance

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab"
)

// k3sVersion is one that the k3s mirror of every lab has.
const k3sVersion = "v1.36.1+k3s1"

// config is a Terraform configuration of one cluster, for small guests. The zero value of an optional field leaves the
// thing out.
type config struct {
	name string
	// label is that of the resources; "" is "this" and, for the pool, "w".
	label string
	// hypervisors are those that the provider is told of; nil is the first alone.
	hypervisors []string
	// template is a volume in the pool templatePool; "" is the golden image, and the lab's pool of templates. shared
	// tells that the hypervisors share that pool.
	template, templatePool string
	shared                 bool
	// script is the URL of the k3s install script; "" is that of the lab's mirror.
	script  string
	network string
	// pool is that of the servers' and workers' disks, serverPool that of the servers where it is another one.
	pool, serverPool string
	diskGiB          int
	// clone is how disks are made; "" is the default.
	clone string
	// timeout bounds a create; "" is the default.
	timeout string
	// keys are SSH keys; workers the size of a node pool "w", and none where it is nil.
	keys    []string
	workers *int
	// servers is their number, 0 the default. placement and workerPlacement are objects in HCL.
	servers                    int
	placement, workerPlacement string
	// memoryGiB and workerMemoryGiB are 1 where they are 0.
	memoryGiB, workerMemoryGiB int
	// endpoint is that of the API.
	endpoint string
	// more, moreOfServers and moreOfWorkers are other attributes of the cluster, its control plane and the pool.
	more, moreOfServers, moreOfWorkers attributes
	// charts is where all charts come from, registry where all images do.
	charts   attributes
	registry string
	// kubeconfig adds the data source.
	kubeconfig bool
}

// attributes are values in HCL by name.
type attributes map[string]string

// with returns the same attributes and others over them.
func (a attributes) with(others attributes) attributes {
	out := attributes{}
	maps.Copy(out, a)
	maps.Copy(out, others)
	return out
}

func (a attributes) String() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(a)) {
		fmt.Fprintf(&b, "%s = %s\n", name, a[name])
	}
	return b.String()
}

func count(n int) *int { return &n }

// render writes the configuration in HCL.
func (c config) render(l *lab.Lab) string { return c.provider(l) + c.resources() }

// provider is the part for the provider, which several clusters share.
func (c config) provider(l *lab.Lab) string {
	if c.hypervisors == nil {
		c.hypervisors = []string{firstHV}
	}
	var hypervisors []string
	for _, name := range c.hypervisors {
		h, _ := l.Hypervisor(name)
		hypervisors = append(hypervisors, fmt.Sprintf("%s = { uri = %q, virt_type = %q }", name, h.URI, l.VirtType))
	}
	shared := ""
	if c.shared {
		shared = ", shared = true"
	}
	charts := ""
	if c.charts != nil {
		charts = "{\n" + c.charts.String() + "}"
	}
	return fmt.Sprintf(`
provider "cockpit" {
  hypervisors = { %s }
  template    = { hypervisor = %q, pool = %q, volume = %q%s }
  k3s         = { install_script_url = %q, releases_url = %q }
  %s
  %s
}
`, strings.Join(hypervisors, ", "), c.hypervisors[0], cmp.Or(c.templatePool, lab.TemplatesPool), cmp.Or(c.template, l.Template), shared,
		cmp.Or(c.script, l.InstallScriptURL()), l.ReleasesURL(), optional("charts", charts), optional("image_registry", quote(c.registry)))
}

// resources are the cluster and what belongs to it.
func (c config) resources() string {
	label := cmp.Or(c.label, "this")
	timeouts := ""
	if c.timeout != "" {
		timeouts = fmt.Sprintf("{ create = %q }", c.timeout)
	}
	servers := ""
	if c.servers > 0 {
		servers = fmt.Sprint(c.servers)
	}
	keys := ""
	if len(c.keys) > 0 {
		keys = "[" + quoted(c.keys) + "]"
	}
	shape := func(vcpus, memoryGiB int, pool string) string {
		return fmt.Sprintf("vcpus = %d\n memory_gib = %d\n disk_gib = %d\n storage_pool = %q\n clone = %q",
			vcpus, cmp.Or(memoryGiB, 1), cmp.Or(c.diskGiB, 8), cmp.Or(pool, lab.DefaultPool), cmp.Or(c.clone, "overlay"))
	}

	var b strings.Builder
	fmt.Fprintf(&b, `
resource "cockpit_k3s_cluster" %q {
  name        = %q
  k3s_version = %q
  network     = %q
  control_plane = {
    %s
    %s
    %s
    %s
  }
  %s
  %s
  %s
  %s
}
`, label, c.name, k3sVersion, cmp.Or(c.network, lab.Network), shape(2, c.memoryGiB, cmp.Or(c.serverPool, c.pool)),
		optional("node_count", servers), optional("placement", c.placement), c.moreOfServers, optional("endpoint", quote(c.endpoint)),
		optional("ssh_authorized_keys", keys), optional("timeouts", timeouts), c.more)
	if c.workers != nil {
		fmt.Fprintf(&b, `
resource "cockpit_k3s_node_pool" %q {
  cluster_id = cockpit_k3s_cluster.%s.id
  name       = "w"
  node_count = %d
  %s
  %s
  %s
  %s
}
`, cmp.Or(c.label, "w"), label, *c.workers, shape(1, c.workerMemoryGiB, c.pool), optional("placement", c.workerPlacement),
			optional("timeouts", timeouts), c.moreOfWorkers)
	}
	if c.kubeconfig {
		fmt.Fprintf(&b, `
data "cockpit_kubeconfig" %q {
  cluster_id = cockpit_k3s_cluster.%s.id
}
`, label, label)
	}
	return b.String()
}

// optional is an attribute that is left out where its value is empty.
func optional(name, value string) string {
	if value == "" {
		return ""
	}
	return name + " = " + value
}

// quote makes a string of HCL, and nothing of nothing.
func quote(s string) string {
	if s == "" {
		return ""
	}
	return fmt.Sprintf("%q", s)
}

// on is a manual placement.
func on(hosts ...string) string {
	return fmt.Sprintf(`{ strategy = "manual", hosts = [%s] }`, quoted(hosts))
}

func quoted(list []string) string {
	out := make([]string, 0, len(list))
	for _, s := range list {
		out = append(out, quote(s))
	}
	return strings.Join(out, ", ")
}
