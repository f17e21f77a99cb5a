package ruletest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spillway-mesh/spillway/descriptors"
	"github.com/spillway-mesh/spillway/engine"
	"github.com/spillway-mesh/spillway/extauthz"
	"github.com/spillway-mesh/spillway/identity"
	"github.com/spillway-mesh/spillway/rules"
	"github.com/spillway-mesh/spillway/whatif"
)

// Result is what came of a file of tests.
type Result struct {
	File  string       `json:"file"`
	Tests []TestResult `json:"tests"`
}

// TestResult is what came of one test.
type TestResult struct {
	Name     string    `json:"name"`
	Line     int       `json:"line"`
	Requests int       `json:"requests"`
	Failures []Failure `json:"failures,omitempty"`
}

// Failure is one request that got something else than it must.
type Failure struct {
	Line    int          `json:"line"`
	Number  int          `json:"number"` // of the request among the same ones, from 1
	Of      int          `json:"of"`
	At      string       `json:"at"`
	Request string       `json:"request"`
	Differs []Difference `json:"differs"`
	Got     string       `json:"got"`            // all of it, in words
	Hint    string       `json:"hint,omitempty"` // what may be wrong with the request
}

// Difference is one thing that differs.
type Difference struct {
	What string `json:"what"`
	Want string `json:"want"`
	Got  string `json:"got"`
}

// Failed returns how many tests failed.
func (r *Result) Failed() (failed int) {
	for _, t := range r.Tests {
		if len(t.Failures) > 0 {
			failed++
		}
	}
	return failed
}

// start is when tests begin that do not set it.
var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Run runs the tests of a file. An error means that they could not be run: the rules do not load, which is a
// *whatif.Unloadable, or a test names a domain that they do not have.
func Run(f *File) (*Result, error) {
	result := &Result{File: f.Path}
	for i := range f.Tests {
		one, err := f.run(&f.Tests[i])
		if err != nil {
			return nil, err
		}
		result.Tests = append(result.Tests, *one)
	}
	return result, nil
}

// runner runs one test.
type runner struct {
	trial   *whatif.Trial
	domain  string
	start   time.Time
	message extauthz.Message
	verdict engine.Verdict
	result  *TestResult
}

func (f *File) run(t *Test) (*TestResult, error) {
	tried, err := whatif.New(whatif.Config{Paths: f.RulePaths(), MergeDomains: f.Merge})
	if err != nil {
		return nil, err
	}
	defer tried.Close() //nolint:errcheck // nothing is written
	r := runner{trial: tried, start: t.Start.Time, result: &TestResult{Name: t.Name, Line: t.Line}}
	r.domain, err = tried.Domain(t.Domain)
	if err != nil {
		return nil, fmt.Errorf("%s:%d: test %q: %w", f.Path, t.Line, t.Name, err)
	}
	if r.start.IsZero() {
		r.start = start
	}
	tried.At(r.start)
	for i := range t.Requests {
		err = r.send(&t.Requests[i])
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", f.Path, t.Requests[i].Line, err)
		}
	}
	return r.result, nil
}

// send sends a request as often as it has to, and notes the first time that it gets something else than it must.
func (r *runner) send(q *Request) error {
	if q.At != nil {
		r.trial.At(r.start.Add(time.Duration(*q.At)))
	}
	failed := false
	for n := 1; n <= q.Times; n++ {
		if n > 1 {
			r.trial.At(r.trial.Now().Add(time.Duration(q.Every)))
		}
		err := r.trial.Decide(r.request(q), &r.verdict)
		if err != nil {
			return err
		}
		r.result.Requests++
		differs := q.Want.compare(&r.verdict, n == q.Times)
		if len(differs) == 0 || failed {
			continue
		}
		failed = true
		r.result.Failures = append(r.result.Failures, Failure{
			Line: q.Line, Number: n, Of: q.Times, At: Duration(r.trial.Now().Sub(r.start)).String(),
			Request: q.describe(), Differs: differs, Got: describe(&r.verdict), Hint: r.hint(q),
		})
	}
	return nil
}

// hint names an entry of the request that the rules do not read, or nothing.
func (r *runner) hint(q *Request) string {
	known := r.trial.Load.Set.Domain(r.domain).EntryKeys()
	wild := slices.ContainsFunc(known, func(key string) bool { return strings.Contains(key, "*") })
	for _, d := range q.Descriptors {
		for _, e := range d {
			if wild || slices.Contains(known, e.Key) {
				continue
			}
			text := fmt.Sprintf("the rules do not read the entry %q", e.Key)
			if near := rules.Suggest(e.Key, known); strings.HasPrefix(near, "did you mean") {
				text += "; " + near
			}
			return text
		}
	}
	return ""
}

// request makes what a door would make of it.
func (r *runner) request(q *Request) *descriptors.Request {
	if q.HTTP != nil {
		return r.message.TakeHTTP(q.HTTP.asked(r.domain))
	}
	req := &descriptors.Request{Domain: r.domain}
	for _, d := range q.Descriptors {
		one := descriptors.Descriptor{NegativeHits: q.Refund, HitsGiven: q.Hits != nil}
		if q.Hits != nil {
			one.Hits = *q.Hits
		}
		for _, e := range d {
			one.Entries = append(one.Entries, descriptors.Entry(e))
		}
		req.Descriptors = append(req.Descriptors, one)
	}
	return req
}

func (h *HTTP) asked(domain string) *extauthz.HTTP {
	asked := &extauthz.HTTP{Domain: domain, Method: h.Method, Path: h.Path, Host: h.Host, Peer: h.Peer,
		Principal: h.Principal}
	if asked.Method == "" {
		asked.Method = "GET"
	}
	for _, name := range slices.Sorted(maps.Keys(h.Headers)) {
		for _, value := range h.Headers[name] {
			asked.Headers = append(asked.Headers, identity.Header{Name: name, Value: value})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(h.Context)) {
		asked.Extensions = append(asked.Extensions, descriptors.Entry{Key: key, Value: h.Context[key]})
	}
	if h.User != "" || h.Tenant != "" || h.Tier != "" {
		asked.Client = &identity.Client{User: h.User, Tenant: h.Tenant, Tier: h.Tier, By: identity.JWT,
			Authenticated: true}
	}
	return asked
}

// describe writes the request in one line.
func (q *Request) describe() string {
	if q.HTTP == nil {
		text := "descriptors"
		for _, d := range q.Descriptors {
			text += " ("
			for i, e := range d {
				if i > 0 {
					text += ", "
				}
				text += e.Key + "=" + e.Value
			}
			text += ")"
		}
		return text
	}
	asked := q.HTTP.asked("")
	text := asked.Method + " " + asked.Path
	for _, part := range []struct{ name, value string }{{"from", asked.Peer}, {"user", q.HTTP.User},
		{"tenant", q.HTTP.Tenant}, {"tier", q.HTTP.Tier}} {
		if part.value != "" {
			text += " " + part.name + " " + part.value
		}
	}
	return text
}
