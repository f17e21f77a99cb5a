package control

import (
	"context"
	"time"
)

// Latencies are how long decisions about one identity took, in milliseconds. They come from events: all refusals, and samples of the other requests, each of which counts for those
// that it stands for.
type Latencies struct {
	Samples int64    `json:"samples"` // events
	P50     *float64 `json:"p50"`     // null: there are no events
	P95     *float64 `json:"p95"`
	P99     *float64 `json:"p99"`
}

// LatencyPoint is the latencies of one step of time.
type LatencyPoint struct {
	At time.Time `json:"at"`
	Latencies
}

// quantiles are the columns of Latencies, of a list of latencies.
const quantiles = `samples, latency_quantile(all_latencies(latencies), 0.5) AS p50, latency_quantile(all_latencies(latencies), 0.95) AS p95, latency_quantile(all_latencies(latencies), 0.99) AS p99`

// latencyPoints are the latencies of an identity by steps of time. Those of minutes are read from the events themselves, which stay as long as tables of minutes do;
// those of days are merged from hours.
func (d *Database) latencyPoints(ctx context.Context, u *Usage) ([]LatencyPoint, error) {
	source := `SELECT date_trunc($5, at, 'UTC') AS at, sum(samples)::bigint AS samples, sum_few_latencies(latencies) AS latencies FROM identity_hours`
	if u.Step == stepMinute {
		source = `SELECT date_trunc($5, at, 'UTC') AS at, count(*) AS samples, sum_few_latencies(few_latencies(latency, weight)) AS latencies FROM events`
	}
	points, err := many[LatencyPoint](ctx, d.pool, `SELECT at, `+quantiles+` FROM (`+source+` WHERE domain = $1 AND identity = $2 AND at >= $3 AND at < $4 GROUP BY 1) AS added ORDER BY at`,
		u.Domain, u.Identity, u.From, u.To, u.Step)
	for i := range points {
		points[i].At = points[i].At.UTC()
	}
	return points, err
}

// addLatencies fills in the latencies of an identity.
func (d *Database) addLatencies(ctx context.Context, u *Usage) error {
	points, err := d.latencyPoints(ctx, u)
	if err != nil {
		return err
	}
	u.Latencies = listed(points)
	u.Latency, err = d.latencies(ctx, u.Domain, u.Identity, u.From, u.To)
	return err
}

// latencies are those of an identity in a time, by whole hours: that of from counts as a whole.
func (d *Database) latencies(ctx context.Context, domain, identity string, from, to time.Time) (*Latencies, error) {
	return one[Latencies](ctx, d.pool, `SELECT `+quantiles+` FROM (SELECT coalesce(sum(samples), 0)::bigint AS samples, sum_few_latencies(latencies) AS latencies
	  FROM identity_hours WHERE domain = $1 AND identity = $2 AND at >= $3 AND at < $4) AS added`, domain, identity, from.Truncate(time.Hour), to)
}
