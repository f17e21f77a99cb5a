package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
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
	if a.Events == nil || a.EventsRole == NoRole {
		problem(http.StatusNotFound, "ADMIN_EVENTS is off").write(w)
		return
	}
	if caller.Role < a.EventsRole {
		problem(http.StatusForbidden, "%s has the role %s, and events need the role %s", caller.Name, caller.Role, a.EventsRole).write(w)
		return
	}
	items, end, ok := a.Events.Read()
	defer end()
	if !ok {
		problem(http.StatusServiceUnavailable, "there are too many readers of events: end another one").write(w)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	out := &eventStream{w: w, control: http.NewResponseController(w)}
	_ = out.control.SetReadDeadline(time.Time{}) // the server's holds for the request, which was read
	out.write(": refusals follow\n\n")
	tick := time.NewTicker(eventsAlive)
	defer tick.Stop()
	for out.err == nil {
		select {
		case item := <-items:
			if item.Dropped > 0 {
				out.write(fmt.Sprintf("event: dropped\ndata: {\"count\":%d}\n\n", item.Dropped))
			}
			out.event(item.Event)
		case <-tick.C:
			out.write(": still here\n\n")
		case <-r.Context().Done():
			return
		case <-a.Stopping:
			return
		}
	}
}

// eventStream writes events to one reader.
type eventStream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	err     error
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
