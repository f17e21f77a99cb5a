package main

import (
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"
)

var keyOptions = []option{
	{"tier", "a tier of its own", nil},
	{"limit", "a limit of its own, such as 100/1m,burst=200; may be given several times", readLimit},
	{"expires", "when it ends: an instant such as 2027-01-01T00:00:00Z, or in how long, such as 90d", readInstant},
}

func newKeys() *noun {
	const list = "ID id | PREFIX prefix | USER user | TIER tier | STATE :keyState state | EXPIRES expires_at:when | " +
		"LAST USED last_used_at:when | REQUESTS total_requests | LIMITS limits:limits wide | " +
		"REFUSED refused_requests wide"
	return &noun{
		name: "keys", one: "key", about: "The API keys of a control. Secrets are not kept: each is shown once",
		api:  controlAPI,
		path: "keys", key: "id", next: "after=id", columns: columns(list),
		facts:   columns(list + " | REVOKED AT revoked_at:when | SECRET secret"),
		filters: []option{{"user", "those of one user alone", nil}},
		verbs: []verb{
			{use: "list", short: "List API keys by id, also those that were revoked", example: "list --user ann"},
			{use: "show ID", short: "Show an API key", example: "show ann-1"},
			{use: "create ID", short: "Make an API key, and print its secret this once", run: createKey,
				flags:   addCreateKey,
				example: "create ann-1 --user ann --expires 90d",
				long: `create makes an API key of a user, and prints its secret this once. A tier or limits of the key
take the place of its user's.`},
			{use: "rotate ID NEW-ID", short: "Make a key like another one, and print its secret this once",
				run:   rotateKey,
				flags: addRotateKey, example: "rotate ann-1 ann-2 --expires 90d",
				long: `rotate makes a key with the user, tier and limits of another one, and prints its secret this
once. The old key stays valid until rm or --revoke ends it.`},
			{use: "rm ID", short: "End an API key", run: revokeKey, example: "rm ann-1",
				long: `rm ends an API key: requests with it are refused within a second. It stays in the list, so that
it is known who had it.`},
		},
	}
}

// keyState is whether a key works.
func keyState(k object) string {
	ends, err := time.Parse(time.RFC3339Nano, text(k, "expires_at"))
	switch {
	case k["revoked_at"] != nil:
		return "revoked by " + text(k, "revoked_by")
	case err == nil && !ends.After(time.Now()):
		return "expired"
	}
	return "valid"
}

func addCreateKey(cmd *cobra.Command) {
	addOptions(cmd, append([]option{{"user", "the user whose key it is", nil}}, keyOptions...))
	must(cmd.MarkFlagRequired("user"))
}

func addRotateKey(cmd *cobra.Command) {
	addOptions(cmd, keyOptions)
	addRevision(cmd)
	cmd.Flags().Bool("revoke", false, "revoke the old key at once")
}

func createKey(s *session, args []string) { s.makeKey(args[0], object{"user": s.flag("user")}) }

// makeKey makes a key, with what the flags name, and prints it with its secret.
func (s *session) makeKey(id string, body object) {
	body["id"] = id
	s.fill(body, keyOptions)
	s.show(s.ask(http.MethodPost, s.path(), body, nil).object)
	if s.err == nil && !s.data() {
		s.line("The secret is shown this once.")
	}
}

func rotateKey(s *session, args []string) {
	path, now := s.existing(args[:1])
	body := kept(now.object, keyOptions[:2])
	body["user"] = now.object["user"]
	s.makeKey(args[1], body)
	if s.err == nil && s.is("revoke") {
		s.ask(http.MethodDelete, path, nil, nil, s.condition(now)...)
		if s.err != nil {
			s.err = fmt.Errorf("the new key is made, and the old one is not revoked: %w", s.err)
		}
	}
}

func revokeKey(s *session, args []string) {
	path, now := s.existing(args)
	s.show(s.ask(http.MethodDelete, path, nil, nil, s.condition(now)...).object)
}
