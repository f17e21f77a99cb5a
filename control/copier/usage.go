package copier

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spillway-mesh/spillway/journal"
)

// usageKey names a row of usage. Subject is an identity, an endpoint or a cache.
type usageKey struct {
	at                             int64 // Unix time of the minute, hour or day
	domain, subject, rule, outcome string
}

func (k usageKey) compare(o usageKey) int {
	return cmp.Or(strings.Compare(k.domain, o.domain), strings.Compare(k.subject, o.subject), strings.Compare(k.rule, o.rule), cmp.Compare(k.at, o.at), strings.Compare(k.outcome, o.outcome))
}

// sums are what is added to a row: requests and cost, requests of a key and those of them that were refused, or hits and misses.
type sums struct {
	first, second int64
	last          int64 // of what a key was used for: Unix time of the minute
	latency       journal.Sketch
}

// ledger is usage of one kind, added up by one step of time.
type ledger map[usageKey]*sums

func (l ledger) at(k usageKey) *sums {
	s := l[k]
	if s == nil {
		s = &sums{}
		l[k] = s
	}
	return s
}

// coarser adds a ledger up by longer steps. A step is a number of seconds of UTC.
func (l ledger) coarser(step int64) ledger {
	to := ledger{}
	for k, s := range l {
		k.at -= k.at % step
		t := to.at(k)
		t.first, t.second = t.first+s.first, t.second+s.second
		t.latency.Merge(s.latency)
	}
	return to
}

// book is the usage of entries, by minute.
type book struct{ identities, endpoints, keys, caches ledger }

// add adds an entry, and returns how many of its rows were moved to now.
func (b *book) add(u *journal.Usage, now time.Time) (moved int64) {
	minute := func(n int64) int64 {
		at, was := when(time.Unix(n*60, 0), now)
		if was {
			moved++
		}
		return at.Unix() - at.Unix()%60
	}
	for i := range u.Identities {
		r := &u.Identities[i]
		s := b.identities.at(usageKey{minute(r.Minute), r.Domain, r.Identity, r.Rule, r.Outcome})
		s.first, s.second = s.first+r.Requests, s.second+r.Cost
	}
	for i := range u.Endpoints {
		r := &u.Endpoints[i]
		s := b.endpoints.at(usageKey{minute(r.Minute), r.Domain, r.Endpoint, r.Rule, r.Outcome})
		s.first, s.second = s.first+r.Requests, s.second+r.Cost
		s.latency.Merge(r.Latency)
	}
	for i := range u.Keys {
		r := &u.Keys[i]
		s := b.keys.at(usageKey{at: minute(r.Minute), domain: r.Domain, subject: r.Key})
		s.first, s.second = s.first+r.Requests, s.second+r.Refused
	}
	for i := range u.Caches {
		r := &u.Caches[i]
		s := b.caches.at(usageKey{at: minute(r.Minute), subject: r.Cache})
		s.first, s.second = s.first+r.Hits, s.second+r.Misses
	}
	return moved
}

// steps are the steps of time of usage, as tables call them, in seconds.
var steps = []struct {
	name    string
	seconds int64
}{{"minutes", 60}, {"hours", hour}, {"days", 86400}}

// addUsage adds the usage of entries to what is stored.
func (r *Recorder) addUsage(ctx context.Context, tx pgx.Tx, sources map[string]*source, items []*item, now time.Time) error {
	b := book{ledger{}, ledger{}, ledger{}, ledger{}}
	for _, i := range items {
		sources[i.Sidecar].moved += b.add(i.usage, now)
	}
	for _, step := range steps {
		identities, endpoints, caches := b.identities, b.endpoints, b.caches
		if step.seconds > 60 {
			identities, endpoints, caches = identities.coarser(step.seconds), endpoints.coarser(step.seconds), caches.coarser(step.seconds)
		}
		err := addIdentities(ctx, tx, step.name, identities)
		if err == nil {
			err = addEndpoints(ctx, tx, step.name, endpoints)
		}
		if err == nil {
			err = addCaches(ctx, tx, step.name, caches)
		}
		if err != nil {
			return fmt.Errorf("add usage by %s: %w", step.name, err)
		}
		r.passed(step.name)
	}
	err := r.countKeys(ctx, tx, b.keys)
	if err != nil {
		return err
	}
	r.passed("keys")
	return countUsers(ctx, tx, b.identities)
}

// sorted are the keys of a ledger in one order, so that two transactions lock rows in the same one.
func (l ledger) sorted() []usageKey { return slices.SortedFunc(maps.Keys(l), usageKey.compare) }

// addIdentities adds to usage_minutes, usage_hours or usage_days.
func addIdentities(ctx context.Context, tx pgx.Tx, step string, l ledger) error {
	if len(l) == 0 {
		return nil
	}
	at := map[bool]string{true: "minute", false: "at"}[step == "minutes"]
	c := newColumns(7)
	for _, k := range l.sorted() {
		s := l[k]
		c.add(time.Unix(k.at, 0), k.domain, k.rule, k.subject, k.outcome, s.first, s.second)
	}
	_, err := tx.Exec(ctx, `INSERT INTO usage_`+step+` AS t (`+at+`, domain, rule, identity, outcome, requests, cost)
	  SELECT * FROM unnest($1::timestamptz[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[])
	  ON CONFLICT (domain, identity, rule, `+at+`, outcome) DO UPDATE SET requests = t.requests + excluded.requests, cost = t.cost + excluded.cost`, c.lists()...)
	return err
}

// addEndpoints adds to endpoint_minutes, endpoint_hours or endpoint_days.
func addEndpoints(ctx context.Context, tx pgx.Tx, step string, l ledger) error {
	if len(l) == 0 {
		return nil
	}
	c := newColumns(8)
	for _, k := range l.sorted() {
		s := l[k]
		c.add(time.Unix(k.at, 0), k.domain, k.rule, k.subject, k.outcome, s.first, s.second, latencies(&s.latency))
	}
	_, err := tx.Exec(ctx, `INSERT INTO endpoint_`+step+` AS t (at, domain, rule, endpoint, outcome, requests, cost, latencies)
	  SELECT a, d, r, e, o, n, c, l::bigint[] FROM unnest($1::timestamptz[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::text[]) AS u (a, d, r, e, o, n, c, l)
	  ON CONFLICT (domain, at, rule, endpoint, outcome) DO UPDATE SET requests = t.requests + excluded.requests, cost = t.cost + excluded.cost,
	    latencies = add_latencies(t.latencies, excluded.latencies)`, c.lists()...)
	return err
}

// latencies is a sketch as the text of a list of PostgreSQL: lists of lists have one length there, and these differ.
func latencies(s *journal.Sketch) string {
	var b strings.Builder
	b.WriteByte('{')
	next := 0
	for _, bucket := range s.Buckets {
		for ; next < bucket.Index; next++ {
			b.WriteString("0,")
		}
		fmt.Fprintf(&b, "%d,", bucket.N)
		next++
	}
	return strings.TrimSuffix(b.String(), ",") + "}"
}

// addCaches adds to cache_minutes, cache_hours or cache_days.
func addCaches(ctx context.Context, tx pgx.Tx, step string, l ledger) error {
	if len(l) == 0 {
		return nil
	}
	c := newColumns(4)
	for _, k := range l.sorted() {
		s := l[k]
		c.add(time.Unix(k.at, 0), k.subject, s.first, s.second)
	}
	_, err := tx.Exec(ctx, `INSERT INTO cache_`+step+` AS t (at, cache, hits, misses) SELECT * FROM unnest($1::timestamptz[], $2::text[], $3::bigint[], $4::bigint[])
	  ON CONFLICT (at, cache) DO UPDATE SET hits = t.hits + excluded.hits, misses = t.misses + excluded.misses`, c.lists()...)
	return err
}

// columns are rows for unnest, by columns.
type columns struct{ all []any }

func newColumns(n int) *columns { return &columns{make([]any, n)} }

// add adds a row. Each column keeps the type of its first value.
func (c *columns) add(row ...any) {
	for i, value := range row {
		switch v := value.(type) {
		case string:
			c.all[i] = append(listOf[string](c.all[i]), v)
		case int64:
			c.all[i] = append(listOf[int64](c.all[i]), v)
		case bool:
			c.all[i] = append(listOf[bool](c.all[i]), v)
		case time.Time:
			c.all[i] = append(listOf[time.Time](c.all[i]), v)
		default:
			panic(fmt.Sprintf("a column of %T", value))
		}
	}
}

func listOf[T any](column any) []T {
	list, _ := column.([]T) // the first one is nil
	return list
}

// lists are the columns, as arguments of a statement.
func (c *columns) lists() []any { return c.all }
