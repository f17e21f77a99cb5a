package copier

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/spillway-mesh/spillway/journal"
)

const (
	hour      = 3600
	countBits = 40 // of an element of identity_hours.latencies, below its bucket
)

// sample adds an event to the latencies of its identity and hour.
func (l ledger) sample(e *journal.Event, at time.Time) {
	s := l.at(usageKey{at: at.Unix() - at.Unix()%hour, domain: e.Domain, subject: e.Identity})
	s.first++
	s.latency.Add(time.Duration(e.Latency)*time.Microsecond, e.Weight)
}

// addLatencies adds to identity_hours.
func addLatencies(ctx context.Context, tx pgx.Tx, l ledger) error {
	if len(l) == 0 {
		return nil
	}
	c := newColumns(5)
	for _, k := range l.sorted() {
		s := l[k]
		c.add(time.Unix(k.at, 0), k.domain, k.subject, s.first, fewLatencies(&s.latency))
	}
	_, err := tx.Exec(ctx, `INSERT INTO identity_hours AS t (at, domain, identity, samples, latencies)
	  SELECT a, d, i, n, l::bigint[] FROM unnest($1::timestamptz[], $2::text[], $3::text[], $4::bigint[], $5::text[]) AS u (a, d, i, n, l)
	  ON CONFLICT (domain, identity, at) DO UPDATE SET samples = t.samples + excluded.samples, latencies = add_few_latencies(t.latencies, excluded.latencies)`, c.lists()...)
	if err != nil {
		return fmt.Errorf("add latencies of identities: %w", err)
	}
	return nil
}

// fewLatencies is a sketch as the text of a list of PostgreSQL that holds the buckets that are not empty.
func fewLatencies(s *journal.Sketch) string {
	b := []byte{'{'}
	for i, bucket := range s.Buckets {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(bucket.Index)<<countBits|min(bucket.N, 1<<countBits-1), 10)
	}
	return string(append(b, '}'))
}
