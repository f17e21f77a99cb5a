package copier

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spillway-mesh/spillway/journal"
)

// maxText is the longest text that is kept, in bytes: an identity of 1024 bytes with its kind. An index holds it beside others of the lengths that sidecars write.
const maxText = 1100

// cleaned is a text as PostgreSQL can keep it.
func cleaned(s string) string {
	if utf8.ValidString(s) && !strings.ContainsRune(s, 0) {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// text is a text that fits: one that is too long counts under the name of those that had no room.
func text(s string) string {
	s = cleaned(s)
	if len(s) > maxText {
		return journal.Others
	}
	return s
}

func fit(texts ...*string) {
	for _, t := range texts {
		*t = text(*t)
	}
}

// checkEvents makes events what the table can keep, or returns why that cannot be.
func checkEvents(events []journal.Event) error {
	for n := range events {
		e := &events[n]
		if e.Weight < 1 {
			return fmt.Errorf("event %d has the weight %d", n, e.Weight)
		}
		fit(&e.Domain, &e.Outcome, &e.Rule, &e.Identity, &e.APIKey, &e.IP, &e.Method, &e.Endpoint)
		e.Status = min(max(e.Status, 0), math.MaxInt16)
		e.Weight = min(e.Weight, math.MaxInt32)
	}
	return nil
}

// checkUsage does the same for usage. A number below 0 cannot be added to what a customer owes.
func checkUsage(u *journal.Usage) error {
	for n := range u.Identities {
		r := &u.Identities[n]
		fit(&r.Domain, &r.Rule, &r.Identity, &r.Outcome)
		if !countable(r.Outcome, r.Requests, r.Cost) {
			return fmt.Errorf("row %d of identities has the outcome %q, %d requests and the cost %d", n, r.Outcome, r.Requests, r.Cost)
		}
	}
	for n := range u.Endpoints {
		r := &u.Endpoints[n]
		fit(&r.Domain, &r.Rule, &r.Endpoint, &r.Outcome)
		if !countable(r.Outcome, r.Requests, r.Cost) {
			return fmt.Errorf("row %d of endpoints has the outcome %q, %d requests and the cost %d", n, r.Outcome, r.Requests, r.Cost)
		}
	}
	for n := range u.Keys {
		r := &u.Keys[n]
		fit(&r.Domain, &r.Key)
		if !countable(r.Key, r.Requests, r.Refused) {
			return fmt.Errorf("row %d of keys has the name %q, %d requests and %d refused", n, r.Key, r.Requests, r.Refused)
		}
	}
	for n := range u.Caches {
		r := &u.Caches[n]
		fit(&r.Cache)
		if !countable(r.Cache, r.Hits, r.Misses) {
			return fmt.Errorf("row %d of caches has the name %q, %d hits and %d misses", n, r.Cache, r.Hits, r.Misses)
		}
	}
	return nil
}

// countable reports whether a row has a word for what it counts, and numbers from 0.
func countable(word string, first, second int64) bool { return word != "" && first >= 0 && second >= 0 }

// when returns the time of a row, and whether it had to be another than the row says: one that is long past or to come is replaced by now,
// because the clock of its sidecar was wrong.
func when(at, now time.Time) (time.Time, bool) {
	if at.Before(now.Add(-backTo)) || at.After(now.Add(aheadTo)) {
		return now, true
	}
	return at, false
}
