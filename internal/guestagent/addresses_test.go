package guestagent

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// guestNIC renders one interface of an answer to guest-network-get-interfaces.
func guestNIC(name, mac string, addresses ...string) string {
	var list []string
	for _, a := range addresses {
		list = append(list, `{"ip-address-type":"any","ip-address":"`+a+`","prefix":24}`)
	}
	return `{"name":"` + name + `","hardware-address":"` + mac + `","ip-addresses":[` + strings.Join(list, ",") + `]}`
}

func TestAddresses(t *testing.T) {
	const mac = "52:54:00:00:00:11"
	lo := guestNIC("lo", "00:00:00:00:00:00", "127.0.0.1", "::1")
	tests := map[string]struct {
		interfaces []string
		mac        string
		want       []string
	}{
		"no interface yet":   {},
		"no address yet":     {interfaces: []string{lo, guestNIC("ens3", mac)}},
		"no list yet":        {interfaces: []string{`{"name":"ens3","hardware-address":"` + mac + `"}`}},
		"no MAC":             {interfaces: []string{`{"name":"sit0","ip-addresses":[{"ip-address":"192.0.2.9"}]}`}},
		"an address":         {interfaces: []string{lo, guestNIC("ens3", mac, "192.0.2.11")}, want: []string{"192.0.2.11"}},
		"upper case":         {interfaces: []string{guestNIC("ens3", "52:54:00:AB:CD:EF", "192.0.2.11")}, mac: "52:54:00:ab:cd:ef", want: []string{"192.0.2.11"}},
		"mapped IPv4":        {interfaces: []string{guestNIC("ens3", mac, "::ffff:192.0.2.11", "192.0.2.11")}, want: []string{"192.0.2.11"}},
		"nonsense":           {interfaces: []string{guestNIC("ens3", mac, "", "fe80", "192.0.2", "192.0.2.300")}},
		"unusable":           {interfaces: []string{guestNIC("ens3", mac, "0.0.0.0", "::", "224.0.0.1", "ff02::1", "127.0.0.2", "255.255.255.255")}},
		"two of each family": {interfaces: []string{guestNIC("ens3", mac, "2001:db8::2", "192.0.2.12", "2001:db8::1", "192.0.2.11")}, want: []string{"192.0.2.12", "192.0.2.11", "2001:db8::2", "2001:db8::1"}},
		"link-local comes first": {
			interfaces: []string{guestNIC("ens3", mac, "fe80::5054:ff:fe00:12%3", "169.254.10.2", "2001:db8::12%3", "192.0.2.12")},
			want:       []string{"192.0.2.12", "2001:db8::12"},
		},
		"link-local only": {interfaces: []string{guestNIC("ens3", mac, "fe80::5054:ff:fe00:12", "169.254.10.2")}},
		"what a CNI added": {
			interfaces: []string{
				guestNIC("cni0", "8a:00:00:00:00:01", "10.42.0.1"), guestNIC("flannel.1", "8a:00:00:00:00:02", "10.42.0.0"),
				guestNIC("cilium_host", "8a:00:00:00:00:03", "10.0.0.7"), guestNIC("ens3", mac, "192.0.2.11"),
			},
			want: []string{"192.0.2.11"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.mac == "" {
				tt.mac = mac
			}
			agent, _ := play(t, step{command: cmdInterfaces, reply: `{"return":[` + strings.Join(tt.interfaces, ",") + `]}`})
			got, err := agent.Addresses(t.Context(), tt.mac)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func FuzzAddresses(f *testing.F) {
	const mac = "52:54:00:00:00:11"
	f.Add([]byte(`[]`))
	f.Add([]byte(`[` + guestNIC("ens3", mac, "fe80::1%3", "192.0.2.11", "::ffff:192.0.2.11") + `]`))
	f.Add([]byte(`[{"hardware-address":"52-54-00-00-00-11","ip-addresses":[{"ip-address":"2001:db8::1%eth0"}]}]`))
	f.Fuzz(func(t *testing.T, answer []byte) {
		var interfaces []netInterface
		if json.Unmarshal(answer, &interfaces) != nil {
			return
		}
		got := choose(interfaces, mac)
		v6 := false
		for i, text := range got {
			addr, err := netip.ParseAddr(text)
			if err != nil || !addr.IsGlobalUnicast() || addr.Zone() != "" || addr.Is4In6() {
				t.Errorf("%q is no usable address", text)
			}
			if slices.Contains(got[:i], text) {
				t.Errorf("%q stands twice in %q", text, got)
			}
			if v6 && addr.Is4() {
				t.Errorf("IPv4 after IPv6 in %q", got)
			}
			v6 = v6 || addr.Is6()
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"return":{"exited":true,"exitcode":0,"out-data":"aGk="}}`))
	f.Add([]byte(`{"return":{"count":2,"buf-b64":"aGk=","eof":true}}`))
	f.Add([]byte(`{"error":{"class":"GenericError","desc":"no"}}`))
	f.Fuzz(func(t *testing.T, reply []byte) {
		for _, result := range []any{nil, new(execStatus), new(fileChunk), new([]netInterface), new(int64)} {
			if err := decode(reply, result); err == nil && !json.Valid(reply) {
				t.Errorf("%q was taken for an answer", reply)
			}
		}
	})
}
