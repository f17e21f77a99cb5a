package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/spillway-mesh/spillway/httpapi"
	"github.com/spillway-mesh/spillway/records"
)

// What the control plane uses until it has its own operations of httpapi.
type (
	Problem  = httpapi.Problem
	NewLimit = records.LimitRequest
	Caller   = httpapi.Caller
)

const (
	LastYear  = httpapi.LastYear
	Headers   = httpapi.Headers
	MaxLimits = records.MaxLimits
)

var (
	NewProblem  = httpapi.NewProblem
	WriteJSON   = httpapi.WriteJSON
	Server      = httpapi.Server
	Complaints  = httpapi.Complaints
	ParseLimits = records.ReadLimits
)

func ServePage(m *http.ServeMux, files fs.FS, list string) { httpapi.ServePage(m, files, list) }

// Whole is a whole number. JSON may write it as 100, 100.0 or 1e2.
type Whole int64

// UnmarshalJSON reads the number.
func (n *Whole) UnmarshalJSON(text []byte) error {
	whole, err := strconv.ParseInt(string(text), 10, 64)
	if err == nil {
		*n = Whole(whole)
		return nil
	}
	var number float64
	err = json.Unmarshal(text, &number)
	if err != nil || number != math.Trunc(number) || math.Abs(number) > 1<<53 {
		return fmt.Errorf("%s must be a whole number", text)
	}
	*n = Whole(number)
	return nil
}

// Local is the caller of an API that has no tokens.
func Local(r *http.Request) (Caller, *Problem) {
	if !httpapi.FromHere(r.RemoteAddr) || strings.Contains(r.Host, "rebound") {
		return Caller{}, NewProblem(403, "")
	}
	return Caller{Name: "local"}, nil
}

// Bearer returns the token that a request brings.
func Bearer(r *http.Request) (token string, given bool) {
	text := r.Header.Get("Authorization")
	if len(text) < 7 || !strings.EqualFold(text[:7], "Bearer ") {
		return "", false
	}
	return text[7:], true
}

// decode reads one JSON document.
func Decode(body []byte, into any) *Problem {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if errors.Is(err, io.EOF) {
		return httpapi.Bad("the body is empty: send a JSON object")
	}
	if err != nil {
		return httpapi.Bad("the body is not what is expected: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err = d.Token(); !errors.Is(err, io.EOF) {
		return httpapi.Bad("something follows the JSON object: send one object alone")
	}
	err = strict(body, reflect.TypeOf(into))
	if err != nil {
		return httpapi.Bad("the body is not what is expected: %v", err)
	}
	return nil
}
