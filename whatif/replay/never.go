package replay

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spillway-mesh/spillway/descriptors"
)

// never returns the rules that applied to no request, in the order of the file. Limits that clients have of their own
// are not among them: a log need not have every client.
func (s *side) never() (all []Never) {
	seen := map[descriptors.Pos]bool{}
	for domain, e := range s.trial.Rules().Effects() {
		at := e.Origin()
		t := s.byEffect[e]
		if domain != s.domain || e.Account != "" || at == (descriptors.Pos{}) || seen[at] || t != nil &&
			(t.met || t.counted+t.refused > 0) {
			continue
		}
		seen[at] = true
		all = append(all, Never{Rule: e.Rule, File: at.File, Line: at.Line, Why: s.why(e)})
	}
	slices.SortStableFunc(all, func(a, b Never) int {
		if a.File != b.File {
			return strings.Compare(a.File, b.File)
		}
		return a.Line - b.Line
	})
	return all
}

// why says why a rule applied to no request, and what would help.
func (s *side) why(e *descriptors.Effect) string {
	rule := e.Written()
	switch {
	case s.requests == 0:
		return "there was no request"
	case rule == nil && s.layout.descriptors == nil:
		return "a descriptor tree needs --descriptor, which says what Envoy's rate limit filter sends"
	case rule == nil:
		return "no request has this descriptor"
	}
	for _, lacks := range s.unmet(rule).Each() {
		return s.lacks(lacks)
	}
	if key := s.unmetEntry(rule); key != "" {
		return fmt.Sprintf("no request has the entry %s: --entry %s=FIELD", key, key)
	}
	if asks := conditions(&rule.Match); asks != "" {
		return "no request meets its match (" + asks + "), or another rule counts in its place"
	}
	return "another rule counts in its place, or exempts every request"
}

// unmet are the attributes that the rule needs and no request had. A client is a user or an address.
func (s *side) unmet(r *descriptors.Rule) descriptors.Scope {
	needs := r.Needs()
	if needs&descriptors.ScopeClient&^s.knows != 0 {
		needs |= descriptors.ScopeIP
	}
	return needs &^ descriptors.ScopeClient &^ s.knows
}

// unmetEntry is a context extension that the rule needs and no field is named for.
func (s *side) unmetEntry(r *descriptors.Rule) string {
	for _, key := range slices.Sorted(maps.Keys(r.Match.Entries)) {
		named := slices.ContainsFunc(s.layout.entries, func(n named) bool { return n.name == key })
		if s.layout.descriptors == nil && !named {
			return key
		}
	}
	return ""
}

// holder is how a log may hold an attribute: the flag that names the field, and words in the names of such fields.
type holder struct {
	flag  string
	words []string
}

var holders = map[descriptors.Scope]holder{
	descriptors.ScopeUser: {"--user ", []string{"user", "sub", "login", "email", "account", "uid", "principal",
		"subject"}},
	descriptors.ScopeTenant: {"--tenant ", []string{"tenant", "org", "organization", "customer", "company",
		"account"}},
	descriptors.ScopeTier:   {"--tier ", []string{"tier", "plan"}},
	descriptors.ScopeIP:     {"--field peer=", []string{"addr", "address", "remote", "ip"}},
	descriptors.ScopeAPIKey: {"--header x-api-key=", []string{"key", "apikey"}},
}

// lacks says that no request has an attribute, and which fields of the log may hold it.
func (s *side) lacks(what descriptors.Scope) string {
	text := "no request has the attribute " + what.String()
	if s.layout.descriptors != nil {
		return text + fmt.Sprintf(": add %s={FIELD} to --descriptor", what)
	}
	l := holders[what]
	fields := s.layout.like(l.words...)
	switch {
	case l.flag == "":
		return text
	case s.layout.formats[formatJSON] == 0 && len(fields) == 0:
		return text + ", and the format of the log has no place for one: JSON has"
	case len(fields) == 0:
		return text + fmt.Sprintf(", and no field of the log looks like one: name it by %sFIELD", l.flag)
	case len(fields) == 1:
		return text + fmt.Sprintf("; the log has the field %s: %s%s", fields[0], l.flag, fields[0])
	}
	return text + fmt.Sprintf("; the log has the fields %s: %sFIELD", strings.Join(fields, ", "), l.flag)
}

// conditions names the conditions of a match.
func conditions(m *descriptors.Conditions) string {
	var names []string
	for _, f := range descriptors.Fields(m) {
		names = append(names, strings.ToLower(f.Name))
	}
	return strings.Join(names, ", ")
}
