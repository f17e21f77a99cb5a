package limit_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

// What Call makes of states that tight.lua replies with, and of replies that it never makes.

// keptState packs a state as the scripts keep it.
func keptState(at float64, numbers ...uint32) []byte {
	b := binary.BigEndian.AppendUint64(nil, math.Float64bits(at))
	for _, n := range numbers {
		b = binary.BigEndian.AppendUint32(b, n)
	}
	return b
}

// tightReply is a reply at the instant future.
func tightReply(parts ...[]byte) []byte {
	return append(keptState(future), bytes.Join(parts, nil)...)
}

// markedFuture is the start of a window of a second as it is kept (see fixed_window.lua).
const markedFuture = future + 3

// all is one call with a charge of each algorithm that tight.lua knows, and replies to it: all of them took their cost, or not.
func all() (call limit.Call, admitted, others []byte) {
	var charges []limit.Charge
	for _, kind := range []limit.Algorithm{limit.TokenBucket, limit.SlidingWindow, limit.FixedWindow} {
		charges = append(charges, limit.Charge{Key: kind.String(), Limit: of(kind, 10, time.Second), Cost: 2})
	}
	took := func(n float64) []byte { return keptState(n) }
	admitted = tightReply([]byte{32 + 1 + 4 + 8}, keptState(future-5, 7, 3), keptState(future, 4), keptState(markedFuture, 10))
	others = tightReply([]byte{32 + 2}, took(0), keptState(future-5, 9), []byte{32 + 1 + 4}, took(1), keptState(future, 4, 6), []byte{32 + 2 + 8}, keptState(markedFuture, 10))
	return limit.NewCall(charges, false, 0), admitted, others
}

func TestReadComputesWhatTheStateSays(t *testing.T) {
	call, admitted, others := all()
	const rest = time.Second
	for _, row := range []struct {
		reply  []byte
		want   [3]limit.Decision
		states [3]limit.State
	}{
		{admitted, [3]limit.Decision{
			{Outcome: limit.Allowed, Charged: 2, Remaining: 3, ResetAfter: 700*time.Millisecond - 4*us},
			{Outcome: limit.Allowed, Charged: 2, Remaining: 6, ResetAfter: 2 * rest},
			{Outcome: limit.Allowed, Charged: 2, Remaining: 0, ResetAfter: rest},
		}, [3]limit.State{}},
		{others, [3]limit.Decision{
			{Outcome: limit.Refused, Remaining: 1, ResetAfter: 900*time.Millisecond - 5*us, RetryAfter: 100*time.Millisecond - 5*us},
			{Outcome: limit.Allowed, Charged: 1, Remaining: 0, ResetAfter: 2 * rest},
			{Outcome: limit.Refused, Charged: 2, Remaining: 0, ResetAfter: rest, RetryAfter: rest},
		}, [3]limit.State{{At: future - 5, Used: 9}, {}, {At: future, Used: 10}}},
	} {
		got, states := make([]limit.Decision, 3), make([]limit.State, 3)
		now, err := call.ReadBytes(row.reply, got, states)
		if err != nil || now != future {
			t.Fatalf("read at %d, want %d: %v", now, int64(future), err)
		}
		for i := range got {
			row.want[i].At = future
			if got[i] != row.want[i] {
				t.Errorf("charge %d: got\n%+v, want\n%+v", i, got[i], row.want[i])
			}
			if states[i].At != row.states[i].At || states[i].Used != row.states[i].Used {
				t.Errorf("charge %d: state %+v, want %+v", i, states[i], row.states[i])
			}
		}
		noAllocations(t, "reading a reply", func() error {
			_, err := call.ReadBytes(row.reply, got, states)
			return err
		})
	}
}

func TestReadRefusesForeignStates(t *testing.T) {
	charge := limit.Charge{Key: "k", Limit: of(limit.FixedWindow, 10, time.Second), Cost: 1}
	bucket, none, log := charge, charge, charge
	bucket.Limit.Algorithm, none.Limit.Count, log.Limit.Algorithm = limit.TokenBucket, 0, limit.SlidingLog
	good := tightReply(keptState(markedFuture, 1))
	for what, row := range map[string]struct {
		charge limit.Charge
		reply  []byte
	}{
		"a bit too few":      {charge, good[:len(good)-1]},
		"a byte too many":    {charge, append(bytes.Clone(good), 0)},
		"only a time":        {charge, good[:8]},
		"a time that is nan": {charge, append(keptState(math.NaN()), good[8:]...)},
		"a time below 0":     {charge, append(keptState(-1), good[8:]...)},
		"another window":     {charge, tightReply(keptState(future-1, 1))},
		"no mark":            {charge, tightReply(keptState(future, 1))},
		"a count too many":   {charge, tightReply([]byte{16, 0, 0, 0, 2, 0, 0, 0, 2})},
		"half a count":       {charge, tightReply([]byte{16, 0, 0})},
		"a count below cost": {charge, tightReply([]byte{16, 0, 0, 0, 0})},
		"a count over limit": {charge, tightReply([]byte{16, 0, 0, 0, 11})},
		"count of a bucket":  {bucket, tightReply([]byte{16, 0, 0, 0, 2})},
		"a state ahead":      {bucket, tightReply(keptState(future+1, 1))},
		"a state of nan":     {bucket, tightReply(keptState(math.NaN(), 1))},
		"a large remainder":  {bucket, tightReply([]byte{32 + 1 + 4 + 8}, keptState(future, 1, 10))},
		"a limit of 0":       {none, good},
		"a log":              {log, good},
		"come alone":         {charge, tightReply([]byte{32})},
		"no outcome":         {charge, tightReply([]byte{32 + 3 + 8}, keptState(future, 1))},
		"a negative charge":  {charge, tightReply([]byte{32 + 1}, keptState(-1), keptState(future, 1))},
		"a charge of nan":    {charge, tightReply([]byte{32 + 1}, keptState(math.NaN()), keptState(future, 1))},
	} {
		call := limit.NewCall([]limit.Charge{row.charge}, false, 0)
		var d [1]limit.Decision
		_, err := call.ReadBytes(row.reply, d[:], nil)
		if err == nil {
			t.Errorf("%s: %x was read as %+v", what, row.reply, d[0])
		}
	}
	call := limit.NewCall([]limit.Charge{charge}, false, 0)
	_, err := call.ReadBytes(tightReply(keptState(future, 1), keptState(future, 1)), make([]limit.Decision, 2), nil)
	if err == nil {
		t.Error("a reply to two charges was read for a call of one")
	}
	for _, reply := range [][]byte{good, tightReply([]byte{16, 0, 0, 0, 1})} {
		_, err = call.ReadBytes(reply, make([]limit.Decision, 1), nil)
		if err != nil {
			t.Errorf("a good reply: %v", err)
		}
	}
}

func TestReadComputesWhatCountsSay(t *testing.T) {
	charges := []limit.Charge{
		{Key: "a", Limit: of(limit.FixedWindow, 10, time.Second), Cost: 2},
		{Key: "b", Limit: of(limit.FixedWindow, 70_000, time.Minute), Cost: 1},
	}
	call, reply, got := limit.NewCall(charges, false, 0), tightReply([]byte{16, 0, 0, 0, 10, 0, 1, 0, 0}), make([]limit.Decision, 2)
	size, alone, err := limit.Cut(reply[limit.BatchHead:], 2)
	if err != nil || alone || size != 9 {
		t.Errorf("%d bytes were cut, alone: %v, %v; want 9", size, alone, err)
	}
	read := func() error {
		_, err := call.ReadBytes(reply, got, nil)
		return err
	}
	noAllocations(t, "reading counts", read)
	want := []limit.Decision{
		{Outcome: limit.Allowed, Charged: 2, Remaining: 0, At: future, ResetAfter: time.Second},
		{Outcome: limit.Allowed, Charged: 1, Remaining: 70_000 - 65_536, At: future, ResetAfter: time.Minute},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%+v, want\n%+v", got, want)
	}
	_, err = call.ReadBytes(reply[:len(reply)-4], got, nil)
	if err == nil {
		t.Error("a reply with a count too few was read")
	}
}

// TestReadSurvivesBrokenReplies changes, cuts and joins good replies at random. What is read is an error or some decision, and what Cut cuts
// lies within the reply.
func TestReadSurvivesBrokenReplies(t *testing.T) {
	call, admitted, others := all()
	seeds := [][]byte{admitted, others, tightReply([]byte{16, 0, 0, 0, 2, 0, 0, 0, 3})}
	random := rand.New(rand.NewPCG(rand.Uint64(), 0))
	read, failed := 0, 0
	for range 200_000 {
		reply := breakReply(random, seeds)
		_, err := call.ReadBytes(reply, make([]limit.Decision, 3), make([]limit.State, 3))
		if err != nil {
			failed++
		} else {
			read++
		}
		for rest := reply; len(rest) > 0; {
			size, alone, err := limit.Cut(rest, 1+random.IntN(3))
			if err != nil {
				break
			}
			if size < 1 || size > len(rest) || alone && size != 1 {
				t.Fatalf("of %x, %d bytes were cut, alone: %v", rest, size, alone)
			}
			rest = rest[size:]
		}
	}
	if read < 1000 || failed < 1000 {
		t.Errorf("%d broken replies were read, %d were refused", read, failed)
	}
}

func breakReply(random *rand.Rand, seeds [][]byte) []byte {
	reply := bytes.Clone(seeds[random.IntN(len(seeds))])
	for range random.IntN(3) {
		reply[random.IntN(len(reply))] = byte(random.IntN(256))
	}
	switch random.IntN(4) {
	case 0:
		reply = reply[:random.IntN(len(reply))]
	case 1:
		reply = append(reply, seeds[random.IntN(len(seeds))][random.IntN(8):]...)
	}
	return reply
}
