package rules

import (
	"fmt"
	"maps"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/limit"
)

var (
	actions = wordsOf(descriptors.Reject, descriptors.Throttle, descriptors.LogOnly, descriptors.Block,
		descriptors.Allow)
	failures = wordsOf(descriptors.FailLocal, descriptors.FailOpen, descriptors.FailClosed)
)

// wordsOf is the table of values by their words.
func wordsOf[T fmt.Stringer](values ...T) map[string]T {
	table := make(map[string]T, len(values))
	for _, value := range values {
		table[value.String()] = value
	}
	return table
}

// ownFailures are those of a rule or a node, whose local differs from none: it holds against the domain's.
var ownFailures = map[string]descriptors.Failure{
	"local": descriptors.FailStayLocal, "open": descriptors.FailOpen, "closed": descriptors.FailClosed,
}

var scopes = map[string]descriptors.Scope{
	"global": descriptors.ScopeGlobal, "tenant": descriptors.ScopeTenant, "user": descriptors.ScopeUser,
	"ip": descriptors.ScopeIP, "endpoint": descriptors.ScopeEndpoint,
	"client": descriptors.ScopeClient, "api_key": descriptors.ScopeAPIKey, "tier": descriptors.ScopeTier,
}

const (
	defaultPriority = 100
	maxPriority     = 1_000_000_000
	maxFactor       = 1_000_000_000 // of a penalty's multipliers
)

// rule reads one scoped rule.
func (d *decoder) rule(n *node) {
	to := descriptors.Rule{Pos: d.pos(n), Priority: defaultPriority}
	sound := d.sound(func() { d.ruleKeys(n, &to) })
	if sound || d.outline(n, &to) {
		d.domain.Rules = append(d.domain.Rules, to)
	}
}

func (d *decoder) ruleKeys(n *node, to *descriptors.Rule) {
	enabled := true
	keys := d.limiting(to)
	maps.Copy(keys, map[string]reader{
		"name":      d.name(&to.Name),
		"match":     d.conditions(&to.Match),
		"reason":    d.name(&to.Reason),
		"until":     d.instant(&to.Until),
		"priority":  d.small(&to.Priority, -maxPriority, maxPriority),
		"enabled":   d.flag(&enabled),
		"cost":      d.number(&to.Cost, 1, limit.MaxCost),
		"post_paid": d.flag(&to.PostPaid),
		"reserve":   d.number(&to.Reserve, 1, limit.MaxCost),
		"penalty":   d.penalty(&to.Penalty),
	})
	d.object(n, keys)
	d.missing(n, "name") // descriptors reports it
	d.oneOfLimits(n)
	to.Disabled = !enabled
}

// oneOfLimits refuses limit beside limits.
func (d *decoder) oneOfLimits(n *node) {
	n.excludes("limit", "limits")
	if n.get("limit") != nil && n.get("limits") != nil {
		d.fail(n.get("limits"), "limits stands in place of limit; remove one of the two")
	}
}

// limiting are the keys of how a rule limits those whom it is about.
func (d *decoder) limiting(to *descriptors.Rule) map[string]reader {
	return map[string]reader{
		"scope":      d.scope(to),
		"limit":      d.limit(&to.Limits),
		"limits":     func(n *node) { d.some(n, d.limit(&to.Limits)) },
		"action":     choice(d, &to.Action, actions),
		"max_delay":  d.span(&to.MaxDelay),
		"lease":      d.lease(&to.Lease),
		"on_failure": choice(d, &to.OnFailure, ownFailures),
		"response":   d.response(&to.Response),
	}
}

// scope makes a reader for one scope or a list of them.
func (d *decoder) scope(to *descriptors.Rule) reader {
	return func(n *node) {
		to.HasScope = true
		if n.kind != list {
			to.Scope, _ = pick(d, n, scopes)
			return
		}
		seen := map[descriptors.Scope]bool{}
		d.some(n, func(item *node) {
			scope, ok := pick(d, item, scopes)
			switch {
			case !ok:
			case seen[scope]:
				d.fail(item, "the scope %q stands here twice; remove one", item.text)
			case scope == descriptors.ScopeGlobal && len(n.items) > 1:
				d.fail(item, "global stands alone: it counts all requests together; remove it, or the other scopes")
			}
			seen[scope] = true
			to.Scope |= scope
		})
	}
}

// conditions makes a reader for match.
func (d *decoder) conditions(to *descriptors.Conditions) reader {
	return func(n *node) {
		d.object(n, map[string]reader{
			"endpoints": d.patterns(&to.Endpoints),
			"methods":   d.methods(&to.Methods),
			"users":     d.words(&to.Users),
			"tenants":   d.words(&to.Tenants),
			"tiers":     d.words(&to.Tiers),
			"cidrs":     d.cidrs(&to.CIDRs),
			"entries":   d.entries(&to.Entries),

			"authenticated": func(n *node) { to.Authenticated = new(bool); d.flag(to.Authenticated)(n) },
		})
		if n.kind == mapping && len(n.fields) == 0 {
			d.fail(n, "match is empty; remove the key, or name what has to match")
		}
		d.incomplete = d.incomplete || n.kind != mapping || d.lost(n, "tiers") || d.lost(n, "endpoints")
	}
}

func (d *decoder) patterns(to *[]descriptors.Pattern) reader {
	return func(n *node) {
		d.some(n, func(item *node) {
			if text, ok := d.word(item, item.title()); ok {
				*to = append(*to, descriptors.Pattern{Pos: d.pos(item), Text: text})
			}
		})
	}
}

func (d *decoder) entries(to *map[string]string) reader {
	return func(n *node) {
		*to = map[string]string{}
		d.table(n, func(key, value *node) {
			if text, ok := d.string(value); ok {
				(*to)[key.text] = text
			}
		})
		if n.kind == mapping && len(n.fields) == 0 {
			d.fail(n, "entries is empty; remove the key, or name an entry")
		}
	}
}

// penalty makes a reader for the penalty of a rule.
func (d *decoder) penalty(to **descriptors.Penalty) reader {
	return func(n *node) {
		*to = &descriptors.Penalty{Multipliers: []int{1}}
		d.penaltyKeys(n, *to, "threshold", "detection_window", "cool_down")
	}
}

// domainPenalty makes a reader for the penalty of a domain, which needs no more than cool_down.
func (d *decoder) domainPenalty(to **descriptors.Penalty) reader {
	return func(n *node) {
		*to = &descriptors.Penalty{Threshold: 3, DetectionWindow: time.Hour, Multipliers: []int{1, 2, 4, 8}}
		d.penaltyKeys(n, *to, "cool_down")
	}
}

// penaltyKeys reads the keys of a penalty whose defaults are set. Those that are required have none.
func (d *decoder) penaltyKeys(n *node, to *descriptors.Penalty, required ...string) {
	ok := d.object(n, map[string]reader{
		"threshold":        d.small(&to.Threshold, 1, limit.MaxThreshold),
		"detection_window": d.span(&to.DetectionWindow),
		"cool_down":        d.span(&to.CoolDown),
		"multipliers":      func(n *node) { to.Multipliers = nil; d.multipliers(&to.Multipliers)(n) },
		"dry_run":          d.flag(&to.DryRun),
	})
	if !ok {
		return
	}
	for _, key := range d.missing(n, required...) {
		d.fail(n, "this penalty has no %s; add it", key)
	}
	fillPenalty(to)
}

func (d *decoder) multipliers(to *[]int) reader {
	return func(n *node) {
		if len(n.items) > limit.MaxMultipliers {
			d.fail(n, "multipliers has %d items, of which there are at most %d; the last one repeats anyway",
				len(n.items), limit.MaxMultipliers)
			return
		}
		d.some(n, func(item *node) {
			if value, ok := d.integer(item, 1, maxFactor); ok {
				*to = append(*to, int(value))
			}
		})
	}
}
