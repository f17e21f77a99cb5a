// Package ruletest tests rules: a YAML file of requests at instants and what each must get, run on a virtual clock and
// the memory store.
package ruletest

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// maxFile is the most bytes that a file of tests may have.
const maxFile = 4 << 20

// File is a file of tests.
type File struct {
	Path  string `yaml:"-"`
	Rules Paths  `yaml:"rules"` // rule files and folders, relative to this file
	Merge bool   `yaml:"merge_domains"`
	Tests []Test `yaml:"tests"`
}

// Test is a series of requests that begins with no request counted.
type Test struct {
	Line     int       `yaml:"-"`
	Name     string    `yaml:"name"`
	Domain   string    `yaml:"domain"` // empty: the only one of the rules
	Start    Instant   `yaml:"start"`  // default 2026-01-01T00:00:00Z, a Thursday
	Requests []Request `yaml:"requests"`
}

// Request is one request, or the same several times. One of HTTP and Descriptors is given.
type Request struct {
	Line        int          `yaml:"-"`
	At          *Duration    `yaml:"at"`    // since the start of the test; default: when the request before was
	Times       int          `yaml:"times"` // default 1
	Every       Duration     `yaml:"every"` // between them
	HTTP        *HTTP        `yaml:"http"`
	Descriptors []Descriptor `yaml:"descriptors"`
	Hits        *uint64      `yaml:"hits"`   // of each descriptor; default 1; 0 charges nothing: a peek
	Refund      bool         `yaml:"refund"` // the hits are given back
	Want        Want         `yaml:"want"`
}

// HTTP is a request as the ext_authz door gets it.
type HTTP struct {
	Method    string             `yaml:"method"` // default GET
	Path      string             `yaml:"path"`
	Host      string             `yaml:"host"`
	Peer      string             `yaml:"peer"` // the address that Envoy is connected to
	Principal string             `yaml:"principal"`
	Headers   map[string]Strings `yaml:"headers"`
	Context   map[string]string  `yaml:"context"` // context extensions
	User      string             `yaml:"user"`    // who asks, as a verified token would show
	Tenant    string             `yaml:"tenant"`
	Tier      string             `yaml:"tier"`
}

// Want is what a request must get. What is not given is not looked at.
type Want struct {
	Line    int    `yaml:"-"`
	Verdict string `yaml:"verdict"` // admitted, refused, or an outcome as metrics name them
	// the rule that refused, blocked or exempted it, or whose limit is reported
	By         *string   `yaml:"by"`
	Remaining  *int64    `yaml:"remaining"`   // left on the reported limit; with times, after the last
	RetryAfter *Duration `yaml:"retry_after"` //
	Waits      *Duration `yaml:"waits"`       // how long a throttled answer is held
	Status     *int      `yaml:"status"`      // over HTTP
	Cost       *int64    `yaml:"cost"`        // on the reported limit
	Counts     *Strings  `yaml:"counts"`      // the rules that count it, in any order
	Shadow     *Strings  `yaml:"shadow"`      // the rules that are only logged and would have refused it
	Message    *string   `yaml:"message"`     // of the refusal
}

// Descriptor is one descriptor of the rate limit service: its entries in order.
type Descriptor []Entry

// Entry is one entry of a descriptor.
type Entry struct{ Key, Value string }

// Read reads a file of tests, and reports everything that is wrong with it at once.
func Read(path string) (*File, error) {
	opened, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	text, err := io.ReadAll(io.LimitReader(opened, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("%s: a file of tests has at most %d bytes: split it", path, maxFile)
	}
	return Parse(path, text)
}

// Parse is Read of a text.
func Parse(path string, text []byte) (*File, error) {
	f := &File{Path: path}
	err := decodeFile(path, text, f)
	if err != nil {
		return nil, err
	}
	err = f.check()
	if err != nil {
		return nil, err
	}
	return f, nil
}

// RulePaths returns the rule files and folders, as seen from where the program runs.
func (f *File) RulePaths() []string {
	var all []string
	for _, path := range f.Rules {
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(f.Path), path)
		}
		all = append(all, path)
	}
	return all
}

// check reports what each value alone does not show.
func (f *File) check() error {
	var all []error
	if len(f.Rules) == 0 {
		all = append(all, fmt.Errorf("%s:1: rules is missing: name the rule files to test, as in rules: shop.yaml",
			f.Path))
	}
	if len(f.Tests) == 0 {
		all = append(all, fmt.Errorf("%s:1: tests is missing: there is nothing to run", f.Path))
	}
	for i := range f.Tests {
		t := &f.Tests[i]
		t.Name = cmp.Or(t.Name, fmt.Sprintf("test %d", i+1))
		if len(t.Requests) == 0 {
			all = append(all, fmt.Errorf("%s:%d: test %q needs requests", f.Path, t.Line, t.Name))
		}
		before := time.Duration(0)
		for j := range t.Requests {
			r := &t.Requests[j]
			for _, problem := range r.check(&before) {
				all = append(all, fmt.Errorf("%s:%d: %s", f.Path, r.Line, problem))
			}
		}
	}
	return errors.Join(all...)
}

// maxTimes is how often one request may be sent.
const maxTimes = 1_000_000

// check returns what is wrong with the request. The request before it was at that time.
func (r *Request) check(before *time.Duration) (problems []string) {
	say := func(wrong bool, problem string) {
		if wrong {
			problems = append(problems, problem)
		}
	}
	say((r.HTTP == nil) == (r.Descriptors == nil), "a request has either http or descriptors")
	say(r.Times < 0 || r.Times > maxTimes, fmt.Sprintf("times is from 1 to %d", maxTimes))
	say(r.Every < 0, "every is not below 0")
	say(r.HTTP != nil && (r.Hits != nil || r.Refund),
		"hits and refund are for descriptors: over HTTP rules say what a request costs")
	say(r.Refund && r.Hits != nil && *r.Hits == 0,
		"a refund of 0 hits gives nothing back: write how many, as in hits: 1")
	say(r.HTTP != nil && r.HTTP.Path == "", "http needs a path, as in path: /search")
	say(r.Want.empty(), "want is missing: say what the request must get, as in want: admitted")
	r.Times = max(r.Times, 1)
	if r.At != nil {
		say(time.Duration(*r.At) < *before,
			fmt.Sprintf("at %v is before the request above it, which is at %v: requests stand in order of time", *r.At,
				Duration(*before)))
		*before = time.Duration(*r.At)
	}
	*before += time.Duration(r.Every) * time.Duration(r.Times-1)
	return problems
}

func (w *Want) empty() bool {
	line := w.Line
	w.Line = 0
	empty := *w == Want{}
	w.Line = line
	return empty
}
