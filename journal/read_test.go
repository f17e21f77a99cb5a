package journal

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// full is an event with all members.
var full = Event{
	At: 1_750_000_000_123_456, Domain: "shop", Outcome: "denied", Rule: "per-user", Identity: "user:3fa9", APIKey: "sk_live", IP: "ip:77aa", Method: "GET",
	Endpoint: "/käse/{id}", Count: 11, Limit: 10, Cost: 2, Status: 429, RetryAfter: 0.25, Latency: 730, Weight: 100,
}

// TestWhatIsWrittenIsReadFast: what a sidecar writes does not need encoding/json, but for texts with characters that JSON escapes.
func TestWhatIsWrittenIsReadFast(t *testing.T) {
	for name, events := range map[string][]Event{"none": {}, "one": {full}, "several": {full, {At: 1}, {}, full}} {
		got, known := readEvents(MarshalEvents(events))
		if diff := cmp.Diff(events, got); diff != "" || !known {
			t.Errorf("%s: known: %v, (-want +got):\n%s", name, known, diff)
		}
	}
	if _, known := readEvents(MarshalEvents([]Event{{Rule: `a "b"`}})); known {
		t.Error("a text with an escape is to be read by encoding/json")
	}
}

// FuzzReadEvents holds that what is read fast is read as encoding/json reads it.
func FuzzReadEvents(f *testing.F) {
	f.Add(MarshalEvents([]Event{full, {At: 1, RetryAfter: 12}}))
	for _, text := range []string{
		`[]`, `[`, `[{}]`, `[{},{}]`, `[{},]`, `[,{}]`, `[{}]x`, ` []`, `[{"at":01}]`, `[{"at":-1}]`, `[{"at":1.5}]`, `[{"at":9223372036854775808}]`, `[{"at":}]`,
		`[{"retry_after":1.}]`, `[{"retry_after":.5}]`, `[{"retry_after":00.5}]`, `[{"retry_after":1e3}]`, `[{"retry_after":0.5}]`, `[{"status":429}]`,
		`[{"rule":"a","rule":"b"}]`, `[{"rule":"\u0041"}]`, `[{"rule":"` + "\xff" + `"}]`, `[{"rule":"` + "\n" + `"}]`, `[{"rule":null}]`, `[{"Rule":"a"}]`,
		`[{"later":1}]`, `[{"rule":"a",}]`, `[{"rule":"a"`, `[{"rule":"a}]`, `[{"rule"}]`, `null`, ``,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, known := readEvents(data)
		if !known {
			return
		}
		var want []Event
		if err := json.Unmarshal(data, &want); err != nil {
			t.Fatalf("%q is read, though it is wrong: %v", data, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%q (-want +got):\n%s", data, diff)
		}
	})
}
