package k3s

import (
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// LocalStoragePath is where the volumes of the local-path storage class stand on a node.
const LocalStoragePath = "/opt/local-path-provisioner"

// kubeconfigMode lets every user of a server read its kubeconfig, as k3s documents it for --write-kubeconfig-mode.
const kubeconfigMode = "0644"

// cloudControllerArgs keep the embedded cloud controller manager from asking the API for what these files hold, and so
// out of the race of Version.HasCloudControllerRace.
var cloudControllerArgs = []string{
	"requestheader-client-ca-file=/var/lib/rancher/k3s/server/tls/request-header-ca.crt",
	"client-ca-file=/var/lib/rancher/k3s/server/tls/client-ca.crt",
}

// ServerConfig is the configuration of the server that starts a cluster.
type ServerConfig struct {
	Version  Version
	NodeName string
	// Token is the secret of the new cluster (NewSecret).
	Token string
}

// YAML is the text of ConfigPath. It holds the token.
func (c ServerConfig) YAML() ([]byte, error) {
	switch {
	case c.Version == Version{}:
		return nil, errors.New("the server's configuration names no version")
	case c.NodeName == "" || c.Token == "":
		return nil, errors.New("the server's configuration lacks its node name or token")
	}
	file := struct {
		NodeName            string   `yaml:"node-name"`
		Token               string   `yaml:"token"`
		KubeconfigMode      string   `yaml:"write-kubeconfig-mode"`
		Disable             []string `yaml:"disable"`
		LocalStoragePath    string   `yaml:"default-local-storage-path"`
		CloudControllerArgs []string `yaml:"kube-cloud-controller-manager-arg,omitempty"`
	}{
		NodeName:         c.NodeName,
		Token:            c.Token,
		KubeconfigMode:   kubeconfigMode,
		Disable:          []string{"traefik"},
		LocalStoragePath: LocalStoragePath,
	}
	if c.Version.HasCloudControllerRace() {
		file.CloudControllerArgs = cloudControllerArgs
	}
	return encode(file)
}

// AgentConfig is the configuration of an agent.
type AgentConfig struct {
	NodeName string
	// ServerURL is where the agent joins, https://host:6443.
	ServerURL string
	// Token is the cluster's token as a server wrote it (ParseToken).
	Token string
}

// YAML is the text of ConfigPath. It holds the token.
func (c AgentConfig) YAML() ([]byte, error) {
	switch {
	case c.NodeName == "" || c.Token == "":
		return nil, errors.New("the agent's configuration lacks its node name or token")
	case !strings.HasPrefix(c.ServerURL, "https://"):
		return nil, fmt.Errorf("the agent's server URL %q does not begin with https://", c.ServerURL)
	}
	return encode(struct {
		NodeName string `yaml:"node-name"`
		Server   string `yaml:"server"`
		Token    string `yaml:"token"`
	}{c.NodeName, c.ServerURL, c.Token})
}

// encode writes one YAML document with the indentation that kubectl uses.
func encode(v any) ([]byte, error) {
	var b strings.Builder
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	e.CompactSeqIndent()
	if err := errors.Join(e.Encode(v), e.Close()); err != nil {
		return nil, fmt.Errorf("encode YAML: %w", err)
	}
	return []byte(b.String()), nil
}
