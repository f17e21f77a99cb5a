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

func TestBodies(t *testing.T) {
	block := &descriptors.Effect{Name: "", Rule: "abusers", Action: descriptors.Block, Reason: "Contact support."}
	blocked := engine.Verdict{Refused: true, Refusing: block, Match: descriptors.Match{Block: block}, Statuses: []engine.Status{{Over: true}}}
	silent := *block
	silent.Reason = ""
	two := engine.Verdict{Refused: true, RetryAfter: 90 * time.Second, Statuses: []engine.Status{status("a", 1, 0, true), status("b", 1, 1, false), status("c", 1, 0, true)}}
	two.Refusing = two.Statuses[2].Effect
	typed := &descriptors.Response{Message: "Slow \"down\".\r\n\x00é\xff", Headers: []descriptors.Header{{Name: "content-type", Value: "text/plain"}}}
	cases := []struct {
		name    string
		verdict engine.Verdict
		want    string
	}{
		{"nothing known", engine.Verdict{Refused: true}, problemPrefix + `"Too many requests. Try again in 1 s."}`},
		{"every refusing limit once, the slowest first", two, problemPrefix + `"Too many requests. Try again in 90 s.","violated-policies":["c","a"]}`},
		{"the rule's message", engine.Verdict{Refused: true, Response: &descriptors.Response{Message: "Upgrade for more."}}, problemPrefix + `"Upgrade for more."}`},
		{"a message that is escaped", engine.Verdict{Refused: true, Response: &descriptors.Response{Message: "a\"b\\c\n\x7fé\xff"}},
			problemPrefix + `"a\"b\\c\u000a\u007fé` + "\uFFFD" + `"}`},
		{"a block's reason", blocked, problemPrefix + `"Contact support.","violated-policies":["abusers"]}`},
		{"a block without reason", engine.Verdict{Refused: true, Match: descriptors.Match{Block: &silent}}, problemPrefix + `"Requests of this kind are blocked.","violated-policies":["abusers"]}`},
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
