package acceptance

import (
	"fmt"
	"strings"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab"
)

// k3sVersion is one that the k3s mirror of every lab has.
const k3sVersion = "v1.36.1+k3s1"

// config is a Terraform configuration of one cluster, for small guests. The zero value of an optional field leaves the
// thing out.
type config struct {
	name string
	// template is a volume in the lab's pool of templates; "" is the golden image.
	template string
	// script is the URL of the k3s install script; "" is that of the lab's mirror.
	script  string
	network string
	pool    string
	diskGiB int
	// clone is how disks are made; "" is the default.
	clone string
	// timeout bounds a create; "" is the default.
	timeout string
	// keys are SSH keys; workers the size of a node pool "w", and none where it is nil.
	keys    []string
	workers *int
	// kubeconfig adds the data source.
	kubeconfig bool
}

func count(n int) *int { return &n }

// render writes the configuration in HCL.
func (c config) render(l *lab.Lab) string {
	or := func(s, fallback string) string {
		if s == "" {
			return fallback
		}
		return s
	}
	if c.diskGiB == 0 {
		c.diskGiB = 8
	}
	shape := fmt.Sprintf("memory_gib = 1\n disk_gib = %d\n storage_pool = %q\n clone = %q", c.diskGiB, or(c.pool, lab.DefaultPool), or(c.clone, "overlay"))
	keys := ""
	if len(c.keys) > 0 {
		keys = fmt.Sprintf("ssh_authorized_keys = [%s]", quoted(c.keys))
	}
	timeouts := ""
	if c.timeout != "" {
		timeouts = fmt.Sprintf("timeouts = { create = %q }", c.timeout)
	}

	var b strings.Builder
	h, _ := l.Hypervisor(firstHV)
	fmt.Fprintf(&b, `
provider "cockpit" {
  hypervisors = { %s = { uri = %q, virt_type = %q } }
  template    = { pool = %q, volume = %q }
  k3s         = { install_script_url = %q, releases_url = %q }
}

resource "cockpit_k3s_cluster" "this" {
  name        = %q
  k3s_version = %q
  network     = %q
  control_plane = {
    vcpus = 2
    %s
  }
  %s
  %s
}
`, firstHV, h.URI, l.VirtType, lab.TemplatesPool, or(c.template, l.Template), or(c.script, l.InstallScriptURL()), l.ReleasesURL(),
		c.name, k3sVersion, or(c.network, lab.Network), shape, keys, timeouts)
	if c.workers != nil {
		fmt.Fprintf(&b, `
resource "cockpit_k3s_node_pool" "w" {
  cluster_id = cockpit_k3s_cluster.this.id
  name       = "w"
  node_count = %d
  vcpus      = 1
  %s
  %s
}
`, *c.workers, shape, timeouts)
	}
	if c.kubeconfig {
		b.WriteString(`
data "cockpit_kubeconfig" "this" {
  cluster_id = cockpit_k3s_cluster.this.id
}
`)
	}
	return b.String()
}

func quoted(list []string) string {
	out := make([]string, 0, len(list))
	for _, s := range list {
		out = append(out, fmt.Sprintf("%q", s))
	}
	return strings.Join(out, ", ")
}
