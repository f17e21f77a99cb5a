package replay

import (
	"errors"

	"github.com/tidwall/gjson"
)

// maxDepth is how many objects may be within each other.
const maxDepth = 64

var (
	errJSON = errors.New("the line begins as JSON and must be one object of JSON")
	errDeep = errors.New("too many objects within each other")
)

// readJSON reads a line of JSON into the record: strings, numbers and literals under their names, those of objects
// within the object under both names with a dot between. Text without escapes is not copied.
func readJSON(l *layout, r *record, line string) error {
	if !gjson.Valid(line) {
		return errJSON
	}
	return r.setFields(l, "", gjson.Parse(line), 0)
}

// setFields takes the values of an object whose fields have this in front of their names.
func (r *record) setFields(l *layout, prefix string, object gjson.Result, depth int) (err error) {
	if depth > maxDepth {
		return errDeep
	}
	object.ForEach(func(key, value gjson.Result) bool {
		name := key.String()
		if prefix != "" {
			name = prefix + name
		}
		switch {
		case value.IsObject():
			err = r.setFields(l, name+".", value, depth+1)
		case value.Type == gjson.String:
			r.set(l, name, value.String())
		case value.Type != gjson.Null && !value.IsArray():
			r.set(l, name, value.Raw)
		}
		return err == nil
	})
	return err
}
