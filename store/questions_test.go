package store

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-mesh/spillway/breaker"
	"github.com/spillway-mesh/spillway/fleet"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/servers"
)

// wantQuestions fails the test unless the actions made the store ask about this many known denials.
func wantQuestions(t *testing.T, r *Redis, what string, questions int64, actions func()) {
	t.Helper()
	before := r.Stats().DenialQuestions
	actions()
	if n := r.Stats().DenialQuestions - before; n != questions {
		t.Fatalf("%s: %d questions, want %d", what, n, questions)
	}
}

// wantCached fails the test unless a decision is a refusal from memory.
func wantCached(t *testing.T, what string, d limit.Decision) {
	t.Helper()
	if d.Outcome != limit.Refused || !d.Cached {
		t.Fatalf("%s: %+v, want refused from memory", what, d)
	}
}

func TestAFloodCostsOneQuestionPerKeyAndSecond(t *testing.T) {
	r, e, clock := watched(t, RedisConfig{})
	settled(t, e, r)
	eachAlgorithm(t, 5, year, func(t *testing.T, l limit.Limit) {
		wide := l
		wide.Count, wide.Burst = 100, 100
		for name, flood := range map[string]struct {
			request []limit.Charge
			keys    int64 // denials of one request
		}{
			"one rule":     {[]limit.Charge{charge(t, "rule", l, 1)}, 1},
			"one tree":     {[]limit.Charge{each(charge(t, "tree", l, 1))}, 1},
			"shadow":       {[]limit.Charge{with(charge(t, "shadow", l, 1), limit.Shadow)}, 1},
			"spent twice":  {[]limit.Charge{charge(t, "both", l, 1), charge(t, "both too", l, 1)}, 2},
			"room beside":  {[]limit.Charge{charge(t, "user", l, 1), charge(t, "tenant", wide, 1)}, 1},
			"in cool-down": {[]limit.Charge{punished(charge(t, "cooling", l, 1), strict(1))}, 1},
		} {
			for range 7 {
				spend(r, flood.request...)
			}
			wantQuestions(t, r, name, 3*flood.keys, func() {
				wantCalls(t, e, "three seconds of "+name, 3, func() {
					for range 300 {
						clock.Turn(10 * time.Millisecond)
						for range 3 {
							want(t, name, spend(r, flood.request...)[0], limit.Refused, 0, 0)
						}
					}
				})
			})
		}
	})
}

// TestEveryCostOfASlidingLogIsAskedAbout: the log's entries stay on the server, so an answer is about one cost.
func TestEveryCostOfASlidingLogIsAskedAbout(t *testing.T) {
	r, e, clock := watched(t, RedisConfig{})
	l := limit.Limit{Algorithm: limit.SlidingLog, Count: 5, Window: year}
	spend(r, charge(t, "k", l, 4))
	three, two := charge(t, "k", l, 3), charge(t, "k", l, 2)
	flood := func() {
		for range 10 {
			want(t, "cost 3", spend(r, three)[0], limit.Refused, 0, 1)
			want(t, "cost 2", spend(r, two)[0], limit.Refused, 0, 1)
		}
	}
	flood()
	clock.Turn(askAgain)
	wantCalls(t, e, "two costs a second later", 2, flood)
	wantCalls(t, e, "two costs in that second", 0, flood)
}

// layout is a way to set up servers, by two stores that share them: one on a clock of the test, the other as another sidecar.
type layout struct {
	here, elsewhere *Redis
	clock           *hand
}

func newLayout(t *testing.T, c RedisConfig) layout {
	clock := newHand()
	l := layout{elsewhere: openRedis(t, c), clock: clock}
	c.Now = clock.Now
	l.here = openRedis(t, c)
	return l
}

// returned spends a counter of each algorithm, returns its tokens elsewhere, and wants that to be seen here a second after the
// denial, not earlier, and by all.
func (y layout) returned(t *testing.T, give func(t *testing.T, c limit.Charge)) {
	t.Helper()
	eachAlgorithm(t, 3, year, func(t *testing.T, l limit.Limit) {
		c := charge(t, "k", l, 1)
		for i := range int64(3) {
			want(t, "before", spend(y.here, c)[0], limit.Allowed, 1, 2-i)
		}
		if d := spend(y.here, c)[0]; d.Outcome != limit.Refused || d.Cached {
			t.Fatalf("the first refusal: %+v, want one by the server", d)
		}
		give(t, c)
		y.clock.Turn(askAgain - time.Millisecond)
		wantCached(t, "within a second", spend(y.here, c)[0])
		y.clock.Turn(time.Millisecond)
		for i := range int64(3) {
			want(t, "after a second", spend(y.here, c)[0], limit.Allowed, 1, 2-i)
		}
		want(t, "spent again", spend(y.here, c)[0], limit.Refused, 0, 0)
	})
}

// seesReturns runs returned with all that another sidecar may do.
func (y layout) seesReturns(t *testing.T) {
	t.Helper()
	t.Run("refund", func(t *testing.T) {
		y.returned(t, func(t *testing.T, c limit.Charge) {
			c.Op, c.Cost = limit.Refund, 3
			want(t, "refund", spend(y.elsewhere, c)[0], limit.Allowed, -3, 3)
		})
	})
	t.Run("reset", func(t *testing.T) {
		y.returned(t, func(t *testing.T, c limit.Charge) {
			if err := y.elsewhere.Reset(context.Background(), []string{c.Key}); err != nil {
				t.Fatalf("reset: %v", err)
			}
		})
	})
}

func TestAReturnElsewhereIsSeenWithinASecond(t *testing.T) {
	t.Run("one server", func(t *testing.T) {
		server := servers.StartRedis(t)
		e := look(t, server, redis.Options{})
		y := newLayout(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{server.Addr}}})
		y.seesReturns(t)
		t.Run("deleted", func(t *testing.T) {
			y.returned(t, func(_ *testing.T, c limit.Charge) { e.do("DEL", c.Key) })
		})
	})
	t.Run("ring", func(t *testing.T) {
		ring, _ := startRing(t, 3)
		newLayout(t, RedisConfig{Servers: ring}).seesReturns(t)
	})
	t.Run("second Redis", func(t *testing.T) {
		newLayout(t, RedisConfig{
			Servers:   fleet.Servers{Addresses: []string{servers.StartRedis(t).Addr}},
			PerSecond: &fleet.Servers{Addresses: []string{servers.StartRedis(t).Addr}},
		}).seesReturns(t)
	})
}

// clusterSeesReturns is a step of TestCluster.
func clusterSeesReturns(t *testing.T, c sharedCluster) {
	y := layout{elsewhere: openCluster(t, c, RedisConfig{}), clock: newHand()}
	y.here = openCluster(t, c, RedisConfig{Now: y.clock.Now})
	y.seesReturns(t)
}

// TestAPeekMayBeTheQuestion: it takes nothing, but what it finds counts for all.
func TestAPeekMayBeTheQuestion(t *testing.T) {
	r, e, clock := watched(t, RedisConfig{})
	eachAlgorithm(t, 1, year, func(t *testing.T, l limit.Limit) {
		c := charge(t, "k", l, 1)
		spend(r, c)
		spend(r, c)
		e.do("DEL", c.Key)
		clock.Turn(askAgain)
		peek := c
		peek.Op = limit.Peek
		want(t, "the peek", spend(r, peek)[0], limit.Allowed, 0, 1)
		want(t, "a charge after it", spend(r, c)[0], limit.Allowed, 1, 0)
	})
}

// TestTheWholeRequestIsTheQuestion: a denial that is due takes the request's other charges along.
func TestTheWholeRequestIsTheQuestion(t *testing.T) {
	r, e, clock := watched(t, RedisConfig{})
	eachAlgorithm(t, 5, year, func(t *testing.T, l limit.Limit) {
		old, fresh, room := charge(t, "old", l, 1), charge(t, "fresh", l, 1), charge(t, "room", l, 1)
		spend(r, charge(t, "old", l, 5), charge(t, "fresh", l, 5))
		spend(r, old)
		clock.Turn(askAgain / 2)
		spend(r, fresh)
		e.do("DEL", old.Key)
		clock.Turn(askAgain / 2)
		wantCalls(t, e, "a request with one denial that is due", 1, func() {
			d := spend(r, old, fresh, room)
			want(t, "the one that is due", d[0], limit.Allowed, 0, 5)
			want(t, "the one that is not", d[1], limit.Refused, 0, 0)
			want(t, "the one without a denial", d[2], limit.Allowed, 0, 5)
		})
		want(t, "the counter that has room again", spend(r, old)[0], limit.Allowed, 1, 4)
		e.do("DEL", fresh.Key)
		clock.Turn(askAgain)
		d := spend(r, fresh, room)
		want(t, "the other one after its question", d[0], limit.Allowed, 1, 4)
		want(t, "the one without a denial", d[1], limit.Allowed, 1, 4)
	})
}

// TestACostThatNeverPassesIsAskedAboutOnce: its wait is over at once, because a full counter gets no fuller.
func TestACostThatNeverPassesIsAskedAboutOnce(t *testing.T) {
	r, e, clock := watched(t, RedisConfig{})
	for _, a := range []limit.Algorithm{limit.TokenBucket, limit.SlidingWindow, limit.FixedWindow} {
		c := charge(t, a.String(), limit.Limit{Algorithm: a, Count: 1, Window: year, Burst: 1}, 2)
		spend(r, c)
		for range 3 {
			clock.Turn(askAgain)
			wantQuestions(t, r, a.String(), 1, func() {
				wantCalls(t, e, a.String(), 1, func() {
					for range 10 {
						want(t, "it", spend(r, c)[0], limit.Refused, 0, 1)
					}
				})
			})
		}
	}
}

func TestOneOfManyCallersAsks(t *testing.T) {
	r, e, clock := watched(t, RedisConfig{})
	eachAlgorithm(t, 1, year, func(t *testing.T, l limit.Limit) {
		for name, c := range map[string]limit.Charge{
			"denial":    charge(t, "k", l, 1),
			"cool-down": punished(charge(t, "cooling", l, 1), strict(1)),
		} {
			for range 3 {
				spend(r, c)
			}
			for range 5 {
				clock.Turn(askAgain)
				wantCalls(t, e, "callers at once of a "+name, 1, func() {
					var all sync.WaitGroup
					for range goroutines {
						all.Go(func() {
							if d := spend(r, c)[0]; d.Outcome != limit.Refused {
								t.Errorf("%s: %+v, want refused", name, d)
							}
						})
					}
					all.Wait()
				})
			}
		}
	})
}

// TestAQuestionWithoutAReplyIsAskedAgain: a server that hangs is asked once per second, the other callers do not wait for it,
// and the first question that it answers counts.
func TestAQuestionWithoutAReplyIsAskedAgain(t *testing.T) {
	server := servers.StartRedis(t)
	clock := newHand()
	r := openRedis(t, RedisConfig{
		Servers: fleet.Servers{Addresses: []string{server.Addr}}, Budget: 200 * time.Millisecond, Now: clock.Now, Breaker: breaker.Config{Disabled: true},
	})
	c := charge(t, "k", bucket(1, year), 1)
	anew := look(t, server, redis.Options{})
	servers.Await(t, "a decision", func() error {
		anew.do("DEL", c.Key) // a call without an answer may have charged it
		return notYet(spend(r, c)[0].Outcome == limit.Allowed)
	})
	servers.Await(t, "a refusal", func() error { return notYet(spend(r, c)[0].Outcome == limit.Refused) })
	server.Hang(t)
	for second := range 3 {
		clock.Turn(askAgain)
		wantQuestions(t, r, fmt.Sprintf("second %d", second+1), 1, func() {
			var asker sync.WaitGroup
			asker.Go(func() { spend(r, c) })
			servers.Await(t, "the question", func() error { return notYet(r.Stats().DenialQuestions == int64(second+1)) })
			for range 100 {
				wantCached(t, "beside the question", spend(r, c)[0])
			}
			asker.Wait()
			wantCached(t, "after the question", spend(r, c)[0])
		})
	}
	if err := server.Signal(syscall.SIGCONT); err != nil {
		t.Fatalf("wake the server: %v", err)
	}
	servers.Await(t, "an answer", func() error {
		anew.do("DEL", c.Key)
		clock.Turn(askAgain)
		return notYet(spend(r, c)[0].Outcome == limit.Allowed)
	})
}

// TestCachedDenialEndsWithItsTime: without a server nothing renews it. Behind an open breaker no question runs, so the answer
// is the one that is known, and none once that is over.
func TestCachedDenialEndsWithItsTime(t *testing.T) {
	eachAlgorithm(t, 1, year, func(t *testing.T, l limit.Limit) {
		server := servers.StartRedis(t)
		clock := newHand()
		r := openRedis(t, RedisConfig{
			Servers: fleet.Servers{Addresses: []string{server.Addr}}, Now: clock.Now,
			Breaker: breaker.Config{Consecutive: 1, Open: time.Hour, MaxOpen: 2 * time.Hour},
		})
		c, beside := charge(t, "k", l, 1), charge(t, "beside", l, 1)
		spend(r, c)
		d := spend(r, c)[0]
		server.Kill(t)
		servers.Await(t, "an open breaker", func() error { return notYet(spend(r, beside)[0].Reason == fleet.ReasonBreaker) })
		clock.Turn(d.RetryAfter - time.Minute)
		wantQuestions(t, r, "a minute before its end", 1, func() {
			answers := spend(r, c, beside)
			wantCached(t, "the denial", answers[0])
			wantAbout(t, "retry after then", answers[0].RetryAfter, time.Minute)
			if d := answers[1]; d.Outcome != limit.Undecided || d.Reason != fleet.ReasonBreaker {
				t.Fatalf("the limit beside it: %+v, want undecided", d)
			}
			wantCached(t, "the denial once more", spend(r, c)[0])
		})
		clock.Turn(2 * time.Minute)
		if d := spend(r, c)[0]; d.Outcome != limit.Undecided {
			t.Fatalf("a minute after its end: %+v, want undecided", d)
		}
	})
}

// TestAnEarlierClockReadingDoesNotLengthenADenial: a caller reads the clock, and another one stores a denial before the first
// looks. No wait is then longer than what the server gave.
func TestAnEarlierClockReadingDoesNotLengthenADenial(t *testing.T) {
	const wait, sent = time.Hour, 2 * time.Second
	eachAlgorithm(t, 1, year, func(t *testing.T, l limit.Limit) {
		for name, c := range map[string]limit.Charge{
			"denial":    charge(t, "k", l, 1),
			"cool-down": punished(charge(t, "cooling", l, 1), strict(1)),
		} {
			d := newDenials(100, 0, newHand().Now)
			state := limit.State{}
			trip := &trip{charges: []limit.Charge{c}, decisions: make([]limit.Decision, 1)}
			var reply [1]limit.Decision
			for range 2 { // the second is refused
				limit.Decide([]*limit.State{&state}, trip.charges, false, 1, reply[:])
			}
			if c.Penalty != nil {
				reply[0].RetryAfter, reply[0].Penalized = wait, true
			}
			d.remember(answer{charge: &c, decision: &reply[0], state: &state, server: 1, sent: sent})
			known, _, _ := d.recall(trip, sent-time.Second)
			if got := trip.decisions[0]; known != 1 || got.RetryAfter > reply[0].RetryAfter || got.ResetAfter > reply[0].ResetAfter {
				t.Errorf("%s: %d known, %+v, want no wait longer than in %+v", name, known, got, reply[0])
			}
		}
	})
}

// TestAServerWhoseClockIsSetBackIsHeard: its answer looks older than what is known, but it was asked for a second later.
func TestAServerWhoseClockIsSetBackIsHeard(t *testing.T) {
	d := newDenials(100, 0, newHand().Now)
	c := charge(t, "k", bucket(2, year), 1)
	refusal := &limit.Decision{Outcome: limit.Refused, RetryAfter: time.Hour}
	d.remember(answer{charge: &c, decision: refusal, state: &limit.State{}, server: 5_000_000, sent: time.Second})
	room := answer{charge: &c, decision: &limit.Decision{Outcome: limit.Allowed, Charged: 1}, server: 1_000_000}
	m := d.shard(c.Key).memos[c.Key]
	room.sent = time.Second + askAgain - 1
	d.remember(room)
	if !m.denied {
		t.Fatal("an answer from before the denial ends it")
	}
	room.sent = time.Second + askAgain
	d.remember(room)
	if m.denied || m.server != 1_000_000 {
		t.Fatalf("denied %v at %d on the server, want the denial ended by the answer to the question", m.denied, m.server)
	}
}
