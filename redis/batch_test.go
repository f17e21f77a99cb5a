package redis_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/redis"
	"github.com/spillway-mesh/spillway/test/servers"
)

// call is what OnCall was given.
type call struct {
	requests, charges int
	reason            string
}

// calls notes what OnCall is given.
type calls struct {
	mu  sync.Mutex
	all []call
}

func (c *calls) add(_ string, requests, charges int, _ time.Duration, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, call{requests, charges, reason})
}

func (c *calls) list() []call {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.all)
}

// want wants the calls after the first two, which are those of held.
func (c *calls) want(t *testing.T, want ...call) {
	t.Helper()
	if got := c.list(); len(got) < 2 || !slices.Equal(got[2:], want) {
		t.Errorf("the calls are %v, behind two want %v", got, want)
	}
}

// held is a client with one worker, whose server hangs, and a request that is under way to it. goOn lets the server
// work.
func held(t *testing.T, change func(*redis.Config)) (c *redis.Client, seen *calls, goOn func()) {
	t.Helper()
	server := servers.StartRedis(t)
	seen = &calls{}
	cfg := at(redis.Single, server.Addr)
	cfg.InFlight, cfg.Silence, cfg.OnCall = 1, time.Minute, seen.add
	if change != nil {
		change(&cfg)
	}
	c = open(t, cfg)
	wantCount(t, c, "first", 1)
	server.Hang(t)
	first := add("first")
	c.Server("first").Do(first)
	servers.Await(t, "a request under way", func() error {
		if s := statsOf(c); s.InFlight != 1 || s.Waiting != 0 { // one that is over counts until the next is taken
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	var once sync.Once
	goOn = func() {
		once.Do(func() {
			_ = server.Signal(18) // SIGCONT
			await(t, first)
		})
	}
	t.Cleanup(goOn)
	return c, seen, goOn
}

func TestRequestsThatWaitLeaveTogether(t *testing.T) {
	c, seen, goOn := held(t, nil)
	var all []*redis.Pending
	for i := range 100 {
		p := add(fmt.Sprint("key", i%50))
		all = append(all, p)
		c.Server(p.Keys[0]).Do(p)
	}
	goOn()
	await(t, all...)
	for i, p := range all {
		if want := int64(1 + i/50); p.Err != nil || !slices.Equal(p.Reply, []int64{7, want}) {
			t.Errorf("request %d: %v, %v; want %d", i, p.Reply, p.Err, want)
		}
	}
	seen.want(t, call{64, 64, ""}, call{36, 36, ""})
}

func TestABatchHasAtMost128Charges(t *testing.T) {
	c, seen, goOn := held(t, nil)
	var all []*redis.Pending
	for range 5 {
		p := add("key")
		p.Charges = 50
		all = append(all, p)
		c.Server("key").Do(p)
	}
	huge := add("key")
	huge.Charges = 500
	c.Server("key").Do(huge)
	goOn()
	await(t, append(all, huge)...)
	seen.want(t, call{2, 100, ""}, call{2, 100, ""}, call{1, 50, ""}, call{1, 500, ""})
}

func TestRequestsOfOneCallAreNotParted(t *testing.T) {
	c, seen, goOn := held(t, nil)
	var all []*redis.Pending
	for range 22 { // 66 requests
		group := []*redis.Pending{add("key"), add("key"), add("key")}
		all = append(all, group...)
		c.Server("key").Do(group...)
	}
	goOn()
	await(t, all...)
	seen.want(t, call{63, 63, ""}, call{3, 3, ""})
}

// late notes what becomes of requests whose callers leave.
func late(over chan *redis.Pending, requests ...*redis.Pending) {
	for _, p := range requests {
		p.Late = func(p *redis.Pending) { over <- p }
	}
}

func TestWhoLeavesBeforeTheBatchIsNotSent(t *testing.T) {
	c, seen, goOn := held(t, nil)
	over := make(chan *redis.Pending, 3)
	before, own, after := add("before"), add("own"), add("after")
	before.Keep = true
	late(over, before, own, after)
	c.Server("own").Do(before, own, after)
	for _, p := range []*redis.Pending{before, own, after} {
		if !p.Leave() {
			t.Fatal("a request is over before it was sent")
		}
	}
	goOn()
	for range 3 {
		p := <-over
		if p == before && (p.Err != nil || !slices.Equal(p.Reply, []int64{7, 1})) {
			t.Errorf("a request that is kept: %v, %v", p.Reply, p.Err)
		}
		if p != before && (redis.Reason(p.Err) != redis.ReasonDeadline || redis.MayHaveRun(p.Err)) {
			t.Errorf("a request whose caller left: %v, %v", p.Reply, p.Err)
		}
	}
	for key, want := range map[string]any{"before": "1", "own": nil, "after": nil} {
		if got, err := c.Run(t.Context(), key, "GET", key); got != want || err != nil {
			t.Errorf("%s is %v, %v; want %v", key, got, err, want)
		}
	}
	if last := seen.list(); last[len(last)-1] != (call{1, 1, ""}) {
		t.Errorf("the last call is %v", last)
	}
}

func TestWhoLeavesLaterGetsALateReply(t *testing.T) {
	server := servers.StartRedis(t)
	cfg := at(redis.Single, server.Addr)
	cfg.Silence = time.Minute
	c := open(t, cfg)
	wantCount(t, c, "a", 1)
	server.Hang(t)
	over := make(chan *redis.Pending, 1)
	p := add("a")
	late(over, p)
	c.Server("a").Do(p)
	servers.Await(t, "a request under way", func() error {
		if s := statsOf(c); s.InFlight != 1 || s.Waiting != 0 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	if !p.Leave() {
		t.Fatal("the request is over")
	}
	_ = server.Signal(18) // SIGCONT
	if p := <-over; p.Err != nil || !slices.Equal(p.Reply, []int64{7, 2}) {
		t.Errorf("the late reply is %v, %v", p.Reply, p.Err)
	}
}

func TestLeavingIsOverWhereTheReplyIs(t *testing.T) {
	c := open(t, at(redis.Single, servers.StartRedis(t).Addr))
	p := add("a")
	for i := range 1000 { // the signal and Leave meet in every way
		c.Server("a").Do(p)
		for range i * 10 {
			if len(p.Done()) > 0 {
				break
			}
		}
		if p.Leave() {
			p = add("a")
		} else if p.Err != nil || len(p.Reply) != 2 {
			t.Fatalf("no reply: %v, %v", p.Reply, p.Err)
		}
	}
}

func TestTooManyThatWait(t *testing.T) {
	c, _, goOn := held(t, func(c *redis.Config) { c.Queue = 3 })
	var all []*redis.Pending
	for range 3 {
		p := add("a")
		all = append(all, p)
		c.Server("a").Do(p)
	}
	got, err := do(t, c, add("a"))
	if redis.Reason(err) != redis.ReasonOverload || redis.MayHaveRun(err) {
		t.Errorf("the fourth that waits: %v, %v", got, err)
	}
	goOn()
	await(t, all...)
	if s := statsOf(c); s.Rejected != 1 || s.Waiting != 0 {
		t.Errorf("stats: %+v", s)
	}
}

func TestARequestWithoutTimeIsRefusedAtOnce(t *testing.T) {
	c, _, goOn := held(t, nil)
	one := add("a")
	c.Server("a").Do(one)
	hurried, patient := add("a"), add("a")
	hurried.Due, patient.Due = time.Now(), time.Now().Add(time.Hour)
	_, err := do(t, c, hurried)
	if redis.Reason(err) != redis.ReasonOverload {
		t.Errorf("a request that has no time behind one that waits: %v", err)
	}
	kept := add("a")
	kept.Due, kept.Keep = time.Now(), true
	c.Server("a").Do(patient)
	c.Server("a").Do(kept)
	goOn()
	await(t, one, patient, kept)
	if patient.Err != nil || kept.Err != nil {
		t.Errorf("one that has time: %v; one that is kept: %v", patient.Err, kept.Err)
	}
}

func TestCloseEndsWhatWaits(t *testing.T) {
	server := servers.StartRedis(t)
	cfg := at(redis.Single, server.Addr)
	cfg.InFlight, cfg.Silence = 1, 50*time.Millisecond
	c := redis.New(cfg)
	server.Hang(t)
	under, waits := add("a"), add("a")
	c.Server("a").Do(under)
	c.Server("a").Do(waits)
	c.Close()
	await(t, under, waits)
	if under.Err == nil || waits.Err == nil {
		t.Errorf("after the end: %v and %v", under.Err, waits.Err)
	}
}

// TestAPanicOfACallbackEndsNothing: the worker continues.
func TestAPanicOfACallbackEndsNothing(t *testing.T) {
	var panics atomic.Int64
	c, _, goOn := held(t, func(c *redis.Config) { c.OnPanic = func(any) { panics.Add(1) } })
	p := add("a")
	p.Late = func(*redis.Pending) { panic("late") }
	c.Server("a").Do(p)
	p.Leave()
	goOn()
	wantCount(t, c, "a", 1)
	if panics.Load() != 1 {
		t.Errorf("%d panics were reported", panics.Load())
	}
}
