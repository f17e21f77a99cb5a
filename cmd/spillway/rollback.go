package main

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
)

// rollbackRules publishes the version that is named, or the one before the last change.
func rollbackRules(s *session, args []string) {
	if len(args) == 0 && !s.asks() && !s.is("yes") {
		s.fail(errors.New("without a terminal the command cannot ask: name the version, or add --yes"))
	}
	s.below() // finds the domain
	if s.err == nil && len(args) == 0 {
		args = []string{fmt.Sprint(s.noun.mark, s.before())}
	}
	if s.err == nil {
		s.publishVersion(args)
	}
}

// before is the version that a rollback without a version brings back.
func (s *session) before() int64 {
	publications := s.publications()
	from := rolledBack(publications)
	to, _ := lastTwo(publications)
	if len(publications) > 0 && whole(publications[0], "canary") > 0 {
		to = whole(publications[0], "version") // ends the canary
	}
	switch {
	case from != "":
		s.fail(fmt.Errorf("%s was rolled back from; name the version: spillway rules publish @N", from))
	case to == 0:
		s.fail(refused("the domain %q has had no other version in force: name one of spillway rules list", s.domain))
	}
	return to
}

// publications are the last ones of the domain, the newest first.
func (s *session) publications() []object {
	return objects(s.get(below(s.domain, "publications"), url.Values{"limit": {strconv.Itoa(pageOf)}}), "publications")
}

// lastTwo is the version that is in force, 0 for none, and the last other one that was.
func lastTwo(newestFirst []object) (before, now int64) {
	for i, p := range newestFirst {
		v := whole(p, "version")
		if i == 0 {
			now = v
		} else if v != now && v != 0 {
			return v, now
		}
	}
	return 0, now
}

// rolledBack is what the newest of some publications rolled back from, such as "version 2"; empty: it is a step
// forward. A publication rolls back those that came since its version was in force, and are not rolled back already.
func rolledBack(newestFirst []object) (from string) {
	type step struct {
		version int64
		words   string
	}
	steps := []step{{}} // what was put into force one after the other and is not rolled back
	for _, p := range slices.Backward(newestFirst) {
		next := step{whole(p, "version"), fmt.Sprint("version ", whole(p, "version"))}
		if canary := whole(p, "canary"); canary > 0 {
			next = step{words: fmt.Sprint("version ", canary)}
		} else if next.version == 0 {
			next.words = "unpublish"
		}
		last, at := steps[len(steps)-1], slices.Index(steps, next)
		switch {
		case next == last:
		case next.version == 0, at < 0, next.words == last.words: // the last: after the canary
			steps, from = append(steps, next), ""
		default:
			steps, from = steps[:at+1], last.words
		}
	}
	return from
}
