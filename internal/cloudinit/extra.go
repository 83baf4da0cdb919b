package cloudinit

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// What a user's cloud-config may be at most: bytes of text, values with aliases written out, and levels. The seed has to
// hold it beside what is ours, and cloud-init has to read it.
const (
	maxExtra  = 256 << 10
	maxValues = 20000
	maxDepth  = 64
)

// readExtra reads a user's cloud-config into a tree that means the same to cloud-init when it is encoded: what has no
// quotes and is no text for a reader of YAML 1.1 stays as it is written, all else gets quotes. Aliases and merged mappings
// are written out, so that nothing in the tree stands for two. It is nil where the text asks for nothing.
//
// The errors hold keys and lines, never values.
func readExtra(text []byte) (*yaml.Node, error) {
	if len(text) > maxExtra {
		return nil, fmt.Errorf("it has %d bytes, and the seed of a VM has room for %d", len(text), maxExtra)
	}
	if err := otherKind(string(text)); err != nil {
		return nil, err
	}
	d := yaml.NewDecoder(strings.NewReader(string(text)))
	var document yaml.Node
	if err := d.Decode(&document); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, notYAML(string(text), err)
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("it has more than one YAML document, of which cloud-init reads none")
	}
	r := reader{open: map[*yaml.Node]bool{}}
	root, err := r.read(document.Content[0], false, 0)
	switch {
	case err != nil:
		return nil, err
	case isNullNode(root):
		return nil, nil
	case root.Kind != yaml.MappingNode:
		return nil, errors.New("it is no cloud-config, which is a mapping such as packages: [nfs-common]; give it as it is, neither compressed nor encoded")
	}
	return root, checkExtra(root)
}

// otherKinds are beginnings of user-data that is no cloud-config
// (https://docs.cloud-init.io/en/latest/explanation/format.html).
var otherKinds = []struct{ begin, what string }{
	{"#!", "a script; run its commands in runcmd"},
	{"## template:", "a template that cloud-init would fill in; fill it in before"},
	{"##template:", "a template that cloud-init would fill in; fill it in before"},
	{"#include", "a list of addresses to fetch user-data from; give the cloud-config itself"},
	{"#cloud-boothook", "a script for every boot; run its commands in bootcmd"},
	{"#part-handler", "a program; write it to a file in write_files, and run it in runcmd"},
	{"#cloud-config-archive", "an archive of several parts; give one cloud-config"},
	{"#cloud-config-jsonp", "a patch for another cloud-config; give the cloud-config itself"},
	{"#upstart-job", "a job for an init system of the past; write a systemd unit in write_files"},
	{"content-type:", "a MIME message; give the cloud-config that is in it"},
	{"mime-version:", "a MIME message; give the cloud-config that is in it"},
}

// otherKind is an error for user-data that only cloud-init itself can do something with.
func otherKind(text string) error {
	begin := strings.ToLower(strings.TrimLeft(text[:min(len(text), 200)], "\ufeff \t\r\n"))
	for _, k := range otherKinds {
		if strings.HasPrefix(begin, k.begin) {
			return fmt.Errorf("it is no cloud-config that could be merged with another one, but %s", k.what)
		}
	}
	return nil
}

var (
	errorLine    = regexp.MustCompile(`^yaml: line (\d+): (.*)`)
	tabbedIndent = regexp.MustCompile(`(?m)^\t+ *[^\s#]`)
)

// notYAML tells an error of the YAML library. Of its texts only one holds something of the document.
func notYAML(text string, err error) error {
	if strings.Contains(err.Error(), "unknown anchor") {
		return errors.New("it is not YAML: it has an alias without an anchor; a text that begins with an asterisk needs quotes")
	}
	if at := tabbedIndent.FindStringIndex(text); at != nil {
		return fmt.Errorf("it is not YAML: line %d is indented with a tab", 1+strings.Count(text[:at[0]], "\n"))
	}
	if m := errorLine.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("it is not YAML: line %s: %s", m[1], m[2])
	}
	return fmt.Errorf("it is not YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
}

// reader copies a tree, and counts what it copies.
type reader struct {
	values, bytes int
	// open are the anchored nodes that are being read.
	open map[*yaml.Node]bool
}

// read copies a node; flow says whether it stands between brackets or braces.
func (r *reader) read(n *yaml.Node, flow bool, depth int) (*yaml.Node, error) {
	if n.Kind == yaml.AliasNode {
		if r.open[n.Alias] {
			return nil, fmt.Errorf("line %d: an alias stands in what it stands for", n.Line)
		}
		n = n.Alias
	}
	r.values++
	r.bytes += len(n.Value)
	switch {
	case r.values > maxValues, r.bytes > maxExtra:
		return nil, errors.New("it is too large when its aliases are written out")
	case depth > maxDepth:
		return nil, fmt.Errorf("line %d: it is nested more than %d deep", n.Line, maxDepth)
	case n.Style&yaml.TaggedStyle != 0 && n.Tag != "!!str" && n.Tag != "!!binary":
		return nil, fmt.Errorf("line %d: a tag; only !!str and !!binary can be merged", n.Line)
	case flow && n.Kind == yaml.ScalarNode && n.Style == 0 && strings.HasSuffix(n.Value, ":"):
		// To cloud-init {a:} has the key "a", and to the library here the key "a:".
		return nil, fmt.Errorf("line %d: a colon before a comma or the end of brackets; put a space behind it, or quotes around the text", n.Line)
	}
	r.open[n] = true
	defer delete(r.open, n)
	switch n.Kind {
	case yaml.MappingNode:
		return r.mapping(n, depth)
	case yaml.SequenceNode:
		out := &yaml.Node{Kind: yaml.SequenceNode, Line: n.Line}
		for _, child := range n.Content {
			c, err := r.read(child, n.Style&yaml.FlowStyle != 0, depth+1)
			if err != nil {
				return nil, err
			}
			out.Content = append(out.Content, c)
		}
		return out, nil
	default:
		return scalar(n)
	}
}

// mapping reads a mapping, and puts into it what its merge key stands for and it has not itself
// (https://yaml.org/type/merge.html).
func (r *reader) mapping(n *yaml.Node, depth int) (*yaml.Node, error) {
	out := &yaml.Node{Kind: yaml.MappingNode, Line: n.Line}
	flow := n.Style&yaml.FlowStyle != 0
	lines := map[[2]string]int{}
	var merged *yaml.Node
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind == yaml.ScalarNode && key.Tag == "!!merge" {
			if merged != nil {
				return nil, fmt.Errorf("line %d: a second merge key; merge a list of mappings", key.Line)
			}
			var err error
			if merged, err = r.read(value, flow, depth+1); err != nil {
				return nil, err
			}
			continue
		}
		k, err := r.read(key, flow, depth+1)
		if err != nil {
			return nil, err
		}
		if k.Kind != yaml.ScalarNode {
			return nil, fmt.Errorf("line %d: a key that is a list or a mapping", key.Line)
		}
		if first := lines[keyOf(k)]; first > 0 {
			return nil, fmt.Errorf("lines %d and %d set %s in the same mapping", first, key.Line, k.Value)
		}
		lines[keyOf(k)] = max(key.Line, 1)
		v, err := r.read(value, flow, depth+1)
		if err != nil {
			return nil, err
		}
		out.Content = append(out.Content, k, v)
	}
	if merged == nil {
		return out, nil
	}
	sources := []*yaml.Node{merged}
	if merged.Kind == yaml.SequenceNode {
		sources = merged.Content
	}
	for _, source := range sources {
		if source.Kind != yaml.MappingNode {
			return nil, fmt.Errorf("line %d: a merge key that stands for no mapping", n.Line)
		}
		for i := 0; i < len(source.Content); i += 2 {
			if id := keyOf(source.Content[i]); lines[id] == 0 {
				lines[id] = max(n.Line, 1)
				out.Content = append(out.Content, source.Content[i], source.Content[i+1])
			}
		}
	}
	return out, nil
}

// keyOf tells the keys of a mapping apart.
func keyOf(k *yaml.Node) [2]string { return [2]string{k.Tag, k.Value} }

// mimeMark makes cloud-init take user-data with it near the beginning for a MIME message.
const mimeMark = "mime-version:"

// scalar is a scalar as cloud-init is to see it.
func scalar(n *yaml.Node) (*yaml.Node, error) {
	if strings.Contains(strings.ToLower(n.Value), mimeMark) {
		return nil, fmt.Errorf("line %d: cloud-init takes what has MIME-Version: in it for a MIME message; encode the content of the file, with encoding: b64", n.Line)
	}
	if n.Tag == "!!binary" {
		value := strings.Join(strings.Fields(n.Value), "")
		if _, err := base64.StdEncoding.DecodeString(value); err != nil {
			return nil, fmt.Errorf("line %d: what is tagged !!binary is no base64", n.Line)
		}
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: n.Tag, Style: yaml.TaggedStyle | yaml.DoubleQuotedStyle, Value: value, Line: n.Line}, nil
	}
	const quotes = yaml.SingleQuotedStyle | yaml.DoubleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle | yaml.TaggedStyle
	if n.Style&quotes == 0 && !strings.Contains(n.Value, "\n") {
		switch kindOf(n.Value) {
		case isBroken:
			return nil, fmt.Errorf("line %d: cloud-init would see something else than text in a value, and fail at it; give it quotes", n.Line)
		case isNull:
			return &yaml.Node{Kind: yaml.ScalarNode, Value: "null", Line: n.Line}, nil
		case isBool, isNumber, isTime:
			return &yaml.Node{Kind: yaml.ScalarNode, Value: strings.ReplaceAll(n.Value, "\t", " "), Line: n.Line}, nil
		case isText:
		}
	}
	out := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.DoubleQuotedStyle, Value: n.Value, Line: n.Line}
	if strings.Contains(n.Value, "\n") && plain([]byte(n.Value)) {
		out.Style = yaml.LiteralStyle
	}
	return out, nil
}

// isNullNode and isTextNode tell of a scalar in the tree of a reader what it is; nil is no scalar.
func isNullNode(n *yaml.Node) bool {
	return n != nil && n.Kind == yaml.ScalarNode && n.Tag == "" && n.Value == "null"
}

func isTextNode(n *yaml.Node) bool {
	return n != nil && n.Kind == yaml.ScalarNode && n.Tag == "!!str"
}
