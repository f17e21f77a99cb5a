package engine

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/limit"
)

// TestMessageHasTheNumbers: names in braces are replaced, other braces stay, and JSON stays JSON.
func TestMessageHasTheNumbers(t *testing.T) {
	v := Verdict{Refusing: &descriptors.Effect{Name: "search", Rule: "search", Limit: limit.Limit{Count: 10}},
		RetryAfter: 2500 * time.Millisecond, Reported: Status{Remaining: 3, ResetAfter: time.Minute}}
	for text, want := range map[string]string{
		"":             "",
		"Come later.":  "Come later.",
		"{x} {} {rule": "{x} {} {rule",
		`{"rule":"{rule}","limit":{limit},"left":{remaining},"retry":{retry_after},"reset":{reset}}`: `{"rule":"search",` +
			`"limit":10,"left":3,"retry":3,"reset":60}`,
	} {
		v.Response = &descriptors.Response{Message: text}
		got := v.Message()
		if got != want || len(want) > 20 && !json.Valid([]byte(got)) {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
	v.Response = nil
	if got := v.Message(); got != "" {
		t.Errorf("without a response the message is %q", got)
	}
}
