package httpapi

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"reflect"
	"strings"
	"unicode"
	"unicode/utf8"
)

// object is a JSON object.
type object = map[string]any

// document is an OpenAPI document.
type document struct {
	OpenAPI    string             `json:"openapi"`
	Info       object             `json:"info"`
	Paths      object             `json:"paths"`
	Security   []map[string][]any `json:"security,omitempty"`
	Components map[string]object  `json:"components"`
}

// Schema leaves the document itself without one.
func (*document) Schema() *Schema { return &Schema{Type: "object"} }

// Document is the OpenAPI document of the API.
func (a *API) Document() any { return a.document() }

// addAnswers makes the schemas of answers, after those of what is sent.
func (a *API) addAnswers() {
	a.schemas.of(reflect.TypeFor[Problem](), answered)
	for _, o := range a.operations {
		if o.out != reflect.TypeFor[None]() {
			a.schemas.of(o.out, answered)
		}
	}
}

// makeDocument describes the operations and the types that they take and answer.
func (a *API) makeDocument() *document {
	a.ready.Do(a.addAnswers)
	problem := a.schemas.of(reflect.TypeFor[Problem](), answered)
	paths, schemes := object{}, object{}
	for _, o := range a.operations {
		path := strings.ReplaceAll(o.Path, "...}", "}")
		if paths[path] == nil {
			paths[path] = object{}
		}
		paths[path].(object)[strings.ToLower(o.Method)] = a.describe(o, problem)
	}
	d := &document{OpenAPI: "3.1.0", Info: object{"title": a.Title, "version": "1", "description": a.About},
		Paths: paths}
	if a.Access.Tokens != nil {
		d.Security = append(d.Security, map[string][]any{"token": {}})
		schemes["token"] = object{"type": "http", "scheme": "bearer",
			"description": "A token of " + a.Access.TokenFile + "."}
	}
	if a.Access.Certified {
		d.Security = append(d.Security, map[string][]any{"certificate": {}})
		schemes["certificate"] = object{"type": "mutualTLS",
			"description": "A certificate that " + a.Access.ClientCA + " has signed."}
	}
	named := object{}
	for name, s := range a.schemas.byName {
		named[name] = s
	}
	d.Components = map[string]object{"schemas": named, "securitySchemes": schemes}
	return d
}

// describe is an operation in the document.
func (a *API) describe(o *operation, problem *Schema) object {
	about := o.About
	if o.Role != NoRole {
		about = strings.TrimSpace(about + " Role: " + a.Access.Roles.Word(o.Role) + ".")
	}
	good, status := object{"description": "Done."}, "200"
	switch {
	case o.stream:
		good["content"] = content("text/event-stream", a.schemas.of(o.out, answered))
	case o.out == reflect.TypeFor[None]():
		status = "204"
	default:
		good["content"] = content("application/json", a.schemas.of(o.out, answered))
	}
	answers := object{status: good, "default": object{
		"description": "What is wrong, and what to do.", "content": content("application/problem+json", problem),
	}}
	if o.Made {
		answers["201"] = good
		if o.Method == "POST" {
			delete(answers, "200")
		}
	}
	described := object{"summary": o.Summary, "description": about, "responses": answers}
	if len(o.in.parameters) > 0 {
		described["parameters"] = o.in.parameters
	}
	switch {
	case o.in.lines != nil:
		kinds := object{}
		for _, kind := range o.in.lines {
			kinds[kind] = object{"schema": &Schema{Type: "string"}}
		}
		described["requestBody"] = object{"required": true, "content": kinds}
	case o.in.schema != nil:
		described["requestBody"] = object{"required": true, "content": content("application/json", o.in.schema)}
	}
	return described
}

func content(kind string, s *Schema) object { return object{kind: object{"schema": s}} }

// commentsOf reads the comments of Go files about structs, and about their fields as Struct.Field.
func commentsOf(sources []fs.FS) map[string]string {
	comments, files := map[string]string{}, token.NewFileSet()
	for _, source := range sources {
		names, _ := fs.Glob(source, "*.go") // the pattern is right
		for _, name := range names {
			text, err := fs.ReadFile(source, name)
			if err != nil {
				continue
			}
			file, err := parser.ParseFile(files, name, text, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				continue
			}
			for _, d := range file.Decls {
				addComments(comments, d)
			}
		}
	}
	return comments
}

// addComments adds those of a declaration of structs.
func addComments(comments map[string]string, declaration ast.Decl) {
	types, is := declaration.(*ast.GenDecl)
	if !is || types.Tok != token.TYPE {
		return
	}
	for _, one := range types.Specs {
		spec := one.(*ast.TypeSpec)
		name := spec.Name.Name
		comments[name] = sentence(strings.TrimPrefix(strings.TrimPrefix(types.Doc.Text(), name+" "), "is "))
		body, is := spec.Type.(*ast.StructType)
		if !is {
			continue
		}
		for _, f := range body.Fields.List {
			for _, field := range f.Names {
				comments[name+"."+field.Name] = sentence(f.Doc.Text() + f.Comment.Text())
			}
		}
	}
}

// sentence is a comment with a large letter at its begin and a period at its end.
func sentence(comment string) string {
	text := strings.Join(strings.Fields(comment), " ")
	if text == "" {
		return ""
	}
	first, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + strings.TrimSuffix(text[size:], ".") + "."
}
