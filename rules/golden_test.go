package rules

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/test/must"
)

var update = flag.Bool("update", false, "write the problems that were found into the files of testdata/bad")

const want = "# want: "

// TestBadFiles decodes each file of testdata/bad, whose first lines list its problems.
func TestBadFiles(t *testing.T) {
	files := must.Get(filepath.Glob("testdata/bad/*.yaml"))(t)
	if len(files) < 60 {
		t.Fatalf("%d bad files, want at least 60", len(files))
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text := must.Get(os.ReadFile(file))(t)
			expected, body := expectations(string(text))
			if *update {
				rewrite(t, file, body)
				return
			}
			_, problems := Decode(file, text)
			if diff := cmp.Diff(expected, brief(problems)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			if len(problems) == 0 {
				t.Error("no problem was found")
			}
		})
	}
}

// expectations splits a bad file into its expected problems and the rest.
func expectations(text string) (expected []string, body string) {
	for strings.HasPrefix(text, want) {
		line, rest, _ := strings.Cut(text, "\n")
		expected = append(expected, strings.TrimPrefix(line, want))
		text = rest
	}
	return expected, text
}

// brief lists problems without the file's name.
func brief(problems []descriptors.Problem) []string {
	var lines []string
	for _, p := range problems {
		text := p.Text
		if p.Warning {
			text = "warning: " + text
		}
		lines = append(lines, fmt.Sprintf("%d:%d: %s", p.Line, p.Column, text))
	}
	return lines
}

// rewrite puts the problems that are found into the file. Their number moves the lines that they name.
func rewrite(t *testing.T, file, body string) {
	_, problems := Decode(file, []byte(body))
	head := strings.Repeat(want+"\n", len(problems))
	_, problems = Decode(file, []byte(head+body))
	head = want + strings.Join(brief(problems), "\n"+want) + "\n"
	must.Do(t, os.WriteFile(file, []byte(head+body), 0o644))
}
