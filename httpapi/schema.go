package httpapi

import (
	"encoding"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Schema describes a value, as in JSON Schema. Requests are checked against it.
type Schema struct {
	Ref         string             `json:"$ref,omitempty"`
	Type        string             `json:"type,omitempty"`
	Description string             `json:"description,omitempty"`
	Format      string             `json:"format,omitempty"`
	Pattern     string             `json:"pattern,omitempty"`
	Enum        []string           `json:"enum,omitempty"`
	Minimum     *int64             `json:"minimum,omitempty"`
	Maximum     *int64             `json:"maximum,omitempty"`
	MinLength   int                `json:"minLength,omitempty"`
	MaxLength   int                `json:"maxLength,omitempty"`
	MinItems    int                `json:"minItems,omitempty"`
	MaxItems    int                `json:"maxItems,omitempty"`
	Default     any                `json:"default,omitempty"`
	Items       *Schema            `json:"items,omitempty"`
	Properties  map[string]*Schema `json:"properties,omitempty"`
	Required    []string           `json:"required,omitempty"`
	// false, or the *Schema of the values of a map
	Additional any       `json:"additionalProperties,omitempty"`
	OneOf      []*Schema `json:"oneOf,omitempty"`
	AnyOf      []*Schema `json:"anyOf,omitempty"`

	about string // of a parameter
}

// SchemaOf reads a schema from its text, which is part of the program.
func SchemaOf(text string) *Schema {
	s := new(Schema)
	if err := json.Unmarshal([]byte(text), s); err != nil {
		panic(err)
	}
	return s
}

// Described is a type that has a schema of its own. It is read from JSON, or from the text of a parameter, as Go does.
type Described interface{ Schema() *Schema }

// use is whether values of a type are sent, and must not be empty, or answered, and may be null.
type use bool

const (
	sent     use = true
	answered use = false
)

// schemas are those of the structs of an API, by their names in the document.
type schemas struct {
	byName   map[string]*Schema
	types    map[string]reflect.Type
	nul      bool
	comments map[string]string
}

// of is the schema of a type. Structs are added to those of the API. Of a type that is sent and answered,
// the schema of what is sent has to be made first.
func (all *schemas) of(t reflect.Type, as use) *Schema {
	if own, is := reflect.New(t).Interface().(Described); is {
		return own.Schema()
	}
	switch {
	case t == reflect.TypeFor[time.Time]():
		return &Schema{Type: "string", Format: "date-time"}
	case t == reflect.TypeFor[json.RawMessage](), t.Kind() == reflect.Interface:
		return &Schema{}
	case reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		return all.text(as)
	}
	return all.ofKind(t, as)
}

// ofKind is the schema of a type by its kind.
func (all *schemas) ofKind(t reflect.Type, as use) *Schema {
	switch t.Kind() {
	case reflect.Pointer:
		s := all.of(t.Elem(), as)
		s.MinLength = 0
		return s
	case reflect.Slice, reflect.Array:
		return &Schema{Type: "array", Items: all.of(t.Elem(), as)}
	case reflect.Map:
		s := all.of(t.Elem(), as)
		s.MinLength = 0
		return &Schema{Type: "object", Additional: s}
	case reflect.Struct:
		return all.object(t, as)
	case reflect.String:
		return all.text(as)
	case reflect.Bool:
		return &Schema{Type: "boolean"}
	case reflect.Float64, reflect.Float32:
		return &Schema{Type: "number"}
	}
	return integer(t, as)
}

// integer is the schema of whole numbers of a type.
func integer(t reflect.Type, as use) *Schema {
	s := &Schema{Type: "integer"}
	if as == sent {
		low, high := int64(math.MinInt64), int64(math.MaxInt64)
		if bits := t.Bits(); bits < 64 {
			low, high = -1<<(bits-1), 1<<(bits-1)-1
		}
		s.Minimum, s.Maximum = &low, &high
	}
	return s
}

func (all *schemas) text(as use) *Schema {
	s := &Schema{Type: "string"}
	if as == sent {
		s.MinLength = 1
		if !all.nul {
			s.Pattern = noNUL
		}
	}
	return s
}

// object adds the schema of a struct to those of the API, and refers to it. One without a name is described in place.
func (all *schemas) object(t reflect.Type, as use) *Schema {
	name := strings.TrimSuffix(t.Name(), "View")
	ref := &Schema{Ref: "#/components/schemas/" + name}
	if had := all.types[name]; had != nil {
		if had != t {
			panic(fmt.Sprintf("two types have the schema %s: %v and %v", name, had, t))
		}
		return ref
	}
	s := &Schema{Type: "object", Description: all.comments[t.Name()], Properties: map[string]*Schema{},
		Additional: false}
	if name != "" {
		all.types[name], all.byName[name] = t, s
	}
	all.fields(t, s, as)
	if name == "" {
		return s
	}
	return ref
}

// fields adds the fields of a struct, and of those that it embeds, to a schema.
func (all *schemas) fields(t reflect.Type, to *Schema, as use) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Name == "_":
			to.OneOf = alternatives(f.Tag.Get("oneof"))
			continue
		case f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct:
			all.fields(f.Type, to, as)
			continue
		case name == "" || name == "-":
			continue
		}
		s, omitted := all.field(f, as), strings.Contains(options, "omit")
		if about := all.comments[t.Name()+"."+f.Name]; about != "" {
			s.Description = about
		}
		if !omitted {
			to.Required = append(to.Required, name)
			s = s.orNull(f.Type, as)
		}
		to.Properties[name] = s
	}
}

// orNull is the schema of a field that is always there, of a type.
func (s *Schema) orNull(t reflect.Type, as use) *Schema {
	if as == sent || !mayBeNull(t) {
		return s
	}
	about := s.Description
	s.Description = ""
	return &Schema{AnyOf: []*Schema{s, {Type: "null"}}, Description: about}
}

// alternatives are those of a tag oneof, in a schema.
func alternatives(tag string) []*Schema {
	var all []*Schema
	for _, words := range strings.Fields(tag) {
		all = append(all, &Schema{Required: strings.Split(words, "+")})
	}
	return all
}

// field is the schema of a field with its tags.
func (all *schemas) field(f reflect.StructField, as use) *Schema {
	s := all.of(f.Type, as)
	if bounds, given := f.Tag.Lookup("in"); given {
		s.bound(bounds)
	}
	if words, given := f.Tag.Lookup("one"); given {
		s.Enum, s.MinLength, s.Pattern = strings.Fields(words), 0, ""
	}
	if pattern, given := f.Tag.Lookup("like"); given {
		s.Pattern = pattern
	}
	if s.Pattern != "" {
		regexp.MustCompile(s.Pattern)
	}
	return s
}

// bound narrows a schema to a range such as 1..1000 or 1..
func (s *Schema) bound(text string) {
	from, to, found := strings.Cut(text, "..")
	low, err := strconv.ParseInt(from, 10, 64)
	high, wrong := int64(math.MaxInt64), error(nil)
	if to != "" {
		high, wrong = strconv.ParseInt(to, 10, 64)
	}
	if err != nil || wrong != nil || !found {
		panic(fmt.Sprintf("the tag in:%q must be a range such as 1..1000", text))
	}
	switch s.Type {
	case "integer":
		s.Minimum, s.Maximum = &low, &high
	case "array":
		s.MinItems, s.MaxItems = int(low), int(high)
	default:
		s.MinLength, s.MaxLength = int(low), int(high)
	}
}
