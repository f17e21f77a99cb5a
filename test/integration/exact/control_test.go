package exact

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// The controls run the same callers and the same oracle on models of sidecars, on the clock of a synctest bubble: one
// that is exact, one whose lease is charged when it is granted and spent later.

// pool is the counter that models share, as Redis is.
type pool struct {
	mu   sync.Mutex // guards take
	take func(at, cost int64) bool
}

func (p *pool) spend(cost int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.take(time.Now().UnixMicro(), cost)
}

func decided(ok bool) answer {
	if ok {
		return answer{outcome: admitted}
	}
	return answer{outcome: refused}
}

// strict asks the pool for every request.
type strict struct{ *pool }

func (s strict) ask(r request) answer { return decided(s.spend(r.cost)) }

// naive takes a chunk from the pool when it has none, and spends it whenever it is asked.
type naive struct {
	*pool
	chunk int64
	mu    sync.Mutex // guards held
	held  int64
}

func (n *naive) ask(r request) answer {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.held < r.cost && n.spend(n.chunk) {
		n.held += n.chunk
	}
	if n.held < r.cost {
		return decided(n.spend(r.cost))
	}
	n.held -= r.cost
	return decided(true)
}

const modelled = 4 // sidecars of a control

// hoard is the load that leases are about: a few requests at each sidecar, time for the counter to fill up again, then
// all at once.
func hoard(b bound, seats []*seat) *crowd {
	c := &crowd{seats: seats, next: one}
	for range 3 {
		c.under(400, func() { <-time.After(20 * time.Millisecond) })
		<-time.After(2 * time.Duration(b.window) * time.Microsecond)
		c.under(20*b.count, func() { <-time.After(200 * time.Millisecond) })
	}
	return c
}

// one is always the same request, of cost 1.
func one(int64) request { return request{user: "hot", cost: 1} }

func bubble(t *testing.T, b bound, model func(p *pool) asker, judge func(h history)) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		// The bubble begins at midnight; a window may begin anywhere.
		<-time.After(317 * time.Millisecond)
		p := &pool{take: newIdeal(b)}
		var seats []*seat
		for range modelled {
			seats = append(seats, newSeat(model(p)))
		}
		judge(hoard(b, seats).seen)
	})
}

func TestTheOracleAcceptsAnExactLimiter(t *testing.T) {
	for _, algorithm := range algorithms {
		b := boundOf(algorithm, modelled, lean)
		bubble(t, b, func(p *pool) asker { return strict{p} }, func(h history) {
			worst := b.check(h.spans())
			if worst.over() > 0 {
				t.Errorf("%s: %d too many: %v", algorithm, worst.over(), worst)
			}
			if got, want := h.admitted(), h.ideal(b); got != want {
				t.Errorf("%s: %d admitted, the ideal admits %d", algorithm, got, want)
			}
			if n := len(h.falseRefusals(b)); n > 0 {
				t.Errorf("%s: %d false refusals", algorithm, n)
			}
		})
	}
}

func TestTheOracleRejectsANaiveLease(t *testing.T) {
	for _, algorithm := range algorithms {
		b := boundOf(algorithm, modelled, lean)
		bubble(t, b, func(p *pool) asker {
			return &naive{pool: p, chunk: b.capacity() / (2 * modelled)}
		}, func(h history) {
			worst := b.check(h.spans())
			t.Logf("%s: %d admitted, the ideal admits %d, %d too many: %v", algorithm, h.admitted(), h.ideal(b),
				worst.over(), worst)
			if worst.over() < b.capacity()/8 {
				t.Errorf("%s: a naive lease is over by %d only, of %d", algorithm, worst.over(), b.capacity())
			}
		})
	}
}
