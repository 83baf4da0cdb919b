package main

import (
	"crypto/x509"
	"encoding/pem"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/kubeapi"
)

func parsePEM(t *testing.T, text string) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		t.Fatalf("no PEM: %q", text)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func newTable(networkReady bool) *podTable {
	t := &podTable{}
	k := &kubelet{o: &options{}, wake: make(chan struct{}, 1)}
	k.network.flannel = "vxlan"
	k.network.started.Store(networkReady)
	t.init(k)
	if networkReady {
		t.cidr = netip.MustParsePrefix("10.42.1.0/29")
	}
	return t
}

func pod(phase string, changes ...func(*kubeapi.Pod)) kubeapi.Pod {
	p := kubeapi.Pod{Metadata: kubeapi.Meta{UID: "u", Name: "p", Namespace: "n"}, Status: kubeapi.PodStatus{Phase: phase}, Spec: kubeapi.PodSpec{RestartPolicy: "Always"}}
	for _, change := range changes {
		change(&p)
	}
	return p
}

func waitingFor(reason string) func(*kubeapi.Pod) {
	return func(p *kubeapi.Pod) {
		state := kubeapi.ContainerState{Waiting: &kubeapi.Waiting{Reason: reason}}
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, kubeapi.ContainerStatus{State: state})
	}
}

func image(name string) func(*kubeapi.Pod) {
	return func(p *kubeapi.Pod) {
		p.Spec.Containers = append(p.Spec.Containers, kubeapi.Container{Name: "c", Image: name})
	}
}

func verdict(code string) func(*kubeapi.Pod) {
	return func(p *kubeapi.Pod) { p.Metadata.Annotations = map[string]string{exitAnnotation: code} }
}

func TestNextStepOfAPod(t *testing.T) {
	now := time.Now()
	job := func(p *kubeapi.Pod) {
		p.Spec.RestartPolicy = "Never"
		p.Metadata.OwnerReferences = []kubeapi.OwnerReference{{Kind: "Job"}}
	}
	unready := func(p *kubeapi.Pod) { p.Status.Conditions = []kubeapi.Condition{{Type: "Ready", Status: "False"}} }
	ready := func(p *kubeapi.Pod) { p.Status.Conditions = []kubeapi.Condition{{Type: "Ready", Status: "True"}} }
	for name, c := range map[string]struct {
		network bool
		pod     kubeapi.Pod
		want    step
	}{
		"pending":                       {true, pod("Pending"), stepStart},
		"pending, no network":           {false, pod("Pending"), stepCreate},
		"waiting for the network":       {false, pod("Pending", waitingFor("ContainerCreating")), stepNone},
		"the network came":              {true, pod("Pending", waitingFor("ContainerCreating")), stepStart},
		"no such image":                 {true, pod("Pending", image("quay.io/x/missing:v1")), stepPull},
		"no such image, told":           {true, pod("Pending", image("quay.io/x/missing:v1"), waitingFor("ErrImagePull")), stepBackOff},
		"no such image, told twice":     {true, pod("Pending", image("quay.io/x/missing:v1"), waitingFor("ImagePullBackOff")), stepNone},
		"an image that is there now":    {true, pod("Pending", image("quay.io/x/y:v1"), waitingFor("ImagePullBackOff")), stepStart},
		"no image and no network":       {false, pod("Pending", image("missing")), stepCreate},
		"Job with an end to be told":    {true, pod("Running", job, verdict("wait")), stepNone},
		"Job whose end was told":        {true, pod("Running", job, verdict("1")), stepFinish},
		"host network, no network":      {false, pod("Pending", func(p *kubeapi.Pod) { p.Spec.HostNetwork = true }), stepStart},
		"running":                       {true, pod("Running", ready), stepNone},
		"marked while the node was off": {true, pod("Running", unready), stepStart},
		"marked, no network":            {false, pod("Running", unready), stepNone},
		"running Job":                   {true, pod("Running", job), stepFinish},
		"succeeded Job":                 {true, pod("Succeeded", job), stepNone},
		"bare pod that never restarts":  {true, pod("Running", func(p *kubeapi.Pod) { p.Spec.RestartPolicy = "Never" }), stepNone},
		"deleted":                       {true, pod("Running", func(p *kubeapi.Pod) { p.Metadata.DeletionTimestamp = &now }), stepEnd},
		"deleted while pending":         {false, pod("Pending", func(p *kubeapi.Pod) { p.Metadata.DeletionTimestamp = &now }), stepEnd},
	} {
		if got := newTable(c.network).next(c.pod); got != c.want {
			t.Errorf("%s: step %d, want %d", name, got, c.want)
		}
	}
}

// A deleted pod ends soon, and with the end of its grace period at the latest.
func TestEndOfAPod(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		grace    time.Duration
		stubborn string
		want     time.Duration
	}{
		"at once":                   {30 * time.Second, "", endAfter},
		"grace shorter than that":   {0, "", 0},
		"ignores SIGTERM":           {30 * time.Second, "true", 30 * time.Second},
		"ignores it, for no grace":  {0, "true", 0},
		"grace that is over by now": {-time.Minute, "", -time.Minute},
	} {
		end := now.Add(c.grace)
		p := pod("Running", func(p *kubeapi.Pod) {
			p.Metadata.DeletionTimestamp = &end
			p.Metadata.Annotations = map[string]string{stubbornAnnotation: c.stubborn}
		})
		if got := endOf(p, now).Sub(now); got != c.want {
			t.Errorf("%s: it ends after %s, want %s", name, got, c.want)
		}
	}
}

func TestPodsWaitForTheNetwork(t *testing.T) {
	table := newTable(false)
	table.update(pod("Pending", waitingFor(creating)), false)
	if due, _ := table.pick(time.Now().Add(time.Minute)); len(due) != 0 {
		t.Fatal("a pod started without a network")
	}
	table.k.network.started.Store(true)
	table.setCIDR("10.42.1.0/24")
	if due, _ := table.pick(time.Now()); len(due) != 0 {
		t.Error("a pod started at once")
	}
	if due, _ := table.pick(time.Now().Add(2 * startAfter)); len(due) != 1 {
		t.Error("a pod did not start when the network came up")
	}
}

func TestFreeIP(t *testing.T) {
	table := newTable(true)
	for _, want := range []string{"10.42.1.2", "10.42.1.3"} {
		if got := table.freeIP(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		table.pods[want] = &podEntry{pod: kubeapi.Pod{Status: kubeapi.PodStatus{PodIP: want}}}
	}
}

func TestFinishedStatus(t *testing.T) {
	for code, want := range map[string]string{"": "Succeeded", "0": "Succeeded", "3": "Failed"} {
		p := pod("Running", func(p *kubeapi.Pod) { p.Metadata.Annotations = map[string]string{exitAnnotation: code} })
		if got := finishedStatus(p)["status"].(map[string]any)["phase"]; got != want {
			t.Errorf("exit code %q: %v, want %s", code, got, want)
		}
	}
}

func TestPasswordHash(t *testing.T) {
	hash, err := newHash("secret")
	if err != nil {
		t.Fatal(err)
	}
	if !verifyHash(hash, "secret") || verifyHash(hash, "Secret") || verifyHash("", "") || verifyHash("$1:zz:10:8:1:aa", "secret") {
		t.Errorf("hash %s", hash)
	}
}

func TestLegacyMaster(t *testing.T) {
	for version, want := range map[string]bool{"v1.31.0+k3s1": true, "v1.33.12+k3s1": true, "v1.34.1+k3s1": false, "v1.36.1+k3s1": false, "x": false} {
		if got := legacyMaster(version); got != want {
			t.Errorf("%s: %v, want %v", version, got, want)
		}
	}
}

func TestBalancerUsesAServerThatAnswers(t *testing.T) {
	good, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = good.Close() })
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = dead.Close()
	go func() {
		for {
			c, err := good.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "hello")
			_ = c.Close()
		}
	}()
	b := &balancer{}
	b.setServers([]string{dead.Addr().String(), good.Addr().String()})
	front, err := b.listen(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- b.serve(t.Context(), front) }()
	c, err := net.Dial("tcp", front.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(c)
	if err != nil || string(text) != "hello" {
		t.Errorf("got %q, %v", text, err)
	}
	if got := b.list()[0]; got != good.Addr().String() {
		t.Errorf("%s is first after the dead one failed", got)
	}
	b.setServers([]string{dead.Addr().String(), good.Addr().String(), "192.0.2.1:6443"})
	if got := b.list(); got[0] != good.Addr().String() || len(got) != 3 {
		t.Errorf("a new list gave the good server up: %v", got)
	}
}

func TestHostPort(t *testing.T) {
	for url, want := range map[string]string{
		"https://cp:6443": "cp:6443", "https://cp": "cp:443", "https://[2001:db8::1]:6443/x": "[2001:db8::1]:6443", "https://[2001:db8::1]": "[2001:db8::1]:443",
	} {
		if got := hostPort(url); got != want {
			t.Errorf("%s: %s, want %s", url, got, want)
		}
	}
}

func TestClusterDNS(t *testing.T) {
	for want, args := range map[string][]string{"10.43.0.10": nil, "10.96.0.10": {"--service-cidr=10.96.0.0/12"}, "10.43.0.53": {"--cluster-dns=10.43.0.53"}} {
		if got, err := clusterDNS(newOptions(t, "server", args...)); err != nil || got != want {
			t.Errorf("%v: %s, %v, want %s", args, got, err, want)
		}
	}
}

func TestPackagedManifests(t *testing.T) {
	s := &server{o: newOptions(t, "server", "--disable=metrics-server,traefik", "--default-local-storage-path=/opt/local-path-provisioner")}
	if err := s.writeManifests(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(s.o.path("server", "manifests", "local-storage.yaml"))
	if err != nil || !strings.Contains(string(b), `"paths":["/opt/local-path-provisioner"]`) || strings.Contains(string(b), "%{") {
		t.Errorf("local-storage.yaml: %v\n%s", err, b)
	}
	if _, err := os.Stat(s.o.path("server", "manifests", "metrics-server.yaml")); err == nil {
		t.Error("a disabled component has a manifest")
	}
}

func TestImagesOfPackagedManifests(t *testing.T) {
	for registry, want := range map[string]string{"": `image: "rancher/`, "registry.example:5000": `image: "registry.example:5000/rancher/`} {
		s := &server{o: newOptions(t, "server", "--system-default-registry="+registry)}
		if err := s.writeManifests(); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(s.o.path("server", "manifests", "coredns.yaml"))
		if err != nil || !strings.Contains(string(b), want) {
			t.Errorf("registry %q: %v\n%s", registry, err, b)
		}
	}
}
