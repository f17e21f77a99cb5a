package servers

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
)

const mostTries = 5

// Tries runs a test with bounds on real time, at most five times: it passes when one try meets all of them. Wrong fails
// the test in any try. make test runs no such test: it is for files with the build tag full.
func Tries(t *testing.T, run func(t testing.TB)) {
	t.Helper()
	for n := 1; ; n++ {
		try := &try{}
		t.Run(fmt.Sprintf("try %d", n), func(t *testing.T) {
			try.TB = t
			var body sync.WaitGroup
			body.Go(func() { run(try) })
			body.Wait()
		})
		if t.Failed() || !try.Failed() {
			return
		}
		t.Logf("try %d: %s", n, strings.Join(try.all(), "; "))
		if n == mostTries {
			t.Fatalf("none of %d tries met its bounds on time", mostTries)
		}
	}
}

// try is one run. It keeps its errors.
type try struct {
	testing.TB
	mu     sync.Mutex // guards errors
	errors []string
}

func (t *try) keep(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.errors = append(t.errors, what)
}

func (t *try) all() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.errors)
}

// Failed reports whether the try has errors, so that its servers show what they wrote.
func (t *try) Failed() bool { return t.TB.Failed() || len(t.all()) > 0 }

// Wrong fails a test for what no lack of time explains.
func Wrong(t testing.TB, format string, args ...any) {
	t.Helper()
	if try, ok := t.(*try); ok {
		t = try.TB
	}
	t.Errorf(format, args...)
}

// Error keeps an error, and so do Errorf, and Fatal and Fatalf, which end the try.
func (t *try) Error(args ...any) { t.keep(fmt.Sprint(args...)) }

func (t *try) Errorf(format string, args ...any) { t.keep(fmt.Sprintf(format, args...)) }

func (t *try) Fatal(args ...any) {
	t.keep(fmt.Sprint(args...))
	runtime.Goexit()
}

func (t *try) Fatalf(format string, args ...any) {
	t.keep(fmt.Sprintf(format, args...))
	runtime.Goexit()
}
