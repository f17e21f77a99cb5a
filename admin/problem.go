package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// Problem is an error of the API, as application/problem+json (RFC 9457).
type Problem struct {
	Status int    `json:"status"`
	Title  string `json:"title"`
	Detail string `json:"detail"` // what is wrong and what to do
}

// Error is the detail.
func (p *Problem) Error() string { return p.Detail }

// problem makes a Problem with the title of its status.
func problem(status int, format string, args ...any) *Problem {
	return &Problem{Status: status, Title: http.StatusText(status), Detail: fmt.Sprintf(format, args...)}
}

// bad is a problem with what the caller sent.
func bad(format string, args ...any) *Problem { return problem(http.StatusBadRequest, format, args...) }

// cannot is a problem with what the caller wants: it is well written, and cannot be done.
func cannot(format string, args ...any) *Problem {
	return problem(http.StatusUnprocessableEntity, format, args...)
}

// write answers with the problem.
func (p *Problem) write(w http.ResponseWriter) {
	writeJSON(w, p.Status, "application/problem+json", p)
}

// writeJSON answers with a document. It is kept in no cache: it may be about clients.
func writeJSON(w http.ResponseWriter, status int, kind string, document any) {
	body, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // it fails only when the client has gone
}
