package k3s

import (
	"errors"
	"fmt"
	"maps"
	"slices"
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

// ServerConfig is the configuration of a server. What is not a field is the same on all servers of a cluster, as k3s
// demands of most of it: a server whose critical settings differ from the others' ends at its start
// (https://docs.k3s.io/datastore/ha-embedded).
type ServerConfig struct {
	Version  Version
	NodeName string
	// Token is the secret of the new cluster (NewSecret) where the server starts one, else the cluster's token as a server
	// wrote it (ParseToken).
	Token string
	// ServerURL is where the server joins, https://host:6443. Without one it starts a cluster, with an etcd of its own that
	// others can join later.
	ServerURL string
	// TLSSANs are more names and addresses that the certificate of the API is valid for, without ports. The server's own
	// name and addresses need not be among them.
	TLSSANs []string
}

// YAML is the text of ConfigPath. It holds the token.
func (c ServerConfig) YAML() ([]byte, error) {
	switch {
	case c.Version == Version{}:
		return nil, errors.New("the server's configuration names no version")
	case c.NodeName == "" || c.Token == "":
		return nil, errors.New("the server's configuration lacks its node name or token")
	case c.ServerURL != "" && !strings.HasPrefix(c.ServerURL, "https://"):
		return nil, fmt.Errorf("the URL %q that the server joins at does not begin with https://", c.ServerURL)
	}
	file := struct {
		NodeName            string   `yaml:"node-name"`
		Server              string   `yaml:"server,omitempty"`
		ClusterInit         bool     `yaml:"cluster-init,omitempty"`
		Token               string   `yaml:"token"`
		TLSSANs             []string `yaml:"tls-san,omitempty"`
		KubeconfigMode      string   `yaml:"write-kubeconfig-mode"`
		Disable             []string `yaml:"disable"`
		LocalStoragePath    string   `yaml:"default-local-storage-path"`
		CloudControllerArgs []string `yaml:"kube-cloud-controller-manager-arg,omitempty"`
	}{
		NodeName:         c.NodeName,
		Server:           c.ServerURL,
		ClusterInit:      c.ServerURL == "",
		Token:            c.Token,
		TLSSANs:          c.TLSSANs,
		KubeconfigMode:   kubeconfigMode,
		Disable:          []string{"traefik"},
		LocalStoragePath: LocalStoragePath,
	}
	if c.Version.HasCloudControllerRace() {
		file.CloudControllerArgs = cloudControllerArgs
	}
	return encode(file)
}

// TLSSANsYAML is the text of TLSSANsPath. The list stands in the place of that in ConfigPath, so that an empty one means
// none.
//
// A server reads it when it starts, and adds to its certificate what is new. Names that went stay valid: the certificate
// is one for all servers, and k3s only ever adds to it (https://github.com/rancher/dynamiclistener).
func TLSSANsYAML(sans []string) ([]byte, error) {
	return encode(struct {
		TLSSANs []string `yaml:"tls-san"`
	}{sans})
}

// AgentConfig is the configuration of an agent.
type AgentConfig struct {
	NodeName string
	// ServerURL is where the agent joins, https://host:6443.
	ServerURL string
	// Token is the cluster's token as a server wrote it (ParseToken).
	Token string
	// Labels and Taints, each "key=value:effect", are what the node registers with, so that no pod comes before its taints;
	// later they change nothing. Labels that a kubelet may not give itself are left out (RegistrationLabels).
	Labels map[string]string
	Taints []string
}

// YAML is the text of ConfigPath. It holds the token.
func (c AgentConfig) YAML() ([]byte, error) {
	switch {
	case c.NodeName == "" || c.Token == "":
		return nil, errors.New("the agent's configuration lacks its node name or token")
	case !strings.HasPrefix(c.ServerURL, "https://"):
		return nil, fmt.Errorf("the agent's server URL %q does not begin with https://", c.ServerURL)
	}
	var labels []string
	own := RegistrationLabels(c.Labels)
	for _, key := range slices.Sorted(maps.Keys(own)) {
		labels = append(labels, key+"="+own[key])
	}
	return encode(struct {
		NodeName string   `yaml:"node-name"`
		Server   string   `yaml:"server"`
		Token    string   `yaml:"token"`
		Labels   []string `yaml:"node-label,omitempty"`
		Taints   []string `yaml:"node-taint,omitempty"`
	}{c.NodeName, c.ServerURL, c.Token, labels, slices.Sorted(slices.Values(c.Taints))})
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
