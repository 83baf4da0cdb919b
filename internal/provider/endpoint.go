package provider

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"strings"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/k3s"
)

// endpointForm is that of a load balancer or virtual address in front of the servers.
func endpointForm() form {
	return form{thing: "endpoint", rule: "host[:port], without a scheme", check: func(s string) error {
		rest := s
		if _, after, found := strings.Cut(s, "://"); found {
			rest = after
		}
		if host, _, _ := strings.Cut(rest, "/"); host != s {
			return fmt.Errorf("%q is a URL; write host and port alone: %q", s, host)
		}
		_, host, err := k3s.ServerURL(s)
		if err == nil && !certifiable(host) {
			err = fmt.Errorf("%q is neither a host name nor an IP address", s)
		}
		if err != nil {
			return fmt.Errorf(`%w; the form is host[:port], such as "k8s.example" or "192.0.2.10:6443", with an IPv6 address in brackets before a port: "[2001:db8::10]:6443"`, err)
		}
		return nil
	}}
}

// dnsLabels are parts with dots between them, and lastNumber is a number as the last of them, which no DNS name has
// (https://www.rfc-editor.org/rfc/rfc3696#section-2): that is an address with a slip.
var (
	dnsLabels  = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?\.)*[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?$`)
	lastNumber = regexp.MustCompile(`(^|\.)[0-9]+$`)
)

// certifiable reports whether a certificate can name the host.
func certifiable(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return dnsLabels.MatchString(host) && !lastNumber.MatchString(host)
}

// sanForm is that of a name or address in the certificate of the API.
//
// k3s drops a wildcard without a word up to v1.36.2+k3s1 and its contemporaries (https://github.com/k3s-io/k3s/issues/7821),
// and splits an element at its commas (https://github.com/k3s-io/k3s/issues/7365).
func sanForm() form {
	return form{thing: "name for the certificate", rule: "a DNS name or an IP address, without a port", check: func(s string) error {
		if ip, err := netip.ParseAddr(s); err == nil {
			if ip.Zone() != "" {
				return fmt.Errorf("%q has a zone, which means something on one machine only", s)
			}
			return nil
		}
		host, _, err := net.SplitHostPort(s)
		inner := strings.TrimSuffix(strings.TrimPrefix(s, "["), "]")
		switch {
		case strings.Contains(s, "://"):
			return errors.New("it is a URL; write its host alone")
		case strings.Contains(s, "*"):
			return errors.New("k3s leaves wildcards out of its certificate, up to v1.36.2+k3s1 at least; write each name out")
		case strings.Contains(s, ","):
			return errors.New("it holds several names; give each as an element of its own")
		case err == nil:
			return fmt.Errorf("a certificate names no ports; write %q", host)
		case inner != s && certifiable(inner):
			return fmt.Errorf("a certificate names addresses without brackets; write %q", inner)
		case !certifiable(s):
			return errors.New(`it is neither a DNS name nor an IP address, such as "k8s.example", "192.0.2.10" or "2001:db8::10"`)
		}
		return nil
	}}
}
