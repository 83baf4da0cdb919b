package cloudinit

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"reflect"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

func TestCheckExtra(t *testing.T) {
	const secret = "5ec7e7"
	for name, tt := range map[string]struct{ text, want string }{
		"nothing":          {"", ""},
		"a header":         {"#cloud-config\n", ""},
		"no header":        {"packages: [jq]\n", ""},
		"a comment first":  {"# what my nodes need\npackages: [jq]\n", ""},
		"old line ends":    {"#cloud-config\r\npackages:\r\n- jq\r\n", ""},
		"one document":     {"---\npackages: [jq]\n...\n", ""},
		"a directive":      {"%YAML 1.1\n---\npackages: [jq]\n", ""},
		"an anchor":        {"a: &x [1]\nb: *x\nc: [*x, *x]\n", ""},
		"a merge key":      {"a: &x {b: 1}\nc: {<<: *x, d: 2}\ne: {<<: [*x, {f: 1}]}\n", ""},
		"keys of numbers":  {"1: a\ntrue: b\n\"1\": c\n", ""},
		"tags that pass":   {"a: !!str 0644\nb: !!binary aGk=\nc: ! x\n", ""},
		"emoji":            {"write_files: [{path: /x, content: \"\U0001F600\"}]\n", ""},
		"a swap file":      {"swap: {filename: /swap, size: auto}\n", ""},
		"bootcmd":          {"bootcmd: [[modprobe, nbd]]\n", ""},
		"a command object": {"runcmd: [[sh, -c, \"exit 1\"], null, \"yes\"]\n", ""},

		"a script":            {"#!/bin/sh\necho " + secret + "\n", "a script; run its commands in runcmd"},
		"a script, indented":  {"\n  #!/bin/sh\n", "a script"},
		"a template":          {"## template: jinja\n#cloud-config\npackages: [{{ x }}]\n", "a template"},
		"an include":          {"#include\nhttp://" + secret + "\n", "a list of addresses"},
		"an include, once":    {"#include-once http://" + secret + "\n", "a list of addresses"},
		"a boothook":          {"#cloud-boothook\n#!/bin/sh\n", "bootcmd"},
		"a handler":           {"#part-handler\n", "a program"},
		"an archive":          {"#cloud-config-archive\n- {type: x, content: y}\n", "an archive"},
		"a patch":             {"#cloud-config-jsonp\n[]\n", "a patch"},
		"capitals":            {"#Cloud-Config-Archive\n", "an archive"},
		"MIME":                {"Content-Type: multipart/mixed; boundary=\"x\"\nMIME-Version: 1.0\n", "a MIME message"},
		"MIME, version first": {"MIME-Version: 1.0\n", "a MIME message"},
		"base64":              {"I2Nsb3VkLWNvbmZpZwpwYWNrYWdlczogW2pxXQo=", "neither compressed nor encoded"},
		"a list":              {"- " + secret + "\n", "no cloud-config"},
		"a text":              {secret, "no cloud-config"},
		"two documents":       {"a: 1\n---\nb: 2\n", "more than one"},
		"a second, empty one": {"a: 1\n---\n", "more than one"},

		"no end":              {"a: [" + secret + "\n", "not YAML: line 1"},
		"a tab":               {"a:\n\tb: " + secret + "\n", "line 2 is indented with a tab"},
		"a tab further down":  {"a: 1\n\n\t\tb: " + secret + "\n", "line 3 is indented with a tab"},
		"an at sign":          {"a: @" + secret + "\n", "not YAML: found character"},
		"a colon":             {"runcmd:\n- echo: a: " + secret + "\n", "not YAML: line 2"},
		"an asterisk":         {"password: *" + secret + "\n", "a text that begins with an asterisk"},
		"a NUL":               {"a: \x00" + secret, "not YAML"},
		"no UTF-8":            {"a: \xff" + secret, "not YAML"},
		"a key twice":         {"a: 1\nb: 2\na: " + secret + "\n", "lines 1 and 3 set a"},
		"a key twice, quoted": {"a: 1\n\"a\": 2\n", "lines 1 and 2 set a"},
		"a key twice, deep":   {"x:\n- {b: 1, b: " + secret + "}\n", "lines 2 and 2 set b"},
		"a list as a key":     {"? [a]\n: b\n", "a key that is a list or a mapping"},
		"an alias as a key":   {"a: &x {b: 1}\n? *x\n: b\n", "a key that is a list or a mapping"},
		"an alias in itself":  {"a: &x [*x]\n", "an alias stands in what it stands for"},
		"round the corner":    {"a: &x {b: &y {c: *x}}\n", "an alias stands in what it stands for"},
		"a merge of itself":   {"a: &x {<<: *x}\n", "an alias stands in what it stands for"},
		"a merge of a text":   {"a: {<<: " + secret + "}\n", "a merge key that stands for no mapping"},
		"a merge of nothing":  {"a: {<<: }\n", "a merge key that stands for no mapping"},
		"a merge of texts":    {"a: {<<: [" + secret + "]}\n", "a merge key that stands for no mapping"},
		"two merge keys":      {"a: {<<: {b: 1}, <<: {c: 2}}\n", "a second merge key"},
		"an alias bomb":       {bomb(), "too large when its aliases are written out"},
		"long aliases":        {"a: &x " + strings.Repeat("x", maxExtra/8) + "\nb: [" + strings.Repeat("*x, ", 9) + "]\n", "too large when its aliases are written out"},
		"deep":                {"a: " + strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1), "nested more than"},
		"very deep":           {"a: " + strings.Repeat("[", 20000), "not YAML"},
		"large":               {"# " + strings.Repeat("x", maxExtra), "the seed of a VM has room for"},
		"a colon in braces":   {"a: {b:}\n", "line 1: a colon before a comma"},
		"a colon in brackets": {"a:\n- [b:, c]\n", "line 2: a colon before a comma"},
		"a tag":               {"a: !!python/object:os.system " + secret + "\n", "line 1: a tag"},
		"a tag of a number":   {"a: !!int \"1\"\n", "line 1: a tag"},
		"a tag of ours":       {"a: !x {b: 1}\n", "line 1: a tag"},
		"a set":               {"a: !!set {b, c}\n", "line 1: a tag"},
		"binary, not":         {"a: !!binary " + secret + "\n", "no base64"},
		"no such day":         {"a: 1\nb: 2023-02-29\n", "line 2: cloud-init would see something else than text"},
		"no such time":        {"a: 2023-02-28 25:00:00\n", "something else than text"},
		"no year":             {"a: 0000-01-01\n", "something else than text"},
		"no such zone":        {"a: 2023-02-28T00:00:00+24:00\n", "something else than text"},
		"a value alone":       {"a: =\n", "something else than text"},
		"a merge alone":       {"a: [<<]\n", "something else than text"},
		"a number of none":    {"a: 0x_\n", "something else than text"},
		"a long number":       {"a: " + strings.Repeat("1", 5000) + "\n", "something else than text"},
		"MIME within": {"write_files:\n- path: /mail\n  content: |\n    MIME-Version: 1.0\n    " + secret + "\n",
			"line 3: cloud-init takes what has MIME-Version: in it for a MIME message"},
		"MIME, escaped": {"a: \"mime\\u002dversion: " + secret + "\"\n", "for a MIME message"},

		"the name":              {"a: 1\nhostname: " + secret + "\n", "line 2: it cannot set hostname: a node has the name of its VM"},
		"the name, merged":      {"a: &x {fqdn: x}\n<<: *x\n", "it cannot set fqdn"},
		"the name, quoted":      {"\"hostname\": x\n", "it cannot set hostname"},
		"the name, as null":     {"preserve_hostname:\n", "it cannot set preserve_hostname"},
		"hosts":                 {"manage_etc_hosts: true\n", "manage_etc_hosts"},
		"power":                 {"power_state: {mode: reboot}\n", "power_state"},
		"a reboot":              {"package_reboot_if_required: true\n", "package_reboot_if_required"},
		"network":               {"network: {config: disabled}\n", "network"},
		"modules":               {"cloud_final_modules: [scripts-user]\n", "cloud_final_modules"},
		"how to merge":          {"merge_how: dict(recurse_array)+list(append)\n", "merged before cloud-init sees it"},
		"launch index":          {"launch-index: 1\n", "launch-index"},
		"commands as a text":    {"runcmd: " + secret + "\n", "line 1: runcmd is no list"},
		"commands as a map":     {"runcmd: {a: b}\n", "runcmd is no list"},
		"a command as a map":    {"runcmd:\n- a\n- echo: " + secret + "\n", "line 3: a command in runcmd is neither"},
		"a command as a truth":  {"runcmd: [yes]\n", "is neither a text"},
		"a command as a number": {"runcmd: [5]\n", "is neither a text"},
		"keys as a text":        {"ssh_authorized_keys: ssh-ed25519 x\n", "ssh_authorized_keys is no list"},
		"a key as a map":        {"ssh_authorized_keys: [{a: b}]\n", "a key in ssh_authorized_keys is no text"},
		"a key of nothing":      {"ssh_authorized_keys: [~]\n", "a key in ssh_authorized_keys is no text"},
		"files as a map":        {"write_files: {path: /x}\n", "write_files is no list"},
		"a file as a text":      {"write_files: [/x]\n", "a file in write_files has no path"},
		"a file without path":   {"write_files: [{content: " + secret + "}]\n", "a file in write_files has no path"},
		"a file of a number":    {"write_files: [{path: 1}]\n", "a file in write_files has no path"},
		"mounts as a text":      {"mounts: x\n", "mounts is no list"},
		"a mount as a text":     {"mounts: [/dev/vdz]\n", "an entry of mounts"},
		"a mount of nothing":    {"mounts: [[]]\n", "an entry of mounts"},
		"a file system, text":   {"fs_setup: [ext4]\n", "an entry of fs_setup is no mapping"},
	} {
		err := CheckExtra(tt.text)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v; want %q", name, err, tt.want)
		}
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the error holds a value: %v", name, err)
		}
		if _, same := (UserData{Hostname: "n", Extra: []byte(tt.text)}).Encode(); (same == nil) != (err == nil) {
			t.Errorf("%s: when it is merged: %v", name, same)
		}
	}
}

// bomb stands for ten billion values.
func bomb() string {
	var b strings.Builder
	b.WriteString("a0: &a0 [x]\n")
	for i := range 10 {
		fmt.Fprintf(&b, "a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i), 10), ", "))
	}
	return b.String()
}

// traps are values that readers of YAML see different things in.
var traps = []string{
	"yes", "No", "ON", "off", "y", "n", "true", "TRUE", "tRue", "null", "Null", "~", "", "nil",
	"0644", "0o644", "0b101", "0x1F", "0b102", "089", "1_000", "_1", "+1", "-0", "1e3", "1.5e+3", "1.", ".5", "._5", "1_.5", ".inf", "-.INF", ".nan", ".NaN", "+.nan",
	"12:30", "12:30:45", "1:99", "01:30", "190:20:30.15", "-1:30",
	"2024-02-29", "2024-2-9", "2024-02-29T1:00:00Z", "2024-02-29 01:00:00.5 +1", "2024-02-29t01:00:00-23:59", "2024-02-29 01:00:00 Z", "2024-02-29T01:00",
	"a b", "a:b", "http://x/?a=b&c", "%h", "a#b", "-x", "--flag", "---x", "...x", ".", "?x", "x!", "1.2.3", "10.0.0.0/8", "fe80::1", "é", "\U0001F600", "a\\nb", "2001-1-1 x",
	"'yes'", `"0644"`, `"a\tb"`, `"\x00\x7f\x85\u2028\ufeff\U0001F600"`, `"\/"`, "''", `""`, "'it''s'", `" x "`, `"- a"`, `"a: b #c"`, `"\e"`,
	"|\n    a\n    b\n", "|-\n    a\n      b\n", "|+\n    a\n\n\n", ">\n    a\n    b\n\n    c\n", "|2\n    a\n", "|\n    \ta\n", "|\n\n    a\n", "|\n    a \n", "|\n    a\u2028b\n", "|\n    # a\n",
	"a\n    b", "a\n\n    b", "'a\n\n    b'", "\"a\\\n    b\"",
	"!!str 0644", "!!str yes", "!!str", "!!binary aGk=", "!!binary |\n    aG\n    k=\n", "{a: yes, b: }", "{a:}", "[a:, b]", "{a::}", "[a::b, http://x]", "{a:b}", "{? a : b}", "[? a : b]", "{'a':}", "{a, b: 1}", "[a, , b]", "[ ]", "{ }", "[a: b]", "{\"a\":1}", "{a: 0644}",
	"&x 0644", "&x [a, b]", "&x {0644: on}",
}

// What a user writes means the same to a reader of YAML 1.1 after it was merged.
func TestMergeKeepsMeaning(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil || exec.CommandContext(t.Context(), python, "-c", "import yaml").Run() != nil {
		t.Skip("there is no Python with PyYAML, which cloud-init reads with")
	}
	texts := []string{
		"a: &x {b: 1, c: on}\nd: {<<: *x, b: 2}\ne: {<<: [{b: 3}, *x]}\nf: [*x, *x]\n", "yes: 1\n0x1: 2\n~: 3\n2024-01-01: 4\n1.5: 5\n",
		"a: !!binary aGk=\nb:\n- - c\n  -  - d\n- e: f\n  g: h\n", "? " + strings.Repeat("x", 200) + "\n: y\n", "? |\n  a\n  b\n: y\n", "a: [b,\n c]\n# d\n\n\ne: f # g\n",
	}
	for _, trap := range traps {
		texts = append(texts, "a:\n  b: "+trap+"\n")
		if !strings.Contains(trap, "\n") {
			texts = append(texts, "a: ["+trap+", x]\n", "a:\n- "+trap+"\n", trap+": a\n")
		}
	}
	type pair struct{ Before, After string }
	var pairs []pair
	for _, text := range texts {
		b, err := UserData{Hostname: "n", Extra: []byte(text)}.Encode()
		if err != nil {
			t.Logf("%q is refused: %v", text, err)
			continue
		}
		pairs = append(pairs, pair{text, string(b)})
	}
	if len(pairs) < len(texts)*8/10 {
		t.Errorf("only %d of %d are accepted", len(pairs), len(texts))
	}
	cmd := exec.CommandContext(t.Context(), python, "-c", `
import json, sys, yaml
for pair in json.load(sys.stdin):
    try:
        before = yaml.safe_load(pair["Before"])
    except Exception:
        continue
    after = yaml.safe_load(pair["After"])
    got = {key: after.get(key, "is missing") for key in before}
    if repr(got) != repr(before):
        print(repr(pair["Before"]), "means", repr(before), "and then", repr(got))
`)
	input, err := json.Marshal(pairs)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin = strings.NewReader(string(input))
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestKindOf(t *testing.T) {
	for want, values := range map[kind][]string{
		isText:   {"a", "y", "nil", "tRue", "0o7", "08", "1e3", "1_a", "12:60", "2024-1-1", "2024-01-01T1:00", "==", "1.5e3", "+.nan", "0x", "0xg", "é"},
		isNull:   {"", "~", "null", "Null", "NULL"},
		isBool:   {"yes", "NO", "True", "off"},
		isNumber: {"0", "-1", "+1", "0644", "0b1", "0xFF", "1_000", "12:30", "1.5", "1.", ".5", "1.5e+3", ".inf", "-.Inf", ".NAN", "1:30.5"},
		isTime:   {"2024-02-29", "2024-02-09T01:02:03Z", "2024-2-9 1:02:03", "2024-02-09t01:02:03.004+01:30", "2024-02-09 01:02:03\t-5"},
		isBroken: {"=", "<<", "0b_", "-0x__", "._", "2023-02-29", "2024-13-01", "2024-00-01", "0000-01-01", "2024-02-09 24:00:00", "2024-02-09 00:60:00", "2024-02-09 00:00:60", "2024-02-09 00:00:00 +23:60"},
	} {
		for _, v := range values {
			if got := kindOf(v); got != want {
				t.Errorf("%q is %d, want %d", v, got, want)
			}
		}
	}
}

// Whatever is accepted comes out as one document, with all that is ours, and with all of the user's as text that stays text.
func FuzzMerge(f *testing.F) {
	for _, trap := range traps {
		f.Add("a: " + trap)
	}
	for _, s := range []string{
		"", "runcmd: [ls]", "write_files: [{path: /x}]", "apt: {}", "? [a]\n: b", "<<: {a: 1}", "a: &x [*x]", "users: x", "write_files: {a: b}", "\ufeffa: 1", "a: 1\n---\nb: 2",
		"#cloud-config\n", "#!", "a:\tb", "a: b: c", "%YAML 1.2\n---\na: b", "a: \"\\ud800\"", "a: 'b\n\n\n c'", "- a", "a: >2-\n  b", bomb(), "runcmd: [yes]", "runcmd:\n- |\n  a\n  b\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		b, err := node(text).Encode()
		if err != nil {
			return
		}
		if CheckExtra(text) != nil {
			t.Errorf("%q is merged, and was refused before", text)
		}
		files, commands := decode(t, []byte(strings.Replace(string(b), "runcmd:\n- \"( :\"\n", "theirs:\n- \"( :\"\n", 1)))
		if files["/etc/ours"] != "ours\n" {
			t.Errorf("%q: our file is lost in\n%s", text, b)
		}
		if !strings.Contains(string(b), "runcmd:\n- \"( :\"\n") && !reflect.DeepEqual(commands, [][]string{{"/bin/sh", "/ours.sh"}}) {
			t.Errorf("%q: our command is lost in\n%s", text, b)
		}
		theirs, err := readExtra([]byte(text))
		if err != nil || theirs == nil {
			return
		}
		// What was merged once reads the same again.
		once, err := encode(theirs)
		if err != nil {
			t.Fatal(err)
		}
		again, err := readExtra(once)
		if err != nil && len(once) < maxExtra {
			t.Fatalf("%q becomes %q, and that is refused: %v", text, once, err)
		}
		if twice, err := encode(again); len(once) < maxExtra && (err != nil || string(twice) != string(once)) {
			t.Errorf("%q becomes %q, and that %q: %v", text, once, twice, err)
		}
		var loose any
		if err := yaml.Unmarshal(once, &loose); err != nil {
			t.Errorf("%q becomes %q: %v", text, once, err)
		}
	})
}
