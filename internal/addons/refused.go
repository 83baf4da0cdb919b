package addons

import (
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
)

// refused turns an answer of the API into a Failure that it would give again and again: what the chart makes of the values is no
// valid object. Others may pass, such as that a webhook does not answer yet, and stay as they are.
func refused(r release, err error) error {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return err
	}
	switch answer.Status().Code {
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge:
		return &cluster.Failure{
			Err:    fmt.Errorf("the cluster's API refuses an object of chart %s %s: %w", r.source.chart, r.source.version, err),
			Cause:  "the values, or this version of the chart, do not fit each other or this version of Kubernetes.",
			Remedy: "correct values_yaml, or leave the version of the chart to the provider, and apply again.",
		}
	}
	return err
}
