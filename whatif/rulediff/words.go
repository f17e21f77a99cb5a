package rulediff

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/limit"
)

// condition is one kind of a rule's conditions, its values in order.
type condition struct {
	kind   string
	values []string
}

// conditions are all kinds, in the same order for every rule.
func conditions(c *descriptors.Conditions) []condition {
	var endpoints, networks, entries, authenticated []string
	for _, p := range c.Endpoints {
		endpoints = append(endpoints, p.Text)
	}
	for _, network := range c.CIDRs {
		networks = append(networks, network.String())
	}
	for key, value := range c.Entries {
		entries = append(entries, key+"="+value)
	}
	if c.Authenticated != nil {
		authenticated = []string{fmt.Sprint(*c.Authenticated)}
	}
	all := []condition{
		{"endpoints", endpoints}, {"methods", slices.Clone(c.Methods)}, {"users", slices.Clone(c.Users)},
		{"tenants", slices.Clone(c.Tenants)},
		{"tiers", slices.Clone(c.Tiers)}, {"cidrs", networks}, {"entries", entries}, {"authenticated", authenticated},
	}
	for _, one := range all {
		slices.Sort(one.values)
	}
	return all
}

func conditionText(c *descriptors.Conditions) string {
	var parts []string
	for _, one := range conditions(c) {
		if len(one.values) > 0 {
			parts = append(parts, one.kind+" "+strings.Join(one.values, " "))
		}
	}
	return strings.Join(parts, ", ")
}

// ruleText is a rule in one line.
func ruleText(r *descriptors.Rule) string {
	text := r.Action.String()
	if r.HasScope {
		text += " by " + r.Scope.String()
	}
	if len(r.Limits) > 0 {
		text += " " + limitTexts(r.Limits)
	}
	if match := conditionText(&r.Match); match != "" {
		text += " for " + match
	}
	if r.Disabled {
		text += ", disabled"
	}
	return text
}

func accountText(a *descriptors.Account) string {
	var parts []string
	if a.Tier != "" {
		parts = append(parts, "tier "+a.Tier)
	}
	if len(a.Limits) > 0 {
		parts = append(parts, limitTexts(bursting(a)))
	}
	return strings.Join(parts, ", ")
}

func limitTexts(limits []descriptors.Limit) string {
	var all []string
	for i := range limits {
		all = append(all, limitText(&limits[i]))
	}
	if len(all) == 0 {
		return "no limit"
	}
	return strings.Join(all, " and ")
}

// limitText is a limit as a rule file would write it.
func limitText(l *descriptors.Limit) string {
	if l.Unlimited {
		return "unlimited"
	}
	return amount(l.Limit, l.CalendarUnit)
}

func amount(l limit.Limit, calendar descriptors.CalendarUnit) string {
	if l.Algorithm == 0 {
		return "unlimited"
	}
	text := fmt.Sprintf("%d/%s", l.Count, span(l.Window))
	if calendar != 0 {
		text = fmt.Sprintf("%d/%v", l.Count, calendar)
	}
	if l.Algorithm.HasBurst() && l.Burst != l.Count {
		text += fmt.Sprintf(" burst %d", l.Burst)
	}
	if l.Algorithm != limit.TokenBucket {
		text += " " + l.Algorithm.String()
	}
	return text
}

// span is a duration as a rule file writes it.
func span(d time.Duration) string {
	if d == 0 {
		return ""
	}
	for _, unit := range []struct {
		length time.Duration
		name   string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}, {time.Millisecond, "ms"}} {
		if d%unit.length == 0 && (unit.name != "d" || d > 24*time.Hour) {
			return fmt.Sprintf("%d%s", d/unit.length, unit.name)
		}
	}
	return d.String()
}

// costs are the rows of a cost table in words.
func costs(rows []descriptors.Cost) (all []string) {
	for i := range rows {
		all = append(all, fmt.Sprintf("%d for %s", rows[i].Cost, or(conditionText(&rows[i].Match), "any request")))
	}
	return all
}
