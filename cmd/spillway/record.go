package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// timeOptions bound a time.
var timeOptions = []option{
	{"from", "from", "time such as 2026-11-30T12:00:00Z, or a day; default: a day before --to", nil},
	{"to", "to", "likewise; default: now", nil},
}

// clientOptions name an identity of the record.
var clientOptions = []option{
	{"user", "user", "a user", nil}, {"api-key", "api_key", "id of an API key of requests without a user", nil},
	{"tenant", "tenant", "name of a tenant of requests without a user and an API key", nil},
	{"identity", "identity", "an identity as the record names it", nil},
}

func newUsage() *noun {
	options := slices.Concat(clientOptions, timeOptions, []option{
		{"rule", "rule", "a rule: what it was charged, or for a whole domain what it decided; without it whole requests", nil},
		{"step", "step", "minute, hour or day; default: hour", nil},
	})
	return &noun{
		name: "usage", one: "usage", about: "What clients used, by the record of a control", api: controlAPI, path: "users",
		items: "users", prefix: true,
		verbs: []verb{
			{use: "show USER", short: "Show what a user used today and this month, against its quotas", run: showUsage,
				example: "show ann --domain shop", long: `Show what a user used today and this month, and what is left of its quotas, by the record of a control. It is exact,
and a few seconds old.`},
			{use: "list", short: "List what an identity or a whole domain used, by time",
				run:     func(s *session, _ []string) error { return listUsage(s, options) },
				flags:   func(cmd *cobra.Command) { addOptions(cmd, options) },
				example: "list --user ann --from 2026-11-01 --step day",
				long: `List usage by time, by the record of a control; without an identity that of the whole domain. Usage is exact, and a
few seconds old.`},
		},
	}
}

func showUsage(s *session, args []string) error {
	path, err := s.where(args[0], "usage")
	if err != nil {
		return err
	}
	o, err := s.object(path, nil)
	if missing(err) {
		err = refused("there is no user %q in the domain %q", args[0], s.domain)
	}
	if err != nil {
		return err
	}
	return s.value(o, func() error {
		s.line("%s in %s, by days of %s", plain(text(o, "user")), plain(text(o, "domain")), plain(text(o, "timezone")))
		var rows []object
		for _, period := range []struct{ title, field string }{{"today", "today"}, {"this month", "month"}} {
			row := maps.Clone(inner(o, period.field))
			row["period"] = period.title
			rows = append(rows, row)
		}
		err := s.table(rows, []column{
			{"PERIOD", "period", nil, 0}, {"ADMITTED", "admitted", nil, 0}, {"REFUSED", "refused", nil, 0}, {"COST", "cost", nil, 0},
			{"QUOTA", "quota", orNone, 0}, {"LEFT", "left", nil, 0}, {"ENDS", "to", when, 0},
		})
		for _, row := range rows {
			s.showLatency(text(row, "period"), inner(row, "latency"))
		}
		return err
	})
}

func orNone(value any) string { return either(words(value), "none") }

// showLatency prints how long decisions took, where that is known.
func (s *session) showLatency(period string, l object) {
	if l["p50"] == nil || l["p95"] == nil || l["p99"] == nil {
		return
	}
	s.line("decisions %s took p50 %s, p95 %s, p99 %s, by %s", period, milliseconds(l, "p50"), milliseconds(l, "p95"),
		milliseconds(l, "p99"), counted(int(whole(l, "samples")), "event"))
}

func milliseconds(l object, field string) string {
	var n float64
	_, _ = fmt.Sscan(text(l, field), &n)
	return fmt.Sprintf("%.3g ms", n)
}

func listUsage(s *session, options []option) error {
	path, err := s.inDomain("usage")
	if err != nil {
		return err
	}
	o, err := s.object(path, s.parameters(options))
	if err != nil {
		return err
	}
	return s.value(o, func() error {
		s.line("%s from %s to %s: %s admitted with the cost %s, %s refused", plain(either(text(o, "identity"), text(o, "domain"))),
			when(o["from"]), when(o["to"]), text(o, "admitted"), text(o, "cost"), text(o, "refused"))
		err := s.table(objects(o, "points"), []column{
			{"AT", "at", when, 0}, {"OUTCOME", "outcome", nil, state}, {"REQUESTS", "requests", nil, 0}, {"COST", "cost", nil, 0},
		})
		s.showLatency("of this time", inner(o, "latency"))
		return err
	})
}

func newEvents() *noun {
	return &noun{
		name: "events", one: "event", about: "Single requests: all that were refused, and samples of the others", api: controlAPI,
		path: "events", next: []string{"cursor=next"},
		columns: []column{
			{"AT", "at", when, 0}, {"OUTCOME", "outcome", nil, state}, {"IDENTITY", "identity", nil, 0},
			{"REQUEST", "", requestWords, 0}, {"RULE", "rule", nil, 0}, {"COUNT", "count", nil, 0}, {"LIMIT", "limit", nil, 0},
			{"STATUS", "status", nil, 0}, {"API KEY", "api_key", nil, 0}, {"IP", "ip", nil, 0}, {"SIDECAR", "sidecar", nil, 0},
		},
		filters: slices.Concat(clientOptions, timeOptions, []option{
			{"outcome", "outcome", "such as refused, blocked or allowed", nil},
			{"rule", "rule", "name of the rule that decided", nil}, {"ip", "ip", "an address", nil},
			{"method", "method", "a method", nil}, {"endpoint", "endpoint", "an endpoint", nil},
			{"key", "key", "what an API key begins with", nil},
		}),
		verbs: []verb{{use: "list", short: "List requests, the newest first", run: listEvents,
			flags: func(cmd *cobra.Command) {
				cmd.Flags().BoolP("follow", "f", false, "print refusals of a sidecar as they happen, until Ctrl-C")
			},
			example: "list --outcome refused\nlist --user ann --from 2026-11-01\nlist -f",
			long: `List who asked for what, when, and which rule decided, the newest first, by the record of a control. With -f a sidecar
is asked for its refusals, as they happen.`}},
	}
}

func requestWords(value any) string {
	e, _ := value.(object)
	return strings.TrimSpace(text(e, "method") + " " + text(e, "endpoint"))
}

func listEvents(s *session, _ []string) error {
	if !s.is("follow") {
		return listNoun(s, nil)
	}
	for _, o := range s.noun.filters {
		if s.cmd.Flag(o.flag).Changed {
			return fmt.Errorf("--%s is for the record of a control: leave it out with -f", o.flag)
		}
	}
	sidecar, err := s.asking(sidecarAPI)
	if err != nil {
		return err
	}
	return sidecar.follow()
}

func newAudit() *noun {
	return &noun{
		name: "audit", one: "", about: "Who changed what on a control", api: controlAPI, path: "/v1/audit", items: "entries",
		next: []string{"before=id"},
		columns: []column{
			{"AT", "at", when, 0}, {"WHO", "who", nil, 0}, {"FROM", "address", nil, 0}, {"ACTION", "action", nil, 0},
			{"DOMAIN", "domain", nil, 0}, {"KIND", "kind", nil, 0}, {"NAME", "name", nil, 0}, {"CHANGE", "", changeWords, 0},
		},
		filters: []option{
			{"kind", "kind", "changes of one kind alone", nil}, {"name", "name", "changes of what has this name", nil},
		},
		verbs: []verb{{use: "list", short: "List changes, the newest first", example: "list --domain shop --kind user --name ann",
			run: listAudit, long: `List changes, the newest first: who made them, from where, and what was before and after. The kinds are rules, tier,
user, key, tenant, ip and api_key.`}},
	}
}

func listAudit(s *session, _ []string) error {
	params := s.parameters(s.noun.filters)
	if s.domain != "" {
		params.Set("domain", s.domain)
	}
	rows, err := s.pages(s.noun.path, params)
	if err != nil {
		return err
	}
	return s.list("entries", rows, s.noun.columns)
}

// everyChange are fields that each change has, or that columns of the list show.
var everyChange = []string{
	"domain", "name", "kind", "id", "revision", "updated_at", "updated_by", "created_at", "created_by", "published_at",
	"published_by", "hash",
}

const changeMost = 160 // characters

// changeWords is what differs between the two states of a change.
func changeWords(value any) string {
	entry, _ := value.(object)
	before, after := inner(entry, "before"), inner(entry, "after")
	names := slices.Collect(maps.Keys(before))
	names = append(names, slices.Collect(maps.Keys(after))...)
	slices.Sort(names)
	var parts []string
	for _, name := range slices.Compact(names) {
		was, is := changeValue(before[name]), changeValue(after[name])
		if was != is && !slices.Contains(everyChange, name) {
			parts = append(parts, fmt.Sprintf("%s: %s → %s", name, either(was, "none"), either(is, "none")))
		}
	}
	all := []rune(strings.Join(parts, ", "))
	if len(all) > changeMost {
		all = append(all[:changeMost-1], '…')
	}
	return string(all)
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
	return &noun{
		name: "reports", one: "report", about: "Ready questions about the record of a control", api: controlAPI,
		path: "/v1/questions", items: "questions",
		columns: []column{
			{"NAME", "name", nil, 0}, {"TITLE", "title", nil, 0}, {"SINCE", "since", nil, 0}, {"PARAMETERS", "parameters", nil, wide},
		},
		verbs: []verb{
			{use: "list", short: "List the reports"},
			{use: "show REPORT", short: "Show who was refused, where and why, who changed a rule, and what a user has used",
				run: showReport, flags: func(cmd *cobra.Command) { addOptions(cmd, reportOptions) },
				example: "show violations --domain shop\nshow refusals --user ann --since 7d\nshow changes --rule per-user",
				long:    "Show a report of spillway reports list. docs/explain/usage-and-events.md explains them."},
		},
	}
}

var reportOptions = []option{
	{"user", "user", "a user", nil}, {"rule", "rule", "name of a rule", nil},
	{"since", "since", "how far back, such as 90m, 24h or 7d, in place of the report's own", nil},
	{"limit", "limit", "how many rows at most; default: 20", nil},
}

func showReport(s *session, args []string) error {
	path, err := s.inDomain("questions", args[0])
	if err != nil {
		return err
	}
	o, err := s.object(path, s.parameters(reportOptions))
	if missing(err) {
		err = fmt.Errorf("the report %q is unknown: spillway reports list shows them", args[0])
	}
	if err != nil {
		return err
	}
	return s.value(o, func() error {
		if since := when(o["since"]); since != "" {
			s.line("%s, since %s", plain(text(o, "question")), since)
		}
		rows := objects(o, "rows")
		if len(rows) == 0 {
			s.line("no rows")
			return nil
		}
		var columns []column
		list, _ := o["columns"].([]any)
		for _, name := range list {
			heading := strings.ToUpper(strings.ReplaceAll(words(name), "_", " "))
			columns = append(columns, column{plain(heading), words(name), when, 0})
		}
		return s.table(rows, columns)
	})
}
