package api

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-mesh/spillway/control/database"
	"github.com/spillway-mesh/spillway/httpapi"
	"github.com/spillway-mesh/spillway/journal"
)

var stepLengths = map[string]time.Duration{
	database.StepMinute: time.Minute, database.StepHour: time.Hour,
	database.StepDay: 24 * time.Hour, database.StepTotal: time.Hour,
}

// mostSteps is how many steps of time an answer may have: a day of minutes, two months of hours, five years of days.
const mostSteps = 2000

// eventsBack is how far back events are looked for unless the caller names a time.
const eventsBack = 24 * time.Hour

// Instant is a time, or a day of UTC.
type Instant struct{ time.Time }

// Schema describes it.
func (*Instant) Schema() *httpapi.Schema {
	return &httpapi.Schema{
		Description: "A time such as 2026-11-30T12:00:00Z, or a day of UTC.",
		AnyOf:       []*httpapi.Schema{{Type: "string", Format: "date-time"}, {Type: "string", Format: "date"}},
	}
}

// UnmarshalText reads one.
func (i *Instant) UnmarshalText(text []byte) error {
	layout := time.RFC3339
	if len(text) == len(time.DateOnly) {
		layout = time.DateOnly
	}
	t, err := time.Parse(layout, string(text))
	i.Time = t.UTC()
	return err
}

// period is from when to when.
type period struct {
	From *Instant `query:"from"` // default: a day before to
	To   *Instant `query:"to"`   // default: now
}

// steps is a period in steps.
type steps struct {
	period
	Step string `query:"step" one:"hour minute day" or:"hour"` // the length of a step
}

// times are the period that is asked for.
func (p *period) times() (from, to time.Time, err error) {
	to = time.Now().UTC()
	if p.To != nil {
		to = p.To.Time
	}
	from = to.Add(-eventsBack)
	if p.From != nil {
		from = p.From.Time
	}
	switch {
	case from.Year() < 1 || to.Year() > httpapi.LastYear:
		err = httpapi.Cannot("from and to must be in the years 1 to %d of UTC", httpapi.LastYear)
	case !from.Before(to):
		err = httpapi.Cannot("from %s must be before to %s", from.Format(time.RFC3339), to.Format(time.RFC3339))
	}
	return from, to, err
}

// in is the period in steps. From is rounded down to one.
func (p *period) in(step string) (from, to time.Time, err error) {
	from, to, err = p.times()
	if err != nil {
		return from, to, err
	}
	length := stepLengths[step]
	from = from.Truncate(length)
	if step != database.StepTotal && to.Sub(from) > mostSteps*length {
		err = httpapi.Cannot("from %s to %s are more than %d steps of a %s: ask for a longer step or less time",
			from.Format(time.RFC3339), to.Format(time.RFC3339), mostSteps, step)
	}
	return from, to, err
}

// about names whom a report is about: one of them, or all.
type about struct {
	User     string `query:"user"`     // the name of a user
	APIKey   string `query:"api_key"`  // the id of an API key
	Tenant   string `query:"tenant"`   // the name of a tenant
	Identity string `query:"identity"` // as the record names it
}

// identity is whom the parameters name, as the record does; empty: all.
func (w *about) identity(a *API) (string, error) {
	found, count := w.Identity, 0
	for kind, name := range map[string]string{database.KindUser: w.User, "api_key": w.APIKey, "tenant": w.Tenant} {
		if name != "" {
			found, count = a.Keys.Identity(kind, name), count+1
		}
	}
	if count > 1 || count == 1 && w.Identity != "" {
		return "", httpapi.Cannot("name one of user, api_key, tenant and identity")
	}
	return found, nil
}

// usageRequest asks what was used.
type usageRequest struct {
	inDomain
	about
	steps
	Rule string `query:"rule"` // default: whole requests
}

// eventsRequest asks for single requests.
type eventsRequest struct {
	inDomain
	about
	period
	IP   string `query:"ip"`   // the address of the client
	Rule string `query:"rule"` // that decided
	// what became of it
	Outcome  string `query:"outcome" one:"allowed refused blocked exempt shadowed no_limit unknown_domain malformed"`
	Endpoint string `query:"endpoint"`                    // as the rule file names it
	Method   string `query:"method"`                      // such as GET
	Key      string `query:"key"`                         // the id of an API key
	Cursor   string `query:"cursor"`                      // the next of an answer
	Limit    int    `query:"limit" in:"1..1000" or:"100"` // how many
}

// statisticsRequest asks for statistics.
type statisticsRequest struct {
	inDomain
	period
	By   string `query:"by" one:"domain rule endpoint outcome" or:"domain"` // what each row is about
	Step string `query:"step" one:"hour minute day total" or:"hour"`        // the length of a step
}

// cachesRequest asks for hits and misses of caches.
type cachesRequest struct {
	inDomain
	steps
}

// EventList is events, and where the next part of the list begins.
type EventList struct {
	Events []database.Event `json:"events"`
	Next   string           `json:"next"` // for the parameter cursor; empty: there are no more
}

// StatisticList is statistics.
type StatisticList struct {
	From       time.Time            `json:"from"`
	To         time.Time            `json:"to"`
	Step       string               `json:"step"`
	By         string               `json:"by"`
	Statistics []database.Statistic `json:"statistics"`
}

// CacheList is hits and misses of caches.
type CacheList struct {
	From   time.Time           `json:"from"`
	To     time.Time           `json:"to"`
	Step   string              `json:"step"`
	Caches []database.CacheUse `json:"caches"`
}

func (a *API) addReports(api *httpapi.API) {
	httpapi.Add(api, get(domainPath+"/usage", "What an identity, or the domain, used, by minute, hour or day."),
		a.usage)
	httpapi.Add(api, get(domainPath+"/users/{name}/usage",
		"What a user used today and this month, against its quotas."),
		func(ctx context.Context, in *named) (*database.UserUsage, error) {
			return a.Database.UserUsage(ctx, in.Domain, in.Name, a.Keys.Identity(database.KindUser, in.Name),
				time.Now())
		})
	httpapi.Add(api, get(domainPath+"/events", "Single requests, the newest first."), a.events)
	httpapi.Add(api, get(domainPath+"/statistics",
		"Requests, refusals and latencies of decisions, by domain, rule, endpoint or outcome."), a.statistics)
	httpapi.Add(api, get(domainPath+"/caches", "Hits and misses of the caches of all sidecars."), a.caches)
}

// usage serves GET …/usage.
func (a *API) usage(ctx context.Context, in *usageRequest) (u *database.Usage, err error) {
	u = &database.Usage{Domain: in.Domain, Rule: in.Rule, Step: in.Step}
	u.Identity, err = in.identity(a)
	if err == nil {
		u.From, u.To, err = in.in(in.Step)
	}
	if err == nil {
		err = a.Database.Usage(ctx, u)
	}
	return u, err
}

// events serves GET …/events.
func (a *API) events(ctx context.Context, in *eventsRequest) (list *EventList, err error) {
	f := database.EventFilter{
		Domain: in.Domain, Rule: in.Rule, Outcome: in.Outcome, Endpoint: in.Endpoint, Method: in.Method,
		IP: strings.TrimPrefix(a.Keys.Identity("ip", in.IP), "ip:"),
	}
	if in.Key != "" {
		f.APIKeys = []string{in.Key, a.Keys.Identity(journal.KeyKind, journal.KeyOf(in.Key))}
	}
	f.Identity, err = in.identity(a)
	if err == nil {
		f.From, f.To, err = in.times()
	}
	if err == nil {
		f.Before, err = eventPlace(in.Cursor)
	}
	if err != nil {
		return nil, err
	}
	list = &EventList{}
	list.Events, err = a.Database.Events(ctx, f, in.Limit)
	if len(list.Events) == in.Limit {
		e := &list.Events[in.Limit-1]
		list.Next = fmt.Sprintf("%d.%d.%d.%s", e.At.UnixMicro(), e.Sequence, e.Place, e.Sidecar)
	}
	return list, err
}

// eventPlace reads a cursor.
func eventPlace(cursor string) (*database.EventPlace, error) {
	if cursor == "" {
		return nil, nil
	}
	parts := strings.SplitN(cursor, ".", 4)
	if len(parts) == 4 {
		at, err1 := strconv.ParseInt(parts[0], 10, 64)
		sequence, err2 := strconv.ParseInt(parts[1], 10, 64)
		place, err3 := strconv.ParseInt(parts[2], 10, 32)
		if err1 == nil && err2 == nil && err3 == nil && at > 0 && at < 1<<57 {
			return &database.EventPlace{At: time.UnixMicro(at), Sidecar: parts[3], Sequence: sequence,
				Place: int32(place)}, nil
		}
	}
	return nil, httpapi.Cannot("the cursor must be the next of an answer")
}

// statistics serves GET …/statistics.
func (a *API) statistics(ctx context.Context, in *statisticsRequest) (list *StatisticList, err error) {
	list = &StatisticList{By: in.By, Step: in.Step}
	list.From, list.To, err = in.in(in.Step)
	if err == nil {
		list.Statistics, err = a.Database.Statistics(ctx, in.Domain, in.By, in.Step, list.From, list.To)
	}
	return list, err
}

// caches serves GET …/caches.
func (a *API) caches(ctx context.Context, in *cachesRequest) (list *CacheList, err error) {
	list = &CacheList{Step: in.Step}
	list.From, list.To, err = in.in(in.Step)
	if err == nil {
		list.Caches, err = a.Database.Caches(ctx, in.Domain, in.Step, list.From, list.To)
	}
	return list, err
}
