package engine

import (
	"context"
	"sync"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

const (
	defaultDebts = 100_000
	// Debts are paid in rounds. Their numbers bound what a store that has just come back gets from one sidecar: about 300
	// calls in a second, one at a time.
	roundEvery = 100 * time.Millisecond
	roundDebts = 1000                  // of one round, at most
	roundTime  = 50 * time.Millisecond // after which no further call of a round is begun
	batchDebts = 32                    // of one call
	payTimeout = 100 * time.Millisecond
)

// ledger keeps what the store is owed for what was admitted without it, and pays it when the store answers again. Nothing
// runs while nothing is owed.
type ledger struct {
	engine *Engine
	start  time.Time
	stop   chan struct{}  // closed by close
	runs   sync.WaitGroup // the goroutine that pays

	mu                         sync.Mutex       // guards all below
	debts                      map[string]*debt // by key
	turns                      []string         // keys of the debts that are not being paid just now, in the order of their turn
	running, closed            bool
	chargedBack, lost, dropped int64 // tokens
}

// payment is a debt on its way to the store.
type payment struct {
	key string
	debt
	charge limit.Charge
	result limit.Decision
}

// clock is the instant in µs since the epoch. Steps of the wall clock do not count.
func (l *ledger) clock() int64 {
	return l.start.UnixMicro() + l.engine.cfg.Now().Sub(l.start).Microseconds()
}

// note adds n tokens to what is owed for a counter, or takes them off. A refund of more than is owed is not passed on: the
// store then admits less, not more.
func (l *ledger) note(key string, of limit.Limit, n int64) {
	now := l.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.debts[key]
	if d == nil {
		if n <= 0 || l.closed {
			return
		}
		if len(l.debts) >= l.engine.cfg.Debts {
			l.dropped += n
			return
		}
		d = l.openLocked(key)
	}
	d.limit = of
	d.advance(now)
	d.add(n)
}

// openLocked begins a debt, and sees to it that debts are paid.
func (l *ledger) openLocked(key string) *debt {
	d := new(debt)
	l.debts[key] = d
	l.turns = append(l.turns, key)
	if !l.running {
		l.running = true
		l.runs.Go(l.run)
	}
	return d
}

// run pays in rounds until nothing is owed.
func (l *ledger) run() {
	ticker := time.NewTicker(roundEvery)
	defer ticker.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-ticker.C:
		}
		l.round()
		if l.done() {
			return
		}
	}
}

// done reports that nothing is owed, and that the next debt has to start a new run.
func (l *ledger) done() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running = len(l.debts) > 0
	return !l.running
}

// round tries to pay the debts whose turn it is. Those that cannot be paid wait for their next turn behind all others: a
// shard that stays away holds up no debts to another.
func (l *ledger) round() {
	began := time.Now()
	l.mu.Lock()
	left := min(len(l.turns), roundDebts)
	l.mu.Unlock()
	for ; left > 0 && time.Since(began) < roundTime; left -= batchDebts {
		batch := l.take(min(left, batchDebts))
		l.pay(batch)
		l.settle(batch)
	}
	l.settle(l.take(left)) // only to forget what time has given back
}

// take removes the next n debts from their turns, and forgets those of which nothing is owed any more.
func (l *ledger) take(n int) []payment {
	if n <= 0 {
		return nil
	}
	now := l.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	n = min(n, len(l.turns))
	batch := make([]payment, 0, n)
	for _, key := range l.turns[:n] {
		d := l.debts[key]
		d.advance(now)
		owed := d.tokens(now)
		if owed == 0 {
			delete(l.debts, key)
			continue
		}
		charge := limit.Charge{Key: key, Limit: d.limit, Cost: owed, Op: limit.Debit, Mode: limit.Shadow, Each: true}
		batch = append(batch, payment{key: key, debt: *d, charge: charge})
		d.used, d.prev = 0, 0
	}
	clear(l.turns[:n])
	l.turns = l.turns[n:]
	return batch
}

// pay charges the store for a batch. A store that does not answer would make the outcome unknown and the debt lost, so it
// is asked first, without charge, which counters it can decide.
func (l *ledger) pay(batch []payment) {
	ctx, cancel := context.WithTimeout(context.Background(), payTimeout)
	defer cancel()
	all := make([]int, len(batch))
	for i := range batch {
		all[i] = i
	}
	var answered []int
	for i, d := range l.ask(ctx, l.engine.cfg.Store.Usage, batch, all) {
		if d.Outcome != limit.Undecided {
			answered = append(answered, i)
		}
	}
	for n, d := range l.ask(ctx, l.engine.cfg.Store.Spend, batch, answered) {
		batch[answered[n]].result = d
	}
}

// ask is one call about some payments of a batch. One that panics may have charged them.
func (l *ledger) ask(ctx context.Context, call func(context.Context, []limit.Charge, []limit.Decision), batch []payment, which []int) (decisions []limit.Decision) {
	if len(which) == 0 {
		return nil
	}
	decisions = make([]limit.Decision, len(which))
	defer func() {
		if r := recover(); r != nil {
			l.engine.cfg.OnPanic(r)
			for i := range decisions {
				decisions[i] = limit.Decision{Unknown: true}
			}
		}
	}()
	charges := make([]limit.Charge, len(which))
	for n, i := range which {
		charges[n] = batch[i].charge
	}
	call(ctx, charges, decisions)
	return decisions
}

// settle notes what became of payments. What was not charged for sure is owed still, as of when it was admitted.
func (l *ledger) settle(batch []payment) {
	now := l.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range batch {
		p := &batch[i]
		d := l.debts[p.key]
		switch {
		case p.result.Outcome != limit.Undecided:
			l.chargedBack += p.result.Charged
		case p.result.Unknown:
			l.lost += p.charge.Cost
		default:
			d.advance(now)
			p.advance(now)
			d.used, d.prev = d.used+p.used, d.prev+p.prev
		}
		if d.used == 0 && d.prev == 0 {
			delete(l.debts, p.key)
			continue
		}
		l.turns = append(l.turns, p.key)
	}
}

// close ends the payments.
func (l *ledger) close() {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.stop)
	}
	l.mu.Unlock()
	l.runs.Wait()
}
