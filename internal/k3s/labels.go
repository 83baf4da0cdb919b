package k3s

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// RegistrationLabels are those of a node's labels that its kubelet may give to it when it registers. In the domains of
// Kubernetes these are few: a kubelet that is told to set another one does not start, and the API would refuse it
// (https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction; the list is that of
// k8s.io/kubelet/pkg/apis).
func RegistrationLabels(labels map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range labels {
		domain := domainOf(key)
		if !within(domain, "kubernetes.io") && !within(domain, "k8s.io") ||
			within(domain, "kubelet.kubernetes.io") || within(domain, "node.kubernetes.io") || slices.Contains(kubeletLabels, key) {
			out[key] = value
		}
	}
	return out
}

var kubeletLabels = []string{
	"kubernetes.io/hostname", "kubernetes.io/os", "kubernetes.io/arch", "beta.kubernetes.io/os", "beta.kubernetes.io/arch",
	"topology.kubernetes.io/zone", "topology.kubernetes.io/region",
	"failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region", "beta.kubernetes.io/instance-type",
}

// domainOf is what stands before the slash in the key of a label or taint, if there is one.
func domainOf(key string) string {
	domain, _, slash := strings.Cut(key, "/")
	if !slash {
		return ""
	}
	return domain
}

// within reports whether a domain is another one or below it.
func within(domain, other string) bool {
	return domain == other || strings.HasSuffix(domain, "."+other)
}

// ownLabels are labels that Kubernetes and k3s set on every node, or on every server, and go by.
var ownLabels = map[string]string{
	"kubernetes.io/hostname":                "the kubelet sets it to the name of the node",
	"kubernetes.io/os":                      "the kubelet sets it",
	"kubernetes.io/arch":                    "the kubelet sets it",
	"beta.kubernetes.io/os":                 "the kubelet sets it",
	"beta.kubernetes.io/arch":               "the kubelet sets it",
	"node.kubernetes.io/instance-type":      "k3s sets it",
	"beta.kubernetes.io/instance-type":      "k3s sets it",
	"node-role.kubernetes.io/control-plane": "it would pass the node off as a server",
	"node-role.kubernetes.io/master":        "it would pass the node off as a server",
	"node-role.kubernetes.io/etcd":          "it would pass the node off as a member of etcd",
}

// serviceLB is the domain of the labels by which k3s leaves to its users where its load balancer runs
// (https://docs.k3s.io/networking/networking-services#controlling-servicelb-node-selection).
const serviceLB = "svccontroller.k3s.cattle.io"

// CheckLabel says what is wrong with a label for a node: its form, or that the node has it from Kubernetes or k3s.
func CheckLabel(key, value string) error {
	if err := checkName(key, value); err != nil {
		return err
	}
	if why, own := ownLabels[key]; own {
		return fmt.Errorf("%s belongs to Kubernetes: %s", key, why)
	}
	switch domain := domainOf(key); {
	case domain == serviceLB:
	case within(domain, "k3s.io"), within(domain, "k3s.cattle.io"):
		return fmt.Errorf("%s belongs to k3s, which sets the labels of that domain itself", key)
	case within(domain, "upgrade.cattle.io"):
		return fmt.Errorf("%s belongs to the system upgrade controller, which sets the labels of that domain itself", key)
	}
	return nil
}

// taintEffects are what a taint can do to pods that do not tolerate it.
var taintEffects = []string{"NoSchedule", "PreferNoSchedule", "NoExecute"}

// CheckTaint says what is wrong with a taint for a node: its form, or that Kubernetes sets and takes it off by itself
// (https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/).
func CheckTaint(key, value, effect string) error {
	if err := checkName(key, value); err != nil {
		return err
	}
	if !slices.Contains(taintEffects, effect) {
		return fmt.Errorf("the effect %q is none of %s", effect, strings.Join(taintEffects, ", "))
	}
	switch domain := domainOf(key); {
	case within(domain, "node.kubernetes.io"), within(domain, "node.cloudprovider.kubernetes.io"):
		return fmt.Errorf("%s belongs to Kubernetes, which tells the state of a node by the taints of that domain", key)
	case within(domain, "k3s.io"), within(domain, "k3s.cattle.io"):
		return fmt.Errorf("%s belongs to k3s, which sets the taints of that domain itself", key)
	}
	return nil
}

// checkName checks the form of a key and its value.
func checkName(key, value string) error {
	if key == "" {
		return errors.New("the key is empty")
	}
	if wrong := validation.IsQualifiedName(key); len(wrong) > 0 {
		return fmt.Errorf("the key %q is not valid: %s", key, strings.Join(wrong, "; "))
	}
	if wrong := validation.IsValidLabelValue(value); len(wrong) > 0 {
		return fmt.Errorf("the value %q is not valid: %s", value, strings.Join(wrong, "; "))
	}
	return nil
}
