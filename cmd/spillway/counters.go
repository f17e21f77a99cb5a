package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

const aboutCounters = `

Name who is counted: a user, tenant/NAME, api_key/ID, ip/ADDRESS and, for rules that count by them, endpoint/PATH and
tier/NAME. --key names counters by their keys in place of that.`

const aboutWhose = " Name who is counted as counters list does."

func newCounters() *noun {
	return &noun{
		name: "counters", one: "counter", about: "The counters of limits: what is left, who is refused most",
		api: sidecarAPI,
		verbs: []verb{
			{use: "list [KIND/]NAME...", short: "Show what an identity has left, and what is kept of it",
				run:   listCounters,
				flags: addKey, example: "list alice\nlist user/alice endpoint//search",
				long: "List the counters of an identity with what is left, its block, tier and own limits." +
					aboutCounters},
			{use: "top", short: "Show the keys that are asked for and refused most", run: topCounters, flags: addTop,
				example: "top --all",
				long: `List the keys that were asked for and refused most in the last one to two minutes, each with
the error of its count.`},
			{use: "reset [KIND/]NAME...", short: "Make counters full", flags: addCounters, example: "reset alice",
				run:  func(s *session, args []string) { s.changeCounters("/v1/reset", args) },
				long: "Make counters full, on all sidecars that share the store." + aboutWhose},
			{use: "pardon [KIND/]NAME...", short: "End the cool-downs of an identity", flags: addCounters,
				example: "pardon alice",
				run:     func(s *session, args []string) { s.changeCounters("/v1/pardon", args) },
				long:    "End the cool-downs of penalties, on all sidecars that share the store." + aboutWhose},
		},
	}
}

func addKey(cmd *cobra.Command) {
	cmd.Args = between(0, many)
	cmd.Flags().StringSlice("key", nil, "the key of a counter, in place of who is counted; may be given several times")
}

func addCounters(cmd *cobra.Command) {
	addKey(cmd)
	cmd.Flags().Bool("dry-run", false, "change nothing, and print what would change")
}

var topOptions = []option{{"rule", "one rule alone", nil}, {"limit", "how many of each list; default: 20", nil}}

func addTop(cmd *cobra.Command) {
	addWatch(cmd)
	addOptions(cmd, topOptions)
	cmd.Flags().Bool("all", false, "ask all sidecars that share the store")
}

func topCounters(s *session, _ []string) {
	params := s.withDomain(s.parameters(topOptions))
	if s.is("all") {
		params.Set("all", "true")
	}
	o := s.get("/v1/top", params)
	s.doubt(len(objects(o, "asked"))+len(objects(o, "refused")) == 0)
	s.print(o, func() {
		s.line("since %s, from %s", when(o["since"]), counted(int(whole(o, "sidecars")), "sidecar"))
		if every := whole(o, "sampled_one_in"); every > 1 {
			s.line("one decision in %d is counted", every)
		}
		if absent := text(o, "missing"); absent != "" {
			s.line("no answer from: %s", absent)
		}
		s.unknown(o)
		for _, list := range []struct{ title, field string }{{"refused most", "refused"}, {"asked for most", "asked"}} {
			rows := objects(o, list.field)
			if len(rows) == 0 {
				s.line("\n%s: no key", list.title)
				continue
			}
			s.line("\n%s", list.title)
			s.table(rows, columns("COUNT count | ERROR error | WHO :owners | RULE :ruleTitle | DOMAIN domain | KEY "+
				"key wide"))
		}
	})
}

// whoseCounters reads who is counted, as the body of a request.
func (s *session) whoseCounters(args []string) object {
	body := object{}
	if s.domain != "" {
		body["domain"] = s.domain
	}
	if keys, _ := s.cmd.Flags().GetStringSlice("key"); len(keys) > 0 {
		body["keys"] = keys
	} else if len(args) == 0 {
		s.fail(errors.New("name whom, as [KIND/]NAME, or counters by --key: the form is " + usageOf(s.cmd)))
	}
	for _, arg := range args {
		id, err := readIdentity(arg, "endpoint", "tier")
		s.fail(err)
		body[id.kind] = id.name
	}
	return body
}

func listCounters(s *session, args []string) {
	params := url.Values{}
	for field, value := range s.whoseCounters(args) {
		if keys, is := value.([]string); is {
			field, value = "key", keys[0]
		}
		params.Set(field, fmt.Sprint(value))
	}
	o := s.get("/v1/usage", params)
	all := objects(o, "counters")
	s.doubtWho(o, all)
	s.print(o, func() {
		kept := profile(inner(o, "profile"))
		if text(o, "unknown") != "" && inner(o, "profile") == nil {
			kept = "unknown"
		}
		s.line("%s\nkept: %s", holder(inner(o, "identity")), kept)
		s.unknown(o)
		idle := func(c object) bool { return text(c, "idle") != "" }
		s.showCounters(o, slices.DeleteFunc(slices.Clone(all), idle), `LEFT :left | LIMIT limit:limit |
			THEN :untilFull | RULE :ruleTitle | WHO :owners | COOL-DOWN cool_down:coolDown | AT at | KEY key wide`)
		for _, c := range all {
			if idle(c) {
				s.line("not shown: %s (%s): %s", plain(ruleTitle(c)), plain(limit(c["limit"])), plain(text(c, "idle")))
			}
		}
	})
}

// doubtWho notes an identity of which a sidecar knows nothing.
func (s *session) doubtWho(o object, counters []object) {
	known := inner(o, "profile") != nil || text(o, "unknown") != "" || slices.ContainsFunc(counters, isUsed)
	if s.err == nil && !known && len(counters) > 0 && inner(o, "identity")["keys"] == nil {
		s.note("nothing is kept of %s, and no counter has been used", holder(inner(o, "identity")))
	}
}

// showCounters prints counters, and the rules whose counters need more to be found.
func (s *session) showCounters(o object, rows []object, spec string) {
	if len(rows) == 0 {
		s.line("no counter")
	} else {
		s.table(rows, columns(spec))
	}
	for _, u := range objects(o, "unlisted") {
		s.line("not shown: the counters of %s (%s): give %s", plain(text(u, "rule")), text(u, "scope"), text(u,
			"lacks"))
	}
}

// changeCounters changes counters by the operation under a path, and prints them before and after.
func (s *session) changeCounters(path string, args []string) {
	body := s.whoseCounters(args)
	if s.is("dry-run") {
		body["dry_run"] = true
	}
	o := s.ask(http.MethodPost, path, body, nil).object
	before, after := objects(o, "before"), objects(o, "after")
	s.print(o, func() {
		s.line("%s%s", dryRun(o), holder(inner(o, "identity")))
		rows := make([]object, min(len(before), len(after)))
		for i := range rows {
			rows[i] = object{"before": before[i], "after": after[i]}
		}
		s.showCounters(o, rows, `BEFORE before.left | AFTER after.left | LIMIT before.limit:limit |
			COOL-DOWN before.cool_down:coolDown | AFTERWARDS after.cool_down:coolDown | WHO before:owners |
			RULE before:ruleTitle | KEY before.key wide`)
	})
	what, changes := "counter of %s has been used: nothing to reset", isUsed
	if path == "/v1/pardon" {
		what, changes = "counter of %s has a cool-down: nothing to pardon", coolsDown
	}
	if s.err == nil && !slices.ContainsFunc(before, changes) {
		fmt.Fprintf(cleaned{to: s.cmd.ErrOrStderr()}, "spillway: no "+what+"\n", holder(inner(o, "identity")))
		s.found(true)
	}
}

// coolsDown reports whether a counter has a cool-down, or is not known.
func coolsDown(c object) bool { return c["cool_down"] != nil || text(c, "unknown") != "" }

// isUsed reports whether a counter is not full, or is not known.
func isUsed(c object) bool {
	full := whole(c, "limit.count")
	if burst := whole(c, "limit.burst"); burst > 0 {
		full = burst
	}
	return whole(c, "left") < full || text(c, "unknown") != ""
}

// left is what is left on a counter, or that the store does not know.
func left(c object) string {
	switch {
	case isTrue(c, "share"):
		return text(c, "left") + " (share)"
	case text(c, "unknown") != "":
		return "unknown"
	}
	return text(c, "left")
}

// untilFull is what becomes of a counter if nothing is asked of it.
func untilFull(c object) string {
	after := span(c["reset_after"])
	switch state := text(c, "state"); {
	case text(c, "unknown") != "":
		return "not known: " + outage(text(c, "unknown"))
	case state == "ends":
		return "ends in " + after
	case state == "fills":
		return "full in " + after
	}
	return "full"
}

// owners are whom a counter counts, without one all requests. A block by a profile has the name in place of a key.
func owners(c object) string {
	var all []string
	for _, one := range objects(c, "who") {
		all = append(all, text(one, "name"))
	}
	if len(all) == 0 && !strings.Contains(text(c, "key"), "{") {
		return text(c, "key")
	}
	return cmp.Or(strings.Join(all, " "), "all")
}

func coolDown(value any) string {
	if value == nil {
		return "no"
	}
	return span(value)
}

// names are the names of an object by their kinds, with commas between them.
func names(o object, kinds ...string) string {
	var all []string
	for _, kind := range kinds {
		if name := text(o, kind); name != "" {
			all = append(all, strings.ReplaceAll(kind, "_", " ")+" "+plain(name))
		}
	}
	return strings.Join(all, ", ")
}

// holder is whom or what was asked about.
func holder(h object) string {
	if keys, _ := h["keys"].([]any); len(keys) > 0 {
		return counted(len(keys), "key")
	}
	return names(h, append(slices.Clone(kinds), "endpoint", "tier")...) + " in " + plain(text(h, "domain"))
}

// profile is what is kept of an identity, on one line.
func profile(r object) string {
	if len(r) == 0 {
		return "none"
	}
	var parts []string
	if b := inner(r, "block"); isTrue(b, "lifted") {
		parts = append(parts, "blocks of the rule file lifted")
	} else if b != nil {
		parts = append(parts, "blocked "+blocked(b))
	}
	if tier := text(r, "tier"); tier != "" {
		parts = append(parts, "tier "+plain(tier))
	}
	list, _ := r["limits"].([]any)
	for _, one := range list {
		parts = append(parts, "own limit "+plain(limit(one)))
	}
	if note := text(r, "note"); note != "" {
		parts = append(parts, "note"+quoted(note))
	}
	all := cmp.Or(strings.Join(parts, ", "), "nothing")
	if by := text(r, "by"); by != "" {
		all += fmt.Sprintf(" (by %s, %s)", plain(by), when(r["at"]))
	}
	return all
}
