package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/limit"
)

// soon is a time in which all debts of a small test are paid.
const soon = 250 * time.Millisecond

// wantDebts fails the test unless engine 0 counts its debts as said.
func (f *fleet) wantDebts(what string, want engine.Stats) {
	f.t.Helper()
	if got := f.engines[0].Stats(); got != want {
		f.t.Fatalf("%s: stats %+v, want %+v", what, got, want)
	}
}

func TestWhatWasAdmittedAloneIsChargedBack(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a limit.Algorithm) {
		inFleet(t, 2, counted(a, 100, time.Hour), func(t *testing.T, f *fleet) {
			f.spend(0, 10)
			f.lose(everything)
			f.spend(0, 30)
			f.spend(1, 5)
			pass(time.Second)
			f.wantDebts("while the store is away", engine.Stats{Owed: 1})
			f.lose(nothing)
			pass(soon)
			f.wantDebts("after its return", engine.Stats{ChargedBack: 30})
			if got := f.usedBy("u"); got != 45 {
				t.Fatalf("%d used at the store, want 45: 10 before the loss, and 30 and 5 without the store", got)
			}
			if got := f.send(0, request("u", "", 1)).Decisions[0]; got.Reason != "" || got.Remaining != 54 {
				t.Fatalf("the next decision is %+v, want 54 left, by the store", got)
			}
		})
	})
}

// TestNothingIsChargedTwice: where only the reply was lost, the store has charged already.
func TestNothingIsChargedTwice(t *testing.T) {
	inFleet(t, 1, counted(limit.FixedWindow, 100, time.Hour), func(t *testing.T, f *fleet) {
		f.silence(everything, false)
		if got := f.spend(0, 7); got != 7 {
			t.Fatalf("admitted %d, want 7", got)
		}
		f.silence(nothing, false)
		pass(soon)
		f.wantDebts("after its return", engine.Stats{})
		if got := f.usedBy("u"); got != 7 {
			t.Fatalf("%d used at the store, want 7, as it executed", got)
		}
	})
}

// TestAPaymentWhoseReplyIsLostIsNotRepeated: it may have been made.
func TestAPaymentWhoseReplyIsLostIsNotRepeated(t *testing.T) {
	inFleet(t, 1, counted(limit.FixedWindow, 100, time.Hour), func(t *testing.T, f *fleet) {
		f.lose(everything)
		f.spend(0, 7)
		f.silence(everything, true)
		f.lose(nothing)
		pass(soon)
		f.silence(nothing, false)
		pass(time.Second)
		f.wantDebts("after its return", engine.Stats{ChargeBackLost: 7})
		if got := f.usedBy("u"); got != 7 {
			t.Fatalf("%d used at the store, want 7: paid once", got)
		}
	})
}

// TestAStoreThatHangsLosesNoDebts: a payment is made only when the store has just answered a question.
func TestAStoreThatHangsLosesNoDebts(t *testing.T) {
	inFleet(t, 1, counted(limit.FixedWindow, 100, time.Hour), func(t *testing.T, f *fleet) {
		f.lose(everything)
		f.spend(0, 7)
		f.silence(everything, false)
		f.lose(nothing)
		pass(10 * time.Second)
		f.wantDebts("while the store hangs", engine.Stats{Owed: 1})
		f.silence(nothing, false)
		pass(soon)
		f.wantDebts("after its return", engine.Stats{ChargedBack: 7})
	})
}

func TestDebtsEndWithTheirWindow(t *testing.T) {
	for _, c := range []struct {
		a    limit.Algorithm
		gone time.Duration
	}{{limit.FixedWindow, time.Minute}, {limit.SlidingWindow, 2 * time.Minute}, {limit.TokenBucket, 2 * time.Minute}, {limit.SlidingLog, 2 * time.Minute}} {
		inFleet(t, 1, counted(c.a, 100, time.Minute), func(t *testing.T, f *fleet) {
			f.lose(everything)
			f.spend(0, 7)
			pass(c.gone - time.Second)
			if got := f.engines[0].Stats().Owed; got != 1 {
				t.Fatalf("%v: %d debts a second before their time, want 1", c.a, got)
			}
			pass(time.Second + soon)
			f.wantDebts("after their time", engine.Stats{})
			f.lose(nothing)
			pass(soon)
			if got := f.usedBy("u"); got != 0 {
				t.Fatalf("%v: %d used at the store, want 0: the window is over", c.a, got)
			}
		})
	}
}

func TestDebtsAreBounded(t *testing.T) {
	inFleet(t, 1, counted(limit.FixedWindow, 100, time.Hour), func(t *testing.T, f *fleet) {
		f.lose(everything)
		for i := range 2003 {
			f.send(0, request(fmt.Sprint("user", i), "", 2))
		}
		f.wantDebts("at the bound of one class, eight ninths", engine.Stats{Owed: 1778, OwedDropped: 450})
		f.send(0, request("user0", "", 2))
		f.lose(nothing)
		pass(2 * time.Second)
		f.wantDebts("after the return", engine.Stats{ChargedBack: 3558, OwedDropped: 450})
	})
}

// TestPaymentsDoNotStampede: a store that comes back gets a bounded number of calls from all sidecars together, a few at a time, each
// with one debt: so in a cluster no call is for many places at once.
func TestPaymentsDoNotStampede(t *testing.T) {
	for sidecars, most := range map[int]int{1: 200, 4: 100, 10: 40, 60: 10} {
		inFleet(t, sidecars, counted(limit.FixedWindow, 100, time.Hour), func(t *testing.T, f *fleet) {
			f.lose(everything)
			for i := range 500 {
				f.send(0, request(fmt.Sprint("user", i), "", 1))
			}
			f.lose(nothing)
			pass(50 * time.Millisecond) // to look between two rounds
			for f.engines[0].Stats().Owed > 0 {
				calls, charges := f.traffic()
				pass(100 * time.Millisecond)
				c, n := f.traffic()
				if c-calls > 2*most || n-charges != c-calls {
					t.Fatalf("%d calls with %d charges within 100 ms from one of %d sidecars, want at most %d debts, each asked and paid", c-calls, n-charges, sidecars, most)
				}
			}
			f.wantDebts("in the end", engine.Stats{ChargedBack: 500})
		})
	}
}

// TestADeadShardHoldsUpNoOther: debts to shards that answer are paid, however many others come first and however long they take.
func TestADeadShardHoldsUpNoOther(t *testing.T) {
	for _, delay := range []time.Duration{0, 10 * time.Millisecond} {
		inFleet(t, 1, counted(limit.FixedWindow, 100, time.Hour), func(t *testing.T, f *fleet) {
			f.lose(everything)
			for i := range 100 {
				f.send(0, request(fmt.Sprint("dead", i), "", 1))
			}
			pass(time.Second)
			f.lose(of("dead"))
			f.delay(func(c limit.Charge) time.Duration {
				if of("dead")(c) {
					return delay
				}
				return 0
			})
			for i := range 50 {
				f.send(0, request(fmt.Sprint("dead too", i), "", 1))
				f.lose(everything)
				f.send(0, request(fmt.Sprint("fine", i), "", 1))
				f.lose(of("dead"))
			}
			pass(time.Second)
			f.wantDebts("with a dead shard", engine.Stats{Owed: 150, ChargedBack: 50})
			f.lose(nothing)
			pass(5 * time.Second)
			f.wantDebts("after its return", engine.Stats{ChargedBack: 200})
		})
	}
}

// TestAKeyThatCannotBeChargedHoldsUpNoOther: a foreign value under one key leaves the whole call undecided that it is in.
func TestAKeyThatCannotBeChargedHoldsUpNoOther(t *testing.T) {
	inFleet(t, 1, counted(limit.FixedWindow, 100, time.Hour), func(t *testing.T, f *fleet) {
		f.lose(everything)
		for i := range 10 {
			f.send(0, request(fmt.Sprint("fine", i), "", 1))
		}
		f.send(0, request("foul", "", 1))
		f.spoil(of("foul"))
		f.lose(nothing)
		pass(soon)
		f.wantDebts("beside a foreign value", engine.Stats{Owed: 1, ChargedBack: 10})
	})
}

// TestARefundTakesOffTheDebt, but no more than is owed: the store is not told of the rest.
func TestARefundTakesOffTheDebt(t *testing.T) {
	for _, c := range []struct {
		back uint64
		want int64
	}{{5, 35}, {40, 20}} {
		inFleet(t, 1, counted(limit.FixedWindow, 100, time.Hour), func(t *testing.T, f *fleet) {
			f.spend(0, 20)
			f.lose(everything)
			f.spend(0, 20)
			req := request("u", "", c.back)
			req.Descriptors[0].NegativeHits = true
			f.send(0, req)
			f.lose(nothing)
			pass(soon)
			if got := f.usedBy("u"); got != c.want {
				t.Fatalf("%d used at the store after a refund of %d, want %d", got, c.back, c.want)
			}
		})
	}
}

func TestDebtsOfPostPaidCostsAndOfTrees(t *testing.T) {
	d := counted(limit.TokenBucket, 100, time.Hour)
	d.Rules[0].PostPaid = true
	inFleet(t, 1, d, func(t *testing.T, f *fleet) {
		f.lose(everything)
		f.send(0, request("u", "", 120))
		f.lose(nothing)
		pass(soon)
		f.wantDebts("post-paid", engine.Stats{ChargedBack: 120})
	})
	tree := descriptors.Domain{Name: "d", ChargeDenied: true, Tree: []descriptors.Node{leaf("user", "", 10)}}
	inFleet(t, 1, tree, func(t *testing.T, f *fleet) {
		f.lose(everything)
		f.send(0, request("u", "", 7))
		if !f.send(0, request("u", "", 7)).Refused {
			t.Fatal("a tree admitted 14 of 10")
		}
		f.lose(nothing)
		pass(soon)
		f.wantDebts("a refusal that took the 3 that were left", engine.Stats{ChargedBack: 10})
	})
}

func TestCloseEndsThePayments(t *testing.T) {
	inFleet(t, 1, counted(limit.FixedWindow, 100, time.Hour), func(t *testing.T, f *fleet) {
		f.lose(everything)
		f.spend(0, 3)
		f.engines[0].Close()
		f.lose(nothing)
		pass(soon)
		if got := f.usedBy("u"); got != 0 {
			t.Fatalf("%d paid after Close, want 0", got)
		}
		f.lose(everything)
		if got := f.spend(0, 3); got != 3 {
			t.Fatalf("admitted %d after Close, want 3: a closed engine still decides", got)
		}
	})
}

// What is owed for a counter is forgotten when it is reset.
func TestAResetForgetsWhatIsOwed(t *testing.T) {
	inFleet(t, 1, counted(limit.FixedWindow, 100, time.Hour), func(t *testing.T, f *fleet) {
		f.lose(everything)
		f.spend(0, 60)
		f.lose(nothing)
		var m descriptors.Match
		f.engines[0].Rules().Match(request("u", "", 1), &m)
		if err := f.engines[0].Reset(t.Context(), []string{m.Charges[0].Key}); err != nil {
			t.Fatal(err)
		}
		pass(soon)
		if got := f.usedBy("u"); got != 0 {
			t.Errorf("%d used at the store %v after a reset and without a request, want 0", got, soon)
		}
	})
}
