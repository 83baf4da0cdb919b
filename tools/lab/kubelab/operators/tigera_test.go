package operators

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	tigeraOperator  = "/apis/apps/v1/namespaces/tigera-operator/deployments/tigera-operator"
	theInstallation = tigeraAPI + "installations/default"
	calicoNodePath  = "/apis/apps/v1/namespaces/calico-system/daemonsets/calico-node"
	calicoStatus    = tigeraAPI + "tigerastatuses/calico"
)

func TestTigeraWaitsForItsOperator(t *testing.T) {
	w, o := newWorld(t)
	w.put(theInstallation, `{"spec":{}}`)
	w.put(tigeraOperator, `{"status":{"replicas":1}}`)
	step(t, o)
	if w.get(calicoNodePath) != "" {
		t.Error("Calico was made by an operator that does not run")
	}
	w.available(tigeraOperator)
	w.drop(theInstallation)
	step(t, o)
	if w.get(calicoNodePath) != "" {
		t.Error("Calico was made without an Installation")
	}
}

func TestTigeraMakesCalico(t *testing.T) {
	for name, c := range map[string]struct{ spec, backend, ipip, vxlan, image string }{
		"IP in IP": {`{"calicoNetwork":{"bgp":"Enabled","ipPools":[{"cidr":"10.42.0.0/16","encapsulation":"IPIP"}]}}`, "bird", "Always", "Never", "quay.io/calico/"},
		"VXLAN, own registry": {
			`{"registry":"registry.example/","calicoNetwork":{"bgp":"Disabled","ipPools":[{"cidr":"10.42.0.0/16","encapsulation":"VXLANCrossSubnet"}]}}`,
			"vxlan", "Never", "CrossSubnet", "registry.example/calico/",
		},
	} {
		w, o := newWorld(t)
		w.available(tigeraOperator)
		w.put(theInstallation, `{"metadata":{"uid":"u"},"spec":`+c.spec+`}`)
		step(t, o)
		pod := w.get(calicoNodePath, "spec", "template", "spec")
		for _, want := range []string{`"` + c.backend + `"`, c.image + "node:", c.image + "cni:", `"/etc/cni/net.d"`, `"hostNetwork":true`} {
			if !strings.Contains(pod, want) {
				t.Errorf("%s: calico-node lacks %s: %s", name, want, pod)
			}
		}
		if owners := w.get(calicoNodePath, "metadata", "ownerReferences"); !strings.Contains(owners, `"uid":"u"`) {
			t.Errorf("%s: owners %s", name, owners)
		}
		const pool = "/apis/crd.projectcalico.org/v1/ippools/default-ipv4-ippool"
		if w.get(pool, "spec", "cidr") != `"10.42.0.0/16"` || w.get(pool, "spec", "ipipMode") != `"`+c.ipip+`"` || w.get(pool, "spec", "vxlanMode") != `"`+c.vxlan+`"` {
			t.Errorf("%s: pool %s", name, w.get(pool, "spec"))
		}
		if w.get("/apis/apps/v1/namespaces/calico-system/deployments/calico-apiserver") != "" {
			t.Errorf("%s: an API server that nobody asked for", name)
		}
	}
}

// Programs and chart of Calico have one version.
func TestCalicoVersion(t *testing.T) {
	chart, err := os.ReadFile(filepath.FromSlash("../../charts/sources/tigera-operator/Chart.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(chart), "\nappVersion: "+calicoVersion+"\n") {
		t.Errorf("the chart has another version than %s:\n%s", calicoVersion, chart)
	}
}

func TestTigeraMakesTheAPIServer(t *testing.T) {
	w, o := newWorld(t)
	w.available(tigeraOperator)
	w.put(theInstallation, `{"spec":{"controlPlaneReplicas":1}}`)
	w.put(tigeraAPI+"apiservers/default", `{}`)
	step(t, o)
	if got := w.get("/apis/apps/v1/namespaces/calico-system/deployments/calico-apiserver", "spec", "replicas"); got != "1" {
		t.Errorf("%s replicas", got)
	}
}

func TestTigeraStatus(t *testing.T) {
	w, o := newWorld(t)
	w.available(tigeraOperator)
	w.put(theInstallation, `{"spec":{}}`)
	step(t, o)
	status := func() string { return w.get(calicoStatus, "status") }
	if !strings.Contains(status(), `DaemonSet \"calico-system/calico-node\" is not available (awaiting 1 nodes)`) {
		t.Errorf("while it starts: %s", status())
	}
	w.put(calicoNodePath, `{"metadata":{"generation":1},"status":{"desiredNumberScheduled":0}}`)
	w.put("/api/v1/namespaces/calico-system/pods/calico-node-x", `{"metadata":{"labels":{"k8s-app":"calico-node"}},
		"status":{"initContainerStatuses":[{"name":"install-cni","state":{"waiting":{"reason":"ImagePullBackOff"}}}]}}`)
	step(t, o)
	if !strings.Contains(status(), "Pod calico-system/calico-node-x failed to pull container image for: install-cni") {
		t.Errorf("without an image: %s", status())
	}
	w.put(calicoNodePath, `{"status":{"desiredNumberScheduled":2,"numberAvailable":2}}`)
	for _, name := range []string{"calico-typha", "calico-kube-controllers"} {
		w.available("/apis/apps/v1/namespaces/calico-system/deployments/" + name)
	}
	step(t, o)
	if strings.Contains(status(), "PodFailure") || strings.Count(status(), "AllObjectsAvailable") != 3 {
		t.Errorf("when it runs: %s", status())
	}
}
