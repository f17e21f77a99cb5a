package httpapi

import (
	"embed"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
)

// LastYear is the last one that JSON can write.
const LastYear = 9999

// sources are the files whose comments describe problems and conditions.
//
//go:embed condition.go problem.go
var sources embed.FS

// Problem is an answer that is an error, as application/problem+json (RFC 9457).
type Problem struct {
	Status int     `json:"status"`           // of HTTP
	Title  string  `json:"title"`            // the name of the status
	Detail string  `json:"detail"`           // what is wrong, and what to do
	Errors []Field `json:"errors,omitempty"` // each part of the request that is wrong
}

// Field is a part of a request that is wrong.
type Field struct {
	Name   string `json:"name"` // such as query.limit or body.limits[0].per
	Detail string `json:"detail"`
}

// NewProblem makes a Problem with the title of its status.
func NewProblem(status int, format string, args ...any) *Problem {
	return &Problem{Status: status, Title: http.StatusText(status), Detail: fmt.Sprintf(format, args...)}
}

// Bad is a problem with what the caller sent.
func Bad(format string, args ...any) *Problem {
	return NewProblem(http.StatusBadRequest, format, args...)
}

// Cannot is a problem with what the caller wants: it is well written, and cannot be done.
func Cannot(format string, args ...any) *Problem {
	return NewProblem(http.StatusUnprocessableEntity, format, args...)
}

// words is what is wrong, for people: a part of a body goes by its own name.
func (f *Field) words() string {
	where, name, _ := strings.Cut(f.Name, ".")
	switch {
	case where == "query":
		return "the parameter " + name + " " + f.Detail
	case name != "":
		return name + " " + f.Detail
	}
	return f.Name + " " + f.Detail
}

// badFields is one problem with all parts of a request that are wrong; nil for none.
func badFields(wrong []Field) *Problem {
	if len(wrong) == 0 {
		return nil
	}
	var details []string
	for _, f := range wrong {
		details = append(details, f.words())
	}
	p := Bad("%s", strings.Join(details, "; "))
	p.Errors = wrong
	return p
}

// Error is the detail.
func (p *Problem) Error() string { return p.Detail }

// Write answers with the problem.
func (p *Problem) Write(w http.ResponseWriter) { writeJSON(w, p.Status, "application/problem+json", p) }

// WriteJSON answers with a document. A list without items is [] in it, never null.
func WriteJSON(w http.ResponseWriter, status int, document any) {
	writeJSON(w, status, "application/json", document)
}

// writeJSON answers with a document. It is kept in no cache: it may be about clients.
func writeJSON(w http.ResponseWriter, status int, kind string, document any) {
	fillLists(reflect.ValueOf(document))
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

// mayBeNull reports whether a value of a type may be null in an answer: a pointer, or an object of any fields.
func mayBeNull(t reflect.Type) bool {
	return t.Kind() == reflect.Pointer || t.Kind() == reflect.Map && t.Elem().Kind() == reflect.Interface
}

// fillLists makes each list and each map of a document that is nil an empty one. What is behind an interface or in a
// map stays.
func fillLists(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			fillLists(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fillLists(v.Field(i))
			}
		}
	case reflect.Map:
		fillEmpty(v)
	case reflect.Slice:
		fillEmpty(v)
		for i := 0; i < v.Len() && hasLists(v.Type().Elem()); i++ {
			fillLists(v.Index(i))
		}
	}
}

// fillEmpty makes a list or a map that is nil an empty one. Bytes, and what may be null, stay.
func fillEmpty(v reflect.Value) {
	t := v.Type()
	switch {
	case !v.IsNil(), !v.CanSet(), mayBeNull(t):
	case t.Kind() == reflect.Map:
		v.Set(reflect.MakeMap(t))
	case t.Elem().Kind() != reflect.Uint8:
		v.Set(reflect.MakeSlice(t, 0, 0))
	}
}

// hasLists reports whether lists may be in values of a type.
func hasLists(t reflect.Type) bool {
	return t.Kind() == reflect.Struct || t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice
}
