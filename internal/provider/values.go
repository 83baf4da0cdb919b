package provider

import (
	"reflect"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// kept is what the user wrote where it still says what is now, and else that. A wish can be written in several ways: an
// empty list and none are the same, and so are "60m" and "1h".
func kept[V attr.Value, T any](before V, read func(V) T, is T, render func(T) V) V {
	if whole(before) && reflect.DeepEqual(read(before), is) {
		return before
	}
	return render(is)
}

// texts are the elements of a list, none where it is not known.
func texts(list types.List) []string {
	var out []string
	for _, e := range list.Elements() {
		if s, ok := e.(types.String); ok {
			out = append(out, s.ValueString())
		}
	}
	return out
}

// listValue renders texts for the state; what the user wrote stays where it says the same.
func listValue(before types.List, elements []string) types.List {
	if before.IsNull() {
		return newList(elements)
	}
	return kept(before, texts, elements, newList)
}

// newList renders texts, null where there are none.
func newList(elements []string) types.List {
	if len(elements) == 0 {
		return types.ListNull(types.StringType)
	}
	values := make([]attr.Value, 0, len(elements))
	for _, e := range elements {
		values = append(values, types.StringValue(e))
	}
	return types.ListValueMust(types.StringType, values)
}

// part is an attribute of an object, null where the object has none.
func part[V attr.Value](o types.Object, name string) V {
	v, _ := o.Attributes()[name].(V)
	return v
}

// known reports whether all values are known, be it with parts that are not.
func known(values ...attr.Value) bool {
	for _, v := range values {
		if v.IsUnknown() {
			return false
		}
	}
	return true
}

// whole reports whether all values are known, and everything in them.
func whole(values ...attr.Value) bool {
	for _, v := range values {
		if v.IsUnknown() {
			return false
		}
		switch v := v.(type) {
		case types.List:
			if !whole(v.Elements()...) {
				return false
			}
		case types.Map:
			for _, e := range v.Elements() {
				if !whole(e) {
					return false
				}
			}
		case types.Object:
			for _, e := range v.Attributes() {
				if !whole(e) {
					return false
				}
			}
		}
	}
	return true
}

// wholeOr is a value, or another where not all of it is known.
func wholeOr[V attr.Value](v, other V) V {
	if whole(v) {
		return v
	}
	return other
}
