// Package live is what happens now: refusals as they happen, and the keys that are asked for and refused most. Neither
// blocks a decision, and both are bounded.
package live

import (
	"embed"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Sources are the files whose comments describe what readers get.
//
//go:embed feed.go recent.go top.go
var Sources embed.FS

const (
	feedRate    = 100 // events of a second that are handed on
	feedReaders = 16  // readers at once
	// feedReadersEach is how many of them one caller may have.
	feedReadersEach = 8
	feedBacklog     = 256 // events that wait for one reader
	maxEventText    = 256 // bytes of a text of a client
)

// Event is one refusal.
type Event struct {
	At      time.Time         `json:"at"`
	Domain  string            `json:"domain"`
	Outcome string            `json:"outcome"`
	Rule    string            `json:"rule"`
	Key     string            `json:"key,omitempty"` // of the counter that refused
	User    string            `json:"user,omitempty"`
	Tenant  string            `json:"tenant,omitempty"`
	APIKey  string            `json:"api_key,omitempty"`
	Address string            `json:"address,omitempty"`
	Method  string            `json:"method,omitempty"`
	Path    string            `json:"path,omitempty"`
	Entries map[string]string `json:"entries,omitempty"` // of descriptors
	// as they were sent; none where they have more entries than are shown
	Descriptors []Descriptor `json:"descriptors,omitempty"`
	RetryAfter  float64      `json:"retry_after"` // in seconds
	Degraded    string       `json:"degraded,omitempty"`
}

// Descriptor is one of a request.
type Descriptor struct {
	Entries []Entry `json:"entries"`
}

// Entry is one of a descriptor.
type Entry struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Feed hands refusals to readers as they happen. The zero value is ready. It is safe for concurrent use.
type Feed struct {
	readers atomic.Int64

	mu      sync.Mutex // guards all below
	second  int64
	taken   int
	dropped int64     // since the last event that was handed on
	open    []*Reader // the oldest first
}

// Reader is one who reads events.
type Reader struct {
	Items <-chan Item
	Over  <-chan struct{} // closed when it has to make room for another one

	feed   *Feed
	caller string
	queue  chan Item
	over   chan struct{}
	missed int64 // guarded by Feed.mu
}

// Item is an event as a reader gets it, with how many were left out before it.
type Item struct {
	Event   Event
	Dropped int64
}

// Wanted reports whether an event that happens now is handed on. Those above the rate are counted as dropped. Without
// readers it costs next to nothing.
func (f *Feed) Wanted(now time.Time) bool {
	if f.readers.Load() == 0 {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if second := now.Unix(); second != f.second {
		f.second, f.taken = second, 0
	}
	if f.taken >= feedRate {
		f.dropped++
		return false
	}
	f.taken++
	return true
}

// Publish hands an event to all readers. For a reader that is too slow it is dropped.
func (f *Feed) Publish(e Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.open {
		r.missed += f.dropped
		select {
		case r.queue <- Item{e, r.missed}:
			r.missed = 0
		default:
			r.missed++
		}
	}
	f.dropped = 0
}

// Read begins to read events for a caller. Where there are too many readers, of this caller or of all, the oldest one
// of the caller with most has to end. End has to be called.
func (f *Feed) Read(caller string) *Reader {
	queue, over := make(chan Item, feedBacklog), make(chan struct{})
	r := &Reader{Items: queue, Over: over, feed: f, caller: caller, queue: queue, over: over}
	f.mu.Lock()
	defer f.mu.Unlock()
	count := map[string]int{caller: 1}
	most := caller
	for _, other := range f.open {
		count[other.caller]++
		if count[other.caller] > count[most] {
			most = other.caller
		}
	}
	if count[caller] > feedReadersEach {
		most = caller
	}
	if count[caller] > feedReadersEach || len(f.open) >= feedReaders {
		f.endOldest(most)
	}
	f.open = append(f.open, r)
	f.readers.Store(int64(len(f.open)))
	return r
}

// endOldest ends the oldest reader of a caller or, if there is only the one that begins, of all. The caller has locked
// the feed.
func (f *Feed) endOldest(caller string) {
	i := max(0, slices.IndexFunc(f.open, func(r *Reader) bool { return r.caller == caller }))
	close(f.open[i].over)
	f.open = slices.Delete(f.open, i, i+1)
}

// End ends reading.
func (r *Reader) End() {
	f := r.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open = slices.DeleteFunc(f.open, func(other *Reader) bool { return other == r })
	f.readers.Store(int64(len(f.open)))
}

// Short is a text of a client, cut where it is long.
func Short(text string) string {
	if len(text) > maxEventText {
		return text[:maxEventText] + "…"
	}
	return text
}
