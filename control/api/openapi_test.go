package api

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/control/database/questions"
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

// TestTheDocumentNamesWhatAQuestionNeeds reads the parameters of each question in the OpenAPI document.
func TestTheDocumentNamesWhatAQuestionNeeds(t *testing.T) {
	paths := OpenAPI()["paths"].(object)
	for i := range questions.All {
		q := &questions.All[i]
		needed := ""
		for _, one := range paths[questionPath(q)].(object)["get"].(object)["parameters"].([]any) {
			if p := one.(object); p["in"] == "query" && p["required"] == true {
				needed += p["name"].(string)
			}
		}
		if needed != q.Needs {
			t.Errorf("%s needs %q by the document, want %q", q.Name, needed, q.Needs)
		}
	}
}
