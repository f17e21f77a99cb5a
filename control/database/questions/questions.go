// Package questions is what people ask of the record: a statement for each question, with the index that serves it.
package questions

import (
	"embed"
	"strings"
	"time"
)

// Question is one question. Its statement takes named arguments: @domain, @limit, @since where Since is set, and one
// for each of Needs and Takes, ” for one that is left out; where it needs a user also @identity, the user's name in
// the record; with Periods also @hour, @day and @month, the begin of each.
type Question struct {
	Name  string
	Title string
	Needs string        // what else it is about: "user", "rule", or "" for nothing
	Takes string        // what else it may be about: "rule", or "" for nothing
	Since time.Duration // how far back it looks by default; 0: it is about all time
	SQL   string

	Periods bool     // it is about this hour, this day and this month
	Indexes []string // that serve it
}

//go:embed *.sql
var files embed.FS

const (
	day   = 24 * time.Hour
	week  = 7 * day
	month = 30 * day
)

// All is all questions, in the order of the documentation.
var All = []Question{
	{Name: "violations", Title: "Who was refused most often.", Takes: "rule", Since: day,
		Indexes: []string{"events_refused"}},
	{Name: "endpoints", Title: "Which endpoints were refused most often.", Since: day,
		Indexes: []string{"events_refused"}},
	{Name: "refusals", Title: "Why a user was refused: each refusal, the newest first.", Needs: "user", Since: day,
		Indexes: []string{"events_identity"}},
	{Name: "changes", Title: "Who changed a rule: each publication that changed it, the newest first.", Needs: "rule",
		Indexes: []string{"rule_versions_pkey"}},
	{Name: "quota", Title: "What a user has used in this hour, day and month, against the quotas.", Needs: "user",
		Periods: true, Indexes: []string{"usage_hours_pkey", "usage_minutes_pkey"}},
	{Name: "near-quota", Title: "Which users have used most of a quota of this hour, day or month.", Periods: true,
		Indexes: []string{"profiles_last_request", "usage_days_pkey", "usage_hours_pkey", "usage_minutes_pkey"}},
	{Name: "calls", Title: "Which endpoints a user has called most often.", Needs: "user", Since: day,
		Indexes: []string{"call_hours_pkey"}},
	{Name: "tenants", Title: "What each tenant has used, with what its users did.", Since: month,
		Indexes: []string{"tenant_days_pkey", "tenant_hours_pkey"}},
	{Name: "caches", Title: "How often caches of the sidecars had the answer.", Since: day,
		Indexes: []string{"cache_hours_pkey"}},
	{Name: "latency", Title: "How long decisions took, by the rule that decided: p50, p95 and p99.", Since: week,
		Indexes: []string{"endpoint_days_pkey", "endpoint_hours_pkey"}},
}

func init() {
	for i := range All {
		text, err := files.ReadFile(All[i].Name + ".sql")
		if err != nil {
			panic(err) // the file is embedded: a test finds it missing
		}
		All[i].SQL = strings.TrimSpace(string(text))
	}
}

// Parameters is the names of what a caller may give, beside the domain: what it needs comes first.
func (q *Question) Parameters() []string {
	var all []string
	if q.Needs != "" {
		all = append(all, q.Needs)
	}
	if q.Takes != "" {
		all = append(all, q.Takes)
	}
	if q.Since > 0 {
		all = append(all, "since")
	}
	return append(all, "limit")
}
