package acceptance

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-testing/helper/resource"
	"github.com/hashicorp/terraform-plugin-testing/plancheck"
	"github.com/hashicorp/terraform-plugin-testing/terraform"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab"
)

const (
	clusterAddr    = "cockpit_k3s_cluster.this"
	poolAddr       = "cockpit_k3s_node_pool.w"
	kubeconfigAddr = "data.cockpit_kubeconfig.this"
)

// One cluster through its life: made with two workers, imported, scaled both ways, destroyed.
func TestAccClusterAndPool(t *testing.T) {
	l := inLab(t)
	const name = "life"
	keys := []string{"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl someone@example"}
	// What an import has to find in the records.
	rules := attributes{
		"labels":           `{ tier = "web" }`,
		"taints":           `[{ key = "dedicated", value = "life", effect = "NoSchedule" }, { key = "soft", effect = "PreferNoSchedule" }]`,
		"drain":            `{ timeout = "5m", grace_period_seconds = 30, on_timeout = "force", on_destroy = false }`,
		"upgrade_settings": `{ max_surge = 2, max_unavailable = 1 }`,
		"repair":           `{ not_ready_after = "20m", max_unhealthy = 2 }`,
		"agent_args":       `["--kubelet-arg=max-pods=50"]`,
	}
	with := func(workers int) string {
		return config{name: name, workers: count(workers), keys: keys, moreOfWorkers: rules, kubeconfig: true}.render(l)
	}
	uuids := map[string]string{}

	resource.Test(t, resource.TestCase{
		ProtoV6ProviderFactories: factories,
		CheckDestroy:             func(*terraform.State) error { return leftOvers(t, l, name) },
		Steps: []resource.TestStep{
			{
				Config: with(2),
				Check: resource.ComposeAggregateTestCheckFunc(
					ready("life-cp-1", "life-w-1", "life-w-2"),
					resource.TestCheckResourceAttr(clusterAddr, "status", "active"),
					resource.TestCheckResourceAttr(clusterAddr, "nodes.life-cp-1.hypervisor", firstHV),
					resource.TestCheckResourceAttr(poolAddr, "nodes.life-w-2.k3s_version", k3sVersion),
					resource.TestCheckResourceAttr(kubeconfigAddr, "filename", "kubeconfig-life.yaml"),
					resource.TestCheckResourceAttrPair(kubeconfigAddr, "endpoint", clusterAddr, "api_url"),
					sealed(t, l, name, 3),
					remember(uuids),
				),
			},
			{
				Config:           with(2),
				ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{plancheck.ExpectEmptyPlan()}},
			},
			imported(clusterAddr, name),
			imported(poolAddr, name+"/w"),
			emptyAfterImport(clusterAddr, name),
			emptyAfterImport(poolAddr, name+"/w"),
			{
				Config: with(3),
				// Scaling a pool leaves the cluster and what hangs on its endpoint alone.
				ConfigPlanChecks: resource.ConfigPlanChecks{PreApply: []plancheck.PlanCheck{
					plancheck.ExpectResourceAction(poolAddr, plancheck.ResourceActionUpdate),
					plancheck.ExpectResourceAction(clusterAddr, plancheck.ResourceActionNoop),
				}},
				Check: resource.ComposeAggregateTestCheckFunc(ready("life-cp-1", "life-w-1", "life-w-2", "life-w-3"), same(uuids)),
			},
			{
				Config: with(1),
				Check: resource.ComposeAggregateTestCheckFunc(
					ready("life-cp-1", "life-w-1"), same(uuids), exactly(t, l, name, 2)),
			},
		},
	})
}

// imported imports by id with the command, and compares all that was read with what the create left in the state.
func imported(addr, id string) resource.TestStep {
	return resource.TestStep{ResourceName: addr, ImportState: true, ImportStateId: id, ImportStateVerify: true}
}

// emptyAfterImport imports with an import block beside the same configuration, which must plan nothing else.
func emptyAfterImport(addr, id string) resource.TestStep {
	return resource.TestStep{ResourceName: addr, ImportState: true, ImportStateId: id, ImportStateKind: resource.ImportBlockWithID}
}

// ready asks the cluster itself, through the exported kubeconfig: it has exactly these nodes, all Ready at the version.
func ready(want ...string) resource.TestCheckFunc {
	return func(s *terraform.State) error {
		data, ok := s.RootModule().Resources[kubeconfigAddr]
		if !ok {
			return fmt.Errorf("%s is not in the state", kubeconfigAddr)
		}
		got, err := readyNodes([]byte(data.Primary.Attributes["raw"]))
		if err != nil {
			return err
		}
		slices.Sort(want)
		if !slices.Equal(got, want) {
			return fmt.Errorf("the Ready nodes are %v, want %v", got, want)
		}
		return nil
	}
}

func readyNodes(kubeconfig []byte) ([]string, error) {
	nodes, err := nodesOf(kubeconfig)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, n := range nodes {
		if up := is(n, corev1.NodeReady); !up || n.Status.NodeInfo.KubeletVersion != k3sVersion {
			return nil, fmt.Errorf("node %s: Ready is %t at %s", n.Name, up, n.Status.NodeInfo.KubeletVersion)
		}
		names = append(names, n.Name)
	}
	slices.Sort(names)
	return names, nil
}

// restOf is how to reach a cluster's API.
func restOf(kubeconfig []byte) (*rest.Config, error) {
	c, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	c.QPS = -1 // A test may look as often as it likes.
	return c, nil
}

// nodesOf asks a cluster for its nodes.
func nodesOf(kubeconfig []byte) ([]corev1.Node, error) {
	config, err := restOf(kubeconfig)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	list, err := client.CoreV1().Nodes().List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// is tells whether a condition of a node is true.
func is(n corev1.Node, condition corev1.NodeConditionType) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == condition && c.Status == corev1.ConditionTrue
	})
}

// uuidsOf reads the VMs' UUIDs from the state, by node.
func uuidsOf(s *terraform.State) map[string]string {
	out := map[string]string{}
	for _, addr := range []string{clusterAddr, poolAddr} {
		r, ok := s.RootModule().Resources[addr]
		if !ok {
			continue
		}
		for key, value := range r.Primary.Attributes {
			if name, ok := strings.CutSuffix(strings.TrimPrefix(key, "nodes."), ".uuid"); ok {
				out[name] = value
			}
		}
	}
	return out
}

// remember keeps the UUIDs of the VMs; same makes sure that those that are still there are the same VMs.
func remember(uuids map[string]string) resource.TestCheckFunc {
	return func(s *terraform.State) error {
		maps.Copy(uuids, uuidsOf(s))
		return nil
	}
}

func same(uuids map[string]string) resource.TestCheckFunc {
	return func(s *terraform.State) error {
		for name, uuid := range uuidsOf(s) {
			if before, ok := uuids[name]; ok && before != uuid {
				return fmt.Errorf("node %s was made anew: its VM was %s and is %s", name, before, uuid)
			}
		}
		return nil
	}
}

// exactly counts what the first hypervisor has of a cluster.
func exactly(t *testing.T, l *lab.Lab, cluster string, nodes int) resource.TestCheckFunc {
	return stand(t, l, cluster, map[string]int{firstHV: nodes})
}

// stand counts what each hypervisor has of a cluster: a domain a node, and two volumes each.
func stand(t *testing.T, l *lab.Lab, cluster string, nodes map[string]int) resource.TestCheckFunc {
	return func(*terraform.State) error {
		for _, h := range l.Hypervisors {
			d := domains(t, l, h.Name, cluster)
			var shared []string
			if slices.Contains(strings.Fields(virsh(t, l, h.Name, "pool-list", "--name")), lab.SharedPool) {
				shared = having(volumesIn(t, l, h.Name, lab.SharedPool), cluster)
			}
			v := slices.DeleteFunc(volumes(t, l, h.Name, cluster), func(volume string) bool {
				// What lies in the shared pool may belong to a node of the other hypervisor.
				mine := slices.ContainsFunc(d, func(node string) bool { return strings.HasPrefix(volume, node+"-") })
				return slices.Contains(shared, volume) && !mine
			})
			if want := nodes[h.Name]; len(d) != want || len(v) != 2*want {
				return fmt.Errorf("hypervisor %s has the domains %v and the volumes %v, want %d nodes", h.Name, d, v, want)
			}
		}
		return nil
	}
}

// sealed makes sure that no seed on the pool holds the join token, which the guest agent of the server tells.
func sealed(t *testing.T, l *lab.Lab, cluster string, seeds int) resource.TestCheckFunc {
	return func(*terraform.State) error {
		secret := joinSecret(t, l, cluster)
		found := 0
		for _, v := range volumes(t, l, firstHV, cluster) {
			if !strings.HasSuffix(v, "-seed.iso") {
				continue
			}
			found++
			if content := readFile(t, volumePath(t, l, firstHV, v)); strings.Contains(content, secret) || !strings.Contains(content, "#cloud-config") {
				return fmt.Errorf("the seed %s holds the token, or is no seed", v)
			}
		}
		if found != seeds {
			return fmt.Errorf("the pool has %d seeds, want %d", found, seeds)
		}
		return nil
	}
}
