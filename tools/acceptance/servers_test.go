package acceptance

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Three servers on three hypervisors, two of which get the template from the first; one is lost with its disk and made
// anew among the others; then two are taken away.
func TestAccThreeServers(t *testing.T) {
	l := inFleet(t)
	const name = "trio"
	with := func(servers int) string {
		return config{name: name, hypervisors: fleet, servers: servers, kubeconfig: true}.render(l)
	}
	each := map[string]int{"hv-a": 1, "hv-b": 1, "hv-c": 1}
	spread := map[string]string{"cp-1": "hv-a", "cp-2": "hv-b", "cp-3": "hv-c"}
	servers := []string{"trio-cp-1", "trio-cp-2", "trio-cp-3"}
	uuids, members := map[string]string{}, map[string]types.UID{}
	var lost string

	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: factories,
		CheckDestroy:             func(*terraform.State) error { return leftOvers(t, l, name) },
		Steps: []resource.TestStep{
			{
				Config:           with(3),
				ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: assigned(clusterAddr, spread)},
				Check: resource.ComposeAggregateTestCheckFunc(
					ready(servers...), voters(members, servers...), standAs(spread), stand(t, l, name, each),
					copied(t, l, map[string]int{"hv-b": 1, "hv-c": 1}), remember(uuids),
				),
			},
			{
				PreConfig: func() {
					vanish(t, l, "hv-a", "trio-cp-1")
					lost = uuids["trio-cp-1"]
					delete(uuids, "trio-cp-1")
				},
				Config: with(3),
				ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: append(assigned(clusterAddr, spread),
					plancheck.ExpectResourceAction(clusterAddr, plancheck.ResourceActionUpdate),
					plancheck.ExpectUnknownValue(clusterAddr, tfjsonpath.New("nodes")),
				)},
				Check: resource.ComposeAggregateTestCheckFunc(
					ready(servers...), standAs(spread), stand(t, l, name, each), same(uuids),
					func(s *terraform.State) error {
						before := maps.Clone(members)
						if err := voters(members, servers...)(s); err != nil {
							return err
						}
						for server, uid := range members {
							if anew := server == "trio-cp-1"; anew == (uid == before[server]) {
								return fmt.Errorf("server %s: its Node object is another one: %t, want %t", server, !anew, anew)
							}
						}
						if uuidsOf(s)["trio-cp-1"] == lost {
							return fmt.Errorf("the state still holds the lost VM %s", lost)
						}
						return nil
					},
				),
			},
			{
				Config: with(1),
				ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: append(assigned(clusterAddr, map[string]string{"cp-1": "hv-a"}),
					plancheck.ExpectResourceAction(clusterAddr, plancheck.ResourceActionUpdate),
				)},
				Check: resource.ComposeAggregateTestCheckFunc(
					ready("trio-cp-1"), voters(members, "trio-cp-1"), stand(t, l, name, map[string]int{"hv-a": 1})),
			},
		},
	})
}

// voters makes sure that exactly these servers vote in the cluster's etcd, and takes over the UIDs of their Node objects.
func voters(members map[string]types.UID, want ...string) resource.TestCheckFunc {
	return func(s *terraform.State) error {
		data, ok := s.RootModule().Resources[kubeconfigAddr]
		if !ok {
			return fmt.Errorf("%s is not in the state", kubeconfigAddr)
		}
		nodes, err := nodesOf([]byte(data.Primary.Attributes["raw"]))
		if err != nil {
			return err
		}
		clear(members)
		for _, n := range nodes {
			if is(n, corev1.NodeConditionType("EtcdIsVoter")) {
				members[n.Name] = n.UID
			}
		}
		if got := slices.Sorted(maps.Keys(members)); !slices.Equal(got, want) {
			return fmt.Errorf("the voters of etcd are %v, want %v", got, want)
		}
		return nil
	}
}

// standAs makes sure that the servers stand where the assignment of the state, and of the plan before it, says.
func standAs(spread map[string]string) resource.TestCheckFunc {
	var checks []resource.TestCheckFunc
	for short, hv := range spread {
		checks = append(checks,
			resource.TestCheckResourceAttr(clusterAddr, "assignment."+short, hv),
			resource.TestCheckResourceAttr(clusterAddr, "nodes.trio-"+short+".hypervisor", hv))
	}
	return resource.ComposeAggregateTestCheckFunc(append(checks, resource.TestCheckResourceAttr(clusterAddr, "assignment.%", fmt.Sprint(len(spread))))...)
}
