package sidecar

import (
	"context"
	"math"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/spillway-mesh/spillway/door"
	"github.com/spillway-mesh/spillway/journal"
	"github.com/spillway-mesh/spillway/store/memory"
)

// toNowhere makes a sidecar with a store of a test record, once recordTo has given it where to.
var toNowhere = []string{"RECORD=true", "REDIS_URL=127.0.0.1:1"}

// recordTo makes a sidecar record, and drops what it writes.
func recordTo(t testing.TB, s *Sidecar) {
	cfg := journal.Config{
		AllowedIn: 100, Append: func(string, *journal.Entry) error { return nil }, Name: s.redisNames().Identity,
	}
	s.counts.journal = journal.New(cfg)
	t.Cleanup(func() { s.counts.journal.Close() })
}

// served returns what serves a call behind grpc: codec, interceptor, door, engine, store, metrics and record.
func served(t testing.TB, s *Sidecar, service string, message proto.Message) func() {
	doors := registered{}
	s.register(doors)
	intercept, codec := s.intercept(), door.NewCodec()
	wire, err := proto.Marshal(message)
	if err != nil {
		t.Fatal(err)
	}
	received := mem.BufferSlice{mem.SliceBuffer(wire)}
	decode := func(v any) error { return codec.Unmarshal(received, v) }
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	t.Cleanup(cancel)
	return func() {
		reply, err := doors[service](nil, ctx, decode, intercept)
		if err != nil {
			t.Fatal(err)
		}
		sent, err := codec.Marshal(reply)
		if err != nil {
			t.Fatal(err)
		}
		sent.Free()
	}
}

// TestARecordedCallHasTheSameBudget: the record allocates nothing for a call.
func TestARecordedCallHasTheSameBudget(t *testing.T) {
	s := beginWith(t, memory.New(memory.Config{}), budgetRules, toNowhere...)
	recordTo(t, s.Sidecar)
	for _, b := range budgets {
		got, call := math.Inf(1), served(t, s.Sidecar, b.service, b.message)
		for range 5 { // the background allocates, too: it looks for a Redis that is away
			got = min(got, testing.AllocsPerRun(1000, call))
		}
		if got > b.most+forgotten {
			t.Errorf("%s: %v allocations per call, at most %v", b.name, got, b.most)
		}
	}
}

// BenchmarkRecordedCall measures the processor time of what is ours of a call behind grpc, with and without the record,
// in turns.
func BenchmarkRecordedCall(b *testing.B) {
	for _, of := range budgets {
		b.Run(of.name, func(b *testing.B) {
			var calls [2]func()
			for with := range calls {
				s := beginWith(b, memory.New(memory.Config{}), budgetRules, toNowhere[:with*2]...)
				if with == 1 {
					recordTo(b, s.Sidecar)
				}
				calls[with] = served(b, s.Sidecar, of.service, of.message)
			}
			var took [2]time.Duration
			b.ReportAllocs()
			const turn = 100
			n := 0
			for b.Loop() {
				for with, call := range calls {
					began := processorTime(b)
					for range turn {
						call()
					}
					took[with] += processorTime(b) - began
				}
				n += turn
			}
			b.ReportMetric(float64(took[0])/float64(n), "without-ns")
			b.ReportMetric(float64(took[1])/float64(n), "with-ns")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// processorTime returns the processor time of this process.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
