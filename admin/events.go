package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/spillway-mesh/spillway/audit"
)

const (
	eventsPath  = "/v1/events"
	eventsAlive = 15 * time.Second // how often a reader without events gets a comment
	eventsWrite = 5 * time.Second  // for one write to a reader
)

// serveEvents serves GET /v1/events: refusals as they happen, as server-sent events.
func (a *API) serveEvents(w http.ResponseWriter, r *http.Request, caller Caller) {
	if r.Method != http.MethodGet {
		here := []route{{method: http.MethodGet}}
		notAllowed(here).write(w, here)
		return
	}
	wrong := a.mayRead(caller)
	if wrong != nil {
		wrong.write(w)
		return
	}
	reader := a.Events.Read(caller.Name)
	defer reader.End()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	out := &eventStream{w: w, control: http.NewResponseController(w)}
	_ = out.control.SetReadDeadline(time.Time{}) // the server's holds for the request, which was read
	out.write(": refusals follow\n\n")
	out.follow(reader, r.Context().Done(), a.Stopping)
}

// mayRead returns why a caller gets no events, or nil.
func (a *API) mayRead(caller Caller) *Problem {
	switch {
	case a.EventsRole == NoRole:
		return problem(http.StatusNotFound, "ADMIN_EVENTS is off")
	case caller.Role < a.EventsRole:
		return problem(http.StatusForbidden, "%s has the role %s, and events need the role %s", caller.Name, caller.Role, a.EventsRole)
	}
	return nil
}

// eventStream writes events to one reader.
type eventStream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	err     error
}

// follow writes events until the reader has gone or has to go.
func (s *eventStream) follow(reader *audit.Reader, gone, stopping <-chan struct{}) {
	tick := time.NewTicker(eventsAlive)
	defer tick.Stop()
	for s.err == nil {
		select {
		case item := <-reader.Items:
			if item.Dropped > 0 {
				s.write(fmt.Sprintf("event: dropped\ndata: {\"count\":%d}\n\n", item.Dropped))
			}
			s.event(item.Event)
		case <-tick.C:
			s.write(": still here\n\n")
		case <-reader.Over:
			return
		case <-gone:
			return
		case <-stopping:
			return
		}
	}
}

// event writes one event.
func (s *eventStream) event(e any) {
	text, err := json.Marshal(e)
	if err != nil {
		s.err = err
		return
	}
	s.write("event: refusal\ndata: " + string(text) + "\n\n")
}

// write writes a text at once. A reader that does not take it in time is given up.
func (s *eventStream) write(text string) {
	_ = s.control.SetWriteDeadline(time.Now().Add(eventsWrite)) // where there is none, the reader is gone when the write says so
	_, s.err = s.w.Write([]byte(text))
	if s.err == nil {
		s.err = s.control.Flush()
	}
}
