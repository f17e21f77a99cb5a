package ruletest

import (
	"fmt"
	"io"
)

// WriteText writes the result for people: one line per test, and under a failed one what differs.
func (r *Result) WriteText(w io.Writer, verbose bool) {
	for i := range r.Tests {
		t := &r.Tests[i]
		if len(t.Failures) == 0 {
			if verbose {
				fmt.Fprintf(w, "ok    %s:%d: %s (requests: %d)\n", r.File, t.Line, t.Name, t.Requests)
			}
			continue
		}
		fmt.Fprintf(w, "FAIL  %s:%d: %s\n", r.File, t.Line, t.Name)
		for _, f := range t.Failures {
			f.write(w, r.File)
		}
	}
}

func (f *Failure) write(w io.Writer, file string) {
	which := ""
	if f.Of > 1 {
		which = fmt.Sprintf(", number %d of %d", f.Number, f.Of)
	}
	fmt.Fprintf(w, "  %s:%d: at %s%s: %s\n", file, f.Line, f.At, which, f.Request)
	for _, d := range f.Differs {
		fmt.Fprintf(w, "    - %s: %s\n    + %s: %s\n", d.What, d.Want, d.What, d.Got)
	}
	fmt.Fprintf(w, "    got: %s\n", f.Got)
	if f.Hint != "" {
		fmt.Fprintf(w, "    hint: %s\n", f.Hint)
	}
}
