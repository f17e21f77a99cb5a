package journal

import "strconv"

// eventWriter writes the events that the shards hold.
type eventWriter struct {
	stream
	names  names
	events *events // that were taken from a shard; empty between two shards
	buffer []byte
}

// flush takes what there is, and writes it. It reports whether all of it was written.
func (w *eventWriter) flush() bool {
	if w.over {
		return false
	}
	for i := range w.collector.shards {
		s := &w.collector.shards[i]
		s.mu.Lock()
		s.events, w.events = w.events, s.events
		s.mu.Unlock()
		w.taken += int64(len(w.events.marks))
		w.untold += w.events.dropped
		for j := range w.events.marks {
			w.add(&w.events.marks[j])
			if !w.ship(entryBytes) {
				return false
			}
		}
		w.events.empty()
	}
	return w.ship(0)
}

// add turns an event into JSON.
func (w *eventWriter) add(m *mark) {
	w.pending++
	e, b := w.events, w.buffer
	if len(b) == 0 {
		b = append(b, '[')
	} else {
		b = append(b, ',')
	}
	b = strconv.AppendInt(append(b, `{"at":`...), m.at, 10)
	b = memberText(b, "domain", e.of(m, textDomain))
	b = memberText(b, "outcome", w.cfg.outcome(m.outcome))
	b = memberText(b, "rule", e.of(m, textRule))
	b = memberText(b, "identity", w.names.of(m.kind, e.of(m, textIdentity)))
	b = memberText(b, "api_key", e.of(m, textAPIKey))
	b = memberText(b, "ip", w.names.bare(Address, e.of(m, textIP)))
	b = memberText(b, "method", e.of(m, textMethod))
	b = memberText(b, "endpoint", e.of(m, textEndpoint))
	w.buffer = append(appendNumbers(b, m), '}')
}

// appendNumbers appends the members of an event that are no texts.
func appendNumbers(b []byte, m *mark) []byte {
	b = memberNumber(b, "count", m.count)
	b = memberNumber(b, "limit", m.limit)
	b = memberNumber(b, "cost", m.cost)
	b = memberNumber(b, "status", int64(m.status))
	if m.retryAfter > 0 {
		b = strconv.AppendFloat(member(b, "retry_after"), m.retryAfter.Seconds(), 'f', -1, 64)
	}
	b = memberNumber(b, "latency", m.latency.Microseconds())
	return memberNumber(b, "weight", m.weight)
}

// ship appends an entry if there is something to tell, and rows of more than that many bytes. It reports false if the entry was given up.
func (w *eventWriter) ship(above int) bool {
	if len(w.buffer) <= above && (above > 0 || w.untold == 0) {
		return true
	}
	if len(w.buffer) == 0 {
		w.buffer = append(w.buffer, '[')
	}
	rows := append(w.buffer, ']')
	w.buffer = rows[:0]
	return w.append(rows, false)
}

// end writes what is left, and that nothing comes after. It returns how many events could not be written.
func (w *eventWriter) end() int64 {
	if w.flush() && w.sequence > 0 {
		w.append([]byte("[]"), true)
	}
	for i := range w.collector.shards {
		s := &w.collector.shards[i]
		s.mu.Lock()
		w.taken += int64(len(s.events.marks))
		s.mu.Unlock()
	}
	return w.taken - w.rows.Load()
}
