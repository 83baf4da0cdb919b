package addons

import (
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
)

func TestMayFollow(t *testing.T) {
	for _, tt := range []struct {
		addon    cluster.Addon
		is, next string
		want     string
	}{
		{cluster.Longhorn, "1.11.3", "1.12.1", ""},
		{cluster.Longhorn, "1.12.1", "1.12.1", ""},
		{cluster.Longhorn, "1.10.0", "1.12.1", "skips a minor version"},
		{cluster.Longhorn, "1.12.1", "1.12.0", "cannot become the older 1.12.0"},
		{cluster.Longhorn, "1.12.1", "1.11.3", "cannot become the older 1.11.3"},
		{cluster.Cilium, "1.20.2", "1.20.0", ""},
		{cluster.Cilium, "1.20.2", "1.19.1", "cannot become the older 1.19.1"},
		{cluster.Cilium, "1.18.5", "1.20.2", "skips a minor version"},
		{cluster.NFS, "4.13.4", "4.11.0", ""},
		{cluster.Longhorn, "", "1.12.1", ""},
	} {
		var history []revision
		if tt.is != "" {
			broken := rev(2, failed)
			broken.version = "1.2.3"
			first := rev(1, deployed)
			first.version = tt.is
			history = []revision{first, broken}
		}
		err := mayFollow(tt.addon, history, tt.next)
		var failure *cluster.Failure
		if (err == nil) != (tt.want == "") || err != nil && (!errors.As(err, &failure) || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s from %s to %s: %v", tt.addon, tt.is, tt.next, err)
		}
	}
}

func TestRefusedForGood(t *testing.T) {
	for text, lasting := range map[string]bool{
		`cannot patch "nfs" with kind StorageClass: StorageClass.storage.k8s.io "nfs" is invalid: reclaimPolicy: Forbidden`:                                                true,
		`unable to build kubernetes objects from release manifest: resource mapping not found: no matches for kind "ServiceMonitor" in version "monitoring.coreos.com/v1"`: true,
		`execution error at (cilium/templates/validate.yaml:12:6): hubble needs a certificate`:                                                                             true,
		`chart requires kubeVersion: >=1.34.0 which is incompatible with Kubernetes v1.31.0`:                                                                               true,
		`failed calling webhook "validator.longhorn.io": connection refused`:                                                                                               false,
		`etcdserver: request timed out`: false,
	} {
		var failure *cluster.Failure
		if got := errors.As(refused(release{}, errors.New(text)), &failure); got != lasting {
			t.Errorf("%q is for good: %t", text, got)
		}
	}
	var failure *cluster.Failure
	if !errors.As(refused(release{}, apierrors.NewBadRequest("strict decoding error")), &failure) {
		t.Error("a bad request is not for good")
	}
}
