package admin

import (
	"context"
	"net/http"

	"github.com/spillway-mesh/spillway/admin/live"
	"github.com/spillway-mesh/spillway/httpapi"
)

// Dropped is how many events were left out before the next one.
type Dropped struct {
	Count int64 `json:"count"`
}

// eventsRequest asks for refusals.
type eventsRequest struct {
	Domain string `query:"domain"` // one domain alone
}

// events serves GET /v1/events: refusals as they happen.
func (a *API) events(ctx context.Context, in *eventsRequest, out *httpapi.Stream) error {
	if a.EventsRole == httpapi.NoRole {
		return httpapi.NewProblem(http.StatusNotFound, "ADMIN_EVENTS is off")
	}
	reader := a.Events.Read(httpapi.CallerOf(ctx).Name)
	defer reader.End()
	err := out.Begin("refusals follow")
	if err != nil {
		return nil // the reader is gone
	}
	httpapi.Follow(ctx, out, reader.Items, func(item live.Item) error {
		if item.Dropped > 0 {
			err := out.Send("dropped", Dropped{item.Dropped})
			if err != nil {
				return err
			}
		}
		if in.Domain != "" && in.Domain != item.Event.Domain {
			return nil
		}
		return out.Send("refusal", item.Event)
	}, reader.Over, a.Stopping)
	return nil
}

// decisionRequest names a decision.
type decisionRequest struct {
	// the id, as answers have it as x-ratelimit-decision, or the request's x-request-id, where the door sees that
	ID string `query:"id" in:"1..256"`
}

// decision serves GET /v1/decision.
func (a *API) decision(ctx context.Context, in *decisionRequest) (*live.Decision, error) {
	if a.EventsRole == httpapi.NoRole {
		return nil, httpapi.NewProblem(http.StatusNotFound, "ADMIN_EVENTS is off")
	}
	if in.ID == "" {
		return nil, httpapi.Cannot("id is missing: answers have it as x-ratelimit-decision")
	}
	ctx, cancel := context.WithTimeout(ctx, topWithin)
	defer cancel()
	found, missing, err := a.Decision(ctx, in.ID)
	switch {
	case found != nil:
		return found, nil
	case err != nil:
		return nil, httpapi.NewProblem(http.StatusServiceUnavailable,
			"this sidecar has not kept a decision %q, and the others cannot be asked: %v", in.ID, err)
	case len(missing) > 0:
		return nil, httpapi.NewProblem(http.StatusNotFound,
			"no sidecar that answers has kept a decision %q; %d did not answer", in.ID, len(missing))
	}
	return nil, httpapi.NewProblem(http.StatusNotFound,
		"no sidecar has kept a decision %q: they keep refusals for some minutes, and a sample of a flood", in.ID)
}
