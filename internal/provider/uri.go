package provider

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// transports are what libvirt puts after "qemu+" (https://libvirt.org/uri.html#remote-uris).
var transports = []string{"ssh", "libssh", "libssh2", "tls", "tcp", "unix"}

func uriForm() form {
	return form{thing: "hypervisor URI", rule: "a libvirt URI of a QEMU hypervisor", check: checkURI, secret: true}
}

// checkURI finds the mistakes in a libvirt URI that can be seen without a connection. No error holds a password.
func checkURI(s string) error {
	if s == "" {
		return errors.New(`it is empty; the local hypervisor is "qemu:///system"`)
	}
	if !strings.Contains(s, "://") {
		host, _, _ := strings.Cut(s, "/")
		return fmt.Errorf("%q has no scheme; a hypervisor over SSH is %q", s, "qemu+ssh://"+host+"/system")
	}
	u, err := url.Parse(s)
	if err != nil {
		return errors.New("it is not a URL: check host, port and escapes")
	}
	shown := u.Redacted()
	if _, has := u.User.Password(); has {
		return fmt.Errorf("%q holds a password, which libvirt does not take from a URI; use a key or ssh-agent", shown)
	}
	driver, transport, remote := strings.Cut(u.Scheme, "+")
	switch {
	case driver != "qemu":
		return fmt.Errorf("%q is not of a QEMU hypervisor; it has to begin with qemu:/// or qemu+ssh://", shown)
	case remote && !slices.Contains(transports, transport):
		return fmt.Errorf("%q has the unknown transport %q; there are %s", shown, transport, strings.Join(transports, ", "))
	case transport == "unix" && u.Host != "":
		return fmt.Errorf("%q names a host, which a unix socket has not; write qemu+unix:///system?socket=…", shown)
	case remote && transport != "unix" && u.Hostname() == "":
		return fmt.Errorf("%q names no host; write qemu+%s://host/system", shown, transport)
	case u.Path != "/system" && u.Path != "/session":
		u.Path = "/system"
		return fmt.Errorf("%q has to end in /system or /session, such as %q", shown, u.Redacted())
	}
	return nil
}
