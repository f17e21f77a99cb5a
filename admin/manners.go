package admin

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/spillway-mesh/spillway/records"
)

// NewProblem makes a Problem with the title of its status, for another API with the manners of this one.
func NewProblem(status int, format string, args ...any) *Problem {
	return problem(status, format, args...)
}

// Write answers with the problem.
func (p *Problem) Write(w http.ResponseWriter) { p.write(w) }

// WriteJSON answers with a document.
func WriteJSON(w http.ResponseWriter, status int, document any) {
	writeJSON(w, status, "application/json", document)
}

// Decode reads one JSON document: without unknown fields, null, empty texts, and anything behind it.
func Decode(body []byte, into any) *Problem { return decode(body, into) }

// Local is the caller of an API that has no tokens: this machine alone, which may do everything.
func Local(r *http.Request) (Caller, *Problem) { return (&Access{Local: Operate}).local(r) }

// ParseLimits reads limits as records keep them: at most MaxLimits.
func ParseLimits(written []NewLimit) ([]records.Limit, error) {
	if len(written) > MaxLimits {
		return nil, fmt.Errorf("%d limits are more than %d", len(written), MaxLimits)
	}
	all, wrong := limitsOf(&written)
	if wrong != nil {
		return nil, errors.New(wrong.Detail)
	}
	return all, nil
}
