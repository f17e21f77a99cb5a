package rulediff

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// others notes the fields of two structs that differ and that no comparison of its own knows, so that a field which comes later is not overlooked.
func (v *verdict) others(what string, old, new any, known ...string) {
	was, is := fields(old), fields(new)
	for _, name := range slices.Sorted(maps.Keys(is)) {
		if !slices.Contains(known, name) {
			v.say(what+strings.ToLower(name), fmt.Sprint(was[name]), fmt.Sprint(is[name]), 0)
		}
	}
}

// fields are those of a struct by name, without where they were written.
func fields(of any) map[string]any {
	text, err := json.Marshal(of)
	var all map[string]any
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		panic("rulediff: rules hold nothing but plain data: " + err.Error())
	}
	strip(all)
	return all
}

// strip removes positions.
func strip(value any) {
	switch value := value.(type) {
	case map[string]any:
		for _, name := range []string{"File", "Line", "Column"} {
			delete(value, name)
		}
		for _, inner := range value {
			strip(inner)
		}
	case []any:
		for _, inner := range value {
			strip(inner)
		}
	}
}
