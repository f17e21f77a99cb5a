package control

import (
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/spillway-mesh/spillway/admin"
)

// openapi serves GET /v1/openapi.json.
func (a *API) openapi(c *call) (any, error) {
	_, err := c.query()
	if err != nil {
		return nil, err
	}
	return OpenAPI(), nil
}

// object is a JSON object.
type object = map[string]any

// OpenAPI returns the OpenAPI 3.1 document of the API, made of the routes and of the types that they take and answer.
func OpenAPI() map[string]any {
	schemas := object{"Problem": schemaOf(reflect.TypeFor[admin.Problem](), object{})}
	paths := object{}
	for i := range routes {
		r := &routes[i]
		path := strings.ReplaceAll(r.path, "...}", "}")
		if paths[path] == nil {
			paths[path] = object{}
		}
		paths[path].(object)[strings.ToLower(r.method)] = r.operation(schemas)
	}
	return object{
		"openapi":  "3.1.0",
		"info":     object{"title": "Spillway control", "version": "1", "description": "Rules, tiers, users, API keys and blocks. docs/control.md explains it."},
		"paths":    paths,
		"security": []any{object{"token": []any{}}},
		"components": object{
			"schemas":         schemas,
			"securitySchemes": object{"token": object{"type": "http", "scheme": "bearer"}},
		},
	}
}

var inPath = regexp.MustCompile(`\{([a-z]+)(\.\.\.)?\}`)

// operation is a route as the document describes it.
func (r *route) operation(schemas object) object {
	params := []any{}
	for _, found := range inPath.FindAllStringSubmatch(r.path, -1) {
		params = append(params, parameter(found[1], "path"))
	}
	for _, name := range r.params {
		name, kind, _ := strings.Cut(name, ":")
		described := parameter(name, "query")
		switch kind {
		case "time":
			described["schema"] = object{"type": "string", "format": "date-time"}
		case "total":
			described["schema"] = object{"type": "string", "enum": []string{stepMinute, stepHour, stepDay, stepTotal}}
		case "needed":
			described["required"] = true
		}
		params = append(params, described)
	}
	if r.locks {
		params = append(params, parameter("If-Match", "header"), parameter("If-None-Match", "header"))
	}
	good := object{"description": "Done."}
	status := "200"
	if r.answers == nil {
		status = "204"
	} else {
		good["content"] = object{"application/json": object{"schema": schemaOf(reflect.TypeOf(r.answers), schemas)}}
	}
	problem := object{"description": "What is wrong, and what to do.", "content": object{"application/problem+json": object{"schema": object{"$ref": "#/components/schemas/Problem"}}}}
	answers := object{status: good, "default": problem}
	if r.made {
		answers["201"] = good
	}
	o := object{"summary": r.summary, "description": "Needs the role " + r.role.String() + ".", "parameters": params, "responses": answers}
	if r.takes != nil {
		o["requestBody"] = object{"required": true, "content": object{"application/json": object{"schema": schemaOf(reflect.TypeOf(r.takes), schemas)}}}
	}
	return o
}

func parameter(name, in string) object {
	schema := object{"type": "string", "minLength": 1}
	switch name {
	case "limit":
		schema = object{"type": "integer", "minimum": 1, "maximum": pageMost}
	case "version", "before", "from", "to":
		schema = object{"type": "integer", "minimum": 1}
	case "since":
		schema["pattern"] = "^[1-9][0-9]{0,2}[smhd]$"
	case "step":
		schema["enum"] = []string{stepMinute, stepHour, stepDay}
	case "by":
		schema["enum"] = statisticsBy
	case "kind":
		if in == "path" {
			schema["enum"] = blockKinds
		}
	}
	return object{"name": name, "in": in, "required": in == "path", "schema": schema}
}

// schemaOf is a type as the document describes it. Structs with names are added to schemas.
func schemaOf(t reflect.Type, schemas object) object {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case t == reflect.TypeFor[json.RawMessage](), t.Kind() == reflect.Interface:
		return object{}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem(), schemas)
	case reflect.Slice:
		return object{"type": "array", "items": schemaOf(t.Elem(), schemas)}
	case reflect.Map:
		return object{"type": "object"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.String:
		return object{"type": "string"}
	case reflect.Float64:
		return object{"type": "number"}
	case reflect.Struct:
		return structSchema(t, schemas)
	}
	return object{"type": "integer"}
}

// structSchema describes a struct: in place where it is the first, else by its name.
func structSchema(t reflect.Type, schemas object) object {
	name := t.Name()
	ref := object{"$ref": "#/components/schemas/" + name}
	if schemas[name] != nil {
		return ref
	}
	properties, required := object{}, []string{}
	s := object{"type": "object", "properties": properties, "additionalProperties": false}
	schemas[name] = s
	for _, f := range reflect.VisibleFields(t) {
		field, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous || field == "" || field == "-" {
			continue
		}
		properties[field] = orNull(f.Type, schemaOf(f.Type, schemas))
		if !strings.Contains(options, "omit") {
			required = append(required, field)
		}
	}
	s["required"] = required
	if name == "Problem" {
		return s
	}
	return ref
}

// orNull is a schema of a field that may be null: a pointer or a map.
func orNull(t reflect.Type, schema object) object {
	if t.Kind() != reflect.Pointer && t.Kind() != reflect.Map {
		return schema
	}
	return object{"anyOf": []any{schema, object{"type": "null"}}}
}
