package limit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/servers"
)

// The walk of leases: the same random asks and charges, with a clock that sometimes is set back, go to the Go twins and to the scripts on a
// real Redis. Grants, decisions and the states that are stored must be the same.

const (
	leaseSteps = 30_000
	leaseKeys  = 12
)

type leaseWalk struct {
	random *rand.Rand
	client *redis.Client
	now    int64
	limits [leaseKeys]limit.Limit
	states [leaseKeys]limit.State
	lent   [leaseKeys][]limit.Report // what was lent and not yet reported, by epoch
	seen   map[string]int
}

func (w *leaseWalk) limit(k int) limit.Limit {
	l := limit.Limit{Algorithm: limit.Algorithm(1 + k%3), Window: pick(w.random, time.Second, 7*time.Second, time.Minute)}
	seconds := int64(l.Window / time.Second)
	l.Count = seconds * pick(w.random, int64(10), 11, 50, 997, 100_003, 3_000_017)
	l.Burst = max(l.Count*pick(w.random, int64(1), 1, 2)/pick(w.random, int64(1), 1, 9), 1)
	return l
}

// tick moves the clock: mostly by a part of an epoch, sometimes far, sometimes back.
func (w *leaseWalk) tick() {
	switch w.random.IntN(20) {
	case 0:
		w.now += w.random.Int64N(3_000_000)
	case 1:
		w.now -= w.random.Int64N(30)
	case 2:
		w.now -= w.random.Int64N(int64(pick(w.random, 150_000, 800_000)))
	case 3, 4, 5, 6:
		w.now += w.random.Int64N(120_000)
	case 7:
		w.now += 100_000 - w.now%100_000 + w.random.Int64N(3) - 1
	default:
		w.now += w.random.Int64N(20_000)
	}
}

func TestLeasesOfBothTwinsAgree(t *testing.T) {
	seed := rand.Uint64()
	server := servers.StartRedis(t)
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: server.Socket, ReadTimeout: time.Minute, WriteTimeout: time.Minute})
	t.Cleanup(func() { client.Close() })
	for _, text := range []string{limit.Script, limit.LeanScript, limit.LeaseScript} {
		if err := client.ScriptLoad(t.Context(), text).Err(); err != nil {
			t.Fatal(err)
		}
	}
	w := &leaseWalk{random: rand.New(rand.NewPCG(seed, 0)), client: client, now: future, seen: map[string]int{}}
	for k := range w.limits {
		w.limits[k] = w.limit(k)
	}
	for i := range leaseSteps {
		w.tick()
		k := w.random.IntN(leaseKeys)
		if w.random.IntN(500) == 0 { // a rule that changes
			w.limits[k] = w.limit(k)
		}
		step := w.charge
		if w.random.IntN(2) == 0 {
			step = w.ask
		}
		if err := step(t.Context(), k); err != nil {
			t.Fatalf("with seed %d, step %d at %d on %+v: %v", seed, i, w.now, w.limits[k], err)
		}
	}
	for _, what := range []string{"lent", "reported", "dead", "allowed", "refused while tokens are lent"} {
		if w.seen[what] < leaseSteps/600 {
			t.Errorf("of %d steps only %d were %q: %v", leaseSteps, w.seen[what], what, w.seen)
		}
	}
}

// ask asks for a lease and reports something of earlier ones.
func (w *leaseWalk) ask(ctx context.Context, k int) error {
	a := limit.Ask{
		Key: leaseKey(k), Limit: w.limits[k], Want: w.random.Int64N(pick(w.random, int64(3), 100, 20_000, 200_000)), Least: w.random.Int64N(3),
		Parts: pick(w.random, int64(0), 1, 4, 16),
	}
	for i := range a.Reports {
		if n := len(w.lent[k]); n > 0 && w.random.IntN(2) == 0 {
			at := w.random.IntN(n)
			r := w.lent[k][at]
			r.Spent = w.random.Int64N(r.Returned + 1)
			r.Returned -= r.Spent
			w.lent[k] = append(w.lent[k][:at], w.lent[k][at+1:]...)
			a.Reports[i] = r
			w.seen["reported"]++
		}
	}
	before := w.states[k]
	want := limit.Lend(&w.states[k], &a, w.now)
	reply, err := w.client.EvalSha(ctx, limit.LeaseSHA, []string{a.Key}, a.Append(nil, w.now)).Text()
	if err != nil {
		return err
	}
	got, err := limit.ReadGrant([]byte(reply))
	if err != nil {
		return err
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		return fmt.Errorf("ask %+v on %+v: Go says\n%+v, the script\n%+v", a, before, want, got)
	}
	if got.Tokens > 0 {
		w.seen["lent"]++
		w.lent[k] = append(w.lent[k], limit.Report{Epoch: got.Epoch, Returned: got.Tokens})
		if w.random.IntN(4) == 0 {
			w.lent[k] = w.lent[k][:0] // a crash
			w.seen["dead"]++
		}
	}
	return w.compare(ctx, k)
}

// charge makes a strict charge.
func (w *leaseWalk) charge(ctx context.Context, k int) error {
	l := w.limits[k]
	c := limit.Charge{Key: leaseKey(k), Limit: l, Cost: w.random.Int64N(pick(w.random, int64(2), 5, l.Capacity()+2)), Op: pick(w.random, limit.Spend, limit.Spend, limit.Peek, limit.Refund, limit.Debit)}
	var d [1]limit.Decision
	limit.Decide([]*limit.State{&w.states[k]}, []limit.Charge{c}, false, w.now, d[:])
	call := limit.NewCall([]limit.Charge{c}, false, w.now)
	got, states, err := runCall(w.client, pick(w.random, limit.ScriptSHA, limit.LeanSHA), &call, 1)
	if err != nil {
		return err
	}
	if got[0] != d[0] {
		return fmt.Errorf("charge %+v: Go says\n%+v, the script\n%+v", c, d[0], got[0])
	}
	if d[0].RetryAfter < 0 || d[0].ResetAfter < 0 || d[0].Wait < 0 {
		return fmt.Errorf("charge %+v: a time in the past in %+v", c, d[0])
	}
	switch {
	case d[0].Outcome == limit.Allowed:
		w.seen["allowed"]++
	case limit.Lent(&states[0], &l) > 0:
		w.seen["refused while tokens are lent"]++
	}
	return w.compare(ctx, k)
}

// compare holds what is stored against the Go twin's state.
func (w *leaseWalk) compare(ctx context.Context, k int) error {
	value, err := w.client.Get(ctx, leaseKey(k)).Bytes()
	if err != nil && err != redis.Nil {
		return err
	}
	if got := decodeState(w.limits[k], value); fmt.Sprint(got) != fmt.Sprint(w.states[k]) {
		return fmt.Errorf("the script stored %+v, Go %+v", got, w.states[k])
	}
	return nil
}

func leaseKey(k int) string { return fmt.Sprint("lease:", k) }
