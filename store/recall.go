package store

import (
	"context"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

// spendBehindDenials answers a request from memory as far as that is exact, and asks Redis the rest.
//
// A request whose charges are all known to be refused costs no call. When an enforced one is, the request is refused:
// charges that count all the same (Each) go to Redis as those of a refused request, and siblings that take nothing then
// are answered as they were last seen, or ride along. A known refusal that does not refuse the request (shadow, quota)
// leaves the decision to Redis. So does one that is due to be asked about again: the whole request is the question.
func (r *Redis) spendBehindDenials(ctx context.Context, t *trip) {
	now := r.denials.clock()
	known, refused, due := r.denials.recall(t, now)
	switch {
	case due:
		r.askAgain(ctx, t, now)
	case known == len(t.charges):
		r.denials.hits.Add(int64(known))
	case known > 0 && refused:
		r.denials.hits.Add(int64(known))
		r.denials.misses.Add(int64(len(t.charges) - known))
		r.askSiblings(ctx, t, now)
	default:
		r.denials.misses.Add(int64(len(t.charges)))
		r.ask(ctx, t, t.charges, false, t.decisions)
	}
}

// askAgain sends a request of which a denial is known. If certainly none of it ran, as behind an open breaker, what is known
// still holds and answers what it can.
func (r *Redis) askAgain(ctx context.Context, t *trip, now time.Duration) {
	r.ask(ctx, t, t.charges, false, t.decisions)
	for i := range t.decisions {
		if t.decisions[i].Outcome != limit.Undecided || t.decisions[i].Unknown {
			r.denials.misses.Add(int64(len(t.charges)))
			return
		}
	}
	t.answers = append(t.answers[:0], t.decisions...)
	known, refused, _ := r.denials.recall(t, now)
	answers := known == len(t.charges) || refused
	if !answers {
		known = 0
	}
	r.denials.hits.Add(int64(known))
	r.denials.misses.Add(int64(len(t.charges) - known))
	for i := range t.decisions {
		if !answers || !t.known[i] {
			t.decisions[i] = t.answers[i]
		}
	}
}

// askSiblings completes the answer to a request that is refused already.
func (r *Redis) askSiblings(ctx context.Context, t *trip, now time.Duration) {
	t.asked, t.places = t.asked[:0], t.places[:0]
	for i := range t.charges {
		if t.known[i] || r.denials.repeat(&t.charges[i], now, &t.decisions[i]) {
			continue
		}
		t.asked = append(t.asked, t.charges[i])
		t.places = append(t.places, i)
	}
	if len(t.asked) == 0 {
		return
	}
	t.answers = grow(t.answers, len(t.asked))
	r.ask(ctx, t, t.asked, true, t.answers)
	for i, place := range t.places {
		t.decisions[place] = t.answers[i]
	}
}

// recall refuses what is known to be refused. It returns how many charges that were, whether one of them refuses the request,
// and whether this request has to ask the server about one of them again.
func (d *denials) recall(t *trip, now time.Duration) (known int, refused, due bool) {
	t.known = grow(t.known, len(t.charges))
	if d.entries.Load() == 0 {
		return 0, false, false
	}
	for i := range t.charges {
		denied, asks := d.refuses(t, i, now)
		if !denied {
			continue
		}
		t.known[i] = true
		t.decisions[i].Cached = true
		known++
		refused = refused || t.charges[i].Mode == limit.Enforced
		due = due || asks
	}
	return known, refused, due
}

// refuses decides a charge on what is known. It answers only when the counter refuses and the charge would take nothing. With
// asks the caller has claimed the next question about that.
func (d *denials) refuses(t *trip, i int, now time.Duration) (denied, asks bool) {
	c := &t.charges[i]
	if mustAsk(c) {
		return false, false
	}
	s := d.shard(c.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.memos[c.Key]
	if m == nil {
		return false, false
	}
	// Another caller may have stored the memo after this one read the clock. It is later than that by now.
	now = max(now, m.sent)
	if m.until <= now {
		d.dropLocked(s, c.Key)
		return false, false
	}
	asked := m.decide(t, i, now)
	if asked == nil {
		return false, false
	}
	every := askAgain
	if limit.Lent(&m.state, &c.Limit) > 0 {
		every = askLent
	}
	asks = asked.claim(now, every)
	if asks {
		d.questions.Add(1)
	}
	return true, asks
}

// decide refuses a charge by the part of the memo that is about it, and returns when the server was last asked about that part.
// It returns nil if the memo does not refuse the charge.
func (m *memo) decide(t *trip, i int, now time.Duration) *lastAsked {
	c := &t.charges[i]
	switch {
	case c.Penalty != nil:
		return m.cools(t, i, now)
	case !m.denied:
		return nil
	case c.Limit.Algorithm.KeepsLog():
		return m.log.refuses(c, now, &t.decisions[i])
	case m.log != nil:
		return nil
	}
	return m.refuses(t, i, now)
}

// refuses works the charge out on a copy of the state. A refused charge that would still take what is left has to be
// made on the server.
func (m *memo) refuses(t *trip, i int, now time.Duration) *lastAsked {
	t.copied = m.state
	t.copies[0] = &t.copied
	decision := &t.decisions[i]
	limit.Decide(t.copies[:], t.charges[i:i+1], false, m.serverAt(now), t.decisions[i:i+1])
	if decision.Outcome != limit.Refused || decision.Charged != 0 {
		return nil
	}
	return &m.asked
}

// serverAt is the server's time in µs, never less than it is. now must not lie before m.sent.
func (m *memo) serverAt(now time.Duration) int64 { return m.server + microsUp(now-m.sent) }

// microsUp is a duration in µs, rounded up so that the server's time is never underestimated.
func microsUp(d time.Duration) int64 {
	return int64((d + time.Microsecond - 1) / time.Microsecond)
}

// refuses answers a charge of a cost that was refused before, under the same limit. One that takes what is left is known
// only at cost 1: for any other cost something may be left before it could pass.
func (l *logMemo) refuses(c *limit.Charge, now time.Duration, decision *limit.Decision) *lastAsked {
	if l == nil || l.count != c.Limit.Count || l.window != c.Limit.Window || c.Each && c.Cost != 1 {
		return nil
	}
	for i := range l.pairs {
		p := &l.pairs[i]
		if p.cost != c.Cost || p.until <= now {
			continue
		}
		*decision = limit.Decision{
			Outcome: limit.Refused, Remaining: l.remaining,
			ResetAfter: max(l.reset-now, 0), RetryAfter: p.until - now,
		}
		return &p.asked
	}
	return nil
}

// repeat answers a sibling of a refused charge, which takes nothing, as it was last seen, if that is not long ago. One with
// a penalty is asked each time, because its refusal would have to be recorded.
func (d *denials) repeat(c *limit.Charge, now time.Duration, decision *limit.Decision) bool {
	if c.Each || mustAsk(c) || c.Penalty != nil {
		return false
	}
	s := d.shard(c.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.memos[c.Key]
	if m == nil || m.seen.at == 0 || now-m.seen.at > seenFor || m.seen.remaining < c.Cost {
		return false
	}
	reset := max(m.seen.reset-max(now, m.seen.at), 0)
	*decision = limit.Decision{Outcome: limit.Allowed, Remaining: m.seen.remaining, ResetAfter: reset}
	return true
}

// note reads the marks of the charges before they are sent.
func (d *denials) note(t *trip, charges []limit.Charge) {
	t.marks = t.marks[:0]
	for i := range charges {
		t.marks = append(t.marks, d.mark(charges[i].Key))
	}
}

// learn takes in a reply, or that there was none: then a refund may or may not have come through.
func (d *denials) learn(t *trip, charges []limit.Charge, decisions []limit.Decision, ok, refused bool) {
	if !ok {
		for i := range charges {
			if mustAsk(&charges[i]) {
				d.forget(charges[i].Key)
			}
		}
		return
	}
	sent := t.sent.Sub(d.start)
	refused = refused || limit.Refuses(charges, decisions)
	for i := range charges {
		d.remember(answer{
			charge: &charges[i], decision: &decisions[i], state: &t.states[i],
			server: t.server, sent: sent, mark: t.marks[i], refused: refused,
		})
	}
}
