package descriptors

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"net/url"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"
)

// Field is a field of a part of the rules, in the words of the rule file.
type Field struct{ Name, Text string }

// Fields are the fields of a struct that have a value, but positions and those that are left out. It goes by the types
// alone, so that a new field is there as well.
func Fields(of any, without ...string) (all []Field) {
	v := reflect.Indirect(reflect.ValueOf(of))
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if field.Type == reflect.TypeFor[Pos]() || v.Field(i).IsZero() || slices.Contains(without, field.Name) {
			continue
		}
		all = append(all, Field{keyOf(field.Name), fieldValue(field.Name, v.Field(i))})
	}
	return all
}

// appendFields appends Fields, each as ", name: value".
func appendFields(b []byte, of any, without ...string) []byte {
	for _, f := range Fields(of, without...) {
		b = append(b, ", "+f.Name+": "+f.Text...)
	}
	return b
}

// keyOf writes the name of a field as the rule file would: MaxDelay is max_delay.
func keyOf(name string) string {
	var b strings.Builder
	before := 'A'
	for _, r := range name {
		if unicode.IsUpper(r) && !unicode.IsUpper(before) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
		before = r
	}
	return b.String()
}

// fieldValue writes the value of a field. What may differ from one machine to the next, or is secret, is left out of
// where a key set is and of the digest of a key.
func fieldValue(name string, v reflect.Value) string {
	switch {
	case name == "JWKS":
		at, err := url.Parse(v.String())
		if err != nil || at.Host == "" {
			return quote(path.Base(v.String()))
		}
		return quote(at.Scheme + "://" + at.Host + at.Path)
	case name == "SHA256":
		digest, _ := v.Interface().([32]byte)
		return hex.EncodeToString(digest[:4]) + "…"
	}
	return valueText(v)
}

// valueText writes a value on one line.
func valueText(v reflect.Value) string {
	switch known := v.Interface().(type) {
	case Pattern:
		return quote(known.Text)
	case time.Time:
		return known.UTC().Format(time.RFC3339)
	case fmt.Stringer:
		return known.String()
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return "null"
		}
		return valueText(v.Elem())
	case reflect.String:
		return quote(v.String())
	case reflect.Struct:
		return "{" + strings.TrimPrefix(string(appendFields(nil, v.Interface())), ", ") + "}"
	case reflect.Slice, reflect.Array:
		return listText(v)
	case reflect.Map:
		return mapText(v)
	}
	return fmt.Sprint(v.Interface())
}

func listText(v reflect.Value) string {
	parts := make([]string, v.Len())
	for i := range parts {
		parts[i] = valueText(v.Index(i))
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

// mapText writes a map in the order of its keys.
func mapText(v reflect.Value) string {
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return cmp.Compare(a.String(), b.String()) })
	parts := make([]string, len(keys))
	for i, key := range keys {
		parts[i] = valueText(key) + ": " + valueText(v.MapIndex(key))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}
