package extauthz

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/identity"
	"github.com/spillway-mesh/spillway/limit"
)

// admitted is the verdict on a request that two limits let pass.
func admitted() engine.Verdict {
	user, all := perMinute("per-user", 100), perMinute("", 5000)
	all.Rule = "everyone"
	v := engine.Verdict{
		Cost:      5,
		Reported:  engine.Status{Effect: user, Remaining: 94, ResetAfter: 3600 * time.Millisecond},
		Decisions: []limit.Decision{{Outcome: limit.Allowed, Remaining: 94}, {Outcome: limit.Allowed, Remaining: 4000}},
	}
	v.Match.Known = true
	v.Match.Domain = &descriptors.CompiledDomain{}
	v.Match.Terms = []descriptors.Term{{Effect: user}, {Effect: all}}
	return v
}

// refused is the verdict on a request that one of two limits refuses.
func refused() engine.Verdict {
	v := admitted()
	v.Refused = true
	v.RetryAfter = 2400 * time.Millisecond
	v.Refusing = v.Match.Terms[0].Effect
	v.Reported = engine.Status{Over: true, Effect: v.Refusing, Remaining: 3, ResetAfter: 58200 * time.Millisecond}
	v.Decisions[0] = limit.Decision{Outcome: limit.Refused, Remaining: 3}
	return v
}

// blocked is the verdict on a request that a block refuses.
func blocked() engine.Verdict {
	block := &descriptors.Effect{Rule: "abusers", Action: descriptors.Block,
		Measure: descriptors.Measure{Reason: "Contact support."}}
	v := engine.Verdict{Refused: true, Refusing: block}
	v.Match.Domain = &descriptors.CompiledDomain{}
	v.Match.Block = block
	return v
}

// with changes a verdict.
func with(v engine.Verdict, changes ...func(*engine.Verdict)) engine.Verdict {
	for _, change := range changes {
		change(&v)
	}
	return v
}

func style(s descriptors.HeaderStyle) func(*engine.Verdict) {
	return func(v *engine.Verdict) { v.Match.Domain = &descriptors.CompiledDomain{Headers: s} }
}

func unixReset(v *engine.Verdict) {
	v.Match.Domain = &descriptors.CompiledDomain{ResetUnix: true}
}

func responds(r descriptors.Response) func(*engine.Verdict) {
	return func(v *engine.Verdict) { v.Response = &r }
}

func degraded(reason string) func(*engine.Verdict) {
	return func(v *engine.Verdict) { v.Degraded = reason }
}

// problem is the body of a refusal by the limit per-user.
const problem = `body {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Request ` +
	`cannot be satisfied as assigned quota has been exceeded","status":429,"detail":"Too many requests. Try again ` +
	`in 3 s.","violated-policies":["per-user"]}`

// goldens are verdicts, what the client sent, and the whole answer.
var goldens = []struct {
	name    string
	verdict engine.Verdict
	headers []string
	want    string
}{
	{"nothing applies", engine.Verdict{}, nil, `
code 0
ok
`},
	{"an unlimited one applies", with(admitted(), func(v *engine.Verdict) { v.Reported = engine.Status{} }), nil, `
code 0
ok
`},
	{"admitted", admitted(), nil, `
code 0
ok
x-ratelimit-limit: 100 (OVERWRITE_IF_EXISTS_OR_ADD)
x-ratelimit-remaining: 94 (OVERWRITE_IF_EXISTS_OR_ADD)
x-ratelimit-reset: 4 (OVERWRITE_IF_EXISTS_OR_ADD)
x-ratelimit-cost: 5 (OVERWRITE_IF_EXISTS_OR_ADD)
`},
	{"admitted without the store", with(admitted(), degraded("timeout")), nil, `
code 0
ok
x-ratelimit-limit: 100 (OVERWRITE_IF_EXISTS_OR_ADD)
x-ratelimit-remaining: 94 (OVERWRITE_IF_EXISTS_OR_ADD)
x-ratelimit-reset: 4 (OVERWRITE_IF_EXISTS_OR_ADD)
x-ratelimit-cost: 5 (OVERWRITE_IF_EXISTS_OR_ADD)
metadata degraded=timeout
`},
	{"shadowed", with(refused(), func(v *engine.Verdict) { v.Refused, v.Shadowed = false, true }), nil, `
code 0
ok
x-ratelimit-limit: 100 (OVERWRITE_IF_EXISTS_OR_ADD)
x-ratelimit-remaining: 3 (OVERWRITE_IF_EXISTS_OR_ADD)
x-ratelimit-reset: 59 (OVERWRITE_IF_EXISTS_OR_ADD)
x-ratelimit-cost: 5 (OVERWRITE_IF_EXISTS_OR_ADD)
metadata outcome=shadowed
metadata rule=rule-per-user
`},
	{"refused", refused(), nil, `
code 8
denied 429
retry-after: 3
x-ratelimit-limit: 100
x-ratelimit-remaining: 3
x-ratelimit-reset: 59
x-ratelimit-cost: 5
content-type: application/problem+json
` + problem + `
metadata outcome=refused
metadata rule=rule-per-user
`},
	{"refused with words of the rule's own", with(refused(), responds(descriptors.Response{
		Status: 503, Message: "Upgrade for \"more\".",
		Headers: []descriptors.Header{{Name: "x-upgrade", Value: "https://example.com/plans"}},
	})), nil, `
code 8
denied 503
retry-after: 3
x-ratelimit-limit: 100
x-ratelimit-remaining: 3
x-ratelimit-reset: 59
x-ratelimit-cost: 5
x-upgrade: https://example.com/plans
content-type: application/problem+json
` + strings.NewReplacer("429", "503", "Too many requests. Try again in 3 s.", `Upgrade for \"more\".`).Replace(
		problem) + `
metadata outcome=refused
metadata rule=rule-per-user
`},
	{"refused with headers of the rule's own in place of ours", with(refused(), responds(descriptors.Response{
		Message: "<p>Later</p>", Headers: []descriptors.Header{
			{Name: "Content-Type", Value: "text/html"}, {Name: "Retry-After", Value: "60"},
			{Name: "X-RateLimit-Limit", Value: "many"},
			{Name: ":status", Value: "200"}, {Name: "", Value: "none"}, {Name: "x-split", Value: "a\r\nset-cookie: b"},
		},
	})), nil, `
code 8
denied 429
x-ratelimit-remaining: 3
x-ratelimit-reset: 59
x-ratelimit-cost: 5
Content-Type: text/html
Retry-After: 60
X-RateLimit-Limit: many
x-split: a??set-cookie: b
body <p>Later</p>
metadata outcome=refused
metadata rule=rule-per-user
`},
	{"refused by on_failure: closed", with(refused(), degraded("breaker"), func(v *engine.Verdict) {
		v.RetryAfter = time.Second
		v.Reported = engine.Status{Over: true, Effect: v.Refusing, ResetAfter: time.Second}
	}), nil, `
code 8
denied 429
retry-after: 1
x-ratelimit-limit: 100
x-ratelimit-remaining: 0
x-ratelimit-reset: 1
x-ratelimit-cost: 5
content-type: application/problem+json
` + strings.Replace(problem, "in 3 s", "in 1 s", 1) + `
metadata degraded=breaker
metadata outcome=refused
metadata rule=rule-per-user
`},
	{"blocked for ever", blocked(), nil, `
code 7
denied 403
content-type: application/problem+json
body {"type":"about:blank","title":"Forbidden","status":403,"detail":"Contact support.","violated-policies":["abusers"]}
metadata outcome=blocked
metadata rule=abusers
`},
	{"blocked until a time, with a status of the rule's own",
		with(blocked(), responds(descriptors.Response{Status: 451}), func(v *engine.Verdict) {
			v.RetryAfter = time.Hour + 1
			v.Match.Block.Reason = ""
		}), nil, `
code 7
denied 451
retry-after: 3601
content-type: application/problem+json
body {"type":"about:blank","title":"Unavailable For Legal Reasons","status":451,` +
			`"detail":"Requests of this kind are blocked.","violated-policies":["abusers"]}
metadata outcome=blocked
metadata rule=abusers
`},
	{"malformed",
		engine.Verdict{Malformed: &identity.Refusal{Status: 400, Message: "The authorization header was sent twice."}},
		nil, `
code 3
denied 400
content-type: application/problem+json
body {"type":"about:blank","title":"Bad Request","status":400,"detail":"The authorization header was sent twice."}
metadata outcome=malformed
`},
	{"malformed, with nothing said about it", with(refused(), func(v *engine.Verdict) {
		v.Malformed = &identity.Refusal{}
	}), nil, `
code 3
denied 400
content-type: application/problem+json
body {"type":"about:blank","title":"Bad Request","status":400,"detail":"The request cannot be understood."}
metadata outcome=malformed
`},
	{"admitted, ietf", with(admitted(), style(descriptors.HeadersIETF)), nil, `
code 0
ok
ratelimit-policy: "per-user";q=100;w=60, "everyone";q=5000;w=60 (OVERWRITE_IF_EXISTS_OR_ADD)
ratelimit: "per-user";r=94;t=4 (OVERWRITE_IF_EXISTS_OR_ADD)
`},
	{"refused, both", with(refused(), style(descriptors.HeadersBoth)), nil, `
code 8
denied 429
retry-after: 3
x-ratelimit-limit: 100
x-ratelimit-remaining: 3
x-ratelimit-reset: 59
x-ratelimit-cost: 5
ratelimit-policy: "per-user";q=100;w=60, "everyone";q=5000;w=60
ratelimit: "per-user";r=3;t=3
content-type: application/problem+json
` + problem + `
metadata outcome=refused
metadata rule=rule-per-user
`},
	{"admitted, none", with(admitted(), style(descriptors.HeadersNone)), nil, `
code 0
ok
`},
	{"refused, none", with(refused(), style(descriptors.HeadersNone)), nil, `
code 8
denied 429
retry-after: 3
content-type: application/problem+json
` + problem + `
metadata outcome=refused
metadata rule=rule-per-user
`},
	{"admitted, reset as unix time", with(admitted(), unixReset), nil, `
code 0
ok
x-ratelimit-limit: 100 (OVERWRITE_IF_EXISTS_OR_ADD)
x-ratelimit-remaining: 94 (OVERWRITE_IF_EXISTS_OR_ADD)
x-ratelimit-reset: 1800000005 (OVERWRITE_IF_EXISTS_OR_ADD)
x-ratelimit-cost: 5 (OVERWRITE_IF_EXISTS_OR_ADD)
`},
	{"refused, text accepted", with(refused(), style(descriptors.HeadersNone)), []string{"accept: text/plain"}, `
code 8
denied 429
retry-after: 3
content-type: text/plain
body Too many requests. Try again in 3 s.
metadata outcome=refused
metadata rule=rule-per-user
`},
	{"a gRPC caller, blocked", blocked(), []string{"content-type: application/grpc", "accept: text/plain"}, `
code 7
denied 403
grpc-status: 7
grpc-status-details-bin: CAcSEENvbnRhY3Qgc3VwcG9ydC4
body Contact support.
metadata outcome=blocked
metadata rule=abusers
`},
}

func TestGoldenAnswers(t *testing.T) {
	now := func() time.Time { return time.Unix(1_800_000_000, 900_000_000) }
	for _, c := range goldens {
		got := printed(ask(t, Config{Engine: fixed(c.verdict), Now: now}, c.headers...))
		if diff := cmp.Diff(strings.TrimPrefix(c.want, "\n"), got); diff != "" {
			t.Errorf("%s:\n%s", c.name, diff)
		}
	}
}
