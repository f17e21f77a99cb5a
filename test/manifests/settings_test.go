package manifests

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/servers"
)

// settings are the variables that the sidecar reads: the tags of its Config, and of the groups in it.
func settings(t *testing.T) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(servers.Root(t), "settings", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	groups := map[string]*ast.StructType{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, is := n.(*ast.TypeSpec); is {
				if group, is := spec.Type.(*ast.StructType); is {
					groups[spec.Name.Name] = group
				}
			}
			return true
		})
	}
	names := map[string]bool{}
	collect(groups, "Config", "", names)
	if len(names) < 20 {
		t.Fatalf("the sidecar has only the settings %v: its Config has another shape than this test reads", names)
	}
	return names
}

// collect adds the variables of a group, and of the groups in it.
func collect(groups map[string]*ast.StructType, group, prefix string, names map[string]bool) {
	for _, f := range groups[group].Fields.List {
		var tag reflect.StructTag
		if f.Tag != nil {
			tag = reflect.StructTag(strings.Trim(f.Tag.Value, "`"))
		}
		if name, _, _ := strings.Cut(tag.Get("env"), ","); name != "" {
			names[prefix+name] = true
		}
		if inner, is := f.Type.(*ast.Ident); is && groups[inner.Name] != nil {
			collect(groups, inner.Name, prefix+tag.Get("envPrefix"), names)
		}
	}
}

func TestSettingsExist(t *testing.T) {
	known := settings(t)
	eachPod(t, func(t *testing.T, p pod, _ []document) {
		for _, e := range p.spillway.Env {
			if !known[e.Name] {
				t.Errorf("the sidecar has no setting %s", e.Name)
			}
		}
	})
}
