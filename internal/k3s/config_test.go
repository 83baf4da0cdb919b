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
default-local-storage-path: /opt/local-path-provisioner
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
default-local-storage-path: /opt/local-path-provisioner
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

func TestTLSSANs(t *testing.T) {
	for want, sans := range map[string][]string{
		"tls-san:\n- k3s.example.test\n- 192.0.2.50\n": {"k3s.example.test", "192.0.2.50"},
		"tls-san: []\n": nil, // which is not the same as no key
	} {
		golden(t, func() ([]byte, error) { return TLSSANsYAML(sans) }, want)
	}
	if filepath.Dir(TLSSANsPath) != ConfigPath+".d" || filepath.Ext(TLSSANsPath) != ".yaml" {
		t.Errorf("k3s does not read %s", TLSSANsPath)
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
