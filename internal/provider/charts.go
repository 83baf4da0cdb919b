package provider

import (
	"crypto/x509"
	"errors"
	"regexp"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/addons"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
)

func chartsAttributes() map[string]schema.Attribute {
	return map[string]schema.Attribute{
		"repository": schema.StringAttribute{
			Required: true,
			MarkdownDescription: "URL of the mirror: `https://` or `http://` of a repository with an `index.yaml` that lists all charts, or `oci://registry.example/charts` of a place in a registry that they " +
				"stand below by their names.",
			Validators: []validator.String{chartRepositoryForm("charts.repository")},
		},
		"username": schema.StringAttribute{
			Optional:            true,
			MarkdownDescription: "User name at the mirror, with `password`. Default: nobody logs in.",
			Validators:          []validator.String{stringvalidator.LengthAtLeast(1)},
		},
		"password": schema.StringAttribute{
			Optional: true, Sensitive: true,
			MarkdownDescription: "Password or token of `username`. It is sent to the mirror alone, not over `http://`, and stands neither in the state nor on the nodes. Default: none.",
			Validators:          []validator.String{stringvalidator.LengthAtLeast(1)},
		},
		"ca_pem": schema.StringAttribute{
			Optional:            true,
			MarkdownDescription: "Certificates of authorities, in PEM, that vouch for the mirror beside those that this machine trusts. Default: none.",
			Validators:          []validator.String{form{thing: "charts.ca_pem", rule: "certificates in PEM", secret: true, check: checkCertificates}},
		},
	}
}

func checkCertificates(s string) error {
	switch {
	case strings.Contains(s, "PRIVATE KEY"):
		return errors.New("it holds a private key; give certificates alone")
	case !x509.NewCertPool().AppendCertsFromPEM([]byte(s)):
		return errors.New(`it holds no certificate in PEM, which begins with "-----BEGIN CERTIFICATE-----"; give the content of the file, file("ca.pem")`)
	}
	return nil
}

// chartsOf reads where charts come from, of which everything is known.
func chartsOf(o types.Object, diags *diag.Diagnostics) addons.Options {
	charts := addons.Options{
		Repository: part[types.String](o, "repository").ValueString(), Username: part[types.String](o, "username").ValueString(), Password: part[types.String](o, "password").ValueString(),
	}
	if ca := part[types.String](o, "ca_pem").ValueString(); ca != "" {
		charts.CA = []byte(ca)
	}
	refuse := func(attribute string, err error) {
		task{"use", "charts." + attribute, ""}.failAt(diags, path.Root("charts").AtName(attribute), err)
	}
	switch {
	case charts.Username != "" && charts.Password == "":
		refuse("username", errors.New("there is no password beside it; give both, or neither"))
	case charts.Username == "" && charts.Password != "":
		refuse("password", errors.New("there is no username beside it; give both, or neither"))
	case charts.Password != "" && strings.HasPrefix(charts.Repository, "http://"):
		refuse("password", &cluster.Failure{
			Err:    errors.New("the password would be sent unencrypted to charts.repository, which begins with http://"),
			Remedy: "give a repository that begins with https:// or oci://, or no password.",
		})
	}
	return charts
}

// registryPort is the port behind the host of a registry, and imagePath a path in one
// (https://github.com/distribution/reference/blob/main/reference.go).
var (
	registryPort = regexp.MustCompile(`:[0-9]{1,5}$`)
	imagePath    = regexp.MustCompile(`^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*$`)
)

// imageRegistryForm is that of a place in a registry of images.
func imageRegistryForm() form {
	return form{thing: "image_registry", rule: "host[:port][/path]", secret: true, check: func(s string) error {
		host, inside, nested := strings.Cut(s, "/")
		switch {
		case strings.Contains(s, "://"):
			return errors.New("it is a URL; write host, port and path alone")
		case strings.Contains(s, "@"):
			return errors.New("it holds credentials, which would stand on all nodes; give them by registries_yaml")
		case !certifiable(registryPort.ReplaceAllString(host, "")), nested && !imagePath.MatchString(inside):
			return errors.New(`the form is host[:port][/path], such as "registry.example" or "192.0.2.7:5000/mirror"`)
		}
		return nil
	}}
}
