package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spillway-mesh/spillway/control/api"
	"github.com/spillway-mesh/spillway/control/database"
)

// newUsageOfControl makes the commands about what clients used, by the record of a control.
func newUsageOfControl() []*cobra.Command { return []*cobra.Command{newUsageShow(), newUsageList()} }

// identityFlags name an identity of the record.
var identityFlags = [][2]string{
	{"user", "a user"},
	{"api-key", "id of an API key of requests without a user"},
	{"tenant", "name of a tenant of requests without a user and an API key"},
	{"identity", "an identity as the record names it"},
}

// timeFlags bound a time.
var timeFlags = [][2]string{
	{"from", "time such as 2026-11-30T12:00:00Z, or a day; default: a day before --to"},
	{"to", "likewise; default: now"},
}

func addTexts(cmd *cobra.Command, flags ...[2]string) {
	for _, f := range flags {
		cmd.Flags().String(f[0], "", f[1])
	}
}

// asked are the parameters of flags that are given. They have the names of the flags.
func asked(cmd *cobra.Command, flags ...[2]string) url.Values {
	params := url.Values{}
	for _, f := range flags {
		if value := cmd.Flag(f[0]).Value.String(); value != "" {
			params.Set(strings.ReplaceAll(f[0], "-", "_"), value)
		}
	}
	return params
}

func newUsageShow() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show USER", Short: "Show what a user used today and this month, against its quotas", Example: "  spillway usage show ann --domain shop", Args: between(1, 1),
		Long: `It shows what a user used today and this month, and what is left of its quotas, by the record of a
control. It is exact, and a few seconds old.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			domain, err := domainOf(cmd)
			if err != nil {
				return err
			}
			var u database.UserUsage
			err = find(cmd, place(domain, "users", args[0], "usage"), fmt.Sprintf("user %q in the domain %q", args[0], domain), &u)
			if err != nil {
				return err
			}
			return put(cmd, u, showUserUsage)
		},
	}
	addControl(cmd)
	return cmd
}

// showUserUsage prints usage against quotas.
func showUserUsage(w io.Writer, u database.UserUsage) {
	fmt.Fprintf(w, "%s in %s, by days of %s\n", plain(u.User), plain(u.Domain), plain(u.Timezone))
	t := newTable(w, "PERIOD", "ADMITTED", "REFUSED", "COST", "QUOTA", "LEFT", "ENDS")
	t.row("today", u.Today.Admitted, u.Today.Refused, u.Today.Cost, either(fmt.Sprint(orEmpty(u.Today.Quota)), "none"), orEmpty(u.Today.Left), instant(u.Today.To))
	t.row("this month", u.Month.Admitted, u.Month.Refused, u.Month.Cost, either(fmt.Sprint(orEmpty(u.Month.Quota)), "none"), orEmpty(u.Month.Left), instant(u.Month.To))
	t.end()
	showLatency(w, "today", u.Today.Latency)
	showLatency(w, "this month", u.Month.Latency)
}

// showLatency prints how long decisions took, where that is known.
func showLatency(w io.Writer, when string, l *database.Latencies) {
	if l != nil && l.P50 != nil && l.P95 != nil && l.P99 != nil {
		fmt.Fprintf(w, "decisions %s took p50 %.3g ms, p95 %.3g ms, p99 %.3g ms, by %s\n", when, *l.P50, *l.P95, *l.P99, counted(int(l.Samples), "event", "events"))
	}
}

func newUsageList() *cobra.Command {
	flags := append(append([][2]string{}, identityFlags...), timeFlags...)
	flags = append(flags, [2]string{"rule", "name of a rule: what it was charged, or for a whole domain what it decided; without it whole requests"},
		[2]string{"step", "minute, hour or day; default: hour"})
	cmd := &cobra.Command{
		Use: "list", Short: "List what an identity or a whole domain used, by time", Example: "  spillway usage list --user ann --from 2026-11-01 --step day", Args: between(0, 0),
		Long: `It lists usage by time, by the record of a control; without an identity that of the whole domain. Usage
is exact, and a few seconds old.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			domain, err := domainOf(cmd)
			if err != nil {
				return err
			}
			now, err := askControl(cmd, http.MethodGet, place(domain, "usage"), nil, asked(cmd, flags...))
			var u database.Usage
			if err == nil {
				err = now.read(&u)
			}
			if err != nil {
				return err
			}
			return put(cmd, u, showUsed)
		},
	}
	addControl(cmd)
	addTexts(cmd, flags...)
	return cmd
}

// showUsed prints usage by time.
func showUsed(w io.Writer, u database.Usage) {
	fmt.Fprintf(w, "%s from %s to %s: %d admitted with the cost %d, %d refused\n", plain(either(u.Identity, u.Domain)), instant(u.From), instant(u.To), u.Admitted, u.Cost, u.Refused)
	t := newTable(w, "AT", "OUTCOME", "REQUESTS", "COST")
	for _, p := range u.Points {
		t.row(instant(p.At), p.Outcome, p.Requests, p.Cost)
	}
	t.end()
	showLatency(w, "of this time", u.Latency)
}

func newEvents() *cobra.Command {
	return group("events", "List single requests that a control has on record",
		"events shows single requests: all that were refused, and samples of the others.", newEventsList())
}

func newEventsList() *cobra.Command {
	flags := append(append([][2]string{}, identityFlags...), timeFlags...)
	flags = append(flags, [2]string{"outcome", "such as refused, blocked or allowed"}, [2]string{"rule", "name of the rule that decided"},
		[2]string{"ip", "an address"}, [2]string{"method", "a method"}, [2]string{"endpoint", "an endpoint"}, [2]string{"key", "what an API key begins with"})
	cmd := &cobra.Command{
		Use: "list", Short: "List requests, the newest first", Example: "  spillway events list --outcome refused\n  spillway events list --user ann --from 2026-11-01", Args: between(0, 0),
		Long: `It lists who asked for what, when, and which rule decided, the newest first.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			domain, err := domainOf(cmd)
			if err != nil {
				return err
			}
			next := ""
			all, err := pages(cmd, place(domain, "events"), asked(cmd, flags...), func(l *api.EventList) []database.Event {
				next = l.Next
				return l.Events
			}, func(params url.Values, _ *database.Event) { params.Set("cursor", next) })
			if err != nil {
				return err
			}
			return put(cmd, api.EventList{Events: all}, showEvents)
		},
	}
	addControl(cmd)
	addTexts(cmd, flags...)
	cmd.Flags().Int("limit", 100, "how many")
	return cmd
}

func showEvents(w io.Writer, list api.EventList) {
	t := newTable(w, "AT", "OUTCOME", "IDENTITY", "REQUEST", "RULE", "COUNT", "LIMIT", "STATUS", "API KEY", "IP", "SIDECAR")
	for i := range list.Events {
		e := &list.Events[i]
		t.row(instant(e.At), e.Outcome, e.Identity, strings.TrimSpace(e.Method+" "+e.Endpoint), e.Rule, e.Count, e.CountLimit, e.Status, e.APIKey, e.IP, e.Sidecar)
	}
	t.end()
}
