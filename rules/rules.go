// Package rules reads rule sets from where they are kept: files, and documents that the control plane publishes. Both
// are decoded here. A rule set is validated whole and published as one snapshot; while a new one is broken, the last
// good one stays in use.
package rules

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/spillway-mesh/spillway/descriptors"
)

// Problem is what is wrong with a rule file, and where.
type Problem = descriptors.Problem

// Load is what came of one attempt to load all rules.
type Load struct {
	Set      *descriptors.Set // nil: refused, the last good set stays
	Problems []Problem        // everything that was found, warnings included, by file, line and column
	Err      error            // the rules could not be read at all; Set is nil then
	Files    int              // rule files that were read
	// of what the rule files hold and of the set; the same wherever both are; empty without a Set
	Hash string

	Published []Merged   // documents that are part of the Set
	Refused   []Document // documents that do not compile, so that those before them stay
}

// Rejected reports whether the load brought no rule set.
func (l Load) Rejected() bool { return l.Set == nil }

// Source is a place that rule sets come from.
type Source interface {
	// Watch publishes what there is at once, then again on each change, until ctx ends. It calls publish from one
	// goroutine, one call at a time.
	Watch(ctx context.Context, publish func(Load)) error
}

// FormatProblems lists problems one per line as `file:line:column: text`, warnings with `warning: ` before their text.
// A problem without a line is about the whole file.
func FormatProblems(problems []descriptors.Problem) string {
	var b strings.Builder
	for _, p := range problems {
		b.WriteString(p.File)
		if p.Line > 0 {
			b.WriteString(":" + strconv.Itoa(p.Line) + ":" + strconv.Itoa(p.Column))
		}
		if p.Warning {
			b.WriteString(": warning")
		}
		b.WriteString(": " + p.Text + "\n")
	}
	return b.String()
}

// arrange sorts problems by file, line and column and drops duplicates, which an alias causes.
func arrange(problems []descriptors.Problem) []descriptors.Problem {
	slices.SortStableFunc(problems, func(a, b descriptors.Problem) int {
		return cmp.Or(
			cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column),
			cmp.Compare(a.Text, b.Text),
		)
	})
	return slices.Compact(problems)
}

// isError reports whether a problem keeps the rules from being used.
func isError(p descriptors.Problem) bool { return !p.Warning }
