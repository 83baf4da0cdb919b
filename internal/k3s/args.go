package k3s

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// ArgsYAML is the text of ArgsPath for arguments of the form --name=value or --name, which CheckArgs takes. Values of
// flags that may be repeated are added to those in ConfigPath; others take their place.
func ArgsYAML(role Role, args []string) ([]byte, error) {
	settings, err := parseArgs(role, args)
	if err != nil {
		return nil, err
	}
	file := yaml.Node{Kind: yaml.MappingNode}
	for _, s := range settings {
		key, value := s.name, s.values[0]
		if s.list {
			key, value = key+"+", &yaml.Node{Kind: yaml.SequenceNode, Content: s.values}
		}
		file.Content = append(file.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, value)
	}
	return encode(&file)
}

// CheckArgs says what is wrong with arguments for k3s: their form, or that the provider sets what they would set. An error
// names flags, never values.
//
// A flag that is not known here passes, since k3s gets new ones, unless it looks like a mistyped one: a server only warns
// of a flag in its configuration that it does not know, and goes on without.
func CheckArgs(role Role, args []string) error {
	_, err := parseArgs(role, args)
	return err
}

// setting is a key of the configuration.
type setting struct {
	name string
	// list: the values are added to what is set elsewhere.
	list   bool
	values []*yaml.Node
}

// parseArgs returns the settings in the order in which their names come first.
func parseArgs(role Role, args []string) ([]setting, error) {
	var settings []setting
	for i, arg := range args {
		name, value, given, err := splitArg(arg)
		if err != nil {
			return nil, fmt.Errorf("argument %d: %w", i+1, err)
		}
		if err := checkFlag(role, name, value, given); err != nil {
			return nil, fmt.Errorf("argument %d: --%s: %w", i+1, name, err)
		}
		kind, known := flags[name]
		at := slices.IndexFunc(settings, func(s setting) bool { return s.name == name })
		switch {
		case at < 0:
			at = len(settings)
			settings = append(settings, setting{name: name, list: kind == listFlag})
		case known && kind != listFlag:
			return nil, fmt.Errorf("argument %d: --%s: it stands there twice, and k3s takes it once", i+1, name)
		default:
			settings[at].list = true
		}
		settings[at].values = append(settings[at].values, flagValue(value, given))
	}
	return settings, nil
}

// flagName is what the name of a flag looks like.
var flagName = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

// splitArg parts the full name of a flag from its value, and tells whether there is one.
func splitArg(arg string) (name, value string, given bool, err error) {
	text, dashes := strings.CutPrefix(arg, "--")
	switch {
	case strings.TrimSpace(arg) == "":
		return "", "", false, errors.New("it is empty")
	case !utf8.ValidString(arg), strings.ContainsFunc(arg, unicode.IsControl):
		return "", "", false, errors.New("it has a line break or another character that is no text")
	case !dashes:
		return "", "", false, errors.New("it does not begin with two dashes; write --name=value, each in one text")
	}
	name, value, given = strings.Cut(text, "=")
	if full, short := aliases[name]; short {
		name = full
	}
	if flagName.MatchString(name) {
		return name, value, given, nil
	}
	if first, _, parted := strings.Cut(name, " "); parted && flagName.MatchString(first) {
		return "", "", false, fmt.Errorf("--%s: there is a space behind the name; write --%[1]s=value", first)
	}
	spelt := strings.ReplaceAll(strings.ToLower(name), "_", "-")
	if _, known := flags[spelt]; known {
		return "", "", false, fmt.Errorf("k3s spells the flag --%s", spelt)
	}
	return "", "", false, errors.New("what follows the dashes is not the name of a flag; write --name=value")
}

// checkFlag says why a node of a role cannot have a flag with that value.
func checkFlag(role Role, name, value string, given bool) error {
	if why, taken := takenFlags[name]; taken {
		return errors.New(why)
	}
	if why, taken := agentTaken[name]; taken && role == Agent {
		return errors.New(why)
	}
	if name == "disable" && slices.ContainsFunc(strings.Split(value, ","), func(part string) bool { return strings.TrimSpace(part) == "local-storage" }) {
		return errors.New(ownStorage)
	}
	kind, known := flags[name]
	switch {
	case !known:
		if near := nearest(name, flagNames(role), min(2, (len(name)+1)/4)); near != "" {
			return fmt.Errorf("k3s has no such flag; did you mean --%s?", near)
		}
	case role == Agent && !slices.Contains(agentFlags, name):
		return errors.New("only servers have that flag")
	case role == Server && name == agentOnly:
		return errors.New("only agents have that flag")
	}
	switch {
	case given && value == "":
		return errors.New("there is an equals sign and no value")
	case !given && known && kind != boolFlag:
		return errors.New("it needs a value; write --" + name + "=value")
	case given && known && kind == boolFlag:
		if _, err := strconv.ParseBool(value); err != nil {
			return errors.New("it can only be true or false")
		}
	}
	return nil
}

// flagValue is true for a flag without a value. k3s reads YAML 1.1, which sees truth values, times and octal numbers in
// texts without quotes.
func flagValue(value string, given bool) *yaml.Node {
	if !given {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: "true"}
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.DoubleQuotedStyle, Value: value}
}

// nearest returns the one of the words that a word was likely meant to be, at most limit letters away, or "".
func nearest(word string, words []string, limit int) string {
	best := ""
	for _, w := range words {
		if d := distance(word, w); d <= limit {
			best, limit = w, d-1
		}
	}
	return best
}

// distance is how many letters have to be put in, taken out or changed to make one word of the other.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range a {
		corner := row[0]
		row[0] = i + 1
		for j := range b {
			change := corner
			if a[i] != b[j] {
				change++
			}
			corner = row[j+1]
			row[j+1] = min(change, corner+1, row[j]+1)
		}
	}
	return row[len(b)]
}
