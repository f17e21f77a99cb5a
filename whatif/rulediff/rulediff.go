// Package rulediff reports what a change of a rule set means: which rules are added, removed, tightened, loosened, put
// into shadow or displaced, and who would be treated differently.
package rulediff

import (
	"cmp"
	"context"
	"embed"
	"slices"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/rules"
)

// Sources are the files whose comments describe differences to callers of an API.
//
//go:embed probe.go rulediff.go
var Sources embed.FS

// Diff is all that differs between two rule sets.
type Diff struct {
	Changes   []Change    `json:"changes"`   // what is written differently
	Treated   []Treatment `json:"treated"`   // who is treated differently
	Truncated bool        `json:"truncated"` // there are more kinds of requests than were tried
}

// Empty reports that nothing differs.
func (d *Diff) Empty() bool { return len(d.Changes)+len(d.Treated) == 0 }

// Kind is what became of a rule.
type Kind string

// The kinds. Shadowed rules are counted and no longer enforced, displaced ones are there and can never apply, in whole
// or in part.
const (
	Added     Kind = "added"
	Removed   Kind = "removed"
	Tightened Kind = "tightened"
	Loosened  Kind = "loosened"
	Changed   Kind = "changed" // otherwise, or in part the one and in part the other
	Shadowed  Kind = "shadowed"
	Enforced  Kind = "enforced"
	Displaced Kind = "displaced"
	Reached   Kind = "reached" // it was displaced, and applies now
)

// Change is one thing that is written differently.
type Change struct {
	Domain  string   `json:"domain"`
	What    string   `json:"what"` // domain, rule, node, user, tenant, key, costs or settings
	Name    string   `json:"name,omitempty"`
	Kind    Kind     `json:"kind"`
	Details []string `json:"details,omitempty"`
	File    string   `json:"file,omitempty"` // where it is in the new rules, else in the old ones
	Line    int      `json:"line,omitempty"`
}

// Compare returns what differs between two sets that were loaded. Large sets take seconds: the error is that of ctx,
// which ends it.
func Compare(ctx context.Context, old, new rules.Load) (*Diff, error) {
	d := &Diff{Changes: []Change{}, Treated: []Treatment{}}
	names := append(old.Set.Domains(), new.Set.Domains()...)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		d.domain(name, written(old, name), written(new, name))
		err := d.probe(ctx, name, old.Set, new.Set)
		if err != nil {
			return nil, err
		}
	}
	d.displaced(old.Problems, new.Problems)
	return d, ctx.Err()
}

// written is what a domain was compiled from, or nil.
func written(l rules.Load, name string) *descriptors.Domain {
	compiled := l.Set.Domain(name)
	if compiled == nil {
		return nil
	}
	return compiled.Written()
}

func (d *Diff) addChange(domain, what, name string, kind Kind, at descriptors.Pos, details ...string) {
	d.Changes = append(d.Changes, Change{Domain: domain, What: what, Name: name, Kind: kind, Details: details,
		File: at.File, Line: at.Line})
}

func (d *Diff) domain(name string, old, new *descriptors.Domain) {
	switch {
	case old == nil:
		d.addChange(name, "domain", "", Added, new.Pos)
		return
	case new == nil:
		d.addChange(name, "domain", "", Removed, old.Pos)
		return
	}
	pair(rulesOf(old), rulesOf(new), func(r *descriptors.Rule) string { return r.Name },
		func(rule string, a, b *descriptors.Rule) {
			d.rule(name, rule, a, b)
		})
	pair(flatten(old.Tree, ""), flatten(new.Tree, ""), func(n *node) string { return n.path },
		func(path string, a, b *node) {
			d.node(name, path, a, b)
		})
	for _, accounts := range []struct {
		what     string
		old, new []descriptors.Account
	}{{"user", old.Users, new.Users}, {"tenant", old.Tenants, new.Tenants}, {"key", old.Keys, new.Keys}} {
		pair(accounts.old, accounts.new, func(a *descriptors.Account) string { return a.Name },
			func(account string, a, b *descriptors.Account) {
				d.account(name, accounts.what, account, a, b)
			})
	}
	d.rest(name, old, new)
}

// rulesOf are the rules of a domain, with the one of requests that nothing else limits.
func rulesOf(d *descriptors.Domain) []descriptors.Rule {
	if d.Defaults == nil {
		return d.Rules
	}
	return append(slices.Clip(d.Rules), *d.Defaults)
}

// pair calls f for each name of both lists, in the order of the new one, then what is gone; with nil for what is not
// there.
func pair[T any](old, new []T, name func(*T) string, f func(name string, old, new *T)) {
	was, is := map[string]*T{}, map[string]*T{}
	for i := range old {
		was[name(&old[i])] = &old[i]
	}
	for i := range new {
		is[name(&new[i])] = &new[i]
	}
	for i := range new {
		f(name(&new[i]), was[name(&new[i])], &new[i])
	}
	for i := range old {
		if is[name(&old[i])] == nil {
			f(name(&old[i]), &old[i], nil)
		}
	}
}

// rest compares the cost table and the domain's settings.
func (d *Diff) rest(name string, old, new *descriptors.Domain) {
	was, is := costs(old.Costs), costs(new.Costs)
	if !slices.Equal(was, is) {
		at := new.Pos
		if len(new.Costs) > 0 {
			at = new.Costs[0].Pos
		}
		d.addChange(name, "costs", "", Changed, at, lines(was, is)...)
	}
	v := &ruleChange{}
	v.fields("", old, new, nil, "Name", "Costs", "Rules", "Users", "Tenants", "Keys", "Tree", "Defaults")
	d.conclude(name, "settings", "", new.Pos, v, false, false)
}

// lines are those that are in one list only, with a sign before them.
func lines(was, is []string) (all []string) {
	for _, text := range was {
		if !slices.Contains(is, text) {
			all = append(all, "- "+text)
		}
	}
	for _, text := range is {
		if !slices.Contains(was, text) {
			all = append(all, "+ "+text)
		}
	}
	if len(all) == 0 {
		all = []string{"in another order"}
	}
	return all
}

// displaced reports the rules that can never apply in one of the sets only.
func (d *Diff) displaced(old, new []descriptors.Problem) {
	named := func(list []descriptors.Problem) map[[2]string]bool {
		set := map[[2]string]bool{}
		for _, p := range list {
			set[[2]string{p.Domain, p.Never}] = true
		}
		return set
	}
	before, after := named(old), named(new)
	for _, p := range new {
		if p.Never != "" && !before[[2]string{p.Domain, p.Never}] {
			d.addChange(p.Domain, "rule", p.Never, Displaced, p.Pos, p.Text)
		}
	}
	for _, p := range old {
		if p.Never != "" && !after[[2]string{p.Domain, p.Never}] {
			d.addChange(p.Domain, "rule", p.Never, Reached, p.Pos, "it could never apply, and does now, or is gone")
		}
	}
	slices.SortStableFunc(d.Changes, func(a, b Change) int { return cmp.Compare(a.Domain, b.Domain) })
}
