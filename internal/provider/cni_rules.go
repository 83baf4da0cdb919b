package provider

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/record"
)

// The sizes of a cluster's networks. Each node takes a /24 of the pods' network (https://docs.k3s.io/cli/server#networking), and
// the API allots service addresses from 20 bits of a network at most
// (https://kubernetes.io/docs/reference/command-line-tools-reference/kube-apiserver/).
const (
	leastPodBits, mostPodBits         = 8, 23
	leastServiceBits, mostServiceBits = 12, 24
)

// cidrForm is that of an IPv4 network of a size within bounds.
func cidrForm(least, most int) form {
	rule := fmt.Sprintf("an IPv4 network from /%d to /%d", least, most)
	return form{thing: "network", rule: rule, check: func(s string) error {
		p, err := netip.ParsePrefix(s)
		switch {
		case err != nil:
			return errors.New(`it is no network; the form is address/bits, such as "10.42.0.0/16"`)
		case !p.Addr().Is4():
			return errors.New("clusters have IPv4 networks; give " + rule)
		case p.Bits() < least, p.Bits() > most:
			return errors.New("it has to be " + rule)
		case p.Masked() != p:
			return fmt.Errorf("its address is not the first of the network; write %q", p.Masked())
		}
		return nil
	}}
}

// networkRule validates that what is said of a network goes together.
type networkRule struct{}

// Description returns the rule.
func (networkRule) Description(context.Context) string {
	return "what the plugin offers, in networks that do not overlap"
}

// MarkdownDescription returns the rule.
func (r networkRule) MarkdownDescription(ctx context.Context) string { return r.Description(ctx) }

// ValidateObject checks what is known.
func (networkRule) ValidateObject(_ context.Context, req validator.ObjectRequest, resp *validator.ObjectResponse) {
	o := req.ConfigValue
	if o.IsNull() || o.IsUnknown() {
		return
	}
	refuse := func(attribute, value string, err error) {
		task{"use", "cni." + attribute, value}.failAt(&resp.Diagnostics, req.Path.AtName(attribute), err)
	}
	is := cniOf(o)
	pods, err1 := netip.ParsePrefix(is.PodCIDR)
	services, err2 := netip.ParsePrefix(is.ServiceCIDR)
	podCIDR, serviceCIDR := part[types.String](o, "pod_cidr"), part[types.String](o, "service_cidr")
	if known(podCIDR, serviceCIDR) && err1 == nil && err2 == nil && pods.Overlaps(services) {
		at, value := "pod_cidr", is.PodCIDR
		if podCIDR.IsNull() {
			at, value = "service_cidr", is.ServiceCIDR
		}
		refuse(at, value, fmt.Errorf("the network of the pods, %s, and that of the services, %s, overlap", is.PodCIDR, is.ServiceCIDR))
	}
	offered, ok := routings[is.Plugin]
	if !ok || !known(part[types.String](o, "plugin")) {
		return // The validator of the plugin has told what is wrong with it.
	}
	if routing := part[types.String](o, "routing"); !routing.IsNull() && known(routing) && !slices.Contains(offered, is.Routing) {
		refuse("routing", string(is.Routing), fmt.Errorf("%s has the routings %s (its default) and %s", is.Plugin, offered[0], offered[1]))
	}
	for _, attribute := range []string{"hubble", "kube_proxy_replacement"} {
		if is.Plugin != record.Cilium && part[types.Bool](o, attribute).ValueBool() {
			refuse(attribute, "", fmt.Errorf(`it is a part of Cilium, and the plugin is %s; set plugin = "cilium", or leave it out`, is.Plugin))
		}
	}
	if is.Plugin == record.Flannel {
		if is.Chart.Values != "" {
			refuse("values_yaml", "", errFlannelChart)
		}
		if chart := part[types.Object](o, "chart"); !chart.IsNull() && known(chart) {
			refuse("chart", "", errFlannelChart)
		}
	}
}

// errFlannelChart is why Flannel takes nothing that is for a chart.
var errFlannelChart = errors.New("flannel is part of k3s and has no chart; it is for the plugins calico and cilium")
