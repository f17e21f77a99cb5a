package rlsvc

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/limit"
)

func status(name string, count, remaining int64, over bool) engine.Status {
	return engine.Status{Over: over, Effect: perMinute(name, count), Remaining: remaining,
		ResetAfter: time.Duration(count) * time.Second}
}

func quota(s engine.Status) engine.Status {
	s.Effect.Mode = limit.Quota
	return s
}

func tree(s engine.Status) engine.Status {
	s.Effect.Tree = true
	return s
}

func TestLimitHeadersTellTheStatusThatMatters(t *testing.T) {
	cases := []struct {
		name     string
		global   bool
		statuses []engine.Status
		want     []string
	}{
		{"no limit, no headers", false, []engine.Status{{}, {Unlimited: true}}, nil},
		{"the least remaining", false, []engine.Status{status("a", 10, 5, false), {}, status("b", 20, 3, false)},
			[]string{"L: 20", "R: 3", "T: 20"}},
		{"the first on ties", false, []engine.Status{status("a", 10, 5, false), status("b", 20, 5, false)},
			[]string{"L: 10", "R: 5", "T: 10"}},
		{"one that is over comes before one with less left", false, []engine.Status{status("a", 10, 4, true),
			status("b", 20, 0, false)}, []string{"L: 10", "R: 4", "T: 10"}},
		{"the last that is over", false, []engine.Status{status("a", 10, 0, true), status("b", 20, 0, true),
			status("c", 30, 0, false)}, []string{"L: 20", "R: 0", "T: 20"}},
		{"a quota is not singled out", false, []engine.Status{status("a", 10, 0, false),
			quota(status("b", 20, 0, true))}, []string{"L: 10", "R: 0", "T: 10"}},
		{"in quota mode no tree is", true, []engine.Status{status("a", 10, 0, false), tree(status("b", 20, 0, true))},
			[]string{"L: 10", "R: 0", "T: 10"}},
		{"in quota mode a rule is", true, []engine.Status{status("a", 10, 0, false), status("b", 20, 0, true)},
			[]string{"L: 20", "R: 0", "T: 20"}},
	}
	for _, c := range cases {
		config := Config{
			Engine: fixed(engine.Verdict{Statuses: c.statuses}), Quota: c.global,
			LimitHeaders: true, LimitHeader: "L", RemainingHeader: "R", ResetHeader: "T",
		}
		got := headers(ask(t, config, len(c.statuses)))
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

func TestLimitHeadersHaveTheReferenceServersNames(t *testing.T) {
	v := engine.Verdict{Statuses: []engine.Status{status("a", 10, 5, false)}}
	got := headers(ask(t, Config{Engine: fixed(v), LimitHeaders: true}, 1))
	if diff := cmp.Diff([]string{"RateLimit-Limit: 10", "RateLimit-Remaining: 5", "RateLimit-Reset: 10"},
		got); diff != "" {
		t.Error(diff)
	}
	if got := headers(ask(t, Config{Engine: fixed(v)}, 1)); got != nil {
		t.Errorf("headers that were not asked for: %q", got)
	}
}

func TestRefusalHeaders(t *testing.T) {
	refused := func(wait time.Duration, own ...descriptors.Header) engine.Verdict {
		return engine.Verdict{Refused: true, RetryAfter: wait, Response: &descriptors.Response{Headers: own}}
	}
	const problem = "content-type: application/problem+json"
	cases := []struct {
		name    string
		verdict engine.Verdict
		want    []string
	}{
		{"no rule's response", engine.Verdict{Refused: true, RetryAfter: 1500 * time.Millisecond},
			[]string{"retry-after: 2", problem}},
		{"at least a second", refused(0), []string{"retry-after: 1", problem}},
		{"the rule's headers", refused(time.Minute, descriptors.Header{Name: "x-a", Value: "1"},
			descriptors.Header{Name: "x-b", Value: "2"}),
			[]string{"retry-after: 60", "x-a: 1", "x-b: 2", problem}},
		{"the rule's content-type wins",
			refused(time.Minute, descriptors.Header{Name: "Content-Type", Value: "text/html"}),
			[]string{"retry-after: 60", "Content-Type: text/html"}},
		{"the rule's retry-after wins", refused(time.Minute, descriptors.Header{Name: "Retry-After", Value: "5"}),
			[]string{"Retry-After: 5", problem}},
		{"values are cleaned", refused(time.Minute, descriptors.Header{Name: "x-a", Value: "1\r\nset-cookie: é\x00"}),
			[]string{"retry-after: 60", "x-a: 1??set-cookie: ???", problem}},
		{"values leave whole", refused(time.Minute, descriptors.Header{Name: "x-a", Value: strings.Repeat("v", 4096)}),
			[]string{"retry-after: 60", "x-a: " + strings.Repeat("v", 4096), problem}},
		{"impossible names are left out", refused(time.Minute, descriptors.Header{Name: ""},
			descriptors.Header{Name: ":status"}, descriptors.Header{Name: "a b"},
			descriptors.Header{Name: "a\r\nb"}, descriptors.Header{Name: "é"},
			descriptors.Header{Name: strings.Repeat("n", 257)}), []string{"retry-after: 60", problem}},
	}
	for _, c := range cases {
		if diff := cmp.Diff(c.want, headers(ask(t, Config{Engine: fixed(c.verdict)}, 1))); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

// inStyle is a verdict in a domain with this style of headers.
func inStyle(style descriptors.HeaderStyle, v engine.Verdict) engine.Verdict {
	v.Match.Domain = &descriptors.CompiledDomain{Headers: style}
	return v
}

func TestIETFHeadersWhenTheDomainAsks(t *testing.T) {
	daily, burst := status("daily", 50, 9, false), status("burst", 10, 3, false)
	v := engine.Verdict{Statuses: []engine.Status{daily, burst, {}, daily, burst}}
	want := []string{`RateLimit-Policy: "burst";q=10;w=60, "daily";q=50;w=60`, `RateLimit: "burst";r=3;t=10`}
	for _, style := range []descriptors.HeaderStyle{descriptors.HeadersIETF, descriptors.HeadersBoth} {
		got := headers(ask(t, Config{Engine: fixed(inStyle(style, v))}, 5))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("style %d: %s", style, diff)
		}
	}
	for _, style := range []descriptors.HeaderStyle{descriptors.HeadersX, descriptors.HeadersNone} {
		if got := headers(ask(t, Config{Engine: fixed(inStyle(style, v))}, 5)); got != nil {
			t.Errorf("style %d: %q", style, got)
		}
	}
}

func TestIETFHeadersOfARefusalAgreeWithRetryAfter(t *testing.T) {
	spent, other := status("", 50, 0, true), status("other", 20, 0, true)
	spent.Effect.Rule = `a"b`
	v := inStyle(descriptors.HeadersIETF, engine.Verdict{
		Refused: true, Refusing: spent.Effect, RetryAfter: 12 * time.Second, Statuses: []engine.Status{other, spent},
	})
	want := []string{`RateLimit-Policy: "a_b";q=50;w=60, "other";q=20;w=60`, `RateLimit: "a_b";r=0;t=12`,
		"retry-after: 12", "content-type: application/problem+json"}
	if diff := cmp.Diff(want, headers(ask(t, Config{Engine: fixed(v)}, 2))); diff != "" {
		t.Error(diff)
	}
}

func TestIETFPolicyStaysAHeader(t *testing.T) {
	var v engine.Verdict
	for range 1000 {
		v.Statuses = append(v.Statuses, status(strings.Repeat("n", 300), 10, 1, false))
	}
	got := headers(ask(t, Config{Engine: fixed(inStyle(descriptors.HeadersIETF, v))}, 1000))
	policy := strings.TrimPrefix(got[0], "RateLimit-Policy: ")
	if len(policy) > 256 || !strings.HasSuffix(policy, ";q=10;w=60") {
		t.Errorf("policy of %d bytes: %s", len(policy), policy)
	}
}

func TestCostOfTheReportedRule(t *testing.T) {
	rule, leaf := status("a", 10, 5, false), tree(status("b", 10, 5, false))
	spent := engine.Verdict{Reported: rule, Statuses: []engine.Status{rule}, Cost: 3, Refused: true,
		RetryAfter: time.Second}
	own := spent
	own.Response = &descriptors.Response{Headers: []descriptors.Header{{Name: "X-RateLimit-Cost", Value: "much"}}}
	const problem = "content-type: application/problem+json"
	cases := []struct {
		name    string
		style   descriptors.HeaderStyle
		verdict engine.Verdict
		want    []string
	}{
		{"a rule", descriptors.HeadersX, engine.Verdict{Reported: rule, Statuses: []engine.Status{rule}, Cost: 3},
			[]string{"x-ratelimit-cost: 3"}},
		{"a refusal", descriptors.HeadersX, spent, []string{"x-ratelimit-cost: 3", "retry-after: 1", problem}},
		{"the rule's own header goes instead", descriptors.HeadersX, own,
			[]string{"retry-after: 1", "X-RateLimit-Cost: much", problem}},
		{"no headers", descriptors.HeadersNone, engine.Verdict{Reported: rule, Statuses: []engine.Status{rule},
			Cost: 3}, nil},
		{"a tree", descriptors.HeadersX, engine.Verdict{Reported: leaf, Statuses: []engine.Status{leaf}, Cost: 3}, nil},
		{"no limit", descriptors.HeadersX, engine.Verdict{Statuses: []engine.Status{{}}}, nil},
	}
	for _, c := range cases {
		if diff := cmp.Diff(c.want, headers(ask(t, Config{Engine: fixed(inStyle(c.style, c.verdict))}, 1))); diff !=
			"" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

func TestLimitHeaderIsNeverBelowRemaining(t *testing.T) {
	bursty := status("a", 10, 25, false)
	bursty.Effect.Limit.Algorithm, bursty.Effect.Limit.Burst = limit.TokenBucket, 30
	answer := ask(t, Config{Engine: fixed(engine.Verdict{Statuses: []engine.Status{bursty}}), LimitHeaders: true}, 1)
	if diff := cmp.Diff([]string{"RateLimit-Limit: 30", "RateLimit-Remaining: 25", "RateLimit-Reset: 10"},
		headers(answer)); diff != "" {
		t.Error(diff)
	}
	if count := answer.GetStatuses()[0].GetCurrentLimit().GetRequestsPerUnit(); count != 10 {
		t.Errorf("current_limit is %d, want the count of 10", count)
	}
}

// TestResetAsUnixTime: where the sidecar itself writes the three headers, the domain chooses how the reset is written.
func TestResetAsUnixTime(t *testing.T) {
	now := func() time.Time { return time.Unix(1_000_000, 1) }
	for unix, want := range map[bool]string{false: "T: 10", true: "T: 1000011"} {
		v := engine.Verdict{Statuses: []engine.Status{status("a", 10, 5, false)}}
		v.Match.Domain = &descriptors.CompiledDomain{ResetUnix: unix, Headers: descriptors.HeadersNone}
		got := headers(ask(t, Config{Engine: fixed(v), LimitHeaders: true, ResetHeader: "T", Now: now}, 1))
		if len(got) != 3 || got[2] != want {
			t.Errorf("unix %v: headers %q, want %q", unix, got, want)
		}
	}
}
