package admin

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spillway-mesh/spillway/records"
	"github.com/spillway-mesh/spillway/rules"
)

const maxText = 1024 // characters of a reason or a note

// BlockRequest asks to refuse all requests of an identity.
type BlockRequest struct {
	Whom
	Reason string    `json:"reason,omitempty"` // shown to the client
	Until  time.Time `json:"until,omitzero"`   // zero: for ever
	For    string    `json:"for,omitempty"`    // a duration in place of until
	Note   *string   `json:"note,omitempty"`   // for operators
	DryRun bool      `json:"dry_run,omitempty"`
}

// UnblockRequest asks to let an identity through again.
type UnblockRequest struct {
	Whom
	// Lift also lifts blocks of the rule file that name the identity.
	Lift   bool    `json:"lift,omitempty"`
	Note   *string `json:"note,omitempty"`
	DryRun bool    `json:"dry_run,omitempty"`
}

// RecordChange is what a change of a record did, or would do.
type RecordChange struct {
	Identity Whom        `json:"identity"`
	DryRun   bool        `json:"dry_run"`
	Before   *RecordView `json:"before"`
	After    *RecordView `json:"after"`
	Warnings []string    `json:"warnings"`
}

// block serves POST /v1/block.
func (a *API) block(c *call) (any, *Problem) {
	var ask BlockRequest
	id, wrong := a.readWhom(c, &ask, &ask.Whom)
	if wrong != nil {
		return nil, wrong
	}
	until, wrong := a.until(ask.Until, ask.For)
	if wrong == nil {
		wrong = texts(ask.Reason, ask.Note)
	}
	if wrong != nil {
		return nil, wrong
	}
	return a.change(c, "block", id, ask.DryRun, nil, func(r *records.Record) {
		r.Block = &records.Block{Reason: ask.Reason, Until: until}
		note(r, ask.Note)
	})
}

// unblock serves POST /v1/unblock.
func (a *API) unblock(c *call) (any, *Problem) {
	var ask UnblockRequest
	id, wrong := a.readWhom(c, &ask, &ask.Whom)
	if wrong == nil {
		wrong = texts("", ask.Note)
	}
	if wrong != nil {
		return nil, wrong
	}
	if ask.Lift && id.Kind == records.APIKey {
		return nil, cannot("lift works for a user, a tenant or an ip: blocks of the rule file do not name API keys")
	}
	return a.change(c, "unblock", id, ask.DryRun, nil, func(r *records.Record) {
		r.Block = nil
		if ask.Lift {
			r.Block = &records.Block{Lifted: true}
		}
		note(r, ask.Note)
	})
}

// readWhom reads a request and the identity that it names.
func (a *API) readWhom(c *call, ask any, w *Whom) (records.Identity, *Problem) {
	wrong := c.read(ask)
	if wrong != nil {
		return records.Identity{}, wrong
	}
	return a.identity(w)
}

// change changes a record, or says what that would do, and logs it.
func (a *API) change(c *call, what string, id records.Identity, dry bool, warnings []string, edit func(*records.Record)) (any, *Problem) {
	change := a.Records.Change
	if dry {
		change = a.Records.Preview
	}
	before, after, err := change(c.ctx, id, c.caller.Name, edit)
	if err != nil {
		a.Log.Warn("admin: "+what+" failed", "who", c.caller.Name, "whom", whom(id), "error", err)
		return nil, problem(http.StatusServiceUnavailable, "%v", err)
	}
	if before != nil && before.Control {
		warnings = append(warnings, "the control plane keeps this record, and puts its own back: change it there")
	}
	answer := RecordChange{Identity: whom(id), DryRun: dry, Before: viewOf(before), After: viewOf(after), Warnings: append([]string{}, warnings...)}
	if !dry {
		a.logChange(c, what, "whom", jsonText(answer.Identity), "before", jsonText(answer.Before), "after", jsonText(answer.After))
	}
	return answer, nil
}

// LastYear is the last one that JSON can write.
const LastYear = 9999

// until is the end of a block, given as an instant or as a duration from now; zero: none.
func (a *API) until(until time.Time, span string) (time.Time, *Problem) {
	now := a.Now()
	if span != "" {
		if !until.IsZero() {
			return until, cannot("until and for are both given: give one of them")
		}
		length, err := oneSpan(span)
		if err != nil {
			return until, bad("for: %v", err)
		}
		until = now.Add(length)
	}
	if !until.IsZero() && !until.After(now) {
		return until, cannot("until %s has passed", until.Format(time.RFC3339))
	}
	if until.UTC().Year() > LastYear {
		return until, cannot("until %s must be in the year %d of UTC or before", until.Format(time.RFC3339), LastYear)
	}
	return until.UTC(), nil
}

var spans = regexp.MustCompile(`^([1-9][0-9]{0,2}d|[1-9][0-9]{0,3}(h|m|s|ms))\z`)

// oneSpan reads a duration with one unit.
func oneSpan(text string) (time.Duration, error) {
	if !spans.MatchString(text) {
		return 0, fmt.Errorf("%q must be a whole number and one unit of ms, s, m, h and d, such as 250ms, 10m or 7d", text)
	}
	return rules.ParseDuration(text)
}

// texts checks a reason and a note.
func texts(reason string, note *string) *Problem {
	if utf8.RuneCountInString(reason) > maxText || note != nil && utf8.RuneCountInString(*note) > maxText {
		return bad("reason and note have at most %d characters", maxText)
	}
	if !printable(reason) {
		return cannot("the reason has control characters: remove them")
	}
	return nil
}

// printable reports whether a text has no control characters, so that it may stand in an answer.
func printable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}

// plainName reports whether a text may be the name of a limit, which headers show.
func plainName(text string) bool { return printable(text) && !strings.ContainsAny(text, `"\\`) }

// note sets the note of a record, if one is given.
func note(r *records.Record, text *string) {
	if text != nil {
		r.Note = *text
	}
}
