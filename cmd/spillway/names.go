package main

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/spillway-mesh/spillway/rules"
)

// misspelt is what an error has about an unknown name: those that there are, and the one that is spelled like it.
func misspelt(name string, known []string) string {
	if len(known) == 0 {
		return "there is none"
	}
	all := "there are " + strings.Join(known[:min(len(known), mostNames)], ", ")
	if len(known) == 1 {
		all = "there is " + known[0]
	} else if more := len(known) - mostNames; more > 0 {
		all += fmt.Sprintf(" and %d more", more)
	}
	return plain(all + meant(name, known))
}

// meant is the question whether the name is meant that is spelled like another one; empty: no name is.
func meant(name string, known []string) string {
	if like := rules.Suggest(name, known); strings.HasPrefix(like, "did you mean") {
		return "; " + like
	}
	return ""
}

// mostNames is how many names an error lists.
const mostNames = 20

// checkWord refuses a flag that takes one of a few words, and has another one.
func checkWord(flag, text string) error {
	known := fixedWords[flag]
	if text == "" || len(known) == 0 || slices.Contains(known, text) {
		return nil
	}
	return fmt.Errorf("--%s is %q: %s", flag, text, misspelt(text, known))
}

// doubt looks for the reason why an answer is empty. It fails where the server does not know the domain or the tier
// that was asked for, and notes a user that it does not know.
func (s *session) doubt(empty bool) {
	if !empty || s.err != nil {
		return
	}
	if s.domain != "" {
		s.doubtDomain()
	}
	if s.server == controlAPI && s.domain != "" {
		s.doubtTier()
		s.doubtUser()
	}
	s.doubtRule()
}

// doubtDomain fails where the server does not know the domain. A sidecar refuses one by itself.
func (s *session) doubtDomain() {
	var known []string
	path, field := "/v1/domains", "domain"
	if s.server == sidecarAPI {
		path, field = "/v1/rules", "name"
	}
	for _, d := range objects(s.get(path, nil), "domains") {
		known = append(known, text(d, field))
	}
	if s.err == nil && !slices.Contains(known, s.domain) {
		s.fail(refused("unknown domain %q: %s", s.domain, misspelt(s.domain, known)))
	}
}

func (s *session) doubtTier() {
	tier := s.filter("tier")
	if tier == "" || s.err != nil {
		return
	}
	var known []string
	for _, t := range objects(s.get(below(s.domain, "tiers"), nil), "tiers") {
		known = append(known, text(t, "name"))
	}
	if s.err == nil && !slices.Contains(known, tier) {
		s.fail(refused("unknown tier %q in the domain %q: %s", tier, s.domain, misspelt(tier, known)))
	}
}

func (s *session) doubtUser() {
	user := s.filter("user")
	if user == "" || s.err != nil {
		return
	}
	if a := s.look(below(s.domain, "users", user)); s.err == nil && a.document == nil {
		s.note("nothing is known of a user %q in the domain %q", user, s.domain)
	}
}

// doubtRule notes a rule that the sidecar does not use. A control has rules of other times, too.
func (s *session) doubtRule() {
	rule := s.filter("rule")
	if rule == "" || s.err != nil || s.server != sidecarAPI {
		return
	}
	var known []string
	for _, d := range objects(s.get("/v1/rules", s.withDomain(url.Values{})), "domains") {
		for _, r := range objects(d, "limits") {
			known = append(known, text(r, "rule"))
		}
	}
	slices.Sort(known)
	if known = slices.Compact(known); s.err == nil && !slices.Contains(known, rule) {
		s.fail(refused("unknown rule %q: %s", rule, misspelt(rule, known)))
	}
}

// filter is the value of a flag that the command may have.
func (s *session) filter(name string) string {
	if f := s.cmd.Flags().Lookup(name); f != nil {
		return f.Value.String()
	}
	return ""
}

// note prints a line on the standard error.
func (s *session) note(format string, args ...any) {
	fmt.Fprintf(cleaned{to: s.cmd.ErrOrStderr()}, "spillway: "+format+"\n", args...)
}
