package admin

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/spillway-mesh/spillway/httpapi"
	"github.com/spillway-mesh/spillway/profiles"
)

// change changes the profile of an identity, or only finds what that would do, and logs it.
func (a *API) change(
	ctx context.Context, action string, of *Whom, dry bool, note *string, warnings []string,
	edit func(*profiles.Profile),
) (*ProfileChange, error) {
	id, _, err := a.identity(of)
	if err != nil {
		return nil, err
	}
	err = a.reachable(ctx)
	if err == nil {
		err = a.claimed(ctx, action, &id)
	}
	if err != nil {
		return nil, err
	}
	change := a.Profiles.Change
	if dry {
		change = a.Profiles.Preview
	}
	before, after, err := change(ctx, id, httpapi.CallerOf(ctx).Name, func(r *profiles.Profile) {
		edit(r)
		if note != nil {
			r.Note = *note
		}
	})
	if err != nil {
		return nil, a.failed(ctx, action, whom(id), err)
	}
	warnings = append(warnings, putBack(action, &id, before)...)
	answer := &ProfileChange{Identity: whom(id), DryRun: dry, Before: viewOf(before), After: viewOf(after),
		Warnings: warnings}
	if !dry {
		a.logChange(ctx, action, answer.Identity, answer.Before, answer.After)
	}
	return answer, nil
}

// putBack is a warning where a control may put back what is changed.
func putBack(action string, id *profiles.Identity, before *profiles.Profile) []string {
	keeps := id.Kind == profiles.User || id.Kind == profiles.APIKey
	if action != "tier" || !keeps || before == nil || !before.Control {
		return nil
	}
	return []string{"a control puts back a tier and limits that it has itself: change them there"}
}

// reachable refuses a change while the store does not answer: it would hold here alone, and be gone with this sidecar.
func (a *API) reachable(ctx context.Context) error {
	why := a.Away(ctx)
	if why == "" {
		return nil
	}
	return httpapi.NewProblem(http.StatusServiceUnavailable, "Redis does not answer (%s), so nothing was "+
		"changed: it keeps blocks, tiers and counters. What is known of them holds meanwhile. Send this again when "+
		"/readyz is ok", why)
}

// claimed refuses a change that a control would undo, and names the command that asks the control for it. A control
// keeps all blocks, and tiers and limits of users; it does not end blocks that it does not know.
func (a *API) claimed(ctx context.Context, action string, id *profiles.Identity) error {
	claimed, err := a.Profiles.Claimed(ctx, id.Domain)
	if err != nil || !claimed {
		return err
	}
	var command string
	switch {
	case action == "block":
		command = fmt.Sprintf("blocks set %s/%s", id.Kind, id.Text())
	case action == "tier" && id.Kind == profiles.User:
		command = fmt.Sprintf("users set %s", id.Text())
	case action == "unblock":
		profile, err := a.Profiles.Get(ctx, *id)
		if err != nil || !profile.Blocks() || !profile.Control {
			return err
		}
		command = fmt.Sprintf("blocks rm %s/%s", id.Kind, id.Text())
	default:
		return nil
	}
	return httpapi.NewProblem(http.StatusConflict, "a control keeps the domain %q, and would undo this: change it "+
		"there with `spillway %s --domain %s --control URL`", id.Domain, command, id.Domain)
}

// until is the end of a block, given as an instant or as a duration from now; zero: none.
func (a *API) until(until time.Time, span string) (time.Time, error) {
	now := a.Now()
	if span != "" {
		if !until.IsZero() {
			return until, httpapi.Cannot("until and for are both given: give one of them")
		}
		length, err := profiles.ParseSpan(span)
		if err != nil {
			return until, httpapi.Cannot("for: %v", err)
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
