package k3s

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// LocalStoragePath is where the volumes of the local-path storage class stand on a node unless the user says otherwise.
const LocalStoragePath = "/opt/local-path-provisioner"

// kubeconfigMode lets every user of a server read its kubeconfig, as k3s documents it for --write-kubeconfig-mode.
const kubeconfigMode = "0644"

// disabled are the parts that k3s does not deploy: no cluster has traefik, and the local-path class has a chart of its own, so
// that it comes and goes, and is the default or not, without a restart of k3s.
var disabled = []string{"traefik", "local-storage"}

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
	// Registry as in ServerSettings.
	Registry string
	Network  Network
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
		Registry            string   `yaml:"system-default-registry,omitempty"`
		KubeconfigMode      string   `yaml:"write-kubeconfig-mode"`
		Disable             []string `yaml:"disable"`
		Network             network  `yaml:",inline"`
		CloudControllerArgs []string `yaml:"kube-cloud-controller-manager-arg,omitempty"`
	}{
		NodeName:       c.NodeName,
		Server:         c.ServerURL,
		ClusterInit:    c.ServerURL == "",
		Token:          c.Token,
		TLSSANs:        c.TLSSANs,
		Registry:       c.Registry,
		KubeconfigMode: kubeconfigMode,
		Disable:        disabled,
		Network:        c.Network.settings(),
	}
	if c.Version.HasCloudControllerRace() {
		file.CloudControllerArgs = cloudControllerArgs
	}
	return encode(file)
}

// ServerSettings is what may change on a server that stands. k3s reads it when it starts.
type ServerSettings struct {
	// TLSSANs as in ServerConfig. A restart adds to the server's certificate what is new. Names that went stay valid: the
	// certificate is one for all servers, and k3s only ever adds to it (https://github.com/rancher/dynamiclistener).
	TLSSANs []string
	// Registry is where the images of k3s' own parts come from, "" for their usual place. k3s puts it and a slash before
	// their names, so that it may have a path: registry.example:5000/mirror. Agents need no setting of their own: they ask
	// their server for it when they start, for the image of the pods' sandboxes
	// (https://github.com/k3s-io/k3s/blob/main/pkg/agent/config/config.go). How the registry is reached is told by a
	// registries.yaml.
	Registry string
}

// YAML is the text of ServerSettingsPath. It stands in the place of the same settings in ConfigPath, so that none is written
// too where it is to mean none.
func (s ServerSettings) YAML() ([]byte, error) {
	return encode(struct {
		TLSSANs  []string `yaml:"tls-san"`
		Registry string   `yaml:"system-default-registry"`
	}{s.TLSSANs, s.Registry})
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
