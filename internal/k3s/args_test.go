package k3s

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

func TestArgsYAML(t *testing.T) {
	for name, tt := range map[string]struct {
		role Role
		args []string
		want string
	}{
		"none":                  {Agent, nil, "{}\n"},
		"value":                 {Agent, []string{"--resolv-conf=/etc/k3s-resolv.conf"}, "resolv-conf: \"/etc/k3s-resolv.conf\"\n"},
		"switch":                {Server, []string{"--secrets-encryption"}, "secrets-encryption: true\n"},
		"switch with a value":   {Server, []string{"--tls-san-security=false"}, "tls-san-security: \"false\"\n"},
		"list":                  {Agent, []string{"--kubelet-arg=max-pods=50"}, "kubelet-arg+:\n- \"max-pods=50\"\n"},
		"list that is ours too": {Server, []string{"--disable=servicelb", "--disable=metrics-server,coredns"}, "disable+:\n- \"servicelb\"\n- \"metrics-server,coredns\"\n"},
		"list with a gap": {Agent, []string{"--kubelet-arg=max-pods=50", "--debug", "--kubelet-arg=v=2"},
			"kubelet-arg+:\n- \"max-pods=50\"\n- \"v=2\"\ndebug: true\n"},
		"quotes and signs":     {Agent, []string{`--kubelet-arg=x="y"=z # é`}, "kubelet-arg+:\n- \"x=\\\"y\\\"=z # é\"\n"},
		"value with spaces":    {Server, []string{"--etcd-snapshot-schedule-cron=0 */6 * * *"}, "etcd-snapshot-schedule-cron: \"0 */6 * * *\"\n"},
		"of a newer k3s":       {Server, []string{"--quantum-scheduler=on"}, "quantum-scheduler: \"on\"\n"},
		"of a newer k3s, list": {Server, []string{"--quantum-arg=a", "--quantum-arg=b"}, "quantum-arg+:\n- \"a\"\n- \"b\"\n"},
		"one letter":           {Agent, []string{"--v=2"}, "v: \"2\"\n"},
		"labels of a server":   {Server, []string{"--node-label=a=b", "--node-taint=a=b:NoSchedule"}, "node-label+:\n- \"a=b\"\nnode-taint+:\n- \"a=b:NoSchedule\"\n"},
	} {
		t.Run(name, func(t *testing.T) {
			golden(t, func() ([]byte, error) { return ArgsYAML(tt.role, tt.args) }, tt.want)
		})
	}
	if filepath.Dir(ArgsPath) != ConfigPath+".d" || filepath.Ext(ArgsPath) != ".yaml" {
		t.Errorf("k3s does not read %s", ArgsPath)
	}
}

// Every list that the configuration of a server has must be one that arguments are added to.
func TestArgsAddToOurLists(t *testing.T) {
	b, err := ServerConfig{
		Version: mustVersion(t, "v1.36.1+k3s1"), NodeName: "n", Token: "t", TLSSANs: []string{"x"}, Registry: "x",
		Network: Network{PodCIDR: "x", ServiceCIDR: "x", Backend: BackendNone, NoKubeProxy: true},
	}.YAML()
	if err != nil {
		t.Fatal(err)
	}
	var ours map[string]any
	if err := yaml.Unmarshal(b, &ours); err != nil {
		t.Fatal(err)
	}
	for key, value := range ours {
		_, list := value.([]any)
		_, taken := takenFlags[key]
		if list && !taken && flags[key] != listFlag {
			t.Errorf("%s is not known as a list", key)
		}
		if !list && !taken {
			t.Errorf("an argument could take the place of %s", key)
		}
	}
}

func TestArgsKeepText(t *testing.T) {
	for _, value := range []string{"yes", "0644", "1_000", "12:30:45", "null", "~", "1.0", "2024-01-01", "=", "<<", "*x", "&x", "'", "a: b #c", "[a]"} {
		b, err := ArgsYAML(Agent, []string{"--kubelet-arg=" + value, "--snapshotter=" + value})
		if err != nil {
			t.Fatal(err)
		}
		if want := `"` + value + `"`; strings.Count(string(b), want) != 2 {
			t.Errorf("%s stands there as\n%s", value, b)
		}
	}
}

func TestCheckArgs(t *testing.T) {
	const secret = "5ec7e7"
	for arg, want := range map[string]string{
		"--debug": "", "--debug=true": "", "--kubelet-arg=v=2": "", "--selinux=false": "", "--disable-apiserver-lb": "", "--no-such-thing": "",

		"":                                    "argument 2: it is empty",
		"  ":                                  "it is empty",
		"debug":                               "does not begin with two dashes",
		secret:                                "does not begin with two dashes",
		"-v=2":                                "does not begin with two dashes",
		"-token " + secret:                    "does not begin with two dashes",
		"–debug":                              "does not begin with two dashes", // a dash that a text processor made
		"--":                                  "not the name of a flag",
		"---debug":                            "not the name of a flag",
		"--=" + secret:                        "not the name of a flag",
		"--" + secret:                         "not the name of a flag",
		"--kubelet-arg v=" + secret:           "--kubelet-arg: there is a space behind the name; write --kubelet-arg=value",
		"--pause-image " + secret:             "there is a space behind the name",
		"--kubelet-arg =" + secret:            "there is a space behind the name",
		"--Kubelet-Arg=" + secret:             "k3s spells the flag --kubelet-arg",
		"--kubelet_arg=" + secret:             "k3s spells the flag --kubelet-arg",
		"--kubelet-arg=a\nb: " + secret:       "line break",
		"--kubelet-arg=a\x00" + secret:        "no text",
		"--kubelet-arg=\xff" + secret:         "no text",
		"--kubelet-arg":                       "--kubelet-arg: it needs a value",
		"--kubelet-arg=":                      "no value",
		"--selinux=" + secret:                 "true or false",
		"--selinux=yes":                       "true or false",
		"--kubelet-args=" + secret:            "did you mean --kubelet-arg?",
		"--kublet-arg=" + secret:              "did you mean --kubelet-arg?",
		"--proctect-kernel-defaults":          "did you mean --protect-kernel-defaults?",
		"--token=" + secret:                   "argument 2: --token: the provider joins nodes",
		"--token-file=/x":                     "the provider joins nodes",
		"--agent-token=" + secret:             "the provider joins nodes",
		"--t=" + secret:                       "--token: the provider joins nodes",
		"--server=https://x":                  "decides where a node joins",
		"--config=/x":                         "usual place",
		"--data-dir=/x":                       "usual place",
		"--d=/x":                              "--data-dir",
		"--node-name=x":                       "name of its VM",
		"--with-node-id":                      "name of its VM",
		"--node-ip=192.0.2.1":                 "each node has its own address",
		"--private-registry=/x":               "registries_yaml",
		"--node-label=a=b":                    "use the pool's labels",
		"--node-taint=a=b:NoSchedule":         "use the pool's taints",
		"--vpn-auth=name=x,joinKey=" + secret: "--vpn-auth-file",
		"--disable=servicelb":                 "only servers have that flag",
		"--etcd-arg=x":                        "only servers have that flag",
		"--help":                              "does not run k3s",
		"--version":                           "does not run k3s",
	} {
		checkArg(t, Agent, arg, want, secret)
	}
	for arg, want := range map[string]string{
		"--disable=servicelb": "", "--disable=traefik": "", "--disable=coredns,local-storage-like": "", "--kube-cloud-controller-manager-arg=v=2": "", "--node-label=a=b": "", "--node-taint=a:NoSchedule": "",
		"--etcd-s3": "", "--etcd-s3-config-secret=x": "", "--etcd-s3-access-key=AKIA": "", "--helm-controller-arg=x": "", "--cluster-dns=10.43.0.10": "",

		"--tls-san=x":                             "tls_sans",
		"--cluster-init":                          "decides where a node joins",
		"--cluster-reset":                         "not from here",
		"--cluster-reset-restore-path=/x":         "not from here",
		"--write-kubeconfig=/x":                   "usual place",
		"--o=/x":                                  "--write-kubeconfig: ",
		"--write-kubeconfig-mode=600":             "usual place",
		"--write-kubeconfig-group=x":              "usual place",
		"--https-listen-port=443":                 "6443",
		"--default-local-storage-path=/x":         "csi.local_path.path",
		"--disable=local-storage":                 "csi.local_path",
		"--disable=metrics-server, local-storage": "csi.local_path",
		"--flannel-backend=none":                  "cni.plugin and cni.routing",
		"--no-flannel":                            "cni.plugin and cni.routing",
		"--cluster-cidr=10.0.0.0/16":              "cni.pod_cidr",
		"--service-cidr=10.0.0.0/16":              "cni.service_cidr",
		"--disable-network-policy":                "cni.plugin",
		"--disable-kube-proxy":                    "cni.kube_proxy_replacement",
		"--system-default-registry=registry.test": "image_registry",
		"--disable-etcd":                          "all of the control plane",
		"--disable-agent":                         "all of the control plane",
		"--datastore-endpoint=mysql://" + secret:  "etcd of its own servers",
		"--etcd-s3-secret-key=" + secret:          "--etcd-s3-config-secret",
		"--disable-apiserver-lb":                  "only agents have that flag",
		"--disabel=traefik":                       "did you mean --disable?",
		"--secret-encryption":                     "did you mean --secrets-encryption?",
	} {
		checkArg(t, Server, arg, want, secret)
	}
	for _, args := range [][]string{{"--snapshotter=a", "--snapshotter=b"}, {"--debug", "--debug"}} {
		if err := CheckArgs(Agent, args); err == nil || !strings.Contains(err.Error(), "twice") {
			t.Errorf("%v: %v", args, err)
		}
	}
}

func checkArg(t *testing.T, role Role, arg, want, secret string) {
	t.Helper()
	args := []string{"--prefer-bundled-bin", arg}
	err := CheckArgs(role, args)
	_, same := ArgsYAML(role, args)
	switch {
	case (err == nil) != (same == nil):
		t.Errorf("%q: %v, and when it is written: %v", arg, err, same)
	case err == nil && want != "":
		t.Errorf("%q: accepted", arg)
	case err != nil && (want == "" || !strings.Contains(err.Error(), want)):
		t.Errorf("%q: %v; want %q", arg, err, want)
	case err != nil && strings.Contains(err.Error(), secret):
		t.Errorf("%q: the error holds the value: %v", arg, err)
	}
}

// A flag that k3s has must never be taken for a misspelt one, nor be in two lists.
func TestFlags(t *testing.T) {
	var all []string
	for _, list := range [][]string{agentBools, agentLists, agentValues, serverBools, serverLists, serverValues} {
		all = append(all, list...)
	}
	slices.Sort(all)
	for i, name := range all {
		if i > 0 && all[i-1] == name {
			t.Errorf("%s is there twice", name)
		}
		if !flagName.MatchString(name) {
			t.Errorf("%s is no name", name)
		}
	}
	for short, name := range aliases {
		if _, known := flags[name]; !known && takenFlags[name] == "" {
			t.Errorf("-%s stands for the unknown %s", short, name)
		}
	}
	if !slices.Contains(agentFlags, agentOnly) || slices.Contains(all, "cluster-secret") {
		t.Error("the lists are not what they are taken for")
	}
}

func TestDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abc", 0}, {"abc", "acc", 1}, {"abc", "abcd", 1}, {"kitten", "sitting", 3}} {
		if got := distance(tt.a, tt.b); got != tt.want {
			t.Errorf("%q and %q: %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
	if got := nearest("mirors", []string{"auths", "mirrors", "mirror"}, 2); got != "mirrors" {
		t.Errorf("nearest is %q", got)
	}
}

// Whatever is accepted comes back from the file as it was given.
func FuzzArgsYAML(f *testing.F) {
	for _, s := range []string{"--a=b", "--kubelet-arg=x: y", "--debug", "--v=\"", "--x=\u2028", "--a==", "--snapshotter=!!str x", "--a=\ufeff", "--a= b "} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, arg string) {
		b, err := ArgsYAML(Server, []string{arg})
		if err != nil {
			return
		}
		var file map[string]any
		if err := yaml.Unmarshal(b, &file); err != nil || len(file) != 1 {
			t.Fatalf("%q became %q: %v", arg, b, err)
		}
		_, want, given := strings.Cut(arg, "=")
		for _, value := range file {
			if list, ok := value.([]any); ok {
				value = list[0]
			}
			if given && value != want || !given && value != true {
				t.Errorf("%q came back as %#v", arg, value)
			}
		}
	})
}
