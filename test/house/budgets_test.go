package house

import (
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"strings"
	"testing"
)

// budget is what a thing may cost: above soft it is reported and counted, above hard it fails. The allowance is how
// many soft overruns the whole house may have: lower it when one goes, never raise it.
type budget struct {
	what                  string
	soft, hard, allowance int
}

var (
	fileBudget       = budget{what: "lines in a file", soft: 400, hard: 500, allowance: 1}
	functionBudget   = budget{what: "lines in a function", soft: 40, hard: 60, allowance: 2}
	cyclomaticBudget = budget{what: "paths through a function", soft: 10, hard: 15, allowance: 4}
	// what a Counter is, for the store and for the engine
	interfaceBudget = budget{what: "methods of an interface", soft: 3, hard: 4, allowance: 2}
)

// cost is one thing that a budget is about.
type cost struct {
	where string
	size  int
}

func (b budget) check(t *testing.T, costs []cost) {
	t.Helper()
	var over []string
	for _, c := range costs {
		if c.size > b.hard {
			t.Errorf("%s: %d %s, at most %d", c.where, c.size, b.what, b.hard)
		} else if c.size > b.soft {
			over = append(over, c.where)
			t.Logf("%s: %d %s, better %d", c.where, c.size, b.what, b.soft)
		}
	}
	if len(over) > b.allowance {
		t.Errorf("%d places have more than %d %s, and %d may: split one of %s", len(over), b.soft, b.what, b.allowance,
			strings.Join(over, ", "))
	}
}

func TestFilesFitTheirBudget(t *testing.T) {
	var costs []cost
	for _, s := range sources(t) {
		costs = append(costs, cost{s.path, s.lines})
	}
	fileBudget.check(t, costs)
}

func TestFunctionsFitAScreen(t *testing.T) {
	var lengths, paths []cost
	eachFunction(t, func(s source, f *ast.FuncDecl) {
		where := s.at(f) + " " + f.Name.Name
		lengths = append(lengths, cost{where, s.fset.Position(f.End()).Line - s.fset.Position(f.Pos()).Line + 1})
		paths = append(paths, cost{where, cyclomatic(f)})
	})
	functionBudget.check(t, lengths)
	cyclomaticBudget.check(t, paths)
}

func TestInterfacesAreSmall(t *testing.T) {
	var costs []cost
	for _, s := range sources(t) {
		ast.Inspect(s.file, func(n ast.Node) bool {
			if i, ok := n.(*ast.InterfaceType); ok && !s.test {
				costs = append(costs, cost{s.at(i), i.Methods.NumFields()})
			}
			return true
		})
	}
	interfaceBudget.check(t, costs)
}

func TestEveryExportedNameIsDocumented(t *testing.T) {
	packages := map[string]bool{}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		packages[path.Dir(s.path)] = packages[path.Dir(s.path)] || s.file.Doc != nil
		for _, d := range s.file.Decls {
			for _, name := range undocumented(d) {
				t.Errorf("%s: %s has no comment: say what it promises", s.at(name), name.Name)
			}
		}
	}
	for folder, documented := range packages {
		if !documented {
			t.Errorf("%s has no package comment: say its sentence", folder)
		}
	}
}

func TestTestsNeitherSkipNorSleep(t *testing.T) {
	for _, s := range sources(t) {
		if !s.test && !under(s.path, "test") {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			selector, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			of, _ := selector.X.(*ast.Ident)
			switch name := selector.Sel.Name; {
			case of == nil:
			case of.Name == "time" && name == "Sleep":
				t.Errorf("%s sleeps: wait for the event (servers.Await), or use testing/synctest", s.at(n))
			case name == "Skip" || name == "Skipf" || name == "SkipNow":
				t.Errorf("%s skips: a test that cannot run has to fail", s.at(n))
			}
			return true
		})
	}
}

func TestNoScriptsInStringsAndNothingUnfinished(t *testing.T) {
	lua := regexp.MustCompile(`redis\.call|redis\.pcall|KEYS\[|ARGV\[`)
	unfinished := regexp.MustCompile(`\b(` + "TO" + `DO|FIX` + `ME|XX` + `X|HA` + `CK)\b`)
	for _, s := range sources(t) {
		for _, group := range s.file.Comments {
			if unfinished.MatchString(group.Text()) {
				t.Errorf("%s: unfinished business", s.at(group))
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if text, ok := n.(*ast.BasicLit); ok && !s.test && text.Kind == token.STRING &&
				lua.MatchString(text.Value) {
				t.Errorf("%s: Lua inside a Go string: scripts are files beside their Go twin", s.at(n))
			}
			return true
		})
	}
}

func eachFunction(t *testing.T, visit func(source, *ast.FuncDecl)) {
	t.Helper()
	for _, s := range sources(t) {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && !s.test {
				visit(s, f)
			}
		}
	}
}

// cyclomatic counts the paths through a function, those of its closures included.
func cyclomatic(f *ast.FuncDecl) int {
	paths := 1
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt:
			paths++
		case *ast.CaseClause:
			if n.List != nil {
				paths++
			}
		case *ast.CommClause:
			if n.Comm != nil {
				paths++
			}
		case *ast.BinaryExpr:
			if n.Op == token.LAND || n.Op == token.LOR {
				paths++
			}
		}
		return true
	})
	return paths
}

// undocumented lists the exported names of a declaration without a comment.
func undocumented(d ast.Decl) []*ast.Ident {
	var bare []*ast.Ident
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && d.Doc == nil && exportedReceiver(d) {
			bare = append(bare, d.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				if spec.Name.IsExported() && d.Doc == nil && spec.Doc == nil {
					bare = append(bare, spec.Name)
				}
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					if name.IsExported() && d.Doc == nil && spec.Doc == nil && spec.Comment == nil {
						bare = append(bare, name)
					}
				}
			}
		}
	}
	return bare
}

// exportedReceiver reports whether a function is not a method, or one of an exported type.
func exportedReceiver(f *ast.FuncDecl) bool {
	if f.Recv == nil {
		return true
	}
	of := f.Recv.List[0].Type
	for {
		switch t := of.(type) {
		case *ast.StarExpr:
			of = t.X
		case *ast.IndexExpr:
			of = t.X
		case *ast.Ident:
			return t.IsExported()
		default:
			return true
		}
	}
}
