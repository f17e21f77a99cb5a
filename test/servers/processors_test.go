package servers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestStolenTime(t *testing.T) {
	got, err := parseStolen("cpu  10 2 3 4 5 6 7 250 9 10\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
	if err != nil || got != 2500*time.Millisecond {
		t.Errorf("stolen %v (%v), want 2.5s", got, err)
	}
	for _, text := range []string{"", "cpu 1 2 3\n", "cpu0 1 2 3 4 5 6 7 8 9 10\n", "cpu 1 2 3 4 5 6 7 x 9 10\n"} {
		if got, err := parseStolen(text); err == nil {
			t.Errorf("%q: stolen %v, want an error", text, got)
		}
	}
}

// judged is a test that notes whether it failed, and what it said.
type judged struct {
	testing.TB
	failed bool
	said   []string
}

func (j *judged) Helper()               {}
func (j *judged) Error(args ...any)     { j.failed = true }
func (j *judged) Errorf(string, ...any) { j.failed = true }
func (j *judged) Logf(format string, _ ...any) {
	j.said = append(j.said, format)
}

func TestBoundsAreJudgedOnAMachineOfItsOwn(t *testing.T) {
	now := stolen(t)
	own := judged{TB: t}
	Processors{time.Now().Add(-time.Hour), now}.Miss(&own, "too slow")
	if !own.failed || len(own.said) > 0 {
		t.Errorf("nothing was stolen: failed is %v, said %q; want a failure", own.failed, own.said)
	}
	shared, list := judged{TB: t}, filepath.Join(t.TempDir(), "list")
	t.Setenv("NOT_JUDGED", list)
	Processors{time.Now().Add(-time.Second), now - time.Minute}.Miss(&shared, "too slow")
	if shared.failed || len(shared.said) != 1 || !strings.Contains(shared.said[0], "NOT JUDGED") {
		t.Errorf("a minute was stolen: failed is %v, said %q; want that it is not judged", shared.failed, shared.said)
	}
	if text, err := os.ReadFile(list); string(text) != t.Name()+": too slow\n" {
		t.Errorf("the list of what is not judged is %q (%v)", text, err)
	}
}
