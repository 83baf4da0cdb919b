package operators

import (
	"strings"
	"testing"
)

const (
	theClaim  = "/api/v1/namespaces/default/persistentvolumeclaims/data"
	theVolume = "/api/v1/persistentvolumes/pvc-u"
)

func TestProvision(t *testing.T) {
	for name, c := range map[string]struct {
		class, claim, deployment string
		want                     string // in the volume, "" for none
	}{
		"nfs": {
			`{"provisioner":"nfs.csi.k8s.io","parameters":{"server":"192.0.2.5","share":"/export"},"reclaimPolicy":"Delete","mountOptions":["hard"]}`, `{}`,
			"kube-system/deployments/csi-nfs-controller", `"volumeHandle":"192.0.2.5#/export#pvc-u##"`,
		},
		"longhorn": {`{"provisioner":"driver.longhorn.io"}`, `{}`, "longhorn-system/deployments/csi-provisioner", `"driver":"driver.longhorn.io"`},
		"local-path": {
			`{"provisioner":"rancher.io/local-path","volumeBindingMode":"WaitForFirstConsumer"}`, `{"annotations":{"volume.kubernetes.io/selected-node":"w-1"}}`,
			"kube-system/deployments/local-path-provisioner", `"path":"/opt/volumes/pvc-u_default_data"`,
		},
		"no consumer yet": {
			`{"provisioner":"rancher.io/local-path","volumeBindingMode":"WaitForFirstConsumer"}`, `{}`,
			"kube-system/deployments/local-path-provisioner", "",
		},
		"provisioner of another class": {`{"provisioner":"nfs.csi.k8s.io"}`, `{}`, "kube-system/deployments/local-path-provisioner", ""},
	} {
		w, o := newWorld(t)
		w.put("/apis/storage.k8s.io/v1/storageclasses/fast", c.class)
		w.put(theClaim, `{"metadata":`+c.claim+`,"spec":{"storageClassName":"fast","accessModes":["ReadWriteMany"],"resources":{"requests":{"storage":"5Gi"}}}}`)
		w.mu.Lock()
		w.objects[theClaim]["metadata"].(object)["uid"] = "u"
		w.mu.Unlock()
		w.put("/api/v1/namespaces/kube-system/configmaps/local-path-config", `{"data":{"config.json":"{\"nodePathMap\":[{\"paths\":[\"/opt/volumes\"]}]}"}}`)
		w.available("/apis/apps/v1/namespaces/" + c.deployment)
		step(t, o)
		step(t, o)
		got := w.get(theVolume)
		if c.want == "" {
			if got != "" {
				t.Errorf("%s: a volume was made: %s", name, got)
			}
			continue
		}
		for _, want := range []string{c.want, `"storage":"5Gi"`, `"uid":"u"`, `"ReadWriteMany"`, `"persistentVolumeReclaimPolicy":"Delete"`} {
			if !strings.Contains(got, want) {
				t.Errorf("%s: the volume lacks %s: %s", name, want, got)
			}
		}
	}
}

func TestVolumesWithoutClaims(t *testing.T) {
	for name, c := range map[string]struct {
		policy, phase, by string
		gone              bool
	}{
		"released":             {"Delete", "Released", "nfs.csi.k8s.io", true},
		"released, to be kept": {"Retain", "Released", "nfs.csi.k8s.io", false},
		"bound":                {"Delete", "Bound", "nfs.csi.k8s.io", false},
		"another's":            {"Delete", "Released", "example.com/other", false},
	} {
		w, o := newWorld(t)
		w.available("/apis/apps/v1/namespaces/kube-system/deployments/csi-nfs-controller")
		w.put(theVolume, `{"metadata":{"annotations":{"pv.kubernetes.io/provisioned-by":"`+c.by+`"}},"spec":{"persistentVolumeReclaimPolicy":"`+c.policy+
			`"},"status":{"phase":"`+c.phase+`"}}`)
		step(t, o)
		if gone := w.get(theVolume) == ""; gone != c.gone {
			t.Errorf("%s: gone %v, want %v", name, gone, c.gone)
		}
	}
}
