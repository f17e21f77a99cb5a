package limit_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-mesh/spillway/limit"
)

// runBatch decides requests in one call of the batch script, and cuts its reply as a link does. The reply to a request is nil where it has to
// come alone.
func runBatch(t *testing.T, client *redis.Client, calls ...limit.Call) []any {
	t.Helper()
	return runBatchScript(t, client, limit.BatchScript, calls...)
}

func runBatchScript(t *testing.T, client *redis.Client, script string, calls ...limit.Call) []any {
	t.Helper()
	var keys []string
	var runs []byte
	var arguments []any
	for i := range calls {
		if !calls[i].Simple() {
			t.Fatalf("call %d of the batch is not simple", i)
		}
		keys = append(keys, calls[i].Keys...)
		if i > 0 && bytes.Equal(calls[i].Packed(), calls[i-1].Packed()) {
			runs[len(runs)-1]++
		} else {
			runs, arguments = append(runs, 1), append(arguments, calls[i].Packed())
		}
	}
	text, err := client.Eval(context.Background(), script, keys, append([]any{runs}, arguments...)...).Text()
	if err != nil || len(text) < limit.BatchHead {
		t.Fatalf("%d requests in a batch: the reply is %q, %v", len(calls), text, err)
	}
	replies := make([]any, len(calls))
	head, rest := text[:limit.BatchHead], text[limit.BatchHead:]
	for i := range calls {
		size, alone, err := limit.Cut([]byte(rest), len(calls[i].Keys))
		if err != nil {
			t.Fatalf("the reply to request %d of %d: %v", i+1, len(calls), err)
		}
		if !alone {
			replies[i] = head + rest[:size]
		}
		rest = rest[size:]
	}
	if rest != "" {
		t.Fatalf("%d bytes are left of the replies to %d requests", len(rest), len(calls))
	}
	return replies
}

// TestBatchAgreesWithTheGeneralCode walks along the border of tight.lua: the same random requests go to the general script one by one, and
// to the batch script in groups. No two requests of a group have a key in common, so one that has to come alone may come later.
func TestBatchAgreesWithTheGeneralCode(t *testing.T) {
	seed := rand.Uint64()
	w := newBorderWalk(t, seed)
	together, alone := 0, 0
	for step := 0; step < borderSteps/4; {
		group := pick(w.random, w.group, w.alike)()
		for i := range group {
			q := &group[i]
			w.decide(q)
			q.call = limit.NewCall(q.charges, q.refused, q.now)
			q.general = w.general.EvalSha(context.Background(), limit.ScriptSHA, q.call.Keys, q.call.Args()...)
		}
		step += len(group)
		alone += w.runGroup(t, group)
		together += len(group)
		for i := range group {
			err := group[i].compare()
			if err != nil {
				t.Fatalf("with seed %d, request %d of a group: %v", seed, i, err)
			}
		}
		err := w.compareKeys()
		if err != nil {
			t.Fatalf("with seed %d: %v", seed, err)
		}
	}
	if together -= alone; together < borderSteps/20 || alone < borderSteps/200 {
		t.Errorf("%d requests were decided in groups, %d alone", together, alone)
	}
	straight := w.lean.HGetAll(context.Background(), "straight").Val()
	for size := 1; size <= 3; size++ {
		if n, _ := strconv.Atoi(straight[strconv.Itoa(size)]); n < borderSteps/1000 {
			t.Errorf("windows.lua decided %d requests with %d charges", n, size)
		}
	}
}

// group makes up requests of one instant that have no key in common.
func (w *borderWalk) group() []borderRequest {
	group := make([]borderRequest, 1, 8)
	w.plan(&group[0])
	met := map[int]bool{}
	group[0].meets(met)
	for len(group) < cap(group) {
		var q borderRequest
		w.fill(&q, w.random.Perm(borderKeys))
		if q.meets(met) {
			break
		}
		group = append(group, q)
	}
	return group
}

// alike makes up a request for fixed windows, often one that has room, and others of the same instant that differ from it in nothing but
// their keys.
func (w *borderWalk) alike() []borderRequest {
	var keys []int
	for _, k := range w.random.Perm(borderKeys) {
		if borderKind(k) == limit.FixedWindow {
			keys = append(keys, k)
		}
	}
	group := make([]borderRequest, 1)
	first := &group[0]
	w.tick(keys[0])
	w.fill(first, keys)
	size := len(first.charges)
	if w.chance(0.7) {
		for i := range first.charges {
			first.charges[i].Limit.Count, first.charges[i].Cost = limit.MaxCount, 1+w.random.Int64N(3)
		}
	}
	for rest := keys[size:]; len(rest) >= size; rest = rest[size:] {
		q := borderRequest{now: first.now, refused: first.refused, charges: slices.Clone(first.charges)}
		for i, k := range first.keys {
			other := rest[slices.Index(first.keys, k)]
			w.limits[other], q.keys = w.limits[k], append(q.keys, other)
			q.charges[i].Key = borderKey(other)
		}
		group = append(group, q)
		first = &group[0]
	}
	return group
}

// meets notes the keys of a request, and reports whether one of them was noted before.
func (q *borderRequest) meets(met map[int]bool) bool {
	for _, k := range q.keys {
		if met[k] {
			return true
		}
	}
	for _, k := range q.keys {
		met[k] = true
	}
	return false
}

// countedBatch is the batch script, with a count of what windows.lua decides by the number of charges.
func countedBatch(t *testing.T) string {
	t.Helper()
	const ends = "return true"
	if strings.Count(limit.BatchScript, ends) != 1 {
		t.Fatalf("windows.lua does not end with %q", ends)
	}
	return strings.Replace(limit.BatchScript, ends, "redis.call('HINCRBY', 'straight', size, 1)\n  "+ends, 1)
}

// runGroup lets the batch script decide the simple requests of a group, and the general one the rest. It returns how many the rest was.
func (w *borderWalk) runGroup(t *testing.T, group []borderRequest) (alone int) {
	t.Helper()
	var simple []*borderRequest
	var calls []limit.Call
	for i := range group {
		group[i].lean = redis.NewCmd(context.Background())
		if group[i].call.Simple() {
			simple, calls = append(simple, &group[i]), append(calls, group[i].call)
		}
	}
	if len(calls) > 0 {
		for i, reply := range runBatchScript(t, w.lean, countedBatch(t), calls...) {
			simple[i].lean.SetVal(reply)
		}
	}
	for i := range group {
		q := &group[i]
		if q.lean.Val() == nil {
			alone++
			q.lean = w.lean.Eval(context.Background(), limit.Script, q.call.Keys, q.call.Args()...)
		}
	}
	return alone
}

func TestBatchDecidesOneAfterTheOther(t *testing.T) {
	client := connect(t)
	for _, kind := range []limit.Algorithm{limit.TokenBucket, limit.SlidingWindow, limit.FixedWindow} {
		var state limit.State
		var calls []limit.Call
		want := make([]limit.Decision, 20)
		for i := range want {
			c := limit.Charge{Key: "hot:" + kind.String(), Limit: of(kind, 12, time.Hour), Cost: 1 + int64(i%2)}
			limit.Decide([]*limit.State{&state}, []limit.Charge{c}, false, future, want[i:i+1])
			calls = append(calls, limit.NewCall([]limit.Charge{c}, false, future))
		}
		for i, reply := range runBatch(t, client, calls...) {
			var got [1]limit.Decision
			_, err := calls[i].Read(reply, got[:], nil)
			if err != nil || got[0] != want[i] {
				t.Fatalf("%v, request %d: the batch decides\n%+v (%v), want\n%+v", kind, i, got[0], err, want[i])
			}
		}
	}
}

// TestBatchTakesTheServersTime shows that the requests of a batch without a time share that of the server.
func TestBatchTakesTheServersTime(t *testing.T) {
	client := connect(t)
	var calls []limit.Call
	for i := range 3 {
		calls = append(calls, limit.NewCall([]limit.Charge{{Key: fmt.Sprint("timed", i), Limit: of(limit.TokenBucket, 5, time.Hour), Cost: 1}}, false, 0))
	}
	before := client.Time(context.Background()).Val().UnixMicro()
	var decisions [3][1]limit.Decision
	for i, reply := range runBatch(t, client, calls...) {
		_, err := calls[i].Read(reply, decisions[i][:], nil)
		if err != nil {
			t.Fatal(err)
		}
	}
	after := client.Time(context.Background()).Val().UnixMicro()
	at := decisions[0][0].At
	if at < before || at > after || decisions[1][0].At != at || decisions[2][0].At != at {
		t.Errorf("decided at %d, %d, %d, want one time between %d and %d", at, decisions[1][0].At, decisions[2][0].At, before, after)
	}
}

func TestBatchKeepsAFailureFromTheOthers(t *testing.T) {
	client, ctx := connect(t), context.Background()
	client.LPush(ctx, "foreign", "x")
	client.Set(ctx, "odd", "not a counter", 0)
	client.Set(ctx, "half", keptState(0.5, 1), 0)
	charge := func(key string) limit.Charge {
		return limit.Charge{Key: key, Limit: of(limit.FixedWindow, 5, time.Hour), Cost: 1}
	}
	calls := []limit.Call{
		limit.NewCall([]limit.Charge{charge("a")}, false, future),
		limit.NewCall([]limit.Charge{charge("b"), charge("foreign")}, false, future),
		limit.NewCall([]limit.Charge{charge("odd")}, false, future),
		limit.NewCall([]limit.Charge{charge("c"), charge("d")}, false, future),
		limit.NewCall([]limit.Charge{charge("e"), charge("foreign")}, false, future), // of the same argument as the one before
		limit.NewCall([]limit.Charge{charge("f"), charge("half")}, false, future),
		limit.NewCall([]limit.Charge{charge("g"), charge("h")}, false, future),
	}
	replies := runBatch(t, client, calls...)
	for i, decided := range []bool{true, false, false, true, false, false, true} {
		if (replies[i] != nil) != decided {
			t.Errorf("request %d: reply %q, want one: %v", i, replies[i], decided)
		}
	}
	if n := client.Exists(ctx, "b", "e", "f").Val(); n != 0 {
		t.Errorf("the requests with a foreign key have written %d counters", n)
	}
	if n := client.Exists(ctx, "a", "c", "d", "g", "h").Val(); n != 5 {
		t.Errorf("%d of 5 counters were written", n)
	}
}

func TestSimpleCallsAreThoseOfTightLua(t *testing.T) {
	plain := limit.Charge{Key: "k", Limit: of(limit.TokenBucket, 5, time.Hour), Cost: 1}
	with := func(change func(*limit.Charge)) limit.Charge {
		c := plain
		change(&c)
		return c
	}
	for name, row := range map[string]struct {
		charges []limit.Charge
		want    bool
	}{
		"one":          {[]limit.Charge{plain}, true},
		"several":      {[]limit.Charge{plain, with(func(c *limit.Charge) { c.Key = "l" })}, true},
		"one key":      {[]limit.Charge{plain, plain}, false},
		"a peek":       {[]limit.Charge{with(func(c *limit.Charge) { c.Op = limit.Peek })}, true},
		"a debit":      {[]limit.Charge{with(func(c *limit.Charge) { c.Op = limit.Debit })}, true},
		"a refund":     {[]limit.Charge{with(func(c *limit.Charge) { c.Op = limit.Refund })}, false},
		"a log":        {[]limit.Charge{with(func(c *limit.Charge) { c.Limit.Algorithm = limit.SlidingLog })}, false},
		"nothing":      {[]limit.Charge{with(func(c *limit.Charge) { c.Limit.Count = 0 })}, false},
		"a wait":       {[]limit.Charge{with(func(c *limit.Charge) { c.MaxWait = time.Second })}, false},
		"a later call": {[]limit.Charge{plain}, true},
		"no charge":    {nil, false},
	} {
		call := limit.NewCall([]limit.Charge{with(func(c *limit.Charge) { c.Op = limit.Refund })}, false, 0)
		call.Set(row.charges, false, 0)
		if got := call.Simple(); got != row.want {
			t.Errorf("%s: simple is %v, want %v", name, got, row.want)
		}
	}
}
