package journal

import (
	"strconv"
	"time"
)

// usageWriter writes what the shards' pages hold.
type usageWriter struct {
	stream
	names  names
	caches []Cache // as they were last written
	page   *page   // that was taken from a shard; empty between two shards
	lists  [4][]byte
	buffer []byte
}

// The lists of an entry.
const (
	identities = iota
	endpoints
	keys
	caches
)

// flush takes what there is, and writes it. It reports whether all of it was written.
func (w *usageWriter) flush() bool {
	if w.over {
		return false
	}
	w.takeCaches(w.cfg.Now())
	for i := range w.collector.shards {
		w.take(&w.collector.shards[i])
		if !w.writePage() {
			return false
		}
	}
	return w.ship(0)
}

// take exchanges the page of a shard for an empty one.
func (w *usageWriter) take(s *shard) {
	s.mu.Lock()
	s.page, w.page = w.page, s.page
	s.mu.Unlock()
	w.taken += int64(w.page.rows())
	w.untold += w.page.dropped[identities] + w.page.dropped[endpoints] + w.page.dropped[keys]
}

// writePage turns the page into JSON, ships what is enough for an entry, and empties the page.
func (w *usageWriter) writePage() bool {
	for i := range w.page.identities.rows {
		w.addIdentity(w.page.identities, &w.page.identities.rows[i])
		if !w.ship(entryBytes) {
			return false
		}
	}
	for i := range w.page.endpoints.rows {
		w.addEndpoint(w.page.endpoints, &w.page.endpoints.rows[i], &w.page.latencies[i])
		if !w.ship(entryBytes) {
			return false
		}
	}
	for i := range w.page.keys.rows {
		w.addKey(w.page.keys, &w.page.keys.rows[i])
		if !w.ship(entryBytes) {
			return false
		}
	}
	w.addRests()
	w.page.empty()
	return true
}

func (w *usageWriter) addIdentity(t *table, r *row) {
	w.pending++
	domain, rule, value := t.texts(r)
	name, outcome := w.names.of(r.kind, value), r.outcome&^furtherBit
	if outcome == r.outcome {
		b := appendKey(w.begin(identities), int64(r.minute), domain, nil, name, w.cfg.outcome(outcome))
		w.lists[identities] = append(appendNumber(appendNumber(b, r.requests), r.cost), ']')
	}
	if len(rule) > 0 {
		b := appendKey(w.begin(identities), int64(r.minute), domain, rule, name, w.cfg.outcome(outcome))
		w.lists[identities] = append(appendNumber(appendNumber(b, r.requests), r.charged), ']')
	}
}

func (w *usageWriter) addEndpoint(t *table, r *row, latency *[histogram]uint32) {
	w.pending++
	domain, rule, value := t.texts(r)
	b := appendKey(w.begin(endpoints), int64(r.minute), domain, rule, value, w.cfg.outcome(r.outcome))
	b = append(appendNumber(appendNumber(b, r.requests), r.cost), ',', '[')
	first := true
	for i, n := range latency {
		if n == 0 {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = strconv.AppendInt(append(b, '['), int64(i), 10)
		b = append(appendNumber(b, int64(n)), ']')
	}
	w.lists[endpoints] = append(b, ']', ']')
}

func (w *usageWriter) addKey(t *table, r *row) {
	w.pending++
	domain, _, value := t.texts(r)
	w.lists[keys] = appendKeyRow(w.begin(keys), int64(r.minute), domain, w.names.of(countedKey, value), r.requests, r.cost)
}

// addRests writes what had no row.
func (w *usageWriter) addRests() {
	for list := range w.page.rest {
		for of := range w.page.rest[list] {
			rule := [...]string{"", Others}[of]
			for outcome, r := range w.page.rest[list][of] {
				if r.requests == 0 && r.cost == 0 {
					continue
				}
				b := appendKey(w.begin(list), int64(r.minute), Others, rule, Others, w.cfg.outcome(uint8(outcome)))
				b = appendNumber(appendNumber(b, r.requests), r.cost)
				if list == endpoints {
					b = append(b, ",[]"...)
				}
				w.lists[list] = append(b, ']')
			}
		}
	}
}

// takeCaches writes what the caches have answered since they were last asked.
func (w *usageWriter) takeCaches(now time.Time) {
	if w.cfg.Caches == nil {
		return
	}
	is := w.cfg.Caches()
	for i, c := range is {
		if i < len(w.caches) {
			c.Hits, c.Misses = c.Hits-w.caches[i].Hits, c.Misses-w.caches[i].Misses
		}
		if c.Hits > 0 || c.Misses > 0 {
			w.lists[caches] = appendCache(w.begin(caches), &CacheRow{now.Unix() / 60, c.Name, max(c.Hits, 0), max(c.Misses, 0)})
		}
	}
	w.caches = is
}

// begin returns a list that the next row can be appended to.
func (w *usageWriter) begin(list int) []byte { return comma(w.lists[list], len(w.lists[list])) }

// ship appends an entry if there is something to tell, and rows of more than that many bytes or some that were dropped. It reports false if the entry was
// given up.
func (w *usageWriter) ship(above int) bool {
	size := 0
	for _, list := range w.lists {
		size += len(list)
	}
	if size <= above && (above > 0 || w.untold == 0) {
		return true
	}
	b := append(w.buffer[:0], `{"identities":[`...)
	b = append(append(b, w.lists[identities]...), `],"endpoints":[`...)
	b = append(append(b, w.lists[endpoints]...), `],"keys":[`...)
	b = append(append(b, w.lists[keys]...), `],"caches":[`...)
	w.buffer = append(append(b, w.lists[caches]...), `]}`...)
	for i := range w.lists {
		w.lists[i] = w.lists[i][:0]
	}
	return w.append(w.buffer, false)
}

// end writes what is left, and that nothing comes after. It returns how many rows could not be written.
func (w *usageWriter) end() int64 {
	if w.flush() && w.sequence > 0 {
		w.append(AppendUsage(nil, &Usage{}), true)
	}
	for i := range w.collector.shards {
		s := &w.collector.shards[i]
		s.mu.Lock()
		w.taken += int64(s.page.rows())
		s.mu.Unlock()
	}
	return w.taken - w.rows.Load()
}
