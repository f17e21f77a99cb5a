// Package wiretest holds readers of wire bytes against the code that protobuf generates: for tests.
package wiretest

import (
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/proto"
)

// Reader reads a message from its wire bytes and forgets the one before.
type Reader interface {
	ParseWire(wire []byte) error
}

// Twin is a reader beside generated code that reads the same messages. One goroutine uses it at a time. All but Lenient
// must be set.
type Twin struct {
	Ours      Reader        // one for all messages, as in a pool
	Generated proto.Message // likewise
	Differs   func() string // returns in which way the two have read different things, or nothing

	// Lenient reports whether we may take what generated code refuses for that reason. Default: always.
	Lenient func(refusal error) bool
}

// Agree checks the reader on any bytes: what generated code takes, so do we, with the same content; what it refuses we
// take only where that is allowed. It reports whether generated code takes the bytes.
func (w Twin) Agree(t *testing.T, wire []byte) (taken bool) {
	t.Helper()
	refusal := proto.Unmarshal(wire, w.Generated)
	err := w.Ours.ParseWire(wire)
	if refusal != nil {
		if err == nil && w.Lenient != nil && !w.Lenient(refusal) {
			t.Fatalf("%x: generated code refuses it (%v), we take it", wire, refusal)
		}
		return false
	}
	if err != nil {
		t.Fatalf("%x: generated code takes it, we say: %v", wire, err)
	}
	if diff := w.Differs(); diff != "" {
		t.Fatalf("%x: %s", wire, diff)
	}
	return true
}

// AgreeOnValid checks the reader on so many random messages, which generated code has to take.
func (w Twin) AgreeOnValid(t *testing.T, rounds int, random func(r *rand.Rand) []byte) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	for range rounds {
		wire := random(r)
		if !w.Agree(t, wire) {
			t.Fatalf("%x: generated code refuses what the test took for valid", wire)
		}
	}
}

// AgreeOnMutated checks the reader on so many random messages in which a few bytes were changed.
func (w Twin) AgreeOnMutated(t *testing.T, rounds int, random func(r *rand.Rand) []byte) {
	t.Helper()
	r := rand.New(rand.NewPCG(3, 4))
	taken := 0
	for range rounds {
		wire := random(r)
		for range 1 + r.IntN(3) {
			wire = mutated(r, wire)
		}
		if w.Agree(t, wire) {
			taken++
		}
	}
	if taken < rounds/12 {
		t.Errorf("only %d of %d mutations were decodable: the test says little", taken, rounds)
	}
}

// CopiesOnce checks that reading allocates nothing but room for copies, which several messages share.
func CopiesOnce(t *testing.T, reader Reader, wire []byte) {
	t.Helper()
	allocs := testing.AllocsPerRun(100, func() {
		if reader.ParseWire(wire) != nil {
			t.Error("the message cannot be read")
		}
	})
	if allocs > 0 {
		t.Errorf("%v allocations to read a message, on average", allocs)
	}
}

// Benchmark measures how fast a message is read.
func Benchmark(b *testing.B, reader Reader, wire []byte) {
	b.Helper()
	b.ReportAllocs()
	for b.Loop() {
		if reader.ParseWire(wire) != nil {
			b.Fatal("the message cannot be read")
		}
	}
}
