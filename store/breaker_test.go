package store

import (
	"context"
	"fmt"
	"maps"
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

// load is many callers that spend without a pause, and what they were told.
type load struct {
	mu      sync.Mutex // guards answers
	answers map[string]int64
	stop    chan struct{}
	callers sync.WaitGroup
}

// press starts the callers. Each waits a moment between calls, so that answers without a trip do not starve the server.
func press(t *testing.T, r *Redis, callers int) *load {
	t.Helper()
	l := &load{answers: map[string]int64{}, stop: make(chan struct{})}
	c := charge(t, "pressed", bucket(1_000_000_000, time.Hour), 1)
	for range callers {
		l.callers.Go(func() {
			pace := time.NewTicker(5 * time.Millisecond)
			defer pace.Stop()
			for {
				select {
				case <-l.stop:
					return
				case <-pace.C:
				}
				l.count(spend(r, c)[0].Reason)
			}
		})
	}
	t.Cleanup(func() {
		close(l.stop)
		l.callers.Wait()
	})
	return l
}

func (l *load) count(reason string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers[reason]++
}

// seen is how often each reason was told so far; the empty one is a decision.
func (l *load) seen() map[string]int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.answers)
}

// awaitMore waits until a reason was told n times more.
func (l *load) awaitMore(t *testing.T, reason string, n int64) {
	t.Helper()
	before := l.seen()[reason]
	servers.Await(t, fmt.Sprintf("%d answers for the reason %q", n, reason), func() error {
		if got := l.seen()[reason] - before; got < n {
			return fmt.Errorf("%d so far", got)
		}
		return nil
	})
}

// awaitState waits until the breaker is in a state.
func awaitState(t *testing.T, r *Redis, want breaker.State) {
	t.Helper()
	servers.Await(t, "a breaker that is "+want.String(), func() error {
		if s := r.Stats().Shards[0].Breaker; s.State != want {
			return fmt.Errorf("breaker %+v", s)
		}
		return nil
	})
}

// pressing is how many clients press a server that gets lost.
const pressing = 50

func TestBreakerKeepsCallsFromALostServer(t *testing.T) {
	for name, fault := range map[string]struct {
		begin, end func(t *testing.T, server *servers.Redis)
	}{
		"killed": {
			func(t *testing.T, server *servers.Redis) { server.Kill(t) },
			func(t *testing.T, server *servers.Redis) { server.Start(t) },
		},
		"hanging": {
			func(t *testing.T, server *servers.Redis) { server.Hang(t) },
			func(t *testing.T, server *servers.Redis) {
				if err := server.Signal(syscall.SIGCONT); err != nil {
					t.Fatalf("wake the server: %v", err)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := servers.StartRedis(t)
			r := openRedis(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{server.Addr}}, Budget: 100 * time.Millisecond})
			settled(t, look(t, server, redis.Options{}), r)
			l := press(t, r, pressing)
			l.awaitMore(t, "", 500)
			awaitState(t, r, breaker.Closed)
			fault.begin(t, server)
			lost := time.Now()
			awaitState(t, r, breaker.Open)
			t.Logf("open %v after the server was lost", time.Since(lost))
			l.awaitMore(t, fleet.ReasonBreaker, 500) // what was under way has ended by then
			wantOnlyProbes(t, r, l)
			fault.end(t, server)
			back := time.Now()
			awaitState(t, r, breaker.Closed)
			t.Logf("closed %v after the server was back", time.Since(back))
			l.awaitMore(t, "", 1000)
			if n := r.Stats().Shards[0].Breaker.RejectedRamp; n == 0 {
				t.Errorf("no call was held back by the ramp")
			}
		})
	}
}

// wantOnlyProbes lets an outage last and checks that nothing but probes meets the server, and that few calls had to wait.
func wantOnlyProbes(t *testing.T, r *Redis, l *load) {
	t.Helper()
	before := r.Stats()
	l.awaitMore(t, fleet.ReasonBreaker, 15_000)
	after := r.Stats()
	trips, periods := after.Trips-before.Trips, after.Shards[0].Breaker.HalfOpened-before.Shards[0].Breaker.HalfOpened
	if trips > 3*(periods+1) {
		t.Errorf("%d trips during %d half-open periods, want at most 3 in each", trips, periods)
	}
	// Where no processor is idle silence is found two patiences later, and it is a failure after three bounds. A client may have waited
	// once in each of these times.
	if met := after.Trips - l.seen()[""]; met > 8*pressing+3*(periods+1) {
		t.Errorf("%d calls met the lost server (%v), want at most eight of each client and the probes", met, l.seen())
	}
}

func TestClientsInAHurryDoNotOpenTheBreaker(t *testing.T) {
	server := servers.StartRedis(t)
	p := servers.StartProxy(t, server.Addr)
	r := openRedis(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{p.Addr}}})
	c := charge(t, "k", bucket(1_000_000, time.Hour), 1)
	awaitAllowed(t, r, c)
	p.Set(servers.Fault{Mode: servers.Latency, Delay: 5 * time.Millisecond})
	gone, hangUp := context.WithCancel(context.Background())
	hangUp()
	decisions := make([]limit.Decision, 1)
	var late int
	for i := 0; i < 20 || late < 5 && i < 10_000; i++ {
		hurry, cancel := context.WithTimeout(context.Background(), 3*time.Millisecond)
		r.Spend(hurry, []limit.Charge{c}, decisions)
		cancel()
		if decisions[0].Reason == fleet.ReasonTimeout {
			late++
		}
		r.Spend(gone, []limit.Charge{c}, decisions)
		if d := decisions[0]; d.Outcome != limit.Allowed {
			t.Fatalf("decision of a caller that hung up: %+v, want allowed", d)
		}
	}
	if s := r.Stats().Shards[0].Breaker; s.Opened != 0 || late < 5 {
		t.Fatalf("breaker %+v after %d timeouts of clients in a hurry, want it never opened after at least 5", s, late)
	}
}

func TestOperatorErrorsAlarmAndDoNotOpenTheBreaker(t *testing.T) {
	server := servers.StartRedis(t)
	e := look(t, server, redis.Options{})
	alarms := map[string]int{}
	r := openRedis(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{server.Addr}}, OnError: func(reason string, _ error) { alarms[reason]++ }})
	bad := charge(t, "bad", bucket(5, time.Hour), 1)
	e.do("SADD", bad.Key, "x")
	for range 50 {
		wantUndecided(t, r, bad, fleet.ReasonWrong)
	}
	want(t, "another key", spend(r, charge(t, "good", bucket(5, time.Hour), 1))[0], limit.Allowed, 1, 4)
	if s := r.Stats().Shards[0].Breaker; s.Opened != 0 || alarms[fleet.ReasonWrong] != 50 {
		t.Fatalf("breaker %+v and alarms %v, want it never opened and 50 alarms", s, alarms)
	}
}

func TestAServerThatRefusesWritesOpensTheBreaker(t *testing.T) {
	server := servers.StartRedis(t)
	e := look(t, server, redis.Options{})
	r := openRedis(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{server.Addr}}})
	c := charge(t, "k", bucket(1000, time.Hour), 1)
	awaitAllowed(t, r, c)
	e.do("CONFIG", "SET", "maxmemory", "1")
	for range 5 {
		wantUndecided(t, r, c, fleet.ReasonOOM)
	}
	wantUndecided(t, r, c, fleet.ReasonBreaker)
	e.do("CONFIG", "SET", "maxmemory", "0")
	awaitAllowed(t, r, c)
}

func TestPingsDoNotCount(t *testing.T) {
	server := servers.StartRedis(t)
	r := openRedis(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{server.Addr}}})
	server.Kill(t)
	for range 20 {
		r.Ping(t.Context())
	}
	if s := r.Stats().Shards[0].Breaker; s.Opened != 0 {
		t.Errorf("breaker %+v after pings only, want it never opened", s)
	}
}

func TestABreakerMayBeLeftOut(t *testing.T) {
	r := openRedis(t, RedisConfig{Servers: fleet.Servers{Addresses: []string{servers.FreeAddr(t)}}, Breaker: breaker.Config{Disabled: true}})
	for range 20 {
		wantUndecided(t, r, charge(t, "k", bucket(1, time.Hour), 1), fleet.ReasonDial)
	}
}
