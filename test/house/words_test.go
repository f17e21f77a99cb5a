package house

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// oldWords are those that docs/words.md replaces. They are refused as a word of a Go name, in lower case; one of two
// words is refused as these two in a row.
var oldWords = []string{
	"alike", "bears", "despite", "errand", "errands", "fleet", "fleets", "give back", "hang up", "holding", "holdings",
	"hope", "hush", "knock", "lacking", "lobby", "lone", "mute", "pot", "pots", "pulse", "said", "solo", "tells",
	"told", "undone", "unfit", "untold", "young",
}

// maxBearers is how many types may have a method of one name. Those of usualMethods mean the same on every type.
const maxBearers = 12

var usualMethods = []string{"Close", "New", "String", "Error", "Run", "Read", "Write", "Stats"}

func TestNamesHaveNoOldWords(t *testing.T) {
	for _, s := range sources(t) {
		for _, id := range declared(s.file) {
			if word := oldWordIn(id.Name); word != "" {
				t.Errorf("%s: %s has the word %q: docs/words.md lists what to write instead", s.at(id), id.Name, word)
			}
		}
	}
}

func TestOldWordsAreFoundInNames(t *testing.T) {
	for name, want := range map[string]string{
		"told": "told", "TellsAll": "tells", "hangUpNow": "hang up", "HTTPPots": "pots", "spot": "", "hangingUp": "",
		"Hoped": "", "x_said": "said",
	} {
		if got := oldWordIn(name); got != want {
			t.Errorf("the old word of %s is %q, want %q", name, got, want)
		}
	}
}

// TestFewTypesShareAMethodName: a name is what grep finds.
func TestFewTypesShareAMethodName(t *testing.T) {
	bearers := map[string][]string{}
	for _, s := range sources(t) {
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if ok && f.Recv != nil && !s.test && !slices.Contains(usualMethods, f.Name.Name) {
				bearers[f.Name.Name] = append(bearers[f.Name.Name], s.room+"."+receiver(f))
			}
		}
	}
	for name, types := range bearers {
		if len(types) > maxBearers {
			t.Errorf("%d types have a method %s, at most %d: name what it does on each of %s", len(types), name,
				maxBearers, strings.Join(types, ", "))
		}
	}
}

// declared lists the names that a file declares, but for tests, whose names are sentences.
func declared(file *ast.File) []*ast.Ident {
	var all []*ast.Ident
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if !strings.HasPrefix(n.Name.Name, "Test") {
				all = append(all, n.Name)
			}
		case *ast.TypeSpec:
			all = append(all, n.Name)
		case *ast.ValueSpec:
			all = append(all, n.Names...)
		case *ast.Field:
			all = append(all, n.Names...)
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				if id, ok := left.(*ast.Ident); ok && n.Tok == token.DEFINE {
					all = append(all, id)
				}
			}
		}
		return true
	})
	return all
}

// oldWordIn returns the first old word in a name, or "".
func oldWordIn(name string) string {
	words := " " + strings.Join(wordsOf(name), " ") + " "
	for _, old := range oldWords {
		if strings.Contains(words, " "+old+" ") {
			return old
		}
	}
	return ""
}

// wordsOf splits a name at its capitals, in lower case. A run of capitals is one word up to the last of them.
func wordsOf(name string) []string {
	runes, start := []rune(name), 0
	var words []string
	for i := 1; i <= len(runes); i++ {
		if i < len(runes) {
			begins := unicode.IsUpper(runes[i]) && (!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) &&
				unicode.IsLower(runes[i+1]))
			if !begins && runes[i] != '_' {
				continue
			}
		}
		words = append(words, strings.ToLower(strings.Trim(string(runes[start:i]), "_")))
		start = i
	}
	return words
}

func receiver(f *ast.FuncDecl) string {
	of := f.Recv.List[0].Type
	for {
		switch t := of.(type) {
		case *ast.StarExpr:
			of = t.X
		case *ast.IndexExpr:
			of = t.X
		case *ast.Ident:
			return t.Name
		default:
			return "?"
		}
	}
}
