package database

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/httpapi"
	"github.com/spillway-mesh/spillway/rules"
)

// The steps of time.
const (
	StepMinute = "minute"
	StepHour   = "hour"
	StepDay    = "day"
	StepTotal  = "total"
)

// tenantPrefix begins the name of a tenant in the record.
const tenantPrefix = "tenant:"

// refusing are the outcomes of requests that did not pass. All others were admitted.
var refusing = []string{"refused", "blocked", "malformed"}

// Usage is what an identity, or a whole domain, used in a time.
type Usage struct {
	Domain    string         `json:"domain"`
	Identity  string         `json:"identity"` // as the record names it; empty: all
	Rule      string         `json:"rule"`     // empty: whole requests
	From      time.Time      `json:"from"`
	To        time.Time      `json:"to"`
	Step      string         `json:"step"`
	Admitted  int64          `json:"admitted"` // requests
	Refused   int64          `json:"refused"`  // requests
	Cost      int64          `json:"cost"`     // of those that were admitted
	Points    []UsagePoint   `json:"points"`
	Latencies []LatencyPoint `json:"latencies"` // of one identity but a tenant, for whole requests; else empty
	Latency   *Latencies     `json:"latency"`   // of all steps together; null: likewise
}

// UsagePoint is what was used in one step of time with one outcome.
type UsagePoint struct {
	At       time.Time `json:"at"`
	Outcome  string    `json:"outcome"`
	Requests int64     `json:"requests"`
	Cost     int64     `json:"cost"`
}

// refuses reports whether a request with this outcome did not pass.
func refuses(outcome string) bool { return slices.Contains(refusing, outcome) }

// Usage fills in what was used. The time, the domain, the identity, the rule and the step of u are given.
func (d *DB) Usage(ctx context.Context, u *Usage) error {
	table, at, tenant := "usage_"+u.Step+"s", "at", strings.HasPrefix(u.Identity, tenantPrefix)
	switch {
	case tenant: // of all requests that name it: its users have their own usage besides
		table = "tenant_" + u.Step + "s"
	case u.Step == StepMinute:
		at = "minute"
	}
	sql, args := `SELECT `+at+` AS at, outcome, requests, cost FROM `+table+` WHERE domain = $1 AND identity = $2
	  AND rule = $3 AND `+at+` >= $4 AND `+at+` < $5 ORDER BY 1, 2`, []any{u.Domain, u.Identity, u.Rule, u.From, u.To}
	if u.Identity == "" {
		sql, args = `SELECT at, outcome, sum(requests)::bigint AS requests, sum(cost)::bigint AS cost
		  FROM endpoint_`+u.Step+`s
		  WHERE domain = $1 AND ($2 = '' OR rule = $2) AND at >= $3 AND at < $4 GROUP BY 1, 2 ORDER BY 1, 2`,
			[]any{u.Domain, u.Rule, u.From, u.To}
	}
	points, err := Many[UsagePoint](ctx, d.reads, sql, args...)
	if err != nil {
		return err
	}
	u.Points = listed(points)
	for i := range u.Points {
		p := &u.Points[i]
		p.At = p.At.UTC()
		if refuses(p.Outcome) {
			u.Refused += p.Requests
			continue
		}
		u.Admitted, u.Cost = u.Admitted+p.Requests, u.Cost+p.Cost
	}
	u.Latencies = []LatencyPoint{}
	if u.Identity == "" || u.Rule != "" || tenant {
		return nil
	}
	return d.addLatencies(ctx, u)
}

// UserUsage is what a user used of its quotas.
type UserUsage struct {
	Domain        string      `json:"domain"`
	User          string      `json:"user"`
	Identity      string      `json:"identity"` // as the record names the user
	Timezone      string      `json:"timezone"` // of the days and months
	Today         PeriodUsage `json:"today"`
	Month         PeriodUsage `json:"month"`
	LastRequestAt *time.Time  `json:"last_request_at"`
	ExceededCount int64       `json:"exceeded_count"`
}

// PeriodUsage is usage of a day or a month against its quota.
type PeriodUsage struct {
	From     time.Time  `json:"from"`
	To       time.Time  `json:"to"`
	Admitted int64      `json:"admitted"` // requests
	Refused  int64      `json:"refused"`  // requests
	Cost     int64      `json:"cost"`     // of those that were admitted
	Quota    *int64     `json:"quota"`    // of cost; null: none
	Left     *int64     `json:"left"`     // of the quota, from 0
	Latency  *Latencies `json:"latency"`  // of whole hours
}

// UserUsage returns what a user used today and this month, in the time zone of the domain's rules.
func (d *DB) UserUsage(ctx context.Context, domain, name, identity string, now time.Time) (*UserUsage, error) {
	user, err := d.User(ctx, domain, name)
	if err != nil {
		return nil, err
	}
	zone, err := d.Zone(ctx, domain)
	if err != nil {
		return nil, err
	}
	u := &UserUsage{Domain: domain, User: name, Identity: identity, Timezone: zone.String(),
		LastRequestAt: user.LastRequestAt, ExceededCount: user.ExceededCount}
	u.Today = PeriodUsage{From: descriptors.DayOf(now, zone, 0), To: descriptors.DayOf(now, zone, 1),
		Quota: user.QuotaDay}
	u.Month = PeriodUsage{From: descriptors.MonthOf(now, zone, 0), To: descriptors.MonthOf(now, zone, 1),
		Quota: user.QuotaMonth}
	for _, p := range []*PeriodUsage{&u.Today, &u.Month} {
		err = d.period(ctx, domain, identity, p)
		if err != nil {
			return nil, err
		}
	}
	return u, nil
}

// period adds up what an identity used in a period: whole hours, and the minutes before and after them.
func (d *DB) period(ctx context.Context, domain, identity string, p *PeriodUsage) error {
	first, last := p.From.Truncate(time.Hour), p.To.Truncate(time.Hour)
	if first.Before(p.From) {
		first = first.Add(time.Hour)
	}
	const sql = `SELECT coalesce(sum(requests) FILTER (WHERE outcome <> ALL ($7)), 0)::bigint,
	  coalesce(sum(requests) FILTER (WHERE outcome = ANY ($7)), 0)::bigint,
	  coalesce(sum(cost) FILTER (WHERE outcome <> ALL ($7)), 0)::bigint FROM (
	    SELECT outcome, requests, cost FROM usage_hours WHERE domain = $1 AND identity = $2 AND rule = '' AND at >= $4
	    AND at < $5
	    UNION ALL SELECT outcome, requests, cost FROM usage_minutes WHERE domain = $1 AND identity = $2 AND rule = ''
	    AND minute >= $3 AND minute < $4
	    UNION ALL SELECT outcome, requests, cost FROM usage_minutes WHERE domain = $1 AND identity = $2 AND rule = ''
	    AND minute >= $5 AND minute < $6) AS parts`
	err := d.reads.QueryRow(ctx, sql, domain, identity, p.From, first, last, p.To, refusing).Scan(&p.Admitted,
		&p.Refused, &p.Cost)
	if err == nil && p.Quota != nil {
		left := max(0, *p.Quota-p.Cost)
		p.Left = &left
	}
	if err == nil {
		p.Latency, err = d.latencies(ctx, domain, identity, p.From, p.To)
	}
	return err
}

// Zone is the time zone of the rules of a domain that are in force, or UTC.
func (d *DB) Zone(ctx context.Context, domain string) (*time.Location, error) {
	published, err := d.Published(ctx, domain)
	if err != nil || len(published) == 0 || published[0].Version == 0 {
		return time.UTC, err
	}
	version, err := d.VersionOf(ctx, domain, published[0].Version)
	if err != nil {
		return nil, err
	}
	decoded, _ := rules.Decode(domain, []byte(version.Text))
	if decoded.Timezone == nil {
		return time.UTC, nil
	}
	return decoded.Timezone, nil
}

// Event is one request of the record.
type Event struct {
	At         time.Time `json:"at"`
	Domain     string    `json:"domain"`
	Outcome    string    `json:"outcome"`
	Rule       string    `json:"rule"`
	Identity   string    `json:"identity"`
	Tenant     string    `json:"tenant"`  // of the request, as the record names it
	APIKey     string    `json:"api_key"` // its id
	IP         string    `json:"ip"`
	Method     string    `json:"method"`
	Endpoint   string    `json:"endpoint"`
	Count      int64     `json:"count"`
	CountLimit int64     `json:"limit"`
	Cost       int64     `json:"cost"`
	Status     int16     `json:"status"`
	RetryAfter float64   `json:"retry_after"` // in seconds
	Latency    float64   `json:"latency"`     // of the decision, in milliseconds
	Region     string    `json:"region"`
	Sidecar    string    `json:"sidecar"`
	Sequence   int64     `json:"sequence"`
	Place      int32     `json:"place"`
	Weight     int32     `json:"weight"` // how many requests the event counts as
}

// EventFilter chooses events. An empty field chooses all.
type EventFilter struct {
	Domain                                        string
	Identity, IP, Rule, Outcome, Endpoint, Method string
	APIKeys                                       []string // all names of one
	From, To                                      time.Time
	Before                                        *EventPlace // only events behind it, in the order of the list
}

// EventPlace is the place of an event in the list.
type EventPlace struct {
	At       time.Time
	Sidecar  string
	Sequence int64
	Place    int32
}

// Events are events, the newest first.
func (d *DB) Events(ctx context.Context, f EventFilter, count int) ([]Event, error) {
	where, args := ` WHERE domain = $1 AND at >= $2 AND at < $3`, []any{f.Domain, f.From, f.To}
	of := "identity"
	if strings.HasPrefix(f.Identity, tenantPrefix) { // all requests of the tenant, those of its users too
		of = "tenant"
		where += ` AND tenant <> ''` // as the index has it
	}
	for _, one := range []struct{ column, value string }{
		{of, f.Identity}, {"ip", f.IP}, {"rule", f.Rule}, {"outcome", f.Outcome},
		{"endpoint", f.Endpoint}, {"method", f.Method},
	} {
		if one.value != "" {
			args = append(args, one.value)
			where += fmt.Sprintf(` AND %s = $%d`, one.column, len(args))
		}
	}
	if len(f.APIKeys) > 0 {
		args = append(args, f.APIKeys)
		where += fmt.Sprintf(` AND api_key = ANY ($%d)`, len(args))
	}
	if b := f.Before; b != nil {
		n := len(args)
		where += fmt.Sprintf(` AND (at, sidecar, sequence, place) < ($%d, $%d, $%d, $%d)`, n+1, n+2, n+3, n+4)
		args = append(args, b.At, b.Sidecar, b.Sequence, b.Place)
	}
	args = append(args, count)
	events, err := Many[Event](ctx, d.reads, `SELECT at, domain, outcome, rule, identity, tenant, api_key, ip, method,
	  endpoint, count, count_limit, cost, status, retry_after::float8, latency::float8,
	  region, sidecar, sequence, place, weight FROM events`+where+fmt.Sprintf(`
	  ORDER BY at DESC, sidecar DESC, sequence DESC, place DESC LIMIT $%d`, len(args)), args...)
	for i := range events {
		events[i].At = events[i].At.UTC()
	}
	return events, err
}

// Statistic is what was decided in one step of time about a domain, a rule or an endpoint, with how long decisions
// took.
type Statistic struct {
	At       time.Time `json:"at"`
	Name     string    `json:"name"` // of the domain, the rule that decided or the endpoint
	Requests int64     `json:"requests"`
	Refused  int64     `json:"refused"`
	Cost     int64     `json:"cost"` // of those that were admitted
	P50      *float64  `json:"p50"`  // in milliseconds; null: there were none
	P95      *float64  `json:"p95"`
	P99      *float64  `json:"p99"`
}

// mostStatistics is how many rows an answer may have.
const mostStatistics = 10_000

// few refuses an answer of which rows would have to be left out. It was asked for one row more than there may be.
func few[T any](all []T, err error) ([]T, error) {
	if err == nil && len(all) > mostStatistics {
		return nil, httpapi.NewProblem(http.StatusUnprocessableEntity,
			"there are more than %d rows: ask for a longer step or less time", mostStatistics)
	}
	return all, err
}

// Statistics are what was decided, by time and then by name. By is one of domain, rule and endpoint; with the step
// total there is one row for each name: of too many, those with the most requests.
func (d *DB) Statistics(ctx context.Context, domain, by, step string, from, to time.Time) ([]Statistic, error) {
	at, table := "at", "endpoint_"+step+"s"
	if step == StepTotal {
		at, table = "$2::timestamptz", "endpoint_hours"
	}
	most := mostStatistics + 1
	if step == StepTotal {
		most = mostStatistics
	}
	all, err := few(Many[Statistic](ctx, d.reads, `SELECT at, name, requests, refused, cost, latency_quantile(latencies,
	  0.5) AS p50, latency_quantile(latencies, 0.95) AS p95, latency_quantile(latencies, 0.99) AS p99
	  FROM (SELECT `+at+` AS at, `+by+` AS name, sum(requests)::bigint AS requests,
	  coalesce(sum(requests) FILTER (WHERE outcome = ANY ($4)), 0)::bigint AS refused,
	    coalesce(sum(cost) FILTER (WHERE outcome <> ALL ($4)), 0)::bigint AS cost, sum_latencies(latencies) AS latencies
	    FROM `+table+` WHERE domain = $1 AND at >= $2 AND at < $3 GROUP BY 1, 2) AS added
	    ORDER BY at, requests DESC, name LIMIT $5`, domain, from, to, refusing, most))
	for i := range all {
		all[i].At = all[i].At.UTC()
	}
	return all, err
}

// CacheUse is hits and misses of a cache in one step of time, of all sidecars.
type CacheUse struct {
	At     time.Time `json:"at"`
	Cache  string    `json:"cache"`
	Hits   int64     `json:"hits"`
	Misses int64     `json:"misses"`
}

// Caches are hits and misses, by time and cache.
func (d *DB) Caches(ctx context.Context, domain, step string, from, to time.Time) ([]CacheUse, error) {
	all, err := few(Many[CacheUse](ctx, d.reads, `SELECT at, cache, hits, misses FROM cache_`+step+`s
	  WHERE domain = $4 AND at >= $1 AND at < $2 ORDER BY at, cache LIMIT $3`, from, to, mostStatistics+1, domain))
	for i := range all {
		all[i].At = all[i].At.UTC()
	}
	return all, err
}

// RecordStream is what became of one of the streams of the record, of all sidecars and controls together.
type RecordStream struct {
	Stream  string  `json:"stream"`
	Sources int64   `json:"sources"` // starts of sidecars that sent something in the last 90 days
	Rows    int64   `json:"rows"`    // that are stored
	Dropped int64   `json:"dropped"` // rows that sidecars left out for want of room
	Missing int64   `json:"missing"` // entries that left the stream before they were copied
	Moved   int64   `json:"moved"`   // rows whose time could not be right
	Refused int64   `json:"refused"` // entries that could not be stored
	Queued  *int64  `json:"queued"`  // entries that wait in Redis; null: Redis does not answer
	Behind  float64 `json:"behind"`  // age of the oldest entry of the last read of this control, in seconds
}

// Record is what became of the streams of the record.
func (d *DB) Record(ctx context.Context) ([]RecordStream, error) {
	return Many[RecordStream](ctx, d.reads, `SELECT s.stream, count(nullif(r.sidecar, '')) AS sources,
	  coalesce(sum(rows), 0)::bigint AS rows, coalesce(sum(dropped), 0)::bigint AS dropped,
	  coalesce(sum(missing), 0)::bigint AS missing, coalesce(sum(moved), 0)::bigint AS moved,
	  coalesce(sum(refused), 0)::bigint AS refused, NULL::bigint AS queued, 0::float8 AS behind
	  FROM (VALUES ('events'), ('usage')) AS s (stream) LEFT JOIN record_sources r USING (stream) GROUP BY 1
	  ORDER BY 1`)
}
