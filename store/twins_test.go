package store_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/servers"
)

// The walk holds the Go twin against the script that production runs: the same random requests at the same random
// instants, and afterwards the same decisions, the same states and the same times to live.

const (
	walkKeys  = 24
	walkBatch = 200 // requests in one round trip; after each batch the states of all keys are compared

	// The walk starts in the year 2100 and stays between its bounds, so that no key expires meanwhile: the script writes
	// absolute times to live when it is given a time, and what a state is worth after its end is part of what is compared.
	walkStart = 4_102_444_800_000_000
	walkLow   = 3_000_000_000_000_000
	walkHigh  = 4_500_000_000_000_000
)

// walker is one random walk on one algorithm.
type walker struct {
	random *rand.Rand
	client *redis.Client
	kind   limit.Algorithm
	now    int64
	states [walkKeys]limit.State
	limits [walkKeys]limit.Limit
	ends   [walkKeys]int64 // when the key expires by its last write, in milliseconds since the epoch; 0 without a key

	penalties  [walkRecords]limit.Penalty
	records    [walkRecords]limit.Record
	recordEnds [walkRecords]int64 // as ends
	seen       walkSeen
}

// anyEnd stands for some time to live.
const anyEnd = -1

// request is one request of the walk, with what the Go twin said.
type request struct {
	charges   []limit.Charge
	keys      []int // charges[i].Key is that of keys[i]
	records   []int // charges[i].PenaltyKey is that of records[i]; noRecord without a penalty
	refused   bool
	now       int64
	decisions []limit.Decision
	call      limit.Call
	reply     *redis.Cmd
}

func TestTwinsAgree(t *testing.T) {
	t.Parallel() // beside tests that mostly wait
	for _, kind := range []limit.Algorithm{limit.TokenBucket, limit.SlidingWindow, limit.FixedWindow, limit.SlidingLog} {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			server := servers.StartRedis(t)
			seed := rand.Uint64()
			err := walk(server, kind, seed, walkSteps)
			if err != nil {
				t.Fatalf("with seed %d: %v", seed, err)
			}
		})
	}
}

func walk(server *servers.Redis, kind limit.Algorithm, seed uint64, steps int) error {
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: server.Socket, ReadTimeout: time.Minute, WriteTimeout: time.Minute})
	defer client.Close()
	w := &walker{random: rand.New(rand.NewPCG(seed, 0)), client: client, kind: kind, now: walkStart}
	for _, text := range []string{limit.Script, limit.LeanScript} {
		err := client.ScriptLoad(context.Background(), text).Err()
		if err != nil {
			return fmt.Errorf("load a script: %w", err)
		}
	}
	for k := range w.limits {
		w.limits[k] = w.limit()
	}
	for k := range w.penalties {
		w.penalties[k] = w.penalty()
	}
	for done := 0; done < steps || done < 20*steps && w.seen.enough(kind) != nil; done += walkBatch { // what is rare comes late with some seeds
		err := w.batch()
		if err != nil {
			return fmt.Errorf("between steps %d and %d: %w", done, done+walkBatch, err)
		}
	}
	return w.seen.enough(kind)
}

// batch decides some requests in Go and in one round trip on Redis, and compares.
func (w *walker) batch() error {
	pipe := w.client.Pipeline()
	requests := make([]request, walkBatch)
	for i := range requests {
		q := &requests[i]
		w.plan(q)
		w.decide(q)
		q.call = limit.NewCall(q.charges, q.refused, q.now)
		_, name := q.call.Script()
		q.reply = pipe.EvalSha(context.Background(), name, q.call.Keys, q.call.Args()...)
	}
	values, ends := w.askStates(pipe)
	recordValues, recordEnds := w.askRecords(pipe)
	_, err := pipe.Exec(context.Background())
	if err != nil && err != redis.Nil {
		return fmt.Errorf("run the script: %w", err)
	}
	for i := range requests {
		err := requests[i].compare()
		if err != nil {
			return fmt.Errorf("request %d: %w", i, err)
		}
	}
	err = w.compareStates(values, ends)
	if err != nil {
		return err
	}
	return w.compareRecords(recordValues, recordEnds)
}

// decide lets the Go twin decide, and notes when the keys it changed expire.
func (w *walker) decide(q *request) {
	states := make([]*limit.State, len(q.charges))
	before := map[int]limit.State{}
	for i, k := range q.keys {
		states[i] = &w.states[k]
		before[k] = clone(w.states[k])
	}
	q.decisions = make([]limit.Decision, len(q.charges))
	w.judge(q, states)
	w.seen.add(q)
	for k, s := range before {
		last, charged := limit.Limit{}, false
		for i := range q.charges {
			if q.keys[i] == k && q.charges[i].Limit.Count > 0 {
				last = q.charges[i].Limit
				charged = charged || q.decisions[i].Charged != 0
			}
		}
		switch {
		case !equal(s, w.states[k]) || charged && w.kind != limit.SlidingLog:
			w.ends[k] = milliseconds(w.states[k].Expires(last, q.now))
		case charged:
			w.ends[k] = anyEnd // a log that gave and took the same may have been written again, or not
		}
	}
}

// compare holds the script's reply against what the Go twin said.
func (q *request) compare() error {
	reply, err := q.reply.Result()
	if err != nil {
		return fmt.Errorf("run the script: %w", err)
	}
	decisions := make([]limit.Decision, len(q.charges))
	now, err := q.call.Read(reply, decisions, nil)
	if err != nil {
		return err
	}
	if now != q.now {
		return fmt.Errorf("the script decided at %d, not at %d", now, q.now)
	}
	if !slices.Equal(decisions, q.decisions) {
		return fmt.Errorf("decisions differ (- Go, + Lua)\n%s\nat %d, refused %v, charges %+v", cmp.Diff(q.decisions, decisions), q.now, q.refused, q.charges)
	}
	return nil
}

func (w *walker) askStates(pipe redis.Pipeliner) (values []*redis.StringCmd, ends []*redis.DurationCmd) {
	for k := range walkKeys {
		values = append(values, pipe.Get(context.Background(), w.key(k)))
		ends = append(ends, pipe.PExpireTime(context.Background(), w.key(k)))
	}
	return values, ends
}

func (w *walker) compareStates(values []*redis.StringCmd, ends []*redis.DurationCmd) error {
	for k := range walkKeys {
		value, err := values[k].Result()
		if err != nil && err != redis.Nil {
			return fmt.Errorf("get key %d: %w", k, err)
		}
		state, err := decodeState(w.kind, value)
		if err != nil {
			return fmt.Errorf("key %d: %w", k, err)
		}
		if !equal(state, w.states[k]) {
			return fmt.Errorf("states of key %d differ (- Go, + Lua)\n%s", k, cmp.Diff(w.states[k], state))
		}
		if value == "" {
			continue
		}
		if end := ends[k].Val().Milliseconds(); end != w.ends[k] && (end <= 0 || w.ends[k] != anyEnd) {
			return fmt.Errorf("key %d expires at %d ms, not at %d, with state %+v", k, end, w.ends[k], state)
		}
	}
	return nil
}

func (w *walker) key(k int) string { return fmt.Sprintf("walk:%v:%d", w.kind, k) }

func clone(s limit.State) limit.State {
	s.Log = slices.Clone(s.Log)
	return s
}

func equal(a, b limit.State) bool {
	return a.At == b.At && a.Rem == b.Rem && a.Used == b.Used && a.Prev == b.Prev && slices.Equal(a.Log, b.Log)
}

// milliseconds is when Redis may forget a key that is as good as new from that instant (in microseconds) on.
func milliseconds(instant int64) int64 { return (instant+999)/1000 + 1 }
