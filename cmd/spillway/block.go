package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
)

const aboutTruth = `

The control is asked where one is named, else the sidecar. The change is in force on all sidecars within a second.`

func newBlocks() *noun {
	return &noun{
		name: "blocks", one: "block",
		about: "Blocks: all requests of a blocked user, tenant, API key or address are refused",
		path:  "blocks", next: "after_kind=kind after=name",
		columns: columns("KIND kind | NAME name | BLOCKED :blocked | BY updated_by | AT updated_at:when"),
		verbs: []verb{
			{use: "list", short: "List the blocks of a control that are in force", example: "list --domain shop",
				run: listBlocks},
			{use: "set [KIND/]NAME", short: "Block a user, tenant, API key or address", run: setBlock, flags: addBlock,
				example: "set user/mallory --for 1h --reason \"Contact support.\"",
				long: `Refuse all requests of a user, a tenant (tenant/NAME), an API key (api_key/ID), an address or a
network (ip/192.0.2.0/24). The client reads the reason.` + aboutTruth},
			{use: "rm [KIND/]NAME", short: "End a block", run: removeBlock, flags: addUnblock,
				example: "rm ip/192.0.2.0/24",
				long:    "End a block." + aboutTruth},
		},
	}
}

// newIdentityWords makes the words of their own that change what is kept of an identity.
func newIdentityWords() []*cobra.Command {
	tier := &noun{name: "tier", path: "users", verbs: []verb{{
		use: "set [KIND/]NAME [TIER]", short: "Give an identity a tier, or limits of its own", flags: addTier,
		run: func(s *session, args []string) { s.setTier(args[0], args[1:]...) },
		long: `Give a user, a tenant or an API key a tier or limits of its own, in place of those of the rules. The
tier none removes it. A limit is written as in a rule file, COUNT/PER, with more behind commas:
5000/1d,algorithm=fixed_window,name=daily; unlimited frees of limits. A control keeps tiers of users, and quotas in
place of limits.` + aboutTruth,
	}}}
	return []*cobra.Command{
		newBlocks().word("set", "block [KIND/]NAME", `block mallory --for 1h --reason "Contact support."`),
		newBlocks().word("rm", "unblock [KIND/]NAME", "unblock mallory"),
		tier.word("set", "tier [KIND/]NAME [TIER]",
			"tier alice gold\ntier alice --limit 100/1m,burst=200 --limit 5000/1d\n"+
				"tier tenant/acme none --limit none"),
	}
}

var limitsOf = []option{{"limit", "a limit of its own, or none; may be given several times", readLimit}}

func addTier(cmd *cobra.Command) {
	addOptions(cmd, limitsOf)
	addChange(cmd)
}

func addBlock(cmd *cobra.Command) {
	cmd.Flags().String("reason", "", "what the client reads")
	cmd.Flags().Bool("wide", false, "block a network wider than /8, of IPv6 /32; at a control alone")
	cmd.Flags().String("for", "", "how long, such as 12h or 7d; default: until it is ended")
	cmd.Flags().String("until", "", "until when, such as 2027-01-01T00:00:00Z")
	cmd.MarkFlagsMutuallyExclusive("for", "until")
	addChange(cmd)
}

func addUnblock(cmd *cobra.Command) {
	cmd.Flags().Bool("lift", false, "also lift the blocks of the rule file that name the identity; at a sidecar alone")
	addChange(cmd)
}

// addChange adds the flags of a change of an identity.
func addChange(cmd *cobra.Command) {
	cmd.Flags().String("note", "", "a note for operators; at a sidecar alone")
	cmd.Flags().Bool("dry-run", false, "change nothing, and print what would change")
}

func listBlocks(s *session, _ []string) {
	if s.server == sidecarAPI {
		s.fail(errors.New("a sidecar cannot list blocks: name a control, or ask counters list about one identity"))
		return
	}
	listNoun(s, nil)
}

func setBlock(s *session, args []string) {
	body := object{}
	if reason := s.flag("reason"); reason != "" {
		body["reason"] = reason
	}
	if end := cmp.Or(s.flag("for"), s.flag("until")); end != "" {
		until, err := readInstant(end)
		if s.failed(err) {
			s.err = fmt.Errorf("%q %w", end, err)
		}
		body["until"] = until
	}
	if s.server == sidecarAPI {
		s.changeSidecar("/v1/block", args[0], body)
		return
	}
	s.changeBlock(http.MethodPut, args[0], body)
}

func removeBlock(s *session, args []string) {
	if s.server == sidecarAPI {
		s.changeSidecar("/v1/unblock", args[0], object{})
		return
	}
	s.changeBlock(http.MethodDelete, args[0], nil)
}

// setTier changes the tier, and the limits that the flags name, of an identity.
func (s *session) setTier(who string, tier ...string) {
	body := object{}
	s.fill(body, limitsOf)
	if s.given("limit") && body["limits"] == nil {
		body["limits"] = []any{}
	}
	if s.server == controlAPI {
		s.changeUser(who, tier)
		return
	}
	if len(tier) > 0 {
		body["tier"] = strings.TrimPrefix(tier[0], "none")
	}
	s.changeSidecar("/v1/tier", who, body)
}

// changeSidecar changes what is kept of an identity at a sidecar, and prints the state before and after.
func (s *session) changeSidecar(path, who string, body object) {
	id, err := readIdentity(who)
	if s.is("wide") {
		err = errors.New("--wide is for a control alone: leave it out")
	}
	if s.failed(err) {
		return
	}
	body[id.kind] = id.name
	if s.domain != "" {
		body["domain"] = s.domain
	}
	if s.given("note") {
		body["note"] = s.flag("note")
	}
	for flag, field := range map[string]string{"dry-run": "dry_run", "lift": "lift"} {
		if s.is(flag) {
			body[field] = true
		}
	}
	s.changed(s.ask(http.MethodPost, path, body, nil).object)
}

// changed prints a change of what is kept of an identity.
func (s *session) changed(o object) {
	s.print(o, func() {
		s.line("%s%s", dryRun(o), holder(inner(o, "identity")))
		s.line("  before: %s\n  after:  %s", profile(inner(o, "before")), profile(inner(o, "after")))
		list, _ := o["warnings"].([]any)
		for _, warning := range list {
			s.line("warning: %s", plain(words(warning)))
		}
	})
}

// dryRun begins what is printed of a change that was not made.
func dryRun(o object) string {
	return map[bool]string{true: "nothing is changed: "}[isTrue(o, "dry_run")]
}

// changeAt makes a change of an identity at a control, and prints it as changeSidecar does. view makes the state that a
// sidecar would show of what the control answers.
func (s *session) changeAt(id identity, method, path string, now *answer, body object, view func(o object) object,
	condition []string, params url.Values) {
	after := body
	if !s.is("dry-run") {
		after = s.ask(method, path, body, params, condition...).object
	}
	s.changed(object{
		"identity": object{"domain": s.domain, id.kind: id.name}, "dry_run": s.is("dry-run"),
		"before": view(now.object), "after": view(after), "warnings": []any{},
	})
}

// identityAt reads who is meant, for a control. Flags for a sidecar alone are refused.
func (s *session) identityAt(who string) identity {
	id, err := readIdentity(who)
	for _, name := range []string{"note", "lift", "limit"} {
		if s.given(name) {
			err = fmt.Errorf("--%s is for a sidecar alone, and %s is a control: leave it out", name, s.base)
		}
	}
	s.fail(err)
	return id
}

// changeBlock changes a block at a control.
func (s *session) changeBlock(method, who string, body object) {
	id := s.identityAt(who)
	path := s.below("blocks", id.kind, id.name)
	now := s.look(path)
	if method == http.MethodDelete && now.object == nil {
		s.fail(refused("there is no block of the %s %q in the domain %q", id.kind, id.name, s.domain))
	}
	revised := now
	if id.kind == "user" { // the row of a user has the revision of its block, too
		revised = s.look(s.below("users", id.name))
	}
	params := url.Values{}
	if s.is("wide") {
		params.Set("wide", "true")
	}
	s.changeAt(id, method, path, now, body, func(b object) object {
		if len(b) == 0 && method == http.MethodDelete || b == nil {
			return nil
		}
		return object{"block": object{"reason": b["reason"], "until": b["until"]}, "by": b["updated_by"],
			"at": b["updated_at"]}
	}, s.condition(revised), params)
}

// changeUser changes the tier of a user at a control.
func (s *session) changeUser(who string, tier []string) {
	id := s.identityAt(who)
	switch {
	case id.kind != "user":
		s.fail(fmt.Errorf("a control keeps tiers of users, not of %s/%s: name a user", id.kind, id.name))
	case len(tier) == 0:
		s.fail(errors.New("the tier is missing: it is spillway tier [KIND/]NAME TIER"))
	}
	path := s.below("users", id.name)
	now := s.look(path)
	body := kept(now.object, newUsers().fields)
	delete(body, "tier")
	if len(tier) > 0 && tier[0] != "none" && tier[0] != "" {
		body["tier"] = tier[0]
	}
	s.changeAt(id, http.MethodPut, path, now, body, userProfile, s.condition(now), nil)
}

// userProfile is a user of a control as a sidecar shows it.
func userProfile(u object) object {
	if u == nil {
		return nil
	}
	var quotas []any
	for _, per := range []string{"hour", "day", "month"} {
		if count := u["quota_"+per]; count != nil {
			quotas = append(quotas, object{"count": count, "per": per})
		}
	}
	r := object{"tier": u["tier"], "by": u["updated_by"], "at": u["updated_at"], "limits": quotas}
	if isTrue(u, "blocked") {
		r["block"] = object{"reason": u["block_reason"], "until": u["blocked_until"]}
	}
	return r
}
