// Package audit is what happened, for the record: refusals as they happen, and the keys that are asked for and refused most. Neither
// blocks a decision, and both are bounded.
package audit

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	feedRate     = 100 // events of a second that are handed on
	feedReaders  = 16  // readers at once
	feedBacklog  = 256 // events that wait for one reader
	maxEventText = 256 // bytes of a text of a client
)

// Event is one refusal.
type Event struct {
	At          time.Time         `json:"at"`
	Domain      string            `json:"domain"`
	Outcome     string            `json:"outcome"`
	Rule        string            `json:"rule"`
	Key         string            `json:"key,omitempty"` // of the counter that refused
	User        string            `json:"user,omitempty"`
	Tenant      string            `json:"tenant,omitempty"`
	APIKey      string            `json:"api_key,omitempty"`
	Address     string            `json:"address,omitempty"`
	Method      string            `json:"method,omitempty"`
	Path        string            `json:"path,omitempty"`
	Entries     map[string]string `json:"entries,omitempty"`     // of descriptors
	Descriptors []Descriptor      `json:"descriptors,omitempty"` // as they were sent; none where they have more entries than are shown
	RetryAfter  float64           `json:"retry_after"`           // in seconds
	Degraded    string            `json:"degraded,omitempty"`
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
	dropped int64 // since the last event that was handed on
	queues  map[chan Item]*int64
}

// Item is an event as a reader gets it, with how many were left out before it.
type Item struct {
	Event   Event
	Dropped int64
}

// Wanted reports whether an event that happens now is handed on. Those above the rate are counted as dropped. Without readers it costs
// next to nothing.
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
	for queue, missed := range f.queues {
		*missed += f.dropped
		select {
		case queue <- Item{e, *missed}:
			*missed = 0
		default:
			*missed++
		}
	}
	f.dropped = 0
}

// Read begins to read events. ok is false where there are too many readers. end has to be called.
func (f *Feed) Read() (items <-chan Item, end func(), ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.queues) >= feedReaders {
		return nil, func() {}, false
	}
	if f.queues == nil {
		f.queues = map[chan Item]*int64{}
	}
	queue := make(chan Item, feedBacklog)
	f.queues[queue] = new(int64)
	f.readers.Add(1)
	return queue, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.queues, queue)
		f.readers.Add(-1)
	}, true
}

// Short is a text of a client, cut where it is long.
func Short(text string) string {
	if len(text) > maxEventText {
		return text[:maxEventText] + "…"
	}
	return text
}
