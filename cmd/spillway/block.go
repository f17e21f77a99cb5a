package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
)

// sidecarAlone are flags that a control has no field for.
var sidecarAlone = []string{"note", "lift", "limit"}

func newBlocks() *noun {
	return &noun{
		name: "blocks", one: "block", about: "Blocks: all requests of a blocked user, tenant, API key or address are refused",
		path: "blocks", next: []string{"after_kind=kind", "after=name"},
		columns: []column{
			{"KIND", "kind", nil, 0}, {"NAME", "name", nil, 0}, {"BLOCKED", "", blocked, 0}, {"BY", "updated_by", nil, 0},
			{"AT", "updated_at", when, 0},
		},
		verbs: []verb{
			{use: "list", short: "List the blocks of a control that are in force", example: "list --domain shop", run: listBlocks},
			{use: "set [KIND/]NAME", short: "Block a user, tenant, API key or address", run: setBlock, flags: addBlock,
				example: "set user/mallory --for 1h --reason \"Contact support.\"", long: aboutBlock},
			{use: "rm [KIND/]NAME", short: "End a block", run: removeBlock, flags: addUnblock, example: "rm ip/192.0.2.0/24"},
		},
	}
}

const aboutTruth = `

The control is asked where a flag, a variable or the context names one, else the sidecar. The change is in force within
a second on all sidecars that share the store. The state before and after is printed.`

const aboutBlock = `Refuse all requests of a user, a tenant (tenant/NAME), an API key (api_key/ID), an address or a network
(ip/192.0.2.0/24). The client reads the reason.` + aboutTruth

// newBlock, newUnblock and newTier are words of their own for verbs of nouns.
func newBlock() *cobra.Command {
	return word(newBlocks(), "set", "block [KIND/]NAME", `block mallory --for 1h --reason "Contact support."`)
}

func newUnblock() *cobra.Command {
	return word(newBlocks(), "rm", "unblock [KIND/]NAME", "unblock mallory")
}

// word makes a command of the verb of a noun.
func word(n *noun, name, use, example string) *cobra.Command {
	for i := range n.verbs {
		if before, _, _ := strings.Cut(n.verbs[i].use, " "); before == name {
			cmd := n.verbs[i].command(n)
			cmd.Use, cmd.Example = use, "  spillway "+example
			return cmd
		}
	}
	panic("no verb " + name)
}

func newTier() *cobra.Command {
	n := &noun{name: "tier", path: "users", next: []string{"after=name"}, prefix: true}
	v := verb{
		use: "tier [KIND/]NAME [TIER]", short: "Give an identity a tier, or limits of its own", run: setTier, flags: addTier,
		long: `Give a user, a tenant or an API key a tier or limits of its own, in place of those of the rules. The tier none
removes it. A limit is written as in a rule file, COUNT/PER, with more behind commas:
5000/1d,algorithm=fixed_window,name=daily; unlimited frees of limits. A control keeps tiers of users, and quotas in
place of limits.` + aboutTruth,
	}
	cmd := v.command(n)
	cmd.Example = "  spillway tier alice gold\n  spillway tier alice --limit 100/1m,burst=200 --limit 5000/1d\n" +
		"  spillway tier tenant/acme none --limit none"
	return cmd
}

var tierOptions = []option{{"limit", "limits", "a limit of its own, or none; may be given several times", readLimit}}

func addTier(cmd *cobra.Command) {
	addOptions(cmd, tierOptions)
	addChange(cmd)
	addRevision(cmd)
}

func addBlock(cmd *cobra.Command) {
	cmd.Flags().String("reason", "", "what the client reads")
	cmd.Flags().Bool("wide", false, "block a network wider than /8, of IPv6 /32")
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

func listBlocks(s *session, _ []string) error {
	if s.server == sidecarAPI {
		return errors.New("a sidecar has no list of blocks: --control names a control, and counters list shows one identity's")
	}
	return listNoun(s, nil)
}

func setBlock(s *session, args []string) error {
	body := object{}
	if reason := s.flag("reason"); reason != "" {
		body["reason"] = reason
	}
	if text := either(s.flag("for"), s.flag("until")); text != "" {
		until, err := readInstant(text)
		if err != nil {
			return fmt.Errorf("%q %w", text, err)
		}
		body["until"] = until
	}
	if s.server == sidecarAPI {
		return s.changeSidecar("/v1/block", args[0], body)
	}
	return s.changeBlock(http.MethodPut, args[0], body)
}

func removeBlock(s *session, args []string) error {
	if s.server == sidecarAPI {
		return s.changeSidecar("/v1/unblock", args[0], object{})
	}
	return s.changeBlock(http.MethodDelete, args[0], nil)
}

// changeSidecar changes the record of an identity at a sidecar, and prints the state before and after.
func (s *session) changeSidecar(path, who string, body object) error {
	id, err := readIdentity(who)
	if err != nil {
		return err
	}
	body[id.kind] = id.name
	if s.domain != "" {
		body["domain"] = s.domain
	}
	if f := s.cmd.Flag("note"); f.Changed {
		body["note"] = f.Value.String()
	}
	for flag, field := range map[string]string{"dry-run": "dry_run", "lift": "lift"} {
		if s.is(flag) {
			body[field] = true
		}
	}
	a, err := s.ask(http.MethodPost, path, body, nil)
	if err != nil {
		return err
	}
	o, err := a.object()
	if err != nil {
		return err
	}
	return s.changed(o)
}

// changed prints a change of what is kept of an identity.
func (s *session) changed(o object) error {
	return s.value(o, func() error {
		if isTrue(o, "dry_run") {
			fmt.Fprint(s.out, "nothing is changed: ")
		}
		s.line("%s", holder(inner(o, "identity")))
		s.line("  before: %s\n  after:  %s", profile(inner(o, "before")), profile(inner(o, "after")))
		list, _ := o["warnings"].([]any)
		for _, warning := range list {
			s.line("warning: %s", plain(words(warning)))
		}
		return nil
	})
}

// changeBlock changes a block at a control. It prints what changeSidecar prints.
func (s *session) changeBlock(method, who string, body object) error {
	id, path, err := s.identityAt("blocks", who)
	if err != nil {
		return err
	}
	now, err := s.look(path)
	if err != nil {
		return err
	}
	if method == http.MethodDelete && now.document == nil {
		return refused("there is no block of the %s %q in the domain %q", id.kind, id.name, s.domain)
	}
	before, err := now.object()
	if err != nil {
		return err
	}
	after, params := body, url.Values{}
	if s.is("wide") {
		params.Set("wide", "true")
	}
	if !s.is("dry-run") {
		condition, err := s.blockCondition(id, now)
		if err != nil {
			return err
		}
		a, err := s.ask(method, path, body, params, condition...)
		if err == nil {
			after, err = a.object()
		}
		if err != nil {
			return err
		}
	}
	return s.changed(s.change(id, blockProfile(before), blockProfile(after)))
}

// change is a change as a sidecar shows it.
func (s *session) change(id identity, before, after object) object {
	return object{
		"identity": object{"domain": s.domain, id.kind: id.name}, "dry_run": s.is("dry-run"),
		"before": before, "after": after, "warnings": []any{},
	}
}

// blockProfile is a block of a control as a sidecar shows it.
func blockProfile(b object) object {
	if len(b) == 0 {
		return nil
	}
	return object{
		"block": object{"reason": b["reason"], "until": b["until"]}, "by": b["updated_by"], "at": b["updated_at"],
	}
}

// identityAt reads who is meant, and where a control keeps it. Flags for a sidecar alone are refused.
func (s *session) identityAt(list, who string) (id identity, path string, err error) {
	for _, name := range sidecarAlone {
		if f := s.cmd.Flags().Lookup(name); f != nil && f.Changed {
			return id, "", fmt.Errorf("--%s is for a sidecar alone, and %s is a control: leave it out", name, s.base)
		}
	}
	id, err = readIdentity(who)
	if err != nil {
		return id, "", err
	}
	words := []string{list, id.kind, id.name}
	if list == "users" {
		words = []string{list, id.name}
	}
	path, err = s.inDomain(words...)
	return id, path, err
}

// blockCondition is the condition of a change of a block. A user's row has the revision of its block, too.
func (s *session) blockCondition(id identity, now *answer) ([]string, error) {
	if id.kind == "user" {
		var err error
		now, err = s.look(below(s.domain, "users", id.name))
		if err != nil {
			return nil, err
		}
	}
	return s.condition(now), nil
}

func setTier(s *session, args []string) error {
	body := object{}
	err := s.fill(body, tierOptions)
	if err != nil {
		return err
	}
	if s.cmd.Flag("limit").Changed && body["limits"] == nil {
		body["limits"] = []any{}
	}
	if s.server == controlAPI && len(args) < 2 {
		return errors.New("the tier is missing: it is spillway tier [KIND/]NAME TIER")
	}
	if s.server == controlAPI {
		return s.tierOfUser(args[0], args[1])
	}
	if len(args) > 1 {
		body["tier"] = strings.TrimPrefix(args[1], "none")
	}
	return s.changeSidecar("/v1/tier", args[0], body)
}

// tierOf changes the tier of an identity.
func (s *session) setTier(who, tier string) error {
	if s.server == controlAPI {
		return s.tierOfUser(who, tier)
	}
	return s.changeSidecar("/v1/tier", who, object{"tier": strings.TrimPrefix(tier, "none")})
}

// tierOfUser changes the tier of a user at a control.
func (s *session) tierOfUser(who, tier string) error {
	id, path, err := s.identityAt("users", who)
	if err != nil {
		return err
	}
	if id.kind != "user" {
		return fmt.Errorf("a control keeps tiers of users, not of %s: name a user", id)
	}
	now, err := s.look(path)
	if err != nil {
		return err
	}
	before, err := now.object()
	if err != nil {
		return err
	}
	body := kept(before, newUsers().fields)
	body["tier"] = tier
	if tier == "none" {
		delete(body, "tier")
	}
	after := body
	if !s.is("dry-run") {
		a, err := s.ask(http.MethodPut, path, body, nil, s.condition(now)...)
		if err == nil {
			after, err = a.object()
		}
		if err != nil {
			return err
		}
	}
	return s.changed(s.change(id, userProfile(before), userProfile(after)))
}

// userProfile is a user of a control as a sidecar shows it.
func userProfile(u object) object {
	if len(u) == 0 {
		return nil
	}
	r := object{"tier": u["tier"], "by": u["updated_by"], "at": u["updated_at"]}
	var limits []any
	for _, quota := range []struct{ field, per string }{{"quota_hour", "1h"}, {"quota_day", "1d"}, {"quota_month", "1mo"}} {
		if u[quota.field] != nil {
			limits = append(limits, object{"count": u[quota.field], "per": quota.per})
		}
	}
	r["limits"] = limits
	if isTrue(u, "blocked") {
		r["block"] = object{"reason": u["block_reason"], "until": u["blocked_until"]}
	}
	return r
}
