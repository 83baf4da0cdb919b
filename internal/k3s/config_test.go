package k3s

import (
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

func TestServerConfig(t *testing.T) {
	config := ServerConfig{
		Version:  mustVersion(t, "v1.36.2+k3s1"),
		NodeName: "prod-cp-1",
		Token:    "5ec7e7",
	}
	const want = `node-name: prod-cp-1
cluster-init: true
token: 5ec7e7
write-kubeconfig-mode: "0644"
disable:
- traefik
- local-storage
`
	golden(t, config.YAML, want)

	config.Version = mustVersion(t, "v1.36.1+k3s1")
	golden(t, config.YAML, want+`kube-cloud-controller-manager-arg:
- requestheader-client-ca-file=/var/lib/rancher/k3s/server/tls/request-header-ca.crt
- client-ca-file=/var/lib/rancher/k3s/server/tls/client-ca.crt
`)
}

func TestServerConfigJoins(t *testing.T) {
	config := ServerConfig{
		Version:   mustVersion(t, "v1.36.2+k3s1"),
		NodeName:  "prod-cp-2",
		Token:     "K10ab::server:5ec7e7",
		ServerURL: "https://k3s.example.test:6443",
		TLSSANs:   []string{"k3s.example.test", "2001:db8::10"},
	}
	golden(t, config.YAML, `node-name: prod-cp-2
server: https://k3s.example.test:6443
token: K10ab::server:5ec7e7
tls-san:
- k3s.example.test
- 2001:db8::10
write-kubeconfig-mode: "0644"
disable:
- traefik
- local-storage
`)
}

// k3s refuses a server whose critical settings differ from those of the cluster.
func TestServersDifferOnlyInWhatIsTheirOwn(t *testing.T) {
	first := ServerConfig{Version: mustVersion(t, "v1.36.1+k3s1"), NodeName: "prod-cp-1", Token: "5ec7e7", TLSSANs: []string{"k3s.example.test"}}
	second := first
	second.NodeName, second.ServerURL = "prod-cp-2", "https://192.0.2.1:6443"
	var files [2]map[string]any
	for i, c := range []ServerConfig{first, second} {
		b, err := c.YAML()
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(b, &files[i]); err != nil {
			t.Fatal(err)
		}
		for _, own := range []string{"node-name", "server", "cluster-init"} {
			delete(files[i], own)
		}
	}
	if len(files[0]) == 0 || !reflect.DeepEqual(files[0], files[1]) {
		t.Errorf("the servers have\n%v\nand\n%v", files[0], files[1])
	}
}

func TestServerConfigNetwork(t *testing.T) {
	config := ServerConfig{Version: mustVersion(t, "v1.36.2+k3s1"), NodeName: "n", Token: "t"}
	begin := func() string {
		b, err := config.YAML()
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}()
	for name, tt := range map[string]struct {
		network Network
		want    string
	}{
		"what k3s does by itself": {Network{PodCIDR: DefaultPodCIDR, ServiceCIDR: DefaultServiceCIDR, Backend: BackendVXLAN}, ""},
		"gateways":                {Network{Backend: BackendHostGW}, "flannel-backend: host-gw\n"},
		"other addresses": {
			Network{PodCIDR: "10.100.0.0/16", ServiceCIDR: "10.101.0.0/16"},
			"cluster-cidr: 10.100.0.0/16\nservice-cidr: 10.101.0.0/16\n",
		},
		"another plugin": {Network{Backend: BackendNone}, "flannel-backend: none\ndisable-network-policy: true\n"},
		"another plugin, for services too": {
			Network{Backend: BackendNone, NoKubeProxy: true},
			"flannel-backend: none\ndisable-network-policy: true\ndisable-kube-proxy: true\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			config := config
			config.Network = tt.network
			golden(t, config.YAML, begin+tt.want)
		})
	}
}

func TestServerSettings(t *testing.T) {
	for want, settings := range map[string]ServerSettings{
		"tls-san:\n- k3s.example.test\n- 192.0.2.50\nsystem-default-registry: registry.example:5000/mirror\n": {
			TLSSANs: []string{"k3s.example.test", "192.0.2.50"}, Registry: "registry.example:5000/mirror",
		},
		"tls-san: []\nsystem-default-registry: \"\"\n": {}, // which is not the same as no keys
	} {
		golden(t, settings.YAML, want)
	}
	if filepath.Dir(ServerSettingsPath) != ConfigPath+".d" || filepath.Ext(ServerSettingsPath) != ".yaml" || ServerSettingsPath < ArgsPath {
		t.Errorf("k3s does not read %s, or not last", ServerSettingsPath)
	}
}

// What may change on a standing server must replace all that the same settings say in the configuration that it was made with.
func TestServerSettingsReplaceTheConfiguration(t *testing.T) {
	config := ServerConfig{
		Version: mustVersion(t, "v1.36.2+k3s1"), NodeName: "n", Token: "t", TLSSANs: []string{"x"}, Registry: "registry.example",
	}
	var whole, plain, settings map[string]any
	for into, encode := range map[*map[string]any]func() ([]byte, error){
		&whole: config.YAML, &plain: ServerConfig{Version: config.Version, NodeName: "n", Token: "t"}.YAML, &settings: ServerSettings{}.YAML,
	} {
		b, err := encode()
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(b, into); err != nil {
			t.Fatal(err)
		}
	}
	for key := range whole {
		_, always := plain[key]
		if _, may := settings[key]; may == always {
			t.Errorf("%s: it is in every configuration: %t, and among the settings: %t", key, always, may)
		}
	}
	if whole["system-default-registry"] != "registry.example" {
		t.Errorf("the configuration is %v", whole)
	}
}

func TestAgentConfig(t *testing.T) {
	golden(t, AgentConfig{NodeName: "prod-workers-1", ServerURL: "https://[2001:db8::10]:6443", Token: "K10ab::server:a#b: c"}.YAML,
		`node-name: prod-workers-1
server: https://[2001:db8::10]:6443
token: 'K10ab::server:a#b: c'
`)
}

func golden(t *testing.T, encode func() ([]byte, error), want string) {
	t.Helper()
	got, err := encode()
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A secret of digits must stay a text, whatever YAML would like to see in it.
func TestConfigKeepsText(t *testing.T) {
	for _, token := range []string{"0123456789", "12e45", "0x12", "1_000", "12:30:45", "on", "null", "~", "a: b #c", "'\"\\", "=", "<<"} {
		b, err := AgentConfig{NodeName: "n", ServerURL: "https://192.0.2.1:6443", Token: token}.YAML()
		if err != nil {
			t.Fatal(err)
		}
		var back map[string]any
		if err := yaml.Unmarshal(b, &back); err != nil || back["token"] != token {
			t.Errorf("token %q comes back as %#v, %v", token, back["token"], err)
		}
	}
}

func TestConfigRefuses(t *testing.T) {
	const secret = "5ec7e7"
	version := mustVersion(t, "v1.36.2+k3s1")
	for name, encode := range map[string]func() ([]byte, error){
		"a server without version":   ServerConfig{NodeName: "n", Token: secret}.YAML,
		"a server without name":      ServerConfig{Version: version, Token: secret}.YAML,
		"a server without token":     ServerConfig{Version: version, NodeName: "n"}.YAML,
		"a server at a plain URL":    ServerConfig{Version: version, NodeName: "n", Token: secret, ServerURL: "http://192.0.2.1:6443"}.YAML,
		"a server at a bare host":    ServerConfig{Version: version, NodeName: "n", Token: secret, ServerURL: "192.0.2.1:6443"}.YAML,
		"an agent without name":      AgentConfig{ServerURL: "https://192.0.2.1:6443", Token: secret}.YAML,
		"an agent without token":     AgentConfig{NodeName: "n", ServerURL: "https://192.0.2.1:6443"}.YAML,
		"an agent with a plain URL":  AgentConfig{NodeName: "n", ServerURL: "http://192.0.2.1:6443", Token: secret}.YAML,
		"an agent without a server":  AgentConfig{NodeName: "n", Token: secret}.YAML,
		"an agent with a bare host":  AgentConfig{NodeName: "n", ServerURL: "192.0.2.1:6443", Token: secret}.YAML,
		"nothing at all of a server": ServerConfig{}.YAML,
	} {
		b, err := encode()
		if err == nil {
			t.Errorf("%s: accepted as %q", name, b)
		} else if strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the error holds the token", name)
		}
	}
}
