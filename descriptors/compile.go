package descriptors

import (
	"io"
	"iter"
	"time"
)

// Options are what Compile needs to know besides the rules.
type Options struct {
	KeyPrefix string           // put in front of every key
	KeySecret []byte           // with it, identities in keys are HMACed
	Now       func() time.Time // time.Now unless given; decides whether a block's Until has passed
}

// CompiledDomain is one domain in its compiled form.
type CompiledDomain struct {
	Name      string
	Headers   HeaderStyle
	ResetUnix bool
}

// Set is all domains in their compiled form. It is never changed, so any number of goroutines may use it.
type Set struct{ domains map[string]*CompiledDomain }

// Compile checks the domains and compiles them. It reports every problem at once; the Set is nil when one of them is
// not a warning.
func Compile(domains []Domain, opt Options) (*Set, []Problem) {
	return &Set{}, nil
}

// Match fills m with what the request comes to.
func (s *Set) Match(req *Request, m *Match) { m.Reset() }

// Domains returns the names of the domains, sorted.
func (s *Set) Domains() []string { return nil }

// Effects yields every effect with its domain.
func (s *Set) Effects() iter.Seq2[string, *Effect] { return func(func(string, *Effect) bool) {} }

// Dump writes one line per limit, sorted.
func (s *Set) Dump(w io.Writer) {}
