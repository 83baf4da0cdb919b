package provider

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/addons"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
)

// needCLI skips a test where there is no Terraform or OpenTofu to run.
func needCLI(t *testing.T) {
	t.Helper()
	if os.Getenv("TF_ACC_TERRAFORM_PATH") != "" {
		return
	}
	path, err := exec.LookPath("terraform")
	if err != nil {
		t.Skip("neither TF_ACC_TERRAFORM_PATH nor terraform in PATH")
	}
	t.Setenv("TF_ACC_TERRAFORM_PATH", path)
}

// overFake is the provider over an engine, with the real catalogue of add-ons.
func overFake(fake *fakeEngine) map[string]func() (tfprotov6.ProviderServer, error) {
	return map[string]func() (tfprotov6.ProviderServer, error){
		"cockpit": func() (tfprotov6.ProviderServer, error) {
			p := &cockpit{
				check:    addons.New(addons.Options{}).Check,
				untested: addons.New(addons.Options{}).Untested,
				connect:  func(settings) engine { return fake },
				list:     func(origin) (releases, error) { return &fakeReleases{}, nil },
			}
			return providerserver.NewProtocol6(provider.Provider(p))(), nil
		},
	}
}

// The life of a cluster and its pool through a real Terraform or OpenTofu, over the fake engine: what the harness of the
// other tests only assumes of the core is true of it.
func TestThroughCLI(t *testing.T) {
	needCLI(t)
	fake := &fakeEngine{}
	config := func(servers, workers string, more ...string) string {
		return fmt.Sprintf(`
			provider "cockpit" {
			  template = { pool = "templates", volume = "debian.qcow2" }
			}
			resource "cockpit_k3s_cluster" "prod" {
			  name          = "prod"
			  k3s_version   = "v1.36.1+k3s1"
			  control_plane = { %s }
			  %s
			}
			resource "cockpit_k3s_node_pool" "workers" {
			  cluster_id = cockpit_k3s_cluster.prod.id
			  name       = "workers"
			  %s
			}
		`, servers, strings.Join(more, "\n"), workers)
	}
	on := func(host string, nodes ...string) knownvalue.Check {
		assignment := map[string]knownvalue.Check{}
		for _, n := range nodes {
			assignment[n] = knownvalue.StringExact(host)
		}
		return knownvalue.MapExact(assignment)
	}
	const full = `
			  node_count       = 3
			  data_disk        = { size_gib = 10 }
			  labels           = { tier = "web", "example.com/old" = "" }
			  taints           = [{ key = "dedicated", value = "web", effect = "NoSchedule" }, { key = "soft", effect = "PreferNoSchedule" }]
			  drain            = { timeout = "5m" }
			  upgrade_settings = { max_unavailable = 1 }
			  repair           = { not_ready_after = "1h" }
			  remove_first     = ["workers-1"]
			  agent_args       = ["--kubelet-arg=max-pods=50"]
			  registries_yaml  = yamlencode({ mirrors = { "docker.io" = { endpoint = ["https://mirror.example"] } } })
			  extra_user_data  = "packages: [nfs-common]"
	`
	const theProd, theWorkers = "cockpit_k3s_cluster.prod", "cockpit_k3s_node_pool.workers"
	var clusterID string
	remember := func(s *terraform.State) error {
		clusterID = s.RootModule().Resources[theProd].Primary.ID
		fake.cluster, fake.pool = fake.lastSpec, fake.lastPool
		return nil
	}
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: overFake(fake),
		Steps: []resource.TestStep{
			{
				Config: config("", "node_count = 2"),
				ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
					plancheck.ExpectKnownValue(theProd, tfjsonpath.New("assignment"), on("default", "cp-1")),
					// The pool is planned again when the cluster's id is known.
					plancheck.ExpectKnownValue(theWorkers, tfjsonpath.New("assignment"), on("default", "workers-1", "workers-2")),
				}},
				Check: resource.ComposeTestCheckFunc(
					resource.TestCheckResourceAttr(theWorkers, "nodes.%", "2"),
					resource.TestCheckResourceAttr(theWorkers, "nodes.prod-workers-2.state", "ready"),
					remember,
				),
			},
			{ResourceName: theProd, ImportState: true, ImportStateId: "prod", ImportStateVerify: true},
			{ResourceName: theWorkers, ImportState: true, ImportStateId: "prod/workers", ImportStateVerify: true},
			{
				// Scaling the pool: the cluster is left alone.
				Config: config("", "node_count = 3"),
				ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
					plancheck.ExpectResourceAction(theProd, plancheck.ResourceActionNoop),
					plancheck.ExpectResourceAction(theWorkers, plancheck.ResourceActionUpdate),
				}},
				Check: resource.TestCheckResourceAttr(theWorkers, "nodes.%", "3"),
			},
			{
				// Everything that a pool can have, in place, and nothing left to do afterwards.
				Config: config("", full),
				ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
					plancheck.ExpectResourceAction(theProd, plancheck.ResourceActionNoop),
					plancheck.ExpectResourceAction(theWorkers, plancheck.ResourceActionUpdate),
				}},
				Check: resource.ComposeTestCheckFunc(
					resource.TestCheckResourceAttr(theWorkers, "data_disk.storage_pool", "default"),
					resource.TestCheckResourceAttr(theWorkers, "drain.on_timeout", "fail"),
					remember,
				),
			},
			{
				ResourceName: theWorkers, ImportState: true, ImportStateId: "prod/workers", ImportStateVerify: true,
				ImportStateVerifyIgnore: []string{"remove_first"},
			},
			{
				// Labels alone leave the nodes known.
				Config: config("", strings.Replace(full, `tier = "web"`, `tier = "db"`, 1)),
				ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
					plancheck.ExpectResourceAction(theWorkers, plancheck.ResourceActionUpdate),
					plancheck.ExpectKnownValue(theWorkers, tfjsonpath.New("nodes").AtMapKey("prod-workers-1").AtMapKey("state"), knownvalue.StringExact("ready")),
				}},
			},
			{
				// What is protected is not destroyed.
				Config: config("", "node_count = 3", "deletion_protection = true"),
				Check:  resource.TestCheckResourceAttr(theProd, "deletion_protection", "true"),
			},
			{
				Config:  config("", "node_count = 3", "deletion_protection = true"),
				Destroy: true, ExpectError: regexp.MustCompile(`Unable to destroy cluster "prod"`),
			},
			{Config: config("", "node_count = 3")},
			{
				// More servers, and a rule for their placement, in place: what others need of the cluster stays known.
				Config: config(`node_count = 3, placement = { anti_affinity = "preferred" }`, "node_count = 3"),
				ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
					plancheck.ExpectResourceAction(theProd, plancheck.ResourceActionUpdate),
					plancheck.ExpectResourceAction(theWorkers, plancheck.ResourceActionNoop),
					plancheck.ExpectKnownValue(theProd, tfjsonpath.New("api_url"), knownvalue.StringExact("https://192.0.2.10:6443")),
					plancheck.ExpectKnownValue(theProd, tfjsonpath.New("assignment"), on("default", "cp-1", "cp-2", "cp-3")),
				}},
				Check: resource.TestCheckResourceAttr(theProd, "footprint.default.vcpus", "6"),
			},
			{
				// Back to one server.
				Config: config("", "node_count = 3"),
				ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
					plancheck.ExpectResourceAction(theProd, plancheck.ResourceActionUpdate),
					plancheck.ExpectResourceAction(theWorkers, plancheck.ResourceActionNoop),
				}},
				Check: resource.TestCheckResourceAttr(theProd, "nodes.%", "1"),
			},
			{
				// A VM was deleted behind Terraform's back.
				PreConfig: func() { fake.states = map[string]cluster.NodeState{"prod-workers-2": cluster.NodeMissing} },
				Config:    config("", "node_count = 3"),
				ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
					plancheck.ExpectResourceAction(theProd, plancheck.ResourceActionNoop),
					plancheck.ExpectResourceAction(theWorkers, plancheck.ResourceActionUpdate),
				}},
				Check: resource.TestCheckResourceAttr(theWorkers, "nodes.prod-workers-2.state", "ready"),
			},
			{
				// A replacement is reviewed in the knowledge of what it replaces.
				PreConfig: func() { fake.lastSpec = cluster.Spec{} },
				Config:    config("", "node_count = 3", `network = "lab"`),
				PlanOnly:  true, ExpectNonEmptyPlan: true,
			},
			{
				PreConfig: func() {
					if fake.lastSpec.ID != clusterID {
						t.Errorf("the review was told the id %q, want that of the cluster that goes: %q", fake.lastSpec.ID, clusterID)
					}
				},
				Config: config("", "node_count = 3", `network = "lab"`),
				ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
					plancheck.ExpectResourceAction(theProd, plancheck.ResourceActionReplace),
					plancheck.ExpectResourceAction(theWorkers, plancheck.ResourceActionReplace),
				}},
				Check: func(s *terraform.State) error {
					if id := s.RootModule().Resources[theProd].Primary.ID; id == clusterID {
						return fmt.Errorf("the new cluster has the id of the old one: %s", id)
					}
					return nil
				},
			},
		},
	})
}
