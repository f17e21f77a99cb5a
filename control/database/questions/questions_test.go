package questions

import (
	"os"
	"strings"
	"testing"

	"github.com/spillway-mesh/spillway/test/must"
)

// TestThePageListsEveryQuestion holds docs/explain/usage-and-events.md to the questions, their statements and indexes.
func TestThePageListsEveryQuestion(t *testing.T) {
	page := must.Get(os.ReadFile("../../../docs/explain/usage-and-events.md"))(t)
	for i := range All {
		q := &All[i]
		if !strings.Contains(string(page), "\n| ["+q.Name+"](../../control/database/questions/"+q.Name+".sql) |") {
			t.Errorf("docs/explain/usage-and-events.md does not list the question %s with its statement", q.Name)
		}
		for _, index := range q.Indexes {
			if !strings.Contains(string(page), "`"+index+"`") {
				t.Errorf("docs/explain/usage-and-events.md does not name the index %s of %s", index, q.Name)
			}
		}
	}
	files, err := files.ReadDir(".")
	if err != nil || len(files) != len(All) {
		t.Errorf("there are %d files and %d questions: %v", len(files), len(All), err)
	}
}
