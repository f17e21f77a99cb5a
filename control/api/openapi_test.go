package api

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestTheDocumentNamesEveryRoute holds the OpenAPI document against the routes, and each reference in it against its schemas.
func TestTheDocumentNamesEveryRoute(t *testing.T) {
	text, err := json.Marshal(OpenAPI())
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		Paths      map[string]map[string]any
		Components struct{ Schemas map[string]any }
	}
	err = json.Unmarshal(text, &document)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range routes {
		if document.Paths[strings.ReplaceAll(r.path, "...}", "}")][strings.ToLower(r.method)] == nil {
			t.Errorf("the document lacks %s %s", r.method, r.path)
		}
	}
	for _, part := range strings.Split(string(text), `"$ref":"#/components/schemas/`)[1:] {
		name, _, _ := strings.Cut(part, `"`)
		if document.Components.Schemas[name] == nil {
			t.Errorf("the document names the schema %s and does not have it", name)
		}
	}
}
