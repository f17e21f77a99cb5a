package ruletest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
)

const admitted = "admitted"

// verdicts are what a test may want: whether the request passes, or the outcome in the words of metrics.
var verdicts = func() []string {
	all := []string{admitted}
	for o := range engine.Outcomes {
		if o != engine.Shadowed { // of a whole sidecar
			all = append(all, o.String())
		}
	}
	return all
}()

// compare returns what the verdict differs in. Remaining is looked at where last is true.
func (w *Want) compare(v *engine.Verdict, last bool) (all []Difference) {
	differ := func(what, want, got string) {
		if want != got {
			all = append(all, Difference{what, want, got})
		}
	}
	if w.Verdict != "" {
		differ("verdict", w.Verdict, w.passed(v))
	}
	if w.By != nil {
		differ("by", *w.By, by(v))
	}
	if w.Remaining != nil && last {
		differ("remaining", strconv.FormatInt(*w.Remaining, 10), remaining(v))
	}
	if w.RetryAfter != nil {
		differ("retry_after", w.RetryAfter.String(), whole(v.RetryAfter).String())
	}
	if w.Waits != nil {
		differ("waits", w.Waits.String(), Duration(v.Waited).String())
	}
	w.compareRest(v, differ)
	return all
}

func (w *Want) compareRest(v *engine.Verdict, differ func(what, want, got string)) {
	if w.Status != nil {
		differ("status", strconv.Itoa(*w.Status), strconv.Itoa(v.HTTPStatus))
	}
	if w.Cost != nil {
		differ("cost", strconv.FormatInt(*w.Cost, 10), strconv.FormatInt(v.Cost, 10))
	}
	if w.Counts != nil {
		differ("counts", list(*w.Counts), list(counting(v)))
	}
	if w.Shadow != nil {
		differ("shadow", list(*w.Shadow), list(shadows(v)))
	}
	if w.Message != nil {
		differ("message", *w.Message, message(v))
	}
}

// passed is the outcome in the word that the test uses: admitted means all that pass.
func (w *Want) passed(v *engine.Verdict) string {
	outcome := v.Outcome
	if w.Verdict == admitted && !v.Refused {
		return admitted
	}
	return outcome.String()
}

// whole is the wait as a client gets it: whole seconds, rounded up.
func whole(wait time.Duration) Duration {
	return Duration((wait + time.Second - 1).Truncate(time.Second))
}

// by names the rule that decided.
func by(v *engine.Verdict) string {
	e := v.Effect
	if e == nil || v.Malformed != nil {
		return ""
	}
	return nameOf(e)
}

// nameOf is the rule's name; a limit of an account goes by its kind and name.
func nameOf(e *descriptors.Effect) string {
	if e.Account != "" {
		return e.Rule + " " + e.Account
	}
	return e.Rule
}

func remaining(v *engine.Verdict) string {
	if v.Reported.Effect == nil {
		return "no limit"
	}
	return strconv.FormatInt(v.Reported.Remaining, 10)
}

// counting names the rules that the request was matched by, but for those that are only logged.
func counting(v *engine.Verdict) (names []string) {
	for i := range v.Match.Terms {
		if i != v.Match.Gate-1 && !v.Match.Terms[i].Effect.Shadow() {
			names = append(names, nameOf(v.Match.Terms[i].Effect))
		}
	}
	for i := range v.Match.Unlimited {
		names = append(names, nameOf(v.Match.Unlimited[i].Effect))
	}
	return names
}

// shadows names the rules that are only logged and would have refused.
func shadows(v *engine.Verdict) (names []string) {
	for i := range v.Decisions {
		if v.Match.Terms[i].Effect.Shadow() && v.Decisions[i].Refused() {
			names = append(names, nameOf(v.Match.Terms[i].Effect))
		}
	}
	return names
}

func message(v *engine.Verdict) string {
	switch {
	case v.Malformed != nil:
		return v.Malformed.Message
	case v.Refused && v.Response != nil && v.Response.Message != "":
		return v.Response.Message
	case v.Match.Block != nil:
		return v.Match.Block.Reason
	}
	return ""
}

// list writes names in order, each once.
func list(names []string) string {
	sorted := slices.Clone(names)
	slices.Sort(sorted)
	return "[" + strings.Join(slices.Compact(sorted), ", ") + "]"
}

// describe writes all of a verdict in one line.
func describe(v *engine.Verdict) string {
	text := v.Outcome.String()
	if name := by(v); name != "" {
		text += " by " + name
		if at := v.Effect.Origin(); at.Line > 0 {
			text += fmt.Sprintf(" (%s:%d)", at.File, at.Line)
		}
	}
	if v.Reported.Effect != nil {
		text += fmt.Sprintf(", %d of %d left on %s", v.Reported.Remaining, v.Reported.Effect.Shown(),
			nameOf(v.Reported.Effect))
	}
	if v.RetryAfter > 0 {
		text += ", retry after " + whole(v.RetryAfter).String()
	}
	if v.Waited > 0 {
		text += ", waits " + Duration(v.Waited).String()
	}
	if names := counting(v); len(names) > 0 {
		text += ", counted by " + list(names)
	}
	return text
}
