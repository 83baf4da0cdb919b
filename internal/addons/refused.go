package addons

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
)

// refused turns an error that would come again and again into a Failure: what the chart makes of the values is no valid object, or
// nothing at all. Others may pass, such as that a webhook does not answer yet, and stay as they are.
func refused(r release, err error) error {
	if !forGood(err) {
		return err
	}
	return &cluster.Failure{
		Err:    fmt.Errorf("the cluster's API refuses what chart %s %s makes of the values: %w", r.source.chart, r.source.version, err),
		Cause:  "the values, or this version of the chart, do not fit each other or this version of Kubernetes.",
		Remedy: "correct values_yaml, or leave the version of the chart to the provider, and apply again.",
	}
}

// lastingTexts are parts of the errors that no repetition cures. Helm passes on many of the API's answers as text alone, and has no
// other way to tell that a template refuses its values.
var lastingTexts = []string{
	" is invalid: ", "field is immutable", "cannot be handled as a ", "no matches for kind ", "execution error at (", "chart requires kubeVersion",
}

// forGood reports whether an error would come again and again.
func forGood(err error) bool {
	var answer apierrors.APIStatus
	if errors.As(err, &answer) {
		switch answer.Status().Code {
		case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge:
			return true
		}
	}
	return slices.ContainsFunc(lastingTexts, func(text string) bool { return strings.Contains(err.Error(), text) })
}
