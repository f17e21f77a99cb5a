package store

import (
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/breaker"
	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/test/servers"
)

func wake(t *testing.T, server *servers.Redis) {
	t.Helper()
	err := server.Signal(syscall.SIGCONT)
	if err != nil {
		t.Fatalf("wake the server: %v", err)
	}
}

// late is a request or part that ended after its caller left.
type late struct {
	*limit.Request
	err error
}

// lateOnes opens a store that collects late replies.
func lateOnes(t *testing.T, c RedisConfig) (*Redis, chan late) {
	t.Helper()
	all := make(chan late, 100)
	c.OnLate = func(part *limit.Request, err error) { all <- late{part, err} }
	return open(t, c), all
}

// askHurried asks for a request whose caller waits a moment only.
func askHurried(t *testing.T, r *Redis, charges ...limit.Charge) *limit.Request {
	t.Helper()
	request := requestOf(charges...)
	request.Due = time.Now().Add(50 * time.Millisecond)
	r.Ask(t.Context(), request)
	return request
}

// TestALateReplyIsHandedOver with the charges as they were, though the request was used again.
func TestALateReplyIsHandedOver(t *testing.T) {
	server := servers.StartRedis(t)
	r, late := lateOnes(t, RedisConfig{Main: at(server.Addr)})
	c := charge(t, "k", bucket(3, year), 2)
	awaitAllowed(t, r, c)
	server.Hang(t)
	request := askHurried(t, r, c)
	if d := request.Decisions[0]; d.Reason != redis.ReasonTimeout || !d.Unknown || request.Fate == nil {
		t.Fatalf("decided %+v with fate %v, want undecided for lack of time, unknown, and a fate", d, request.Fate)
	}
	request.Charges[0] = charge(t, "other", bucket(1, year), 1)
	wake(t, server)
	l := <-late
	if l.err != nil || l.Fate != request.Fate || len(l.Charges) != 1 || l.Charges[0].Key != c.Key {
		t.Errorf("the late reply is %+v, want one about %s with the fate of the request", l, c.Key)
	}
	want(t, "the late reply", l.Decisions[0], limit.Refused, 0, 1)
	if s := r.Stats().Calls; s.Late != 1 || s.Undecided != 1 || s.Unknown != 0 {
		t.Errorf("calls %+v, want one undecided and one late", s)
	}
}

// TestAKnownRefusalAnswersForALostServer, also when this request was the question about it.
func TestAKnownRefusalAnswersForALostServer(t *testing.T) {
	server := servers.StartRedis(t)
	now := time.Now()
	r := open(t, RedisConfig{Main: at(server.Addr), Now: func() time.Time { return now }})
	c, room := charge(t, "k", bucket(3, year), 3), charge(t, "k", bucket(3, year), 1)
	room.Key += ":room"
	awaitAllowed(t, r, c)
	spend(r, c)
	server.Kill(t)
	now = now.Add(2 * time.Second)
	d := spend(r, c, room)
	if d[0].Outcome != limit.Refused || !d[0].Cached {
		t.Errorf("decided %+v, want refused by what is known", d[0])
	}
	if d[1].Outcome != limit.Undecided || d[1].Reason == "" {
		t.Errorf("decided %+v, want undecided with a reason", d[1])
	}
}

// TestPartsOfASplitRequestAreLateEachByItself with quotas as quotas, and one fate.
func TestPartsOfASplitRequestAreLateEachByItself(t *testing.T) {
	all := startRing(t, 2)
	r, late := lateOnes(t, RedisConfig{Main: ring(all...), DenialEntries: -1})
	one, two := on(t, r, all[0], bucket(5, year)), with(on(t, r, all[1], bucket(5, year)), limit.Quota)
	awaitAllowed(t, r, one)
	awaitAllowed(t, r, two)
	all[0].Hang(t)
	all[1].Hang(t)
	request := askHurried(t, r, one, two)
	wake(t, all[0])
	wake(t, all[1])
	modes := map[string]limit.Mode{}
	for range 2 {
		l := <-late
		want(t, "a late part", l.Decisions[0], limit.Allowed, 1, 3)
		modes[l.Charges[0].Key] = l.Charges[0].Mode
		if l.Fate != request.Fate || l.Fate == nil {
			t.Errorf("the fate is %v, want that of the request", l.Fate)
		}
	}
	if modes[one.Key] != limit.Enforced || modes[two.Key] != limit.Quota {
		t.Errorf("modes %v, want those of the request", modes)
	}
}

// TestNoTimeLeftMeansNoTrip: nothing is sent, so nothing is unknown.
func TestNoTimeLeftMeansNoTrip(t *testing.T) {
	r := open(t, RedisConfig{Main: at(servers.StartRedis(t).Addr)})
	request := requestOf(charge(t, "k", bucket(1, year), 1))
	request.Due = time.Now().Add(-time.Second)
	r.Ask(t.Context(), request)
	if d := request.Decisions[0]; d.Outcome != limit.Undecided || d.Reason != redis.ReasonDeadline || d.Unknown {
		t.Fatalf("decided %+v, want undecided because of the deadline", d)
	}
	if s := r.Stats().Calls; s.Sent != 0 {
		t.Fatalf("calls %+v, want none sent", s)
	}
}

// TestHungServerIsAnsweredWithinTheDeadline also where the caller sets no time.
func TestHungServerIsAnsweredWithinTheDeadline(t *testing.T) {
	server := servers.StartRedis(t)
	r := open(t, RedisConfig{Main: at(server.Addr), Patience: 50 * time.Millisecond})
	c := charge(t, "k", bucket(1000, year), 1)
	awaitAllowed(t, r, c)
	server.Hang(t)
	for range 3 { // a wait for the server's silence would take longer than the test may
		if d := spend(r, c)[0]; d.Outcome != limit.Undecided {
			t.Fatalf("decided %+v, want undecided", d)
		}
	}
	wake(t, server)
	awaitAllowed(t, r, c)
}

// TestClientsInAHurryDoNotOpenTheBreaker: they leave before the reply, which comes.
func TestClientsInAHurryDoNotOpenTheBreaker(t *testing.T) {
	p := servers.StartProxy(t, servers.StartRedis(t).Addr)
	r, late := lateOnes(t, RedisConfig{Main: at(p.Addr)})
	c := charge(t, "k", bucket(1000, year), 1)
	awaitAllowed(t, r, c)
	p.Set(servers.Fault{Mode: servers.Latency, Delay: 60 * time.Millisecond})
	for range 10 {
		request := requestOf(c)
		request.Due = time.Now().Add(time.Millisecond)
		r.Ask(t.Context(), request)
		if d := request.Decisions[0]; d.Outcome != limit.Undecided || d.Reason == redis.ReasonBreaker {
			t.Fatalf("decided %+v, want undecided for lack of time", d)
		}
	}
	<-late
	if got := r.Breaker(); got != breaker.Closed {
		t.Errorf("the breaker is %v", got)
	}
}

// TestLostRepliesRunAtMostOnce: what ran without an answer is at most what was unknown or came late, and nothing was
// answered that did not run.
func TestLostRepliesRunAtMostOnce(t *testing.T) {
	for name, fault := range map[string]servers.Fault{
		"dropped":       {Mode: servers.DropReplies, Share: 0.2},
		"reset":         {Mode: servers.ResetReplies, Share: 0.3},
		"half closed":   {Mode: servers.HalfClose, Share: 0.3},
		"held or reset": {Mode: servers.HoldOrReset, Share: 0.2, Delay: 40 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			server := servers.StartRedis(t)
			p := servers.StartProxy(t, server.Addr)
			var late atomic.Int64 // decided after the caller had left
			r := open(t, RedisConfig{
				Main: unguarded(p.Addr, 50*time.Millisecond), DenialEntries: -1, Patience: 20 * time.Millisecond,
				OnLate: func(_ *limit.Request, err error) {
					if err == nil {
						late.Add(1)
					}
				},
			})
			c := charge(t, "k", bucket(1_000_000, year), 1)
			awaitAllowed(t, r, c)
			before, left := r.Stats().Calls, peekAside(t, server, c)
			p.Set(fault)
			answered, undecided := spendUntilUnknown(t, r, c)
			if err := r.Close(); err != nil {
				t.Fatalf("close: %v", err)
			}
			s := r.Stats().Calls
			unknown, ran := s.Unknown-before.Unknown, left-peekAside(t, server, c)
			known := answered + late.Load()
			t.Logf("%d answered or late, %d undecided, %d unknown; %d ran", known, undecided, unknown, ran)
			if ran < known || ran > known+unknown {
				t.Errorf("%d ran, want %d that were answered or late, and at most %d more", ran, known, unknown)
			}
			if s.Undecided-before.Undecided != undecided {
				t.Errorf("%d are counted as undecided, want %d", s.Undecided-before.Undecided, undecided)
			}
		})
	}
}

// spendUntilUnknown spends until it is not known of one request whether it was charged.
func spendUntilUnknown(t *testing.T, r *Redis, c limit.Charge) (answered, undecided int64) {
	t.Helper()
	before := r.Stats().Calls.Unknown
	var decided, open atomic.Int64
	servers.Await(t, "a lost reply", func() error {
		crowd(200, func(int) {
			if spend(r, c)[0].Outcome == limit.Allowed {
				decided.Add(1)
			} else {
				open.Add(1)
			}
		})
		return notYet(r.Stats().Calls.Unknown > before)
	})
	return decided.Load(), open.Load()
}

// peekAside is what is left of a counter, asked on another way.
func peekAside(t *testing.T, server *servers.Redis, c limit.Charge) int64 {
	t.Helper()
	return peek(open(t, RedisConfig{Main: at(server.Addr)}), c).Remaining
}

// TestWhatWasNotSentIsNotUnknown: where the request never got to the server, nothing was charged.
func TestWhatWasNotSentIsNotUnknown(t *testing.T) {
	c := charge(t, "k", bucket(1000, year), 1)
	away, replica := servers.FreeAddr(t), servers.StartRedis(t, "--replicaof", "127.0.0.1 1")
	hole := servers.StartProxy(t, servers.StartRedis(t).Addr)
	hole.Set(servers.Fault{Mode: servers.BlackHole})
	for name, main := range map[string]*redis.Client{
		"dial refused": unguarded(away, patient), "open breaker": at(away), "replica": unguarded(replica.Addr, patient),
		"black hole from the start": client(redis.Config{
			Servers: redis.Servers{Addresses: []string{hole.Addr}, DialTimeout: 50 * time.Millisecond},
			Silence: 50 * time.Millisecond,
		}),
	} {
		t.Run(name, func(t *testing.T) {
			r := open(t, RedisConfig{Main: main})
			for range 10 {
				if d := spend(r, c)[0]; d.Outcome != limit.Undecided || d.Unknown || d.Reason == "" {
					t.Fatalf("decided %+v, want undecided with a reason, and not unknown", d)
				}
			}
			if name == "open breaker" && (r.Breaker() != breaker.Open || spend(r, c)[0].Reason != redis.ReasonBreaker) {
				t.Errorf("the breaker is %v after ten failures", r.Breaker())
			}
		})
	}
}
