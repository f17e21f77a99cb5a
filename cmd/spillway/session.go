package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
)

// session is one run of a command that asks a server. The first error stays: after it nothing is asked, and answers
// are empty.
type session struct {
	*client
	*printer
	cmd    *cobra.Command
	noun   *noun
	target *target
	force  *force // of the last change, until it is printed
	err    error
}

// start begins a run that asks a server, without one the truth.
func start(cmd *cobra.Command, of *server) (*session, error) {
	s := &session{cmd: cmd, noun: &noun{}}
	s.printer, s.err = newPrinter(cmd)
	if s.err == nil {
		s.target, s.err = targetOf(cmd)
	}
	if s.err == nil {
		s.turn(of)
	}
	return s, s.err
}

// turn lets the run ask another server, without one the truth.
func (s *session) turn(of *server) {
	if of == nil {
		of = s.target.truth()
	}
	c, err := newClient(s.cmd, s.target, of)
	s.client = c
	s.fail(err)
}

// fail keeps the first error.
func (s *session) fail(err error) {
	if s.err == nil {
		s.err = err
	}
}

// failed reports whether there is an error by now, after adding one where it is not nil.
func (s *session) failed(err error) bool {
	s.fail(err)
	return s.err != nil
}

// found ends the command with 1 where it found what it looks for.
func (s *session) found(is bool) {
	if is {
		s.fail(exit(exitFound))
	}
}

// flag is the value of a flag.
func (s *session) flag(name string) string { return s.cmd.Flag(name).Value.String() }

// is reports whether a command has a flag and it is true.
func (s *session) is(name string) bool {
	f := s.cmd.Flags().Lookup(name)
	return f != nil && f.Value.String() == "true"
}

// given reports whether a command has a flag and it is given.
func (s *session) given(name string) bool {
	f := s.cmd.Flags().Lookup(name)
	return f != nil && f.Changed
}

// ask sends a request, and returns the answer.
func (s *session) ask(method, path string, body any, params url.Values, headers ...string) *answer {
	if s.err != nil {
		return &answer{}
	}
	request, err := s.request(method, path, body, params, headers...)
	if s.failed(err) {
		return &answer{}
	}
	a, err := s.send(request)
	if s.failed(err) {
		return &answer{}
	}
	s.keep(a)
	return a
}

// get reads the object under a path.
func (s *session) get(path string, params url.Values) object {
	return s.ask(http.MethodGet, path, nil, params).object
}

// find is get, where an object that is not there is an error of these words.
func (s *session) find(path string, params url.Values, format string, args ...any) object {
	o := s.get(path, params)
	if missing(s.err) {
		s.err = refused(format, args...)
	}
	return o
}

// look reads what is under a path. Nothing is an answer without a document.
func (s *session) look(path string) *answer {
	a := s.ask(http.MethodGet, path, nil, nil)
	if missing(s.err) {
		s.err = nil
	}
	return a
}

// print prints a value, for people by show, and whether the change that was made is in force.
func (s *session) print(value object, show func()) {
	if s.err != nil {
		return
	}
	value = s.forced(value)
	s.err = s.value(value, func() {
		show()
		if line := waits(value); line != "" {
			s.line("%s", line)
		}
	})
}

// below is a path below the domain of the flag or the context, or below the only one.
func (s *session) below(words ...string) string {
	if s.domain == "" {
		names := s.domainNames()
		if len(names) != 1 {
			known := cmp.Or(plain(strings.Join(names, ", ")), "no rules are published yet")
			s.fail(fmt.Errorf("--domain is missing: %s", known))
			return ""
		}
		s.domain = names[0]
	}
	return below(s.domain, words...)
}

// domainNames are the names of the domains that are in force, else of those that were.
func (s *session) domainNames() (names []string) {
	all := s.domains()
	inForce := slices.DeleteFunc(slices.Clone(all), func(o object) bool { return whole(o, "version") == 0 })
	if len(inForce) > 0 {
		all = inForce
	}
	for _, one := range all {
		names = append(names, text(one, "domain"))
	}
	return names
}

// below is a path below a domain, of words that may hold anything.
func below(domain string, words ...string) string {
	path := "/v1/domains/" + url.PathEscape(domain)
	for _, word := range words {
		path += "/" + url.PathEscape(word)
	}
	return path
}

// domains are what is in force in each domain of a control.
func (s *session) domains() []object { return objects(s.get("/v1/domains", nil), "domains") }

// path is where the noun is, below a domain where it belongs to one.
func (s *session) path(words ...string) string {
	if !strings.HasPrefix(s.noun.path, "/") {
		return s.below(append([]string{s.noun.path}, words...)...)
	}
	return strings.Join(append([]string{s.noun.path}, words...), "/")
}

// existing reads what the arguments name, which has to exist.
func (s *session) existing(args []string) (path string, now *answer) {
	path = s.path(args...)
	now = s.look(path)
	if s.err == nil && now.document == nil {
		s.fail(refused("there is no %s", s.called(args)))
	}
	return path, now
}

// called is what an error calls the thing that the arguments name.
func (s *session) called(args []string) string {
	name := fmt.Sprintf("%s %q", s.noun.one, strings.Join(args, "/"))
	if strings.HasPrefix(s.noun.path, "/") {
		return name
	}
	return fmt.Sprintf("%s in the domain %q", name, s.domain)
}

// parameters are those of the flags that are given.
func (s *session) parameters(of []option) url.Values {
	params := url.Values{}
	for _, o := range of {
		if value := s.flag(o.flag); value != "" {
			s.fail(checkWord(o.flag, value))
			params.Set(o.field(), value)
		}
	}
	return params
}

// withDomain adds the domain, for lists that are about all of them without it.
func (s *session) withDomain(params url.Values) url.Values {
	if s.domain != "" {
		params.Set("domain", s.domain)
	}
	return params
}

// pageOf is how many items one request asks for.
const pageOf = 1000

// pages reads a list page by page, up to the flag limit.
func (s *session) pages(path string, params url.Values) (all []object) {
	left, paged := pageOf, s.noun.next != ""
	if paged {
		left, _ = s.cmd.Flags().GetInt("limit")
	}
	if left < 1 {
		s.fail(errors.New("--limit must be at least 1"))
	}
	for s.err == nil && left > 0 {
		count := min(left, pageOf)
		if paged {
			params.Set("limit", strconv.Itoa(count))
		}
		o := s.get(path, params)
		items := objects(o, s.noun.field())
		all, left = append(all, items...), left-len(items)
		if len(items) < count || !paged || !s.nextPage(params, o, items[len(items)-1]) {
			break
		}
	}
	return all
}

// nextPage sets the parameters of the page behind the last item, and reports false at the end of the list.
func (s *session) nextPage(params url.Values, page, last object) bool {
	for pair := range strings.SplitSeq(s.noun.next, " ") {
		name, field, _ := strings.Cut(pair, "=")
		value := text(last, field)
		if name == "cursor" {
			value = text(page, field)
		}
		if value == "" {
			return false
		}
		params.Set(name, value)
	}
	return true
}

// condition is the header by which a change is made of what was read and nothing else.
func (s *session) condition(now *answer) []string {
	wanted, _ := s.cmd.Flags().GetInt64("if-match")
	switch {
	case wanted > 0:
		return []string{"If-Match", `"` + strconv.FormatInt(wanted, 10) + `"`}
	case now.document == nil:
		return []string{"If-None-Match", "*"}
	}
	return []string{"If-Match", now.etag}
}
