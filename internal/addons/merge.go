package addons

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/cluster"
	"github.com/cockpit-k3s/terraform-provider-cockpit/internal/machine"
)

// tree is a mapping of values.
type tree = map[string]any

// merge puts a user's values over the provider's, as Helm does with two files of values: mappings are merged, everything else
// takes the place of what stood there. A null stays in the result, where it keeps Helm from taking the chart's own default.
// Neither side is changed, and numbers become float64.
func merge(ours, theirs tree) tree {
	out := make(tree, len(ours)+len(theirs))
	for key, value := range ours {
		out[key] = plain(value)
	}
	for key, value := range theirs {
		below, ok := value.(tree)
		under, both := out[key].(tree)
		if ok && both {
			out[key] = merge(under, below)
			continue
		}
		out[key] = plain(value)
	}
	return out
}

// plain copies a value into JSON's types.
func plain(value any) any {
	switch v := value.(type) {
	case tree:
		return merge(v, nil)
	case map[string]string:
		out := make(tree, len(v))
		for key, text := range v {
			out[key] = text
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = plain(item)
		}
		return out
	case []tree:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = plain(item)
		}
		return out
	case []string:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = item
		}
		return out
	case int:
		return float64(v)
	}
	return value
}

// get is the value under a path of keys.
func get(values tree, path ...string) (any, bool) {
	var v any = values
	for _, key := range path {
		below, ok := v.(tree)
		if !ok {
			return nil, false
		}
		if v, ok = below[key]; !ok {
			return nil, false
		}
	}
	return v, true
}

// put sets the value under a path of keys, and makes the mappings on the way.
func put(values tree, value any, path ...string) {
	for _, key := range path[:len(path)-1] {
		below, ok := values[key].(tree)
		if !ok {
			below = tree{}
			values[key] = below
		}
		values = below
	}
	values[path[len(path)-1]] = value
}

// defaultAnnotation says of a StorageClass whether it is the default one.
const defaultAnnotation = "storageclass.kubernetes.io/is-default-class"

// owned is a value that the provider has to set.
type owned struct {
	// path are its keys.
	path []string
	// instead tells what to use in its place, or why nobody else sets it.
	instead string
}

// own makes an owned of a path that is written with dots.
func own(path, instead string) owned { return owned{strings.Split(path, "."), instead} }

// conflicts lists what a user's values say otherwise than the provider's, of that what is the provider's to say. That a value is
// of another type, as the text "true" is, makes no conflict.
func conflicts(field machine.Field, list []owned, ours tree, theirs userValues) []cluster.Problem {
	merged := merge(ours, theirs.values)
	ours = merge(ours, nil)
	var out []cluster.Problem
	for _, o := range list {
		want, wanted := get(ours, o.path...)
		have, had := get(merged, o.path...)
		if wanted == had && alike(want, have) {
			continue
		}
		out = append(out, cluster.Problem{Field: field, Err: fmt.Errorf("%sthe provider sets %s: %s", theirs.at(o.path), strings.Join(o.path, "."), o.instead)})
	}
	return out
}

// at tells the line of a key or else of the innermost mapping around it, as the beginning of an error.
func (u userValues) at(path []string) string {
	for n := len(path); n > 0; n-- {
		if line, ok := u.lines[strings.Join(path[:n], ".")]; ok {
			return fmt.Sprintf("line %d: ", line)
		}
	}
	return ""
}

// alike reports whether two values mean the same to a template, which prints them.
func alike(a, b any) bool {
	switch x := a.(type) {
	case tree:
		y, ok := b.(tree)
		return ok && slices.Equal(slices.Sorted(maps.Keys(x)), slices.Sorted(maps.Keys(y))) &&
			!slices.ContainsFunc(slices.Collect(maps.Keys(x)), func(key string) bool { return !alike(x[key], y[key]) })
	case []any:
		y, ok := b.([]any)
		return ok && slices.EqualFunc(x, y, alike)
	}
	if a == nil || b == nil || reflect.TypeOf(b).Kind() == reflect.Map || reflect.TypeOf(b).Kind() == reflect.Slice {
		return a == nil && b == nil
	}
	return fmt.Sprint(a) == fmt.Sprint(b)
}

// texts are the texts in a mapping of values, numbers and the like as a template would print them.
func texts(values tree, path ...string) map[string]string {
	v, _ := get(values, path...)
	mapping, _ := v.(tree)
	out := make(map[string]string, len(mapping))
	for key, value := range mapping {
		if value != nil {
			out[key] = fmt.Sprint(value)
		}
	}
	return out
}

// stillOurs leaves out of growing values those that a user set.
func stillOurs(merged, ours tree, list []growing) []growing {
	ours = merge(ours, nil)
	return slices.DeleteFunc(list, func(g growing) bool {
		path := strings.Split(g.key, ".")
		want, _ := get(ours, path...)
		have, _ := get(merged, path...)
		return !alike(want, have)
	})
}
