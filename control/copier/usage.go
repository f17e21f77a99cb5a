package copier

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spillway-mesh/spillway/journal"
)

// usageKey is what rows of usage are told apart by.
type usageKey struct {
	at                          int64  // Unix time at which the minute, hour or day begins
	domain, name, rule, outcome string // of calls the rule is the endpoint
}

func (k usageKey) compare(o usageKey) int {
	return cmp.Or(strings.Compare(k.domain, o.domain), strings.Compare(k.name, o.name), strings.Compare(k.rule, o.rule),
		cmp.Compare(k.at, o.at), strings.Compare(k.outcome, o.outcome))
}

// sums are what is added to a row.
type sums struct {
	count   int64 // requests, hits of a cache, or samples of latencies
	amount  int64 // cost, of keys the refused requests, of caches the misses
	latency journal.Sketch
}

// ledger is usage of one kind, added up by one step of time.
type ledger map[usageKey]*sums

// at returns the sums of a key, whose time is rounded down to a step of so many seconds of UTC.
func (l ledger) at(k usageKey, step int64) *sums {
	k.at -= k.at % step
	s := l[k]
	if s == nil {
		s = &sums{}
		l[k] = s
	}
	return s
}

// coarser adds a ledger up by longer steps.
func (l ledger) coarser(step int64) ledger {
	to := ledger{}
	for k, s := range l {
		t := to.at(k, step)
		t.count, t.amount = t.count+s.count, t.amount+s.amount
		t.latency.Merge(s.latency)
	}
	return to
}

// step is a step of time of usage.
type step struct {
	name    string // in the names of tables
	seconds int64
}

var steps = []step{{"minutes", 60}, {"hours", 3600}, {"days", 86400}}

// table is the statement that adds to the tables of one kind: {step} is the name of the step, {at} the column of time,
// and {rows} has the columns at, domain, name, rule, outcome, count, amount and latencies.
type table string

const (
	usageTable table = `INSERT INTO usage_{step} AS t ({at}, domain, rule, identity, outcome, requests, cost)
	  SELECT at, domain, rule, name, outcome, count, amount FROM {rows}
	  ON CONFLICT (domain, identity, rule, {at}, outcome)
	  DO UPDATE SET requests = t.requests + excluded.requests, cost = t.cost + excluded.cost`

	tenantTable table = `INSERT INTO tenant_{step} AS t (at, domain, rule, identity, outcome, requests, cost)
	  SELECT at, domain, rule, name, outcome, count, amount FROM {rows}
	  ON CONFLICT (domain, identity, rule, at, outcome)
	  DO UPDATE SET requests = t.requests + excluded.requests, cost = t.cost + excluded.cost`

	callTable table = `INSERT INTO call_{step} AS t (at, domain, identity, endpoint, outcome, requests, cost)
	  SELECT at, domain, name, rule, outcome, count, amount FROM {rows}
	  ON CONFLICT (domain, identity, at, endpoint, outcome)
	  DO UPDATE SET requests = t.requests + excluded.requests, cost = t.cost + excluded.cost`

	endpointTable table = `INSERT INTO endpoint_{step} AS t (at, domain, rule, endpoint, outcome, requests, cost,
	  latencies)
	  SELECT at, domain, rule, name, outcome, count, amount, all_latencies(latencies::bigint[]) FROM {rows}
	  ON CONFLICT (domain, at, rule, endpoint, outcome)
	  DO UPDATE SET requests = t.requests + excluded.requests, cost = t.cost + excluded.cost,
	    latencies = add_latencies(t.latencies, excluded.latencies)`

	cacheTable table = `INSERT INTO cache_{step} AS t (at, domain, cache, hits, misses)
	  SELECT at, domain, name, count, amount FROM {rows}
	  ON CONFLICT (domain, at, cache) DO UPDATE SET hits = t.hits + excluded.hits, misses = t.misses + excluded.misses`

	latencyTable table = `INSERT INTO identity_{step} AS t (at, domain, identity, samples, latencies)
	  SELECT at, domain, name, count, latencies::bigint[] FROM {rows}
	  ON CONFLICT (domain, identity, at) DO UPDATE SET samples = t.samples + excluded.samples,
	    latencies = add_few_latencies(t.latencies, excluded.latencies)`

	usageRows = `unnest($1::timestamptz[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[],
	  $8::text[])
	  AS u (at, domain, name, rule, outcome, count, amount, latencies)`
)

// addUp adds a ledger to the table of a step. The order of rows is always the same, so that two transactions lock them
// in the same one.
func (t table) addUp(ctx context.Context, tx pgx.Tx, by step, l ledger) error {
	at := "at"
	if t == usageTable && by.name == "minutes" {
		at = "minute"
	}
	var rows columns
	for _, k := range slices.SortedFunc(maps.Keys(l), usageKey.compare) {
		s := l[k]
		rows.append(time.Unix(k.at, 0), k.domain, k.name, k.rule, k.outcome, s.count, s.amount, latencies(&s.latency))
	}
	err := rows.exec(ctx, tx, strings.NewReplacer("{step}", by.name, "{at}", at, "{rows}",
		usageRows).Replace(string(t)))
	if err != nil {
		return fmt.Errorf("add up by %s: %w", by.name, err)
	}
	return nil
}

// used is the usage of entries, added up by minute.
type used struct{ identities, tenants, calls, endpoints, keys, caches ledger }

func (u *used) empty() bool {
	return len(u.identities)+len(u.tenants)+len(u.calls)+len(u.endpoints)+len(u.keys)+len(u.caches) == 0
}

// take adds the lists of an entry, and returns how many rows were moved to now.
func (u *used) take(r *journal.Rows, now time.Time) (moved int64) {
	whole := func(r *journal.Row) (int64, int64) { return r.Requests, r.Cost }
	return u.identities.take(r.Identities, now, whole) + u.tenants.take(r.Tenants, now, whole) +
		u.calls.take(r.Calls, now, whole) + u.endpoints.take(r.Endpoints, now, whole) +
		u.keys.take(r.Keys, now, func(r *journal.Row) (int64, int64) { return r.Requests, r.Refused }) +
		u.caches.take(r.Caches, now, func(r *journal.Row) (int64, int64) { return r.Hits, r.Misses })
}

// addUsage adds the usage of entries to what is stored.
func (c *Copier) addUsage(ctx context.Context, tx pgx.Tx, sources map[string]*source, items []*item,
	now time.Time) error {
	u := used{ledger{}, ledger{}, ledger{}, ledger{}, ledger{}, ledger{}}
	for _, i := range items {
		sources[i.Sidecar].moved += u.take(i.rows, now)
	}
	if u.empty() {
		return nil
	}
	for _, by := range steps {
		var failed error
		for _, one := range []struct {
			table table
			of    ledger
		}{{usageTable, u.identities}, {tenantTable, u.tenants}, {endpointTable, u.endpoints}, {cacheTable, u.caches}} {
			if failed == nil {
				failed = one.table.addUp(ctx, tx, by, one.of.coarser(by.seconds))
			}
		}
		if failed != nil {
			return failed
		}
		c.passed(by.name)
	}
	err := c.addCalls(ctx, tx, u.calls.coarser(steps[1].seconds))
	if err == nil {
		err = c.countKeys(ctx, tx, u.keys)
	}
	if err != nil {
		return err
	}
	c.passed("keys")
	return countUsers(ctx, tx, u.identities)
}

// take adds the two numbers of each row, and returns how many rows were moved to now.
func (l ledger) take(rows []journal.Row, now time.Time, numbers func(*journal.Row) (int64, int64)) (moved int64) {
	for i := range rows {
		r := &rows[i]
		at, was := when(time.Unix(r.Minute*60, 0), now)
		if was {
			moved++
		}
		s := l.at(usageKey{at.Unix(), r.Domain, r.Name, cmp.Or(r.Rule, r.Endpoint), r.Outcome}, 60)
		count, amount := numbers(r)
		s.count, s.amount = s.count+count, s.amount+amount
		s.latency.Merge(r.Latency)
	}
	return moved
}

// countBits are those of an element of latencies below its bucket.
const countBits = 40

// latencies is a sketch as the text of a list of PostgreSQL that holds the buckets that are not empty: lists of lists
// have one length there, and these differ.
func latencies(s *journal.Sketch) string {
	b := []byte{'{'}
	for i, bucket := range s.Buckets {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(bucket.Index)<<countBits|min(bucket.N, 1<<countBits-1), 10)
	}
	return string(append(b, '}'))
}
