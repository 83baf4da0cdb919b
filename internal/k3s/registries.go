package k3s

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// registriesFile is what k3s reads in RegistriesPath (https://docs.k3s.io/installation/private-registry,
// https://github.com/rancher/wharfie). It passes over anything else in silence.
type registriesFile struct {
	Mirrors map[string]struct {
		Endpoint []string          `yaml:"endpoint"`
		Rewrite  map[string]string `yaml:"rewrite"`
	} `yaml:"mirrors"`
	Configs map[string]struct {
		Auth registryAuth `yaml:"auth"`
		TLS  struct {
			CAFile             string `yaml:"ca_file"`
			CertFile           string `yaml:"cert_file"`
			KeyFile            string `yaml:"key_file"`
			InsecureSkipVerify bool   `yaml:"insecure_skip_verify"`
		} `yaml:"tls"`
	} `yaml:"configs"`
	Auths map[string]registryAuth `yaml:"auths"`
}

type registryAuth struct {
	Username      string `yaml:"username"`
	Password      string `yaml:"password"`
	Auth          string `yaml:"auth"`
	IdentityToken string `yaml:"identity_token"`
}

var registriesKeys = strings.Fields(`mirrors endpoint rewrite configs auth tls ca_file cert_file key_file insecure_skip_verify
	auths username password identity_token`)

// unknownKey and errorLine find in an error of the YAML library what may be told: the rest of it may hold a value.
var (
	unknownKey = regexp.MustCompile(`line (\d+): field ([A-Za-z0-9_.-]+) not found in type`)
	errorLine  = regexp.MustCompile(`line \d+`)
)

// CheckRegistries says what is wrong with a text for RegistriesPath. Its errors hold no value of the text, which may be a
// secret.
func CheckRegistries(text string) error {
	d := yaml.NewDecoder(strings.NewReader(text))
	d.KnownFields(true)
	var file registriesFile
	if err := d.Decode(&file); errors.Is(err, io.EOF) {
		return errors.New("it says nothing")
	} else if err != nil {
		return registriesError(err.Error())
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return errors.New("it has more than one YAML document, and k3s reads the first")
	}
	return nil
}

// registriesError tells an error of the YAML library without any value.
func registriesError(text string) error {
	if m := unknownKey.FindStringSubmatch(text); m != nil {
		if near := nearest(m[2], registriesKeys, 1+len(m[2])/4); near != "" {
			return fmt.Errorf("line %s: k3s reads nothing named %s there; did you mean %s?", m[1], m[2], near)
		}
		return fmt.Errorf("line %s: k3s reads nothing named %s there", m[1], m[2])
	}
	if line := errorLine.FindString(text); line != "" {
		return fmt.Errorf("%s: it is not YAML there, or not of the kind that k3s wants in a registries.yaml", line)
	}
	return errors.New("it is not YAML")
}
