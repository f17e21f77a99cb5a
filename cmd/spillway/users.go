package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-mesh/spillway/control/api"
	"github.com/spillway-mesh/spillway/control/database"
)

func newUsers() *cobra.Command {
	return group("users", "List and change the users of a control",
		"users works with the users that a control keeps: their tiers, quotas and blocks.",
		newUsersList(), newUsersShow(), newUsersSet(), newRemove("users", "user", "Remove a user without API keys"), newUsersLoad())
}

func newUsersList() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List users by name", Example: "  spillway users list --domain shop --tier gold\n  spillway users list --prefix ann --limit 20", Args: between(0, 0),
		Long: "It lists the users of a domain by name, with their tiers, quotas and blocks.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			domain, err := domainOf(cmd)
			if err != nil {
				return err
			}
			params := url.Values{}
			for _, name := range []string{"tier", "prefix", "after"} {
				if value := cmd.Flag(name).Value.String(); value != "" {
					params.Set(name, value)
				}
			}
			all, err := pages(cmd, place(domain, "users"), params, func(l *api.UserList) []database.User { return l.Users },
				func(params url.Values, last *database.User) { params.Set("after", last.Name) })
			if err != nil {
				return err
			}
			return put(cmd, api.UserList{Users: all}, showUsers)
		},
	}
	addControl(cmd)
	cmd.Flags().String("tier", "", "those of one tier alone")
	cmd.Flags().String("prefix", "", "those whose names begin so")
	cmd.Flags().String("after", "", "those behind this name")
	cmd.Flags().Int("limit", 100, "how many")
	return cmd
}

func showUsers(w io.Writer, list api.UserList) {
	t := newTable(w, "NAME", "TIER", "PER HOUR", "BURST", "PER DAY", "PER MONTH", "BLOCKED")
	for i := range list.Users {
		u := &list.Users[i]
		t.row(u.Name, orEmpty(u.Tier), orEmpty(u.QuotaHour), orEmpty(u.Burst), orEmpty(u.QuotaDay), orEmpty(u.QuotaMonth), userBlock(u))
	}
	t.end()
}

// orEmpty is a value that may be missing.
func orEmpty[T any](value *T) any {
	if value == nil {
		return ""
	}
	return *value
}

// moment is an instant that may be missing.
func moment(at *time.Time) string {
	if at == nil {
		return ""
	}
	return instant(*at)
}

func userBlock(u *database.User) string {
	if !u.Blocked {
		return ""
	}
	return blockWords(u.BlockedUntil, u.BlockReason)
}

// blockWords is until when a block holds, and why.
func blockWords(until *time.Time, reason string) string {
	text := "until it is unblocked"
	if until != nil {
		text = "until " + instant(*until)
	}
	if reason != "" {
		text += ": " + reason
	}
	return text
}

func newUsersShow() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show NAME", Short: "Show a user", Example: "  spillway users show ann --domain shop", Args: between(1, 1),
		Long: "It shows what a control holds about a user.",
		RunE: func(cmd *cobra.Command, args []string) error {
			domain, err := domainOf(cmd)
			if err != nil {
				return err
			}
			var u database.User
			err = find(cmd, place(domain, "users", args[0]), fmt.Sprintf("user %q in the domain %q", args[0], domain), &u)
			if err != nil {
				return err
			}
			return put(cmd, u, showUser)
		},
	}
	addControl(cmd)
	return cmd
}

func showUser(w io.Writer, u database.User) {
	exceeded := ""
	if u.ExceededCount > 0 {
		exceeded = fmt.Sprint(u.ExceededCount)
	}
	facts(w, "domain", u.Domain, "name", u.Name, "tier", orEmpty(u.Tier), "per hour", orEmpty(u.QuotaHour), "burst", orEmpty(u.Burst), "per day", orEmpty(u.QuotaDay),
		"per month", orEmpty(u.QuotaMonth), "blocked", userBlock(&u), "last request", moment(u.LastRequestAt), "refused", exceeded,
		"revision", u.Revision, "changed by", u.UpdatedBy, "changed at", instant(u.UpdatedAt))
}

func newUsersSet() *cobra.Command {
	cmd := &cobra.Command{
		Use: "set NAME", Short: "Make a user, or change it", Example: "  spillway users set ann --tier gold\n  spillway users set ann --quota-month 1000000 --quota-hour none", Args: between(1, 1),
		Long: `set makes a user, or changes what the flags name of one that is there. A quota takes the place of the tier's limits. none removes what there is. Where
another changes the user meanwhile, the command fails.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return set(cmd, "users", args[0], []string{"tier", "quota_hour", "quota_day", "quota_month", "burst"}, func(body map[string]any) error {
				takeTier(cmd, body)
				return numbers(cmd, body, "quota-hour", "quota-day", "quota-month", "burst")
			}, showUser)
		},
	}
	addControl(cmd)
	addLock(cmd)
	cmd.Flags().String("tier", "", "the tier, or none")
	cmd.Flags().String("quota-hour", "", "requests per hour, or none")
	cmd.Flags().String("burst", "", "requests at once, where there is a quota per hour; default: that quota")
	cmd.Flags().String("quota-day", "", "requests per day, or none")
	cmd.Flags().String("quota-month", "", "requests per calendar month, or none")
	return cmd
}

// takeTier fills in the tier of the flag.
func takeTier(cmd *cobra.Command, body map[string]any) {
	f := cmd.Flags().Lookup("tier")
	switch {
	case !f.Changed:
	case f.Value.String() == "none" || f.Value.String() == "":
		delete(body, "tier")
	default:
		body["tier"] = f.Value.String()
	}
}

// set reads what there is, changes its fields, and writes it back unless another has changed it meanwhile.
func set[T any](cmd *cobra.Command, kind, name string, fields []string, change func(body map[string]any) error, show func(io.Writer, T)) error {
	domain, err := domainOf(cmd)
	if err != nil {
		return err
	}
	now, err := look(cmd, place(domain, kind, name))
	if err != nil {
		return err
	}
	body, err := kept(now.document, fields...)
	if err == nil {
		err = change(body)
	}
	if err != nil {
		return err
	}
	now, err = askControl(cmd, http.MethodPut, place(domain, kind, name), body, nil, lockOf(cmd, now)...)
	var view T
	if err == nil {
		err = now.read(&view)
	}
	if err != nil {
		return err
	}
	return put(cmd, view, show)
}

// newRemove makes the command that removes one of a kind.
func newRemove(kind, what, short string) *cobra.Command {
	cmd := &cobra.Command{
		Use: "rm NAME", Short: short, Args: between(1, 1),
		Long: short + ". What is in use stays, and the answer names what uses it.",
		RunE: func(cmd *cobra.Command, args []string) error {
			domain, err := domainOf(cmd)
			if err != nil {
				return err
			}
			return remove(cmd, place(domain, kind, args[0]), fmt.Sprintf("%s %q in the domain %q", what, args[0], domain))
		},
	}
	addControl(cmd)
	addLock(cmd)
	return cmd
}

// remove removes what is under a path.
func remove(cmd *cobra.Command, path, what string) error {
	now, err := look(cmd, path)
	if err == nil && now.document == nil {
		err = &unreachable{fmt.Errorf("there is no %s", what)}
	}
	if err == nil {
		_, err = askControl(cmd, http.MethodDelete, path, nil, nil, lockOf(cmd, now)...)
	}
	if err != nil {
		return err
	}
	return put(cmd, map[string]string{"removed": what}, func(w io.Writer, _ map[string]string) {
		fmt.Fprintf(w, "%s is removed\n", plain(strings.TrimSpace(what)))
	})
}
