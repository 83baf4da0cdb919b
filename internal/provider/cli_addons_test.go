package provider

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
)

// Networks and storage through a real Terraform or OpenTofu: computed attributes within objects, replacements, and values that
// come to be known between plan and apply are the core's to judge.
func TestAddonsThroughCLI(t *testing.T) {
	needCLI(t)
	fake := &fakeEngine{exports: map[string]machine.Export{"nfs-ds": {Server: "192.0.2.5", Path: "/export"}, "other": {Server: "nas.example", Path: "/srv"}}}
	config := func(cni, csi string, more ...string) string {
		text := fmt.Sprintf(`
			provider "cockpit" {
			  template = { pool = "templates", volume = "debian.qcow2" }
			}
			resource "cockpit_k3s_cluster" "prod" {
			  name        = "prod"
			  k3s_version = "v1.36.1+k3s1"
			  %s
			  %s
			}
		`, cni, csi)
		for _, m := range more {
			text += m
		}
		return text
	}
	const theProd = "cockpit_k3s_cluster.prod"
	attribute := func(steps ...string) tfjsonpath.Path {
		p := tfjsonpath.New(steps[0])
		for _, s := range steps[1:] {
			p = p.AtMapKey(s)
		}
		return p
	}
	text := func(s string, steps ...string) plancheck.PlanCheck {
		return plancheck.ExpectKnownValue(theProd, attribute(steps...), knownvalue.StringExact(s))
	}
	nodesStay := text("ready", "nodes", "prod-cp-1", "state")
	open := plancheck.ExpectUnknownValue(theProd, attribute("addons"))
	action := func(a plancheck.ResourceActionType) plancheck.PlanCheck {
		return plancheck.ExpectResourceAction(theProd, a)
	}
	before := func(checks ...plancheck.PlanCheck) resource.ConfigPlanChecks {
		return resource.ConfigPlanChecks{PreApply: checks}
	}
	const cilium = `cni = { plugin = "cilium", hubble = true, values_yaml = yamlencode({ debug = { enabled = true } }) }`
	const tiers = `csi = { local_path = {}, nfs = { pool = "nfs-ds", mount_options = ["hard"] } }`
	resource.UnitTest(t, resource.TestCase{
		ProtoV6ProviderFactories: overFake(fake),
		Steps: []resource.TestStep{
			{
				Config: config(cilium, tiers),
				ConfigPlanChecks: before(
					text("tunnel", "cni", "routing"), text("192.0.2.5", "csi", "nfs", "server"), text("/export", "csi", "nfs", "path"), text("local-path", "csi", "default_class"), open,
				),
				Check: resource.ComposeTestCheckFunc(
					resource.TestCheckResourceAttr(theProd, "addons.%", "3"),
					resource.TestCheckResourceAttr(theProd, "addons.cilium.status", "deployed"),
					func(*terraform.State) error { fake.cluster = fake.lastSpec; return nil },
				),
			},
			{ResourceName: theProd, ImportState: true, ImportStateId: "prod", ImportStateVerify: true},
			{
				// What is left out and what is written out are the same.
				Config: config(
					`cni = { plugin = "cilium", routing = "tunnel", pod_cidr = "10.42.0.0/16", service_cidr = "10.43.0.0/16", hubble = true, values_yaml = yamlencode({ debug = { enabled = true } }) }`,
					`csi = { local_path = { path = "/opt/local-path-provisioner" }, nfs = { pool = "nfs-ds", mount_options = ["hard"] }, default_class = "local-path" }`,
				),
				ConfigPlanChecks: before(plancheck.ExpectEmptyPlan()),
			},
			{
				// A tier goes, another comes, and the default class follows.
				Config:           config(cilium, `csi = { local_path = {}, longhorn = {} }`),
				ConfigPlanChecks: before(action(plancheck.ResourceActionUpdate), text("longhorn", "csi", "default_class"), nodesStay, open),
				Check:            resource.TestCheckResourceAttr(theProd, "addons.longhorn.status", "deployed"),
			},
			{
				// A release was removed by hand.
				PreConfig: func() {
					fake.addons = cluster.AddonStatuses{cluster.Cilium: {State: cluster.AddonMissing, Reason: "there is no release"}}
				},
				Config:           config(cilium, `csi = { local_path = {}, longhorn = {} }`),
				ConfigPlanChecks: before(action(plancheck.ResourceActionUpdate), nodesStay, open),
				Check:            resource.TestCheckResourceAttr(theProd, "addons.cilium.status", "deployed"),
			},
			{
				// Which pool it is comes to be known in the apply.
				Config: config(cilium, `csi = { local_path = {}, nfs = { pool = terraform_data.pool.output } }`, `
					resource "terraform_data" "pool" { input = "other" }
				`),
				ConfigPlanChecks: before(action(plancheck.ResourceActionUpdate), plancheck.ExpectUnknownValue(theProd, attribute("csi", "nfs", "server")), nodesStay),
				Check:            resource.TestCheckResourceAttr(theProd, "csi.nfs.server", "nas.example"),
			},
			{
				Config: config(cilium, `csi = { nfs = { server = "nas.example", path = "/srv" } }`),
				Check:  resource.TestCheckResourceAttr(theProd, "csi.default_class", "nfs"),
			},
			{
				Config:      config(`cni = { plugin = "cilium", values_yaml = yamlencode({ ipam = { mode = "cluster-pool" } }) }`, ""),
				ExpectError: regexp.MustCompile(`Unable to use cni\.values_yaml[\s\S]*ipam\.mode`),
			},
			{
				Config:           config(`cni = { plugin = "calico" }`, `csi = {}`),
				ConfigPlanChecks: before(action(plancheck.ResourceActionReplace), text("ipip", "cni", "routing")),
				Check: resource.ComposeTestCheckFunc(
					resource.TestCheckResourceAttr(theProd, "addons.%", "1"),
					resource.TestCheckNoResourceAttr(theProd, "csi.default_class"),
				),
			},
			{
				// The defaults are what a configuration without both has.
				Config:           config("", ""),
				ConfigPlanChecks: before(action(plancheck.ResourceActionReplace), text("vxlan", "cni", "routing"), text("local-path", "csi", "default_class")),
			},
			{
				Config:           config(`cni = { plugin = "flannel" }`, `csi = { local_path = {} }`),
				ConfigPlanChecks: before(plancheck.ExpectEmptyPlan()),
			},
		},
	})
}
