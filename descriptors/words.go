package descriptors

import "strings"

// ScopeDescriptor is the scope of limits in trees and of overrides: they count by the descriptor as a whole.
const ScopeDescriptor = "descriptor"

// RuleOverride is the rule of all overrides, whichever request brought them.
const RuleOverride = "override"

// RulePenalty is the rule of a domain's own penalty.
const RulePenalty = "~penalty"

// The words of a rule file.
var (
	actionWords = [...]string{Reject: "reject", Throttle: "throttle", LogOnly: "log_only", Block: "block",
		Allow: "allow"}
	failureWords = [...]string{FailLocal: "local", FailStayLocal: "local", FailOpen: "open", FailClosed: "closed"}
	headerWords  = [...]string{HeadersX: "x-ratelimit", HeadersIETF: "ietf", HeadersBoth: "both", HeadersNone: "none"}
)

// String returns the action's word in a rule file.
func (a Action) String() string { return wordOf(actionWords[:], int(a)) }

// String returns the policy's word in a rule file.
func (f Failure) String() string { return wordOf(failureWords[:], int(f)) }

// String returns the style's word in a rule file.
func (h HeaderStyle) String() string { return wordOf(headerWords[:], int(h)) }

func wordOf(words []string, i int) string {
	if i >= len(words) {
		return "unknown"
	}
	return words[i]
}

// Title is what the limit is called where a name is needed: its own name, else its rule's.
func (e *Effect) Title() string {
	if e.Name != "" {
		return e.Name
	}
	return e.Rule
}

// Shown is what a header shows as the limit: the count, or the burst where that is more, so that no more than that is
// ever left.
func (e *Effect) Shown() int64 { return max(e.Limit.Count, e.Limit.Capacity(), 0) }

// Carries reports whether the response has a header of its own of this name. A nil response has none.
func (r *Response) Carries(name string) bool {
	if r == nil {
		return false
	}
	for _, h := range r.Headers {
		if strings.EqualFold(h.Name, name) {
			return true
		}
	}
	return false
}
