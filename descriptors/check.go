package descriptors

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spillway-mesh/spillway/limit"
)

const (
	maxText  = 256  // bytes of a name
	maxValue = 4096 // bytes of a header's value: the only bound, so what is loaded leaves whole
)

// checker gathers all problems of a configuration.
type checker struct {
	now        time.Time
	problems   []Problem
	errors     int             // problems that are not warnings
	broken     map[Pos]bool    // rules and rows of the cost table that have one
	incomplete map[string]bool // as in Options
}

func (c *checker) fail(at Pos, format string, args ...any) {
	c.errors++
	c.problems = append(c.problems, Problem{Pos: at, Text: fmt.Sprintf(format, args...)})
}

func (c *checker) warn(at Pos, format string, args ...any) {
	c.problems = append(c.problems, Problem{Pos: at, Text: fmt.Sprintf(format, args...), Warning: true})
}

func quote(text string) string { return strconv.Quote(text) }

func hasStar(text string) bool { return strings.Contains(text, "*") }

// or returns the more precise place, if it is known.
func (p Pos) or(other Pos) Pos {
	if p == (Pos{}) {
		return other
	}
	return p
}

// place writes a position down.
func (p Pos) place() string {
	if p.File == "" {
		return fmt.Sprintf("line %d", p.Line)
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

func (c *checker) domains(domains []Domain) {
	seen := map[string]Pos{}
	for i := range domains {
		d := &domains[i]
		if d.Name == "" {
			c.fail(d.Pos, "the domain is empty: name it as Envoy's filter does, as in domain: shop")
		}
		if before, known := seen[d.Name]; known && d.Name != "" {
			c.fail(d.Pos, "duplicate domain %q, which %s has already: keep one of them", d.Name, before.place())
		}
		seen[d.Name] = d.Pos
		c.name(d.Pos, "domain", d.Name)
		c.domain(d)
	}
}

func (c *checker) domain(d *Domain) {
	for _, key := range slices.Sorted(maps.Keys(d.Attributes)) {
		if _, known := attributeNames[d.Attributes[key]]; !known {
			c.fail(d.Pos, "attributes: %q must be an attribute, for descriptor key %q: use one of %s",
				d.Attributes[key],
				key, strings.Join(attributeWords[:], ", "))
		}
	}
	if d.IPv6Prefix < 0 || d.IPv6Prefix > 128 {
		c.fail(d.Pos, "ipv6_prefix %d is not between 1 and 128", d.IPv6Prefix)
	}
	if d.CostHeader != "" {
		c.header(d.Pos, Header{Name: d.CostHeader})
	}
	for i := range d.Costs {
		row := &d.Costs[i]
		c.whole(row.Pos, func() { c.cost(row.Pos.or(d.Pos), row) })
	}
	c.accounts(d, d.Users, accountUser)
	c.accounts(d, d.Tenants, accountTenant)
	c.accounts(d, d.Keys, accountKey)
	c.rules(d)
	c.domainPenalty(d)
	if !c.incomplete[d.Name] {
		c.prefixes(d)
	}
	c.nodes(d.Name, d.Tree)
}

// whole runs the checks of a rule or row, and notes whether they find an error.
func (c *checker) whole(at Pos, check func()) {
	before := c.errors
	check()
	if c.errors > before {
		c.broken[at] = true
	}
}

func (c *checker) cost(at Pos, row *Cost) {
	if row.Cost < 1 || row.Cost > limit.MaxCost {
		c.fail(at, "cost %d is not between 1 and %d", row.Cost, int64(limit.MaxCost))
	}
	c.conditions(at, &row.Match)
}

// name reports what must not be in a name: it goes into answers, where Envoy checks nothing.
func (c *checker) name(at Pos, what, name string) {
	switch {
	case len(name) > maxText:
		c.fail(at, "the %s name is longer than %d bytes: shorten it", what, maxText)
	case hasControl(name):
		c.fail(at, "the %s name %q has control bytes: remove them", what, name)
	case strings.ContainsAny(name, `"\`):
		c.fail(at, "the %s name %q has a quote or a backslash, which would break the headers that show it: remove it",
			what, name)
	}
}

// hasControl reports control characters and bytes that are not UTF-8.
func hasControl(text string) bool {
	return !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl)
}

// header reports a header that must not leave.
func (c *checker) header(at Pos, h Header) {
	if !Token(h.Name) {
		c.fail(at, "header name %q is not made of letters, digits and hyphens: rename it", h.Name)
	}
	if strings.ContainsFunc(h.Value, func(r rune) bool { return r < 0x20 || r > 0x7e }) {
		c.fail(at, "the value of header %q has bytes that are not printable ASCII: remove them", h.Name)
	}
	if len(h.Name) > maxText {
		c.fail(at, "header name %q is longer than %d bytes: shorten it", h.Name, maxText)
	}
	if len(h.Value) > maxValue {
		c.fail(at, "the value of header %q has %d bytes: a value has at most %d", h.Name, len(h.Value), maxValue)
	}
}

// variables are what a message can hold of a refusal; variable finds what looks like one.
var (
	variables = []string{"{rule}", "{limit}", "{remaining}", "{retry_after}", "{reset}"}
	variable  = regexp.MustCompile(`\{[a-z_]+\}`)
)

func (c *checker) response(at Pos, r *Response) {
	if r == nil {
		return
	}
	if r.Status != 0 && (r.Status < 200 || r.Status > 599) {
		c.fail(at, "response status %d is not between 200 and 599", r.Status)
	}
	if hasControl(r.Message) {
		c.fail(at, "the response message %q has control bytes: remove them", r.Message)
	}
	for _, name := range variable.FindAllString(r.Message, -1) {
		if !slices.Contains(variables, name) {
			c.fail(at, "the response message has %s, which is unknown: use one of %s", name,
				strings.Join(variables, ", "))
		}
	}
	if r.RetryAfter < 0 {
		c.fail(at, "response retry_after %v is below 0", r.RetryAfter)
	}
	for _, h := range r.Headers {
		c.header(at, h)
	}
}

// limits checks a list of limits.
func (c *checker) limits(at Pos, limits []Limit) {
	seen := map[string]bool{}
	for i := range limits {
		l := &limits[i]
		here := l.Pos.or(at)
		c.name(here, "limit", l.Name)
		if l.Name != "" && seen[l.Name] {
			c.fail(here, "duplicate limit name %q in one list: their counters need different names", l.Name)
		}
		seen[l.Name] = true
		if l.Unlimited {
			c.unlimited(here, l, len(limits))
			continue
		}
		if err := l.Validate(); err != nil {
			c.fail(here, "%v", err)
		}
	}
}

func (c *checker) unlimited(at Pos, l *Limit, count int) {
	if l.Unit != UnitUnknown {
		c.fail(at, "should not specify rate limit unit when unlimited: remove unit, or unlimited")
	}
	if count > 1 {
		c.fail(at, "unlimited stands beside other limits: keep one or the other")
	}
}

func (c *checker) accounts(d *Domain, accounts []Account, what string) {
	seen := map[string]bool{}
	for i := range accounts {
		a := &accounts[i]
		at := a.Pos.or(d.Pos)
		switch {
		case a.Name == "":
			c.fail(at, "a %s of %ss: has an empty name: name it", what, what)
		case seen[a.Name]:
			c.fail(at, "duplicate %s %q: keep one of them", what, a.Name)
		}
		seen[a.Name] = true
		c.limits(at, a.Limits)
		c.accountBurst(at, a, what)
	}
}

func (c *checker) accountBurst(at Pos, a *Account, what string) {
	if a.Burst == 0 {
		return
	}
	if len(a.Limits) == 0 {
		c.warn(at, "%s %q has a burst and no limits, so it has no effect: add limits", what, a.Name)
	}
	for _, l := range a.Limits {
		if l.Unlimited {
			continue
		}
		if !l.Algorithm.HasBurst() {
			c.fail(l.Pos.or(at), "burst of %s %q holds for each of its limits, and %v has none: use token_bucket", what,
				a.Name, l.Algorithm)
			continue
		}
		l.Burst = a.Burst
		if err := l.Validate(); err != nil {
			c.fail(at, "%v", err)
		}
	}
}
