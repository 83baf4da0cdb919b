package hypervisor

import (
	"net/url"
	"strings"
)

// dialURI is the URI that is dialled: over ssh with no_tty, so that the ssh program never asks a person.
func dialURI(uri string) string {
	u, err := url.Parse(uri)
	if err != nil || !strings.HasSuffix(u.Scheme, "+ssh") {
		return uri
	}
	q := u.Query()
	q.Set("no_tty", "1")
	u.RawQuery = q.Encode()
	return u.String()
}

// publicURI is a URI fit for errors and logs: without user, password and parameters such as the paths of keys.
func publicURI(uri string) string {
	u, err := url.Parse(uri)
	if err != nil {
		return "the configured URI"
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}

// redact takes what publicURI drops from a text of libvirt or ssh.
func redact(text, uri string) string {
	u, err := url.Parse(uri)
	if err != nil {
		return text
	}
	pairs := []string{uri, publicURI(uri)}
	if u.User != nil {
		pairs = append(pairs, u.User.String()+"@", "")
		if name := u.User.Username(); name != "" {
			pairs = append(pairs, name+"@", "")
		}
		if password, _ := u.User.Password(); password != "" {
			pairs = append(pairs, password, "…")
		}
	}
	for _, key := range []string{"keyfile", "known_hosts", "pkipath", "command"} {
		for _, value := range u.Query()[key] {
			if value != "" {
				pairs = append(pairs, value, "…")
			}
		}
	}
	return strings.NewReplacer(pairs...).Replace(text)
}
