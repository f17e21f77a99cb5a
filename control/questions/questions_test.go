package questions

import (
	"os"
	"strings"
	"testing"
)

// TestThePageShowsEveryStatement keeps docs/explain/usage-and-events.md to the statements that are asked.
func TestThePageShowsEveryStatement(t *testing.T) {
	page, err := os.ReadFile("../../docs/explain/usage-and-events.md")
	if err != nil {
		t.Fatal(err)
	}
	for i := range All {
		q := &All[i]
		if !strings.Contains(string(page), "\n### "+q.Name+"\n") || !strings.Contains(string(page), "```sql\n"+q.SQL+"\n```") {
			t.Errorf("docs/explain/usage-and-events.md does not show the statement of %s:\n%s", q.Name, q.SQL)
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
