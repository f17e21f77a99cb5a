package rules

import (
	"encoding/json"
	"regexp"
	"slices"
	"testing"

	"github.com/spillway-mesh/spillway/test/must"
)

// TestSchemaDescribesEveryKey: each key of the file that has them all is in the schema, and each key in the schema has
// what it accepts. A reader that looks at a text by itself and does not note what it accepts would leave nothing.
func TestSchemaDescribesEveryKey(t *testing.T) {
	var root map[string]any
	must.Do(t, json.Unmarshal(Schema(), &root))
	described := map[string]bool{}
	walkSchema(t, "", root, described)
	key := regexp.MustCompile(`(?m)(?:^|[{,-]) *([a-z][a-z0-9_]+):(?: |$)`)
	own := []string{"x_theatre", "client", "alice", "odeon", "model", "paid", "owner", "level", "tags", "team", "more"}
	for _, found := range key.FindAllStringSubmatch(string(readFile(t, full)), -1) {
		if !described[found[1]] && !slices.Contains(own, found[1]) {
			t.Errorf("the schema has no key %s", found[1])
		}
	}
}

// walkSchema gathers the keys that a schema describes.
func walkSchema(t *testing.T, path string, s map[string]any, described map[string]bool) {
	if !slices.ContainsFunc([]string{"type", "enum", "anyOf", "$ref"}, func(key string) bool { return s[key] != nil }) {
		t.Errorf("the schema of %s accepts nothing: %v", path, s)
	}
	properties, _ := s["properties"].(map[string]any)
	for name, part := range properties {
		described[name] = true
		walkSchema(t, path+"."+name, part.(map[string]any), described)
	}
	parts, _ := s["anyOf"].([]any)
	for _, part := range parts {
		walkSchema(t, path, part.(map[string]any), described)
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if part, found := s[key].(map[string]any); found {
			walkSchema(t, path+"[]", part, described)
		}
	}
}
