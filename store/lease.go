package store

import (
	"context"
	"hash/maphash"
	"strings"
	"time"

	"github.com/spillway-mesh/spillway/fleet"
	"github.com/spillway-mesh/spillway/limit"
)

// saw takes in what the server decided: a counter that is asked often gets a holding.
func (h *holdings) saw(charges []limit.Charge, decisions []limit.Decision) {
	var now instant
	for i := range charges {
		c, d := &charges[i], &decisions[i]
		if d.Outcome == limit.Allowed && d.Charged > 0 && mayLease(c) {
			if now == (instant{}) {
				now = h.instant()
			}
			h.sawOne(c, d.Remaining, now)
		}
	}
}

func (h *holdings) sawOne(c *limit.Charge, remaining int64, now instant) {
	hash := maphash.String(h.seed, c.Key)
	if l := h.slots[hash%holdingSlots].Load(); l != nil && l.key == c.Key {
		h.missed(l, c, now)
		return
	}
	if h.hot(hash, now) && remaining >= h.room() && c.Limit.Leasable() && h.sharersKnown() {
		h.begin(hash, c, now)
	}
}

// count counts refusals by buckets that would have had enough, if they had not lent it.
func (h *holdings) count(charges []limit.Charge, decisions []limit.Decision, states []limit.State) {
	for i := range charges {
		c, d := &charges[i], &decisions[i]
		if d.Outcome == limit.Refused && d.Remaining+limit.Lent(&states[i], &c.Limit) >= max(c.Cost, 1) && d.Remaining < c.Cost {
			h.blocked.Add(1)
		}
	}
}

// room is how much a counter must have left before anything of it is held.
func (h *holdings) room() int64 { return 2 * leaseLeast * leaseParts * h.sharers() }

// hot counts a call for a counter, and reports whether it has had enough of them lately. A slot holds a part of the hash, the milliseconds
// at which counting began, and the count. What another caller writes at the same time is lost.
func (h *holdings) hot(hash uint64, now instant) bool {
	slot := &h.heat[hash%heatSlots]
	seen, stamp := slot.Load(), uint64(now.mono/int64(time.Millisecond))&0xffffffff
	tag, passed := hash>>48, stamp-seen>>16&0xffffffff
	if seen>>48 != tag || passed > uint64(hotWithin.Milliseconds()) {
		slot.Store(tag<<48 | stamp<<16 | 1)
		return false
	}
	if seen&0xffff < hotHits {
		slot.CompareAndSwap(seen, seen+1)
	}
	return seen&0xffff+1 >= hotHits && passed >= uint64(hotFrom.Milliseconds())
}

// begin begins to hold tokens of a counter, if there is a place for it.
func (h *holdings) begin(hash uint64, c *limit.Charge, now instant) {
	slot := &h.slots[hash%holdingSlots]
	h.mu.Lock()
	defer h.mu.Unlock()
	if other := slot.Load(); h.closed || other != nil {
		if other != nil && other.key != c.Key {
			h.drops.Add(1)
		}
		return
	}
	l := &holding{
		key: strings.Clone(c.Key), slot: slot, limit: c.Limit, class: c.Class, share: strings.Clone(c.Share), most: min(c.Lease, limit.MaxLease), used: now, counted: now,
		rate: hotHits / hotWithin.Seconds() * float64(c.Cost),
	}
	slot.Store(l)
	h.kept.Add(1)
	h.all = append(h.all, l)
	if !h.ticking {
		h.ticking = true
		time.AfterFunc(tickEvery, h.tick)
	}
	h.askLocked(l, now, false)
}

// missed takes in that a call had to ask the server, though tokens of its counter are held.
func (h *holdings) missed(l *holding, c *limit.Charge, now instant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l.used = now
	l.wanted += c.Cost
	if l.runsDry(now) {
		h.askLocked(l, now, false)
	}
}

// runsDry reports whether it is time to ask for more.
func (l *holding) runsDry(now instant) bool {
	return !l.asking && !l.ended && l.guards == 0 && now.since(l.pause) >= 0 && l.left(now) <= l.span()/4
}

// span is how many tokens are wanted for the time that a lease should last.
func (l *holding) span() int64 {
	return max(int64(l.rate*leaseSpan.Seconds()), leaseLeast)
}

// measure takes in how many tokens calls wanted since it was last asked.
func (l *holding) measure(now instant) {
	took := now.since(l.counted).Seconds()
	if took < tickEvery.Seconds()/4 {
		return
	}
	l.rate += (float64(l.wanted)/took - l.rate) / 2
	l.wanted, l.counted = 0, now
}

// askLocked reports what was spent, and asks for more. What dies soon is returned, or with last all that is held, and then no more is wanted.
func (h *holdings) askLocked(l *holding, now instant, last bool) {
	l.measure(now)
	h.tellLocked(l)
	a := limit.Ask{Key: l.key, Limit: l.limit, Least: min(leaseLeast, l.most), Parts: leaseParts * h.sharers()}
	for i := range l.lots {
		a.Reports[i] = h.emptyLocked(&l.lots[i], now, last)
	}
	if !last && l.guards == 0 && h.sharersKnown() && !h.young(l.key, &l.limit) {
		a.Want = max(min(l.span(), l.most)-l.left(now), 0)
	}
	if !h.calls.begin() {
		return
	}
	l.asking, l.wants, l.void = true, a.Want, false
	go func() {
		defer h.calls.done()
		h.fetch(l, &a)
	}()
}

// emptyLocked is what became of a lot. What is told is taken out of it first: no report is sent twice.
func (h *holdings) emptyLocked(lot *lot, now instant, last bool) limit.Report {
	r := limit.Report{Epoch: lot.epoch, Spent: lot.spent}
	switch {
	case now.since(lot.until) >= 0:
		h.expired.Add(lot.held)
		lot.held = 0
	case last || now.since(lot.until) >= -dyingIn:
		r.Returned = lot.held
		h.returned.Add(lot.held)
		lot.held = 0
	}
	lot.spent = 0
	return r
}

// fetch makes the call.
func (h *holdings) fetch(l *holding, a *limit.Ask) {
	if a.Want == 0 && a.Reports[0].Spent+a.Reports[0].Returned+a.Reports[1].Spent+a.Reports[1].Returned == 0 {
		h.deposit(l, limit.Grant{}, h.instant())
		return
	}
	sent := h.instant()
	var lent limit.Grant
	h.redis.main.Guard(func() { lent = h.ask(a) })
	h.deposit(l, lent, sent)
}

// ask asks the server. What a reply lends that comes too late is returned.
func (h *holdings) ask(a *limit.Ask) limit.Grant {
	h.asks.Add(1)
	resets := h.resets.Load()
	c := limit.Charge{Key: a.Key, Limit: a.Limit}
	n, _ := h.redis.place(&c)
	packed := string(a.Append(nil, 0))
	call := &fleet.Call{Key: a.Key}
	err := h.redis.runOnce(n, call, h.redis.patience, limit.LeaseSHA, limit.LeaseScript, a.Key, packed)
	if call.Pending() {
		call.Adopt(func(c *fleet.Call, err error) { h.cameLate(a, resets, c, err) })
	}
	if err != nil {
		return limit.Grant{}
	}
	g, err := limit.ReadGrant(call.Reply.Data)
	if err != nil {
		return limit.Grant{}
	}
	return g
}

// runOnce calls a script with one key by its hash, and by its text when the server does not know it.
func (r *Redis) runOnce(n *fleet.Node, call *fleet.Call, allow time.Duration, name, text, key, argument string) error {
	call.Wire = fleet.Command("EVALSHA", name, "1", key, argument)
	err := n.Do(context.Background(), call, allow)
	if fleet.IsReply(err, "NOSCRIPT") {
		call.Wire = fleet.Command("EVAL", text, "1", key, argument)
		err = n.Do(context.Background(), call, allow)
	}
	return err
}

// drift is how much slower than the server's the clocks here may be, at most: a two-thousandth.
const drift = 2000

// deposit takes in what the server lent. What comes for a holding that is no longer kept is returned.
func (h *holdings) deposit(l *holding, g limit.Grant, sent instant) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.instant()
	l.asking = false
	if l.arrived != nil {
		close(l.arrived)
		l.arrived = nil
	}
	if g.At > 0 {
		l.state, l.server, l.sent, l.less = g.State, g.At, sent, 0
	}
	if l.void {
		h.granted.Add(g.Tokens)
		h.expired.Add(g.Tokens)
		g.Tokens = 0
	}
	if g.Tokens > 0 {
		h.granted.Add(g.Tokens)
		life := time.Duration(g.Until-g.At) * time.Microsecond
		h.addLocked(l, lot{epoch: g.Epoch, held: g.Tokens, until: sent.plus(life - life/drift)})
	} else {
		l.pause = now.plus(pauseAfter)
	}
	if l.ended {
		h.returnLocked(l)
	}
}

// addLocked adds a lot. Of one epoch there is one lot; its end is the later of two estimates, which are both before the real one.
func (h *holdings) addLocked(l *holding, fresh lot) {
	newest := &l.lots[1]
	if newest.epoch == fresh.epoch {
		newest.held += fresh.held
		if fresh.until.mono > newest.until.mono {
			newest.until = fresh.until
		}
		return
	}
	h.expired.Add(l.lots[0].held)
	l.lots[0], l.lots[1] = *newest, fresh
}

// endLocked stops to hold tokens of a counter, and returns what is held.
func (h *holdings) endLocked(l *holding, now instant) {
	if l.ended {
		return
	}
	l.ended = true
	h.tellLocked(l)
	l.slot.Store(nil)
	h.kept.Add(-1)
	for i := range h.all {
		if h.all[i] == l {
			h.all[i] = h.all[len(h.all)-1]
			h.all[len(h.all)-1] = nil
			h.all = h.all[:len(h.all)-1]
			break
		}
	}
	if !l.asking {
		h.askLocked(l, now, true)
	}
}

// tick returns what is idle, and asks again for what dies soon while it is used.
func (h *holdings) tick() {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.instant()
	for i := len(h.all) - 1; i >= 0; i-- {
		l := h.all[i]
		switch {
		case now.since(l.used) >= idleAfter:
			h.endLocked(l, now)
		case !l.asking && l.dying(now):
			h.askLocked(l, now, false)
		}
	}
	h.ticking = len(h.all) > 0 && !h.closed
	if h.ticking {
		time.AfterFunc(tickEvery, h.tick)
	}
}

// dying reports whether something that is held dies soon.
func (l *holding) dying(now instant) bool {
	for i := range l.lots {
		if lot := &l.lots[i]; lot.held > 0 && now.since(lot.until) >= -dyingIn {
			return true
		}
	}
	return false
}

// returnAll returns all that is held: the rules have changed, or the process ends.
func (h *holdings) returnAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.instant()
	for len(h.all) > 0 {
		h.endLocked(h.all[0], now)
	}
}

// close returns all that is held, and holds nothing from now on.
func (h *holdings) close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.returnAll()
	h.calls.wait()
	h.calls.stop()
}

// forget lets go of what is held of a counter that was reset: its tokens are no longer lent.
func (h *holdings) forget(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.resets.Add(1)
	l := h.slots[maphash.String(h.seed, key)%holdingSlots].Load()
	if l == nil || l.key != key {
		return
	}
	l.lots, l.untold, l.void = [2]lot{}, 0, l.asking
	h.endLocked(l, h.instant())
}

// stats adds what holdings count.
func (h *holdings) stats(s *RedisStats) {
	s.LeaseKeys, s.LeaseDecisions, s.LeaseAsks = h.kept.Load(), h.decided.Load(), h.asks.Load()
	s.LeaseGranted, s.LeaseReturned, s.LeaseExpired = h.granted.Load(), h.returned.Load(), h.expired.Load()
	s.LeaseDrops, s.LeaseRefusals = h.drops.Load(), h.blocked.Load()
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.instant()
	for _, l := range h.all {
		s.LeaseTokens += l.left(now)
	}
}
