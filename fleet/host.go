package fleet

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	takenEvery = 500 * time.Millisecond // processors' times are read this often while there are calls
	takenFor   = 2 * time.Second        // how long it counts what a host took
	takenLeast = 20 * time.Millisecond  // of a processor's second; less is taken everywhere at times
)

// host is what this machine runs on. It may take processors away and give them to other machines. What runs on such a processor stands still for
// tens of milliseconds, and the kernel counts that only afterwards. So a host that took processors away is expected to do it again.
type host struct {
	next  atomic.Int64 // process time of the next reading
	took  atomic.Int64 // nanoseconds of a processor's second,
	until atomic.Int64 // and the process time until which that counts

	mu     sync.Mutex    // guards all below
	last   times         // that were read
	read   time.Duration // process time of that
	before times         // those of the reading before, or of the start; after a while without calls those of the last
}

// times are those of all processors since this machine started.
type times struct{ taken, all time.Duration }

// machine is the host that this process is on.
var machine = newHost()

func newHost() *host {
	h := &host{}
	h.last, _ = processors()
	h.before = h.last
	h.next.Store(int64(takenEvery))
	return h
}

// tick reads the times when that is due.
func (h *host) tick(now time.Duration) {
	if virtual {
		return
	}
	due := h.next.Load()
	if int64(now) < due || !h.next.CompareAndSwap(due, int64(now+time.Hour)) {
		return
	}
	if read, ok := processors(); ok {
		h.note(now, read)
	}
	h.next.Store(int64(now + takenEvery))
}

// note takes in times that were just read. What was taken before counts as long as it was more.
func (h *host) note(now time.Duration, read times) {
	h.mu.Lock()
	took := int64(read.tookSince(h.last, 0))
	h.before, h.last = h.last, read
	if now-h.read > 2*takenEvery {
		h.before = read // an old reading would hide what has just begun
	}
	h.read = now
	h.mu.Unlock()
	if took >= h.took.Load() || int64(now) >= h.until.Load() {
		h.took.Store(took)
		h.until.Store(int64(now + takenFor))
	}
}

// tookSince is how much of its second the host took from each processor since other times. Less time than least counts as that.
func (t times) tookSince(other times, least time.Duration) time.Duration {
	all := max(t.all-other.all, least)
	if all <= 0 {
		return 0
	}
	return time.Duration(float64(time.Second) * float64(t.taken-other.taken) / float64(all))
}

// excuses reports whether a server that is late by so much may have been without a processor. Where what was read twice a second says no, it
// looks at what the host took since the reading before the last: it may just have begun, and so may this process.
func (h *host) excuses(now, late time.Duration) bool {
	if late < h.takes(now) {
		return true
	}
	if virtual || late >= crowdedFor {
		return false
	}
	read, _ := processors()
	return late < h.lately(read)
}

// lately is what takes would be by times that were just read.
func (h *host) lately(read times) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.before.all == 0 {
		return 0
	}
	return counted(read.tookSince(h.before, takenEvery))
}

// takes is how much of its second the host takes from each processor: at least takenLeast or nothing, at most crowdedFor.
func (h *host) takes(now time.Duration) time.Duration {
	if int64(now) >= h.until.Load() {
		return 0
	}
	return counted(time.Duration(h.took.Load()))
}

func counted(took time.Duration) time.Duration {
	if took < takenLeast {
		return 0
	}
	return min(took, crowdedFor)
}
