package store

import (
	"hash/maphash"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-mesh/spillway/limit"
)

// Bounds of the denial cache.
const (
	defaultDenialEntries = 100_000
	denialShards         = 64
	logPairs             = 4                    // refused costs remembered per sliding log
	seenFor              = time.Second          // age up to which a sibling's last answer is repeated
	askAgain             = time.Second          // time from the last question about a denial to the next
	askLent              = limit.LeaseEpoch / 2 // the same, while tokens of the counter are lent: they may be returned at any moment
	leastKept            = 2 * askAgain         // a denial is kept this long or longer: others use it while a question is under way
	denialSamples        = 16                   // entries looked at for one to drop

	// Bytes that a memo takes, measured and rounded up.
	memoBytes    = 256 // the memo and its place in the map, with the room that the map grows by
	logMemoBytes = 160
	coolBytes    = 96 // without the penalty's key
)

// denials remembers counters that refused, as the state they had. A later charge on one is worked out on that state, at
// the time the server must have reached by now: it is refused with the numbers the server would give, for its own cost
// and its own limit, or it is not refused here and the server is asked. So a cached denial never outlives a real one.
//
// The server's time is estimated as the time in its reply plus all that has passed since just before the call was sent. The
// reply was worked out later than that, so the estimate is never behind.
//
// Other sidecars may give tokens back or delete a counter. So one call per second and denial is sent to the server as a
// question, while other calls are refused from memory. Its reply renews the denial or ends it.
type denials struct {
	now       func() time.Time
	start     time.Time
	seed      maphash.Seed
	spread    uint64 // shards in use
	bound     int    // entries per shard
	maxBytes  int64  // per shard
	shards    [denialShards]denialShard
	entries   atomic.Int64
	bytes     atomic.Int64
	hits      atomic.Int64
	misses    atomic.Int64
	questions atomic.Int64
	drops     atomic.Int64
}

type denialShard struct {
	mu    sync.Mutex // guards all below
	memos map[string]*memo
	bytes int64            // of all memos
	taken map[uint32]int64 // of the memos of each class
	mark  uint64           // how often something was forgotten, so that an answer from before is not remembered after
}

// memo is what is known about one counter.
type memo struct {
	until  time.Duration // since start: nothing here is of use afterwards
	denied bool          // the state or the log below refused something
	server int64         // µs on the server at the newest reply
	sent   time.Duration // since start: an instant before the server gave that reply; never falls
	state  limit.State
	asked  lastAsked // about the state
	log    *logMemo  // sliding log, which has no state here
	cool   *coolMemo // a cool-down that refuses
	seen   seenMemo
	class  uint32 // of the charges
	cost   int64  // bytes that it counts for
}

// lastAsked is when, since start, the server was last asked about a denial: when the call was sent whose reply is remembered,
// or when a later call was chosen as a question.
type lastAsked time.Duration

// claim reports whether the caller has to ask the server again. Only one caller in that time does, also if it gets no reply.
func (l *lastAsked) claim(now, every time.Duration) bool {
	if now-time.Duration(*l) < every {
		return false
	}
	*l = lastAsked(now)
	return true
}

// heard takes in that a call sent at this time has its reply.
func (l *lastAsked) heard(sent time.Duration) { *l = max(*l, lastAsked(sent)) }

// logMemo is what a sliding log refused, under one limit. Its entries stay on the server, so only a charge of the same
// cost has a known answer.
type logMemo struct {
	count     int64
	window    time.Duration
	remaining int64
	reset     time.Duration // since start
	pairs     [logPairs]logPair
	next      int
}

type logPair struct {
	cost  int64
	until time.Duration // since start; zero: no pair
	asked lastAsked
}

// seenMemo is the last answer of a counter that had room on a request that another limit refused.
type seenMemo struct {
	at        time.Duration // since start; zero: none
	remaining int64
	reset     time.Duration // since start
}

// newDenials makes a cache of at most so many entries, which take at most so many bytes; 0: no bound of bytes.
func newDenials(bound int, maxBytes int64, now func() time.Time) *denials {
	d := &denials{now: now, start: now().Add(-time.Nanosecond), seed: maphash.MakeSeed()}
	d.spread = uint64(min(denialShards, bound))
	d.bound = bound / int(d.spread)
	d.maxBytes = math.MaxInt64
	if maxBytes > 0 {
		d.maxBytes = maxBytes / int64(d.spread)
	}
	for i := range d.shards {
		d.shards[i].memos, d.shards[i].taken = make(map[string]*memo), make(map[uint32]int64)
	}
	return d
}

// clock is the time since start, never zero.
func (d *denials) clock() time.Duration { return d.now().Sub(d.start) }

func (d *denials) shard(key string) *denialShard {
	return &d.shards[maphash.String(d.seed, key)%d.spread]
}

// forget drops what is known about a key, and what is on its way.
func (d *denials) forget(key string) {
	s := d.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mark++
	d.dropLocked(s, key)
}

// clear forgets everything.
func (d *denials) clear() {
	for i := range d.shards {
		s := &d.shards[i]
		s.mu.Lock()
		s.mark++
		d.entries.Add(-int64(len(s.memos)))
		d.bytes.Add(-s.bytes)
		clear(s.memos)
		clear(s.taken)
		s.bytes = 0
		s.mu.Unlock()
	}
}

// mark is to be read before a question is sent; remember wants it back.
func (d *denials) mark(key string) uint64 {
	s := d.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mark
}

func (d *denials) dropLocked(s *denialShard, key string) {
	m := s.memos[key]
	if m == nil {
		return
	}
	delete(s.memos, key)
	d.entries.Add(-1)
	d.bytes.Add(-m.cost)
	s.bytes -= m.cost
	s.taken[m.class] -= m.cost
	if s.taken[m.class] == 0 {
		delete(s.taken, m.class)
	}
}

// memoLocked finds what is known about a charge's counter or makes room for it.
func (d *denials) memoLocked(s *denialShard, c *limit.Charge, now time.Duration) *memo {
	if m := s.memos[c.Key]; m != nil {
		return m
	}
	m := &memo{class: c.Class, cost: memoCost(c)}
	for len(s.memos) > 0 && (len(s.memos) >= d.bound || s.bytes+m.cost > d.maxBytes) {
		d.makeRoomLocked(s, now)
	}
	s.memos[strings.Clone(c.Key)] = m
	d.entries.Add(1)
	d.bytes.Add(m.cost)
	s.bytes += m.cost
	s.taken[m.class] += m.cost
	return m
}

// memoCost is how many bytes a memo about a charge may take. The allocator rounds keys up by at most a quarter.
func memoCost(c *limit.Charge) int64 {
	n := memoBytes + len(c.Key) + len(c.Key)/4
	if c.Limit.Algorithm.KeepsLog() {
		n += logMemoBytes
	}
	if c.Penalty != nil {
		n += coolBytes + len(c.PenaltyKey) + len(c.PenaltyKey)/4
	}
	return int64(n)
}

// makeRoomLocked drops an entry that is over if one is found at once, else one of the class that takes most of those looked at: a
// flood of one rule's denials drops denials of that rule. A dropped denial costs a question only.
func (d *denials) makeRoomLocked(s *denialShard, now time.Duration) {
	victim, most, looked := "", int64(-1), 0
	for key, m := range s.memos {
		if m.until <= now {
			d.dropLocked(s, key)
			return
		}
		if taken := s.taken[m.class]; taken > most {
			victim, most = key, taken
		}
		if looked++; looked >= denialSamples {
			break
		}
	}
	d.dropLocked(s, victim)
	d.drops.Add(1)
}

// answer is what one reply said about one charge.
type answer struct {
	charge   *limit.Charge
	decision *limit.Decision
	state    *limit.State
	server   int64         // µs
	sent     time.Duration // since start
	mark     uint64        // of the key, from before it was sent
	refused  bool          // the request as a whole
}

// remember takes in the reply about one charge. A refusal is kept. A reply that admits ends what was known. Room seen on a
// refused request is kept for a moment.
func (d *denials) remember(a answer) {
	s := d.shard(a.charge.Key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if mustAsk(a.charge) {
		s.mark++
		d.dropLocked(s, a.charge.Key)
		return
	}
	if s.mark != a.mark {
		// Too late to be remembered, but it still ends what it shows to be over. A refusal that took what was left changed the state.
		switch {
		case a.decision.Outcome == limit.Allowed:
			s.admitLocked(a)
		case a.decision.Charged != 0:
			s.mark++
			d.dropLocked(s, a.charge.Key)
		}
		return
	}
	if a.charge.Penalty != nil {
		d.rememberPenaltyLocked(s, a)
		return
	}
	if a.decision.Outcome == limit.Refused {
		d.denyLocked(s, a)
		return
	}
	s.admitLocked(a)
	if a.refused && a.decision.Charged == 0 {
		m := d.memoLocked(s, a.charge, a.sent)
		m.seen = seenMemo{at: a.sent, remaining: a.decision.Remaining, reset: a.sent + a.decision.ResetAfter}
		m.until = max(m.until, a.sent+seenFor)
	}
}

// mustAsk: a refund and a debit are always made on the server, and what was known about the counter is over then.
func mustAsk(c *limit.Charge) bool {
	return c.Op == limit.Refund || c.Op == limit.Debit
}

// hear reports whether the answer is newer than what is known, and takes its times in if so. An answer that the server gave
// earlier may arrive later, and then its numbers are over. A server's clock may be set back, so an answer that was asked for
// askAgain later than what is known is newer in any case.
//
// The newer of two answers was given after both calls were sent, so the later of the two times is an instant before it.
func (m *memo) hear(a *answer) bool {
	if a.server < m.server && a.sent < m.sent+askAgain {
		return false
	}
	m.server, m.sent = a.server, max(m.sent, a.sent)
	return true
}

// admitLocked ends what was known about a counter that had room. The memo stays for its times: an older refusal may still
// be on its way.
func (s *denialShard) admitLocked(a answer) {
	m := s.memos[a.charge.Key]
	if m == nil {
		return
	}
	if a.decision.Charged != 0 {
		m.seen = seenMemo{}
	}
	if m.hear(&a) {
		m.denied, m.log = false, nil
	}
}

func (d *denials) denyLocked(s *denialShard, a answer) {
	m := d.memoLocked(s, a.charge, a.sent)
	if a.decision.Charged != 0 {
		m.seen = seenMemo{}
	}
	if !m.hear(&a) {
		return
	}
	until := a.sent + max(a.decision.RetryAfter, leastKept)
	if a.charge.Limit.Algorithm.KeepsLog() {
		m.denyLog(a)
		until = max(until, m.until)
	} else {
		m.state, m.log = *a.state, nil
		m.asked.heard(a.sent)
	}
	m.denied, m.until = true, until
}

// denyLog adds a refused cost. Numbers of another limit, or of an older moment, do not mix with it.
func (m *memo) denyLog(a answer) {
	l := &a.charge.Limit
	if m.log == nil || m.log.count != l.Count || m.log.window != l.Window {
		m.log = &logMemo{count: l.Count, window: l.Window}
	}
	m.log.remaining = a.decision.Remaining
	m.log.reset = a.sent + a.decision.ResetAfter
	for i := range m.log.pairs {
		if m.log.pairs[i].cost <= a.decision.Remaining {
			m.log.pairs[i] = logPair{} // something was given back since
		}
	}
	pair := m.log.pair(a.charge.Cost)
	pair.until = a.sent + a.decision.RetryAfter
	pair.asked.heard(a.sent)
}

// pair is the pair of a cost, or an empty one in the place of the oldest.
func (l *logMemo) pair(cost int64) *logPair {
	for i := range l.pairs {
		if l.pairs[i].cost == cost {
			return &l.pairs[i]
		}
	}
	oldest := &l.pairs[l.next]
	*oldest = logPair{cost: cost}
	l.next = (l.next + 1) % logPairs
	return oldest
}
