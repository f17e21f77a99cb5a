package httpapi

import (
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"net/http"
	"reflect"
	"strings"
	"time"
)

// silence is how long a body may bring nothing, where an operation has more time than others.
const silence = time.Minute

// bound bounds how long a request may take and how much it may send.
func (a *API) bound(w http.ResponseWriter, r *http.Request, o *operation) (context.Context, context.CancelFunc) {
	most := a.MaxBody
	if o.MaxBody > 0 {
		most = o.MaxBody
	}
	r.Body = http.MaxBytesReader(w, r.Body, most)
	switch {
	case o.stream:
		return context.WithCancel(r.Context())
	case o.Within == 0:
		return context.WithTimeout(r.Context(), a.Within)
	}
	until := http.NewResponseController(w)
	_ = until.SetWriteDeadline(time.Now().Add(o.Within)) // a server without deadlines needs no later ones
	r.Body = &slowBody{r.Body, func() { _ = until.SetReadDeadline(time.Now().Add(silence)) }}
	return context.WithTimeout(r.Context(), o.Within)
}

// slowBody is a body that may take as long as something comes.
type slowBody struct {
	io.ReadCloser
	again func() // moves the deadline
}

// Read reads what has come.
func (b *slowBody) Read(into []byte) (int, error) {
	b.again()
	return b.ReadCloser.Read(into)
}

type callerKey struct{}

// CallerOf is who sent the request that a context belongs to.
func CallerOf(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}

func asProblem(err error) (*Problem, bool) {
	var own *Problem
	ok := errors.As(err, &own)
	return own, ok
}

// revisionOf is the field of an answer with the tag etag; 0: it has none.
func revisionOf(v reflect.Value) int64 {
	for v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return 0
		}
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return v.Int()
	}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if _, tagged := f.Tag.Lookup("etag"); tagged || f.Anonymous && f.Type.Kind() == reflect.Struct {
			if revision := revisionOf(v.Field(i)); revision > 0 || tagged {
				return revision
			}
		}
	}
	return 0
}

// How many bytes the header of a request may have.
const (
	Headers      = 64 << 10
	ProbeHeaders = 8 << 10 // on a port for probes and metrics
)

// headerSlack is how many bytes more than MaxHeaderBytes net/http takes.
const headerSlack = 4 << 10

// Server returns a server with timeouts for handler. Answer bounds how long an answer may take; 0: it may take
// any time, as a profile does. It speaks HTTP/1 only: what a client of HTTP/2 holds could not be counted.
func Server(handler http.Handler, headers int, answer time.Duration) *http.Server {
	only := new(http.Protocols)
	only.SetHTTP1(true)
	return &http.Server{
		Protocols:         only,
		WriteTimeout:      answer,
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    headers - headerSlack,
	}
}

// Complaints returns where a server writes what is wrong with connections: to a log, as one message that it may thin.
func Complaints(to *slog.Logger) *log.Logger { return log.New(complaints{to}, "", 0) }

type complaints struct{ log *slog.Logger }

// Write takes one line.
func (c complaints) Write(line []byte) (int, error) {
	c.log.Warn("a connection over HTTP went wrong", "error", strings.TrimSpace(string(line)))
	return len(line), nil
}
