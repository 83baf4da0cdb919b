package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

const defaultConfig = "/etc/rancher/k3s/config.yaml"

// withConfig puts the settings of the config file and its drop-ins before the arguments, so that a flag wins over a
// scalar and adds to a list.
func withConfig(args []string) ([]string, error) {
	file, explicit := configFile(args)
	settings, err := readConfig(file, explicit)
	if err != nil {
		return nil, err
	}
	return append(settings, args...), nil
}

// configFile finds the config file's name and whether the user asked for it.
func configFile(args []string) (string, bool) {
	if v := os.Getenv("K3S_CONFIG_FILE"); v != "" {
		return v, true
	}
	for i, arg := range args {
		name, value, given := strings.Cut(arg, "=")
		if name != "--config" && name != "-c" && name != "-config" && name != "--c" {
			continue
		}
		if given {
			return value, true
		}
		if i+1 < len(args) {
			return args[i+1], true
		}
	}
	return defaultConfig, false
}

// setting is a key of the config with its values in their order.
type setting struct {
	key    string
	values []string
}

// readConfig reads a config file and FILE.d/*.yaml, *.yml in name order. A key's last value counts; "key+" adds to
// what came before.
func readConfig(file string, explicit bool) ([]string, error) {
	files := []string{file}
	entries, err := os.ReadDir(file + ".d")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading config drop-ins: %w", err)
	}
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); !e.IsDir() && (ext == ".yaml" || ext == ".yml") {
			files = append(files, filepath.Join(file+".d", e.Name()))
		}
	}
	var settings []setting
	for i, name := range files {
		b, err := os.ReadFile(name)
		if i == 0 && !explicit && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reading config: %w", err)
		}
		if settings, err = mergeConfig(settings, b); err != nil {
			return nil, fmt.Errorf("reading config %s: %w", name, err)
		}
	}
	var args []string
	for _, s := range settings {
		dashes := "--"
		if len(s.key) == 1 {
			dashes = "-"
		}
		for _, v := range s.values {
			args = append(args, dashes+s.key+"="+v)
		}
	}
	return args, nil
}

func mergeConfig(settings []setting, doc []byte) ([]setting, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(doc, &root); err != nil {
		return nil, err
	}
	if len(root.Content) == 0 {
		return settings, nil
	}
	top := root.Content[0]
	if top.Kind != yaml.MappingNode {
		return nil, errors.New("the document is not a mapping")
	}
	for i := 0; i+1 < len(top.Content); i += 2 {
		key, add := strings.CutSuffix(top.Content[i].Value, "+")
		vals, err := scalars(top.Content[i+1])
		if err != nil {
			return nil, fmt.Errorf("key %s: %w", key, err)
		}
		at := slices.IndexFunc(settings, func(s setting) bool { return s.key == key })
		switch {
		case at < 0:
			settings = append(settings, setting{key, vals})
		case add:
			settings[at].values = append(settings[at].values, vals...)
		default:
			settings[at].values = vals
		}
	}
	return settings, nil
}

// scalars returns the strings of a scalar or a list of scalars.
func scalars(n *yaml.Node) ([]string, error) {
	switch n.Kind {
	case yaml.ScalarNode:
		if n.Tag == "!!null" {
			return []string{""}, nil
		}
		return []string{n.Value}, nil
	case yaml.SequenceNode:
		out := make([]string, 0, len(n.Content))
		for _, e := range n.Content {
			if e.Kind != yaml.ScalarNode {
				return nil, errors.New("a list may hold scalars only")
			}
			out = append(out, e.Value)
		}
		return out, nil
	case yaml.AliasNode:
		return scalars(n.Alias)
	default:
		return nil, errors.New("a value is a scalar or a list of scalars")
	}
}
