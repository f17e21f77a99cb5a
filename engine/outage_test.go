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
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/store"
)

// gate is the way to a store that all engines of a test share. Tests say what gets lost on it.
type gate struct {
	truth *store.Memory

	mu      sync.Mutex
	away    func(c limit.Charge) bool // does not get there
	mute    func(c limit.Charge) bool // gets there, and the reply is lost
	spends  bool                      // only replies to spends are lost
	calls   int
	charges int
	slow    func(c limit.Charge) time.Duration // how long a call with it is on its way
	foul    func(c limit.Charge) bool          // no call with it is decided
}

func nothing(limit.Charge) bool    { return false }
func everything(limit.Charge) bool { return true }

func atOnce(limit.Charge) time.Duration { return 0 }

// of picks the charges of one user or tenant: a shard.
func of(identity string) func(limit.Charge) bool {
	return func(c limit.Charge) bool { return strings.Contains(c.Key, identity) }
}

func (g *gate) lose(away func(limit.Charge) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.away = away
}

func (g *gate) delay(slow func(limit.Charge) time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.slow = slow
}

func (g *gate) spoil(foul func(limit.Charge) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.foul = foul
}

func (g *gate) silence(mute func(limit.Charge) bool, spendsOnly bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mute, g.spends = mute, spendsOnly
}

// traffic is how many calls were made, and how many charges of theirs got there.
func (g *gate) traffic() (calls, charges int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.calls, g.charges
}

func (g *gate) Spend(ctx context.Context, charges []limit.Charge, decisions []limit.Decision) {
	g.pass(ctx, g.truth.Spend, charges, decisions, true)
}

func (g *gate) Usage(ctx context.Context, charges []limit.Charge, decisions []limit.Decision) {
	g.pass(ctx, g.truth.Usage, charges, decisions, false)
}

func (g *gate) Reset(ctx context.Context, keys []string) error { return g.truth.Reset(ctx, keys) }

func (g *gate) pass(ctx context.Context, call func(context.Context, []limit.Charge, []limit.Decision), charges []limit.Charge, decisions []limit.Decision, spend bool) {
	g.mu.Lock()
	slow := g.slow
	g.mu.Unlock()
	if wait := slow(charges[0]); wait > 0 { // a timer that is due at once can crash Go 1.26 under the race detector
		<-time.After(wait)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls++
	if slices.ContainsFunc(charges, g.foul) {
		for i := range decisions {
			decisions[i] = limit.Decision{Reason: "wrongtype"}
		}
		return
	}
	var there []limit.Charge
	var at []int
	for i, c := range charges {
		decisions[i] = limit.Decision{Reason: "dial"}
		if !g.away(c) {
			there, at = append(there, c), append(at, i)
		}
	}
	g.charges += len(there)
	answers := make([]limit.Decision, len(there))
	call(ctx, there, answers)
	for n, i := range at {
		decisions[i] = answers[n]
		if g.mute(charges[i]) && (spend || !g.spends) {
			decisions[i] = limit.Decision{Reason: "timeout", Unknown: true}
		}
	}
}

// fleet is some engines on one store, on the clock of a synctest bubble.
type fleet struct {
	*gate
	t       *testing.T
	engines []*engine.Engine
}

// inFleet runs a test with that many engines under the rules.
func inFleet(t *testing.T, engines int, domain descriptors.Domain, test func(t *testing.T, f *fleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{t: t, gate: &gate{truth: store.NewMemory(store.MemoryConfig{}), away: nothing, mute: nothing, foul: nothing, slow: atOnce}}
		set, problems := descriptors.Compile([]descriptors.Domain{domain}, descriptors.Options{})
		if set == nil {
			t.Fatalf("the test's own rules do not compile: %v", problems)
		}
		for range engines {
			e := engine.New(engine.Config{Store: f.gate, Fallback: store.NewMemory(store.MemoryConfig{}), Live: func(string) int { return engines }, Debts: 2000})
			e.Use(set)
			f.engines = append(f.engines, e)
			defer e.Close()
		}
		test(t, f)
	})
}

// request asks for a user, and for a tenant if it is not empty, with a cost.
func request(user, tenant string, cost uint64) *descriptors.Request {
	req := &descriptors.Request{Domain: "d"}
	entries := []descriptors.Entry{{Key: "user", Value: user}}
	if tenant != "" {
		entries = append(entries, descriptors.Entry{Key: "tenant", Value: tenant})
	}
	req.Descriptors = []descriptors.Descriptor{{Entries: entries, Hits: cost, HitsGiven: true}}
	return req
}

func (f *fleet) send(n int, req *descriptors.Request) *engine.Verdict {
	v := new(engine.Verdict)
	f.engines[n].Decide(f.t.Context(), req, v)
	return v
}

// spend sends requests of cost 1 of user u through engine n, and returns how many were admitted.
func (f *fleet) spend(n, requests int) int {
	admitted := 0
	for range requests {
		if !f.send(n, request("u", "", 1)).Refused {
			admitted++
		}
	}
	return admitted
}

// used is how many tokens of the limits of these requests are used at the store.
func (f *fleet) used(req *descriptors.Request) []int64 {
	f.t.Helper()
	var m descriptors.Match
	f.engines[0].Rules().Match(req, &m)
	decisions := make([]limit.Decision, len(m.Charges))
	f.truth.Usage(f.t.Context(), m.Charges, decisions)
	used := make([]int64, len(decisions))
	for i, d := range decisions {
		used[i] = m.Charges[i].Limit.Capacity() - d.Remaining
	}
	return used
}

// usedBy is how many tokens of the one limit of a user are used at the store.
func (f *fleet) usedBy(user string) int64 {
	f.t.Helper()
	return f.used(request(user, "", 1))[0]
}

func pass(d time.Duration) { <-time.After(d) }

var algorithms = []limit.Algorithm{limit.TokenBucket, limit.SlidingWindow, limit.FixedWindow, limit.SlidingLog}

// counted is a domain with one rule by user.
func counted(a limit.Algorithm, count int64, window time.Duration) descriptors.Domain {
	r := bucket("r", descriptors.ScopeUser, count)
	r.Limits[0].Algorithm, r.Limits[0].Window = a, window
	if a != limit.TokenBucket {
		r.Limits[0].Burst = 0
	}
	return descriptors.Domain{Name: "d", Rules: []descriptors.Rule{r}}
}

func eachAlgorithm(t *testing.T, test func(t *testing.T, a limit.Algorithm)) {
	for _, a := range algorithms {
		t.Run(a.String(), func(t *testing.T) { test(t, a) })
	}
}

func TestLocalDecisionsAreOnAShare(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a limit.Algorithm) {
		for _, c := range []struct{ live, want int }{{1, 100}, {2, 50}, {3, 33}, {7, 14}, {100, 1}, {101, 1}} {
			inFleet(t, c.live, counted(a, 100, time.Hour), func(t *testing.T, f *fleet) {
				f.lose(everything)
				v := f.send(0, request("u", "", 1))
				if got := v.Decisions[0].Remaining; got != int64(c.want-1) {
					t.Errorf("%d live: %d left after the first, want %d: numbers are those of the share", c.live, got, c.want-1)
				}
				if got := f.spend(0, 110) + 1; got != c.want {
					t.Errorf("%d live: admitted %d of 100 alone, want %d", c.live, got, c.want)
				}
			})
		}
	})
}

func TestLocalShareOfABurst(t *testing.T) {
	d := counted(limit.TokenBucket, 10, time.Hour)
	d.Rules[0].Limits[0].Burst = 40
	inFleet(t, 4, d, func(t *testing.T, f *fleet) {
		f.lose(everything)
		if got := f.spend(0, 50); got != 10 {
			t.Fatalf("admitted %d at once, want a quarter of the burst, 10", got)
		}
		pass(time.Hour)
		if got := f.spend(0, 50); got != 2 {
			t.Fatalf("admitted %d after an hour, want a quarter of the count, 2", got)
		}
	})
}

func TestALimitOfNothingStaysOne(t *testing.T) {
	inFleet(t, 2, counted(limit.FixedWindow, 0, time.Hour), func(t *testing.T, f *fleet) {
		f.lose(everything)
		if got := f.spend(0, 3); got != 0 {
			t.Fatalf("admitted %d, want 0", got)
		}
	})
}

func TestLiveIsAtLeastOne(t *testing.T) {
	for _, live := range []int{0, -3} {
		b := newBench(t, func(c *engine.Config) {
			c.Fallback, c.Store, c.Debts, c.Live = c.Store, lost{}, -1, func(string) int { return live }
		}, policy(descriptors.FailLocal, 2))
		for i, refused := range []bool{false, false, true} {
			v := b.ask([]string{"user", "u"})
			if v.Refused != refused {
				t.Fatalf("%d live, request %d: refused %v, want %v as with 1", live, i, v.Refused, refused)
			}
		}
	}
}

// TestUsedBeforeCounts: what a sidecar admitted before the loss is taken from its share, until time gives it back.
func TestUsedBeforeCounts(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a limit.Algorithm) {
		for _, c := range []struct{ live, before, left int }{{1, 60, 40}, {2, 60, 0}, {2, 30, 20}, {2, 100, 0}, {3, 0, 33}, {7, 100, 0}} {
			inFleet(t, c.live, counted(a, 100, time.Minute), func(t *testing.T, f *fleet) {
				if got := f.spend(0, c.before); got != c.before {
					t.Fatalf("admitted %d with the store, want %d", got, c.before)
				}
				f.lose(everything)
				if got := f.spend(0, 110); got != c.left {
					t.Errorf("%d live, %d used before: %d left, want %d", c.live, c.before, got, c.left)
				}
				pass(2 * time.Minute)
				if got, want := f.spend(0, 110), max(100/c.live, 1); got != want {
					t.Errorf("%d live, %d used before: %d left two windows later, want the share, %d", c.live, c.before, got, want)
				}
			})
		}
	})
}

// TestABucketAboveItsShareFillsAtOnce: a client that kept one sidecar busy for all is not locked out, it gets the share's rate.
func TestABucketAboveItsShareFillsAtOnce(t *testing.T) {
	inFleet(t, 10, counted(limit.TokenBucket, 100, 10*time.Second), func(t *testing.T, f *fleet) {
		f.spend(0, 100)
		f.lose(everything)
		pass(time.Second)
		if got := f.spend(0, 10); got != 1 {
			t.Fatalf("admitted %d a second after the loss, want 1: the share is 10 in 10 s", got)
		}
	})
}

func TestRefundsAndDebtsAreMirrored(t *testing.T) {
	d := counted(limit.TokenBucket, 100, time.Hour)
	inFleet(t, 2, d, func(t *testing.T, f *fleet) {
		f.spend(0, 40)
		back := request("u", "", 30)
		back.Descriptors[0].NegativeHits = true
		f.send(0, back)
		f.lose(everything)
		if got := f.spend(0, 100); got != 40 {
			t.Fatalf("%d left, want 40: 40 were taken and 30 given back", got)
		}
	})
	d.Rules[0].PostPaid = true
	inFleet(t, 2, d, func(t *testing.T, f *fleet) {
		f.send(0, request("u", "", 70))
		f.lose(everything)
		if !f.send(0, request("u", "", 0)).Refused {
			t.Fatal("a peek passed although 70 of a share of 50 were charged")
		}
		pass(26 * time.Minute)
		if f.send(0, request("u", "", 0)).Refused {
			t.Fatal("a peek was refused after 26 minutes, which earn the 20 that were above the share, and one")
		}
	})
}

// TestTheMirrorPunishesNobody: what the store admits above the share is no refusal.
func TestTheMirrorPunishesNobody(t *testing.T) {
	d := counted(limit.TokenBucket, 10, time.Hour)
	d.Rules[0].Penalty = &descriptors.Penalty{Threshold: 1, DetectionWindow: time.Hour, CoolDown: time.Minute, Multipliers: []int{1}}
	inFleet(t, 10, d, func(t *testing.T, f *fleet) {
		f.spend(0, 5)
		f.lose(everything)
		v := f.send(0, request("u", "", 1))
		if !v.Refused || v.Decisions[0].Penalized {
			t.Fatalf("refused %v, penalized %v: want refused by the share, and no cool-down from before", v.Refused, v.Decisions[0].Penalized)
		}
	})
}

func TestDegradedChargesHaveAReasonAndOthersNone(t *testing.T) {
	user, tenant := bucket("user", descriptors.ScopeUser, 10), bucket("tenant", descriptors.ScopeTenant, 10)
	d := descriptors.Domain{Name: "d", Rules: []descriptors.Rule{user, tenant}}
	inFleet(t, 1, d, func(t *testing.T, f *fleet) {
		f.lose(of("acme"))
		v := f.send(0, request("joe", "acme", 1))
		for i, c := range v.Match.Charges {
			want := ""
			if of("acme")(c) {
				want = "dial"
			}
			if got := v.Decisions[i].Reason; got != want {
				t.Errorf("charge on %s has the reason %q, want %q", c.Key, got, want)
			}
		}
		if v.Degraded != "dial" {
			t.Errorf("degraded %q, want dial", v.Degraded)
		}
	})
}
