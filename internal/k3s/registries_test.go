package k3s

import (
	"strings"
	"testing"
)

func TestCheckRegistries(t *testing.T) {
	const (
		secret = "5ec7e7"
		good   = `mirrors:
  docker.io:
    endpoint:
    - https://mirror.example:5000
    rewrite:
      "^rancher/(.*)": "mirror/$1"
  "*":
configs:
  mirror.example:5000:
    auth:
      username: me
      password: ` + secret + `
    tls:
      ca_file: /etc/ssl/mirror.pem
      insecure_skip_verify: false
`
	)
	for name, tt := range map[string]struct{ text, want string }{
		"good":                {good, ""},
		"header":              {"---\n" + good, ""},
		"end":                 {good + "...\n", ""},
		"digits":              {"configs: {x: {auth: {username: 1, password: 5}}}\n", ""},
		"anchor":              {"configs:\n  a: &a {auth: {identity_token: " + secret + "}}\n  b: *a\n", ""},
		"deprecated":          {"auths: {x: {auth: " + secret + "}}\n", ""},
		"nothing":             {"", "says nothing"},
		"a comment":           {"# " + secret + "\n", "says nothing"},
		"misspelt":            {"mirors: {}\n", "line 1: k3s reads nothing named mirors there; did you mean mirrors?"},
		"plural":              {"mirrors:\n  docker.io:\n    endpoints: [https://x]\n", "line 3: k3s reads nothing named endpoints there; did you mean endpoint?"},
		"dashes":              {"configs: {x: {tls: {ca-file: /x}}}\n", "did you mean ca_file?"},
		"other word":          {"configs: {x: {tls: {insecure_skip_tls_verify: true}}}\n", "did you mean insecure_skip_verify?"},
		"misspelt credential": {"configs: {x: {auth: {pasword: " + secret + "}}}\n", "did you mean password?"},
		"unlike anything":     {"plugins: {}\n", "nothing named plugins there"},
		"too deep":            {"mirrors:\n  configs:\n    x: {}\n", "nothing named x"},
		"not YAML":            {"configs: [" + secret, "not YAML"},
		"tab":                 {"configs:\n\tx: " + secret + "\n", "line 2"},
		"unknown alias":       {"configs: {x: {auth: {password: *" + secret + "}}}\n", "not YAML"},
		"at sign":             {"configs: {x: {auth: {password: @" + secret + "}}}\n", "not YAML"},
		"text":                {secret, "line 1"},
		"list":                {"- " + secret + "\n", "line 1"},
		"list of mirrors":     {"mirrors: [" + secret + "]\n", "line 1"},
		"one endpoint":        {"mirrors:\n  x:\n    endpoint:\n      url: " + secret + "\n", "line 4"},
		"a truth value":       {"configs: {x: {tls: {insecure_skip_verify: " + secret + "}}}\n", "line 1"},
		"twice":               {"mirrors: {}\nmirrors: {x: {endpoint: [" + secret + "]}}\n", "line 2"},
		"two documents":       {good + "---\n" + good, "more than one"},
		"NUL":                 {"configs: \x00" + secret, "not YAML"},
	} {
		err := CheckRegistries(tt.text)
		wantError(t, name, err, tt.want)
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the error holds a value: %v", name, err)
		}
	}
}
