package admin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// strict returns what a JSON document has that the type has not: names in another case, empty names of identities, and null anywhere.
// The decoder itself would take them.
func strict(text []byte, of reflect.Type) error {
	text = bytes.TrimSpace(text)
	if string(text) == "null" {
		return fmt.Errorf("null is no value: leave the field out")
	}
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	switch {
	case len(text) == 0:
		return nil
	case text[0] == '{':
		return strictObject(text, of)
	case text[0] == '[':
		return strictList(text, of)
	}
	return nil
}

// strictObject checks the fields of an object.
func strictObject(text []byte, of reflect.Type) error {
	var held map[string]json.RawMessage
	err := json.Unmarshal(text, &held)
	if err != nil {
		return err
	}
	known := map[string]reflect.Type{}
	if of.Kind() == reflect.Struct {
		fieldsOf(of, known)
	}
	for name, value := range held {
		field, found := known[name]
		switch {
		case of.Kind() == reflect.Map:
			field = of.Elem()
		case of.Kind() != reflect.Struct:
			field = of // it is read elsewhere
		case !found:
			return fmt.Errorf("unknown field %q", name)
		case string(value) == `""` && field.Kind() == reflect.String:
			return fmt.Errorf("%s is empty: leave it out, or fill it in", name)
		}
		err = strict(value, field)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// strictList checks the items of a list.
func strictList(text []byte, of reflect.Type) error {
	var items []json.RawMessage
	err := json.Unmarshal(text, &items)
	if err != nil {
		return err
	}
	if of.Kind() == reflect.Slice && of != reflect.TypeFor[json.RawMessage]() {
		of = of.Elem()
	}
	for _, item := range items {
		err = strict(item, of)
		if err != nil {
			return err
		}
	}
	return nil
}

// fieldsOf fills in the names of the fields of a struct in JSON, with their types.
func fieldsOf(of reflect.Type, known map[string]reflect.Type) {
	for i := range of.NumField() {
		f := of.Field(i)
		if f.Anonymous {
			fieldsOf(f.Type, known)
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		known[name] = f.Type
	}
}
