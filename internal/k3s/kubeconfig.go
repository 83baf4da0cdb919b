package k3s

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	"go.yaml.in/yaml/v3"
)

// Kubeconfig gives the administrator's access to a cluster. Printing one shows no key.
type Kubeconfig struct {
	// Name is that of the cluster, which its context and user go by too.
	Name string
	// Raw is the whole file. The same access always gives the same bytes.
	Raw []byte
	// Endpoint is the URL of the API, https://host:port.
	Endpoint string
	// Host is the name or address in Endpoint, without port or brackets.
	Host string
	// CACertificate, ClientCertificate and ClientKey are PEM.
	CACertificate     []byte
	ClientCertificate []byte
	ClientKey         []byte
	// ExpiresAt is the end of the client certificate, which k3s makes for a year.
	ExpiresAt time.Time
}

// String tells where the access leads.
func (k Kubeconfig) String() string { return "kubeconfig for " + k.Endpoint }

// GoString is String: the fields hold a private key.
func (k Kubeconfig) GoString() string { return k.String() }

// kubeconfigFile is a kubeconfig as far as k3s fills it, in the order that kubectl writes it
// (https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/).
type kubeconfigFile struct {
	APIVersion     string         `yaml:"apiVersion"`
	Clusters       []namedCluster `yaml:"clusters"`
	Contexts       []namedContext `yaml:"contexts"`
	CurrentContext string         `yaml:"current-context"`
	Kind           string         `yaml:"kind"`
	Users          []namedUser    `yaml:"users"`
}

type namedCluster struct {
	Cluster struct {
		CA     string `yaml:"certificate-authority-data"`
		Server string `yaml:"server"`
	} `yaml:"cluster"`
	Name string `yaml:"name"`
}

type namedContext struct {
	Context struct {
		Cluster string `yaml:"cluster"`
		User    string `yaml:"user"`
	} `yaml:"context"`
	Name string `yaml:"name"`
}

type namedUser struct {
	Name string `yaml:"name"`
	User struct {
		Certificate string `yaml:"client-certificate-data"`
		Key         string `yaml:"client-key-data"`
	} `yaml:"user"`
}

// ParseKubeconfig makes a kubeconfig for use from elsewhere of the file KubeconfigPath: cluster, user and context are
// called name instead of "default", and a server on the loopback, in whatever spelling, becomes host. Host is a name or
// an address, and may carry a port, which then stands for the file's own.
//
// A file that is cut or lacks a part is an error. No error holds any of the content.
func ParseKubeconfig(raw []byte, name, host string) (Kubeconfig, error) {
	var file kubeconfigFile
	if err := yaml.Unmarshal(raw, &file); err != nil {
		// The reason would quote the file.
		return Kubeconfig{}, errors.New("the kubeconfig is not the YAML of one")
	}
	if name == "" {
		return Kubeconfig{}, errors.New("the kubeconfig needs a name for its cluster")
	}
	cluster, user, err := file.current()
	if err != nil {
		return Kubeconfig{}, err
	}
	k := Kubeconfig{Name: name}
	if k.Endpoint, k.Host, err = reachable(cluster.Cluster.Server, host); err != nil {
		return Kubeconfig{}, err
	}
	if k.CACertificate, err = decodePEM("certificate-authority-data", cluster.Cluster.CA); err != nil {
		return Kubeconfig{}, err
	}
	if k.ClientCertificate, err = decodePEM("client-certificate-data", user.User.Certificate); err != nil {
		return Kubeconfig{}, err
	}
	if k.ClientKey, err = decodePEM("client-key-data", user.User.Key); err != nil {
		return Kubeconfig{}, err
	}
	if k.ExpiresAt, err = check(k); err != nil {
		return Kubeconfig{}, err
	}
	if k.Raw, err = k.encode(); err != nil {
		return Kubeconfig{}, err
	}
	return k, nil
}

// current finds the cluster and the user of the current context.
func (f kubeconfigFile) current() (namedCluster, namedUser, error) {
	for _, c := range f.Contexts {
		if c.Name != f.CurrentContext {
			continue
		}
		for _, cluster := range f.Clusters {
			if cluster.Name != c.Context.Cluster {
				continue
			}
			for _, user := range f.Users {
				if user.Name == c.Context.User {
					return cluster, user, nil
				}
			}
		}
	}
	return namedCluster{}, namedUser{}, errors.New("the kubeconfig is not complete: its current context has no cluster and user")
}

// decodePEM decodes a field that holds nothing but whole PEM blocks.
func decodePEM(field, value string) ([]byte, error) {
	if value == "" {
		return nil, fmt.Errorf("the kubeconfig is not complete: no %s", field)
	}
	b, err := base64.StdEncoding.DecodeString(value)
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig is damaged: %s is not base64", field)
	}
	for rest := b; len(bytes.TrimSpace(rest)) > 0; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return nil, fmt.Errorf("the kubeconfig is damaged: %s is not whole PEM", field)
		}
	}
	return b, nil
}

// check proves that certificates and key can be used, and returns when the client certificate ends.
func check(k Kubeconfig) (time.Time, error) {
	if !x509.NewCertPool().AppendCertsFromPEM(k.CACertificate) {
		return time.Time{}, errors.New("the kubeconfig is damaged: certificate-authority-data is no certificate")
	}
	pair, err := tls.X509KeyPair(k.ClientCertificate, k.ClientKey)
	if err != nil {
		return time.Time{}, errors.New("the kubeconfig is damaged: client-certificate-data and client-key-data are not a pair")
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return time.Time{}, fmt.Errorf("the kubeconfig is damaged: client-certificate-data: %w", err)
	}
	return leaf.NotAfter.UTC(), nil
}

func (k Kubeconfig) encode() ([]byte, error) {
	name := k.Name
	cluster, context, user := namedCluster{Name: name}, namedContext{Name: name}, namedUser{Name: name}
	cluster.Cluster.CA = base64.StdEncoding.EncodeToString(k.CACertificate)
	cluster.Cluster.Server = k.Endpoint
	context.Context.Cluster, context.Context.User = name, name
	user.User.Certificate = base64.StdEncoding.EncodeToString(k.ClientCertificate)
	user.User.Key = base64.StdEncoding.EncodeToString(k.ClientKey)
	return encode(kubeconfigFile{
		APIVersion:     "v1",
		Clusters:       []namedCluster{cluster},
		Contexts:       []namedContext{context},
		CurrentContext: name,
		Kind:           "Config",
		Users:          []namedUser{user},
	})
}
