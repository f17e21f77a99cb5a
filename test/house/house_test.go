package house

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/spillway-mesh/spillway/"

// rooms is the map of the house: which rooms each room may import. Imports go down only, never sideways on a floor.
var rooms = map[string][]string{
	"limit":       {},
	"breaker":     {},
	"identity":    {},
	"reread":      {},
	"connlimit":   {},
	"descriptors": {"limit", "identity"},
	"redis":       {"breaker"},
	"topk":        {},
	"admin/live":  {"topk", "engine", "descriptors", "limit"},
	"httpapi":     {"reread"},
	"engine":      {"limit", "descriptors", "identity"},
	"store":       {"limit", "breaker", "redis", "store/denials", "store/leases"},
	// Parts of the store know neither Redis nor each other.
	"store/denials":       {"limit", "store/internal/fair"},
	"store/leases":        {"limit"},
	"store/memory":        {"limit", "store/internal/fair"},
	"store/internal/fair": {},
	"records":             {"redis", "descriptors", "limit"},
	"journal":             {"engine", "descriptors", "identity", "limit"},
	"peers":               {"redis"},
	"rules":               {"limit", "descriptors", "identity"},
	"door":                {"engine", "descriptors", "connlimit"},
	"rlsvc":               {"engine", "descriptors", "limit", "door"},
	"extauthz":            {"engine", "descriptors", "identity", "limit", "door"},
	"admin":               {"engine", "rules", "admin/live", "descriptors", "httpapi", "limit", "records"},
	"telemetry":           {"engine", "descriptors", "limit", "breaker", "redis"},
	"control": {
		"control/archive", "limit", "descriptors", "redis", "journal", "records", "peers", "rules", "whatif",
		"admin", "telemetry", "reread", "connlimit",
	},
	"control/archive":  {"control/leader"},
	"control/leader":   {},
	"sidecar/settings": {},
	"sidecar": {
		"limit", "breaker", "identity", "descriptors", "admin/live", "engine", "redis", "store", "store/memory", "rules",
		"journal", "records", "peers", "door", "rlsvc", "extauthz", "admin", "telemetry", "sidecar/settings", "reread",
		"connlimit",
	},
	"whatif":      {"limit", "identity", "descriptors", "engine", "store/memory", "rules", "extauthz", "topk"},
	"cmd/sidecar": {"sidecar", "sidecar/settings"},
	"cmd/spillway": {
		"descriptors", "rules", "telemetry", "control/archive", "control", "whatif", "sidecar/settings",
	},
	"test/servers":     {},
	"test/integration": {},
	"test/simulation":  {},
	"test/stores":      {},
}

// furniture are the folders at the top that are not rooms.
var furniture = []string{"bench", "cmd", "deploy", "docs", "examples", "test", "tools"}

// doors maps a technology to where it may come in: a room, or one file of it.
var doors = []struct {
	module string
	open   []string
	reason string
}{
	{"github.com/envoyproxy/go-control-plane", []string{"rlsvc", "extauthz", "rules/xds", "test/servers"},
		"Envoy's protobuf types stay at the doors that speak them: the core must not change when Envoy's API does"},
	{"github.com/redis/go-redis", []string{"redis"},
		"Redis is a detail of where counts and rules are kept: everything else is tested and run without it"},
	{"github.com/jackc/pgx", []string{"control"}, "a sidecar never opens a PostgreSQL connection: only the control plane does"},
	{"github.com/parquet-go/parquet-go", []string{"control/archive"}, "the format of files is a detail of the archive"},
	{"github.com/minio/minio-go", []string{"control/archive/s3.go"}, "which service keeps the files is a detail of the archive"},
	{"github.com/prometheus", []string{"telemetry"}, "metrics are telemetry's: the Stats of other rooms have tags"},
	{"go.opentelemetry.io", []string{"telemetry"}, "traces are telemetry's: other rooms have callbacks and context"},
	{"github.com/sony/gobreaker", []string{"breaker"}, "the breaker is a room, so that it can be replaced in one place"},
	{"google.golang.org/grpc", []string{"door", "rlsvc", "extauthz", "rules/xds", "telemetry", "sidecar", "test/servers"},
		"gRPC is spoken at the doors: the core takes plain structs"},
}

// source is one Go file of the house, parsed.
type source struct {
	path  string // slash-separated, from the top
	room  string // its folder
	test  bool
	lines int
	text  string
	file  *ast.File
	fset  *token.FileSet
}

// at returns where in the house a node stands.
func (s source) at(n ast.Node) string {
	return fmt.Sprintf("%s:%d", s.path, s.fset.Position(n.Pos()).Line)
}

// sources is the whole house, read once.
func sources(t *testing.T) []source {
	t.Helper()
	all, err := readHouse()
	if err != nil {
		t.Fatalf("read the house: %v", err)
	}
	if len(all) < 10 {
		t.Fatalf("only %d Go files found: the test looks in the wrong folder", len(all))
	}
	return all
}

// readHouse parses every Go file, but those of hidden folders, testdata and the module of the tools.
var readHouse = sync.OnceValues(func() ([]source, error) {
	var all []source
	fset := token.NewFileSet()
	err := fs.WalkDir(os.DirFS("."), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name != "." && strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata" || name == "tools" ||
				name == "bin" {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(fset, name, text, parser.ParseComments)
		if err != nil {
			return err
		}
		all = append(all, source{
			path: name, room: path.Dir(name), test: strings.HasSuffix(name, "_test.go"),
			lines: strings.Count(string(text), "\n"), text: string(text), file: file, fset: fset,
		})
		return nil
	})
	return all, err
})

func TestEveryRoomIsOnTheMap(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || under(s.room, "bench") {
			continue
		}
		if _, known := roomOf(s.room); !known {
			t.Errorf("%s: %q is no room of the house: put it where its noun lives, or add the room to the map with "+
				"its sentence", s.path, s.room)
		}
	}
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		_, room := rooms[e.Name()]
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") && e.Name() != "bin" && !room &&
			!slices.Contains(furniture, e.Name()) {
			t.Errorf("%s/ stands at the top and is neither a room nor furniture: the top level is the map", e.Name())
		}
	}
}

func TestImportsGoDownOnly(t *testing.T) {
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		own, _ := roomOf(s.room)
		for _, imported := range s.file.Imports {
			name := strings.Trim(imported.Path.Value, `"`)
			inside, found := strings.CutPrefix(name, module)
			if !found {
				continue
			}
			other, _ := roomOf(inside)
			if other != own && !slices.Contains(rooms[own], other) {
				t.Errorf("%s imports %s: %s may import %s only, so that imports go down and a room can be read by "+
					"itself",
					s.at(imported), inside, own, list(rooms[own]))
			}
		}
	}
}

func TestTechnologiesComeInByTheirDoors(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || under(s.room, "bench") {
			continue
		}
		for _, imported := range s.file.Imports {
			name := strings.Trim(imported.Path.Value, `"`)
			for _, door := range doors {
				if under(name, door.module) && !slices.ContainsFunc(door.open, func(open string) bool {
					return under(s.path, open)
				}) {
					t.Errorf("%s imports %s: %s (open for %s)", s.at(imported), name, door.reason, list(door.open))
				}
			}
			if under(s.room, "limit") && strings.Contains(name, ".") {
				t.Errorf("%s imports %s: limit is arithmetic on the standard library alone", s.at(imported), name)
			}
		}
	}
}

// TestEveryEntryOfTheMapIsUsed refuses rooms and edges that are allowed and that no code outside of tests has, and
// furniture that does not exist.
func TestEveryEntryOfTheMapIsUsed(t *testing.T) {
	filled, used := map[string]bool{}, map[[2]string]bool{}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		own, _ := roomOf(s.room)
		filled[own] = true
		for _, imported := range s.file.Imports {
			inside, found := strings.CutPrefix(strings.Trim(imported.Path.Value, `"`), module)
			if found {
				other, _ := roomOf(inside)
				used[[2]string{own, other}] = true
			}
		}
	}
	for room, others := range rooms {
		if !filled[room] {
			t.Errorf("the room %q has no Go files outside of tests: remove it from the map", room)
		}
		for _, other := range others {
			if !used[[2]string{room, other}] {
				t.Errorf("no file of %s imports %s: remove the edge from the map", room, other)
			}
		}
	}
	for _, name := range furniture {
		info, err := os.Stat(name)
		if err != nil || !info.IsDir() {
			t.Errorf("there is no folder %s/: remove it from the furniture", name)
		}
	}
}

// TestEveryDoorIsUsed refuses doors of rooms and files that do not import the technology outside of tests.
func TestEveryDoorIsUsed(t *testing.T) {
	for _, door := range doors {
		for _, open := range door.open {
			uses := func(s source) bool { return !s.test && under(s.path, open) && s.imports(door.module) }
			if !slices.ContainsFunc(sources(t), uses) {
				t.Errorf("%s does not import %s: close that door", open, door.module)
			}
		}
	}
}

// imports reports whether the file imports a package of a module.
func (s source) imports(module string) bool {
	return slices.ContainsFunc(s.file.Imports, func(imported *ast.ImportSpec) bool {
		return under(strings.Trim(imported.Path.Value, `"`), module)
	})
}

// roomOf is the room that a folder belongs to, the innermost one: a room may have folders of its own below it.
func roomOf(folder string) (string, bool) {
	inner, found := folder, false
	for name := range rooms {
		if under(folder, name) && (!found || len(name) > len(inner)) {
			inner, found = name, true
		}
	}
	return inner, found
}

// under reports whether a slash-separated path is at or below another.
func under(name, top string) bool {
	return name == top || strings.HasPrefix(name, top+"/")
}

func list(names []string) string {
	if len(names) == 0 {
		return "nothing of the house"
	}
	return strings.Join(names, ", ")
}
