package admin

import (
	"context"
	"net/http"
	"time"

	"github.com/spillway-mesh/spillway/httpapi"
	"github.com/spillway-mesh/spillway/records"
)

// change changes the record of an identity, or only finds what that would do, and logs it. It refuses one that the
// control plane keeps, which would put its own back.
func (a *API) change(
	ctx context.Context, action string, of *Whom, dry bool, note *string, warnings []string, edit func(*records.Record),
) (*RecordChange, error) {
	id, named, err := a.identity(of)
	if err == nil && !named {
		err = httpapi.Bad("name one of user, tenant, api_key and ip")
	}
	if err != nil {
		return nil, err
	}
	by, whole := httpapi.CallerOf(ctx).Name, func(r *records.Record) {
		edit(r)
		if note != nil {
			r.Note = *note
		}
	}
	before, after, err := a.Records.Preview(ctx, id, by, whole)
	if before != nil && before.Control {
		return nil, httpapi.NewProblem(http.StatusConflict, "the control plane keeps this record, and nothing was "+
			"changed: change it there, as in spillway %s %s/%s --control URL", action, id.Kind, id.Text())
	}
	if !dry {
		before, after, err = a.Records.Change(ctx, id, by, whole)
	}
	if err != nil {
		return nil, a.failed(ctx, action, whom(id), err)
	}
	answer := &RecordChange{Identity: whom(id), DryRun: dry, Before: viewOf(before), After: viewOf(after),
		Warnings: warnings}
	if !dry {
		a.logChange(ctx, action, answer.Identity, answer.Before, answer.After)
	}
	return answer, nil
}

// until is the end of a block, given as an instant or as a duration from now; zero: none.
func (a *API) until(until time.Time, span string) (time.Time, error) {
	now := a.Now()
	if span != "" {
		if !until.IsZero() {
			return until, httpapi.Cannot("until and for are both given: give one of them")
		}
		length, err := records.ParseSpan(span)
		if err != nil {
			return until, httpapi.Bad("for: %v", err)
		}
		until = now.Add(length)
	}
	if !until.IsZero() && !until.After(now) {
		return until, httpapi.Cannot("until %s has passed", until.Format(time.RFC3339))
	}
	if until.UTC().Year() > httpapi.LastYear {
		return until, httpapi.Cannot("until %s must be in the year %d of UTC or before", until.Format(time.RFC3339),
			httpapi.LastYear)
	}
	return until.UTC(), nil
}
