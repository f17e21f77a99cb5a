// Package journal keeps what a sidecar decided: exact usage per minute, and single events. A sidecar collects both in
// bounded memory and appends them to two capped streams of Redis every second; the control plane copies the streams to
// PostgreSQL. The format of the streams is here for both sides.
package journal

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"os"
	"sync"
	"time"
)

const (
	flushEvery  = time.Second
	reportEvery = time.Minute // at most, of what were dropped
	maxHost     = 64          // bytes of the host's name in a sidecar's name
)

// bufferBytes is what both writers take beside the pages: rows as JSON, an entry and the command that carries it,
// names.
const bufferBytes = 2 * (5*entryBytes + maxNames*(2*maxNameValue+96))

// Config sets up a Journal. Append and Name are required.
type Config struct {
	Sidecar   string // names this start of the sidecar in all entries; empty: made of the host's name
	Region    string // of the sidecar; empty: not known
	AllowedIn uint32 // one in so many of the decisions that refuse nothing becomes an event; 0: none

	// Append writes an entry to a stream. It is called from two goroutines, one for each stream, and may take long. An
	// error means that the entry may have been written, or not.
	Append func(stream string, e *Entry) error
	// Name returns the name of an identity in the journal.
	Name func(kind, value string) string
	// Caches returns what the caches of the sidecar have answered since it started. Nil: none.
	Caches func() []Cache

	Patience time.Duration    // how long Close tries to write what is left; 0 means a second
	Now      func() time.Time // nil: time.Now
	OnError  func(stream string, err error)
	OnDrop   func(rows int64) // called at most once a minute with how many rows were dropped since
	Guard    func(run func()) // runs what writes in the background; it may recover from a panic. Nil: it does not
}

// Cache is how often a cache had the answer for a domain.
type Cache struct {
	Domain, Name string
	Hits, Misses int64
}

// Journal collects decisions, and writes them to the streams every second. Make one with New, and close it. It is safe
// for concurrent use.
type Journal struct {
	cfg       Config
	collector *collector
	usage     *writer
	events    *writer
	stop      chan struct{}
	giveUp    context.CancelFunc
	done      sync.WaitGroup
	closing   sync.Once
	lost      [2]int64
	bytes     int64
}

// New starts a journal.
func New(cfg Config) *Journal {
	cfg = cfg.withDefaults()
	j := &Journal{cfg: cfg, collector: newCollector(cfg.AllowedIn), stop: make(chan struct{})}
	last, giveUp := context.WithCancel(context.Background())
	j.giveUp = giveUp
	usage, events := newUsageSource(j.collector, &j.cfg), newEventSource(j.collector)
	j.usage = newWriter(&j.cfg, UsageStream, usage.collect, usage.left, j.stop, last)
	j.events = newWriter(&j.cfg, EventsStream, events.collect, events.left, j.stop, last)
	j.bytes = (stripes+1)*(usage.page.bytes()+events.events.bytes()) + bufferBytes
	j.done.Go(func() { j.run(j.collector.wakes[0], j.usage.flush) })
	j.done.Go(func() { j.run(j.collector.wakes[1], j.events.flush) })
	j.done.Go(j.reportDrops)
	return j
}

func (c Config) withDefaults() Config {
	if c.Sidecar == "" {
		c.Sidecar = sidecarName()
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

// sidecarName returns a name for a start of a sidecar: the host's name and random bits.
func sidecarName() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "sidecar"
	}
	var bits [8]byte
	_, _ = rand.Read(bits[:]) // it never fails
	return cut(host, maxHost) + "-" + hex.EncodeToString(bits[:])
}

// Note takes in a decision. It takes less than a microsecond, allocates nothing and waits for nothing but another Note.
func (j *Journal) Note(d *Decided) { j.collector.note(d) }

// run writes every second, and sooner where there is much.
func (j *Journal) run(much <-chan struct{}, flush func() bool) {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-much:
		case <-j.stop:
			return
		}
		j.cfg.Guard(func() { flush() })
	}
}

// reportDrops reports what were dropped: at once, and then at most once a minute.
func (j *Journal) reportDrops() {
	look := time.NewTicker(flushEvery)
	defer look.Stop()
	reported, at := int64(0), time.Time{}
	for {
		select {
		case <-look.C:
		case <-j.stop:
			return
		}
		s := j.Stats()
		now, dropped := j.cfg.Now(), s.dropped()
		if dropped > reported && (at.IsZero() || now.Sub(at) >= reportEvery) {
			j.cfg.OnDrop(dropped - reported)
			reported, at = dropped, now
		}
	}
}

// Close writes what is left and a last entry to each stream that has entries, and returns how many rows could not be
// written. Decisions that come after it are not kept.
func (j *Journal) Close() (lost int64) {
	j.closing.Do(func() {
		timer := time.AfterFunc(j.cfg.Patience, j.giveUp)
		defer timer.Stop()
		close(j.stop)
		j.done.Wait()
		var last sync.WaitGroup
		last.Go(func() { j.lost[0] = j.usage.end() })
		last.Go(func() { j.lost[1] = j.events.end() })
		last.Wait()
		j.giveUp()
	})
	return j.lost[0] + j.lost[1]
}

// Stats is what a Journal counts about itself.
type Stats struct {
	UsageRows         int64 `metric:"recorded_rows_total" labels:"stream=usage" help:"Rows written to Redis."`
	EventRows         int64 `metric:"recorded_rows_total" labels:"stream=events"`
	UsageEntries      int64 `metric:"recorded_entries_total" labels:"stream=usage" help:"Entries with those rows."`
	EventEntries      int64 `metric:"recorded_entries_total" labels:"stream=events"`
	DroppedIdentities int64 `metric:"recorded_dropped_total" labels:"what=identity" help:"Rows without room in memory."`
	DroppedTenants    int64 `metric:"recorded_dropped_total" labels:"what=tenant"`
	DroppedCalls      int64 `metric:"recorded_dropped_total" labels:"what=call"`
	DroppedCaches     int64 `metric:"recorded_dropped_total" labels:"what=cache"`
	DroppedEndpoints  int64 `metric:"recorded_dropped_total" labels:"what=endpoint"`
	DroppedKeys       int64 `metric:"recorded_dropped_total" labels:"what=api_key"`
	DroppedEvents     int64 `metric:"recorded_dropped_total" labels:"what=event"`
	Failed            int64 `metric:"recorded_failures_total" help:"Writes of entries that failed; they are retried."`
	Bytes             int64 `metric:"recorded_memory_bytes" help:"Memory that the record takes at most."`
}

// dropped is how many rows were dropped.
func (s *Stats) dropped() int64 {
	return s.DroppedIdentities + s.DroppedTenants + s.DroppedCalls + s.DroppedEndpoints + s.DroppedKeys +
		s.DroppedCaches + s.DroppedEvents
}

// Stats returns what was counted so far.
func (j *Journal) Stats() Stats {
	u, e, c := j.usage, j.events, j.collector
	return Stats{
		UsageRows: u.rows.Load(), EventRows: e.rows.Load(), UsageEntries: u.entries.Load(),
		EventEntries:      e.entries.Load(),
		DroppedIdentities: c.dropped(identities), DroppedEndpoints: c.dropped(endpoints),
		DroppedTenants: c.dropped(tenants), DroppedCalls: c.dropped(calls),
		DroppedCaches: c.dropped(caches),
		DroppedKeys:   c.dropped(keys), DroppedEvents: c.dropped(singleEvents),
		Failed: u.failed.Load() + e.failed.Load(), Bytes: j.bytes,
	}
}
