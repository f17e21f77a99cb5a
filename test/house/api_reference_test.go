package house

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/admin"
)

// apiSchema is a part of the OpenAPI document that describes a value.
type apiSchema struct {
	Ref         string               `json:"$ref"`
	Type        any                  `json:"type"`
	Description string               `json:"description"`
	Format      string               `json:"format"`
	Pattern     string               `json:"pattern"`
	Const       any                  `json:"const"`
	Enum        []string             `json:"enum"`
	Items       *apiSchema           `json:"items"`
	OneOf       []apiSchema          `json:"oneOf"`
	AnyOf       []apiSchema          `json:"anyOf"`
	Properties  map[string]apiSchema `json:"properties"`
	Required    []string             `json:"required"`
}

// apiBody is a document of a request or an answer.
type apiBody struct {
	Content map[string]struct {
		Schema apiSchema `json:"schema"`
	} `json:"content"`
	Description string `json:"description"`
}

// apiOperation is one method of a path.
type apiOperation struct {
	Summary     string `json:"summary"`
	Description string `json:"description"`
	Parameters  []struct {
		Name        string    `json:"name"`
		Description string    `json:"description"`
		Schema      apiSchema `json:"schema"`
	} `json:"parameters"`
	RequestBody *apiBody           `json:"requestBody"`
	Responses   map[string]apiBody `json:"responses"`
}

// word is the schema in a few words.
func (s apiSchema) word() string {
	switch {
	case s.Ref != "":
		name := s.Ref[strings.LastIndexByte(s.Ref, '/')+1:]
		return fmt.Sprintf("[%s](#%s)", name, strings.ToLower(name))
	case s.Items != nil:
		return "list of " + s.Items.word()
	case len(s.Enum) > 0:
		return "`" + strings.Join(s.Enum, "`, `") + "`"
	case len(s.AnyOf) > 0:
		var words []string
		for _, one := range s.AnyOf {
			words = append(words, one.word())
		}
		return strings.Join(slices.Compact(words), " or ")
	case s.Const != nil:
		return fmt.Sprintf("`%v`", s.Const)
	case s.Format != "":
		return s.Format
	}
	return fmt.Sprint(s.Type)
}

// fields writes a table of the properties of a schema.
func (s apiSchema) fields(out *strings.Builder) {
	fmt.Fprintf(out, "| field | type | what it is |\n| --- | --- | --- |\n")
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		p := s.Properties[name]
		what := p.Description
		if slices.Contains(s.Required, name) {
			what = strings.TrimSpace("Always there. " + what)
		}
		fmt.Fprintf(out, "| `%s` | %s | %s |\n", name, p.word(), what)
	}
	fmt.Fprintln(out)
}

// TestReferenceOfTheAPI holds docs/reference/api.md to the OpenAPI document that the sidecar serves.
func TestReferenceOfTheAPI(t *testing.T) {
	var d struct {
		Paths      map[string]map[string]apiOperation `json:"paths"`
		Components struct {
			Schemas map[string]apiSchema `json:"schemas"`
		} `json:"components"`
	}
	err := json.Unmarshal(admin.OpenAPI(), &d)
	if err != nil {
		t.Fatal(err)
	}
	operations, schemas := new(strings.Builder), new(strings.Builder)
	for _, path := range slices.Sorted(maps.Keys(d.Paths)) {
		for method, op := range d.Paths[path] {
			writeOperation(operations, strings.ToUpper(method)+" "+path, op)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Components.Schemas)) {
		s := d.Components.Schemas[name]
		fmt.Fprintf(schemas, "### %s\n\n", name)
		if s.Description != "" {
			fmt.Fprintf(schemas, "%s\n\n", s.Description)
		}
		if len(s.Properties) > 0 {
			s.fields(schemas)
		}
		for _, one := range s.OneOf {
			if len(one.Properties) > 0 {
				one.fields(schemas)
			}
		}
	}
	keep(t, "docs/reference/api.md", fmt.Sprintf(apiPage, operations, strings.TrimSuffix(schemas.String(), "\n")))
}

// writeOperation writes the section of an operation.
func writeOperation(out *strings.Builder, title string, op apiOperation) {
	fmt.Fprintf(out, "### %s\n\n%s %s\n\n", title, op.Summary, op.Description)
	if len(op.Parameters) > 0 {
		fmt.Fprintf(out, "| parameter | type | what it is |\n| --- | --- | --- |\n")
		for _, p := range op.Parameters {
			fmt.Fprintf(out, "| `%s` | %s | %s |\n", p.Name, p.Schema.word(), p.Description)
		}
		fmt.Fprintln(out)
	}
	if op.RequestBody != nil {
		fmt.Fprintf(out, "Body: %s.\n", op.RequestBody.Content["application/json"].Schema.word())
	}
	for kind, body := range op.Responses["200"].Content {
		fmt.Fprintf(out, "Answer: %s, as `%s`.\n", body.Schema.word(), kind)
	}
	var codes []string
	for _, code := range slices.Sorted(maps.Keys(op.Responses)) {
		if code != "200" {
			codes = append(codes, code)
		}
	}
	fmt.Fprintf(out, "Problems: %s.\n\n", strings.Join(codes, ", "))
}

const apiPage = `# Admin API

What an operator asks of a running sidecar, on its debug port (` + "`DEBUG_PORT`" + `), under ` + "`/v1`" + `. This page is written from the
OpenAPI 3.1 document that the sidecar serves at ` + "`/v1/openapi.json`" + ` (` + "`make docs`" + `).

## Who may use it

Without more settings the API answers the sidecar's own machine only, which may do everything, or with
` + "`ADMIN_LOCAL=view`" + ` only read. With ` + "`ADMIN_TOKEN_FILE`" + ` a caller
needs a token (` + "`authorization: Bearer …`" + `), with ` + "`ADMIN_TLS_CLIENT_CA`" + ` a client certificate; with both, one of the two. The role
` + "`view`" + ` reads, and ` + "`operate`" + ` also changes. Each change has a line in the log with who, what, before and after.

A page of another origin in a browser gets nothing, and neither does a name that is made to lead to this machine.

## How it answers

Requests and answers are JSON. An unknown field, a name in another case, null, an empty text and a second document are errors, and a body
has at most 1 MiB. An error is ` + "`application/problem+json`" + ` with a ` + "`detail`" + ` that says what to do. 400 means that what was sent is not
what is described here, 422 that it is well written and cannot be done, 503 that Redis cannot be reached.

A change of a record or a counter is in force on every sidecar within a second: they hear of it on a Redis channel. Where a message is lost,
records are looked up again after at most five minutes, and counters are asked for after a second. ` + "`dry_run`" + ` changes nothing and answers
with what would change.

Records are kept in Redis, beside the counters, under keys that begin with ` + "`rec1:`" + `, and with ` + "`KEY_SECRET`" + ` hold no names in the keys. A
user of Redis with an ACL needs these keys and the channels ` + "`rec1:{sidecars}:news`" + ` and ` + "`rec1:{sidecars}:missing`" + `, with ` + "`CACHE_KEY_PREFIX`" + ` before them. Without Redis
records live in the process, and end with it.

` + "```sh" + `
curl -s http://127.0.0.1:6070/v1/explain -H 'content-type: application/json' -d '{"http": {"domain": "shop", "method": "GET", "path": "/search", "peer": "192.0.2.7"}}'
curl -s http://127.0.0.1:6070/v1/usage?user=alice
curl -s http://127.0.0.1:6070/v1/block -H 'content-type: application/json' -d '{"user": "mallory", "for": "1h", "reason": "Contact support."}'
curl -s http://127.0.0.1:6070/v1/unblock -H 'content-type: application/json' -d '{"user": "mallory"}'
curl -s http://127.0.0.1:6070/v1/top?fleet=true
curl -sN http://127.0.0.1:6070/v1/events
` + "```" + `

## Operations

%s## Documents

%s`
