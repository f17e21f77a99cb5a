package rlsvc

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
)

const problemPrefix = `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",` +
	`"title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"detail":`

const blockPrefix = `{"type":"about:blank","title":"Forbidden","status":403,"detail":`

// TestABlockIsNoQuota: its body has a title and a status of its own, and it does not ask the client to retry in weeks.
func TestABlockIsNoQuota(t *testing.T) {
	block := &descriptors.Effect{Rule: "abusers", Action: descriptors.Block,
		Measure: descriptors.Measure{Reason: "Contact support."}}
	v := engine.Verdict{Refused: true, Refusing: block, Match: descriptors.Match{Block: block},
		RetryAfter: 21 * 24 * time.Hour, Statuses: []engine.Status{{Over: true}}}
	if diff := cmp.Diff([]string{"content-type: application/problem+json"},
		headers(ask(t, Config{Engine: fixed(v)}, 1))); diff != "" {
		t.Errorf("headers of a block: %s", diff)
	}
	v.Response = &descriptors.Response{Status: 451, RetryAfter: time.Minute}
	v.RetryAfter = time.Minute
	answer := ask(t, Config{Engine: fixed(v)}, 1)
	if diff := cmp.Diff([]string{"retry-after: 60", "content-type: application/problem+json"}, headers(answer)); diff !=
		"" {
		t.Errorf("headers of a block whose rule names a time: %s", diff)
	}
	want := `{"type":"about:blank","title":"Unavailable For Legal Reasons","status":451,"detail":"Contact ` +
		`support.","violated-policies":["abusers"]}`
	if diff := cmp.Diff(want, string(answer.GetRawBody())); diff != "" {
		t.Errorf("a block with a status of its own: %s", diff)
	}
}

// TestAPlainRefusalIsTheReferenceServers: it has the rule's own response, and nothing of ours.
func TestAPlainRefusalIsTheReferenceServers(t *testing.T) {
	v := engine.Verdict{Refused: true, RetryAfter: time.Minute, Statuses: []engine.Status{status("a", 1, 0, true)}}
	answer := ask(t, Config{Engine: fixed(v), Plain: true}, 1)
	if len(answer.GetRawBody()) > 0 || len(headers(answer)) > 0 ||
		answer.GetStatuses()[0].GetCode() != answer.GetOverallCode() {
		t.Errorf("a plain refusal is %v", answer)
	}
	answer = ask(t, Config{Engine: fixed(v), Plain: true, LimitHeaders: true}, 1)
	if diff := cmp.Diff([]string{"RateLimit-Limit: 1", "RateLimit-Remaining: 0", "RateLimit-Reset: 1"},
		headers(answer)); diff != "" {
		t.Errorf("headers with LimitHeaders: %s", diff)
	}
	v.Response = &descriptors.Response{Message: "Later.", Headers: []descriptors.Header{{Name: "x-a", Value: "b"}}}
	answer = ask(t, Config{Engine: fixed(v), Plain: true}, 1)
	if diff := cmp.Diff([]string{"x-a: b"}, headers(answer)); diff != "" || string(answer.GetRawBody()) != "Later." {
		t.Errorf("the rule's own response: %q, %s", answer.GetRawBody(), diff)
	}
}

func TestBodies(t *testing.T) {
	block := &descriptors.Effect{Name: "", Rule: "abusers", Action: descriptors.Block,
		Measure: descriptors.Measure{Reason: "Contact support."}}
	blocked := engine.Verdict{Refused: true, Refusing: block, Match: descriptors.Match{Block: block},
		Statuses: []engine.Status{{Over: true}}}
	silent := *block
	silent.Reason = ""
	two := engine.Verdict{Refused: true, RetryAfter: 90 * time.Second,
		Statuses: []engine.Status{status("a", 1, 0, true), status("b", 1, 1, false), status("c", 1, 0, true)}}
	two.Refusing = two.Statuses[2].Effect
	typed := &descriptors.Response{Message: "Slow \"down\".\r\n\x00é\xff",
		Headers: []descriptors.Header{{Name: "content-type", Value: "text/plain"}}}
	cases := []struct {
		name    string
		verdict engine.Verdict
		want    string
	}{
		{"nothing known", engine.Verdict{Refused: true}, problemPrefix + `"Too many requests. Try again in 1 s."}`},
		{"every refusing limit once, the slowest first", two,
			problemPrefix + `"Too many requests. Try again in 90 s.","violated-policies":["c","a"]}`},
		{"the rule's message",
			engine.Verdict{Refused: true, Response: &descriptors.Response{Message: "Upgrade for more."}},
			problemPrefix + `"Upgrade for more."}`},
		{"a message that is escaped",
			engine.Verdict{Refused: true, Response: &descriptors.Response{Message: "a\"b\\c\n\x7fé\xff"}},
			problemPrefix + `"a\"b\\c\u000a\u007fé` + "\uFFFD" + `"}`},
		{"a block's reason", blocked, blockPrefix + `"Contact support.","violated-policies":["abusers"]}`},
		{"a block without reason", engine.Verdict{Refused: true, Match: descriptors.Match{Block: &silent}},
			blockPrefix + `"Requests of this kind are blocked.","violated-policies":["abusers"]}`},
		{"a type of the rule's own", engine.Verdict{Refused: true, Response: typed}, "Slow \"down\".\r\né\uFFFD"},
	}
	for _, c := range cases {
		got := string(ask(t, Config{Engine: fixed(c.verdict)}, len(c.verdict.Statuses)).GetRawBody())
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

func TestBodyIsJSONWhateverTheNames(t *testing.T) {
	v := engine.Verdict{Refused: true, Response: &descriptors.Response{Message: "\x00\"\xc3\x28</script>\u2028"}}
	for i := range 100 {
		v.Statuses = append(v.Statuses, status(strings.Repeat("n", i)+"\"\r\n\xff", 1, 0, true))
	}
	var body struct {
		Detail   string
		Violated []string `json:"violated-policies"`
	}
	err := json.Unmarshal(ask(t, Config{Engine: fixed(v)}, 100).GetRawBody(), &body)
	if err != nil {
		t.Fatalf("the body is no JSON: %v", err)
	}
	if want := "\x00\"\uFFFD(</script>\u2028"; body.Detail != want {
		t.Errorf("detail %q, want %q", body.Detail, want)
	}
	if len(body.Violated) != 16 {
		t.Errorf("%d policies named, at most 16", len(body.Violated))
	}
}
