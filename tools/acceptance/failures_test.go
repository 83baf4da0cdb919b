package acceptance

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/terraform"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab"
)

// words matches a text across the line breaks that Terraform puts into it.
func words(text string) *regexp.Regexp {
	parts := strings.Fields(text)
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile(strings.Join(parts, `[\s│]+`))
}

// What can be known before anything is made is refused by the plan, each with its own text, and nothing is made.
func TestAccPlanRefuses(t *testing.T) {
	l := inLab(t)
	for name, tc := range map[string]struct {
		config config
		want   string
	}{
		"template": {config{template: "no-such-image.qcow2"}, `no-such-image.qcow2`},
		"network":  {config{network: "no-such-network"}, `no-such-network`},
		"pool":     {config{pool: "no-such-pool"}, `no-such-pool`},
		"disk":     {config{diskGiB: 1}, `smaller than the template`},
		"device": {config{workers: count(1), workerPlacement: on(firstHV), moreOfWorkers: attributes{
			"host_devices":     `{ hv-a = ["ffff:1f:00.0"] }`,
			"upgrade_settings": `{ max_surge = 0, max_unavailable = 1 }`,
		}}, `ffff:1f:00.0`},
		"values": {config{more: attributes{"cni": `{
  plugin      = "calico"
  values_yaml = "installation: { calicoNetwork: { bgp: Disabled } }"
}`}}, `the provider sets installation.calicoNetwork.bgp: use cni.routing`},
		"nfs": {config{more: attributes{"csi": fmt.Sprintf(`{ nfs = { server = %q, path = "/export" } }`, l.Hypervisors[0].Address)}},
			fmt.Sprintf("NFS server %s refuses connections to TCP port 2049", l.Hypervisors[0].Address)},
	} {
		t.Run(name, func(t *testing.T) {
			tc.config.name = "refused"
			resource.Test(t, resource.TestCase{
				ProtoV6ProviderFactories: factories,
				CheckDestroy:             func(*terraform.State) error { return leftOvers(t, l, "refused") },
				Steps:                    []resource.TestStep{{Config: tc.config.render(l), PlanOnly: true, ExpectError: words(tc.want)}},
			})
		})
	}
}

// A domain that somebody else made under a node's name is neither adopted nor deleted.
func TestAccForeignDomain(t *testing.T) {
	l := inLab(t)
	const name = "foreign-cp-1"
	file := filepath.Join(t.TempDir(), "domain.xml")
	xml := fmt.Sprintf("<domain type='%s'><name>%s</name><memory unit='MiB'>64</memory><os><type>hvm</type></os></domain>", l.VirtType, name)
	if err := os.WriteFile(file, []byte(xml), 0o600); err != nil {
		t.Fatal(err)
	}
	virsh(t, l, firstHV, "define", file)
	defer virsh(t, l, firstHV, "undefine", name)
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: factories,
		Steps: []resource.TestStep{
			{Config: config{name: "foreign"}.render(l), ExpectError: words("exists and was not made by this provider")},
		},
	})
	if got := domains(t, l, firstHV, "foreign"); len(got) != 1 || len(volumes(t, l, firstHV, "foreign")) != 0 {
		t.Errorf("the foreign domain was touched: domains %v", got)
	}
}

// An install script that cannot be had fails the create with the guest's own log; once it can, the same apply converges.
// The disks are full clones, which depend on no template.
func TestAccInstallScriptFails(t *testing.T) {
	l := inLab(t)
	const name = "script"
	mirror := newFlakyMirror(t, l)
	c := config{name: name, script: mirror.URL + "/install.sh", timeout: "20m", kubeconfig: true, clone: "full"}
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: factories,
		CheckDestroy:             func(*terraform.State) error { return leftOvers(t, l, name) },
		Steps: []resource.TestStep{
			{Config: c.render(l), ExpectError: words(`the bootstrap in the guest failed at step "download"`)},
			{
				PreConfig: mirror.heal,
				Config:    c.render(l),
				Check:     ready("script-cp-1"),
			},
		},
	})
}

// flakyMirror passes requests on to the lab's mirror of k3s once it is healed, and answers 500 before.
type flakyMirror struct {
	*httptest.Server
	healed atomic.Bool
}

func (m *flakyMirror) heal() { m.healed.Store(true) }

func newFlakyMirror(t *testing.T, l *lab.Lab) *flakyMirror {
	t.Helper()
	u, err := url.Parse(l.MirrorURL)
	if err != nil {
		t.Fatal(err)
	}
	// Guests reach this process at the address of the mirror, on a port of its own.
	listener, err := net.Listen("tcp", net.JoinHostPort(u.Hostname(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	m := &flakyMirror{}
	m.Server = &httptest.Server{Listener: listener, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !m.healed.Load() {
			http.Error(w, "out of order", http.StatusInternalServerError)
			return
		}
		resp, err := http.Get(l.MirrorURL + r.URL.Path)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer func() { _ = resp.Body.Close() }()
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body)
	})}}
	m.Start()
	t.Cleanup(m.Close)
	return m
}

// An image whose guest agent does not run is told apart from one that does not boot, and destroy cleans up.
func TestAccNoGuestAgent(t *testing.T) {
	l := inLab(t)
	if l.BrokenTemplate == "" {
		t.Skip("needs a lab with the image whose guest agent is masked: lab up -broken-template")
	}
	const name = "mute"
	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: factories,
		CheckDestroy:             func(*terraform.State) error { return leftOvers(t, l, name) },
		Steps: []resource.TestStep{
			{
				Config:      config{name: name, template: l.BrokenTemplate, timeout: "8m"}.render(l),
				ExpectError: words("its channel is disconnected, so no agent runs in the guest"),
			},
		},
	})
}
