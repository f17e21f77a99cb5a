package api

import (
	"encoding/json"
	"math"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/spillway-mesh/spillway/admin"
	"github.com/spillway-mesh/spillway/control/database"
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
	schemas := object{"Problem": schemaOf(reflect.TypeFor[admin.Problem](), object{}, false)}
	for i := range routes { // what is sent has stricter schemas, which hold for answers, too, where both have them
		if routes[i].takes != nil {
			schemaOf(reflect.TypeOf(routes[i].takes), schemas, true)
		}
	}
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
		"info":     object{"title": "Spillway control", "version": "1", "description": "Rules, tiers, users, API keys and blocks. docs/guides/control.md explains it."},
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
	good := object{"description": "Done."}
	status := "200"
	if r.answers == nil {
		status = "204"
	} else {
		good["content"] = object{"application/json": object{"schema": schemaOf(reflect.TypeOf(r.answers), schemas, false)}}
	}
	problem := object{"description": "What is wrong, and what to do.", "content": object{"application/problem+json": object{"schema": object{"$ref": "#/components/schemas/Problem"}}}}
	answers := object{status: good, "default": problem}
	if r.made {
		answers["201"] = good
	}
	o := object{"summary": r.summary, "description": "Needs the role " + r.role.String() + ".", "parameters": r.parameters(), "responses": answers}
	switch {
	case r.lines:
		text := object{"schema": object{"type": "string"}}
		o["requestBody"] = object{"required": true, "content": object{"text/csv": text, "application/x-ndjson": text}}
	case r.takes != nil:
		o["requestBody"] = object{"required": true, "content": object{"application/json": object{"schema": schemaOf(reflect.TypeOf(r.takes), schemas, true)}}}
	}
	return o
}

// parameters are those of a route, of its path, its query and its headers.
func (r *route) parameters() []any {
	params := []any{}
	for _, found := range inPath.FindAllStringSubmatch(r.path, -1) {
		params = append(params, parameter(found[1], "path"))
	}
	for _, name := range r.params {
		name, kind, _ := strings.Cut(name, ":")
		described := parameter(name, "query")
		switch kind {
		case "time":
			described["schema"], described["required"] = object{"type": "string", "format": "date-time"}, false
		case "total":
			described["schema"] = object{"type": "string", "enum": []string{database.StepMinute, database.StepHour, database.StepDay, database.StepTotal}}
		case "needed":
			described["required"] = true
		}
		params = append(params, described)
	}
	if r.locks {
		params = append(params,
			object{"name": "If-Match", "in": "header", "schema": object{"type": "string", "minLength": 1, "pattern": `^(\*|"[1-9][0-9]{0,17}")$`}},
			object{"name": "If-None-Match", "in": "header", "schema": object{"type": "string", "enum": []string{"*"}}})
	}
	return params
}

func parameter(name, in string) object {
	schema := object{"type": "string", "minLength": 1, "pattern": `^[^\x00]+$`}
	required := in == "path"
	switch name {
	case "limit":
		schema = object{"type": "integer", "minimum": 1, "maximum": pageMost}
	case "version", "erasure", "before":
		schema = object{"type": "integer", "minimum": 1, "maximum": math.MaxInt64}
	case "since":
		schema["pattern"] = "^([1-9][0-9]{0,2}[smh]|([1-9][0-9]?|[1-3][0-9]{2}|400)d)$" // at most askLongest
	case "from", "to": // of versions; those of times are described by their kind
		schema, required = object{"type": "integer", "minimum": 1, "maximum": math.MaxInt64}, true
	case "step":
		schema = object{"type": "string", "enum": []string{database.StepMinute, database.StepHour, database.StepDay}}
	case "wide":
		schema = object{"type": "string", "enum": []string{"true"}}
	case "by":
		schema = object{"type": "string", "enum": statisticsBy}
	case "kind":
		if in == "path" {
			schema = object{"type": "string", "enum": blockKinds}
		}
	}
	return object{"name": name, "in": in, "required": required, "schema": schema}
}

// schemaOf is a type as the document describes it. Structs with names are added to schemas. What is sent may be neither null nor empty.
func schemaOf(t reflect.Type, schemas object, sent bool) object {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case t == reflect.TypeFor[json.RawMessage](), t.Kind() == reflect.Interface:
		return object{}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem(), schemas, sent)
	case reflect.Slice:
		return object{"type": "array", "items": schemaOf(t.Elem(), schemas, sent)}
	case reflect.Struct:
		return structSchema(t, schemas, sent)
	case reflect.String:
		if sent {
			return object{"type": "string", "minLength": 1}
		}
		return object{"type": "string"}
	}
	return simpleSchema(t)
}

// simpleSchema is the schema of a type without parts.
func simpleSchema(t reflect.Type) object {
	switch t.Kind() {
	case reflect.Map:
		return object{"type": "object"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Float64:
		return object{"type": "number"}
	case reflect.Int16, reflect.Int32:
		return object{"type": "integer", "minimum": -1 << (t.Bits() - 1), "maximum": 1<<(t.Bits()-1) - 1}
	}
	return object{"type": "integer", "minimum": math.MinInt64, "maximum": math.MaxInt64}
}

// structSchema describes a struct: in place where it is the first, else by its name.
func structSchema(t reflect.Type, schemas object, sent bool) object {
	name := t.Name()
	ref := object{"$ref": "#/components/schemas/" + name}
	if schemas[name] != nil {
		return ref
	}
	properties, required := object{}, []string{}
	s := object{"type": "object", "properties": properties, "additionalProperties": false}
	schemas[name] = s
	for _, f := range fieldsIn(t) {
		field, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if field == "" || field == "-" {
			continue
		}
		properties[field] = schemaOf(f.Type, schemas, sent)
		if !sent {
			properties[field] = orNull(f.Type, schemaOf(f.Type, schemas, false))
		}
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

// fieldsIn are the fields of a struct, with those of structs that it embeds.
func fieldsIn(t reflect.Type) (all []reflect.StructField) {
	for i := range t.NumField() {
		if f := t.Field(i); f.Anonymous && f.Type.Kind() == reflect.Struct {
			all = append(all, fieldsIn(f.Type)...)
		} else {
			all = append(all, f)
		}
	}
	return all
}

// orNull is a schema of a field that may be null: a pointer or a map.
func orNull(t reflect.Type, schema object) object {
	if t.Kind() != reflect.Pointer && t.Kind() != reflect.Map {
		return schema
	}
	return object{"anyOf": []any{schema, object{"type": "null"}}}
}
