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

// events serves GET /v1/events: refusals as they happen.
func (a *API) events(ctx context.Context, _ *httpapi.None, out *httpapi.Stream) error {
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
		return out.Send("refusal", item.Event)
	}, reader.Over, a.Stopping)
	return nil
}
