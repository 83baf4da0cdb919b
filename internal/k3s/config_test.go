package k3s

import (
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
