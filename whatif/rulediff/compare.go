package rulediff

import (
	"cmp"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
)

// ruleChange gathers what changed about one rule: in words, and in which direction.
type ruleChange struct {
	details         []string
	tighter, looser bool
}

// note adds a change of a text. Direction is below 0 for a stricter one, above 0 for a more generous one.
func (c *ruleChange) note(what, was, is string, direction int) {
	if was == is {
		return
	}
	c.details = append(c.details, fmt.Sprintf("%s: %s → %s", what, or(was, "none"), or(is, "none")))
	c.tighter = c.tighter || direction < 0
	c.looser = c.looser || direction > 0
}

func (c *ruleChange) kind() Kind {
	switch {
	case c.tighter && !c.looser:
		return Tightened
	case c.looser && !c.tighter:
		return Loosened
	}
	return Changed
}

func or(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

// strictness orders actions from the most generous one.
var strictness = map[descriptors.Action]int{
	descriptors.Allow: 0, descriptors.LogOnly: 1, descriptors.Throttle: 2, descriptors.Reject: 3, descriptors.Block: 4,
}

// fields notes the fields that differ. The directions are those of a field that has a value where it had none, for
// fields that have one.
func (c *ruleChange) fields(what string, old, new any, directions map[string]int, without ...string) {
	was, is := descriptors.Fields(old, without...), descriptors.Fields(new, without...)
	text := func(list []descriptors.Field, name string) string {
		at := slices.IndexFunc(list, func(f descriptors.Field) bool { return f.Name == name })
		if at < 0 {
			return ""
		}
		return list[at].Text
	}
	seen := map[string]bool{}
	for _, f := range append(was, is...) {
		if seen[f.Name] {
			continue
		}
		seen[f.Name] = true
		before, after := text(was, f.Name), text(is, f.Name)
		c.note(what+f.Name, before, after, directions[f.Name]*(boolean(after != "")-boolean(before != "")))
	}
}

func (d *Diff) rule(domain, name string, old, new *descriptors.Rule) {
	switch {
	case old == nil:
		d.addChange(domain, "rule", name, Added, new.Pos, ruleText(new))
		return
	case new == nil:
		d.addChange(domain, "rule", name, Removed, old.Pos, ruleText(old))
		return
	}
	c := &ruleChange{}
	sign := 1 // of more requests that the rule is about
	if new.Action != descriptors.Allow {
		sign = -1
	}
	c.note("action", old.Action.String(), new.Action.String(),
		-direction(strictness[old.Action], strictness[new.Action]))
	c.limits(old.Limits, new.Limits)
	c.note("scope", old.Scope.String(), new.Scope.String(), 0)
	c.match(&old.Match, &new.Match, sign)
	c.note("cost", costText(old.Cost), costText(new.Cost), -direction(max(old.Cost, 1), max(new.Cost, 1)))
	c.note("max_delay", span(old.MaxDelay), span(new.MaxDelay), direction(old.MaxDelay, new.MaxDelay))
	c.fields("", old, new, map[string]int{"disabled": -sign, "penalty": -1},
		"Name", "Action", "Limits", "Scope", "HasScope", "Match", "Cost", "MaxDelay")
	d.conclude(domain, "rule", name, new.Pos, c, old.Action == descriptors.LogOnly, new.Action == descriptors.LogOnly)
}

// conclude adds the change, unless nothing changed. One that enters or leaves shadow is of that kind, even if more
// changed.
func (d *Diff) conclude(domain, what, name string, at descriptors.Pos, c *ruleChange, wasShadow, isShadow bool) {
	if len(c.details) == 0 {
		return
	}
	kind := c.kind()
	switch {
	case isShadow && !wasShadow:
		kind = Shadowed
	case wasShadow && !isShadow:
		kind = Enforced
	}
	d.addChange(domain, what, name, kind, at, c.details...)
}

// direction is above 0 for more and below 0 for less.
func direction[T int | int64 | time.Duration](was, is T) int {
	switch {
	case is > was:
		return 1
	case is < was:
		return -1
	}
	return 0
}

func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}

// costText is the cost of a rule. Without one, the table of costs or the header has it.
func costText(cost int64) string {
	if cost == 0 {
		return "by request"
	}
	return fmt.Sprint(cost)
}

// limits compares lists of limits, by their names, else by their places.
func (c *ruleChange) limits(old, new []descriptors.Limit) {
	old, new = paired(old, new)
	for i := range max(len(old), len(new)) {
		switch {
		case i >= len(old):
			c.note("limit", "", limitText(&new[i]), -1)
		case i >= len(new):
			c.note("limit", limitText(&old[i]), "", 1)
		default:
			c.limit(&old[i], &new[i])
		}
	}
}

// paired puts the limits first that both lists have: those of the same name, and those without one that are alike.
func paired(old, new []descriptors.Limit) (was, is []descriptors.Limit) {
	old, new = slices.Clone(old), slices.Clone(new)
	old = slices.DeleteFunc(old, func(one descriptors.Limit) bool {
		at := slices.IndexFunc(new, func(other descriptors.Limit) bool {
			return one.Name == other.Name && (one.Name != "" || limitText(&one) == limitText(&other))
		})
		if at >= 0 {
			was, is = append(was, one), append(is, new[at])
			new = slices.Delete(new, at, at+1)
		}
		return at >= 0
	})
	return append(was, old...), append(is, new...)
}

// limit compares two limits: how much passes in the long run, and how much at once.
func (c *ruleChange) limit(old, new *descriptors.Limit) {
	was, is := limitText(old), limitText(new)
	c.note("limit's name", old.Name, new.Name, 0)
	// Unit and Multiplier are how a limit is reported, which its window decides unless a tree writes it so.
	c.fields("limit's ", old, new, nil, "Limit", "Unlimited", "Unit", "Multiplier", "CalendarUnit")
	c.fields("limit's ", old.Limit, new.Limit, nil, "Name", "Algorithm", "Count", "Window", "Burst", "Calendar")
	if old.Unlimited || new.Unlimited {
		c.note("limit", was, is, direction(boolean(old.Unlimited), boolean(new.Unlimited)))
		return
	}
	if was == is {
		return
	}
	rate := faster(old, new)
	room := direction(old.Capacity(), new.Capacity())
	c.note("limit", was, is, rate)
	c.tighter, c.looser = c.tighter || room < 0, c.looser || room > 0
}

// faster compares rates by the products of each count with the other's window, which are whole numbers of at most 128
// bits.
func faster(old, new *descriptors.Limit) int {
	wasHigh, was := bits.Mul64(uint64(old.Count), uint64(new.Window))
	isHigh, is := bits.Mul64(uint64(new.Count), uint64(old.Window))
	return cmp.Or(cmp.Compare(isHigh, wasHigh), cmp.Compare(is, was))
}

// match compares conditions. With more values of a kind a rule is about more requests, and with a kind more it is about
// fewer.
func (c *ruleChange) match(old, new *descriptors.Conditions, sign int) {
	was, is := conditions(old), conditions(new)
	for i := range was {
		more := wider(was[i].values, is[i].values)
		if was[i].kind == "entries" { // a request needs all of them
			more = boolean(contains(was[i].values, is[i].values)) - boolean(contains(is[i].values, was[i].values))
		}
		c.note("match."+was[i].kind, strings.Join(was[i].values, " "), strings.Join(is[i].values, " "), sign*more)
	}
}

// wider is above 0 where the new values match more, below 0 where they match less, and 0 where that is unknown. No
// value matches all.
func wider(was, is []string) int {
	less := len(was) == 0 || len(is) > 0 && contains(was, is)
	more := len(is) == 0 || len(was) > 0 && contains(is, was)
	return boolean(more) - boolean(less)
}

// contains reports whether all of the one list is in the other: itself, or a network in a wider one.
func contains(all, of []string) bool {
	return !slices.ContainsFunc(of, func(one string) bool {
		return !slices.ContainsFunc(all, func(other string) bool { return one == other || within(one, other) })
	})
}

// within reports whether both are networks, and the one lies in the other.
func within(one, other string) bool {
	inner, err := netip.ParsePrefix(one)
	if err != nil {
		return false
	}
	outer, err := netip.ParsePrefix(other)
	return err == nil && outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}

func (d *Diff) account(domain, what, name string, old, new *descriptors.Account) {
	switch {
	case old == nil:
		d.addChange(domain, what, name, Added, new.Pos, accountText(new))
		return
	case new == nil:
		d.addChange(domain, what, name, Removed, old.Pos, accountText(old))
		return
	}
	c := &ruleChange{}
	c.note("tier", old.Tier, new.Tier, 0)
	c.limits(bursting(old), bursting(new))
	c.fields("", old, new, nil, "Name", "Tier", "Limits", "Burst")
	d.conclude(domain, what, name, new.Pos, c, false, false)
}

// bursting are the limits of an account with its burst.
func bursting(a *descriptors.Account) []descriptors.Limit {
	limits := slices.Clone(a.Limits)
	for i := range limits {
		if a.Burst > 0 && limits[i].Algorithm.HasBurst() {
			limits[i].Burst = a.Burst
		}
	}
	return limits
}

// node is a node of a tree with its path.
type node struct {
	*descriptors.Node
	path string
}

// flatten lists the nodes of a tree, each with its path.
func flatten(nodes []descriptors.Node, above string) (all []node) {
	for i := range nodes {
		n := &nodes[i]
		path := above + n.Key
		if n.Value != "" {
			path += "=" + n.Value
		}
		all = append(all, node{n, path})
		all = append(all, flatten(n.Nodes, path+" / ")...)
	}
	return all
}

func (d *Diff) node(domain, path string, old, new *node) {
	switch {
	case old == nil:
		d.addChange(domain, "node", path, Added, new.Pos, limitTexts(new.Limits))
		return
	case new == nil:
		d.addChange(domain, "node", path, Removed, old.Pos, limitTexts(old.Limits))
		return
	}
	c := &ruleChange{}
	c.limits(old.Limits, new.Limits)
	c.fields("", old.Node, new.Node, map[string]int{"shadow": 1, "quota": 1}, "Key", "Value", "Limits", "Nodes")
	d.conclude(domain, "node", path, new.Pos, c, old.Shadow, new.Shadow)
}
