package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spillway-mesh/spillway/control"
)

func newControlUsage() *cobra.Command {
	cmd := &cobra.Command{
		Use: "usage DOMAIN", Short: "Print what a user, an API key or a whole domain used", Args: cobra.ExactArgs(1),
		Example: "  spillway control usage shop --user ann\n  spillway control usage shop --from 2026-11-01 --step day",
		Long: `Print what the record of a control has. With --user alone it is what the user used today and this month against its quotas. With --from, --to, --step
or --rule it is a table by time; without an identity the table is of the whole domain. Usage is exact, and a few seconds old.`,
		RunE: func(cmd *cobra.Command, args []string) error { return usage(cmd, args[0]) },
	}
	addControlServer(cmd)
	for _, f := range usageFlags {
		cmd.Flags().String(f[0], "", f[1])
	}
	return cmd
}

// usageFlags are the flags that become parameters of the same names.
var usageFlags = [][2]string{
	{"user", "name of a user"},
	{"api-key", "id of an API key of requests without a user"},
	{"tenant", "name of a tenant of requests without a user and an API key"},
	{"identity", "an identity as the record names it"},
	{"rule", "name of a rule: what it was charged, or for a whole domain what it decided; without it whole requests"},
	{"from", "time such as 2026-11-30T12:00:00Z, or a day; default a day before --to"},
	{"to", "likewise; default now"},
	{"step", "minute, hour or day; default hour"},
}

// usageParams are the flags that are set, as parameters.
func usageParams(cmd *cobra.Command) url.Values {
	params := url.Values{}
	for _, f := range usageFlags {
		if value := cmd.Flag(f[0]).Value.String(); value != "" {
			params.Set(strings.ReplaceAll(f[0], "-", "_"), value)
		}
	}
	return params
}

// usage asks a control, and prints its answer.
func usage(cmd *cobra.Command, domain string) error {
	format, err := outputOf(cmd)
	if err != nil {
		return err
	}
	params, base := usageParams(cmd), "/v1/domains/"+url.PathEscape(domain)
	if user := params.Get("user"); user != "" && len(params) == 1 {
		return askUsage(cmd, format, base+"/users/"+url.PathEscape(user)+"/usage", nil, showUserUsage)
	}
	return askUsage(cmd, format, base+"/usage", params, showUsed)
}

// askUsage asks for a document, and prints it as JSON or by a function.
func askUsage[T any](cmd *cobra.Command, format, path string, params url.Values, show func(io.Writer, *T)) error {
	answer, err := ask(cmd, http.MethodGet, path, nil, params)
	if err != nil {
		return err
	}
	into := new(T)
	err = json.Unmarshal(answer, into)
	switch {
	case err != nil:
		return &unreachable{fmt.Errorf("the answer cannot be read: %w", err)}
	case format == "json":
		return printJSON(cmd.OutOrStdout(), into)
	}
	show(cmd.OutOrStdout(), into)
	return nil
}

// showUserUsage prints usage against quotas.
func showUserUsage(w io.Writer, u *control.UserUsage) {
	fmt.Fprintf(w, "%s in %s, by days of %s\n", plain(u.User), plain(u.Domain), plain(u.Timezone))
	t := newTable(w, "PERIOD", "ADMITTED", "REFUSED", "COST", "QUOTA", "LEFT", "ENDS")
	for _, p := range []struct {
		name string
		of   *control.PeriodUsage
	}{{"today", &u.Today}, {"this month", &u.Month}} {
		quota, left := "none", "-"
		if p.of.Quota != nil && p.of.Left != nil {
			quota, left = fmt.Sprint(*p.of.Quota), fmt.Sprint(*p.of.Left)
		}
		t.row(p.name, p.of.Admitted, p.of.Refused, p.of.Cost, quota, left, instant(p.of.To))
	}
	t.end()
}

// showUsed prints usage by time.
func showUsed(w io.Writer, u *control.Usage) {
	fmt.Fprintf(w, "%s from %s to %s: %d admitted with the cost %d, %d refused\n", plain(either(u.Identity, u.Domain)), instant(u.From), instant(u.To), u.Admitted, u.Cost, u.Refused)
	t := newTable(w, "AT", "OUTCOME", "REQUESTS", "COST")
	for _, p := range u.Points {
		t.row(instant(p.At), p.Outcome, p.Requests, p.Cost)
	}
	t.end()
}
