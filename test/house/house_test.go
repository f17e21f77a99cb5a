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

	"github.com/spillway-mesh/spillway/test/must"
)

const module = "github.com/spillway-mesh/spillway/"

// rooms is the map of the house: which rooms each room may import. Imports go down only, never sideways on a floor. An
// entry with a slash allows that folder alone.
var rooms = map[string][]string{
	"limit":       {},
	"breaker":     {},
	"identity":    {},
	"topk":        {},
	"httpapi":     {},
	"redis":       {"breaker"},
	"keys":        {},
	"descriptors": {"limit", "identity", "keys"},
	"store":       {"limit", "redis"},
	"profiles":    {"limit", "descriptors", "redis"},
	"rules":       {"limit", "identity", "descriptors"},
	"engine":      {"limit", "identity", "descriptors"},
	"door":        {"descriptors", "engine"},
	"journal":     {"limit", "descriptors", "engine"},
	"telemetry":   {"descriptors", "engine", "redis"},
	"rlsvc":       {"descriptors", "engine", "door"},
	"extauthz":    {"identity", "descriptors", "engine", "door"},
	"admin":       {"limit", "topk", "descriptors", "engine", "httpapi", "profiles", "rules"},
	"whatif": {
		"limit", "identity", "topk", "descriptors", "engine", "store/memory", "rules", "extauthz",
	},
	"control": {
		"keys", "descriptors", "door/connlimit", "httpapi", "journal", "profiles", "redis", "rules", "telemetry",
		"whatif/rulediff",
	},
	"sidecar": {
		"identity", "keys", "descriptors", "engine", "redis", "store", "rules", "profiles", "journal", "door", "rlsvc",
		"extauthz", "admin", "httpapi", "telemetry",
	},
	"cmd/sidecar":      {"sidecar"},
	"cmd/spillway":     {"rules", "control", "whatif", "sidecar/settings"},
	"test/must":        {},
	"test/servers":     {},
	"test/integration": {},
	"test/simulation":  {},
	"test/stores":      {},
}

// parts are folders of a room that can be read without the rest of it: what they may import, of the own room, too.
var parts = map[string][]string{
	"admin/live":          {"limit", "topk", "descriptors", "engine"},
	"control/archive":     {"control/leader", "keys"},
	"control/leader":      {},
	"door/connlimit":      {},
	"door/wire":           {},
	"httpapi/reread":      {},
	"redis/peers":         {"redis"},
	"sidecar/settings":    {"httpapi/reread", "redis", "rules"},
	"store/denials":       {"limit", "store/internal/fair"},
	"store/internal/fair": {},
	"store/leases":        {"limit"},
	"store/memory":        {"limit", "store/internal/fair"},
}

// mostArrows is how many edges the map of rooms may have: lower it when one goes.
const mostArrows = 75

// apart are folders that must not be built into a program; with /... all that is below.
var apart = map[string]string{"cmd/sidecar": "control/...", "cmd/spillway": "sidecar"}

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
	{"github.com/jackc/pgx", []string{"control"}, "a sidecar never opens a PostgreSQL connection: only the control " +
		"plane does"},
	{"github.com/parquet-go/parquet-go", []string{"control/archive"}, "the format of files is a detail of the archive"},
	{"github.com/minio/minio-go", []string{"control/archive/s3.go"},
		"which service keeps the files is a detail of the archive"},
	{"github.com/prometheus", []string{"telemetry"}, "metrics are telemetry's: the Stats of other rooms have tags"},
	{"go.opentelemetry.io", []string{"telemetry"}, "traces are telemetry's: other rooms have callbacks and context"},
	{"github.com/sony/gobreaker", []string{"breaker"},
		"the breaker is a room, so that it can be replaced in one place"},
	{"google.golang.org/grpc", []string{"door", "rlsvc", "extauthz", "rules/xds", "telemetry", "sidecar",
		"test/servers"},
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
	entries := must.Get(os.ReadDir("."))(t)
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
		room, _ := roomOf(s.room)
		part, isPart := partOf(s.room)
		for _, imported := range s.insides() {
			if !under(imported, room) && !covered(rooms[room], imported) {
				t.Errorf("%s imports %s: %s may import %s only, so that imports go down and a room can be read by "+
					"itself",
					s.path, imported, room, list(rooms[room]))
			}
			if isPart && !under(imported, part) && !covered(parts[part], imported) {
				t.Errorf("%s imports %s: %s may import %s only, so that it can be read without the rest of %s",
					s.path, imported, part, list(parts[part]), room)
			}
		}
	}
}

// TestRoomsHaveAnOrder refuses a room that imports itself by others, and a map of many edges.
func TestRoomsHaveAnOrder(t *testing.T) {
	arrows := 0
	for room, others := range rooms {
		arrows += len(others)
		below := map[string]bool{}
		addBelow(below, room, func(room string) (below []string) {
			for _, other := range rooms[room] {
				name, _ := roomOf(other)
				below = append(below, name)
			}
			return below
		})
		if below[room] {
			t.Errorf("%s comes to import itself by %s: imports go down only", room, list(others))
		}
	}
	if arrows > mostArrows {
		t.Errorf("the map has %d edges, at most %d: let a room do without one", arrows, mostArrows)
	}
}

// TestProgramsStayApart follows the imports of each program to what must not be built into it.
func TestProgramsStayApart(t *testing.T) {
	imports := map[string][]string{}
	for _, s := range sources(t) {
		if !s.test {
			imports[s.room] = append(imports[s.room], s.insides()...)
		}
	}
	for program, other := range apart {
		below := map[string]bool{}
		addBelow(below, program, func(folder string) []string { return imports[folder] })
		if len(below) == 0 {
			t.Errorf("%s imports nothing of the house: remove it from the list", program)
		}
		tree, all := strings.CutSuffix(other, "/...")
		for folder := range below {
			if folder == tree || all && under(folder, tree) {
				t.Errorf("%s has %s built in, directly or by another room", program, folder)
			}
		}
	}
}

// addBelow adds all that a folder imports, directly or by others.
func addBelow(below map[string]bool, from string, imports func(string) []string) {
	for _, other := range imports(from) {
		if !below[other] {
			below[other] = true
			addBelow(below, other, imports)
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
	imports := map[string][]string{} // by the name of a room or a part
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		room, _ := roomOf(s.room)
		imports[room] = append(imports[room], append(s.insides(), "")...)
		if part, found := partOf(s.room); found {
			imports[part] = append(imports[part], append(s.insides(), "")...)
		}
	}
	for _, entries := range []map[string][]string{rooms, parts} {
		for room, others := range entries {
			if len(imports[room]) == 0 {
				t.Errorf("%q has no Go files outside of tests: remove it from the map", room)
			}
			for _, other := range others {
				if !slices.ContainsFunc(imports[room], func(name string) bool { return under(name, other) }) {
					t.Errorf("no file of %s imports %s: remove the edge from the map", room, other)
				}
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

// insides are the folders of the house that a file imports.
func (s source) insides() (folders []string) {
	for _, imported := range s.file.Imports {
		if inside, found := strings.CutPrefix(strings.Trim(imported.Path.Value, `"`), module); found {
			folders = append(folders, inside)
		}
	}
	return folders
}

// roomOf is the room that a folder belongs to.
func roomOf(folder string) (string, bool) {
	for name := range rooms {
		if under(folder, name) {
			return name, true
		}
	}
	return folder, false
}

// partOf is the part of a room that a folder belongs to.
func partOf(folder string) (string, bool) {
	for name := range parts {
		if under(folder, name) {
			return name, true
		}
	}
	return "", false
}

// covered reports whether a folder is at or below one of several.
func covered(tops []string, folder string) bool {
	return slices.ContainsFunc(tops, func(top string) bool { return under(folder, top) })
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
