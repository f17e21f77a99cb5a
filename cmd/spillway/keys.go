package main

import (
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"
)

var keyOptions = []option{
	{"tier", "tier", "a tier of its own", nil},
	{"limit", "limits", "a limit of its own, such as 100/1m,burst=200; may be given several times", readLimit},
	{"expires", "expires_at", "when it ends: an instant such as 2027-01-01T00:00:00Z, or in how long, such as 90d", readInstant},
}

func newKeys() *noun {
	return &noun{
		name: "keys", one: "API key", about: "The API keys of a control. Secrets are not kept: each is shown once", api: controlAPI,
		path: "keys", key: "id", next: []string{"after=id"},
		columns: []column{
			{"ID", "id", nil, 0}, {"PREFIX", "prefix", nil, 0}, {"USER", "user", nil, 0}, {"TIER", "tier", nil, 0},
			{"STATE", "", keyState, state}, {"EXPIRES", "expires_at", when, 0}, {"LAST USED", "last_used_at", when, 0},
			{"REQUESTS", "total_requests", nil, 0}, {"REFUSED", "refused_requests", nil, wide}, {"LIMITS", "limits", limits, wide},
		},
		facts: []column{
			{"ID", "id", nil, 0}, {"PREFIX", "prefix", nil, 0}, {"USER", "user", nil, 0}, {"TIER", "tier", nil, 0},
			{"LIMITS", "limits", limits, 0}, {"STATE", "", keyState, 0}, {"EXPIRES", "expires_at", when, 0},
			{"LAST USED", "last_used_at", when, 0}, {"REQUESTS", "total_requests", nil, 0}, {"REVOKED AT", "revoked_at", when, 0},
			{"SECRET", "secret", nil, 0},
		},
		filters: []option{{"user", "user", "those of one user alone", nil}},
		verbs: []verb{
			{use: "list", short: "List API keys by id, also those that were revoked", example: "list --user ann"},
			{use: "show ID", short: "Show an API key", example: "show ann-1"},
			{use: "create ID", short: "Make an API key, and print its secret this once", run: createKey, flags: addKeyOptions,
				example: "create ann-1 --user ann --expires 90d",
				long:    "create makes an API key of a user, and prints its secret this once. A tier or limits of the key take the place of its user's."},
			{use: "rotate ID NEW-ID", short: "Make a key like another one, and print its secret this once", run: rotateKey,
				flags: func(cmd *cobra.Command) {
					addOptions(cmd, keyOptions[2:])
					addRevision(cmd)
					cmd.Flags().Bool("revoke", false, "revoke the old key at once")
				},
				example: "rotate ann-1 ann-2 --expires 90d\nrm ann-1",
				long: `rotate makes a key with the user, tier and limits of another one, and prints its secret this once. The old key works
on, until rm or --revoke ends it.`},
			{use: "rm ID", short: "End an API key", run: revokeKey, example: "rm ann-1",
				long: "rm ends an API key: requests with it are refused within a second. It stays in the list, so that it is known who had it."},
		},
	}
}

// keyState is whether a key works.
func keyState(value any) string {
	k, _ := value.(object)
	ends, err := time.Parse(time.RFC3339Nano, text(k, "expires_at"))
	switch {
	case k["revoked_at"] != nil:
		return "revoked by " + text(k, "revoked_by")
	case err == nil && !ends.After(time.Now()):
		return "expired"
	}
	return "valid"
}

func addKeyOptions(cmd *cobra.Command) {
	addOptions(cmd, append([]option{{"user", "user", "the user whose key it is", nil}}, keyOptions...))
	must(cmd.MarkFlagRequired("user"))
}

func createKey(s *session, args []string) error {
	body := object{"user": s.flag("user")}
	err := s.fill(body, keyOptions)
	if err != nil {
		return err
	}
	return s.makeKey(args[0], body)
}

// makeKey makes a key, and prints it with its secret.
func (s *session) makeKey(id string, body object) error {
	body["id"] = id
	path, err := s.where()
	if err != nil {
		return err
	}
	a, err := s.ask(http.MethodPost, path, body, nil)
	if err != nil {
		return err
	}
	err = s.one(a)
	if !s.data() {
		s.line("The secret is shown this once.")
	}
	return err
}

func rotateKey(s *session, args []string) error {
	path, now, err := s.found(args[:1])
	if err != nil {
		return err
	}
	old, err := now.object()
	if err != nil {
		return err
	}
	body := kept(old, keyOptions[:2])
	body["user"] = old["user"]
	if list, is := body["limits"].([]any); is && len(list) == 0 {
		delete(body, "limits")
	}
	err = s.fill(body, keyOptions[2:])
	if err == nil {
		err = s.makeKey(args[1], body)
	}
	if err == nil && s.is("revoke") {
		_, err = s.ask(http.MethodDelete, path, nil, nil, s.condition(now)...)
		if err != nil {
			err = fmt.Errorf("the new key is made, and the old one is not revoked: %w", err)
		}
	}
	return err
}

func revokeKey(s *session, args []string) error {
	path, now, err := s.found(args)
	if err == nil {
		now, err = s.ask(http.MethodDelete, path, nil, nil, s.condition(now)...)
	}
	if err != nil {
		return err
	}
	return s.one(now)
}
