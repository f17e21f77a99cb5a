package main

import (
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"
)

var keyOptions = []option{
	{"name", "what people call it", nil},
	{"tier", "a tier of its own", nil},
	{"limit", "a limit of its own, such as 100/1m,burst=200; may be given several times", readLimit},
	{"expires", "when it ends: an instant such as 2027-01-01T00:00:00Z, or in how long, such as 90d", readInstant},
}

func newKeys() *noun {
	const list = "ID id | NAME name | PREFIX prefix | USER user | TIER tier | STATE :keyState state | EXPIRES " +
		"expires_at:when | LAST USED last_used_at:when | REQUESTS total_requests | LIMITS limits:limits wide | " +
		"REFUSED refused_requests wide"
	return &noun{
		name: "keys", one: "key", about: "The API keys of a control. Secrets are not kept: each is shown once",
		api:  controlAPI,
		path: "keys", key: "id", next: "after=id", columns: columns(list),
		facts:   columns(list + " | REVOKED AT revoked_at:when | SECRET secret"),
		filters: []option{{"user", "those of one user alone", nil}}, fields: keyOptions,
		verbs: []verb{
			{use: "list", short: "List API keys by id, also those that were revoked", example: "list --user ann"},
			{use: "show ID", short: "Show an API key", example: "show ann-1"},
			{use: "create ID", short: "Make an API key, and print its secret this once", run: createKey,
				flags:   addCreateKey,
				example: "create ann-1 --user ann --expires 90d",
				long: `create makes an API key of a user, and prints its secret this once. A tier or limits of the key
take the place of its user's.`},
			{use: "set ID", short: "Change the name, tier, limits or end of an API key", run: setKey,
				example: "set ann-1 --tier gold --expires none",
				long:    "set changes what its flags name, and nothing else. none removes it."},
			{use: "rotate ID NEW-ID", short: "Make a key in place of another one, and print its secret this once",
				run:   rotateKey,
				flags: addRotateKey, example: "rotate ann-1 ann-2 --overlap 24h --expires 90d",
				long: `rotate makes a key with the user, name, tier, limits and end of another one, and prints its
secret this once. --expires gives it another end. Both keys are valid for the time of --overlap; then the old one ends. keys set changes that end.`},
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
	addOptions(cmd, keyOptions[len(keyOptions)-1:])
	addRevision(cmd)
	cmd.Flags().String("overlap", "24h", "how long the old key stays valid, such as 12h or 7d; 0: it ends now")
}

func createKey(s *session, args []string) {
	body := object{"id": args[0], "user": s.flag("user")}
	s.fill(body, keyOptions)
	s.showSecret(s.ask(http.MethodPost, s.path(), body, nil).object)
}

// showSecret prints a new key with its secret.
func (s *session) showSecret(o object) {
	s.show(o)
	if s.err == nil && !s.data() {
		s.line("The secret is shown this once.")
	}
}

func setKey(s *session, args []string) {
	s.existing(args)
	setNoun(s, args)
}

func rotateKey(s *session, args []string) {
	path, now := s.existing(args[:1])
	if s.flag("expires") == "none" {
		s.fail(fmt.Errorf("--expires must be an instant or a time from now here: "+
			"keys set %s --expires none removes the end after the rotation", args[1]))
	}
	body := object{"id": args[1]}
	s.fill(body, keyOptions[len(keyOptions)-1:])
	if overlap := s.flag("overlap"); overlap != "0" {
		end, err := readInstant(overlap)
		if err != nil {
			s.fail(fmt.Errorf("--overlap is %q and %w", overlap, err))
		}
		body["old_ends_at"] = end
	}
	s.showSecret(s.ask(http.MethodPost, path+"/rotate", body, nil, s.condition(now)...).object)
	if s.err == nil && !s.data() {
		_, old := s.existing(args[:1])
		s.print(old.object, func() { s.line("%s: %s", plain(args[0]), oldKeyWords(old.object)) })
	}
}

// oldKeyWords states until when a key that was rotated is valid.
func oldKeyWords(k object) string {
	if k["revoked_at"] != nil {
		return "ended"
	}
	return "valid until " + when(k["expires_at"])
}

func revokeKey(s *session, args []string) {
	path, now := s.existing(args)
	s.show(s.ask(http.MethodDelete, path, nil, nil, s.condition(now)...).object)
}
