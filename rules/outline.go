package rules

import (
	"cmp"
	"fmt"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/limit"
)

// What is broken is kept, so that all that is wrong with a file is reported together. A key that could not be read gets
// a value that nothing is wrong with: it is not reported as missing as well.

// spot is a key of a map; an empty key is one that is unknown, and like no other.
type spot struct {
	n   *node
	key string
}

// lost reports whether a key of a map could not be read, or may be meant by one that is unknown.
func (d *decoder) lost(n *node, key string) bool {
	return d.spoilt[spot{n, key}] || d.spoilt[spot{n, ""}]
}

// outline fills in what could not be read of a rule. It reports whether anything is known of it.
func (d *decoder) outline(n *node, r *descriptors.Rule) bool {
	if n.kind != mapping {
		return false
	}
	d.broken[r.Pos] = true
	if d.lost(n, "name") {
		r.Name = cmp.Or(r.Name, fmt.Sprintf("in line %d", n.line))
	}
	if d.lost(n, "scope") && r.Scope == 0 {
		r.Scope, r.HasScope = descriptors.ScopeIP, true
		d.incomplete = true
	}
	if d.lost(n, "match") {
		d.incomplete = d.incomplete || isBare(&r.Match)
		fillMatch(&r.Match)
	}
	if d.lost(n, "post_paid") {
		r.Reserve = 0
	}
	d.outlineAction(n, r)
	return true
}

// outlineAction fills in what the action needs.
func (d *decoder) outlineAction(n *node, r *descriptors.Rule) {
	if d.lost(n, "action") {
		r.MaxDelay, r.Reason, r.Until = 0, "", time.Time{}
		fillMatch(&r.Match)
	}
	if d.lost(n, "action") && n.get("limit") == nil && n.get("limits") == nil {
		r.Action, r.Penalty = descriptors.Allow, nil
	}
	d.outlineLimit(n, r)
}

// outlineLimit fills in the limit of an action that needs one.
func (d *decoder) outlineLimit(n *node, r *descriptors.Rule) {
	limited := r.Action != descriptors.Block && r.Action != descriptors.Allow
	if limited && len(r.Limits) == 0 && (d.lost(n, "limit") || d.lost(n, "limits")) {
		r.Limits = []descriptors.Limit{{Unlimited: true}}
	}
	if r.Action == descriptors.Throttle && d.lost(n, "max_delay") {
		r.MaxDelay = time.Millisecond
	}
}

// fillMatch adds a condition where none was read.
func fillMatch(m *descriptors.Conditions) {
	if isBare(m) {
		m.Methods = []string{"GET"}
	}
}

// isBare reports whether no condition was read.
func isBare(m *descriptors.Conditions) bool {
	return m.Authenticated == nil && len(m.Endpoints)+len(m.Methods)+len(m.Users)+len(m.Tenants)+len(m.Tiers)+
		len(m.CIDRs)+len(m.Entries) == 0
}

// fillPenalty fills in what a penalty lacks, of which there is a report.
func fillPenalty(p *descriptors.Penalty) {
	p.Threshold = cmp.Or(p.Threshold, 1)
	p.DetectionWindow, p.CoolDown = cmp.Or(p.DetectionWindow, time.Hour), cmp.Or(p.CoolDown, time.Minute)
}

// outlineCost fills in what could not be read of a row of the cost table. It reports whether anything is known of it.
func (d *decoder) outlineCost(n *node, row *descriptors.Cost) bool {
	d.broken[row.Pos] = true
	row.Cost = cmp.Or(row.Cost, 1)
	return n.kind == mapping
}

// outlineAccount fills in what could not be read of a user, tenant or API key.
func (d *decoder) outlineAccount(n *node, a *descriptors.Account) {
	d.incomplete = d.incomplete || n.kind != mapping || d.lost(n, "tier")
	a.Burst = 0
}

// outlineKey keeps the limits of an API key that could not be read.
func (d *decoder) outlineKey(n *node, own *descriptors.Account) {
	d.outlineAccount(n, own)
	own.Name = fmt.Sprintf("in line %d", n.line)
	d.domain.Keys = append(d.domain.Keys, *own)
}

// outlineNode fills in what could not be read of a descriptor. It reports whether anything is known of it.
func (d *decoder) outlineNode(n *node, to *descriptors.Node) bool {
	if n.kind != mapping {
		return false
	}
	if d.lost(n, "key") {
		to.Key = cmp.Or(to.Key, fmt.Sprintf("in line %d", n.line))
	}
	if d.lost(n, "value") {
		to.Value, to.ShareThreshold = cmp.Or(to.Value, fmt.Sprintf("in line %d", n.line)), false
	}
	if d.lost(n, "post_paid") || d.lost(n, "rate_limit") || d.lost(n, "rate_limits") {
		to.Reserve = 0
		to.PostPaid = to.PostPaid && len(to.Limits) > 0
	}
	return true
}

// repair fills in what could not be read of a limit.
func (d *decoder) repair(n *node, l *descriptors.Limit) {
	if l.Unlimited {
		l.Unit, l.Multiplier = 0, 0 // beside unlimited there is a report of them
		return
	}
	l.CountUnset = l.CountUnset && n.kind == mapping && !d.lost(n, "requests_per_unit")
	fill := l.Count == 0 || l.Window == 0 || d.lost(n, "burst")
	if l.Count == 0 {
		l.Count = limit.MaxCount // no cost is above it
		if l.Algorithm.KeepsLog() {
			l.Count = limit.MaxLogCount
		}
	}
	l.Window = cmp.Or(l.Window, time.Second)
	switch {
	case !l.Algorithm.HasBurst():
		l.Burst = 0
	case fill:
		l.Burst = l.Count
	}
}
