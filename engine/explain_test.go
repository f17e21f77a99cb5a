package engine_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/identity"
	"github.com/spillway-mesh/spillway/rules"
)

// richRules have something of everything, with limits that are soon spent.
const richRules = `
domain: shop
charge_denied: %v
penalty: { cool_down: 5s, threshold: 4 }
costs:
  - { match: { methods: [POST], endpoints: ["/search"] }, cost: 3 }
cost_header: x-cost
rules:
  - { name: all, scope: global, limit: 400/1m }
  - { name: each, scope: user, limit: { count: 12, per: 10s, burst: 5 } }
  - { name: gold, scope: user, match: { tiers: [gold] }, limit: 30/10s }
  - name: search
    scope: [user, endpoint]
    match: { endpoints: ["/search", "/v*/search"] }
    limit: { count: 4, per: 5s, algorithm: fixed_window }
  - { name: writes, scope: user, match: { methods: [POST] }, limit: { count: 3, per: 3s, algorithm: sliding_window } }
  - name: login
    scope: ip
    match: { endpoints: ["/login"] }
    limit: { count: 3, per: 4s, algorithm: sliding_log }
    penalty: { threshold: 2, detection_window: 20s, cool_down: 3s }
  - { name: tenant, scope: tenant, limits: [6/2s, { count: 50, per: 1m, algorithm: fixed_window }] }
  - { name: dry, scope: ip, limit: 2/10s, action: log_only }
  - { name: health, match: { endpoints: ["/healthz"] }, action: allow }
  - { name: abusers, match: { users: [mallory] }, action: block, reason: "Contact support." }
users:
  carol: { tier: gold, limits: [5/2s] }
descriptors:
  - key: user
    rate_limit: { unit: second, requests_per_unit: 3 }
  - key: user
    value: bob
    rate_limit: { unit: minute, requests_per_unit: 9 }
  - key: quota
    quota_mode: true
    rate_limit: { unit: second, requests_per_unit: 2 }
`

// shown is what a client sees of a verdict.
type shown struct {
	Outcome string
	Status  int
	Rule    string
	Cost    int64
	Over    []bool
	Left    []int64
	Charges int
}

func show(v *engine.Verdict) shown {
	t := shown{Outcome: v.Outcome.String(), Status: v.HTTPStatus, Cost: v.Cost, Charges: len(v.Match.Charges)}
	if v.Refusing != nil {
		t.Rule = v.Refusing.Rule
	}
	for _, s := range v.Statuses {
		t.Over, t.Left = append(t.Over, s.Over), append(t.Left, s.Remaining)
	}
	return t
}

func one[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// anyRequest is a request at one of the doors.
func anyRequest(r *rand.Rand) *descriptors.Request {
	path := one(r, "/", "/search", "/v1/search", "/login", "/healthz", "/a%2Fb", "/x;y/search", "/a/../search", "/%00b")
	method := one(r, "GET", "POST")
	user := one(r, "", "alice", "bob", "carol", "mallory")
	ip := one(r, "192.0.2.7", "192.0.2.8", "2001:db8::1")
	tenant := one(r, "", "acme")
	if r.IntN(2) == 0 {
		headers := one(r, nil, nil, nil, []identity.Header{{Name: "x-cost", Value: one(r, "2", "x")}})
		return &descriptors.Request{
			Domain: "shop", Subject: &descriptors.Subject{Path: path, Method: method, Host: "shop.example"},
			Evidence: &identity.Evidence{Peer: netip.MustParseAddr(ip), Principal: user, Path: path, Headers: headers},
		}
	}
	req := &descriptors.Request{Domain: "shop", Hits: uint64(r.IntN(3))}
	for range 1 + r.IntN(3) {
		d := descriptors.Descriptor{}
		for _, e := range [][2]string{
			{"user", user}, {"path", path}, {"method", method}, {"remote_address", ip}, {"tenant", tenant},
			{"quota", "a"},
		} {
			if r.IntN(3) == 0 && e[1] != "" {
				d.Entries = append(d.Entries, descriptors.Entry{Key: e[0], Value: e[1]})
			}
		}
		if r.IntN(4) == 0 {
			d.HitsGiven, d.Hits = true, uint64(r.IntN(3))
		}
		if r.IntN(12) == 0 {
			d.Override = &descriptors.Override{Count: 5, Unit: descriptors.Minute, Multiplier: 1}
		}
		req.Descriptors = append(req.Descriptors, d)
	}
	return req
}

// TestExplainSaysWhatTheDecisionSays explains random requests at both doors and then decides them.
func TestExplainSaysWhatTheDecisionSays(t *testing.T) {
	outcomes := map[string]int{}
	for seed := range uint64(3) {
		r := rand.New(rand.NewPCG(seed, 1))
		d, problems := rules.Decode("rules.yaml", fmt.Appendf(nil, richRules, seed%2 == 0))
		if len(problems) > 0 {
			t.Fatal(rules.FormatProblems(problems))
		}
		e := newBench(t, func(c *engine.Config) { c.Quota = seed%5 == 0 }, d)
		for n := range 1500 {
			req := anyRequest(r)
			var explained, twice, got engine.Verdict
			e.Explain(t.Context(), req, &explained)
			e.Explain(t.Context(), req, &twice)
			e.Decide(t.Context(), req, &got)
			decided, foreseen := show(&got), show(&explained)
			outcomes[decided.Outcome]++
			if !got.Match.Known {
				t.Fatalf("request %d: %s, of an unknown domain", n, decided.Outcome)
			}
			if got.Refused && explained.Refused && got.RetryAfter > explained.RetryAfter { // it starts a cool-down
				outcomes["cool-down"]++
				foreseen.Rule, foreseen.Left, foreseen.Cost = decided.Rule, decided.Left, decided.Cost
			}
			if diff := cmp.Diff(decided, foreseen) + cmp.Diff(show(&explained), show(&twice)); diff != "" {
				t.Fatalf("seed %d, request %d: %+v, subject %+v\nthe decision (-) and the explanation (+):\n%s", seed,
					n,
					req.Descriptors, req.Subject, diff)
			}
			e.now = e.now.Add(time.Duration(r.IntN(300)) * time.Millisecond)
		}
	}
	for _, want := range []string{"allowed", "refused", "blocked", "exempt", "malformed"} {
		if outcomes[want] < 20 || outcomes["cool-down"]*5 > outcomes["refused"] {
			t.Errorf("outcomes %v: the test shows little", outcomes)
		}
	}
}
