package engine_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/identity"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/store/memory"
)

// noon is when every test with a clock of its own begins: a minute after a window of any length up to an hour began.
var noon = time.Date(2026, 3, 2, 12, 1, 0, 0, time.UTC)

// bench is an engine on a memory store with a clock of the test's own.
type bench struct {
	*engine.Engine
	t   *testing.T
	now time.Time
}

func newBench(t *testing.T, set func(*engine.Config), domains ...descriptors.Domain) *bench {
	t.Helper()
	b := &bench{t: t, now: noon}
	clock := func() time.Time { return b.now }
	cfg := engine.Config{Store: memory.New(memory.Config{Now: clock}), Now: clock}
	if set != nil {
		set(&cfg)
	}
	b.Engine = engine.New(cfg)
	t.Cleanup(func() { b.Close() })
	b.Use(compile(t, domains...))
	return b
}

// failing is a bench whose store is away, and whose share is in memory.
func failing(t *testing.T, set func(*engine.Config), domains ...descriptors.Domain) (*bench, *gate) {
	t.Helper()
	lost := newGate()
	lost.away = everything
	return newBench(t, func(c *engine.Config) {
		c.Share, c.Store = c.Store, lost
		if set != nil {
			set(c)
		}
	}, domains...), lost
}

// compile makes a rule set. Over ext_authz the mesh names the user.
func compile(t testing.TB, domains ...descriptors.Domain) *descriptors.Set {
	t.Helper()
	clock := func() time.Time { return noon }
	resolver := func(_ string, cfg *identity.Config) *identity.Resolver {
		order := []identity.EvidenceKind{identity.MTLS, identity.IP}
		return identity.New(identity.Config{Order: order, ClientIP: cfg.ClientIP}, nil, identity.Options{Now: clock})
	}
	set, problems := descriptors.Compile(domains, descriptors.Options{Now: clock, Identity: resolver})
	if set == nil {
		t.Fatalf("the test's own rules do not compile: %v", problems)
	}
	return set
}

// ask decides one request of one descriptor per list.
func (b *bench) ask(lists ...[]string) *engine.Verdict {
	b.t.Helper()
	return b.decide(asking(lists...))
}

// asking is a request of one descriptor per list of key, value, key, value.
func asking(lists ...[]string) *descriptors.Request {
	req := &descriptors.Request{Domain: "d"}
	for _, list := range lists {
		var d descriptors.Descriptor
		for i := 0; i+1 < len(list); i += 2 {
			d.Entries = append(d.Entries, descriptors.Entry{Key: list[i], Value: list[i+1]})
		}
		req.Descriptors = append(req.Descriptors, d)
	}
	return req
}

func (b *bench) decide(req *descriptors.Request) *engine.Verdict {
	b.t.Helper()
	v := new(engine.Verdict)
	b.Decide(b.t.Context(), req, v)
	if len(v.Statuses) != len(req.Descriptors) {
		b.t.Fatalf("%d statuses for %d descriptors", len(v.Statuses), len(req.Descriptors))
	}
	return v
}

// want fails the test unless the verdict is refused or admitted as expected.
func want(t *testing.T, what string, v *engine.Verdict, refused bool) {
	t.Helper()
	if v.Refused != refused {
		t.Fatalf("%s: refused = %v, want %v (decisions %+v)", what, v.Refused, refused, v.Decisions)
	}
}

func perMinute(count int64) descriptors.Limit {
	l := limit.Limit{Algorithm: limit.FixedWindow, Count: count, Window: time.Minute}
	return descriptors.Limit{Limit: l, Unit: descriptors.Minute, Multiplier: 1}
}

func leaf(key, value string, count int64) descriptors.Node {
	return descriptors.Node{Key: key, Value: value, Limits: []descriptors.Limit{perMinute(count)}}
}

func bucket(name string, scope descriptors.Scope, count int64) descriptors.Rule {
	l := limit.Limit{Algorithm: limit.TokenBucket, Count: count, Burst: count, Window: time.Minute}
	return descriptors.Rule{Name: name, Scope: scope, HasScope: true, Limits: []descriptors.Limit{{Limit: l}}}
}

// policy is a domain with one rule by user and its failure policy.
func policy(p descriptors.Failure, count int64) descriptors.Domain {
	r := bucket("r", descriptors.ScopeUser, count)
	r.OnFailure = p
	return ruled(r)
}

// pair is a domain whose requests are counted by user and by tenant, the tenant with that failure policy.
func pair(p descriptors.Failure) descriptors.Domain {
	user, tenant := bucket("user", descriptors.ScopeUser, 10), bucket("tenant", descriptors.ScopeTenant, 4)
	user.Limits[0].Window, tenant.Limits[0].Window = time.Hour, time.Hour
	tenant.OnFailure = p
	return ruled(user, tenant)
}

// counted is a domain with one rule by user.
func counted(a limit.Algorithm, count int64, window time.Duration) descriptors.Domain {
	r := bucket("r", descriptors.ScopeUser, count)
	r.Limits[0].Algorithm, r.Limits[0].Window = a, window
	if a != limit.TokenBucket {
		r.Limits[0].Burst = 0
	}
	return ruled(r)
}

func eachAlgorithm(t *testing.T, test func(t *testing.T, a limit.Algorithm)) {
	for _, a := range []limit.Algorithm{limit.TokenBucket, limit.SlidingWindow, limit.FixedWindow, limit.SlidingLog} {
		t.Run(a.String(), func(t *testing.T) { test(t, a) })
	}
}

// request asks for a user, and for a tenant if it is not empty, with a cost.
func request(user, tenant string, cost uint64) *descriptors.Request {
	list := []string{"user", user}
	if tenant != "" {
		list = append(list, "tenant", tenant)
	}
	req := asking(list)
	req.Descriptors[0].Hits, req.Descriptors[0].HitsGiven = cost, true
	return req
}

// gate is the way to a store that all engines of a test share, without leases and denials. Tests set what gets lost on
// it. Requests that leave it at their Due are decided later, and their replies go to late.
type gate struct {
	*memory.Memory

	mu    sync.Mutex                         // guards all below
	away  func(c limit.Charge) bool          // does not get there
	slow  func(c limit.Charge) time.Duration // how long a request with it in front is on its way
	known func(c limit.Charge) bool          // is refused by what is known, also where the question gets no reply
	asks  int                                // calls of Ask
	seen  []limit.Request                    // what was asked
	late  func(*limit.Fate, []limit.Charge, []limit.Decision, error)
}

func nothing(limit.Charge) bool         { return false }
func everything(limit.Charge) bool      { return true }
func atOnce(limit.Charge) time.Duration { return 0 }

// newGate is a gate that loses nothing.
func newGate() *gate {
	return &gate{Memory: memory.New(memory.Config{}), away: nothing, slow: atOnce, known: nothing}
}

// of picks the charges of one user or tenant: a shard.
func of(identity string) func(limit.Charge) bool {
	return func(c limit.Charge) bool { return strings.Contains(c.Key, identity) }
}

func (g *gate) set(change func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
}

func (g *gate) lose(away func(limit.Charge) bool) { g.set(func() { g.away = away }) }

func (g *gate) delay(slow func(limit.Charge) time.Duration) { g.set(func() { g.slow = slow }) }

// delayRefunds lets refunds take so long, and nothing else.
func (g *gate) delayRefunds(took time.Duration) {
	g.delay(func(c limit.Charge) time.Duration {
		if c.Op == limit.Refund {
			return took
		}
		return 0
	})
}

func (g *gate) Try(*limit.Request) bool { return false }

func (g *gate) Ask(ctx context.Context, requests ...*limit.Request) {
	var slow func(limit.Charge) time.Duration
	g.set(func() { g.asks, slow = g.asks+1, g.slow })
	for _, r := range requests {
		wait := slow(r.Charges[0])
		if rest := time.Until(r.Due); !r.Due.IsZero() && rest < wait {
			g.leave(r, rest, wait)
			continue
		}
		pass(wait)
		g.pass(ctx, r)
	}
}

// leave answers a request at its Due, and decides a copy of it later.
func (g *gate) leave(r *limit.Request, rest, wait time.Duration) {
	r.Fate = new(limit.Fate)
	later := limit.Request{Charges: slices.Clone(r.Charges), Decisions: slices.Clone(r.Decisions), Fate: r.Fate}
	go func() {
		pass(wait)
		g.pass(context.Background(), &later)
		g.late(later.Fate, later.Charges, later.Decisions, nil)
	}()
	pass(rest)
	for i := range r.Decisions {
		r.Decisions[i] = limit.Decision{Reason: "timeout", Unknown: true}
	}
}

func (g *gate) pass(ctx context.Context, r *limit.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.seen = append(g.seen, limit.Request{Charges: slices.Clone(r.Charges), Due: r.Due})
	var there limit.Request
	var at []int
	for i, c := range r.Charges {
		r.Decisions[i] = limit.Decision{Reason: "dial"}
		switch {
		case g.known(c):
			r.Decisions[i] = limit.Decision{Outcome: limit.Refused, RetryAfter: time.Minute, Cached: true}
		case !g.away(c):
			there.Charges, at = append(there.Charges, c), append(at, i)
		}
	}
	there.Decisions = make([]limit.Decision, len(at))
	g.Memory.Ask(ctx, &there)
	for n, i := range at {
		r.Decisions[i] = there.Decisions[n]
	}
}

// sidecars is some engines on one store, on the clock of a synctest bubble.
type sidecars struct {
	*gate
	t       *testing.T
	engines []*engine.Engine
}

// inSidecars runs a test with that many engines under the rules, and with another configuration.
func inSidecars(
	t *testing.T, n int, domain descriptors.Domain, test func(*testing.T, *sidecars), set ...func(*engine.Config),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &sidecars{t: t, gate: newGate()}
		for range n {
			clock := engine.NewClock(time.Now)
			cfg := engine.Config{
				Store: f.gate, Share: memory.New(memory.Config{Now: clock.Now}), Clock: clock, Live: func(string) int {
					return n
				},
			}
			for _, change := range set {
				change(&cfg)
			}
			e := engine.New(cfg)
			e.Use(compile(t, domain))
			f.engines = append(f.engines, e)
			defer e.Close()
		}
		f.late = bringLate
		test(t, f)
	})
}

func (f *sidecars) send(n int, req *descriptors.Request) *engine.Verdict {
	v := new(engine.Verdict)
	f.engines[n].Decide(f.t.Context(), req, v)
	return v
}

// decide returns how long the answer took, too.
func (f *sidecars) decide(ctx context.Context, req *descriptors.Request) (*engine.Verdict, time.Duration) {
	v, began := new(engine.Verdict), time.Now()
	f.engines[0].Decide(ctx, req, v)
	return v, time.Since(began)
}

// within sends a request of a caller that waits for so long.
func (f *sidecars) within(longest time.Duration, req *descriptors.Request) (*engine.Verdict, time.Duration) {
	ctx, cancel := context.WithTimeout(f.t.Context(), longest)
	defer cancel()
	return f.decide(ctx, req)
}

// spend sends requests of cost 1 of user u through engine n, and returns how many were admitted.
func (f *sidecars) spend(n, requests int) int {
	admitted := 0
	for range requests {
		if !f.send(n, request("u", "", 1)).Refused {
			admitted++
		}
	}
	return admitted
}

// used is how many tokens of the limits of these requests are used at the store.
func (f *sidecars) used(req *descriptors.Request) []int64 {
	var m descriptors.Match
	f.engines[0].Rules().Match(req, &m)
	var used []int64
	for i, d := range f.engines[0].Usage(f.t.Context(), m.Charges, false) {
		used = append(used, m.Charges[i].Limit.Capacity()-d.Remaining)
	}
	return used
}

// usedBy is how many tokens of the one limit of a user are used at the store.
func (f *sidecars) usedBy(user string) int64 {
	return f.used(request(user, "", 1))[0]
}

// refunds is how many tokens the store was asked to give back.
func (g *gate) refunds() (tokens int64) {
	for _, r := range g.seen {
		for _, c := range r.Charges {
			if c.Op == limit.Refund {
				tokens += c.Cost
			}
		}
	}
	return tokens
}

// decisionOn is the decision on the counter of a user or tenant.
func decisionOn(v *engine.Verdict, identity string) limit.Decision {
	for i, c := range v.Match.Charges {
		if of(identity)(c) {
			return v.Decisions[i]
		}
	}
	return limit.Decision{}
}

// pass waits, but for what is over already.
func pass(d time.Duration) {
	if d > 0 {
		<-time.After(d)
	}
}

// toWindow waits for the next minute to begin.
func toWindow() { pass(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute))) }

// bringLate gives a late reply to the fate of its request, as a store does.
func bringLate(fate *limit.Fate, charges []limit.Charge, decisions []limit.Decision, err error) {
	if err == nil {
		fate.Reply(&limit.Request{Charges: charges, Decisions: decisions})
	}
}
