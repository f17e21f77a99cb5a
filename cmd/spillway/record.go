package main

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// timeOptions bound a time.
var timeOptions = []option{
	{"from", "time such as 2026-11-30T12:00:00Z, or a day; default: a day before --to", nil},
	{"to", "likewise; default: now", nil},
}

// clientOptions name an identity of the record.
var clientOptions = []option{
	{"user", "a user", nil}, {"api-key", "id of an API key of requests without a user", nil},
	{"tenant", "name of a tenant", nil}, {"identity", "an identity as the record names it", nil},
}

func newUsage() *noun {
	return &noun{
		name: "usage", about: "What clients used, by the record of a control", api: controlAPI, path: "users",
		items: "users", prefix: true,
		filters: slices.Concat(clientOptions, timeOptions, []option{
			{"rule", "a rule: what it was charged, or for a whole domain what it decided; default: requests", nil},
			{"step", "minute, hour or day; default: hour", nil},
		}),
		verbs: []verb{
			{use: "show USER", short: "Show what a user used today and this month, against its quotas", run: showUsage,
				example: "show ann --domain shop",
				long: `Show what a user used today and this month, and what is left of its quotas, by the record of a
control. It is exact, and a few seconds old.`},
			{use: "list", short: "List what an identity or a whole domain used, by time", run: listUsage,
				example: "list --user ann --from 2026-11-01 --step day",
				long: `List usage by time, by the record of a control; without an identity that of the whole domain.
Usage is exact, and a few seconds old.`},
		},
	}
}

func showUsage(s *session, args []string) {
	path := s.path(args[0], "usage")
	o := s.find(path, nil, "there is no user %q in the domain %q; usage of a tenant: spillway usage list --tenant %s",
		args[0], s.domain, args[0])
	user := s.get(s.path(args[0]), nil)
	s.print(o, func() {
		s.line("%s in %s, by days of %s", plain(text(o, "user")), plain(text(o, "domain")), plain(text(o, "timezone")))
		today, month := inner(o, "today"), inner(o, "month")
		rows := []object{{"period": "today", "of": today}, {"period": "this month", "of": month}}
		s.table(rows,
			columns(`PERIOD period | ADMITTED of.admitted | REFUSED of.refused | COST of.cost | QUOTA of.quota |
			LEFT of.left | ENDS of.to:when`))
		s.line("%s", quotaWords(user))
		s.showLatency("today", inner(today, "latency"))
		s.showLatency("this month", inner(month, "latency"))
	})
}

// quotaWords is what holds for a user beside quotas of days and months.
func quotaWords(u object) string {
	switch {
	case u["quota_hour"] != nil:
		return fmt.Sprintf("quota per hour: %s; spillway counters list %s shows what is left", text(u, "quota_hour"),
			plain(text(u, "name")))
	case u["quota_day"] != nil || u["quota_month"] != nil:
		return "no quota per hour"
	case u["tier"] != nil:
		return "no quota: the limits of the tier " + plain(text(u, "tier")) + " hold"
	}
	return "no quota: the limits of the rules hold"
}

// showLatency prints how long decisions took, where that is known.
func (s *session) showLatency(period string, l object) {
	if l["p50"] == nil || l["p95"] == nil || l["p99"] == nil {
		return
	}
	s.line("decisions %s took p50 %s, p95 %s, p99 %s, by %s", period, quantile(l, "p50", 2), quantile(l, "p95", 20),
		quantile(l, "p99", 100), counted(int(whole(l, "samples")), "event"))
}

// quantile is one of the times, where there are enough events for one to be above it.
func quantile(l object, field string, least int64) string {
	if whole(l, "samples") < least {
		return "–"
	}
	n, _ := strconv.ParseFloat(text(l, field), 64)
	return fmt.Sprintf("%.3g ms", n)
}

func listUsage(s *session, _ []string) {
	params := s.parameters(s.noun.filters)
	o := s.get(s.below("usage"), params)
	s.doubt(len(objects(o, "points")) == 0 && o["latency"] == nil)
	s.print(o, func() {
		s.line("%s from %s to %s: %s admitted with the cost %s, %s refused", plain(cmp.Or(text(o, "identity"), text(o,
			"domain"))),
			when(o["from"]), when(o["to"]), text(o, "admitted"), text(o, "cost"), text(o, "refused"))
		s.table(objects(o, "points"), columns("AT at:when | OUTCOME outcome state | REQUESTS requests | COST cost"))
		s.showLatency("of this time", inner(o, "latency"))
	})
}

func newEvents() *noun {
	return &noun{
		name: "events", one: "event", about: "Single requests: all that were refused, and samples of the others",
		api: controlAPI, path: "events", next: "cursor=next",
		columns: columns(`AT at:when | OUTCOME outcome state | IDENTITY identity | REQUEST :requestWords | RULE rule |
			TENANT tenant | COUNT count | LIMIT limit | STATUS status | API KEY api_key | IP ip | SIDECAR sidecar`),
		filters: slices.Concat(clientOptions, timeOptions, []option{
			{"outcome", "such as refused, blocked or allowed", nil}, {"rule", "name of the rule that decided", nil},
			{"ip", "an address", nil}, {"method", "a method", nil}, {"endpoint", "an endpoint", nil},
			{"key", "the id of an API key", nil},
		}),
		verbs: []verb{{use: "list", short: "List requests, the newest first", run: listEvents,
			flags: func(cmd *cobra.Command) {
				cmd.Flags().BoolP("follow", "f", false, "print refusals of a sidecar as they happen, until Ctrl-C")
			},
			example: "list --outcome refused\nlist --user ann --from 2026-11-01\nlist -f",
			long: `List who asked for what, when, and which rule decided, the newest first, by the record of a
control. With -f a sidecar is asked for its refusals, as they happen: of --domain alone, where it is given.`}},
	}
}

func requestWords(e object) string {
	return strings.TrimSpace(text(e, "method") + " " + text(e, "endpoint"))
}

func listEvents(s *session, _ []string) {
	if !s.is("follow") {
		listNoun(s, nil)
		return
	}
	for _, o := range s.noun.filters {
		if s.given(o.flag) {
			s.fail(fmt.Errorf("--%s is for the record of a control: leave it out with -f", o.flag))
		}
	}
	s.turn(sidecarAPI)
	s.follow()
}

func newAudit() *noun {
	return &noun{
		name: "audit", about: "Who changed what on a control", api: controlAPI, path: "/v1/audit", items: "entries",
		next: "before=id",
		columns: columns(`AT at:when | WHO who | ACTION action | KIND kind | NAME name | CHANGE :changeWords |
			DOMAIN domain | FROM address wide`),
		filters: []option{{"kind", "changes of one kind alone", nil}, {"name", "changes of what has this name", nil}},
		verbs: []verb{{use: "list", short: "List changes, the newest first",
			example: "list --domain shop --kind user --name ann",
			run: func(s *session, _ []string) {
				s.rows(s.pages(s.path(), s.withDomain(s.parameters(s.noun.filters))))
			},
			long: `List changes, the newest first: who made them, from where, and what was before and after. The kinds
are rules, tier, user, key, tenant, ip and api_key.`}},
	}
}

// everyChange are fields that each change has, or that columns of the list show.
var everyChange = []string{
	"domain", "name", "kind", "id", "revision", "updated_at", "updated_by", "created_at", "created_by", "published_at",
	"published_by", "hash",
}

const changeMost = 160 // characters

// changeWords is what differs between the two states of a change.
func changeWords(entry object) string {
	before, after := inner(entry, "before"), inner(entry, "after")
	names := slices.Collect(maps.Keys(before))
	names = append(names, slices.Collect(maps.Keys(after))...)
	slices.Sort(names)
	var parts []string
	for _, name := range slices.Compact(names) {
		was, is := changeValue(before[name]), changeValue(after[name])
		if was != is && !slices.Contains(everyChange, name) {
			parts = append(parts, fmt.Sprintf("%s: %s → %s", name, cmp.Or(was, "none"), cmp.Or(is, "none")))
		}
	}
	return cut(strings.Join(parts, ", "), changeMost)
}

// changeValue is a value as text, empty for one that is missing or empty.
func changeValue(value any) string {
	if list, is := value.([]any); is && len(list) > 0 {
		if _, is := list[0].(object); is {
			return limits(value)
		}
	}
	all := words(value)
	if all == "0" || all == "{}" {
		return ""
	}
	return all
}

func newReports() *noun {
	options := []option{
		{"user", "a user", nil}, {"rule", "name of a rule", nil},
		{"since", "how far back, such as 90m, 24h or 7d, in place of the report's own", nil},
		{"limit", "how many rows at most; default: 20", nil},
	}
	return &noun{
		name: "reports", one: "report", about: "Ready questions about the record of a control", api: controlAPI,
		path: "/v1/questions", items: "questions",
		columns: columns("NAME name | TITLE title | SINCE since | PARAMETERS parameters wide"),
		verbs: []verb{
			{use: "list", short: "List the reports"},
			{use: "show REPORT",
				short:   "Show who was refused, where and why, who changed a rule, and what a user has used",
				run:     func(s *session, args []string) { s.report(args[0], s.parameters(options)) },
				flags:   func(cmd *cobra.Command) { addOptions(cmd, options) },
				example: "show violations --domain shop\nshow refusals --user ann --since 7d",
				long:    "Show a report of spillway reports list. docs/explain/usage-and-events.md explains them."},
		},
	}
}

// report prints a report. Its answer names its columns.
func (s *session) report(name string, params url.Values) {
	o := s.find(s.below("questions", name), params, "the report %q is unknown: spillway reports list shows them", name)
	rows := objects(o, "rows")
	s.doubt(len(rows) == 0)
	s.print(o, func() {
		if since := when(o["since"]); since != "" {
			s.line("%s, since %s", plain(text(o, "question")), since)
		}
		if len(rows) == 0 {
			s.line("no rows")
			return
		}
		var all []column
		list, _ := o["columns"].([]any)
		for _, name := range list {
			heading := strings.ToUpper(strings.ReplaceAll(words(name), "_", " "))
			all = append(all, column{heading: plain(heading), field: words(name), format: when})
		}
		s.table(rows, all)
	})
}
