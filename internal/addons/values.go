package addons

import (
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
	helmyaml "sigs.k8s.io/yaml"
)

// What a user's values may be at most: bytes of text, values with aliases written out, and levels. Helm keeps them in a Secret,
// which has less than 1 MiB.
const (
	maxText   = 256 << 10
	maxValues = 20000
	maxDepth  = 64
)

// userValues are values of a chart that a user wrote as YAML.
type userValues struct {
	values tree
	// lines are where keys stand, by their path joined with dots.
	lines map[string]int
}

// parseValues reads a user's values to what Helm would read. It refuses what Helm takes in silence and does not mean what was
// written: keys that stand there twice or are no texts, and what JSON cannot say. Errors hold keys and lines, never values,
// which may be secrets.
func parseValues(text string) (userValues, error) {
	u := userValues{values: tree{}, lines: map[string]int{}}
	if len(text) > maxText {
		return u, fmt.Errorf("it has %d bytes, and at most %d are taken", len(text), maxText)
	}
	d := yaml.NewDecoder(strings.NewReader(text))
	var document yaml.Node
	if err := d.Decode(&document); errors.Is(err, io.EOF) {
		return u, nil
	} else if err != nil {
		return u, notYAML(err)
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return u, errors.New("it has more than one YAML document")
	}
	root := document.Content[0]
	if root.Kind == yaml.ScalarNode && root.ShortTag() == "!!null" {
		return u, nil
	}
	if root.Kind != yaml.MappingNode {
		return u, fmt.Errorf("line %d: it is no mapping of the chart's keys to values", root.Line)
	}
	r := valuesReader{lines: u.lines, open: map[*yaml.Node]bool{}}
	values, err := r.mapping(root, "", 0)
	if err != nil {
		return u, err
	}
	u.values = values
	return u, nil
}

var errorLine = regexp.MustCompile(`^yaml: line (\d+): (.*)`)

// notYAML tells an error of the YAML library. Of its texts only one holds something of the document.
func notYAML(err error) error {
	if strings.Contains(err.Error(), "unknown anchor") {
		return errors.New("it is not YAML: it has an alias without an anchor; a text that begins with an asterisk needs quotes")
	}
	if m := errorLine.FindStringSubmatch(err.Error()); m != nil {
		return fmt.Errorf("line %s: it is not YAML: %s", m[1], m[2])
	}
	return fmt.Errorf("it is not YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
}

// valuesReader turns nodes into values, and counts what it turns: a few aliases of aliases can stand for any number.
type valuesReader struct {
	lines map[string]int
	count int
	// open are the anchored nodes that are being read.
	open map[*yaml.Node]bool
}

// value reads a node of any kind; path is that of its key.
func (r *valuesReader) value(n *yaml.Node, path string, depth int) (any, error) {
	r.count++
	switch {
	case r.count > maxValues:
		return nil, fmt.Errorf("line %d: it has more than %d values, those included that aliases stand for", n.Line, maxValues)
	case depth > maxDepth:
		return nil, fmt.Errorf("line %d: it has more than %d levels", n.Line, maxDepth)
	case n.Style&yaml.TaggedStyle != 0:
		return nil, fmt.Errorf("line %d: a tag, what begins with an exclamation mark, is not taken; leave it out or put quotes around it", n.Line)
	}
	switch n.Kind {
	case yaml.AliasNode:
		if r.open[n.Alias] {
			return nil, fmt.Errorf("line %d: an alias stands in what it stands for", n.Line)
		}
		return r.value(n.Alias, path, depth)
	case yaml.MappingNode:
		return r.mapping(n, path, depth)
	case yaml.SequenceNode:
		r.open[n] = true
		defer delete(r.open, n)
		list := make([]any, 0, len(n.Content))
		for _, item := range n.Content {
			v, err := r.value(item, path, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	}
	return scalar(n)
}

// mapping reads a mapping.
func (r *valuesReader) mapping(n *yaml.Node, path string, depth int) (tree, error) {
	r.open[n] = true
	defer delete(r.open, n)
	out := make(tree, len(n.Content)/2)
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch {
		case key.Kind == yaml.ScalarNode && key.ShortTag() == "!!merge":
			return nil, fmt.Errorf("line %d: merging with << is not taken; write the keys out", key.Line)
		case key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str" || key.Style&yaml.TaggedStyle != 0:
			return nil, fmt.Errorf("line %d: a key is no text; put quotes around it", key.Line)
		}
		if _, twice := out[key.Value]; twice {
			return nil, fmt.Errorf("line %d: the key %s stands there twice", key.Line, key.Value)
		}
		at := key.Value
		if path != "" {
			at = path + "." + at
		}
		v, err := r.value(value, at, depth+1)
		if err != nil {
			return nil, err
		}
		out[key.Value], r.lines[at] = v, key.Line
	}
	return out, nil
}

// scalar reads a scalar as Helm does, whose library follows YAML 1.1: yes and on are true, for instance.
func scalar(n *yaml.Node) (any, error) {
	quoted := n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0
	if quoted || strings.Contains(n.Value, "\n") {
		return n.Value, nil
	}
	var list []any // In a list of one, as some texts, such as ---, mean something else by themselves.
	if err := helmyaml.Unmarshal([]byte("- "+n.Value), &list); err != nil || len(list) != 1 {
		return nil, fmt.Errorf("line %d: a value is nothing that JSON could say, as infinity is; put quotes around a text", n.Line)
	}
	if x, ok := list[0].(float64); ok && math.Abs(x) > 1<<53 {
		return nil, fmt.Errorf("line %d: a number is too large to be kept exactly; put quotes around a text", n.Line)
	}
	return list[0], nil
}
