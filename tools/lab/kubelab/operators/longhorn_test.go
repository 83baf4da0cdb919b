package operators

import (
	"strings"
	"testing"
)

const (
	longhornApps    = "/apis/apps/v1/namespaces/longhorn-system/"
	longhornMaps    = "/api/v1/namespaces/longhorn-system/configmaps/"
	longhornObjects = "/apis/longhorn.io/v1beta2/namespaces/longhorn-system/"
	theClass        = "/apis/storage.k8s.io/v1/storageclasses/longhorn"
	uninstaller     = "/api/v1/namespaces/longhorn-system/pods/longhorn-uninstall-x"
)

// storage is a world with a Longhorn that has just been installed on one of its two nodes.
func storage(t *testing.T) (*world, *Operators) {
	t.Helper()
	w, o := newWorld(t)
	w.put(longhornApps+"daemonsets/longhorn-manager", `{"status":{"desiredNumberScheduled":2,"numberAvailable":1}}`)
	w.put(longhornApps+"deployments/longhorn-driver-deployer", `{"status":{"replicas":1,"availableReplicas":1},"spec":{"template":{"spec":{"containers":[{"env":[
		{"name":"CSI_ATTACHER_IMAGE","value":"a/csi-attacher:1"},{"name":"CSI_ATTACHER_REPLICA_COUNT","value":"1"}]}]}}}}`)
	w.put(longhornMaps+"longhorn-default-setting", `{"metadata":{"resourceVersion":"5"},"data":{"default-setting.yaml":"node-drain-policy: \"always-allow\"\n"}}`)
	w.put(longhornMaps+"longhorn-storageclass", classMap("2"))
	w.put("/api/v1/nodes/cp-1", `{}`)
	w.put("/api/v1/nodes/w-1", `{}`)
	w.put("/api/v1/namespaces/longhorn-system/pods/longhorn-manager-x",
		`{"metadata":{"labels":{"app":"longhorn-manager"}},"spec":{"nodeName":"w-1"},"status":{"conditions":[{"type":"Ready","status":"True"}]}}`)
	return w, o
}

func classMap(replicas string) string {
	return `{"data":{"storageclass.yaml":"kind: StorageClass\nmetadata:\n  name: longhorn\n  annotations:\n    storageclass.kubernetes.io/is-default-class: \"true\"\n` +
		`provisioner: driver.longhorn.io\nparameters:\n  numberOfReplicas: \"` + replicas + `\"\n"}}`
}

func TestLonghornMakesTheClassAnewWhenItsMapChanges(t *testing.T) {
	w, o := storage(t)
	step(t, o)
	if got := w.get(theClass, "parameters", "numberOfReplicas"); got != `"2"` {
		t.Fatalf("replicas %s", got)
	}
	w.mu.Lock()
	w.objects[theClass]["metadata"].(object)["annotations"].(object)["storageclass.kubernetes.io/is-default-class"] = "false"
	w.mu.Unlock()
	step(t, o)
	if got := w.get(theClass, "metadata", "annotations", "storageclass.kubernetes.io/is-default-class"); got != `"false"` {
		t.Errorf("a change by hand did not stay: %s", got)
	}
	w.put(longhornMaps+"longhorn-storageclass", classMap("3"))
	step(t, o)
	if got := w.get(theClass, "parameters", "numberOfReplicas"); got != `"3"` {
		t.Errorf("replicas %s after a change of the chart", got)
	}
}

func TestLonghornSettings(t *testing.T) {
	w, o := storage(t)
	step(t, o)
	policy := func() string { return w.get(longhornObjects+"settings/node-drain-policy", "value") }
	if policy() != `"always-allow"` || w.get(longhornObjects+"settings/deleting-confirmation-flag", "value") != `"false"` {
		t.Errorf("policy %s", policy())
	}
	w.mu.Lock()
	w.objects[longhornObjects+"settings/node-drain-policy"]["value"] = "block-for-eviction"
	w.mu.Unlock()
	step(t, o)
	if policy() != `"block-for-eviction"` {
		t.Errorf("a change by hand did not stay: %s", policy())
	}
	w.put(longhornMaps+"longhorn-default-setting", `{"metadata":{"resourceVersion":"6"},"data":{"default-setting.yaml":"node-drain-policy: \"always-allow\"\n"}}`)
	step(t, o)
	if policy() != `"always-allow"` {
		t.Errorf("policy %s after a change of the chart", policy())
	}
}

func TestLonghornNodes(t *testing.T) {
	w, o := storage(t)
	step(t, o)
	if w.get(longhornObjects+"nodes/cp-1") != "" || !strings.Contains(w.get(longhornObjects+"nodes/w-1", "status"), `"status":"True","type":"Ready"`) {
		t.Errorf("nodes %s, %s", w.get(longhornObjects+"nodes/cp-1"), w.get(longhornObjects+"nodes/w-1", "status"))
	}
	w.put("/api/v1/nodes/w-1", `{"spec":{"unschedulable":true}}`)
	step(t, o)
	if got := w.get(longhornObjects+"nodes/w-1", "status"); !strings.Contains(got, "KubernetesNodeCordoned") {
		t.Errorf("cordoned: %s", got)
	}
	w.drop("/api/v1/nodes/w-1")
	step(t, o)
	if w.get(longhornObjects+"nodes/w-1") != "" {
		t.Error("the object of a node that is gone stays")
	}
}

func TestLonghornDriver(t *testing.T) {
	w, o := storage(t)
	step(t, o)
	attacher, resizer := longhornApps+"deployments/csi-attacher", longhornApps+"deployments/csi-resizer"
	if w.get(attacher, "spec", "replicas") != "1" || w.get(resizer, "spec", "replicas") != "3" || !strings.Contains(w.get(attacher), "a/csi-attacher:1") {
		t.Errorf("attacher %s", w.get(attacher))
	}
	if w.get(longhornApps+"daemonsets/longhorn-csi-plugin") == "" || w.get("/apis/storage.k8s.io/v1/csidrivers/driver.longhorn.io") == "" {
		t.Error("a part of the driver is missing")
	}
}

// Without the confirmation the uninstaller fails and leaves everything; with it, nothing is left, nor comes back.
func TestLonghornUninstall(t *testing.T) {
	for flag, code := range map[string]string{"false": `"1"`, "true": `"0"`} {
		w, o := storage(t)
		step(t, o)
		w.mu.Lock()
		w.objects[longhornObjects+"settings/deleting-confirmation-flag"]["value"] = flag
		w.mu.Unlock()
		w.put(uninstaller, `{"metadata":{"labels":{"batch.kubernetes.io/job-name":"longhorn-uninstall"},"annotations":{"double.k3s.io/exit-code":"wait"}},"status":{"phase":"Running"}}`)
		step(t, o)
		if got := w.get(uninstaller, "metadata", "annotations", verdict); got != code {
			t.Errorf("flag %s: exit code %s, want %s", flag, got, code)
		}
		step(t, o)
		w.drop(uninstaller)
		step(t, o)
		left := w.get(theClass) != "" || w.get(longhornApps+"deployments/csi-attacher") != "" || w.get(longhornObjects+"nodes/w-1") != ""
		if left != (flag == "false") {
			t.Errorf("flag %s: something is left: %v", flag, left)
		}
	}
}
