package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// writeConfig writes config files by name under a directory and returns the first one's path.
func writeConfig(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := writeFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "config.yaml")
}

func TestConfigPrecedence(t *testing.T) {
	file := writeConfig(t, map[string]string{
		"config.yaml":           "token: first\nwrite-kubeconfig-mode: \"0644\"\nnode-label: [a=1, b=2]\ndisable: traefik,servicelb\ncluster-init: true\ntls-san+: [early]\n",
		"config.yaml.d/20.yaml": "token: third\nnode-label+: [c=3]\ntls-san: [san]\n",
		"config.yaml.d/10.yml":  "token: second\nnode-taint:\n- k=v:NoSchedule\n",
		"config.yaml.d/30.txt":  "token: not read\n",
	})
	args, err := withConfig([]string{"--config", file, "--write-kubeconfig-mode=0600", "--node-label", "d=4"})
	if err != nil {
		t.Fatal(err)
	}
	v, err := parseFlags(flagsOf("server"), args)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{
		"token": {"third"}, "node-label": {"a=1", "b=2", "c=3", "d=4"}, "disable": {"traefik", "servicelb"},
		"node-taint": {"k=v:NoSchedule"}, "tls-san": {"san"},
	} {
		if got := v.all(name); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	if got := v.str("write-kubeconfig-mode", ""); got != "0600" {
		t.Errorf("a flag does not win over the config: %s", got)
	}
	if !v.is("cluster-init", false) {
		t.Error("cluster-init is off")
	}
}

// An empty list in a drop-in takes away what the config file has.
func TestConfigDropInWithoutValues(t *testing.T) {
	file := writeConfig(t, map[string]string{
		"config.yaml":           "token: s3cret\ntls-san:\n- lb.example\n",
		"config.yaml.d/90.yaml": "tls-san: []\n",
	})
	args, err := withConfig([]string{"--config", file})
	if err != nil || !reflect.DeepEqual(args, []string{"--token=s3cret", "--config", file}) {
		t.Errorf("got %q, %v", args, err)
	}
}

func TestConfigErrors(t *testing.T) {
	for name, text := range map[string]string{"map": "node-label: {a: b}\n", "list": "- a\n", "syntax": "a: [\n"} {
		if _, err := readConfig(writeConfig(t, map[string]string{"config.yaml": text}), true); err == nil {
			t.Errorf("%s was read", name)
		}
	}
	missing := filepath.Join(t.TempDir(), "none")
	if _, err := readConfig(missing, true); err == nil {
		t.Error("a config file that was asked for may be missing")
	}
	if args, err := readConfig(missing, false); err != nil || len(args) != 0 {
		t.Errorf("without a config file: %v, %v", args, err)
	}
}

func TestFlags(t *testing.T) {
	t.Setenv("K3S_TOKEN", "from-env")
	t.Setenv("K3S_URL", "https://env:6443")
	for name, c := range map[string]struct {
		command string
		args    []string
		want    string // of the token and the server; or the error
		fails   bool
	}{
		"environment":           {command: "agent", want: "from-env https://env:6443"},
		"flag wins":             {command: "agent", args: []string{"-t", "x", "-s=https://a:6443"}, want: "x https://a:6443"},
		"last wins":             {command: "agent", args: []string{"--token", "x", "--token=y"}, want: "y https://env:6443"},
		"unknown":               {command: "server", args: []string{"--no-such"}, want: "flag provided but not defined: -no-such", fails: true},
		"server's, on an agent": {command: "agent", args: []string{"--cluster-init"}, want: "flag provided but not defined: -cluster-init", fails: true},
		"agent's, on a server":  {command: "server", args: []string{"--node-label", "a=b"}, want: "from-env https://env:6443"},
		"no value":              {command: "server", args: []string{"--token"}, want: "flag needs an argument: -token", fails: true},
		"no boolean":            {command: "server", args: []string{"--cluster-init=maybe"}, want: `invalid value "maybe"`, fails: true},
		"no number":             {command: "server", args: []string{"--https-listen-port=x"}, want: `invalid value "x"`, fails: true},
		"a word":                {command: "server", args: []string{"word"}, want: "invalid arguments: word", fails: true},
	} {
		v, err := parseFlags(flagsOf(c.command), c.args)
		if c.fails {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: got %v, want %q", name, err, c.want)
			}
			continue
		}
		if got := v.str("token", "") + " " + v.str("server", ""); err != nil || got != c.want {
			t.Errorf("%s: got %q, %v; want %q", name, got, err, c.want)
		}
	}
}

func TestReadOptions(t *testing.T) {
	t.Setenv("K3S_CONFIG_FILE", writeConfig(t, map[string]string{"config.yaml": "node-ip: 192.0.2.7\nnode-name: Node-A\n"}))
	tokenFile := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(tokenFile, []byte("from-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := readOptions("agent", []string{"--server", "https://cp:6443/", "--token-file", tokenFile, "--node-label", "tier=web", "--node-taint", "a=b:NoSchedule"}, "v1.36.1+k3s1")
	if err != nil {
		t.Fatal(err)
	}
	if o.nodeName != "node-a" || o.nodeIP.String() != "192.0.2.7" || o.url != "https://cp:6443" || o.token != "from-file" || o.labels["tier"] != "web" || len(o.taints) != 1 {
		t.Errorf("options %+v", o)
	}
	for name, c := range map[string]struct {
		command string
		args    []string
		want    string
	}{
		"no token":   {"agent", []string{"--server", "https://cp:6443"}, "--token is required"},
		"no server":  {"agent", []string{"--token", "x"}, "--server is required"},
		"no TLS":     {"server", []string{"--server", "http://cp:6443", "--token", "x"}, "only https:// URLs are supported"},
		"role label": {"server", []string{"--node-label", "node-role.kubernetes.io/worker=true"}, "unknown 'kubernetes.io' or 'k8s.io' labels"},
		"taint":      {"server", []string{"--node-taint", "a=b"}, "invalid taint spec"},
		"effect":     {"server", []string{"--node-taint", "a=b:Never"}, "invalid taint spec"},
		"label":      {"server", []string{"--node-label", "a"}, "key=value is expected"},
		"backend":    {"server", []string{"--flannel-backend", "ipsec"}, "unknown flannel backend"},
		"unknown":    {"server", []string{"--x"}, "Incorrect Usage"},
		"no effect":  {"server", []string{"--cluster-reset"}, "not part of the lab's stand-in"},
	} {
		if _, err := readOptions(c.command, c.args, "v1.36.1+k3s1"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

func TestLabelsThatAKubeletMaySet(t *testing.T) {
	for label, ok := range map[string]bool{
		"tier=web": true, "example.com/a=b": true, "node.kubernetes.io/pool=x": true, "kubelet.kubernetes.io/a=b": true,
		"topology.kubernetes.io/zone=z": true, "node-role.kubernetes.io/worker=": false, "kubernetes.io/role=x": false, "foo.k8s.io/a=b": false,
		"x.node.kubernetes.io/a=b": true,
	} {
		if _, err := parseLabels([]string{label}); (err == nil) != ok {
			t.Errorf("%s: got %v, want allowed %v", label, err, ok)
		}
	}
}

func TestNodeArgsHideSecrets(t *testing.T) {
	got := nodeArgs([]string{"server", "--token=abc", "--agent-token", "def", "-t", "ghi", "--secrets-encryption", "--disable=traefik", "--etcd-s3-secret-key=k"})
	want := `["server","--token","********","--agent-token","********","-t","********","--secrets-encryption","--disable","traefik","--etcd-s3-secret-key","********"]`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
