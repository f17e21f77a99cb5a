package engine

import (
	"strconv"
	"strings"
	"time"
)

// Message is what the rule that refuses has for the client, with the numbers of the refusal in place of their names in
// braces; empty: it has none. Names and numbers need no quotes in JSON.
func (v *Verdict) Message() string {
	if v.Response == nil || !strings.Contains(v.Response.Message, "{") {
		return v.message()
	}
	rule, count := "", int64(0)
	if v.Refusing != nil {
		rule, count = v.Refusing.Title(), v.Refusing.Limit.Count
	}
	return strings.NewReplacer(
		"{rule}", rule,
		"{limit}", strconv.FormatInt(count, 10),
		"{remaining}", strconv.FormatInt(max(v.Reported.Remaining, 0), 10),
		"{retry_after}", wholeSeconds(v.RetryAfter),
		"{reset}", wholeSeconds(v.Reported.ResetAfter),
	).Replace(v.Response.Message)
}

// message is the message as the rule has it.
func (v *Verdict) message() string {
	if v.Response == nil {
		return ""
	}
	return v.Response.Message
}

// wholeSeconds rounds up, to 1 at least, as headers do.
func wholeSeconds(d time.Duration) string {
	return strconv.FormatInt(max(int64((d+time.Second-1)/time.Second), 1), 10)
}
