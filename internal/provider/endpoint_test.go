package provider

import (
	"strings"
	"testing"
)

func TestEndpointForm(t *testing.T) {
	for endpoint, want := range map[string]string{
		"k8s.example":         "",
		"k8s.example:443":     "",
		"192.0.2.10":          "",
		"192.0.2.10:6443":     "",
		"2001:db8::10":        "",
		"[2001:db8::10]:6443": "",

		"https://k8s.example:6443":  `write host and port alone: "k8s.example:6443"`,
		"https://k8s.example:6443/": `write host and port alone: "k8s.example:6443"`,
		"k8s.example/path":          `write host and port alone: "k8s.example"`,
		"k8s.example:":              "the form is host[:port]",
		"k8s.example:port":          "no valid port",
		"k8s.example:70000":         "no valid port",
		"k8s example":               "the form is host[:port]",
		"*.example":                 "the form is host[:port]",
		"fe80::1%eth0":              "the form is host[:port]",
		"192.0.2.300:6443":          "the form is host[:port]",
		"k8s..example":              "the form is host[:port]",
		"localhost":                 "another machine to everyone",
		"127.0.0.1:6443":            "another machine to everyone",
		"":                          "the form is host[:port]",
	} {
		err := endpointForm().check(endpoint)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: got %v, want %q", endpoint, err, want)
		}
	}
}

func TestCertificateNameForm(t *testing.T) {
	for name, want := range map[string]string{
		"k8s.example":  "",
		"k8s":          "",
		"k8s.1st":      "",
		"192.0.2.10":   "",
		"2001:db8::10": "",

		"*.k8s.example":       "wildcards",
		"k8s.example:6443":    `write "k8s.example"`,
		"192.0.2.10:6443":     `write "192.0.2.10"`,
		"[2001:db8::10]:6443": `write "2001:db8::10"`,
		"[2001:db8::10]":      `without brackets; write "2001:db8::10"`,
		"[k8s example]":       "neither a DNS name nor an IP address",
		"fe80::1%eth0":        "zone",
		"https://k8s.example": "write its host alone",
		"a.example,b.example": "an element of its own",
		"k8s example":         "neither a DNS name nor an IP address",
		"192.0.2.300":         "neither a DNS name nor an IP address",
		"k8s..example":        "neither a DNS name nor an IP address",
		"":                    "neither a DNS name nor an IP address",
	} {
		err := sanForm().check(name)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: got %v, want %q", name, err, want)
		}
	}
}

func TestValidateNamesOfTheAPI(t *testing.T) {
	w := newWorld(t, someTemplate())
	wantDiags(t, w.validate(clusterType, with(clusterConfig(), object{"endpoint": "https://lb"})), `error at endpoint: Unable to use endpoint "https://lb"`)
	wantDiags(t, w.validate(clusterType, with(clusterConfig(), object{"tls_sans": []any{"k8s.example", "*.example"}})),
		`error at tls_sans.1: Unable to use name for the certificate "*.example"`)
}
