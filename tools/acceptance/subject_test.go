package acceptance

import (
	"testing"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab"
)

// subject is a cluster that a test takes through steps with the built provider, as a user would.
type subject struct {
	workload
	l    *lab.Lab
	c    *cli
	want config
	// objects reads those of kinds that client-go does not know.
	objects dynamic.Interface
}

func newSubject(t testing.TB, l *lab.Lab, want config) subject {
	t.Helper()
	return subject{l: l, c: newCLI(t, l, want.name), want: want}
}

// connect finds the way into the cluster, whose kubeconfig has to be in the state.
func (s *subject) connect() {
	s.c.t.Helper()
	config, err := restOf([]byte(s.c.state()[kubeconfigAddr].Raw))
	if err == nil {
		s.api, err = kubernetes.NewForConfig(config)
	}
	if err == nil {
		s.objects, err = dynamic.NewForConfig(config)
	}
	if err != nil {
		s.c.t.Fatal(err)
	}
}

// step is a part of a test that goes on from what the one before has left.
type step struct {
	name string
	take func(*testing.T)
}

// steps takes one step after the other, until one fails.
func (s *subject) steps(t *testing.T, steps []step) {
	for _, step := range steps {
		if !t.Run(step.name, func(t *testing.T) { s.c.t = t; step.take(t) }) {
			return
		}
	}
}

// apply makes true what is wanted, and returns what Terraform said.
func (s *subject) apply() string {
	s.c.t.Helper()
	s.c.use(s.l, s.want)
	return s.c.run("apply", "-auto-approve")
}

// refused is an apply that has to fail and to say these texts.
func (s *subject) refused(texts ...string) {
	s.c.t.Helper()
	s.c.use(s.l, s.want)
	s.c.fails(texts, "apply", "-auto-approve")
}

// workers changes attributes of the pool.
func (s *subject) workers(changes attributes) {
	s.want.moreOfWorkers = s.want.moreOfWorkers.with(changes)
}

// uuid is that of a node's VM, as the state has it.
func (s *subject) uuid(node string) string {
	s.c.t.Helper()
	state := s.c.state()
	for _, addr := range []string{clusterAddr, poolAddr} {
		if n, ok := state[addr].Nodes[node]; ok {
			return n.UUID
		}
	}
	s.c.t.Fatalf("node %s is not in the state", node)
	return ""
}
