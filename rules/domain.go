package rules

import (
	"time"
	_ "time/tzdata" // for machines and images without time zones of their own

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/limit"
)

var headerStyles = wordsOf(descriptors.HeadersX, descriptors.HeadersIETF, descriptors.HeadersBoth,
	descriptors.HeadersNone)

// attributeNames are the facts about a request that a descriptor's entry can hold.
var attributeNames = func() map[string]string {
	table := map[string]string{}
	for _, name := range descriptors.AttributeNames() {
		table[name] = name
	}
	return table
}()

var resetFormats = map[string]bool{"seconds": false, "unix": true}

// root reads the top level of a file. Sections may be empty: a list whose items are all commented out is fine.
func (d *decoder) root(n *node) {
	to := &d.domain
	ok := d.object(n, map[string]reader{
		"domain":        d.domainName,
		"charge_denied": d.flag(&to.ChargeDenied),
		"co_locate":     d.flag(&to.CoLocate),
		"on_failure":    choice(d, &to.OnFailure, failures),
		"attributes":    optional(d.attributes),
		"costs":         optional(func(n *node) { d.each(n, d.cost) }),
		"cost_header":   d.headerName(&to.CostHeader),
		"rules":         optional(func(n *node) { d.each(n, d.rule) }),
		"users":         optional(d.accounts(&to.Users)),
		"tenants":       optional(d.accounts(&to.Tenants)),
		"identity":      optional(d.identity),
		"headers":       choice(d, &to.Headers, headerStyles),
		"reset_format":  choice(d, &to.ResetUnix, resetFormats),
		"descriptors":   optional(d.nodes(&to.Tree)),
		"penalty":       d.domainPenalty(&to.Penalty),
		"timezone":      d.timezone,
		"defaults":      d.defaults,
	})
	if !ok {
		return
	}
	for _, f := range n.fields {
		d.given[f.key.text] = d.pos(f.key)
	}
	for _, section := range []string{"", "rules", "users", "tenants", "identity", "attributes", "descriptors"} {
		value := n.get(section)
		d.incomplete = d.incomplete || d.lost(n, section) &&
			(value == nil || value.kind == scalar || section == "identity" || section == "attributes")
	}
	for range d.missing(n, "domain") {
		d.fail(n, "the file has no domain; add `domain: NAME`, the name that Envoy's filter sends")
	}
}

func (d *decoder) domainName(n *node) {
	d.domain.Pos = d.pos(n)
	if n.isNull() {
		d.fail(n, "domain is empty; give it the name that Envoy's filter sends")
		return
	}
	d.domain.Name, _ = d.word(n, "domain")
}

// defaults reads the rule of requests that nothing else limits.
func (d *decoder) defaults(n *node) {
	to := descriptors.Rule{Pos: d.pos(n), Name: descriptors.DefaultRule, Priority: defaultPriority}
	sound := d.sound(func() {
		if n.kind == scalar && !n.describes(scalar) {
			d.wants(n, "a map with scope and limit, as in { scope: ip, limit: 100/1m }")
			return
		}
		d.object(n, d.limiting(&to))
		d.oneOfLimits(n)
	})
	if sound || d.outline(n, &to) {
		d.domain.Defaults = &to
	}
}

// timezone reads the name of a time zone. Local is refused: it would mean something else on another machine.
func (d *decoder) timezone(n *node) {
	name, ok := d.word(n, "timezone")
	if !ok {
		return
	}
	zone, err := time.LoadLocation(name)
	if err != nil || name == "Local" {
		d.fail(n, "timezone: %q is unknown; write a name of the IANA database, such as Europe/Berlin, or UTC",
			clip(name))
		return
	}
	d.domain.Timezone = zone
}

func (d *decoder) attributes(n *node) {
	d.domain.Attributes = map[string]string{}
	d.table(n, func(key, value *node) {
		at := *value
		at.label = "attribute"
		if name, ok := pick(d, &at, attributeNames); ok {
			d.domain.Attributes[key.text] = name
		}
	})
}

// cost reads one row of the cost table.
func (d *decoder) cost(n *node) {
	to := descriptors.Cost{Pos: d.pos(n)}
	sound := d.sound(func() {
		ok := d.object(n, map[string]reader{
			"match": d.conditions(&to.Match),
			"cost":  d.number(&to.Cost, 1, limit.MaxCost),
		})
		if !ok {
			return
		}
		for range d.missing(n, "cost") {
			d.fail(n, "this row has no cost; add `cost: 5`, say")
		}
	})
	if sound || d.outlineCost(n, &to) {
		d.domain.Costs = append(d.domain.Costs, to)
	}
}

// accounts makes a reader for the users or the tenants table.
func (d *decoder) accounts(to *[]descriptors.Account) reader {
	return func(n *node) {
		d.table(n, func(key, value *node) {
			account := descriptors.Account{Pos: d.pos(key), Name: key.text}
			if !d.sound(func() { d.account(value, &account) }) {
				d.outlineAccount(value, &account)
			}
			*to = append(*to, account)
		})
	}
}

func (d *decoder) account(n *node, to *descriptors.Account) {
	keys := map[string]reader{"tier": d.name(&to.Tier)}
	check := d.quota(keys, &to.Limits, &to.Burst)
	if d.object(n, keys) {
		check()
	}
}

// quota adds the keys limits and burst, which stand together in accounts and API keys, and returns the check that the
// two fit.
func (d *decoder) quota(keys map[string]reader, limits *[]descriptors.Limit, burst *int64) (check func()) {
	var at *node
	keys["limits"] = func(n *node) { d.some(n, d.limit(limits)) }
	keys["burst"] = func(n *node) { at = n; d.number(burst, 1, limit.MaxCount)(n) }
	return func() {
		for _, l := range *limits {
			if at != nil && !l.Unlimited && !l.Algorithm.HasBurst() {
				d.fail(at, "burst holds for token_bucket only, and one of the limits is a %s; remove one of the two",
					l.Algorithm)
			}
		}
	}
}
