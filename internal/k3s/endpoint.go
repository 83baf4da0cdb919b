package k3s

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// apiPort is where a server answers both the Kubernetes API and joining nodes
// (https://docs.k3s.io/installation/requirements#networking).
const apiPort = "6443"

// ServerURL turns an endpoint, host[:port] with 6443 for a missing port, into the URL of the API, which is also that where
// nodes join. An IPv6 address needs brackets only before a port. The bare host is what a certificate has to name.
func ServerURL(endpoint string) (serverURL, host string, err error) {
	host, port, err := splitHost(endpoint)
	if err != nil {
		return "", "", err
	}
	host = strings.TrimSuffix(host, ".") // which no certificate has
	if loopback(host) {
		return "", "", fmt.Errorf("%q means another machine to everyone that asks", endpoint)
	}
	return "https://" + net.JoinHostPort(host, cmp.Or(port, apiPort)), host, nil
}

// reachable returns the URL and the host of the API as seen from elsewhere: server, with host in place of a loopback.
func reachable(server, host string) (endpoint, bare string, err error) {
	u, err := url.Parse(server)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" {
		return "", "", errors.New("the kubeconfig's server is not an https URL")
	}
	bare, port := u.Hostname(), u.Port()
	if loopback(bare) {
		var own string
		if bare, own, err = splitHost(host); err != nil {
			return "", "", err
		}
		port = cmp.Or(own, port)
	}
	authority := bare
	switch {
	case port != "":
		authority = net.JoinHostPort(bare, port)
	case strings.Contains(bare, ":"):
		authority = "[" + bare + "]"
	}
	u = &url.URL{Scheme: u.Scheme, Host: authority, Path: strings.TrimRight(u.Path, "/")}
	return u.String(), bare, nil
}

// loopback reports whether a host means the machine that asks, in any spelling, or every address of a machine.
func loopback(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "localhost" || strings.HasSuffix(host, ".localhost") || host == "localhost.localdomain" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	ip = ip.Unmap()
	return ip.IsLoopback() || ip.IsUnspecified()
}

// hostName is what a DNS name looks like.
var hostName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?\.?$`)

// splitHost parts a host from the port that it may carry; an IPv6 address may stand in brackets.
func splitHost(host string) (bare, port string, err error) {
	bare = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if h, p, err := net.SplitHostPort(host); err == nil {
		bare, port = h, p
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return "", "", fmt.Errorf("%q has no valid port", host)
		}
	}
	if ip, err := netip.ParseAddr(bare); err == nil && ip.Zone() == "" {
		return bare, port, nil
	}
	if !hostName.MatchString(bare) {
		return "", "", fmt.Errorf("%q is neither a host name nor an IP address that others can reach", host)
	}
	return bare, port, nil
}
