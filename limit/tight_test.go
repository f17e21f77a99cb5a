package limit_test

import (
	"context"
	"encoding/binary"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-mesh/spillway/limit"
)

// What tight.lua answers itself, and what it leaves to the general code behind it.

// tightScript loads tight.lua and one.lua with other code behind them, and returns the name.
func tightScript(t *testing.T, client *redis.Client, behind string) string {
	t.Helper()
	var tight string
	for _, file := range []string{"tight.lua", "one.lua"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tight += string(text)
	}
	if !strings.HasPrefix(limit.LeanScript, tight) {
		t.Fatal("the lean script does not begin with tight.lua and one.lua")
	}
	name, err := client.ScriptLoad(context.Background(), tight+behind).Result()
	if err != nil {
		t.Fatalf("load tight.lua: %v", err)
	}
	return name
}

// left is the reply of a script behind tight.lua that decides nothing.
const left = "left to the general code"

// answers says whether tight.lua alone decides the charges, and checks that it wrote nothing if not.
func answers(t *testing.T, client *redis.Client, now int64, refused bool, charges ...limit.Charge) bool {
	t.Helper()
	name := tightScript(t, client, "return '"+left+"'")
	before := writes(client)
	call := limit.NewCall(charges, refused, now)
	reply, err := client.EvalSha(context.Background(), name, call.Keys, call.Args()...).Result()
	if err != nil {
		t.Fatalf("%+v: %v", charges, err)
	}
	if reply == left {
		if after := writes(client); after != before {
			t.Errorf("%+v is left to the general code after %d writes", charges, after-before)
		}
		return false
	}
	decisions := make([]limit.Decision, len(charges))
	_, err = call.Read(reply, decisions, nil)
	if err != nil {
		t.Fatalf("%+v: %v", charges, err)
	}
	return true
}

func TestTightAnswersTheCommonRequest(t *testing.T) {
	client := connect(t)
	for _, kind := range []limit.Algorithm{limit.TokenBucket, limit.SlidingWindow, limit.FixedWindow} {
		charge := limit.Charge{Key: "one:" + kind.String(), Limit: of(kind, 7, time.Hour), Cost: 3}
		expect := func(what string, refused bool, charges ...limit.Charge) {
			t.Helper()
			if !answers(t, client, 0, refused, charges...) {
				t.Errorf("%v: tight.lua does not answer %s", kind, what)
			}
		}
		expect("the first charge", false, charge)
		expect("the second", false, charge)
		expect("a refusal", false, charge)
		expect("a request that is refused already", true, charge)
		peek, each, debit, never := charge, charge, charge, charge
		peek.Op, each.Each, debit.Op, never.Cost = limit.Peek, true, limit.Debit, limit.MaxCost
		expect("a peek", false, peek)
		expect("a cost that never passes", false, never)
		expect("a refusal that takes what is left", false, each)
		expect("a debit", false, debit)
		expect("a charge below zero", false, charge)
		expect("several, of which one refuses", false, six(charge, func(i int, c *limit.Charge) { c.Limit.Count += int64(10 * i) })...)
		expect("several with each, of which one refuses", false, six(each, func(i int, c *limit.Charge) { c.Limit.Count += int64(10 * i) })...)
		expect("quotas of which all refuse", false, six(charge, func(_ int, c *limit.Charge) { c.Mode, c.Cost = limit.Quota, 9 })...)
		expect("several of all algorithms and modes", false, six(charge, func(i int, c *limit.Charge) {
			c.Limit.Algorithm, c.Mode = limit.Algorithm(1+i%3), limit.Mode(i%3)
			c.Key += c.Limit.Algorithm.String()
		})...)
	}
}

// six makes six charges of one: the first on its key, the others on keys of their own.
func six(charge limit.Charge, change func(i int, c *limit.Charge)) []limit.Charge {
	charges := make([]limit.Charge, 6)
	for i := range charges {
		charges[i] = charge
		if i > 0 {
			charges[i].Key += string(rune('0' + i))
		}
		change(i, &charges[i])
	}
	return charges
}

func TestTightLeavesTheRest(t *testing.T) {
	client := connect(t)
	hour := of(limit.TokenBucket, 10, time.Hour)
	plain := limit.Charge{Key: "plain", Limit: hour, Cost: 1}
	keep(t, client, "full", future, 0)
	keep(t, client, "long", future, 1, 0, 0, 0)
	keep(t, client, "third", future, 1, 1)
	for what, charges := range map[string][]limit.Charge{
		"no charges":           {},
		"a refund":             {plain, {Key: "k", Limit: hour, Cost: 1, Op: limit.Refund}},
		"a limit of 0":         {plain, {Key: "k", Limit: of(limit.TokenBucket, 0, time.Hour), Cost: 1}},
		"a log":                {plain, {Key: "k", Limit: of(limit.SlidingLog, 10, time.Hour), Cost: 1}},
		"two charges of a key": {plain, plain},
		"a longest wait":       {plain, {Key: "k", Limit: hour, Cost: 1, MaxWait: sec}},
		"a penalty":            {{Key: "k", Limit: hour, Cost: 1, Penalty: &limit.Penalty{Threshold: 1, Window: sec, CoolDown: sec}, PenaltyKey: "p"}},
		"a value of 0":         {plain, {Key: "full", Limit: hour, Cost: 1}},
		"a third number":       {plain, {Key: "third", Limit: of(limit.FixedWindow, 10, time.Hour), Cost: 1}},
		"a long value":         {plain, {Key: "long", Limit: hour, Cost: 1}},
	} {
		if answers(t, client, future, false, charges...) {
			t.Errorf("tight.lua answers %s", what)
		}
	}
}

// TestTightKnowsItsBorders makes pairs of requests on a stored state: the last one that tight.lua answers, and the first one that it
// leaves to the general code.
func TestTightKnowsItsBorders(t *testing.T) {
	client := connect(t)
	const micros = 1_000_000_000_000 // a window whose products are large
	const long, at = micros * us, future - future%micros
	type ask struct {
		limit limit.Limit
		after int64
		cost  int64
	}
	for what, row := range map[string]struct {
		stored  []uint32
		in, out ask
	}{
		"tokens earned":          {[]uint32{9000}, ask{of(limit.TokenBucket, 100_000, long), 8e10 - 1, 1}, ask{of(limit.TokenBucket, 100_000, long), 8e10, 1}},
		"tokens used":            {[]uint32{1000}, ask{of(limit.TokenBucket, 9000, long), 0, 6999}, ask{of(limit.TokenBucket, 9000, long), 0, 7000}},
		"a lowered burst":        {[]uint32{20}, ask{bucket(10, long, 10), 0, 1}, ask{bucket(10, long, 9), 0, 1}},
		"a lowered count":        {[]uint32{1, 9}, ask{bucket(10, long, 9), 0, 1}, ask{bucket(9, long, 9), 0, 1}},
		"weight":                 {[]uint32{1, 8000}, ask{of(limit.SlidingWindow, 9000, long), 1, 1}, ask{of(limit.SlidingWindow, 9000, long), 0, 1}},
		"4 bytes":                {[]uint32{1}, ask{of(limit.FixedWindow, limit.MaxCount, long), 0, 1<<32 - 2}, ask{of(limit.FixedWindow, limit.MaxCount, long), 0, 1<<32 - 1}},
		"4 bytes of rem":         {[]uint32{1000}, ask{bucket(4e9, long, 1e6), 251, 1}, ask{bucket(4e11, long, 1e6), 3, 1}},
		"a bucket ahead":         {[]uint32{1}, ask{bucket(10, long, 10), 0, 1}, ask{bucket(10, long, 10), -1, 1}},
		"a sliding window ahead": {[]uint32{1}, ask{of(limit.SlidingWindow, 10, long), 0, 1}, ask{of(limit.SlidingWindow, 10, long), -1, 1}},
		"a fixed window ahead":   {[]uint32{1}, ask{of(limit.FixedWindow, 10, long), 0, 1}, ask{of(limit.FixedWindow, 10, long), -1, 1}},
	} {
		keep(t, client, "k", at, row.stored...)
		if answers(t, client, at+row.out.after, false, limit.Charge{Key: "k", Limit: row.out.limit, Cost: row.out.cost}) {
			t.Errorf("%s: tight.lua answers beyond its border", what)
		}
		if !answers(t, client, at+row.in.after, false, limit.Charge{Key: "k", Limit: row.in.limit, Cost: row.in.cost}) {
			t.Errorf("%s: tight.lua does not answer within its border", what)
		}
	}
}

// keep writes a value as the scripts do.
func keep(t *testing.T, client *redis.Client, key string, at int64, numbers ...uint32) {
	t.Helper()
	value := binary.BigEndian.AppendUint64(nil, math.Float64bits(float64(at)))
	for _, n := range numbers {
		value = binary.BigEndian.AppendUint32(value, n)
	}
	err := client.Set(context.Background(), key, value, time.Hour).Err()
	if err != nil {
		t.Fatal(err)
	}
}
