package database

import (
	"context"
	"time"

	"github.com/spillway-mesh/spillway/journal"
)

// Latencies are how long decisions about one identity took, in milliseconds. They come from events: all refusals, and
// samples of the other requests, each of which counts as many times as its weight.
type Latencies struct {
	Samples int64    `json:"samples"` // events
	P50     *float64 `json:"p50"`     // null: without events
	P95     *float64 `json:"p95"`
	P99     *float64 `json:"p99"`
}

// LatencyPoint is the latencies of one step of time.
type LatencyPoint struct {
	At time.Time `json:"at"`
	Latencies
}

// latencyBucket is how many latencies of one step of time fell into one bucket.
type latencyBucket struct {
	At         time.Time
	Bucket     int64
	N, Samples int64 // samples are in the first bucket of each row alone
}

// latencyBuckets reads latencies of an identity, by steps of time. Those of minutes are read from the events
// themselves, which stay as long as tables of minutes do; those of days are merged from hours.
func (d *DB) latencyBuckets(
	ctx context.Context, domain, identity, step string, from, to time.Time,
) ([]latencyBucket, error) {
	source := `SELECT date_trunc($5, at, 'UTC') AS at, v >> 40 AS bucket, sum(v & 1099511627775)::bigint AS n,
	  coalesce(sum(samples) FILTER (WHERE place = 1), 0)::bigint AS samples
	  FROM identity_hours, unnest(latencies) WITH ORDINALITY AS l (v, place)`
	if step == StepMinute {
		source = `SELECT date_trunc($5, at, 'UTC') AS at, latency_bucket(latency) AS bucket, sum(weight)::bigint AS n,
		  count(*) AS samples FROM events`
	}
	return Many[latencyBucket](ctx, d.reads, source+` WHERE domain = $1 AND identity = $2 AND at >= $3 AND at < $4
	  GROUP BY 1, 2 ORDER BY 1, 2`, domain, identity, from, to, step)
}

// sampled is latencies that are being added up.
type sampled struct {
	sketch  journal.Sketch
	samples int64
}

func (s *sampled) merge(b *latencyBucket) {
	s.sketch.Merge(journal.Sketch{Buckets: []journal.Bucket{{Index: int(b.Bucket), N: b.N}}})
	s.samples += b.Samples
}

// latencies are the quantiles.
func (s *sampled) latencies() Latencies {
	l := Latencies{Samples: s.samples}
	if s.sketch.Count() == 0 {
		return l
	}
	of := func(q float64) *float64 {
		ms := s.sketch.Quantile(q).Seconds() * 1000
		return &ms
	}
	l.P50, l.P95, l.P99 = of(0.5), of(0.95), of(0.99)
	return l
}

// addLatencies fills in the latencies of an identity, by steps and of all time together.
func (d *DB) addLatencies(ctx context.Context, u *Usage) error {
	buckets, err := d.latencyBuckets(ctx, u.Domain, u.Identity, u.Step, u.From, u.To)
	if err != nil {
		return err
	}
	var whole, step sampled
	for i := range buckets {
		b := &buckets[i]
		whole.merge(b)
		step.merge(b)
		if i+1 == len(buckets) || !buckets[i+1].At.Equal(b.At) {
			u.Latencies = append(u.Latencies, LatencyPoint{b.At.UTC(), step.latencies()})
			step = sampled{}
		}
	}
	all := whole.latencies()
	u.Latency = &all
	return nil
}

// latencies are those of an identity in a time, by whole hours: that of from counts as a whole.
func (d *DB) latencies(ctx context.Context, domain, identity string, from, to time.Time) (*Latencies, error) {
	buckets, err := d.latencyBuckets(ctx, domain, identity, StepDay, from.Truncate(time.Hour), to)
	var whole sampled
	for i := range buckets {
		whole.merge(&buckets[i])
	}
	all := whole.latencies()
	return &all, err
}
