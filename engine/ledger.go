package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

const (
	defaultDebts = 100_000
	// Debts are paid in rounds, each by a call of its own: so a key that cannot be charged holds up no other, and a cluster is not
	// asked in many places at once. The numbers bound what a store that has just come back gets from all sidecars together.
	roundEvery  = 100 * time.Millisecond
	roundDebts  = 400                   // of one round of all sidecars
	roundMost   = 200                   // of one round of one sidecar
	roundLeast  = 10                    // of one round of one sidecar, however many there are
	roundVain   = 16                    // payments that are in vain once more, after which a round ends
	roundTime   = 90 * time.Millisecond // after which no further payment of a round is begun
	roundPayers = 4                     // payments under way at once
	payTimeout  = 100 * time.Millisecond

	backEvery = 250 * time.Millisecond // from one attempt to give back to the next
	backTries = 12                     // after the first
	backMost  = 1000                   // that wait at once
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
	turns, vain                []string         // keys of the debts that are not being paid just now, in the order of their turn: new ones; those tried in vain
	room                       room             // that debts take
	running, closed            bool
	backs                      int   // that wait for another attempt
	chargedBack, lost, dropped int64 // tokens
}

// payment is a debt on its way to the store.
type payment struct {
	debt
	charge limit.Charge
	again  bool // it was tried in vain before
}

// clock is the instant in µs since the epoch. Steps of the wall clock do not count.
func (l *ledger) clock() int64 {
	return l.start.UnixMicro() + l.engine.cfg.Now().Sub(l.start).Microseconds()
}

// note adds n tokens to what is owed for a counter, or takes them off. A refund of more than is owed is not passed on: the
// store then admits less, not more.
func (l *ledger) note(c *limit.Charge, n int64) {
	now := l.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.debts[c.Key]
	if d == nil {
		if n <= 0 || l.closed {
			return
		}
		d = l.openLocked(c)
		if d == nil {
			l.dropped += n
			return
		}
	}
	d.limit = c.Limit
	d.advance(now)
	d.add(n)
}

// openLocked begins a debt, and sees to it that debts are paid. It returns nil where there is no room for it.
func (l *ledger) openLocked(c *limit.Charge) *debt {
	if !l.room.take(c.Class, c.Key) {
		return nil
	}
	d := &debt{class: c.Class}
	l.debts[c.Key] = d
	l.turns = append(l.turns, c.Key)
	if !l.running {
		l.running = true
		l.runs.Go(l.run)
	}
	return d
}

// forgetLocked ends a debt.
func (l *ledger) forgetLocked(key string, d *debt) {
	delete(l.debts, key)
	l.room.give(d.class, key)
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

// round tries to pay the debts whose turn it is: first those that were not tried yet, so that a shard that stays away holds up no
// debts to another.
func (l *ledger) round() {
	began := time.Now()
	l.mu.Lock()
	owed := int64(len(l.turns) + len(l.vain))
	l.mu.Unlock()
	var left, vain atomic.Int64
	left.Store(min(owed, max(min(roundDebts/l.engine.live(""), roundMost), roundLeast)))
	var payers sync.WaitGroup
	for range roundPayers {
		payers.Go(func() {
			for time.Since(began) < roundTime && vain.Load() < roundVain && left.Add(-1) >= 0 {
				p, ok := l.next()
				if ok && !l.settle(p, l.pay(p)) && p.again {
					vain.Add(1)
				}
			}
		})
	}
	payers.Wait()
}

// next is the payment whose turn it is. A debt that time has given back is forgotten instead.
func (l *ledger) next() (p payment, ok bool) {
	now := l.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	queue := &l.turns
	if len(*queue) == 0 {
		queue, p.again = &l.vain, true
	}
	if len(*queue) == 0 {
		return p, false
	}
	key := (*queue)[0]
	(*queue)[0], *queue = "", (*queue)[1:]
	d := l.debts[key]
	d.advance(now)
	owed := d.tokens(now)
	if owed == 0 {
		l.forgetLocked(key, d)
		return p, false
	}
	p.debt, p.charge = *d, limit.Charge{Key: key, Limit: d.limit, Cost: owed, Op: limit.Debit, Mode: limit.Shadow, Each: true}
	d.used, d.prev = 0, 0
	return p, true
}

// pay charges the store. One that does not answer would make the outcome unknown and the debt lost, so it is asked first, without
// charge, whether it can decide.
func (l *ledger) pay(p payment) limit.Decision {
	ctx, cancel := context.WithTimeout(context.Background(), payTimeout)
	defer cancel()
	if l.ask(ctx, l.engine.cfg.Store.Usage, p.charge).Outcome == limit.Undecided {
		return limit.Decision{}
	}
	return l.ask(ctx, l.engine.cfg.Store.Spend, p.charge)
}

// ask is one call. One that panics may have charged.
func (l *ledger) ask(ctx context.Context, call func(context.Context, []limit.Charge, []limit.Decision), c limit.Charge) limit.Decision {
	decisions := make([]limit.Decision, 1)
	if !l.engine.guard(func() { call(ctx, []limit.Charge{c}, decisions) }) {
		return limit.Decision{Unknown: true}
	}
	return decisions[0]
}

// settle notes what became of a payment, and reports whether it is over. What was not charged for sure is owed still, as of when it
// was admitted.
func (l *ledger) settle(p payment, result limit.Decision) (over bool) {
	now := l.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.debts[p.charge.Key]
	over = result.Outcome != limit.Undecided || result.Unknown
	switch {
	case result.Outcome != limit.Undecided:
		l.chargedBack += result.Charged
	case result.Unknown:
		l.lost += p.charge.Cost
	default:
		d.advance(now)
		p.advance(now)
		d.used, d.prev = d.used+p.used, d.prev+p.prev
	}
	switch {
	case d.used == 0 && d.prev == 0:
		l.forgetLocked(p.charge.Key, d)
	case over:
		l.turns = append(l.turns, p.charge.Key)
	default:
		l.vain = append(l.vain, p.charge.Key)
	}
	return over
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

// later runs what gives back in a while, and reports whether it will: not if too many wait, or payments end. Where they end meanwhile, it runs at once.
func (l *ledger) later(run func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.backs >= backMost {
		return false
	}
	l.backs++
	l.runs.Go(func() {
		select {
		case <-l.stop:
		case <-time.After(backEvery):
		}
		l.mu.Lock()
		l.backs--
		l.mu.Unlock()
		l.engine.guard(run)
	})
	return true
}

// forgive ends what is owed for counters that were reset. Their turn comes, and finds nothing.
func (l *ledger) forgive(keys []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range keys {
		if d := l.debts[key]; d != nil {
			d.used, d.prev = 0, 0
		}
	}
}
