package k3s

import "testing"

func TestServerURL(t *testing.T) {
	for endpoint, want := range map[string][2]string{
		"k3s.example.test":       {"https://k3s.example.test:6443", "k3s.example.test"},
		"k3s.example.test.":      {"https://k3s.example.test:6443", "k3s.example.test"},
		"k3s.example.test:443":   {"https://k3s.example.test:443", "k3s.example.test"},
		"lb":                     {"https://lb:6443", "lb"},
		"192.0.2.50":             {"https://192.0.2.50:6443", "192.0.2.50"},
		"192.0.2.50:8443":        {"https://192.0.2.50:8443", "192.0.2.50"},
		"2001:db8::10":           {"https://[2001:db8::10]:6443", "2001:db8::10"},
		"[2001:db8::10]":         {"https://[2001:db8::10]:6443", "2001:db8::10"},
		"[2001:db8::10]:443":     {"https://[2001:db8::10]:443", "2001:db8::10"},
		"":                       {},
		":6443":                  {},
		"lb:":                    {},
		"lb:0":                   {},
		"lb:65536":               {},
		"lb:https":               {},
		"https://lb":             {},
		"lb/path":                {},
		"user@lb":                {},
		"fe80::1%eth0":           {},
		"[fe80::1%eth0]:6443":    {},
		"localhost":              {},
		"127.0.0.1:6443":         {},
		"[::1]:6443":             {},
		"0.0.0.0":                {},
		"*.example.test":         {},
		"lb1,lb2":                {},
		"k3s.example.test:6443 ": {},
	} {
		url, host, err := ServerURL(endpoint)
		if got := [2]string{url, host}; got != want || (err == nil) != (want[0] != "") {
			t.Errorf("ServerURL(%q) = %q, %v; want %q", endpoint, got, err, want)
		}
	}
}
