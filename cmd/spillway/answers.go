package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spillway-mesh/spillway/admin"
	"github.com/spillway-mesh/spillway/admin/live"
	"github.com/spillway-mesh/spillway/descriptors"
)

// The functions of this file write the answers of a sidecar as text, and report whether a command found what it looks for.

func showTop(w io.Writer, v *admin.TopView) bool {
	fmt.Fprintf(w, "since %s, from %s", instant(v.Since), counted(v.Sidecars, "sidecar", "sidecars"))
	if v.Every > 1 {
		fmt.Fprintf(w, ", one decision in %d is counted", v.Every)
	}
	fmt.Fprintln(w)
	if len(v.Missing) > 0 {
		fmt.Fprintf(w, "no answer from: %s\n", plain(strings.Join(v.Missing, ", ")))
	}
	showRanked(w, "refused most", v.Refused)
	showRanked(w, "asked for most", v.Asked)
	return false
}

func showRanked(w io.Writer, title string, list []live.Ranked) {
	if len(list) == 0 {
		fmt.Fprintf(w, "\n%s: no key\n", title)
		return
	}
	fmt.Fprintf(w, "\n%s\n", title)
	t := newTable(w, "COUNT", "ERROR", "DOMAIN", "RULE", "KEY")
	for _, one := range list {
		t.row(one.Count, one.Error, one.Domain, one.Rule, one.Key)
	}
	t.end()
}

func showFleet(w io.Writer, v *admin.FleetView) bool {
	if v.Agree {
		fmt.Fprintf(w, "%s, all with the same rules\n", counted(len(v.Sidecars), "sidecar", "sidecars"))
	} else {
		fmt.Fprintf(w, "%s, and their rules DIFFER: %s\n", counted(len(v.Sidecars), "sidecar", "sidecars"), plain(strings.Join(v.Rules, ", ")))
	}
	t := newTable(w, "SIDECAR", "HOST", "VERSION", "RULES", "LOADED", "STARTED", "DEGRADED", "DOMAINS")
	for i := range v.Sidecars {
		s := &v.Sidecars[i]
		name := s.ID
		if s.Self {
			name += " (asked)"
		}
		t.row(name, s.Host, s.Version, either(s.Rules, "none"), instant(s.Loaded), instant(s.Started), either(strings.Join(s.Degraded, ", "), "no"), strings.Join(s.Domains, ", "))
	}
	t.end()
	return !v.Agree
}

func showRules(w io.Writer, v *admin.RulesView) bool {
	fmt.Fprintf(w, "rules %s, in use since %s\n", either(plain(v.Hash), "none"), either(instant(v.Loaded), "never"))
	for _, d := range v.Domains {
		fmt.Fprintf(w, "\ndomain %s\n", plain(d.Name))
		t := newTable(w, "RULE", "SCOPE", "LIMIT", "ACTION", "MODE", "ON FAILURE", "AT")
		for i := range d.Limits {
			r := &d.Limits[i]
			t.row(ruleName(r), r.Scope, ruleLimit(r), r.Action, r.Mode, r.Failure, r.At)
		}
		t.end()
	}
	return false
}

func ruleName(r *admin.RuleView) string {
	name := r.Rule
	if r.Name != "" && r.Name != r.Rule {
		name += " (" + r.Name + ")"
	}
	if r.Account != "" {
		name += " of " + r.Account
	}
	return name
}

// ruleLimit is the limit of a rule, or what a block says.
func ruleLimit(r *admin.RuleView) string {
	if r.Limit != nil {
		return limitText(r.Limit)
	}
	text := r.Reason
	if !r.Until.IsZero() {
		text = strings.TrimPrefix(text+", until "+instant(r.Until), ", ")
	}
	return text
}

// limitText is a limit in the words of a rule file.
func limitText(l *admin.LimitView) string {
	if l.Unlimited {
		return "unlimited"
	}
	per := l.Per
	if d, err := time.ParseDuration(per); err == nil {
		per = shortSpan(d)
	}
	text := fmt.Sprintf("%d/%s %s", l.Count, per, l.Algorithm)
	if l.Burst > 0 && l.Burst != l.Count {
		text += fmt.Sprintf(" burst %d", l.Burst)
	}
	return text
}

func showUsage(w io.Writer, v *admin.UsageView) bool {
	fmt.Fprintln(w, holderText(&v.Identity))
	fmt.Fprintf(w, "record: %s\n", recordText(v.Record))
	showCounters(w, v.Counters)
	showUnlisted(w, v.Unlisted)
	return false
}

// holderText is whom or what was asked about.
func holderText(h *admin.HolderRequest) string {
	parts := []string{}
	for _, one := range []struct{ kind, name string }{
		{"user", h.User}, {"tenant", h.Tenant}, {"api key", h.APIKey}, {"address", string(h.IP)}, {"endpoint", h.Endpoint}, {"tier", h.Tier},
	} {
		if one.name != "" {
			parts = append(parts, one.kind+" "+plain(one.name))
		}
	}
	if len(h.Keys) > 0 {
		return counted(len(h.Keys), "key", "keys")
	}
	return strings.Join(parts, ", ") + " in " + plain(h.Domain)
}

func showCounters(w io.Writer, list []admin.CounterView) {
	if len(list) == 0 {
		fmt.Fprintln(w, "no counter")
		return
	}
	t := newTable(w, "LEFT", "LIMIT", "FULL IN", "COOL-DOWN", "RULE", "AT", "KEY")
	for i := range list {
		c := &list[i]
		if c.Unknown != "" {
			t.row("unknown", limitText(&c.Limit), c.Unknown, "", c.Rule, c.At, c.Key)
			continue
		}
		cool := "no"
		if c.CoolDown > 0 {
			cool = span(c.CoolDown)
		}
		t.row(c.Left, limitText(&c.Limit), span(c.ResetAfter), cool, c.Rule, c.At, c.Key)
	}
	t.end()
}

func showUnlisted(w io.Writer, list []descriptors.Unlisted) {
	for _, u := range list {
		fmt.Fprintf(w, "not shown: the counters of %s (%s): give %s\n", plain(u.Rule), u.Scope, strings.Join(u.Lacks, ", "))
	}
}

// recordText is a record on one line.
func recordText(r *admin.RecordView) string {
	if r == nil {
		return "none"
	}
	parts := []string{}
	if r.Block != nil {
		parts = append(parts, blockText(r.Block))
	}
	if r.Tier != "" {
		parts = append(parts, "tier "+plain(r.Tier))
	}
	for i := range r.Limits {
		parts = append(parts, "own limit "+limitText(&r.Limits[i]))
	}
	if r.Note != "" {
		parts = append(parts, "note "+fmt.Sprintf("%q", r.Note))
	}
	return fmt.Sprintf("%s (by %s, %s)", strings.Join(parts, ", "), plain(either(r.By, "unknown")), instant(r.At))
}

func blockText(b *admin.BlockView) string {
	if b.Lifted {
		return "blocks of the rule file lifted"
	}
	text := "blocked for ever"
	if !b.Until.IsZero() {
		text = "blocked until " + instant(b.Until)
	}
	if b.Reason != "" {
		text += fmt.Sprintf(" %q", b.Reason)
	}
	return text
}

// dryText begins the answer of a change that was not made.
func dryText(dry bool) string {
	if dry {
		return "nothing is changed: "
	}
	return ""
}

func showRecordChange(w io.Writer, v *admin.RecordChange) bool {
	fmt.Fprintf(w, "%s%s\n", dryText(v.DryRun), holderText(&admin.HolderRequest{Whom: v.Identity}))
	fmt.Fprintf(w, "  before: %s\n  after:  %s\n", recordText(v.Before), recordText(v.After))
	for _, warning := range v.Warnings {
		fmt.Fprintf(w, "warning: %s\n", plain(warning))
	}
	return false
}

func showCountersChange(w io.Writer, v *admin.CountersChange) bool {
	fmt.Fprintf(w, "%s%s\n", dryText(v.DryRun), holderText(&v.Identity))
	if len(v.Before) == 0 {
		fmt.Fprintln(w, "no counter")
	} else {
		t := newTable(w, "LEFT BEFORE", "LEFT AFTER", "LIMIT", "COOL-DOWN BEFORE", "COOL-DOWN AFTER", "RULE", "KEY")
		for i := range v.Before {
			b, a := &v.Before[i], &v.After[i]
			t.row(b.Left, a.Left, limitText(&b.Limit), coolText(b), coolText(a), b.Rule, b.Key)
		}
		t.end()
	}
	showUnlisted(w, v.Unlisted)
	return false
}

func coolText(c *admin.CounterView) string {
	if c.CoolDown > 0 {
		return span(c.CoolDown)
	}
	return "no"
}

func showExplained(w io.Writer, v *admin.Explained) bool {
	fmt.Fprintln(w, verdictText(v))
	if v.Client != nil {
		fmt.Fprintf(w, "taken for: %s\n", clientText(v.Client))
	}
	showAttributes(w, v)
	if len(v.Charges) > 0 {
		fmt.Fprintln(w, "\ncounters")
		t := newTable(w, "LEFT", "COST", "LIMIT", "REFUSES", "RULE", "KEY")
		for i := range v.Charges {
			t.row(chargeCells(&v.Charges[i])...)
		}
		t.end()
	}
	showConsidered(w, v.Considered)
	fmt.Fprintf(w, "\nanswers\n  rls        %s\n  ext_authz  %s\n", oneLine(v.Answers.RLS), oneLine(v.Answers.ExtAuthz))
	return v.Verdict.Refused
}

// verdictText is what the request gets, and by which rule.
func verdictText(v *admin.Explained) string {
	d := &v.Verdict
	text := fmt.Sprintf("%s (%d)", d.Outcome, d.Status)
	if d.Rule != "" {
		text += " by " + plain(d.Rule)
	}
	switch {
	case v.Domain == "":
		text += ": the request names no domain, and the sidecar has no DEFAULT_DOMAIN"
	case !v.Known:
		text += " in " + plain(v.Domain) + ", which has no rules"
	default:
		text += " in " + plain(v.Domain)
	}
	if d.Reason != "" {
		text += ": " + plain(d.Reason)
	}
	if d.RetryAfter > 0 {
		text += ", again in " + span(d.RetryAfter)
	}
	if d.Degraded != "" {
		text += ", degraded: " + plain(d.Degraded)
	}
	return text
}

func clientText(c *admin.ClientView) string {
	parts := []string{}
	for _, one := range []struct{ kind, name string }{
		{"user", c.User}, {"tenant", c.Tenant}, {"tier", c.Tier}, {"api key", c.APIKey}, {"address", c.Address},
	} {
		if one.name != "" {
			parts = append(parts, one.kind+" "+plain(one.name))
		}
	}
	proof := "not authenticated"
	if c.Authenticated {
		proof = "authenticated"
	}
	if len(parts) == 0 {
		return "an unknown client: neither a peer nor a header tells who it is"
	}
	return fmt.Sprintf("%s, by %s, %s", strings.Join(parts, ", "), c.Evidence, proof)
}

// showAttributes shows what is known of the request, and how servers may read its path.
func showAttributes(w io.Writer, v *admin.Explained) {
	for _, a := range v.Attributes {
		from := ""
		if a.Descriptor != nil {
			from = fmt.Sprintf(" (descriptor %d)", *a.Descriptor)
		}
		fmt.Fprintf(w, "%s: %s%s\n", plain(a.Name), plain(a.Value), from)
	}
	if len(v.Readings) > 1 {
		fmt.Fprintf(w, "the path may be read as: %s\n", plain(strings.Join(v.Readings, " or ")))
	}
	if v.Factor != 1 {
		fmt.Fprintf(w, "cost: times %d\n", v.Factor)
	}
}

func chargeCells(c *admin.ChargeView) []any {
	left, refuses := any(c.Left), "no"
	if c.Left < 0 {
		left = "not counted"
	}
	if c.Degraded != "" {
		left = fmt.Sprint(left, " (", c.Degraded, ")")
	}
	switch {
	case c.Penalized:
		refuses = "cool-down, again in " + span(c.RetryAfter)
	case c.Refuses:
		refuses = "again in " + span(c.RetryAfter)
	}
	if !c.Enforced {
		refuses += " (not enforced)"
	}
	cost := fmt.Sprint(c.Cost)
	if c.Operation != "spend" {
		cost = c.Operation + " " + cost
	}
	return []any{left, cost, limitText(&c.Limit), refuses, c.Rule, c.Key}
}

func showConsidered(w io.Writer, list []admin.ConsideredView) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintln(w, "\nrules that could apply")
	t := newTable(w, "WON", "WHAT", "NAME", "SCOPE", "ACTION", "AT", "BEATEN BY")
	for i := range list {
		c := &list[i]
		won, by := "yes", ""
		if !c.Won {
			won, by = "no", strings.TrimSpace(strings.Join([]string{c.BeatenBy, c.BeatenAt}, " "))
			by = strings.TrimPrefix(by+": "+c.Because, ": ")
		}
		t.row(won, c.What, strings.TrimSpace(c.Name+" "+c.Pattern), c.Scope, c.Action, c.At, by)
	}
	t.end()
}

// oneLine is a JSON document without line breaks.
func oneLine(document json.RawMessage) string {
	if len(document) == 0 || slices.Equal(document, []byte("null")) {
		return "none"
	}
	var value any
	if json.Unmarshal(document, &value) != nil {
		return plain(string(document))
	}
	text, _ := json.Marshal(value)
	return plain(string(text))
}
