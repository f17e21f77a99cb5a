package limit_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-mesh/spillway/limit"
	"github.com/spillway-mesh/spillway/test/servers"
)

// decider decides charges on the server, at its own time unless now is given.
type decider func(client *redis.Client, now int64, charges ...limit.Charge) ([]limit.Decision, []limit.State, error)

// run decides by the script that production calls: the lean one, and so tight.lua, where it can.
func run(client *redis.Client, now int64, charges ...limit.Charge) ([]limit.Decision, []limit.State, error) {
	call := limit.NewCall(charges, false, now)
	_, name := call.Script()
	return runCall(client, name, &call, len(charges))
}

// runGeneral decides by the whole script, in which tight.lua is not.
func runGeneral(client *redis.Client, now int64, charges ...limit.Charge) ([]limit.Decision, []limit.State, error) {
	call := limit.NewCall(charges, false, now)
	return runCall(client, limit.ScriptSHA, &call, len(charges))
}

// onBothPaths runs a test with each of the two, on a server of its own.
func onBothPaths(t *testing.T, test func(t *testing.T, client *redis.Client, run decider)) {
	t.Run("lean", func(t *testing.T) { test(t, connect(t), run) })
	t.Run("general", func(t *testing.T) { test(t, connect(t), runGeneral) })
}

func runCall(client *redis.Client, name string, call *limit.Call, size int) ([]limit.Decision, []limit.State, error) {
	reply, err := client.EvalSha(context.Background(), name, call.Keys, call.Args()...).Result()
	if err != nil {
		return nil, nil, err
	}
	decisions, states := make([]limit.Decision, size), make([]limit.State, size)
	_, err = call.Read(reply, decisions, states)
	return decisions, states, err
}

func of(kind limit.Algorithm, count int64, window time.Duration) limit.Limit {
	return limit.Limit{Algorithm: kind, Count: count, Window: window, Burst: count}
}

// writes is how often the server ran commands that write, by its own count.
func writes(client *redis.Client) int {
	sum := 0
	calls := regexp.MustCompile(`cmdstat_(?:set|setrange|append|del|unlink|pexpire|pexpireat|incrby|hset):calls=(\d+)`)
	for _, found := range calls.FindAllStringSubmatch(client.Info(context.Background(), "commandstats").Val(), -1) {
		n, _ := strconv.Atoi(found[1])
		sum += n
	}
	return sum
}

func TestScriptWritesOnlyWhatIsCharged(t *testing.T) { onBothPaths(t, writesOnlyWhatIsCharged) }

func writesOnlyWhatIsCharged(t *testing.T, client *redis.Client, run decider) {
	ctx := context.Background()
	for _, kind := range kinds {
		l, key := of(kind, 3, 24*time.Hour), "writes:"+kind.String()
		expect := func(what string, outcome limit.Outcome, written bool, charges ...limit.Charge) {
			t.Helper()
			before := writes(client)
			got, _, err := run(client, 0, charges...)
			if err != nil {
				t.Fatalf("%v: %s: %v", kind, what, err)
			}
			if got[0].Outcome != outcome {
				t.Errorf("%v: %s said %+v", kind, what, got[0])
			}
			if after := writes(client); (after > before) != written {
				t.Errorf("%v: %s ran %d commands that write", kind, what, after-before)
			}
		}
		other := limit.Charge{Key: key + ":other", Limit: l, Cost: 1}
		expect("a peek at nothing", limit.Allowed, false, limit.Charge{Key: key, Limit: l, Cost: 1, Op: limit.Peek})
		expect("a refund of nothing", limit.Allowed, false, limit.Charge{Key: key, Limit: l, Cost: 1, Op: limit.Refund})
		expect("a cost that never passes", limit.Refused, false, limit.Charge{Key: key, Limit: l, Cost: 4})
		expect("a charge", limit.Allowed, true, limit.Charge{Key: key, Limit: l, Cost: 3})
		expect("a refusal", limit.Refused, false, limit.Charge{Key: key, Limit: l, Cost: 1})
		expect("a refusal that would take what is left", limit.Refused, false, limit.Charge{Key: key, Limit: l, Cost: 1, Each: true})
		expect("a refusal of two", limit.Refused, false, limit.Charge{Key: key, Limit: l, Cost: 1}, other)
		expect("a peek at a spent one", limit.Refused, false, limit.Charge{Key: key, Limit: l, Cost: 1, Op: limit.Peek})
		expect("a limit of 0", limit.Refused, false, limit.Charge{Key: key, Limit: of(kind, 0, time.Hour), Cost: 1})
		expect("a refund", limit.Allowed, true, limit.Charge{Key: key, Limit: l, Cost: 9, Op: limit.Refund})
		if n := client.Exists(ctx, key, key+":other").Val(); n != 0 {
			t.Errorf("%v: %d keys are left of a limit that is full again", kind, n)
		}
	}
}

func TestScriptGivesEveryKeyItsTime(t *testing.T) { onBothPaths(t, givesEveryKeyItsTime) }

func givesEveryKeyItsTime(t *testing.T, client *redis.Client, run decider) {
	ctx := context.Background()
	for _, kind := range kinds {
		key := "time:" + kind.String()
		before := time.Now()
		for range 3 {
			got, _, err := run(client, 0, limit.Charge{Key: key, Limit: of(kind, 10, time.Hour), Cost: 1})
			if err != nil {
				t.Fatal(err)
			}
			rest := client.PTTL(ctx, key).Val()
			least, most := got[0].ResetAfter-time.Since(before), got[0].ResetAfter+3*time.Millisecond
			if rest < least || rest > most {
				t.Errorf("%v: the key lives for %v, full after %v", kind, rest, got[0].ResetAfter)
			}
		}
	}
}

func TestScriptKeepsStatesSmall(t *testing.T) {
	client, ctx := connect(t), context.Background()
	before := usedMemory(t, client)
	pipe := client.Pipeline()
	for i := range 50_000 {
		// Keys of the length that a client of an endpoint has.
		key := fmt.Sprintf("rl1:{shop|client-%05d|/api/v1/orders}:user+endpoint:per-endpoint:1:tb", i)
		charge := limit.Charge{Key: key, Limit: of(limit.TokenBucket, 100, time.Hour), Cost: 1}
		call := limit.NewCall([]limit.Charge{charge}, false, 0)
		pipe.EvalSha(ctx, limit.LeanSHA, call.Keys, call.Args()...)
		if i%1000 == 999 {
			if _, err := pipe.Exec(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	servers.Await(t, "memory that the calls themselves took to be free again", func() error {
		if grown := usedMemory(t, client) - before; grown > 10_000_000 {
			return fmt.Errorf("50,000 token buckets take %d bytes of Redis, want at most 10,000,000", grown)
		}
		return nil
	})
}

func usedMemory(t *testing.T, client *redis.Client) int {
	t.Helper()
	found := regexp.MustCompile(`used_memory:(\d+)`).FindStringSubmatch(client.Info(context.Background(), "memory").Val())
	if found == nil {
		t.Fatal("the server does not tell its memory")
	}
	n, _ := strconv.Atoi(found[1])
	return n
}

// TestScriptRefusesForeignValues puts values under keys that no limit wrote: an error, and nothing is written, also not
// to the other key of the request.
func TestScriptRefusesForeignValues(t *testing.T) { onBothPaths(t, refusesForeignValues) }

func refusesForeignValues(t *testing.T, client *redis.Client, run decider) {
	ctx := context.Background()
	random := rand.New(rand.NewPCG(1, 2))
	packed := func(numbers ...float64) string {
		var b []byte
		for _, n := range numbers {
			b = binary.BigEndian.AppendUint64(b, math.Float64bits(n))
		}
		return string(b)
	}
	values := []string{"x", "12", "12 x", "1 2", "1762560000000000 2", strings.Repeat("\x00", 12), strings.Repeat("\x00", 16), strings.Repeat("\x00", 24),
		packed(-1) + "\x00\x00\x00\x01", packed(1.5) + "\x00\x00\x00\x01", packed(1<<53) + "\x00\x00\x00\x01", packed(math.NaN()) + "\x00\x00\x00\x01",
		packed(math.Inf(1)) + "\x00\x00\x00\x01", packed(start, 1.5, 0), packed(start, -1, 0), packed(start, 1, 1<<53), packed(start, 1, math.NaN()),
		packed(start) + "\x00\x00\x00\x01\x00", packed(start), packed(0.5) + "\x00\x00\x00\x01\x00\x00\x00\x01",
		strings.Repeat("a", 32), strings.Repeat("7", 32), strings.Repeat("\x00", 32), strings.Repeat(" ", 48), strings.Repeat("\xff", 64), "short", strings.Repeat("z", 100_000)}
	for range 300 {
		b := make([]byte, 1+random.IntN(80))
		for i := range b {
			b[i] = byte(random.IntN(256))
		}
		values = append(values, string(b))
	}
	for _, kind := range kinds {
		for _, value := range values {
			if err := client.Set(ctx, "foreign", value, 0).Err(); err != nil {
				t.Fatal(err)
			}
			refused(t, client, run, kind, fmt.Sprintf("%.40q", value))
			if got := client.Get(ctx, "foreign").Val(); got != value {
				t.Errorf("%v: the value %.40q became %.40q", kind, value, got)
			}
		}
		client.Del(ctx, "foreign")
		client.LPush(ctx, "foreign", "a list")
		refused(t, client, run, kind, "a list")
		client.Del(ctx, "foreign")
	}
}

func refused(t *testing.T, client *redis.Client, run decider, kind limit.Algorithm, what string) {
	t.Helper()
	own := limit.Charge{Key: "own", Limit: of(kind, 5, time.Hour), Cost: 1}
	foreign := limit.Charge{Key: "foreign", Limit: of(kind, 5, time.Hour), Cost: 1}
	for _, charges := range [][]limit.Charge{{foreign}, {own, foreign}, {foreign, own}} {
		_, _, err := run(client, 0, charges...)
		if err == nil {
			t.Errorf("%v: %s under a key is taken for a state", kind, what)
		}
	}
	if client.Exists(context.Background(), "own").Val() != 0 {
		t.Errorf("%v: a request that failed on %s was charged elsewhere", kind, what)
	}
}

func TestScriptRefusesTwoAlgorithmsOnOneKey(t *testing.T) {
	onBothPaths(t, refusesTwoAlgorithmsOnOneKey)
}

func refusesTwoAlgorithmsOnOneKey(t *testing.T, client *redis.Client, run decider) {
	_, _, err := run(client, 0, limit.Charge{Key: "k", Limit: of(limit.TokenBucket, 5, sec), Cost: 1}, limit.Charge{Key: "k", Limit: of(limit.FixedWindow, 5, sec), Cost: 1})
	if err == nil || !strings.Contains(err.Error(), "two algorithms") {
		t.Errorf("two algorithms on one key: %v", err)
	}
}

// TestScriptReturnsTheStateOfARefusal checks that the state which comes with a refusal lets Decide refuse alike, without
// the server.
func TestScriptReturnsTheStateOfARefusal(t *testing.T) { onBothPaths(t, returnsTheStateOfARefusal) }

func returnsTheStateOfARefusal(t *testing.T, client *redis.Client, run decider) {
	for _, kind := range []limit.Algorithm{limit.TokenBucket, limit.SlidingWindow, limit.FixedWindow} {
		charge := limit.Charge{Key: "state:" + kind.String(), Limit: of(kind, 7, mnt), Cost: 5}
		if _, _, err := run(client, future, charge); err != nil {
			t.Fatal(err)
		}
		got, states, err := run(client, future+5_000_001, charge)
		if err != nil {
			t.Fatal(err)
		}
		if again := spend(t, &states[0], charge, future+5_000_001); again != got[0] || again.Outcome != limit.Refused {
			t.Errorf("%v: the server said %+v, its state says %+v", kind, got[0], again)
		}
	}
}

func TestReadRefusesOtherReplies(t *testing.T) {
	call := limit.NewCall([]limit.Charge{{Key: "k", Limit: of(limit.TokenBucket, 5, sec), Cost: 1}}, false, 0)
	good := string(make([]byte, 8)) + "\x01" + string(make([]byte, 32))
	for _, reply := range []any{nil, int64(1), []any{}, "", "short", good[:len(good)-1], good + "x", strings.Replace(good, "\x01", "\x00", 1),
		strings.Replace(good, "\x01", "\x06", 1), strings.Repeat("\xff", 41)} {
		var d [1]limit.Decision
		if _, err := call.Read(reply, d[:], nil); err == nil {
			t.Errorf("the reply %q was read as %+v", reply, d[0])
		}
		text, _ := reply.(string)
		if _, err := call.ReadBytes([]byte(text), d[:], nil); err == nil {
			t.Errorf("the bytes %q were read as %+v", text, d[0])
		}
	}
	var d [1]limit.Decision
	if _, err := call.Read(good, d[:], nil); err != nil || d[0].Outcome != limit.Allowed {
		t.Errorf("a good reply was read as %+v, %v", d[0], err)
	}
	if _, err := call.ReadBytes([]byte(good), d[:], nil); err != nil || d[0].Outcome != limit.Allowed {
		t.Errorf("good bytes were read as %+v, %v", d[0], err)
	}
}

func TestCallKeepsItsMemory(t *testing.T) {
	charges := []limit.Charge{{Key: "a", Limit: of(limit.TokenBucket, 5, sec), Cost: math.MaxInt64}, {Key: "b", Limit: of(limit.SlidingLog, 5, sec), Cost: 1}, {Key: "a"}}
	call := limit.NewCall(charges, true, start)
	if got := strings.Join(call.Keys, " "); got != "a b" {
		t.Errorf("the distinct keys of a, b, a are %q", got)
	}
	allocs := testing.AllocsPerRun(100, func() { call.Set(charges, false, 0) })
	if allocs > 0 {
		t.Errorf("filling a call again allocates %v times, want 0", allocs)
	}
	if !bytes.Equal(call.Packed(), call.Args()[0].([]byte)) || len(call.Extras()) != 0 {
		t.Errorf("the arguments are %x and %x, as values %x", call.Packed(), call.Extras(), call.Args())
	}
	reply := make([]byte, 8+33*len(charges))
	for i := range charges {
		reply[8+33*i] = byte(limit.Allowed)
	}
	decisions, states := make([]limit.Decision, len(charges)), make([]limit.State, len(charges))
	noAllocations(t, "reading a reply", func() error {
		_, err := call.ReadBytes(reply, decisions, states)
		return err
	})
}

// noAllocations fails if a function allocates.
func noAllocations(t *testing.T, what string, f func() error) {
	t.Helper()
	allocs := testing.AllocsPerRun(100, func() {
		err := f()
		if err != nil {
			t.Error(err)
		}
	})
	if allocs > 0 {
		t.Errorf("%s allocates %v times, want 0", what, allocs)
	}
}
