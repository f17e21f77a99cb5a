package wire

import (
	"slices"
	"strconv"
)

// DecisionHeader is the header that has the id of a decision that can be looked up.
const DecisionHeader = "x-ratelimit-decision"

// ProblemType is the content type of a problem document (RFC 9457).
const ProblemType = "application/problem+json"

// MaxPolicies is how many limits one answer names.
const MaxPolicies = 16

// Type and title of a refusal by a limit, as in IANA's registry of problem types.
const (
	QuotaType  = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	QuotaTitle = "Request cannot be satisfied as assigned quota has been exceeded"
)

// BeginProblem opens a problem document. What is appended until EndProblem is its detail, as AppendEscaped writes it.
// Kind and title are trusted: they are the program's own.
func BeginProblem(b []byte, kind, title string, status int) []byte {
	b = append(append(b, `{"type":"`...), kind...)
	b = append(append(b, `","title":"`...), title...)
	b = strconv.AppendInt(append(b, `","status":`...), int64(status), 10)
	return append(b, `,"detail":"`...)
}

// EndProblem closes a problem document with the names of the limits that refuse.
func EndProblem(b []byte, violated []string) []byte {
	b = append(b, '"')
	if len(violated) > 0 {
		b = append(b, `,"violated-policies":`...)
		for i, name := range violated {
			b = append(b, "[,"[min(i, 1)], '"')
			b = append(AppendName(b, name), '"')
		}
		b = append(b, ']')
	}
	return append(b, '}')
}

// AppendWait appends what a refused client gets when its rule has no own words.
func AppendWait(b []byte, seconds uint64) []byte {
	b = append(b, "Too many requests. Try again in "...)
	b = strconv.AppendUint(b, seconds, 10)
	return append(b, " s."...)
}

// AddName adds a name that is not yet there, while there is room in the list: it never grows.
func AddName(names []string, name string) []string {
	if name == "" || len(names) == cap(names) || slices.Contains(names, name) {
		return names
	}
	return append(names, name)
}
