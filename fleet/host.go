package fleet

import (
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
	last  times        // guarded by next: one caller at a time moves it on
}

// times are those of all processors since this machine started.
type times struct{ taken, all time.Duration }

// machine is the host that this process is on.
var machine = newHost()

func newHost() *host {
	h := &host{}
	h.last, _ = processors()
	h.next.Store(int64(takenEvery))
	return h
}

// tick reads the times when that is due.
func (h *host) tick(now time.Duration) {
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
	taken, all := read.taken-h.last.taken, read.all-h.last.all
	h.last = read
	if all <= 0 {
		return
	}
	took := int64(float64(time.Second) * float64(taken) / float64(all))
	if took >= h.took.Load() || int64(now) >= h.until.Load() {
		h.took.Store(took)
		h.until.Store(int64(now + takenFor))
	}
}

// takes is how much of its second the host takes from each processor: at least takenLeast or nothing, at most crowdedFor.
func (h *host) takes(now time.Duration) time.Duration {
	took := time.Duration(h.took.Load())
	if took < takenLeast || int64(now) >= h.until.Load() {
		return 0
	}
	return min(took, crowdedFor)
}
