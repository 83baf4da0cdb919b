package main

import (
	"strings"
	"testing"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/kubeapi"
)

func TestIsMissing(t *testing.T) {
	for image, want := range map[string]bool{
		"missing": true, "quay.io/missing:v1": true, "quay.io/cilium/cilium:missing": true, "missing.example.org:5000/cilium/cilium:v1": true,
		"quay.io/cilium/cilium:v1": false, "quay.io/cilium/missing-not:v1": false, "": false,
	} {
		if got := isMissing(image); got != want {
			t.Errorf("%s: %v, want %v", image, got, want)
		}
	}
}

func TestPullError(t *testing.T) {
	for image, full := range map[string]string{
		"missing": `"docker.io/library/missing"`, "a/missing:1": `"docker.io/a/missing:1"`, "quay.io/missing:1": `"quay.io/missing:1"`,
		"localhost/missing": `"localhost/missing"`, "lab:5000/missing": `"lab:5000/missing"`,
	} {
		if got := pullError(image, imagePull); !strings.Contains(got, "failed to pull and unpack image "+full) {
			t.Errorf("%s: %s", image, got)
		}
		if got := pullError(image, imageBackOff); !strings.HasPrefix(got, `Back-off pulling image "`+image+`": ErrImagePull: rpc error`) {
			t.Errorf("%s: %s", image, got)
		}
	}
}

// A container waits for its own image, or for the init container that lacks its image.
func TestImageStatus(t *testing.T) {
	good, bad := kubeapi.Container{Name: "good", Image: "a/b:1"}, kubeapi.Container{Name: "bad", Image: "a/missing:1"}
	for name, c := range map[string]struct {
		init, main []kubeapi.Container
		want       string // by container, in order
	}{
		"one of two":                   {nil, []kubeapi.Container{good, bad}, "running,ErrImagePull"},
		"init container":               {[]kubeapi.Container{good, bad, good}, []kubeapi.Container{good}, "terminated,ErrImagePull,PodInitializing,PodInitializing"},
		"behind a good init container": {[]kubeapi.Container{good}, []kubeapi.Container{bad}, "terminated,ErrImagePull"},
	} {
		p := pod("Pending", func(p *kubeapi.Pod) { p.Spec.InitContainers, p.Spec.Containers = c.init, c.main })
		status := imageStatus(p, "192.0.2.1", imagePull)["status"].(map[string]any)
		var got []string
		for _, list := range []string{"initContainerStatuses", "containerStatuses"} {
			for _, s := range status[list].([]map[string]any) {
				for state, v := range s["state"].(map[string]any) {
					if state == "waiting" {
						state = v.(map[string]any)["reason"].(string)
					}
					got = append(got, state)
				}
			}
		}
		if strings.Join(got, ",") != c.want || status["phase"] != "Pending" {
			t.Errorf("%s: %v, want %s", name, got, c.want)
		}
	}
}
