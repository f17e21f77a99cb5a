package journal

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"os"
	"sync"
	"time"
)

// Config sets up a Recorder. Append, Name and Outcomes are required.
type Config struct {
	Sidecar   string   // names this start of the sidecar in all entries; empty: made by NewSidecarName
	Region    string   // of the sidecar; empty: not known
	AllowedIn uint32   // one in so many of the decisions that refuse nothing becomes an event; 0: none
	Outcomes  []string // the words of the outcomes, at most 16

	// Append writes an entry to a stream. It is called from two goroutines, one for each stream, and may take long. An error means that the entry
	// may have been written, or not.
	Append func(stream string, e *Entry) error
	// Name returns the name of an identity in the record.
	Name func(kind, value string) string
	// Caches returns what the caches of the sidecar have answered since it started, always in the same order. Nil: there are none.
	Caches func() []Cache

	Patience time.Duration    // how long Close goes on trying to write what is left; 0 means a second
	Now      func() time.Time // nil: time.Now
	OnError  func(stream string, err error)
	OnDrop   func(rows int64) // called at most once a minute with how many rows had no room since
	Guard    func(run func()) // runs what writes in the background; it may recover from a panic. Nil: it does not
}

// Cache is how often a cache had the answer.
type Cache struct {
	Name         string
	Hits, Misses int64
}

// outcome returns the word of an outcome.
func (c *Config) outcome(o uint8) string {
	if int(o) < len(c.Outcomes) {
		return c.Outcomes[o]
	}
	return "unknown"
}

// Recorder collects decisions, and writes them to the streams every second. Make one with New, and close it. It is safe for concurrent use.
type Recorder struct {
	cfg       Config
	collector *collector
	usage     usageWriter
	events    eventWriter
	stop      chan struct{}
	giveUp    context.CancelFunc
	done      sync.WaitGroup
	closing   sync.Once
	lost      [2]int64
	bytes     int64
}

// New starts a recorder.
func New(cfg Config) *Recorder {
	cfg = cfg.withDefaults()
	r := &Recorder{cfg: cfg, collector: newCollector(cfg.AllowedIn), stop: make(chan struct{})}
	last, giveUp := context.WithCancel(context.Background())
	r.giveUp = giveUp
	of := func(name string) stream {
		return stream{cfg: &r.cfg, collector: r.collector, name: name, stop: r.stop, last: last}
	}
	r.usage = usageWriter{stream: of(UsageStream), names: names{name: cfg.Name}, page: newPage()}
	if cfg.Caches != nil {
		r.usage.caches = cfg.Caches()
	}
	r.events = eventWriter{stream: of(EventsStream), names: names{name: cfg.Name}, events: newEvents()}
	r.bytes = (shards+1)*(r.usage.page.bytes()+r.events.events.bytes()) + bufferBytes
	r.done.Go(func() { r.run(r.collector.wakes[0], r.usage.flush) })
	r.done.Go(func() { r.run(r.collector.wakes[1], r.events.flush) })
	r.done.Go(r.tell)
	return r
}

func (c Config) withDefaults() Config {
	if c.Sidecar == "" {
		c.Sidecar = NewSidecarName()
	}
	if c.Patience <= 0 {
		c.Patience = time.Second
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.OnError == nil {
		c.OnError = func(string, error) {}
	}
	if c.Guard == nil {
		c.Guard = func(run func()) { run() }
	}
	if c.OnDrop == nil {
		c.OnDrop = func(int64) {}
	}
	return c
}

// maxHost is how many bytes of the host's name a sidecar's name has.
const maxHost = 64

// NewSidecarName returns a name for a start of a sidecar: the host's name and random bits.
func NewSidecarName() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "sidecar"
	}
	var bits [8]byte
	_, _ = rand.Read(bits[:]) // it never fails
	return cut(host, maxHost) + "-" + hex.EncodeToString(bits[:])
}

// Note takes in a decision. It takes less than a microsecond, allocates nothing and waits for nothing but another Note.
func (r *Recorder) Note(d *Decided) { r.collector.note(d) }

// Weight returns how many decisions the event of a decision stands for; 0: it becomes none. A refusal always stands for itself.
func (r *Recorder) Weight(refused bool) int64 { return r.collector.weight(refused) }

// run writes every second, and sooner where there is much.
func (r *Recorder) run(much <-chan struct{}, flush func() bool) {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-much:
		case <-r.stop:
			return
		}
		r.cfg.Guard(func() { flush() })
	}
}

// tellEvery is the least time between two reports of what had no room.
const tellEvery = time.Minute

// tell reports what had no room: at once, and then at most once a minute.
func (r *Recorder) tell() {
	look := time.NewTicker(flushEvery)
	defer look.Stop()
	told, at := int64(0), time.Time{}
	for {
		select {
		case <-look.C:
		case <-r.stop:
			return
		}
		s := r.Stats()
		now, dropped := r.cfg.Now(), s.DroppedIdentities+s.DroppedEndpoints+s.DroppedKeys+s.DroppedEvents
		if dropped > told && (at.IsZero() || now.Sub(at) >= tellEvery) {
			r.cfg.OnDrop(dropped - told)
			told, at = dropped, now
		}
	}
}

// Close writes what is left and a last entry to each stream that has entries, and returns how many rows could not be written. Decisions that come
// after it are not recorded.
func (r *Recorder) Close() (lost int64) {
	r.closing.Do(func() {
		timer := time.AfterFunc(r.cfg.Patience, r.giveUp)
		defer timer.Stop()
		close(r.stop)
		r.done.Wait()
		var last sync.WaitGroup
		last.Go(func() { r.lost[0] = r.usage.end() })
		last.Go(func() { r.lost[1] = r.events.end() })
		last.Wait()
		r.giveUp()
	})
	return r.lost[0] + r.lost[1]
}

// Stats is what a Recorder counts about itself.
type Stats struct {
	UsageRows         int64 `metric:"recorded_rows_total" labels:"stream=usage" help:"Rows written to Redis."`
	EventRows         int64 `metric:"recorded_rows_total" labels:"stream=events"`
	UsageEntries      int64 `metric:"recorded_entries_total" labels:"stream=usage" help:"Entries with those rows."`
	EventEntries      int64 `metric:"recorded_entries_total" labels:"stream=events"`
	DroppedIdentities int64 `metric:"recorded_dropped_total" labels:"what=identity" help:"Rows without room in memory."`
	DroppedEndpoints  int64 `metric:"recorded_dropped_total" labels:"what=endpoint"`
	DroppedKeys       int64 `metric:"recorded_dropped_total" labels:"what=api_key"`
	DroppedEvents     int64 `metric:"recorded_dropped_total" labels:"what=event"`
	Failed            int64 `metric:"recorded_failures_total" help:"Writes of entries that failed; they are retried."`
	Bytes             int64 `metric:"recorded_memory_bytes" help:"Memory that the record takes at most."`
}

// bufferBytes is what both writers take beside the pages: rows as JSON, an entry and the command that carries it, names.
const bufferBytes = 2 * (5*entryBytes + maxNames*(2*maxNameValue+96))

// Stats returns what was counted so far.
func (r *Recorder) Stats() Stats {
	u, e := &r.usage, &r.events
	return Stats{
		UsageRows: u.rows.Load(), EventRows: e.rows.Load(), UsageEntries: u.entries.Load(), EventEntries: e.entries.Load(),
		DroppedIdentities: r.collector.dropped(identities), DroppedEndpoints: r.collector.dropped(endpoints), DroppedKeys: r.collector.dropped(keys), DroppedEvents: r.collector.dropped(dropsEvents),
		Failed: u.failed.Load() + e.failed.Load(), Bytes: r.bytes,
	}
}
