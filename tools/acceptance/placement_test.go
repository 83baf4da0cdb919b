package acceptance

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/knownvalue"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/tfjsonpath"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab"
)

// The plan of what does not exist yet tells where each node will stand, or why that cannot be.
func TestAccPlacement(t *testing.T) {
	l := inFleet(t)
	most := memoryGiB(t, l, firstHV)
	for name, tc := range map[string]struct {
		config config
		// servers and workers are assignments that are known; refused is a part of the error.
		servers, workers map[string]string
		refused          string
	}{
		"three servers need three hypervisors": {
			config:  config{hypervisors: fleet[:2], servers: 3},
			refused: `anti_affinity = "preferred"`,
		},
		"unless they need not be apart": {
			config:  config{hypervisors: fleet[:2], servers: 3, placement: `{ anti_affinity = "preferred" }`},
			servers: map[string]string{"cp-1": "hv-a", "cp-2": "hv-b", "cp-3": "hv-a"},
		},
		"the user chooses": {
			config:  config{hypervisors: fleet, placement: on("hv-c"), workers: count(2), workerPlacement: on("hv-b", "hv-a")},
			servers: map[string]string{"cp-1": "hv-c"},
			workers: map[string]string{"w-1": "hv-b", "w-2": "hv-a"},
		},
		"among what there is": {
			config:  config{hypervisors: fleet[:2], placement: on("hv-x")},
			refused: `no hypervisor "hv-x" in the provider's configuration; there are: hv-a, hv-b`,
		},
		"a node is not larger than its hypervisor": {
			config:  config{workers: count(1), workerMemoryGiB: most + 1},
			refused: fmt.Sprintf("memory_gib = %d", most+1),
		},
		"one group fits": {
			config:  config{memoryGiB: most/2 + 1, workers: count(1)},
			servers: map[string]string{"cp-1": "hv-a"},
			workers: map[string]string{"w-1": "hv-a"},
		},
		"two such groups do not": {
			config:  config{memoryGiB: most/2 + 1, workers: count(1), workerMemoryGiB: most/2 + 2},
			refused: fmt.Sprintf("memory_gib = %d", most/2+2),
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.config.name = "placed"
			step := resource.TestStep{Config: tc.config.render(l), PlanOnly: true}
			if tc.refused != "" {
				step.ExpectError = words(tc.refused)
			} else {
				step.ExpectNonEmptyPlan = true
				step.ConfigPlanChecks.PostApplyPreRefresh = assigned(clusterAddr, tc.servers)
			}
			if tc.workers != nil {
				step.ConfigPlanChecks.PostApplyPreRefresh = append(step.ConfigPlanChecks.PostApplyPreRefresh, assigned(poolAddr, tc.workers)...)
			}
			resource.Test(t, resource.TestCase{ProtoV6ProviderFactories: factories, Steps: []resource.TestStep{step}})
		})
	}
}

// assigned expects that the plan knows where each node stands, and on which hypervisors that takes something.
func assigned(addr string, want map[string]string) []plancheck.PlanCheck {
	nodes, hosts := map[string]knownvalue.Check{}, map[string]knownvalue.Check{}
	for _, node := range slices.Sorted(maps.Keys(want)) {
		nodes[node] = knownvalue.StringExact(want[node])
		hosts[want[node]] = knownvalue.NotNull()
	}
	return []plancheck.PlanCheck{
		plancheck.ExpectKnownValue(addr, tfjsonpath.New("assignment"), knownvalue.MapExact(nodes)),
		plancheck.ExpectKnownValue(addr, tfjsonpath.New("footprint"), knownvalue.MapExact(hosts)),
	}
}

// memoryGiB is how much memory a hypervisor has, in whole GiB.
func memoryGiB(t *testing.T, l *lab.Lab, hv string) int {
	t.Helper()
	m := regexp.MustCompile(`Memory size:\s+(\d+) KiB`).FindStringSubmatch(virsh(t, l, hv, "nodeinfo"))
	if m == nil {
		t.Fatal("virsh nodeinfo does not tell the memory")
	}
	kib, err := strconv.Atoi(m[1])
	if err != nil {
		t.Fatal(err)
	}
	return kib >> 20
}
