package httpapi

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"time"
)

const (
	streamAlive = 15 * time.Second // how often a reader without events gets a comment
	streamWrite = 5 * time.Second  // for one write to a reader
)

// Stream is server-sent events for one reader.
type Stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	err     error
}

// AddStream adds an operation whose answer is a stream of events that are about values of the type Event. The problem
// of one that did not begin its stream is its answer.
func AddStream[In, Event any](a *API, op Op, serve func(ctx context.Context, in *In, out *Stream) error) {
	a.operations = append(a.operations, &operation{Op: op, in: a.inputOf(reflect.TypeFor[In](), &op),
		out: reflect.TypeFor[Event](), stream: true,
		serve: func(ctx context.Context, in any, w http.ResponseWriter) (any, error) {
			return nil, serve(ctx, in.(*In), &Stream{w: w, control: http.NewResponseController(w)})
		}})
}

// Begin sends the headers and a comment.
func (s *Stream) Begin(comment string) error {
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	_ = s.control.SetReadDeadline(time.Time{}) // the server's holds for the request, which was read
	return s.write(": " + comment + "\n\n")
}

// Send sends an event of a kind.
func (s *Stream) Send(kind string, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	return s.write("event: " + kind + "\ndata: " + string(text) + "\n\n")
}

// Follow calls send for each item until the reader has gone, or one of the other channels is closed.
func Follow[T any](ctx context.Context, s *Stream, items <-chan T, send func(T) error, over, stopping <-chan struct{}) {
	tick := time.NewTicker(streamAlive)
	defer tick.Stop()
	for s.err == nil {
		select {
		case item := <-items:
			s.err = send(item)
		case <-tick.C:
			_ = s.write(": still here\n\n") // the loop ends
		case <-over:
			return
		case <-stopping:
			return
		case <-ctx.Done():
			return
		}
	}
}

// write writes a text at once. A reader that does not take it in time is given up.
func (s *Stream) write(text string) error {
	_ = s.control.SetWriteDeadline(time.Now().Add(streamWrite)) // without deadlines the write fails later
	_, s.err = s.w.Write([]byte(text))
	if s.err == nil {
		s.err = s.control.Flush()
	}
	return s.err
}
