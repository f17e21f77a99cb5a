package api

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-mesh/spillway/admin"
	"github.com/spillway-mesh/spillway/control/database"
)

var stepLengths = map[string]time.Duration{database.StepMinute: time.Minute, database.StepHour: time.Hour, database.StepDay: 24 * time.Hour}

// mostSteps is how many steps of time an answer may have: a day of minutes, two months of hours, five years of days.
const mostSteps = 2000

// eventsBack is how far back events are looked for where the caller does not say.
const eventsBack = 24 * time.Hour

// userUsage serves GET …/users/{name}/usage.
func (a *API) userUsage(c *call) (any, error) {
	_, err := c.query()
	if err != nil {
		return nil, err
	}
	return a.Database.UserUsage(c.ctx, c.domain(), c.name(), a.Keys.Identity(database.KindUser, c.name()), time.Now())
}

// usage serves GET …/usage.
func (a *API) usage(c *call) (any, error) {
	asked, err := c.query("user", "api_key", "tenant", "identity", "rule", "from", "to", "step")
	if err != nil {
		return nil, err
	}
	u := &database.Usage{Domain: c.domain(), Rule: asked["rule"]}
	u.Identity, err = a.identity(asked)
	if err == nil {
		u.Step, u.From, u.To, err = period(asked, database.StepHour, database.StepMinute, database.StepDay)
	}
	if err == nil {
		err = a.Database.Usage(c.ctx, u)
	}
	return u, err
}

// identity is whom the parameters name, as the record does; empty: all.
func (a *API) identity(asked map[string]string) (string, error) {
	found := ""
	for _, kind := range []string{database.KindUser, "api_key", "tenant", "identity"} {
		value, given := asked[kind]
		switch {
		case !given:
			continue
		case found != "":
			return "", admin.NewProblem(http.StatusUnprocessableEntity, "name one of user, api_key, tenant and identity")
		case kind == "identity":
			found = value
		default:
			found = a.Keys.Identity(kind, value)
		}
	}
	return found, nil
}

// period reads the parameters step, from and to. The first of the steps is taken where none is asked for. From is rounded down to a step.
func period(asked map[string]string, steps ...string) (step string, from, to time.Time, err error) {
	step = asked["step"]
	if step == "" {
		step = steps[0]
	}
	if !slices.Contains(steps, step) {
		return "", from, to, admin.NewProblem(http.StatusUnprocessableEntity, "the step %q must be one of %s", step, strings.Join(steps, ", "))
	}
	length := stepLengths[step]
	if step == database.StepTotal {
		length = time.Hour
	}
	from, to, err = times(asked, eventsBack)
	if err != nil {
		return "", from, to, err
	}
	from = from.Truncate(length)
	if step != database.StepTotal && to.Sub(from) > mostSteps*length {
		return "", from, to, admin.NewProblem(http.StatusUnprocessableEntity, "from %s to %s are more than %d steps of a %s: ask for a longer step or less time", from.Format(time.RFC3339), to.Format(time.RFC3339), mostSteps, step)
	}
	return step, from, to, nil
}

// times reads the parameters from and to. They are the last time of that length where they are missing.
func times(asked map[string]string, length time.Duration) (from, to time.Time, err error) {
	to, err = instantOf(asked, "to", time.Now().UTC())
	if err == nil {
		from, err = instantOf(asked, "from", to.Add(-length))
	}
	if err == nil && (from.Year() < 1 || to.Year() > admin.LastYear) {
		err = admin.NewProblem(http.StatusUnprocessableEntity, "from and to must be in the years 1 to %d of UTC", admin.LastYear)
	}
	if err == nil && !from.Before(to) {
		err = admin.NewProblem(http.StatusUnprocessableEntity, "from %s must be before to %s", from.Format(time.RFC3339), to.Format(time.RFC3339))
	}
	return from, to, err
}

// instantOf reads a parameter that is a time, or a day of UTC.
func instantOf(asked map[string]string, name string, otherwise time.Time) (time.Time, error) {
	text, given := asked[name]
	if !given {
		return otherwise, nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		t, err := time.Parse(layout, strings.ToUpper(text))
		if err == nil {
			return t.UTC(), nil
		}
	}
	return otherwise, admin.NewProblem(http.StatusUnprocessableEntity, "%s %q must be a time such as 2026-11-30T12:00:00Z, or a day", name, text)
}

// EventList is events, and where the list goes on.
type EventList struct {
	Events []database.Event `json:"events"`
	Next   string           `json:"next"` // for the parameter cursor; empty: there are no more
}

// events serves GET …/events.
func (a *API) events(c *call) (any, error) {
	asked, err := c.query("user", "api_key", "tenant", "identity", "ip", "rule", "outcome", "endpoint", "method", "key", "from", "to", "cursor", "limit")
	if err != nil {
		return nil, err
	}
	f := database.EventFilter{Domain: c.domain(), APIKey: asked["key"], Rule: asked["rule"], Outcome: asked["outcome"], Endpoint: asked["endpoint"], Method: asked["method"]}
	f.IP = strings.TrimPrefix(a.Keys.Identity("ip", asked["ip"]), "ip:")
	f.Identity, err = a.identity(asked)
	if err == nil {
		f.From, f.To, err = times(asked, eventsBack)
	}
	if err == nil {
		f.Before, err = eventPlace(asked["cursor"])
	}
	count, wrong := number(asked, "limit", pageDefault, pageMost)
	if err == nil {
		err = wrong
	}
	if err != nil {
		return nil, err
	}
	found, err := a.Database.Events(c.ctx, f, int(count))
	list := EventList{Events: listed(found)}
	if len(found) == int(count) {
		e := &found[count-1]
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
			return &database.EventPlace{time.UnixMicro(at), parts[3], sequence, int32(place)}, nil
		}
	}
	return nil, admin.NewProblem(http.StatusUnprocessableEntity, "the cursor must be the next of an answer")
}

// StatisticList is statistics.
type StatisticList struct {
	From       time.Time            `json:"from"`
	To         time.Time            `json:"to"`
	Step       string               `json:"step"`
	By         string               `json:"by"`
	Statistics []database.Statistic `json:"statistics"`
}

// statistics serves GET …/statistics.
func (a *API) statistics(c *call) (any, error) {
	asked, err := c.query("by", "from", "to", "step")
	if err != nil {
		return nil, err
	}
	list := StatisticList{By: asked["by"]}
	if list.By == "" {
		list.By = "domain"
	}
	if !slices.Contains(statisticsBy, list.By) {
		return nil, admin.NewProblem(http.StatusUnprocessableEntity, "by %q must be one of %s", list.By, strings.Join(statisticsBy, ", "))
	}
	list.Step, list.From, list.To, err = period(asked, database.StepHour, database.StepMinute, database.StepDay, database.StepTotal)
	if err != nil {
		return nil, err
	}
	found, err := a.Database.Statistics(c.ctx, c.domain(), list.By, list.Step, list.From, list.To)
	list.Statistics = listed(found)
	return list, err
}

var statisticsBy = []string{"domain", "rule", "endpoint", "outcome"}

// CacheList is hits and misses of caches.
type CacheList struct {
	From   time.Time           `json:"from"`
	To     time.Time           `json:"to"`
	Step   string              `json:"step"`
	Caches []database.CacheUse `json:"caches"`
}

// caches serves GET /v1/caches.
func (a *API) caches(c *call) (any, error) {
	asked, err := c.query("from", "to", "step")
	if err != nil {
		return nil, err
	}
	var list CacheList
	list.Step, list.From, list.To, err = period(asked, database.StepHour, database.StepMinute, database.StepDay)
	if err != nil {
		return nil, err
	}
	found, err := a.Database.Caches(c.ctx, list.Step, list.From, list.To)
	list.Caches = listed(found)
	return list, err
}

// RecordStatus is how the copy of the record does.
type RecordStatus struct {
	Copies  bool                    `json:"copies"`  // this control copies
	Problem string                  `json:"problem"` // why it cannot; empty: it can
	Streams []database.RecordStream `json:"streams"`
}

// record serves GET /v1/record.
func (a *API) record(c *call) (any, error) {
	_, err := c.query()
	if err != nil {
		return nil, err
	}
	streams, err := a.Database.Record(c.ctx)
	if err != nil {
		return nil, err
	}
	stats := a.Copier.Stats()
	status := RecordStatus{stats.Copies, stats.Problem, streams}
	queued, wrong := a.Copier.Queued(c.ctx)
	for i := range streams {
		s := &streams[i]
		if n, known := queued[s.Stream]; known && wrong == nil {
			s.Queued = &n
		}
		for _, own := range stats.Streams {
			if own.Stream == s.Stream {
				s.Behind = own.Behind.Seconds()
			}
		}
	}
	return status, nil
}
