package addons

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chartutil"
)

func TestParseValues(t *testing.T) {
	tests := map[string]struct {
		text string
		want tree
	}{
		"nothing":        {"", tree{}},
		"comments":       {"# nothing yet\n", tree{}},
		"null":           {"---\n~\n", tree{}},
		"scalars":        {"a: 1\nb: 1.5\nc: text\nd: true\ne: null\nf:\n", tree{"a": 1.0, "b": 1.5, "c": "text", "d": true, "e": nil, "f": nil}},
		"YAML 1.1":       {"a: yes\nb: off\nc: 0755\nd: 'yes'\n", tree{"a": true, "b": false, "c": 493.0, "d": "yes"}},
		"dates":          {"a: 2026-01-02\nb: 12:30\n", tree{"a": "2026-01-02", "b": "12:30"}},
		"blocks":         {"a: |\n  b: c\nd: >-\n  e\n  f\n", tree{"a": "b: c\n", "d": "e f"}},
		"several lines":  {"a: b\n  c\n", tree{"a": "b c"}},
		"like a comment": {"a: b#c\n", tree{"a": "b#c"}},
		"levels":         {"a: {b: [1, {c: x}]}\n", tree{"a": tree{"b": []any{1.0, tree{"c": "x"}}}}},
		"aliases":        {"a: &x {b: 1}\nc: *x\nd: [*x]\n", tree{"a": tree{"b": 1.0}, "c": tree{"b": 1.0}, "d": []any{tree{"b": 1.0}}}},
		"quoted keys":    {"'1': a\n\"on\": b\n", tree{"1": "a", "on": "b"}},
		"odd texts":      {"a: ---\nb: ...\nd: '~'\ne: =\nf: 1_000\ng: 0x10\nh: 1e3\n", tree{"a": "---", "b": "...", "d": "~", "e": "=", "f": 1000.0, "g": 16.0, "h": 1000.0}},
		"dots in keys":   {"a.b/c: d\n", tree{"a.b/c": "d"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseValues(test.text)
			if err != nil || !reflect.DeepEqual(got.values, test.want) {
				t.Errorf("%#v, %v; want %#v", got.values, err, test.want)
			}
			// Helm itself reads the same.
			helms, err := chartutil.ReadValues([]byte(test.text))
			if err != nil || !reflect.DeepEqual(helms.AsMap(), test.want) {
				t.Errorf("Helm: %#v, %v", helms, err)
			}
		})
	}
}

func TestParseValuesRefuses(t *testing.T) {
	bomb := "a: &a [x, x, x, x, x, x, x, x, x]\n"
	for c := 'b'; c < 'i'; c++ {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c, ", c-1), 9), ", "))
	}
	tests := map[string]struct{ text, want string }{
		"a list":         {"- s3cret\n", "line 1: it is no mapping"},
		"a text":         {"s3cret\n", "line 1: it is no mapping"},
		"two documents":  {"a: 1\n---\nb: s3cret\n", "more than one YAML document"},
		"no YAML":        {"a: b\n c: s3cret: d\n", "line 2: it is not YAML"},
		"a bare star":    {"a: *s3cret\n", "a text that begins with an asterisk needs quotes"},
		"twice":          {"a: 1\nb:\n  c: 1\n  c: s3cret\n", "line 4: the key c stands there twice"},
		"a number's key": {"a:\n  1: s3cret\n", "line 2: a key is no text"},
		"a list's key":   {"? [s3cret]\n: 1\n", "line 1: a key is no text"},
		"a tag":          {"a: !!binary czNjcmV0\n", "line 1: a tag"},
		"another tag":    {"a: !vault s3cret\n", "line 1: a tag"},
		"infinity":       {"a: 1\nb: .inf\n", "line 2: a value is nothing that JSON could say"},
		"a huge number":  {"a: 123456789012345678901\n", "line 1: a number is too large"},
		"merging":        {"a: &a {b: s3cret}\nc:\n  <<: *a\n", "line 3: merging with <<"},
		"a circle":       {"a: &a\n  b: *a\n", "line 2: an alias stands in what it stands for"},
		"a bomb":         {bomb, "more than 20000 values"},
		"deep":           {"a: " + strings.Repeat("[", 70) + strings.Repeat("]", 70) + "\n", "more than 64 levels"},
		"long":           {"a: " + strings.Repeat("x", maxText), "at most"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := parseValues(test.text)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("error %v, want %q", err, test.want)
			}
			if strings.Contains(err.Error(), "s3cret") {
				t.Errorf("the error has a value: %v", err)
			}
		})
	}
}
