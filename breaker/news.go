package breaker

import (
	"sync"
	"sync/atomic"
)

// maxUntold is the most changes that wait for a callback that hangs. Further ones are not reported; Stats counts all.
const maxUntold = 100

// change is one change of state.
type change struct {
	from, to State
	reason   string
}

// news holds changes that OnChange has not been called for yet. A change happens under locks that every call needs, and a
// callback may be as slow as the log that it writes to. So OnChange is called outside these locks, by one caller at a time.
type news struct {
	waiting atomic.Int64
	queue   []change   // guarded by the breaker's lock
	telling sync.Mutex // held while OnChange runs
}

// addLocked puts a change in the queue if there is a listener. The breaker's lock is held.
func (n *news) addLocked(listener func(from, to State, reason string), c change) {
	if listener == nil || len(n.queue) >= maxUntold {
		return
	}
	n.queue = append(n.queue, c)
	n.waiting.Store(int64(len(n.queue)))
}

// tell calls OnChange for the changes in the queue, unless another caller does so.
func (b *Breaker) tell() {
	// A change may arrive after the queue was found empty and before the lock is released, so look again.
	for b.news.waiting.Load() > 0 && b.news.telling.TryLock() {
		b.tellLocked()
	}
}

// tellLocked calls OnChange until the queue is empty, then releases the lock.
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
