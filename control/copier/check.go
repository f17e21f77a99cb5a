package copier

import (
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spillway-mesh/spillway/journal"
)

const (
	// bytes of a text: an identity of 1024 bytes with its kind. An index holds several of them
	maxText = 1100
	backTo  = 28 * 24 * time.Hour // of a row's time, from now: never longer than the month before
	aheadTo = 10 * time.Minute    // likewise
)

// cleaned is a text as PostgreSQL can keep it.
func cleaned(s string) string {
	if utf8.ValidString(s) && !strings.ContainsRune(s, 0) {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// text is a text that fits: one that is too long counts under the name of those without room.
func text(s string) string {
	s = cleaned(s)
	if len(s) > maxText {
		return journal.Others
	}
	return s
}

// fit makes rows what the tables can keep.
func fit(r *journal.Rows) {
	for _, list := range r.Usage() {
		for n := range list {
			fitTexts(&list[n].Domain, &list[n].Rule, &list[n].Name, &list[n].Endpoint, &list[n].Outcome)
		}
	}
	for n := range r.Events {
		e := &r.Events[n]
		fitTexts(&e.Domain, &e.Outcome, &e.Rule, &e.Identity, &e.APIKey, &e.IP, &e.Method, &e.Endpoint)
		e.Status = min(max(e.Status, 0), math.MaxInt16)
		e.Weight = min(e.Weight, math.MaxInt32)
	}
}

func fitTexts(texts ...*string) {
	for _, t := range texts {
		*t = text(*t)
	}
}

// when returns the time of a row, and whether it is another than the row has: one that is long past or to come is
// replaced by now, because the clock of its sidecar was wrong.
func when(at, now time.Time) (time.Time, bool) {
	if at.Before(now.Add(-backTo)) || at.After(now.Add(aheadTo)) {
		return now, true
	}
	return at, false
}
