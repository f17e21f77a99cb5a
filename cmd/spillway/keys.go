package main

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-mesh/spillway/control/api"
	"github.com/spillway-mesh/spillway/control/database"
)

func newKeys() *cobra.Command {
	return group("keys", "List, make and revoke the API keys of a control",
		"keys works with the API keys that a control keeps. Secrets are not kept: each is shown once, at create.",
		newKeysList(), newKeysCreate(), newKeysRevoke())
}

func newKeysList() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List API keys by id", Example: "  spillway keys list --user ann", Args: between(0, 0),
		Long: "It lists the API keys of a domain by id, also those that were revoked.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			domain, err := domainOf(cmd)
			if err != nil {
				return err
			}
			params := url.Values{}
			if user := cmd.Flag("user").Value.String(); user != "" {
				params.Set("user", user)
			}
			all, err := pages(cmd, place(domain, "keys"), params, func(l *api.KeyList) []database.APIKey { return l.Keys },
				func(params url.Values, last *database.APIKey) { params.Set("after", last.ID) })
			if err != nil {
				return err
			}
			return put(cmd, api.KeyList{Keys: all}, showKeys)
		},
	}
	addControl(cmd)
	cmd.Flags().String("user", "", "those of one user alone")
	cmd.Flags().Int("limit", 100, "how many")
	return cmd
}

func showKeys(w io.Writer, list api.KeyList) {
	t := newTable(w, "ID", "PREFIX", "USER", "TIER", "EXPIRES", "LAST USED", "REQUESTS", "STATE")
	for i := range list.Keys {
		k := &list.Keys[i]
		t.row(k.ID, k.Prefix, k.UserName, orEmpty(k.Tier), moment(k.ExpiresAt), moment(k.LastUsedAt), k.TotalRequests, keyState(k, time.Now()))
	}
	t.end()
}

// keyState is whether a key works.
func keyState(k *database.APIKey, now time.Time) string {
	switch {
	case k.RevokedAt != nil:
		return "revoked by " + fmt.Sprint(orEmpty(k.RevokedBy))
	case k.ExpiresAt != nil && !k.ExpiresAt.After(now):
		return "expired"
	}
	return "valid"
}

func newKeysCreate() *cobra.Command {
	cmd := &cobra.Command{
		Use: "create ID", Short: "Make an API key, and print its secret this once", Example: "  spillway keys create ann-1 --user ann --expires 90d", Args: between(1, 1),
		Long: `create makes an API key of a user, and prints its secret this once. A tier or limits of the
key take the place of its user's.`,
		RunE: func(cmd *cobra.Command, args []string) error { return createKey(cmd, args[0]) },
	}
	addControl(cmd)
	cmd.Flags().String("user", "", "the user whose key it is")
	cmd.Flags().String("tier", "", "a tier of its own")
	cmd.Flags().StringArray("limit", nil, "a limit of its own, such as 100/1m,burst=200; may be given several times")
	cmd.Flags().String("expires", "", "when it ends: an instant such as 2027-01-01T00:00:00Z, or in how long, such as 90d")
	must(cmd.MarkFlagRequired("user"))
	return cmd
}

func createKey(cmd *cobra.Command, id string) error {
	domain, err := domainOf(cmd)
	if err != nil {
		return err
	}
	body := map[string]any{"id": id, "user": cmd.Flag("user").Value.String()}
	takeTier(cmd, body)
	err = takeLimits(cmd, body)
	if text := cmd.Flag("expires").Value.String(); err == nil && text != "" {
		body["expires_at"], err = whenOf(text, time.Now())
	}
	if err != nil {
		return err
	}
	got, err := askControl(cmd, http.MethodPost, place(domain, "keys"), body, nil)
	var k database.NewKey
	if err == nil {
		err = got.read(&k)
	}
	if err != nil {
		return err
	}
	return put(cmd, k, func(w io.Writer, k database.NewKey) {
		facts(w, "id", k.ID, "user", k.UserName, "tier", orEmpty(k.Tier), "expires", moment(k.ExpiresAt), "secret", k.Secret)
		fmt.Fprintln(w, "The secret is shown this once.")
	})
}

// whenOf reads an instant, or a time from now such as 90d or 12h.
func whenOf(text string, now time.Time) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, text)
	if err == nil {
		return at, nil
	}
	length, err := time.ParseDuration(text)
	if days, found := strings.CutSuffix(text, "d"); err != nil && found {
		var n int
		n, err = strconv.Atoi(days)
		length = time.Duration(n) * 24 * time.Hour
	}
	if err != nil || length <= 0 {
		return at, fmt.Errorf("%q must be an instant such as 2027-01-01T00:00:00Z, or a time from now such as 12h or 90d", text)
	}
	return now.Add(length).UTC().Truncate(time.Second), nil
}

func newKeysRevoke() *cobra.Command {
	cmd := &cobra.Command{
		Use: "revoke ID", Short: "End an API key", Example: "  spillway keys revoke ann-1", Args: between(1, 1),
		Long: "revoke ends an API key: requests with it are refused within a second. It stays in the list, so that it is known who had it.",
		RunE: func(cmd *cobra.Command, args []string) error {
			domain, err := domainOf(cmd)
			if err != nil {
				return err
			}
			path := place(domain, "keys", args[0])
			now, err := look(cmd, path)
			if err == nil && now.document == nil {
				err = &unreachable{fmt.Errorf("there is no API key %q in the domain %q", args[0], domain)}
			}
			if err == nil {
				now, err = askControl(cmd, http.MethodDelete, path, nil, nil, lockOf(cmd, now)...)
			}
			var k database.APIKey
			if err == nil {
				err = now.read(&k)
			}
			if err != nil {
				return err
			}
			return put(cmd, k, func(w io.Writer, k database.APIKey) {
				facts(w, "id", k.ID, "user", k.UserName, "state", keyState(&k, time.Now()), "revoked at", moment(k.RevokedAt))
			})
		},
	}
	addControl(cmd)
	addLock(cmd)
	return cmd
}
