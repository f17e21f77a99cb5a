package journal

import "github.com/spillway-mesh/spillway/engine"

// usageSource takes what the stripes have counted.
type usageSource struct {
	collector *collector
	cfg       *Config
	caches    map[[2]string]Cache // by domain and name, as they were last written
	page      *page               // that was taken from a stripe; empty between two stripes
}

func newUsageSource(c *collector, cfg *Config) *usageSource {
	s := &usageSource{collector: c, cfg: cfg, page: newPage(), caches: map[[2]string]Cache{}}
	if cfg.Caches != nil {
		for _, c := range cfg.Caches() {
			s.caches[[2]string{c.Domain, c.Name}] = c
		}
	}
	return s
}

// collect adds what was counted to the next entries. It returns false where one was given up.
func (s *usageSource) collect(w *writer) bool {
	if !s.addCaches(w) {
		return false
	}
	for i := range s.collector.stripes {
		stripe := &s.collector.stripes[i]
		stripe.mu.Lock()
		stripe.page, s.page = s.page, stripe.page
		stripe.mu.Unlock()
		p := s.page
		w.taken += int64(p.rows())
		for list, t := range p.tables() {
			w.dropped += p.dropped[list]
			for at := range t.rows {
				s.addRow(w, list, t, at)
				if !w.ship(entryBytes) {
					return false
				}
			}
		}
		s.addRests(w)
		p.empty()
	}
	return true
}

// left is how many rows were counted since the last collect.
func (s *usageSource) left() (n int64) {
	for i := range s.collector.stripes {
		stripe := &s.collector.stripes[i]
		stripe.mu.Lock()
		n += int64(stripe.page.rows())
		stripe.mu.Unlock()
	}
	return n
}

// addRow adds a row of a table. A row of identities is one of a rule, and the first rule's also counts the requests.
func (s *usageSource) addRow(w *writer, list int, t *table, at int) {
	w.pending++
	r := &t.rows[at]
	domain, rule, value := t.texts(r)
	outcome := r.outcome &^ furtherBit
	row := Row{
		Minute: int64(r.minute), Domain: string(domain), Rule: string(rule), Outcome: outcomeWord(outcome),
		Requests: r.requests, Cost: r.cost,
	}
	switch list {
	case keys:
		row.Outcome, row.Name = "", w.names.of(countedKey, value)
		row.Refused, row.Cost = r.cost, 0
	case endpoints:
		row.Name = string(value)
		for i, n := range s.page.latencies[at] {
			if n > 0 {
				row.Latency.Buckets = append(row.Latency.Buckets, Bucket{Index: i, N: int64(n)})
			}
		}
	case caches:
		row = Row{Minute: row.Minute, Domain: row.Domain, Name: "denials", Hits: r.requests, Misses: r.cost}
	case calls:
		row.Name, row.Rule, row.Endpoint = w.names.of(r.kind, value), "", string(rule)
	case identities, tenants:
		row.Name = w.names.of(r.kind, value)
		if outcome == r.outcome {
			whole := row
			whole.Rule = ""
			w.add(list, &whole)
		}
		if len(rule) == 0 {
			return
		}
		row.Cost = r.charged
	}
	w.add(list, &row)
}

// addRests adds what has no row.
func (s *usageSource) addRests(w *writer) {
	for list := range s.page.rest {
		for of := range s.page.rest[list] {
			for outcome, r := range s.page.rest[list][of] {
				if r.requests != 0 || r.cost != 0 {
					row := Row{
						Minute: int64(r.minute), Domain: Others, Rule: [...]string{"", Others}[of], Name: Others,
						Outcome: outcomeWord(uint8(outcome)), Requests: r.requests, Cost: r.cost,
					}
					if list == calls {
						row.Endpoint = Others
					}
					w.add(list, &row)
				}
			}
		}
	}
}

// addCaches adds what the caches have answered since they were last asked. It returns false where an entry was given
// up.
func (s *usageSource) addCaches(w *writer) bool {
	if s.cfg.Caches == nil {
		return true
	}
	for _, c := range s.cfg.Caches() {
		of := [2]string{c.Domain, c.Name}
		last := s.caches[of]
		if c == last {
			continue
		}
		s.caches[of] = c
		w.add(caches, &Row{Minute: s.cfg.Now().Unix() / 60, Domain: cut(c.Domain, maxName), Name: c.Name,
			Hits: c.Hits - last.Hits, Misses: c.Misses - last.Misses})
		if !w.ship(entryBytes) {
			return false
		}
	}
	return true
}

// eventSource takes the events that the stripes hold.
type eventSource struct {
	collector *collector
	events    *events // that were taken from a stripe; empty between two stripes
	row       Event
}

func newEventSource(c *collector) *eventSource {
	return &eventSource{collector: c, events: newEvents()}
}

// collect adds the events to the next entries. It returns false where one was given up.
func (s *eventSource) collect(w *writer) bool {
	for i := range s.collector.stripes {
		stripe := &s.collector.stripes[i]
		stripe.mu.Lock()
		stripe.events, s.events = s.events, stripe.events
		stripe.mu.Unlock()
		w.taken += int64(len(s.events.marks))
		w.dropped += s.events.dropped
		for at := range s.events.marks {
			s.addEvent(w, &s.events.marks[at])
			if !w.ship(entryBytes) {
				return false
			}
		}
		s.events.empty()
	}
	return true
}

// left is how many events came since the last collect.
func (s *eventSource) left() (n int64) {
	for i := range s.collector.stripes {
		stripe := &s.collector.stripes[i]
		stripe.mu.Lock()
		n += int64(len(stripe.events.marks))
		stripe.mu.Unlock()
	}
	return n
}

func (s *eventSource) addEvent(w *writer, m *mark) {
	w.pending++
	of := func(which int) string { return string(s.events.of(m, which)) }
	s.row = Event{
		At: m.at, Domain: of(textDomain), Outcome: outcomeWord(m.outcome), Rule: of(textRule),
		Identity: w.names.of(m.kind, s.events.of(m, textIdentity)),
		Tenant:   w.names.of(Tenant, s.events.of(m, textTenant)),
		APIKey:   w.names.key(s.events.of(m, textAPIKey), m.keyID),
		IP:       w.names.bare(Address, s.events.of(m, textIP)), Method: of(textMethod), Endpoint: of(textEndpoint),
		Count: m.count, Limit: m.limit, Cost: m.cost, Status: int(m.status), RetryAfter: max(m.retryAfter, 0).Seconds(),
		Latency: m.latency.Microseconds(), Weight: int64(m.weight),
	}
	w.add(singleEvents, &s.row)
}

// outcomeWord is the word of an outcome.
func outcomeWord(o uint8) string { return engine.Outcome(o).String() }
