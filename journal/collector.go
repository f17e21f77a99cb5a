package journal

import (
	"crypto/sha256"
	"encoding/hex"
	"hash/maphash"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/spillway-mesh/spillway/engine"
)

// Bounds of the memory. TestTheMemoryIsBounded adds it up.
const (
	stripes      = 8
	identityRows = 6 << 10   // of a stripe
	identityText = 312 << 10 // bytes of a stripe
	tenantRows   = 512
	tenantText   = 24 << 10
	callRows     = 1536
	callText     = 112 << 10
	denialRows   = 64
	denialText   = 4 << 10
	endpointRows = 192 // of a stripe
	endpointText = 20 << 10
	keyRows      = 1 << 10
	keyText      = 40 << 10
	eventRows    = 2 << 10 // of a stripe
	eventText    = 256 << 10

	foldedPart  = 8    // one part in so many of a table is for rows that others are folded into
	maxValue    = 1024 // bytes of an identity or a key; of a longer one Short is recorded
	maxName     = 128  // bytes of a domain or a rule that are kept
	maxEndpoint = 256  // bytes of an endpoint that are kept
	maxShort    = 64   // bytes of a method or an address that are kept in an event
	histogram   = 192  // buckets of latency; the last one holds all above 73 seconds
)

// page is what one stripe collects until it is taken.
type page struct {
	identities *table
	tenants    *table // the rows of tenants, of all requests that name one
	calls      *table // of users and API keys to endpoints: the rule of a row is the endpoint, the minute its hour
	endpoints  *table
	latencies  [][histogram]uint32 // of the rows of endpoints
	keys       *table              // of API keys: cost is what was refused
	denials    *table              // of domains: requests is what remembered refusals answered, cost what they did not
	rest       [keys]rests         // what has no row, by the list of an entry
	dropped    [caches + 1]int64   // rows without room, likewise; all but those of keys and caches were folded
}

// rests is what was folded when not even the rows for that had room: whole requests and charges of rules, by outcome.
type rests [2][engine.Outcomes]restRow

type restRow struct {
	minute         uint32
	requests, cost int64
}

func newPage() *page {
	p := &page{identities: newTable(identityRows, identityText), tenants: newTable(tenantRows, tenantText),
		calls: newTable(callRows, callText), endpoints: newTable(endpointRows, endpointText),
		keys: newTable(keyRows, keyText), denials: newTable(denialRows, denialText)}
	p.latencies = roomOf[[histogram]uint32](p, endpointRows)
	return p
}

func (p *page) bytes() int64 {
	n := int64(len(p.latencies)) * histogram * 4
	for _, t := range p.tables() {
		n += t.bytes()
	}
	return n
}

// tables returns the tables, by the list of an entry that their rows are in.
func (p *page) tables() [caches + 1]*table {
	return [caches + 1]*table{p.identities, p.tenants, p.calls, p.endpoints, p.keys, p.denials}
}

// rows returns how many rows the page has.
func (p *page) rows() (n int) {
	for _, t := range p.tables() {
		n += len(t.rows)
	}
	return n
}

// empty forgets all, and keeps the memory.
func (p *page) empty() {
	clear(p.latencies[:len(p.endpoints.rows)])
	for _, t := range p.tables() {
		t.empty()
	}
	p.rest, p.dropped = [keys]rests{}, [caches + 1]int64{}
}

// add adds to the row of a key in the table of a list, or to that of others.
func (s *stripe) add(list int, t *table, k key, n amount) {
	if t.add(&k, n, foldedPart) >= 0 {
		return
	}
	s.page.dropped[list]++
	s.dropped[list].Add(1)
	k = k.of(folded, Others)
	if list == calls {
		k = k.under(Others, false)
	}
	if t.add(&k, n, 0) >= 0 {
		return
	}
	if list == calls {
		k.rule = ""
	}
	s.page.rest[list].addRest(&k, n)
}

// identity adds a decision to the rows of an identity, or of a tenant: one for each rule.
func (s *stripe) identity(list int, t *table, k key, d *Decided) {
	if len(d.Rules) == 0 {
		s.add(list, t, k, amount{requests: d.Requests, cost: d.Cost})
	}
	for i := range d.Rules {
		s.add(list, t, k.under(cut(d.Rules[i].Rule, maxName), i > 0), amount{d.Requests, d.Cost, d.Rules[i].Cost})
	}
}

// key adds to the row of an API key. Without room the requests are missing in the total of the key.
func (s *stripe) key(k key, d *Decided) {
	n := amount{requests: d.Requests}
	if d.Refused {
		n.cost = d.Requests
	}
	if s.page.keys.add(&k, n, 0) < 0 {
		s.page.dropped[keys]++
		s.dropped[keys].Add(1)
	}
}

// denials adds to the row of a domain. Without room the answers are missing in the total of the cache.
func (s *stripe) denials(k key, d *Decided) {
	k.outcome = 0
	k = k.of(NoKind, "")
	if s.page.denials.add(&k, amount{requests: d.Known, cost: d.Unknown}, 0) < 0 {
		s.page.dropped[caches]++
		s.dropped[caches].Add(1)
	}
}

// endpoint adds to the row of an endpoint.
func (s *stripe) endpoint(k key, d *Decided) {
	p := s.page
	n := amount{requests: d.Requests, cost: d.Cost}
	at := p.endpoints.add(&k, n, foldedPart)
	if at < 0 {
		p.dropped[endpoints]++
		s.dropped[endpoints].Add(1)
		k = k.of(folded, Others)
		at = p.endpoints.add(&k, n, 0)
	}
	switch {
	case at < 0:
		k.rule = ""
		p.rest[endpoints].addRest(&k, n)
	case d.Requests > 0:
		p.latencies[at][min(BucketOf(d.Latency), histogram-1)]++
	}
}

// event adds an event, and reports whether there are many.
func (s *stripe) event(d *Decided) bool {
	added, many := s.events.add(d)
	if !added {
		s.dropped[singleEvents].Add(1)
	}
	return many
}

func (r *rests) addRest(k *key, n amount) {
	outcome := k.outcome &^ furtherBit
	if k.outcome == outcome {
		r[0][outcome].addOutcome(k.minute, n.requests, n.cost)
	}
	if k.rule != "" {
		r[1][outcome].addOutcome(k.minute, n.requests, n.charged)
	}
}

func (r *restRow) addOutcome(minute uint32, requests, cost int64) {
	if r.requests == 0 && r.cost == 0 {
		r.minute = minute
	}
	r.requests += requests
	r.cost += cost
}

// stripe collects a part of what is decided.
type stripe struct {
	mu     sync.Mutex // guards page and events
	page   *page
	events *events

	dropped [lists]atomic.Int64 // rows without room so far
	_       [64]byte            // so that two stripes do not share a cache line
}

// collector takes in what is decided, in a memory that does not grow.
type collector struct {
	stripes [stripes]stripe
	oneIn   uint32           // one in so many of the decisions that refuse nothing becomes an event; 0: none
	wakes   [2]chan struct{} // of the writers of usage and of events: there is much
}

func newCollector(oneIn uint32) *collector {
	c := &collector{oneIn: oneIn, wakes: [2]chan struct{}{make(chan struct{}, 1), make(chan struct{}, 1)}}
	for i := range c.stripes {
		c.stripes[i].page, c.stripes[i].events = newPage(), newEvents()
	}
	return c
}

// note adds one decision to usage, and to the events if it is one.
func (c *collector) note(d *Decided) {
	kind := d.Kind
	if d.Identity == "" {
		kind = NoKind
	}
	domain := cut(d.Domain, maxName)
	k := key{
		minute: uint32(d.At.Unix() / 60), outcome: uint8(min(d.Outcome, engine.Outcomes-1)),
		domain: domain, domainHash: maphash.String(seed, domain),
	}.of(kind, Short(d.Identity))
	much, manyEvents := c.stripes[k.valueHash%stripes].note(d, k)
	if d.Key != "" && d.Requests > 0 {
		much = c.noteKey(d, k) || much
	}
	if d.Tenant != "" {
		much = c.noteTenant(d, k) || much
	}
	c.noteEndpoint(d, k.under(cut(d.Rule, maxName), false), much)
	if manyEvents {
		wake(c.wakes[1])
	}
}

// note adds a decision to the rows of its identity, and to the events if it is one. It reports whether there are many.
func (s *stripe) note(d *Decided, k key) (much, manyEvents bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.identity(identities, s.page.identities, k, d)
	if d.Endpoint != "" && (k.kind == User || k.kind == APIKey) {
		call := k.under(cut(d.Endpoint, maxEndpoint), false)
		call.minute -= call.minute % 60
		s.add(calls, s.page.calls, call, amount{requests: d.Requests, cost: d.Cost})
	}
	if d.Known+d.Unknown > 0 {
		s.denials(k, d)
	}
	return s.page.identities.half() || s.page.calls.half(), d.Event != nil && s.event(d)
}

// noteKey adds a decision to its API key, which may be in another stripe than the identity: one user may have many
// keys. It reports whether there are many.
func (c *collector) noteKey(d *Decided, k key) bool {
	k.outcome = 0
	k = k.of(countedKey, Short(d.Key))
	s := &c.stripes[k.valueHash%stripes]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.key(k, d)
	return s.page.keys.half()
}

// noteTenant adds a decision to its tenant, which may be in another stripe than the identity. It reports whether there
// are many.
func (c *collector) noteTenant(d *Decided, k key) bool {
	k = k.of(Tenant, Short(d.Tenant))
	s := &c.stripes[k.valueHash%stripes]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.identity(tenants, s.page.tenants, k, d)
	return s.page.tenants.half()
}

// noteEndpoint adds a decision to its endpoint, which may be in another stripe than the identity. The key names the
// rule that decided.
func (c *collector) noteEndpoint(d *Decided, k key, much bool) {
	k = k.of(NoKind, cut(d.Endpoint, maxEndpoint))
	s := &c.stripes[k.valueHash%stripes]
	s.mu.Lock()
	s.endpoint(k, d)
	much = much || s.page.endpoints.half()
	s.mu.Unlock()
	if much {
		wake(c.wakes[0])
	}
}

// weight returns how many decisions the event of this one counts for; 0: without an event.
func (c *collector) weight(refused bool) int64 {
	switch {
	case refused:
		return 1
	case c.oneIn > 0 && (c.oneIn == 1 || rand.Uint32N(c.oneIn) == 0):
		return int64(c.oneIn)
	}
	return 0
}

// wake makes a writer begin before its second is over.
func wake(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// shownValue is how many bytes of a long identity are recorded as they are.
const shownValue = 128

// Short returns what is recorded of an identity: the whole of it, or of one above 1,024 bytes its beginning and the
// SHA-256 of all of it. So the usage of a client that chooses long names for itself is not nameless.
func Short(identity string) string {
	if len(identity) <= maxValue {
		return identity
	}
	digest := sha256.Sum256([]byte(identity))
	return strings.ToValidUTF8(cut(identity, shownValue), "") + "~" + hex.EncodeToString(digest[:])
}

// cut returns the beginning of a text, of at most that many bytes.
func cut(text string, most int) string {
	if len(text) > most {
		return text[:most]
	}
	return text
}

// dropped returns how many rows of a kind were dropped so far.
func (c *collector) dropped(which int) int64 {
	total := int64(0)
	for i := range c.stripes {
		total += c.stripes[i].dropped[which].Load()
	}
	return total
}
