package copier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spillway-mesh/spillway/journal"
)

// maxHole is how many entries may be missing before one: a sequence above that is not believed.
const maxHole = 1 << 32

var errNoPlace = errors.New("the sequence is too far from the one before")

// outcome is what became of entries that were read together.
type outcome struct {
	entries, rows, again, missing, dropped, moved int64
	refused                                       []*item
}

// source is what a transaction adds to a row of record_sources.
type source struct {
	last                                   int64 // sequence that is stored
	fresh                                  bool  // an entry is new
	region                                 string
	ended                                  bool
	dropped, missing, rows, moved, refused int64
}

// copy stores the entries that are not stored yet.
func (r *Recorder) copy(ctx context.Context, tx pgx.Tx, stream string, items []*item) (outcome, error) {
	var done outcome
	sources, err := readSources(ctx, tx, stream, items)
	if err == nil {
		err = refuseForgotten(ctx, tx, stream, sources, items)
	}
	if err != nil {
		return done, fmt.Errorf("read how far the sidecars are stored: %w", err)
	}
	r.passed("sources")
	fresh := done.choose(sources, items)
	now := r.now().UTC()
	if stream == journal.EventsStream {
		err = r.copyEvents(ctx, tx, sources, fresh, now)
	} else {
		err = r.addUsage(ctx, tx, sources, fresh, now)
	}
	if err != nil {
		return done, err
	}
	r.passed("rows")
	err = writeRefused(ctx, tx, stream, done.refused)
	if err == nil {
		err = writeSources(ctx, tx, stream, sources)
	}
	if err != nil {
		return done, err
	}
	for _, s := range sources {
		done.moved += s.moved
	}
	r.passed("noted")
	return done, nil
}

// choose returns the entries that are not stored yet and can be, and notes in the sources what the entries say of themselves.
func (o *outcome) choose(sources map[string]*source, items []*item) (fresh []*item) {
	for _, i := range items {
		s := sources[i.Sidecar]
		if s == nil || i.Sequence < 1 || i.Sequence-s.last > maxHole { // where it belongs is not known
			i.refuse(cmp.Or(i.bad, errNoPlace))
			o.refused = append(o.refused, i)
			continue
		}
		if i.Sequence <= s.last {
			o.again++
			continue
		}
		s.missing += i.Sequence - s.last - 1
		o.missing += i.Sequence - s.last - 1
		s.last, s.fresh, s.region, s.ended = i.Sequence, true, i.Region, s.ended || i.Ended
		s.dropped += i.Dropped
		o.dropped += i.Dropped
		if i.bad != nil {
			s.refused++
			o.refused = append(o.refused, i)
			continue
		}
		o.entries, o.rows = o.entries+1, o.rows+i.rows()
		s.rows += i.rows()
		fresh = append(fresh, i)
	}
	return fresh
}

// readSources locks the rows of the sidecars of entries. A sidecar that is new has a source without a row.
func readSources(ctx context.Context, tx pgx.Tx, stream string, items []*item) (map[string]*source, error) {
	sources := map[string]*source{}
	var names []string
	for _, i := range items {
		if i.Sidecar != "" && i.Sequence > 0 && sources[i.Sidecar] == nil {
			sources[i.Sidecar] = &source{}
			names = append(names, i.Sidecar)
		}
	}
	rows, err := tx.Query(ctx, `SELECT sidecar, sequence FROM record_sources WHERE stream = $1 AND sidecar = ANY ($2) ORDER BY sidecar FOR UPDATE`, stream, names)
	if err != nil {
		return nil, err
	}
	var name string
	var last int64
	_, err = pgx.ForEachRow(rows, []any{&name, &last}, func() error {
		sources[name].last = last
		return nil
	})
	return sources, err
}

// writeSources notes how far the sidecars are stored.
func writeSources(ctx context.Context, tx pgx.Tx, stream string, sources map[string]*source) error {
	c := newColumns(9)
	for name, s := range sources {
		if s.fresh {
			c.add(name, s.last, s.region, s.ended, s.dropped, s.missing, s.rows, s.moved, s.refused)
		}
	}
	const sql = `INSERT INTO record_sources AS r (sidecar, stream, sequence, region, ended, dropped, missing, rows, moved, refused)
	  SELECT n, $10, s, g, e, d, m, w, v, f FROM unnest($1::text[], $2::bigint[], $3::text[], $4::boolean[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[])
	    AS u (n, s, g, e, d, m, w, v, f)
	  ON CONFLICT (sidecar, stream) DO UPDATE SET sequence = excluded.sequence, region = CASE WHEN excluded.region = '' THEN r.region ELSE excluded.region END,
	    ended = r.ended OR excluded.ended, dropped = r.dropped + excluded.dropped, missing = r.missing + excluded.missing, rows = r.rows + excluded.rows,
	    moved = r.moved + excluded.moved, refused = r.refused + excluded.refused, last_at = now()
	  WHERE r.sequence < excluded.sequence`
	_, err := tx.Exec(ctx, sql, append(c.lists(), stream)...)
	if err != nil {
		return fmt.Errorf("note how far the sidecars are stored: %w", err)
	}
	return nil
}

// writeRefused notes entries that cannot be stored, and forgets the oldest of those before.
func writeRefused(ctx context.Context, tx pgx.Tx, stream string, refused []*item) error {
	if len(refused) == 0 {
		return nil
	}
	for _, i := range refused {
		reason := cleaned(i.bad.Error())
		_, err := tx.Exec(ctx, `INSERT INTO record_refused (stream, entry, sidecar, sequence, bytes, reason) VALUES ($1, $2, $3, $4, $5, left($6, 500))`,
			stream, i.id, text(i.Sidecar), i.Sequence, i.bytes, reason)
		if err != nil {
			return fmt.Errorf("note an entry that cannot be stored: %w", err)
		}
	}
	_, err := tx.Exec(ctx, `DELETE FROM record_refused WHERE id <= (SELECT max(id) FROM record_refused) - $1`, keepRefused)
	return err
}

// eventColumns are those of the table, in the order of copyEvents.
var eventColumns = []string{
	"at", "sidecar", "sequence", "place", "domain", "outcome", "rule", "identity", "api_key", "ip", "method", "endpoint", "count", "count_limit", "cost", "status",
	"retry_after", "latency", "region", "weight",
}

// copyEvents stores events by COPY, and adds them to the latencies of identities.
func (r *Recorder) copyEvents(ctx context.Context, tx pgx.Tx, sources map[string]*source, items []*item, now time.Time) error {
	n, place, sampled := 0, -1, ledger{}
	next := func() ([]any, error) {
		place++
		for n < len(items) && place == len(items[n].events) {
			n, place = n+1, 0
		}
		if n == len(items) {
			return nil, nil
		}
		i, e := items[n], &items[n].events[place]
		at, moved := when(time.UnixMicro(e.At), now)
		if moved {
			sources[i.Sidecar].moved++
		}
		sampled.sample(e, at)
		return []any{
			at, i.Sidecar, i.Sequence, int32(place), e.Domain, e.Outcome, e.Rule, e.Identity, e.APIKey, e.IP, e.Method, e.Endpoint, e.Count, e.Limit, e.Cost, int16(e.Status), //nolint:gosec // checkEvents bounds it
			float32(e.RetryAfter), float32(float64(e.Latency) / 1000), i.Region, int32(e.Weight), //nolint:gosec // likewise
		}, nil
	}
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"events"}, eventColumns, pgx.CopyFromFunc(next))
	if err != nil {
		return fmt.Errorf("copy events: %w", err)
	}
	r.passed("events")
	return addLatencies(ctx, tx, sampled)
}
