package main

import (
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

func newCounters() *noun {
	return &noun{
		name: "counters", one: "counter", about: "The counters of limits: what is left, who is refused most", api: sidecarAPI,
		verbs: []verb{
			{use: "list [KIND/]NAME...", short: "Show what an identity has left, and what is kept of it", run: listCounters,
				flags: addKey, example: "list alice\nlist user/alice endpoint//search",
				long: "List the counters of an identity with what is left, its block, tier and own limits." + aboutCounters},
			{use: "top", short: "Show the keys that are asked for and refused most", run: topCounters, flags: addTop,
				example: "top --all", long: `List the keys that were asked for and refused most in the last one to two minutes, each with the error of its count.`},
			{use: "reset [KIND/]NAME...", short: "Make counters full", run: changeCounters("/v1/reset"), flags: addCounters,
				example: "reset alice", long: "Make counters full, on all sidecars that share the store." + aboutCounters},
			{use: "pardon [KIND/]NAME...", short: "End the cool-downs of an identity", run: changeCounters("/v1/pardon"),
				flags: addCounters, example: "pardon alice",
				long: "End the cool-downs of penalties, on all sidecars that share the store." + aboutCounters},
		},
	}
}

func newTop() *cobra.Command { return word(newCounters(), "top", "top", "top --all") }

func newReset() *cobra.Command {
	return word(newCounters(), "reset", "reset [KIND/]NAME...", "reset alice")
}

func addKey(cmd *cobra.Command) {
	cmd.Args = between(0, many)
	cmd.Flags().StringSlice("key", nil, "the key of a counter, in place of who is counted; may be given several times")
}

func addCounters(cmd *cobra.Command) {
	addKey(cmd)
	cmd.Flags().Bool("dry-run", false, "change nothing, and print what would change")
}

func addTop(cmd *cobra.Command) {
	addWatch(cmd)
	addOptions(cmd, topOptions)
	cmd.Flags().Bool("all", false, "ask all sidecars that share the store")
}

var topOptions = []option{
	{"rule", "rule", "one rule alone", nil}, {"limit", "limit", "how many of each list; default: 20", nil},
}

func topCounters(s *session, _ []string) error {
	params := s.parameters(topOptions)
	if s.domain != "" {
		params.Set("domain", s.domain)
	}
	if s.is("all") {
		params.Set("fleet", "true")
	}
	o, err := s.object("/v1/top", params)
	if err != nil {
		return err
	}
	return s.value(o, func() error { return s.showTop(o) })
}

func (s *session) showTop(o object) error {
	sampled := ""
	if every := whole(o, "sampled_one_in"); every > 1 {
		sampled = fmt.Sprintf(", one decision in %d is counted", every)
	}
	s.line("since %s, from %s%s", when(o["since"]), counted(int(whole(o, "sidecars")), "sidecar"), sampled)
	if absent := text(o, "missing"); absent != "" {
		s.line("no answer from: %s", absent)
	}
	for _, list := range []struct{ title, field string }{{"refused most", "refused"}, {"asked for most", "asked"}} {
		rows := objects(o, list.field)
		if len(rows) == 0 {
			s.line("\n%s: no key", list.title)
			continue
		}
		s.line("\n%s", list.title)
		err := s.table(rows, []column{
			{"COUNT", "count", nil, 0}, {"ERROR", "error", nil, 0}, {"DOMAIN", "domain", nil, 0}, {"RULE", "rule", nil, 0},
			{"KEY", "key", nil, 0},
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// holder reads who is counted, as the body of a request.
func (s *session) holder(args []string) (object, error) {
	body := object{}
	if s.domain != "" {
		body["domain"] = s.domain
	}
	if keys, _ := s.cmd.Flags().GetStringSlice("key"); len(keys) > 0 {
		body["keys"] = keys
	} else if len(args) == 0 {
		return nil, fmt.Errorf("name whom, as [KIND/]NAME, or counters by --key: it is spillway %s", s.cmd.Use)
	}
	for _, arg := range args {
		id, err := readIdentity(arg, "endpoint", "tier")
		if err != nil {
			return nil, err
		}
		body[id.kind] = id.name
	}
	return body, nil
}

func listCounters(s *session, args []string) error {
	body, err := s.holder(args)
	if err != nil {
		return err
	}
	params := url.Values{}
	for field, value := range body {
		if keys, is := value.([]string); is {
			field, value = "key", keys[0]
		}
		params.Set(field, fmt.Sprint(value))
	}
	o, err := s.object("/v1/usage", params)
	if err != nil {
		return err
	}
	return s.value(o, func() error {
		s.line("%s\nkept: %s", holder(inner(o, "identity")), profile(inner(o, "record")))
		return s.showCounters(o, objects(o, "counters"), []column{
			{"LEFT", "", left, 0}, {"LIMIT", "limit", limit, 0}, {"FULL IN", "", fullIn, 0}, {"COOL-DOWN", "cool_down", coolDown, 0},
			{"RULE", "rule", nil, 0}, {"AT", "at", nil, 0}, {"KEY", "key", nil, 0},
		})
	})
}

// showCounters prints counters, and the rules whose counters need more to be found.
func (s *session) showCounters(o object, rows []object, columns []column) error {
	var err error
	if len(rows) == 0 {
		s.line("no counter")
	} else {
		err = s.table(rows, columns)
	}
	for _, u := range objects(o, "unlisted") {
		s.line("not shown: the counters of %s (%s): give %s", plain(text(u, "rule")), text(u, "scope"), text(u, "lacks"))
	}
	return err
}

// changeCounters changes counters by the operation under a path, and prints them before and after.
func changeCounters(path string) func(s *session, args []string) error {
	return func(s *session, args []string) error {
		body, err := s.holder(args)
		if err != nil {
			return err
		}
		if s.is("dry-run") {
			body["dry_run"] = true
		}
		a, err := s.ask(http.MethodPost, path, body, nil)
		if err != nil {
			return err
		}
		o, err := a.object()
		if err != nil {
			return err
		}
		return s.value(o, func() error {
			if isTrue(o, "dry_run") {
				fmt.Fprint(s.out, "nothing is changed: ")
			}
			s.line("%s", holder(inner(o, "identity")))
			var rows []object
			after := objects(o, "after")
			for i, before := range objects(o, "before") {
				rows = append(rows, object{"before": before, "after": after[i]})
			}
			return s.showCounters(o, rows, []column{
				{"LEFT BEFORE", "before.left", nil, 0}, {"LEFT AFTER", "after.left", nil, 0}, {"LIMIT", "before.limit", limit, 0},
				{"COOL-DOWN BEFORE", "before.cool_down", coolDown, 0}, {"COOL-DOWN AFTER", "after.cool_down", coolDown, 0},
				{"RULE", "before.rule", nil, 0}, {"KEY", "before.key", nil, 0},
			})
		})
	}
}

// left is what is left on a counter, or that the store does not know.
func left(value any) string {
	c, _ := value.(object)
	if text(c, "unknown") != "" {
		return "unknown"
	}
	return text(c, "left")
}

func fullIn(value any) string {
	c, _ := value.(object)
	return either(text(c, "unknown"), span(c["reset_after"]))
}

func coolDown(value any) string {
	if value == nil {
		return "no"
	}
	return span(value)
}

// holder is whom or what was asked about.
func holder(h object) string {
	var parts []string
	for _, kind := range append(slices.Clone(kinds), "endpoint", "tier") {
		if name := text(h, kind); name != "" {
			parts = append(parts, strings.ReplaceAll(kind, "_", " ")+" "+plain(name))
		}
	}
	if keys, is := h["keys"].([]any); is && len(keys) > 0 {
		return counted(len(keys), "key")
	}
	return strings.Join(parts, ", ") + " in " + plain(text(h, "domain"))
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
		parts = append(parts, strings.TrimSpace("blocked "+either(when(b["until"]), "for ever")+quoted(text(b, "reason"))))
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
	by := fmt.Sprintf(" (by %s, %s)", plain(either(text(r, "by"), "unknown")), when(r["at"]))
	return either(strings.Join(parts, ", "), "nothing") + by
}

func quoted(text string) string {
	if text == "" {
		return ""
	}
	return fmt.Sprintf(" %q", text)
}
