package cloudinit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// extraLimit bounds the user's own cloud-config: the seed holds it together with what the provider adds.
const extraLimit = 256 << 10

// reserved are keys of a cloud-config that the user's own may not have, with the reason.
var reserved = map[string]string{
	"hostname": ownName, "fqdn": ownName, "preserve_hostname": ownName, "prefer_fqdn_over_hostname": ownName, "create_hostname_file": ownName,
	"manage_etc_hosts":   "the node's own name has to resolve",
	"power_state":        "it would switch the node off while k3s is being installed",
	"cloud_init_modules": "the modules that make a node have to run", "cloud_config_modules": "the modules that make a node have to run",
	"cloud_final_modules": "the modules that make a node have to run",
	"merge_how":           "the provider merges it itself", "merge_type": "the provider merges it itself",
	"network": "the provider configures the network",
}

const ownName = "the provider names the node"

// CheckExtra says why a text cannot be merged into the cloud-config of a node, nil where it can.
func CheckExtra(text string) error {
	_, err := UserData{Hostname: "node", Extra: []byte(text)}.Encode()
	return err
}

// merge puts the user's cloud-config over ours: mappings are merged, of lists the user's entries come first, and what both set
// has to be equal. The user's text is kept as nodes of YAML, so that cloud-init, which reads YAML 1.1, reads it as it was
// written.
func merge(ours []byte, extra []byte) ([]byte, error) {
	theirs, err := parseExtra(extra)
	if err != nil || theirs == nil {
		return ours, err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(ours, &doc); err != nil {
		return nil, fmt.Errorf("read the provider's own: %w", err)
	}
	root := doc.Content[0]
	if err := checkUsers(theirs, root); err != nil {
		return nil, err
	}
	if err := mergeMaps(root, theirs, ""); err != nil {
		return nil, err
	}
	if err := checkFiles(root); err != nil {
		return nil, err
	}
	return encode(root)
}

// parseExtra reads the user's text; nil is an empty one.
func parseExtra(extra []byte) (*yaml.Node, error) {
	if len(extra) > extraLimit {
		return nil, fmt.Errorf("it has %d bytes, more than the %d that a seed has room for", len(extra), extraLimit)
	}
	if first, _, _ := strings.Cut(string(extra), "\n"); strings.HasPrefix(first, "#!") || strings.HasPrefix(first, "## template:") ||
		strings.HasPrefix(first, "#include") || strings.HasPrefix(first, "#cloud-") && strings.TrimSpace(first) != "#cloud-config" ||
		strings.HasPrefix(first, "Content-Type:") || strings.HasPrefix(first, "MIME-Version:") || strings.HasPrefix(first, "#part-handler") {
		return nil, errors.New("it is user-data of another kind: only a cloud-config can be merged, which is YAML and may begin with #cloud-config")
	}
	d := yaml.NewDecoder(bytes.NewReader(extra))
	var doc yaml.Node
	if err := d.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		return nil, fmt.Errorf("it is no YAML: %w", lineOf(err))
	}
	if err := d.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, errors.New("it has several YAML documents, and cloud-init reads one")
	}
	root := doc.Content[0]
	if root.Kind == yaml.ScalarNode && root.Tag == "!!null" {
		return nil, nil
	}
	if root.Kind != yaml.MappingNode {
		return nil, errors.New("it is no cloud-config, which is a mapping of keys such as packages or write_files")
	}
	if err := checkNodes(root); err != nil {
		return nil, err
	}
	if err := root.Decode(&map[string]any{}); err != nil {
		return nil, fmt.Errorf("it is no YAML: %w", lineOf(err))
	}
	for i := 0; i < len(root.Content); i += 2 {
		if reason, no := reserved[root.Content[i].Value]; no {
			return nil, fmt.Errorf("it sets %s, and %s", root.Content[i].Value, reason)
		}
	}
	return root, nil
}

// lineOf keeps the place of a YAML error and drops its text, which may hold a value.
func lineOf(err error) error {
	text := err.Error()
	if i := strings.Index(text, "line "); i >= 0 {
		number, _, _ := strings.Cut(text[i:], ":")
		return errors.New("at " + number)
	}
	return errors.New("somewhere")
}

// checkNodes refuses what would come out otherwise than it went in: aliases, whose anchors may end up behind them, and keys
// that stand twice, of which readers take one or the other.
func checkNodes(n *yaml.Node) error {
	if n.Kind == yaml.AliasNode {
		return fmt.Errorf("line %d has an alias (*%s); write out what it stands for", n.Line, n.Value)
	}
	if n.Kind == yaml.MappingNode {
		seen := map[string]bool{}
		for i := 0; i < len(n.Content); i += 2 {
			key := n.Content[i]
			if key.Kind != yaml.ScalarNode {
				return fmt.Errorf("line %d has a key that is no text", key.Line)
			}
			if seen[key.Value] {
				return fmt.Errorf("line %d has the key %s a second time", key.Line, key.Value)
			}
			seen[key.Value] = true
		}
	}
	for _, c := range n.Content {
		if err := checkNodes(c); err != nil {
			return err
		}
	}
	return nil
}

// mergeMaps puts a mapping over another one; path tells where they stand.
func mergeMaps(into, from *yaml.Node, path string) error {
	for i := 0; i < len(from.Content); i += 2 {
		key, value := from.Content[i], from.Content[i+1]
		at := strings.TrimPrefix(path+"."+key.Value, ".")
		old := lookup(into, key.Value)
		switch {
		case old == nil:
			into.Content = append(into.Content, key, value)
		case old.Kind == yaml.MappingNode && value.Kind == yaml.MappingNode:
			if err := mergeMaps(old, value, at); err != nil {
				return err
			}
		case old.Kind == yaml.SequenceNode && value.Kind == yaml.SequenceNode:
			old.Content = slices.Concat(value.Content, old.Content)
		case old.Kind == yaml.ScalarNode && value.Kind == yaml.ScalarNode && old.Value == value.Value:
		default:
			return fmt.Errorf("it sets %s, which the provider sets otherwise", at)
		}
	}
	return nil
}

func lookup(mapping *yaml.Node, key string) *yaml.Node {
	for i := 0; i < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i+1]
		}
	}
	return nil
}

// checkUsers makes sure that the cluster's SSH keys have a user: cloud-init gives them to the image's default user, which is
// not there where a list of users leaves it out.
func checkUsers(theirs, ours *yaml.Node) error {
	users := lookup(theirs, "users")
	if users == nil || lookup(ours, "ssh_authorized_keys") == nil {
		return nil
	}
	for _, u := range users.Content {
		if u.Value == "default" {
			return nil
		}
	}
	return errors.New("its users do not list default, the user of the image that gets ssh_authorized_keys of the cluster")
}

// checkFiles makes sure that no file is written twice.
func checkFiles(root *yaml.Node) error {
	files := lookup(root, "write_files")
	if files == nil {
		return nil
	}
	seen := map[string]bool{}
	for _, f := range files.Content {
		p := lookup(f, "path")
		if f.Kind != yaml.MappingNode || p == nil {
			return errors.New("an entry of its write_files has no path")
		}
		if seen[p.Value] {
			return fmt.Errorf("its write_files has %s, which is there already", p.Value)
		}
		seen[p.Value] = true
	}
	return nil
}
