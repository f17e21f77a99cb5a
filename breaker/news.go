package breaker

import (
	"sync"
	"sync/atomic"
)

// maxUntold bounds the changes that wait for a callback that hangs. Stats has counted them; only the telling is lost.
const maxUntold = 100

// change is one change of state.
type change struct {
	from, to State
	reason   string
}

// news are changes on their way to OnChange. They happen under locks that every call needs, and a callback may be as slow as
// the log it writes to, so they are told outside, by one caller at a time.
type news struct {
	waiting atomic.Int64
	queue   []change   // guarded by the breaker's lock
	telling sync.Mutex // held while OnChange runs
}

// addLocked puts a change in the queue if somebody wants to know. The breaker's lock is held.
func (n *news) addLocked(listener func(from, to State, reason string), c change) {
	if listener == nil || len(n.queue) >= maxUntold {
		return
	}
	n.queue = append(n.queue, c)
	n.waiting.Store(int64(len(n.queue)))
}

// tell calls OnChange for what has changed, unless another caller is about it.
func (b *Breaker) tell() {
	// What comes while the last one is being told may find the lock taken, so look again after giving it back.
	for b.news.waiting.Load() > 0 && b.news.telling.TryLock() {
		b.tellLocked()
	}
}

// tellLocked tells all there is and gives the lock back.
func (b *Breaker) tellLocked() {
	defer b.news.telling.Unlock()
	for {
		c, ok := b.nextChange()
		if !ok {
			return
		}
		b.cfg.OnChange(c.from, c.to, c.reason)
	}
}

func (b *Breaker) nextChange() (change, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	q := b.news.queue
	if len(q) == 0 {
		return change{}, false
	}
	b.news.queue = q[1:]
	b.news.waiting.Store(int64(len(q) - 1))
	return q[0], true
}
