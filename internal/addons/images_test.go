package addons

import "testing"

func TestMirrored(t *testing.T) {
	for repository, want := range map[string]string{
		"quay.io/cilium/cilium":                       "r.example/cilium/cilium",
		"registry.k8s.io/sig-storage/csi-provisioner": "r.example/sig-storage/csi-provisioner",
		"docker.io/rancher/local-path-provisioner":    "r.example/rancher/local-path-provisioner",
		"rancher/local-path-provisioner":              "r.example/rancher/local-path-provisioner",
		"docker.io/library/busybox":                   "r.example/library/busybox",
		"busybox":                                     "r.example/library/busybox",
		"localhost/x":                                 "r.example/x",
		"registry:5000/x/y":                           "r.example/x/y",
	} {
		if got := mirrored("r.example", repository); got != want {
			t.Errorf("%s: %s, want %s", repository, got, want)
		}
		if got := mirrored("", repository); got != repository {
			t.Errorf("without a registry %s is %s", repository, got)
		}
	}
	if got := mirrored("r.example:5000/a/", "quay.io/b/c"); got != "r.example:5000/a/b/c" {
		t.Error(got)
	}
}
