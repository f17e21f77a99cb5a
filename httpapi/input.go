package httpapi

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Sent is the input of an operation that takes a body alone, or a part of one that takes more.
type Sent[T any] struct {
	Body T `body:""`
}

// Lines is a body that is read while it comes. The tag of its field names the content types that it may have.
type Lines struct {
	Kind string
	io.Reader
}

// parameter is an input of the path, the query or a header.
type parameter struct {
	Name        string  `json:"name"`
	In          string  `json:"in"`
	Required    bool    `json:"required"`
	Description string  `json:"description,omitempty"`
	Schema      *Schema `json:"schema"`

	field []int // of the struct of inputs
}

// input is how the struct of inputs of an operation is read.
type input struct {
	of         reflect.Type
	parameters []parameter
	body       []int // the field of the body; nil: without one
	schema     *Schema
	lines      []string // content types of a body that is read while it comes
}

// inputOf reads the tags of a struct of inputs.
func (a *API) inputOf(t reflect.Type, op *Op) *input {
	in := &input{of: t}
	for _, f := range reflect.VisibleFields(t) {
		if kinds, is := f.Tag.Lookup("body"); is {
			in.body = f.Index
			if f.Type == reflect.TypeFor[Lines]() {
				in.lines = strings.Fields(kinds)
			} else {
				in.schema = a.schemas.of(f.Type, sent)
			}
		}
		for _, where := range []string{"path", "query", "header"} {
			tag, is := f.Tag.Lookup(where)
			if !is {
				continue
			}
			name, option, _ := strings.Cut(tag, ",")
			p := parameter{
				Name: name, In: where, Required: option == "required" || where == "path", field: f.Index,
				Description: a.schemas.comments[ownerOf(t, f)+"."+f.Name], Schema: a.schemas.field(f, sent),
			}
			p.Schema.about = p.Description
			p.Schema.setDefault(f.Tag.Get("or"))
			in.parameters = append(in.parameters, p)
			if where == "path" && !strings.Contains(strings.ReplaceAll(op.Path, "...}", "}"), "{"+name+"}") {
				panic(fmt.Sprintf("%s %s has no {%s}", op.Method, op.Path, name))
			}
		}
	}
	return in
}

// ownerOf is the name of the struct that has a field, which t may embed.
func ownerOf(t reflect.Type, f reflect.StructField) string {
	for _, i := range f.Index[:len(f.Index)-1] {
		t = t.Field(i).Type
	}
	return t.Name()
}

func (s *Schema) setDefault(text string) {
	switch n, err := strconv.ParseInt(text, 10, 64); {
	case text == "":
	case s.Type == "integer" && err == nil:
		s.Default = n
	default:
		s.Default = text
	}
}

// read reads the inputs of a request, and finds all that is wrong with them.
func (in *input) read(r *http.Request, all *schemas) (any, *Problem) {
	into := reflect.New(in.of)
	c := &checker{all: all}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, Bad("the query cannot be read: %v", err)
	}
	for i := range in.parameters {
		in.parameters[i].readInto(c, r, query, into.Elem())
	}
	in.refuseUnknown(c, query)
	if in.body != nil {
		wrong := in.readBody(c, r, into.Elem().FieldByIndex(in.body))
		if wrong != nil {
			return nil, wrong
		}
	}
	if wrong := badFields(c.wrong); wrong != nil {
		return nil, wrong
	}
	return into.Interface(), nil
}

// refuseUnknown refuses parameters of the query that the operation has not.
func (in *input) refuseUnknown(c *checker, query url.Values) {
	var known []string
	for _, p := range in.parameters {
		if p.In == "query" {
			known = append(known, p.Name)
		}
	}
	for name := range query {
		if !slices.Contains(known, name) {
			c.fail("query."+name, "is unknown: use %s", strings.Join(append(known, "nothing else"), ", "))
		}
	}
}

// readInto reads one parameter into its field.
func (p *parameter) readInto(c *checker, r *http.Request, query url.Values, into reflect.Value) {
	name, values := p.In+"."+p.Name, p.values(r, query)
	switch {
	case len(values) == 0 && p.Required:
		c.fail(name, "is missing")
		return
	case len(values) == 0:
		return
	case len(values) > 1:
		c.fail(name, "is there %d times: give it once", len(values))
		return
	}
	before := len(c.wrong)
	value := c.check(name, p.typed(values[0]), p.Schema)
	if len(c.wrong) > before {
		return
	}
	err := set(into.FieldByIndex(p.field), fmt.Sprint(value))
	if err != nil {
		c.fail(name, "%v", err)
	}
}

// values are the texts of the parameter in a request.
func (p *parameter) values(r *http.Request, query url.Values) (values []string) {
	switch p.In {
	case "path":
		return []string{r.PathValue(p.Name)}
	case "query":
		values = query[p.Name]
	case "header":
		values = r.Header[http.CanonicalHeaderKey(p.Name)]
	}
	if len(values) == 0 && p.Schema.Default != nil {
		return []string{fmt.Sprint(p.Schema.Default)}
	}
	return values
}

// typed is the value of a text, as JSON has it, where it is one of the parameter's type.
func (p *parameter) typed(text string) any {
	_, err := strconv.ParseInt(text, 10, 64)
	switch {
	case p.Schema.Type == "integer" && err == nil:
		return json.Number(text)
	case p.Schema.Type == "boolean" && (text == "true" || text == "false"):
		return text == "true"
	}
	return text
}

// set sets a field to the value that a text is.
func set(field reflect.Value, text string) error {
	if field.Kind() == reflect.Pointer {
		field.Set(reflect.New(field.Type().Elem()))
		field = field.Elem()
	}
	if own, is := field.Addr().Interface().(encoding.TextUnmarshaler); is {
		return own.UnmarshalText([]byte(text))
	}
	switch field.Kind() {
	case reflect.String:
		field.SetString(text)
	case reflect.Bool:
		field.SetBool(text == "true")
	default:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return err
		}
		field.SetInt(n)
	}
	return nil
}

// readBody reads the body.
func (in *input) readBody(c *checker, r *http.Request, into reflect.Value) *Problem {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if in.lines != nil {
		into.Set(reflect.ValueOf(Lines{kind, r.Body}))
		return in.unsupported(kind, in.lines)
	}
	if wrong := in.unsupported(kind, []string{"application/json"}); wrong != nil {
		return wrong
	}
	text, err := io.ReadAll(r.Body)
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return NewProblem(http.StatusRequestEntityTooLarge, "the body has more than %d bytes", large.Limit)
	}
	if err != nil {
		return Bad("the body cannot be read: %v", err)
	}
	err = c.decode("body", text, in.schema, into.Addr().Interface())
	if err != nil {
		return Bad("the body %v", err)
	}
	return nil
}

func (in *input) unsupported(kind string, kinds []string) *Problem {
	if slices.Contains(kinds, kind) {
		return nil
	}
	return NewProblem(http.StatusUnsupportedMediaType, "the content type is %q: send %s", kind,
		strings.Join(kinds, " or "))
}

// decode reads one JSON document that a schema describes. The error is about a text that is not JSON.
func (c *checker) decode(name string, text []byte, s *Schema, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var document any
	err := d.Decode(&document)
	if errors.Is(err, io.EOF) {
		return errors.New("is empty: send a JSON object")
	}
	if err != nil {
		return fmt.Errorf("must be JSON: %w", err)
	}
	if _, err = d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("has something behind the JSON object: send one object alone")
	}
	before := len(c.wrong)
	document = c.check(name, document, s)
	if len(c.wrong) > before {
		return nil
	}
	text, err = json.Marshal(document)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		c.fail(name, "is not what is expected: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// Decoder makes a function that reads JSON documents, each of which a name is for, as strictly as a body. The error is
// a *Problem.
func Decoder[T any](name string) func(text []byte) (*T, error) {
	all := &schemas{byName: map[string]*Schema{}, types: map[string]reflect.Type{}}
	schema := all.of(reflect.TypeFor[T](), sent)
	return func(text []byte) (*T, error) {
		c, into := &checker{all: all}, new(T)
		err := c.decode(name, text, schema, into)
		if err != nil {
			return nil, Bad("the %s %v", name, err)
		}
		if wrong := badFields(c.wrong); wrong != nil {
			return nil, wrong
		}
		return into, nil
	}
}
