package main

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/kubeapi"
	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/pki"
	"github.com/cockpit-k3s/terraform-provider-cockpit/tools/lab/kubelab/wire"
)

// kubectl knows what somebody with a shell in the guest needs for a first look: get nodes and get --raw.
func kubectl(ctx context.Context, args []string, out io.Writer) error {
	file := os.Getenv("KUBECONFIG")
	if file == "" {
		file = defaultKubeconf
	}
	var words []string
	output := ""
	for i := 0; i < len(args); i++ {
		name, value, given := strings.Cut(args[i], "=")
		next := func() string {
			if !given && i+1 < len(args) {
				i++
				value = args[i]
			}
			return value
		}
		switch name {
		case "--kubeconfig":
			file = next()
		case "-o", "--output":
			output = next()
		case "--raw":
			words = append(words, "--raw", next())
		default:
			words = append(words, args[i])
		}
	}
	api, err := kubeconfigClient(file)
	if err != nil {
		return err
	}
	switch strings.Join(words[:min(2, len(words))], " ") {
	case "get nodes", "get node", "get no":
		return getNodes(ctx, api, output, out)
	case "get --raw":
		b, err := api.Raw(ctx, words[2])
		if err != nil {
			return err
		}
		_, err = out.Write(b)
		return err
	}
	return errors.New("kubectl: the lab's stand-in knows only `get nodes` and `get --raw PATH`; use a real kubectl from outside the guest")
}

func getNodes(ctx context.Context, api *kubeapi.Client, output string, out io.Writer) error {
	if output == "json" {
		b, err := api.Raw(ctx, "/api/v1/nodes")
		if err != nil {
			return err
		}
		_, err = out.Write(append(b, '\n'))
		return err
	}
	var nodes kubeapi.List[kubeapi.Node]
	if err := api.Get(ctx, "/api/v1/nodes", &nodes); err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	if output != "name" {
		if _, err := fmt.Fprintln(w, "NAME\tSTATUS\tROLES\tAGE\tVERSION"); err != nil {
			return err
		}
	}
	for _, n := range nodes.Items {
		line := "node/" + n.Metadata.Name
		if output != "name" {
			line = nodeLine(n)
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return w.Flush()
}

func nodeLine(n kubeapi.Node) string {
	status, version, age := "Unknown", "", time.Duration(0)
	for _, c := range n.Status.Conditions {
		if c.Type == "Ready" {
			status = map[string]string{"True": "Ready"}[c.Status]
			if status == "" {
				status = "NotReady"
			}
		}
	}
	if n.Spec.Unschedulable {
		status += ",SchedulingDisabled"
	}
	var roles []string
	for _, r := range []string{"control-plane", "etcd", "master"} {
		if _, ok := n.Metadata.Labels["node-role.kubernetes.io/"+r]; ok {
			roles = append(roles, r)
		}
	}
	if len(roles) == 0 {
		roles = []string{"<none>"}
	}
	if n.Status.NodeInfo != nil {
		version = n.Status.NodeInfo.KubeletVersion
	}
	if n.Metadata.CreationTimestamp != nil {
		age = time.Since(*n.Metadata.CreationTimestamp).Truncate(time.Second)
	}
	return strings.Join([]string{n.Metadata.Name, status, strings.Join(roles, ","), age.String(), version}, "\t")
}

// kubeconfigClient connects as the user of a kubeconfig of this program's own form.
func kubeconfigClient(file string) (*kubeapi.Client, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var cfg struct {
		Clusters []struct {
			Cluster struct {
				CA     string `yaml:"certificate-authority-data"`
				Server string `yaml:"server"`
			} `yaml:"cluster"`
		} `yaml:"clusters"`
		Users []struct {
			User struct {
				Cert string `yaml:"client-certificate-data"`
				Key  string `yaml:"client-key-data"`
			} `yaml:"user"`
		} `yaml:"users"`
	}
	if err := yaml.Unmarshal(b, &cfg); err != nil || len(cfg.Clusters) == 0 || len(cfg.Users) == 0 {
		return nil, fmt.Errorf("%s is no kubeconfig of k3s", file)
	}
	var parts [3][]byte
	for i, s := range []string{cfg.Clusters[0].Cluster.CA, cfg.Users[0].User.Cert, cfg.Users[0].User.Key} {
		if parts[i], err = base64.StdEncoding.DecodeString(s); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	pair, err := tls.X509KeyPair(parts[1], parts[2])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return &kubeapi.Client{
		Base: func() string { return cfg.Clusters[0].Cluster.Server },
		HTTP: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
			RootCAs: pki.Pool(string(parts[0])), Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12,
		}}},
	}, nil
}

// etcdSnapshot is `k3s etcd-snapshot save|ls`. A snapshot holds the member list, not the data: it can be seen, not
// restored.
func etcdSnapshot(ctx context.Context, args []string, control string, out io.Writer) error {
	sub := "save"
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		sub, args = args[0], args[1:]
	}
	flags := []flag{{name: "data-dir", alias: "d"}, {name: "name", alias: "etcd-snapshot-name"}, {name: "dir", alias: "etcd-snapshot-dir"},
		{name: "config", alias: "c"}, {name: "node-name", env: "K3S_NODE_NAME"}}
	v, err := parseFlags(flags, args)
	if err != nil {
		return err
	}
	s := &server{o: &options{values: v, dataDir: v.str("data-dir", defaultDataDir)}, ctl: wire.NewClient(control)}
	dir := v.str("dir", s.o.path("server", "db", "snapshots"))
	switch sub {
	case "ls", "list", "l":
		return listSnapshots(dir, out)
	case "save":
	default:
		return fmt.Errorf("k3s etcd-snapshot %s: not part of the lab's stand-in for k3s", sub)
	}
	if _, err := os.Stat(s.o.path("server", "db", "etcd")); err != nil {
		return errors.New("failed to save snapshot: etcd datastore is not available")
	}
	state, err := s.readState()
	if err != nil {
		return err
	}
	members, err := s.ctl.Members(ctx, state.ID, state.Key)
	if err != nil {
		return fmt.Errorf("failed to save snapshot: %w", err)
	}
	b, err := json.Marshal(members)
	if err != nil {
		return err
	}
	node, err := nodeName(v)
	if err != nil {
		return err
	}
	file := filepath.Join(dir, fmt.Sprintf("%s-%s-%d", v.str("name", "on-demand"), node, time.Now().Unix()))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := writeFile(file, b, 0o600); err != nil {
		return err
	}
	log.infof("Snapshot %s saved.", filepath.Base(file))
	return nil
}

func listSnapshots(dir string, out io.Writer) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	if _, err := fmt.Fprintln(w, "Name\tLocation\tSize\tCreated"); err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "%s\tfile://%s\t%d\t%s\n", e.Name(), filepath.Join(dir, e.Name()), info.Size(), info.ModTime().UTC().Format(time.RFC3339)); err != nil {
			return err
		}
	}
	return w.Flush()
}

// tokenCommand is `k3s token generate`.
func tokenCommand(args []string, out io.Writer) error {
	if len(args) == 0 || args[0] != "generate" {
		return errors.New("k3s token: the lab's stand-in knows only `generate`")
	}
	id, err := randomHex(3)
	if err != nil {
		return err
	}
	secret, err := randomHex(8)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s.%s\n", id, secret)
	return err
}
