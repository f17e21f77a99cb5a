package limit_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/servers"
)

// The walk along the border between tight.lua and the general code: the same random requests, at numbers and instants near the
// border, go to Decide, to the general script and to the lean one. Decisions, states and times to live must be the same.

const (
	borderSteps = 40_000
	borderBatch = 100 // requests in one round trip; after each batch all keys are compared
	borderKeys  = 24
	borderTame  = 9 // keys whose limits are small; else some key of a request is at a border nearly always
	borderSizes = 5 // charges of a request, at most

	borderLow  = 3_000_000_000_000_000 // instants from the year 2065 on, so that no key expires meanwhile
	borderHigh = 4_470_000_000_000_000
)

// borders are where tight.lua leaves products and counts to the general code, and where a double ends to be exact.
var borders = []int64{8_000_000_000_000_000, 1 << 53, 1 << 52}

type borderWalk struct {
	random        *rand.Rand
	general, lean *redis.Client
	leanName      string // of the lean script, with a count of what tight.lua leaves behind it
	now           int64
	limits        [borderKeys]limit.Limit
	states        [borderKeys]limit.State
	last          limit.Decision           // the last refusal
	asked         [borderSizes + 1]int     // requests with distinct keys, by their size
	again         int                      // requests that start again: refused after a charge without Each had taken
	modes         map[[3]int]limit.Outcome // op, mode and each that were met, with an outcome
}

type borderRequest struct {
	keys          []int
	charges       []limit.Charge
	refused       bool
	now           int64
	decisions     []limit.Decision
	call          limit.Call
	general, lean *redis.Cmd
}

// newBorderWalk begins a walk with two databases of a server, of which the first has the general script.
func newBorderWalk(t *testing.T, seed uint64) *borderWalk {
	t.Helper()
	server := servers.StartRedis(t)
	connect := func(database int) *redis.Client {
		client := redis.NewClient(&redis.Options{Network: "unix", Addr: server.Socket, DB: database, ReadTimeout: time.Minute, WriteTimeout: time.Minute})
		t.Cleanup(func() { client.Close() })
		return client
	}
	w := &borderWalk{random: rand.New(rand.NewPCG(seed, 0)), general: connect(0), lean: connect(1), now: future, modes: map[[3]int]limit.Outcome{}}
	err := w.general.ScriptLoad(context.Background(), limit.Script).Err()
	if err != nil {
		t.Fatal(err)
	}
	for k := range w.limits {
		w.limits[k] = w.limit(k)
	}
	return w
}

func TestTightAgreesWithTheGeneralCode(t *testing.T) {
	seed := rand.Uint64()
	w := newBorderWalk(t, seed)
	w.leanName = tightScript(t, w.lean, "redis.call('HINCRBY', 'left', #KEYS, 1)\n"+limit.LeanScript[strings.Index(limit.LeanScript, "-- Integer arithmetic"):])
	for done := 0; done < borderSteps; done += borderBatch {
		err := w.batch()
		if err != nil {
			t.Fatalf("with seed %d, between steps %d and %d: %v", seed, done, done+borderBatch, err)
		}
	}
	w.enough(t)
}

// enough fails if the walk met too little of either path.
func (w *borderWalk) enough(t *testing.T) {
	behind := w.lean.HGetAll(context.Background(), "left").Val()
	for size := 1; size <= borderSizes; size++ {
		left, _ := strconv.Atoi(behind[strconv.Itoa(size)])
		if few := w.asked[size] / 10; w.asked[size] < borderSteps/50 || left < few || w.asked[size]-left < few {
			t.Errorf("of %d requests with %d charges tight.lua left %d to the general code", w.asked[size], size, left)
		}
	}
	if w.again < borderSteps/200 {
		t.Errorf("%d requests started again", w.again)
	}
	if len(w.modes) != 4*3*2 {
		t.Errorf("the walk met these ops, modes and each: %v", w.modes)
	}
}

func (w *borderWalk) batch() error {
	ctx := context.Background()
	general, lean := w.general.Pipeline(), w.lean.Pipeline()
	requests := make([]borderRequest, borderBatch)
	for i := range requests {
		q := &requests[i]
		w.plan(q)
		w.decide(q)
		q.call = limit.NewCall(q.charges, q.refused, q.now)
		q.general = general.EvalSha(ctx, limit.ScriptSHA, q.call.Keys, q.call.Args()...)
		q.lean = lean.EvalSha(ctx, w.leanName, q.call.Keys, q.call.Args()...)
	}
	for _, pipe := range []redis.Pipeliner{general, lean} {
		_, err := pipe.Exec(ctx)
		if err != nil {
			return fmt.Errorf("run a script: %w", err)
		}
	}
	for i := range requests {
		err := requests[i].compare()
		if err != nil {
			return fmt.Errorf("request %d: %w", i, err)
		}
	}
	return w.compareKeys()
}

// decide lets the Go twin decide, and notes what the walk met.
func (w *borderWalk) decide(q *borderRequest) {
	states := make([]*limit.State, len(q.charges))
	for i, k := range q.keys {
		states[i] = &w.states[k]
	}
	q.decisions = make([]limit.Decision, len(q.charges))
	limit.Decide(states, q.charges, q.refused, q.now, q.decisions)
	again := false
	for i, c := range q.charges {
		each := 0
		if c.Each {
			each = 1
		}
		w.modes[[3]int{int(c.Op), int(c.Mode), each}] = q.decisions[i].Outcome
		again = again || q.decisions[i].Outcome == limit.Allowed && c.Op == limit.Spend && c.Cost > 0 && q.decisions[i].Charged == 0
		if q.decisions[i].Outcome == limit.Refused {
			w.last = q.decisions[i]
		}
	}
	if again && !q.refused {
		w.again++
	}
	if keys := slices.Clone(q.keys); len(slices.Compact(slices.Sorted(slices.Values(keys)))) == len(keys) {
		w.asked[len(keys)]++
	}
}

// compare holds both replies, with the states in them, against each other and against the Go twin.
func (q *borderRequest) compare() error {
	size := len(q.charges)
	decisions, states := make([]limit.Decision, 2*size), make([]limit.State, 2*size)
	for i, reply := range []*redis.Cmd{q.general, q.lean} {
		now, err := q.call.Read(reply.Val(), decisions[i*size:][:size], states[i*size:][:size])
		if err != nil || now != q.now {
			return fmt.Errorf("a script decided at %d, not at %d: %w", now, q.now, err)
		}
	}
	for i := range size {
		if decisions[i] != q.decisions[i] || decisions[size+i] != q.decisions[i] {
			return fmt.Errorf("charge %d: Go says\n%+v, the general code\n%+v, the lean script\n%+v\nat %d, refused %v, charges %+v",
				i, q.decisions[i], decisions[i], decisions[size+i], q.now, q.refused, q.charges)
		}
		if diff := cmp.Diff(states[i], states[size+i]); diff != "" {
			return fmt.Errorf("charge %d: states differ (- general, + lean)\n%s\nat %d, refused %v, charges %+v", i, diff, q.now, q.refused, q.charges)
		}
	}
	return nil
}

// compareKeys holds the values and times to live of both scripts against each other.
func (w *borderWalk) compareKeys() error {
	ctx := context.Background()
	var values [2][]any
	var ends [2][]time.Duration
	for i, client := range []*redis.Client{w.general, w.lean} {
		pipe := client.Pipeline()
		var keys []string
		var commands []*redis.DurationCmd
		for k := range borderKeys {
			keys = append(keys, borderKey(k))
			commands = append(commands, pipe.PExpireTime(ctx, borderKey(k)))
		}
		all := pipe.MGet(ctx, keys...)
		_, err := pipe.Exec(ctx)
		if err != nil {
			return fmt.Errorf("read the keys: %w", err)
		}
		values[i] = all.Val()
		for _, c := range commands {
			ends[i] = append(ends[i], c.Val())
		}
	}
	for k := range borderKeys {
		if values[0][k] != values[1][k] || ends[0][k] != ends[1][k] || (values[0][k] != nil && ends[0][k] <= 0) {
			return fmt.Errorf("key %d: the general code keeps %x until %v, the lean script %x until %v", k, values[0][k], ends[0][k], values[1][k], ends[1][k])
		}
	}
	return nil
}

func borderKey(k int) string { return fmt.Sprint("border:", k) }

// borderKind is the algorithm of a key.
func borderKind(k int) limit.Algorithm { return limit.Algorithm(1 + k%3) }
